//! Refused mounts for writing: file systems that could not be kept consistent are refused by name,
//! and nothing is written.

use std::path::{Path, PathBuf};

use meantime_ext4::{FileSystem, MountError, MountOptions, NewNode};

use meantime_testkit::image::{
    Mounted, debugfs_write, mkfs, mount_after_kernel, run, run_for, scratch, tools, try_mount,
    writable,
};

fn mount(path: &Path, write: bool) -> Result<FileSystem, MountError> {
    try_mount(path, &MountOptions { write, ..writable() })
}

/// Checks that a mount of `path` for writing fails with `what`, and changes no byte.
fn refused(path: &Path, what: &str) {
    let before = std::fs::read(path).unwrap();
    let text = match mount(path, true) {
        Ok(_) => panic!("mounted, instead of: {what}"),
        Err(error) => error.to_string(),
    };
    assert!(text.contains(what), "{text}, instead of: {what}");
    assert!(before == std::fs::read(path).unwrap(), "{what}: it was written to");
}

/// An image whose journal has some transactions, as after a crash.
fn crashed(dir: &Path, args: &[&str]) -> PathBuf {
    let path = mkfs(dir, "whole", "32M", args);
    let fs = mount(&path, true).unwrap();
    let root = fs.root().unwrap();
    for number in 0..3 {
        let name = format!("d{number}");
        fs.mkdir(&root, name.as_ref(), &NewNode { mode: 0o755, uid: 0, gid: 0, umask: 0 }).unwrap();
        fs.sync_node(&root).unwrap();
    }
    let copy = dir.join("crashed");
    std::fs::copy(&path, &copy).unwrap();
    fs.unmount().unwrap();
    copy
}

/// The byte offsets of the journal blocks of `kind`, which begin with `JBD2_MAGIC_NUMBER`, in
/// journal order.
fn journal_blocks(path: &Path, kind: u32) -> Vec<u64> {
    let bytes = std::fs::read(path).unwrap();
    let text = run("debugfs", &["-R", "blocks <8>", path.to_str().unwrap()]);
    let blocks = text.split_whitespace().filter_map(|block| block.parse::<u64>().ok());
    let head = [0xC03B_3998_u32.to_be_bytes(), kind.to_be_bytes()].concat();
    let offsets = blocks.map(|block| block * 4096);
    offsets.filter(|offset| bytes[*offset as usize..].starts_with(&head)).collect()
}

fn flip(path: &Path, at: u64) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at as usize] ^= 0x40;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn one_that_has_errors() {
    if !tools() {
        return;
    }
    let dir = scratch();
    let path = mkfs(dir.path(), "image", "32M", &[]);
    debugfs_write(&path, &["set_super_value state 3".to_owned()]);
    refused(&path, "has errors");
    assert!(mount(&path, false).unwrap().info().errors);
    // After a check it can be mounted.
    run_for("e2fsck", &["-fy", path.to_str().unwrap()], &[0, 1]);
    mount(&path, true).unwrap().unmount().unwrap();
}

/// What is not written here is refused when it is mounted, not at each use.
#[test]
fn one_with_a_feature_that_is_only_read() {
    if !tools() {
        return;
    }
    let dir = scratch();
    for (arguments, what) in [
        (&["-t", "ext2"][..], "writing without the feature extent (ext2 and ext3)"),
        (&["-t", "ext3"], "writing without the feature extent (ext2 and ext3)"),
        (&["-O", "inline_data"], "writing with inline_data"),
        (&["-O", "bigalloc"], "writing with bigalloc"),
        (&["-O", "quota"], "writing with quota"),
    ] {
        let path = mkfs(dir.path(), "image", "32M", arguments);
        refused(&path, what);
        refused(&path, "mount it for reading");
        mount(&path, false).unwrap();
    }
}

/// The last write of an unmount failed: nothing needs recovery, and only the journal records it.
#[test]
fn one_whose_journal_alone_has_errors() {
    if !tools() {
        return;
    }
    let dir = scratch();
    let path = mkfs(dir.path(), "image", "32M", &["-b", "4096"]);
    let journal = journal_blocks(&path, 4)[0] as usize;
    let mut bytes = std::fs::read(&path).unwrap();
    // As mkfs leaves it, the journal's superblock has no checksum yet.
    bytes[journal + 0x20..journal + 0x24].copy_from_slice(&(-5_i32).to_be_bytes());
    std::fs::write(&path, bytes).unwrap();
    refused(&path, "has errors");
    mount(&path, false).unwrap();
    run_for("e2fsck", &["-fy", path.to_str().unwrap()], &[0, 1]);
    mount(&path, true).unwrap().unmount().unwrap();
}

#[test]
fn one_whose_recovery_fails() {
    const DESCRIPTOR: u32 = 1;
    const COMMIT: u32 = 2;
    if !tools() {
        return;
    }
    let dir = scratch();
    let path = crashed(dir.path(), &["-b", "4096"]);
    let (descriptors, commits) = (journal_blocks(&path, DESCRIPTOR), journal_blocks(&path, COMMIT));
    assert!(descriptors.len() >= 3 && commits.len() >= 3, "{descriptors:?} {commits:?}");
    let damaged = dir.path().join("damaged");
    // A block in a committed transaction, a tag of a descriptor, and the checksum of a commit
    // block.
    for (at, what) in [
        (descriptors[0] + 4096 + 100, "a checksum in the journal is wrong"),
        (descriptors[1] + 40, "a checksum in the journal is wrong"),
        (commits[0] + 17, "a committed transaction was lost"),
    ] {
        std::fs::copy(&path, &damaged).unwrap();
        flip(&damaged, at);
        refused(&damaged, what);
    }
    // Restored, it can be mounted.
    mount(&path, true).unwrap().unmount().unwrap();
    run("e2fsck", &["-fn", path.to_str().unwrap()]);
}

#[test]
fn one_that_is_damaged_where_a_mount_looks() {
    if !tools() {
        return;
    }
    let dir = scratch();
    let group = mkfs(dir.path(), "group", "32M", &["-b", "4096"]);
    flip(&group, 4096 + 4);
    refused(&group, "a group descriptor's checksum is wrong");
    let orphans = mkfs(dir.path(), "orphans", "32M", &["-b", "4096"]);
    debugfs_write(&orphans, &["set_super_value last_orphan 2".to_owned()]);
    refused(&orphans, "the list of inodes that are being deleted");
    let root = mkfs(dir.path(), "root", "32M", &["-b", "4096"]);
    debugfs_write(&root, &["set_inode_field <2> mode 0100644".to_owned()]);
    refused(&root, "the inode's type cannot be");
}

#[test]
fn one_with_its_journal_elsewhere() {
    if !tools() {
        return;
    }
    let dir = scratch();
    let path = mkfs(dir.path(), "image", "32M", &["-O", "^has_journal"]);
    let requests = ["feature has_journal", "set_super_value journal_dev 0x0700"].map(str::to_owned);
    debugfs_write(
        &path,
        &[
            requests.to_vec(),
            vec!["set_super_value journal_uuid 11111111-2222-3333-4444-555555555555".to_owned()],
        ]
        .concat(),
    );
    refused(&path, "a journal on another device");
    // That journal's content is unknown: if it needs recovery, not even a mount for reading is
    // possible.
    debugfs_write(&path, &["feature needs_recovery".to_owned()]);
    refused(&path, "an external journal");
    assert!(mount(&path, false).unwrap_err().to_string().contains("an external journal"));
}

#[test]
fn blocks_larger_than_any() {
    if !tools() {
        return;
    }
    let dir = scratch();
    // Blocks larger than a page work, up to ext4's largest.
    let path = mkfs(dir.path(), "large", "256M", &["-b", "65536"]);
    let fs = mount(&path, true).unwrap();
    let root = fs.root().unwrap();
    fs.mkdir(&root, "d".as_ref(), &NewNode { mode: 0o755, uid: 0, gid: 0, umask: 0 }).unwrap();
    fs.unmount().unwrap();
    run("e2fsck", &["-fn", path.to_str().unwrap()]);
    // A superblock with twice that size is invalid.
    let path = mkfs(dir.path(), "larger", "32M", &["-O", "^metadata_csum"]);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[1024 + 0x18] = 7;
    std::fs::write(&path, bytes).unwrap();
    refused(&path, "block size");
}

#[test]
fn one_with_too_small_a_journal() {
    if !tools() {
        return;
    }
    let dir = scratch();
    let path = crashed(dir.path(), &["-b", "4096"]);
    // The journal's superblock excludes all blocks after 200 from the log.
    let at = journal_blocks(&path, 4)[0];
    let mut bytes = std::fs::read(&path).unwrap();
    let block = &mut bytes[at as usize..at as usize + 1024];
    block[0x10..0x14].copy_from_slice(&200_u32.to_be_bytes());
    let without_checksums = u32::from_be_bytes(block[0x28..0x2C].try_into().unwrap()) & !0x18;
    block[0x28..0x2C].copy_from_slice(&without_checksums.to_be_bytes());
    std::fs::write(&path, bytes).unwrap();
    refused(&path, "journal");
}

#[test]
fn one_that_the_kernel_has_mounted() {
    if !tools() {
        return;
    }
    let dir = scratch();
    let path = mkfs(dir.path(), "image", "32M", &[]);
    let Some(mounted) = Mounted::new(&path, &dir.path().join("mnt"), "ro") else { return };
    let error = mount(&path, true).unwrap_err();
    assert!(matches!(error, MountError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("is mounted at"), "{error}");
    assert!(mount(&path, false).is_ok());
    drop(mounted);
    // This waits until the loop device is gone, too.
    let fs = mount_after_kernel(&path, &writable());
    fs.unmount().unwrap();
}
