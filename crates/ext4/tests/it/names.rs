//! Directories, links and attributes of real file systems, made by e2fsprogs and the kernel and
//! read here.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use meantime_ext4::FileType;
use meantime_ext4::format::{Error, ROOT_INO, Volume, VolumeOptions};

use meantime_testkit::image::{
    self, Mounted, debugfs_write, mkfs, names, open, run, run_for, scratch, tools,
};

/// Makes `count` names of many lengths, some with bytes that are invalid in any encoding.
fn some_names(count: usize) -> BTreeSet<Vec<u8>> {
    (0..count)
        .map(|n| {
            let mut name = format!("{n}-").into_bytes();
            let filler = if n % 3 == 0 { 0xe0 + (n % 16) as u8 } else { b'a' + (n % 26) as u8 };
            name.resize((n * 7 % 60).max(name.len()), filler);
            if n % 97 == 0 {
                name.resize(255, filler);
            }
            name
        })
        .collect()
}

/// Makes a directory `d` with `names`, all links to one of a few files (each can have 65,000).
fn fill(root: &Path, names: &BTreeSet<Vec<u8>>) {
    std::fs::create_dir(root.join("d")).unwrap();
    let file = root.join("file");
    std::fs::write(&file, b"content").unwrap();
    for name in names {
        std::fs::hard_link(&file, root.join("d").join(OsStr::from_bytes(name))).unwrap();
    }
}

/// Looks up all `names` in `d`, and some that do not exist, each with at most `reads_max` blocks
/// read.
fn check(image: &Path, names_made: &BTreeSet<Vec<u8>>, reads_max: usize) {
    let volume = open(image);
    let ino = volume.resolve(ROOT_INO, b"/d", true).unwrap();
    let file = volume.resolve(ROOT_INO, b"file", true).unwrap();
    let found = names(&volume, ino);
    assert_eq!(found.len(), names_made.len() + 2);
    let dir = volume.linked_inode(ino).unwrap();
    for name in names_made {
        let before = volume.source().reads.load(Relaxed);
        assert_eq!(volume.lookup(&dir, name), Ok(Some((file, Some(FileType::Regular)))));
        let reads = volume.source().reads.load(Relaxed) - before;
        assert!(reads <= reads_max, "{reads} blocks read for {}", name.escape_ascii());
    }
    for name in [&b"missing"[..], b"x", &[0xff; 255]] {
        assert_eq!(volume.lookup(&dir, name), Ok(None));
    }
    assert_eq!(volume.lookup(&dir, &[b'x'; 256]), Err(Error::NameTooLong));
}

#[test]
fn every_hash_leads_to_its_names() {
    if !tools() {
        return;
    }
    let dir = scratch();
    let names_made = some_names(1500);
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    fill(&tree, &names_made);
    for hash in ["legacy", "half_md4", "tea"] {
        // s_flags: 1 for signed characters, 2 for unsigned ones.
        for flags in [1, 2] {
            let name = format!("{hash}-{flags}.img");
            let image =
                mkfs(dir.path(), &name, "16M", &["-b", "1024", "-d", tree.to_str().unwrap()]);
            run("tune2fs", &["-E", &format!("hash_alg={hash}"), image.to_str().unwrap()]);
            debugfs_write(&image, &[format!("set_super_value flags {flags}")]);
            // e2fsck builds the directory's index now. Exit code 1 means that the file system was
            // changed.
            run_for("e2fsck", &["-fyD", image.to_str().unwrap()], &[0, 1]);
            check(&image, &names_made, 6);
        }
    }
}

/// Makes every query about an inode. Any result will do.
fn ask(volume: &Volume<image::Image>, ino: u32) {
    let Ok(inode) = volume.inode(ino) else { return };
    let mut cookie = 0;
    while let Ok(Some(last)) =
        volume.entries(&inode, cookie).map(|some| some.last().map(|last| last.cookie))
    {
        assert!(last > cookie);
        cookie = last;
    }
    cookie = 0;
    while let Ok(Some(last)) =
        volume.list(&inode, cookie, u64::MAX).map(|some| some.last().map(|last| last.cookie))
    {
        assert!(last > cookie);
        cookie = last;
    }
    for name in [&b".."[..], b"missing", b"file", b"12-mmmmmmmm"] {
        let _ = volume.lookup(&inode, name);
    }
    let _ = (volume.check_index(&inode), volume.attributes(&inode), volume.read_link(&inode));
}

#[test]
fn no_bytes_of_a_directory_make_it_panic_or_go_on_for_ever() {
    if !tools() {
        return;
    }
    let dir = scratch();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    fill(&tree, &some_names(700));
    let image =
        mkfs(dir.path(), "corrupt.img", "16M", &["-b", "1024", "-d", tree.to_str().unwrap()]);
    run_for("e2fsck", &["-fyD", image.to_str().unwrap()], &[0, 1]);
    let options = VolumeOptions { ignore_checksums: true, superblock: None };
    let mut volume = image::open_with(&image, options);
    let ino = volume.resolve(ROOT_INO, b"/d", true).unwrap();
    let inode = volume.linked_inode(ino).unwrap();
    let blocks = inode.size() / volume.block_bytes() as u64;
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |bound: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % bound
    };
    for _ in 0..400 {
        let mut overlay = BTreeMap::new();
        for _ in 0..1 + below(3) {
            // The root and the inner nodes more often than leaves.
            let logical = if below(2) == 0 { 0 } else { below(blocks) };
            let number = volume.run_at(&inode, logical).unwrap().physical;
            let mut block = volume.block(number).unwrap().to_vec();
            for _ in 0..1 + below(3) {
                let at = if below(2) == 0 { below(64) } else { below(1024) };
                block[at as usize] = [0, 1, 12, 0xff, below(256) as u8][below(5) as usize];
            }
            overlay.insert(number, block.into());
        }
        volume.set_overlay(overlay).unwrap();
        ask(&volume, ino);
        volume.set_overlay(BTreeMap::new()).unwrap();
    }
    // The same for the directory's inode.
    let (table, at) = volume.inode_place(ino).unwrap();
    for _ in 0..400 {
        let mut block = volume.block(table).unwrap().to_vec();
        for _ in 0..1 + below(4) {
            block[at + below(256) as usize] = below(256) as u8;
        }
        volume.set_overlay(BTreeMap::from([(table, block.into())])).unwrap();
        ask(&volume, ino);
        volume.set_overlay(BTreeMap::new()).unwrap();
    }
}

#[test]
fn directories_without_an_index() {
    if !tools() {
        return;
    }
    let dir = scratch();
    let names_made = some_names(300);
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    fill(&tree, &names_made);
    let tree = tree.to_str().unwrap();
    let shapes: [&[&str]; 6] = [
        &["-b", "1024"],
        &["-b", "4096", "-O", "^dir_index"],
        &["-b", "4096", "-O", "^metadata_csum"],
        &["-b", "2048", "-O", "^filetype,^extent,^64bit"],
        &["-b", "16384"],
        &["-b", "65536"],
    ];
    for (number, shape) in shapes.into_iter().enumerate() {
        let args = [shape, &["-d", tree]].concat();
        let size = if number < 4 { "16M" } else { "128M" };
        let image = mkfs(dir.path(), "linear.img", size, &args);
        let volume = open(&image);
        let ino = volume.resolve(ROOT_INO, b"d/./../d/", true).unwrap();
        let found: BTreeSet<_> = names(&volume, ino).into_keys().collect();
        let mut expected = names_made.clone();
        expected.extend([b".".to_vec(), b"..".to_vec()]);
        assert_eq!(found, expected, "{shape:?}");
        let file = volume.resolve(ROOT_INO, b"file", true).unwrap();
        let file = volume.linked_inode(file).unwrap();
        assert_eq!(volume.lookup(&file, b"x"), Err(Error::NotDirectory));
        assert_eq!(volume.resolve(ROOT_INO, b"file/x", true), Err(Error::NotDirectory));
        std::fs::remove_file(image).unwrap();
    }
}

#[test]
fn an_index_of_three_levels() {
    if !tools() {
        return;
    }
    let dir = scratch();
    let image =
        mkfs(dir.path(), "large.img", "64M", &["-b", "1024", "-O", "large_dir", "-N", "64"]);
    // Three names per block of 1 KiB, about 126 blocks per node, and as many nodes per upper node:
    // more than two levels hold.
    let names_made: BTreeSet<_> = (0..36_000).map(|n| format!("{n:0>250}").into_bytes()).collect();
    {
        let at = dir.path().join("mnt");
        let Some(_mounted) = Mounted::new(&image, &at, "noatime") else { return };
        fill(&at, &names_made);
    }
    let htree = run("debugfs", &["-R", "htree_dump /d", image.to_str().unwrap()]);
    assert!(htree.contains("Indirect levels: 2"), "{}", &htree[..300]);
    check(&image, &names_made, 8);
}

/// The numbers of names in the small directories.
const COUNTS: [usize; 7] = [0, 1, 3, 4, 6, 9, 30];
/// The lengths of the links' targets, in bytes.
const TEXTS: [usize; 8] = [1, 59, 60, 61, 100, 150, 300, 1000];

fn fill_small(root: &Path) {
    for count in COUNTS {
        let sub = root.join(format!("dir{count}"));
        std::fs::create_dir_all(&sub).unwrap();
        for n in 0..count {
            std::fs::create_dir(sub.join(format!("name-{n}"))).unwrap();
        }
    }
    for bytes in TEXTS {
        std::os::unix::fs::symlink("t".repeat(bytes), root.join(format!("link{bytes}"))).unwrap();
    }
}

/// Checks the result of [`fill_small`]. Returns how many of the directories are inline.
fn check_small(image: &Path) -> usize {
    let volume = open(image);
    let mut inline = 0;
    for count in COUNTS {
        let ino = volume.resolve(ROOT_INO, format!("dir{count}").as_bytes(), true).unwrap();
        let found = names(&volume, ino);
        let mut expected: BTreeSet<_> =
            (0..count).map(|n| format!("name-{n}").into_bytes()).collect();
        expected.extend([b".".to_vec(), b"..".to_vec()]);
        assert_eq!(
            found.keys().cloned().collect::<BTreeSet<_>>(),
            expected,
            "{} {count}",
            image.display()
        );
        assert_eq!((found[&b"."[..]], found[&b".."[..]]), (ino, ROOT_INO));
        let inode = volume.linked_inode(ino).unwrap();
        inline += usize::from(inode.is_inline());
        // Each entry's cookie is the position of the next one.
        let all = volume.entries(&inode, 0).unwrap();
        for (index, entry) in all.iter().enumerate() {
            assert_eq!(volume.entries(&inode, entry.cookie).unwrap(), all[index + 1..]);
        }
    }
    for bytes in TEXTS {
        let path = format!("link{bytes}");
        let ino = volume.resolve(ROOT_INO, path.as_bytes(), false).unwrap();
        let inode = volume.linked_inode(ino).unwrap();
        assert_eq!(volume.read_link(&inode).unwrap(), "t".repeat(bytes).into_bytes());
        let found = volume.resolve(ROOT_INO, path.as_bytes(), true);
        assert_eq!(found, Err(if bytes > 255 { Error::NameTooLong } else { Error::NotFound }));
    }
    let root = volume.linked_inode(ROOT_INO).unwrap();
    assert_eq!(volume.read_link(&root), Err(Error::Invalid("not a symbolic link")));
    inline
}

#[test]
fn small_directories_and_links_in_their_inodes() {
    if !tools() {
        return;
    }
    let dir = scratch();
    let tree = dir.path().join("tree");
    fill_small(&tree);
    let tree = tree.to_str().unwrap();
    let inline = mkfs(
        dir.path(),
        "inline.img",
        "16M",
        &["-b", "1024", "-I", "256", "-O", "inline_data", "-d", tree],
    );
    assert_eq!(check_small(&inline), 3);
    let plain = mkfs(dir.path(), "plain.img", "16M", &["-b", "4096", "-d", tree]);
    assert_eq!(check_small(&plain), 0);
    // The kernel uses the attribute's room, too: four names, or nine in a larger inode.
    for (inode_bytes, expected) in [("256", 4..=5), ("512", 6..=6)] {
        let image = mkfs(
            dir.path(),
            "kernel.img",
            "16M",
            &["-b", "4096", "-I", inode_bytes, "-O", "inline_data"],
        );
        {
            let at = dir.path().join("mnt");
            let Some(_mounted) = Mounted::new(&image, &at, "noatime") else { return };
            fill_small(&at);
        }
        let inline = check_small(&image);
        assert!(expected.contains(&inline), "{inline} in inodes of {inode_bytes} bytes");
    }
}

/// The kernel's attributes: names in the order of `listxattr`, and values.
fn kernel_attributes(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut list = vec![0; 64 << 10];
    let bytes = rustix::fs::llistxattr(path, &mut list).unwrap();
    let value = |name: &[u8]| {
        let mut value = vec![0; 64 << 10];
        let bytes = rustix::fs::lgetxattr(path, name, &mut value).unwrap();
        value[..bytes].to_vec()
    };
    list[..bytes]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| (name.to_vec(), value(name)))
        .collect()
}

#[test]
fn attributes_are_those_of_the_kernel() {
    if !tools() {
        return;
    }
    let dir = scratch();
    let acl = [
        &[2, 0, 0, 0][..],
        &[1, 0, 6, 0, 0xff, 0xff, 0xff, 0xff],
        &[2, 0, 4, 0, 0xe8, 3, 0, 0],
        &[4, 0, 4, 0, 0xff, 0xff, 0xff, 0xff],
        &[0x10, 0, 4, 0, 0xff, 0xff, 0xff, 0xff],
        &[0x20, 0, 4, 0, 0xff, 0xff, 0xff, 0xff],
    ]
    .concat();
    let shapes: [&[&str]; 4] = [
        &["-b", "4096"],
        &["-b", "1024", "-O", "^metadata_csum,inline_data"],
        &["-b", "4096", "-O", "ea_inode"],
        &["-b", "4096", "-O", "ea_inode,^metadata_csum"],
    ];
    for shape in shapes {
        let large = shape.iter().any(|arg| arg.contains("ea_inode"));
        let image = mkfs(dir.path(), "attributes.img", "16M", shape);
        let mut expected = Vec::new();
        {
            let at = dir.path().join("mnt");
            let Some(_mounted) = Mounted::new(&image, &at, "noatime,user_xattr,acl") else {
                return;
            };
            let set = |path: &Path, name: &str, value: &[u8]| {
                rustix::fs::lsetxattr(path, name, value, rustix::fs::XattrFlags::empty()).unwrap();
            };
            for number in 0..8_u32 {
                let path = at.join(format!("file{number}"));
                if number % 4 == 3 {
                    std::fs::create_dir(&path).unwrap();
                    set(&path, "system.posix_acl_default", &acl);
                } else {
                    std::fs::write(&path, vec![number as u8; number as usize * 20]).unwrap();
                }
                for n in 0..number {
                    set(&path, &format!("user.n{n}"), &vec![n as u8; 10 + n as usize * 9]);
                }
                if number > 1 {
                    set(&path, "trusted.t", b"");
                    set(&path, "security.custom", &[0, 1, 2]);
                    set(&path, "system.posix_acl_access", &acl);
                }
                if large && number > 4 {
                    set(&path, "user.large", &vec![number as u8; 40_000]);
                    set(&path, "user.shared", &[7; 9_000]);
                }
                expected.push((
                    path.file_name().unwrap().to_owned(),
                    path.metadata().unwrap().ino(),
                    kernel_attributes(&path),
                ));
            }
        }
        let volume = open(&image);
        for (name, ino, attributes) in expected {
            let found = volume.resolve(ROOT_INO, name.as_bytes(), true).unwrap();
            assert_eq!(u64::from(found), ino);
            let inode = volume.linked_inode(found).unwrap();
            assert_eq!(
                volume.attributes(&inode).unwrap(),
                attributes,
                "{} {shape:?}",
                name.display()
            );
        }
        assert_eq!(volume.ignored(), 0);
        std::fs::remove_file(image).unwrap();
    }
}
