//! Inodes read in order, as when a large directory is removed or copied, are read from the device
//! many at a time.

use std::ffi::OsStr;

use meantime_block::Device;
use meantime_ext4::{FileSystem, MountOptions, NewNode};
use meantime_nvme::AdminQueries as _;

use meantime_testkit::image::{mkfs, mount, scratch, tools, writable};

const FILES: usize = 4000;

/// The number of reads that the device of `fs` has completed.
fn reads(fs: &FileSystem) -> u128 {
    let Device::Nvme(device) = fs.device() else { panic!("a software SSD is asked by NVMe") };
    device.controller().smart().unwrap().host_read_commands.get()
}

#[test]
fn tables_of_inodes_are_read_ahead() {
    if !tools() {
        return;
    }
    let dir = scratch();
    for (block_bytes, in_blocks) in [("4096", 4096), ("1024", 4096)] {
        let image = mkfs(dir.path(), "inodes.img", "64M", &["-b", block_bytes, "-I", "256"]);
        let fs = mount(&image, &writable());
        let root = fs.root().unwrap();
        let new = NewNode { mode: 0o600, uid: 0, gid: 0, umask: 0 };
        let mut inodes: Vec<u32> = (0..FILES)
            .map(|n| fs.create(&root, OsStr::new(&format!("file-{n}")), &new).unwrap().ino())
            .collect();
        inodes.sort_unstable();
        drop(root);
        fs.unmount().unwrap();
        for options in [MountOptions::default(), writable()] {
            let fs = mount(&image, &options);
            let before = reads(&fs);
            for ino in &inodes {
                assert_eq!(fs.inode(*ino).unwrap().metadata().mode & 0o777, 0o600);
            }
            let (reads, one_by_one) = (reads(&fs) - before, FILES * 256 / in_blocks);
            // 16 at a time, and a few at the beginning of each group's table; otherwise one by one.
            assert!(reads * 4 <= one_by_one as u128, "{reads} reads of {one_by_one} blocks");
            fs.unmount().unwrap();
        }
    }
}
