//! File systems created here on a device that was not empty, written here, then by the kernel, then
//! here again: each reads what the others wrote, and e2fsck finds no problem in between.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use meantime_ext4::format::mkfs::MakeOptions;
use meantime_ext4::{MountOptions, NewNode, ReadOptions, Timestamp, mkfs};

use meantime_testkit::Rng;
use meantime_testkit::image::{
    Mounted, READ_WRITE, device, mount, mount_after_kernel, open, run, scratch, tools, writable,
};

/// The contents of files by path.
type Files = BTreeMap<PathBuf, Vec<u8>>;

fn some_bytes(rng: &mut Rng) -> Vec<u8> {
    let most = [100, 5_000, 200_000][rng.below(3) as usize];
    let bytes = rng.below(most) as usize;
    let words = (0..bytes.div_ceil(8)).flat_map(|_| rng.next().to_le_bytes());
    words.take(bytes).collect()
}

/// Writes directories `{who}{n}` with files through this crate.
fn write(path: &Path, who: &str, rng: &mut Rng, files: &mut Files) {
    let fs = mount_after_kernel(path, &MountOptions { cache_bytes: 8 << 20, ..writable() });
    let root = fs.root().unwrap();
    for dir in 0..6 {
        let dir_name = format!("{who}{dir}");
        let new = NewNode { mode: 0o755, uid: 0, gid: 0, umask: 0 };
        let node = fs.mkdir(&root, OsStr::new(&dir_name), &new).unwrap();
        for file in 0..20 {
            let name = format!("file{file}");
            let data = some_bytes(rng);
            let made =
                fs.create(&node, OsStr::new(&name), &NewNode { mode: 0o644, ..new }).unwrap();
            let made = fs.open_node_with(&made, &READ_WRITE).unwrap();
            assert_eq!(made.write_at(&data, 0).unwrap(), data.len());
            if rng.one_in(4) {
                made.sync_all().unwrap();
            }
            files.insert(Path::new(&dir_name).join(name), data);
        }
    }
    drop(root);
    fs.unmount().unwrap();
}

/// Through the kernel's mount at `at`: checks `files`, removes every third, and writes others all
/// over the disk.
fn write_by_kernel(at: &Path, rng: &mut Rng, files: &mut Files) {
    for (name, data) in &*files {
        assert!(
            std::fs::read(at.join(name)).unwrap() == *data,
            "the kernel reads {}",
            name.display()
        );
    }
    let taken: Vec<_> = files.keys().step_by(3).cloned().collect();
    for name in taken {
        std::fs::remove_file(at.join(&name)).unwrap();
        files.remove(&name);
    }
    // The kernel spreads top-level directories over the groups, with their files.
    for dir in 0..60 {
        let dir = PathBuf::from(format!("kernel{dir}"));
        std::fs::create_dir(at.join(&dir)).unwrap();
        for file in 0..12 {
            let (name, data) = (dir.join(format!("file{file}")), some_bytes(rng));
            std::fs::write(at.join(&name), &data).unwrap();
            files.insert(name, data);
        }
    }
}

/// Checks that `path` has exactly `files`, read through the cache and past it.
fn compare(path: &Path, files: &Files) {
    let fs = mount(path, &MountOptions::default());
    let mut found = 0;
    for dir in fs.read_dir("/").unwrap() {
        let dir = Path::new("/").join(dir.unwrap().name);
        if ["/.", "/..", "/lost+found"].iter().any(|other| dir == Path::new(other)) {
            continue;
        }
        found += fs.read_dir(&dir).unwrap().count() - 2;
    }
    assert_eq!(found, files.len());
    for (name, data) in files {
        let file = fs.open(name).unwrap();
        for direct in [false, true] {
            let mut all = vec![0; data.len() + 1];
            let read =
                file.read_at_with(&mut all, 0, &ReadOptions { direct, ..ReadOptions::default() });
            assert_eq!(read.unwrap(), data.len(), "{}", name.display());
            assert!(all[..data.len()] == *data, "{}, direct: {direct}", name.display());
        }
    }
}

/// The numbers of groups whose block bitmap, and whose inode bitmap, was never written.
fn uninitialised(path: &Path) -> (usize, usize) {
    let volume = open(path);
    let groups: Vec<_> =
        (0..volume.superblock().groups()).map(|number| volume.group(number).unwrap()).collect();
    let count =
        |of: &dyn Fn(&&meantime_ext4::format::Group) -> bool| groups.iter().filter(of).count();
    (count(&|group| group.block_uninit), count(&|group| group.inode_uninit))
}

#[test]
fn the_kernel_goes_on_with_what_was_made_here() {
    if !tools() {
        return;
    }
    // There are so few inodes that some groups run out of them.
    let usual = || MakeOptions {
        bytes_per_inode: Some(64 << 10),
        ..MakeOptions::new([7; 32], Timestamp { seconds: 1_700_000_000, nanoseconds: 0 })
    };
    let shapes = [
        (MakeOptions { block_bytes: Some(1024), ..usual() }, "noatime"),
        // The inode tables are not zeroed.
        (
            MakeOptions {
                block_bytes: Some(2048),
                checksum_seed: true,
                orphan_file: true,
                fast_commit: true,
                ..usual()
            },
            "noatime,noinit_itable",
        ),
    ];
    for (number, (options, mount_options)) in shapes.iter().enumerate() {
        let dir = scratch();
        let path = dir.path().join("image");
        let mut rng = Rng::new(number as u64 + 1);
        // Unwritten parts are neither zeroes nor valid structures.
        let noise: Vec<u8> = (0..1 << 17).flat_map(|_| rng.next().to_le_bytes()).collect();
        std::fs::write(&path, noise.repeat(160)).unwrap();
        mkfs::make(&device(&path), options).unwrap();
        let fsck = || run("e2fsck", &["-fn", path.to_str().unwrap()]);
        fsck();
        let mut files = Files::new();
        write(&path, "first", &mut rng, &mut files);
        fsck();
        let before = uninitialised(&path);
        let Some(mounted) = Mounted::new(&path, &dir.path().join("mnt"), mount_options) else {
            return;
        };
        write_by_kernel(&dir.path().join("mnt"), &mut rng, &mut files);
        drop(mounted);
        fsck();
        let after = uninitialised(&path);
        println!(
            "without bitmaps of blocks, of inodes: {before:?} groups; when the kernel has written: {after:?}"
        );
        assert!(after.0 < before.0 && after.1 < before.1, "{before:?} {after:?}");
        compare(&path, &files);
        // Writing continues in what the kernel has initialised.
        write(&path, "again", &mut rng, &mut files);
        fsck();
        compare(&path, &files);
        if let Some(mounted) = Mounted::new(&path, &dir.path().join("mnt"), "ro") {
            for (name, data) in &files {
                assert!(std::fs::read(dir.path().join("mnt").join(name)).unwrap() == *data);
            }
            drop(mounted);
        }
    }
}

#[test]
fn what_a_device_contains_is_found() {
    let dir = scratch();
    let path = dir.path().join("image");
    let mut disk = vec![0; 1 << 20];
    let cases: [(usize, &[u8], Option<&str>); 7] = [
        (0, b"", None),
        // A boot record without partitions, and with one.
        (510, b"\x55\xaa", None),
        (450, b"\x83\0\0\0\x01\0\0\0\x02", Some("a partition table")),
        (65_600, b"_BHRfS_M", Some("a btrfs file system")),
        (1080, b"\x53\xef", Some("an ext2, ext3 or ext4 file system")),
        (512, b"EFI PART", Some("a partition table (GPT)")),
        (0, b"XFSB", Some("an XFS file system")),
    ];
    // Each is found before those that were written earlier.
    for (offset, sign, what) in cases {
        disk[offset..offset + sign.len()].copy_from_slice(sign);
        for blocks in ["512", "4096"] {
            std::fs::write(&path, &disk).unwrap();
            let uri = format!("file:{}?model=null&lba={blocks}", path.display());
            let device = meantime_block::open(&uri, &Default::default()).unwrap();
            assert_eq!(mkfs::found_on(&device).unwrap(), what);
        }
    }
}
