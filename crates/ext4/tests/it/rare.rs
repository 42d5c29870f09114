//! Valid file systems that other programs read otherwise (docs/interop.md).

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use meantime_ext4::MountOptions;
use meantime_testkit::e2fs::{debugfs_write, make, mkfs, run, tools};
use meantime_testkit::image::{mount, open, scratch};

use crate::format::noise;

fn read_only() -> MountOptions {
    MountOptions::default()
}

/// A device of which no block was ever zeroed, as an SSD without deterministic trims.
#[test]
fn preallocated_blocks_are_zeroes_whatever_the_device_held() {
    if !tools() {
        return;
    }
    let dir = scratch();
    let (image, content) = (dir.path().join("image"), dir.path().join("content"));
    std::fs::write(&image, noise(3, 32 << 20)).unwrap();
    std::fs::write(&content, noise(7, 8192)).unwrap();
    run("mkfs.ext4", &["-q", "-F", "-b", "4096", "-E", "nodiscard", image.to_str().unwrap()]);
    let write = format!("write {} f", content.display());
    let requests = [write, "fallocate f 0 99".into(), "set_inode_field f size 409600".into()];
    debugfs_write(&image, &requests);
    let fs = mount(&image, &read_only());
    let file = fs.open("f").unwrap();
    for direct in [false, true] {
        let mut all = vec![1; 409_600];
        let options = meantime_ext4::ReadOptions { direct, ..Default::default() };
        assert_eq!(file.read_at_with(&mut all, 0, &options).unwrap(), all.len());
        assert!(all[..8192] == noise(7, 8192)[..]);
        assert!(all[8192..].iter().all(|byte| *byte == 0), "old bytes are read");
    }
}

#[test]
fn a_size_of_more_than_32_bits_counts_without_extents() {
    if !tools() {
        return;
    }
    let dir = scratch();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let file = File::create(tree.join("big")).unwrap();
    file.set_len((5 << 30) + 3).unwrap();
    file.write_all_at(b"end", 5 << 30).unwrap();
    let image = dir.path().join("image");
    make(&image, "64M", &["-t", "ext3", "-b", "4096"], &tree);
    let fs = mount(&image, &read_only());
    let file = fs.open("big").unwrap();
    assert_eq!(file.size(), 5_368_709_123);
    let mut end = [1; 8];
    assert_eq!(file.read_at(&mut end, (5 << 30) - 5).unwrap(), 8);
    assert_eq!(&end, b"\0\0\0\0\0end");
}

#[test]
fn an_entry_in_the_last_12_bytes_of_a_directory_is_found() {
    if !tools() {
        return;
    }
    let dir = scratch();
    let content = dir.path().join("content");
    std::fs::write(&content, "x").unwrap();
    let image = mkfs(dir.path(), "image", "8M", &["-t", "ext2", "-b", "1024"]);
    // Of 1,024 bytes `.` and `..` take 24, the first name 16, and the 82 others 12 each.
    let names: Vec<String> = (0..82).map(|number| format!("n{number:02}")).collect();
    let names = ["a-longer"].into_iter().chain(names.iter().map(String::as_str));
    let write = |name: &str| format!("write {} {name}", content.display());
    let requests = ["mkdir d".to_owned(), "cd d".to_owned()].into_iter();
    debugfs_write(&image, &requests.chain(names.clone().map(write)).collect::<Vec<_>>());
    let fs = mount(&image, &read_only());
    let listed = fs.read_dir("d").unwrap().map(|entry| entry.unwrap().name);
    let listed: Vec<_> = listed.filter(|name| name != "." && name != "..").collect();
    assert_eq!(listed.len(), 83, "{listed:?}");
    for name in names {
        assert_eq!(fs.open(format!("d/{name}")).unwrap().size(), 1, "{name}");
    }
    let volume = open(&image);
    let inode = volume.linked_inode(fs.metadata("d").unwrap().ino).unwrap();
    assert_eq!(inode.size(), 1024, "the last name ends the block");
}

#[test]
fn the_longest_name_hides_no_other() {
    if !tools() {
        return;
    }
    let dir = scratch();
    let (tree, long) = (dir.path().join("tree"), "n".repeat(255));
    std::fs::create_dir_all(tree.join("d")).unwrap();
    std::fs::write(tree.join("d").join(&long), "long").unwrap();
    std::fs::write(tree.join("d/short"), "short").unwrap();
    let image = dir.path().join("image");
    make(&image, "8M", &[], &tree);
    let fs = mount(&image, &read_only());
    for (name, bytes) in [(long.as_str(), 4), ("short", 5)] {
        assert_eq!(fs.open(format!("d/{name}")).unwrap().size(), bytes, "{name}");
    }
}
