//! Inodes whose numbers are used again.

use std::ffi::OsStr;
use std::sync::Arc;

use super::super::format::mkfs::MakeOptions;
use super::super::fs::{FileSystem, Node};
use super::super::metadata::Timestamp;
use super::super::mkfs::make;
use super::super::node::Known;
use super::super::options::{MountOptions, NewNode, OpenOptions};
use crate::block::{self, Device};

const NEW: NewNode = NewNode { mode: 0o644, uid: 0, gid: 0 };

fn device(dir: &tempfile::TempDir) -> Device {
    let path = dir.path().join("image");
    let uri = format!("file:{}?model=null", path.display());
    block::open(&uri, &block::OpenOptions::default()).unwrap()
}

fn new_image() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::File::create(dir.path().join("image")).unwrap().set_len(16 << 20).unwrap();
    make(&device(&dir), &MakeOptions::new([7; 32], Timestamp { seconds: 1, nanoseconds: 0 })).unwrap();
    dir
}

fn mounted(dir: &tempfile::TempDir) -> FileSystem {
    FileSystem::mount(
        device(dir),
        &MountOptions { write: true, background: false, ..MountOptions::default() },
    )
    .unwrap()
}

fn write(fs: &FileSystem, node: &Node, data: &[u8]) {
    let options = OpenOptions { read: true, write: true, ..OpenOptions::default() };
    assert_eq!(fs.open_node_with(node, &options).unwrap().write_at(data, 0).unwrap(), data.len());
}

/// A file that was written to and deleted, and the next one, which has its number.
fn successor(fs: &FileSystem) -> (Arc<Known>, Node) {
    let root = fs.root().unwrap();
    let old = fs.create(&root, OsStr::new("old"), &NEW).unwrap();
    write(fs, &old, b"old");
    let known = Arc::clone(&old.known);
    drop(old);
    fs.unlink(&root, OsStr::new("old")).unwrap();
    let new = fs.create(&root, OsStr::new("new"), &NEW).unwrap();
    assert_eq!(new.ino(), known.ino, "the number is used again");
    assert!(!Arc::ptr_eq(&new.known, &known));
    (known, new)
}

/// Whoever writes back, or has let go of a node, may come to an inode late: when it was deleted, and another one has its number.
#[test]
fn what_is_gone_does_not_take_its_successor_along() {
    let dir = new_image();
    let fs = mounted(&dir);
    let (gone, new) = successor(&fs);
    let content = [b'n'; 9000];
    write(&fs, &new, &content);
    gone.live.as_ref().unwrap().pages().modified = Some(Timestamp { seconds: 1, nanoseconds: 0 });
    fs.mount.write_back_one(&gone).unwrap();
    fs.mount.delete(&gone);
    let found = fs.lookup(&fs.root().unwrap(), OsStr::new("new")).unwrap();
    assert!(Arc::ptr_eq(&found.known, &new.known), "there is one inode of its number");
    drop((found, new));
    fs.unmount().unwrap();

    let fs = mounted(&dir);
    let file = fs.open("/new").unwrap();
    let mut read = vec![0; 10_000];
    let len = file.read_at(&mut read, 0).unwrap();
    assert!(read[..len] == content, "{len} bytes");
    assert!(file.metadata().modified.seconds > 1, "its own time");
    drop(file);
    fs.unmount().unwrap();
}

/// It may have been kept by a thread that had found it before it was deleted.
#[test]
fn what_is_gone_is_not_found() {
    let dir = new_image();
    let fs = mounted(&dir);
    let (gone, new) = successor(&fs);
    fs.mount.nodes.remove(&gone.ino);
    fs.mount.nodes.keep(gone.ino, Arc::clone(&gone), 1);
    let found = fs.lookup(&fs.root().unwrap(), OsStr::new("new")).unwrap();
    assert!(Arc::ptr_eq(&found.known, &new.known));
    drop((found, new));
    fs.unmount().unwrap();
}

/// What was read before a change does not become the inode of after it.
#[test]
fn what_was_read_too_early_is_not_entered() {
    let dir = new_image();
    let fs = mounted(&dir);
    let (gone, new) = successor(&fs);
    let registry = fs.mount.writer().unwrap().registry();
    let changes = registry.changes(gone.ino);
    fs.mount.forget_known(&new.known);
    let late = || -> Arc<Known> { unreachable!("it is read anew") };
    assert!(registry.enter(gone.ino, changes, late).is_none());
    drop(new);
    fs.unmount().unwrap();
}
