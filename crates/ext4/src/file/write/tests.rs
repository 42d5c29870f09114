//! Inodes whose numbers are reused, that lose their names, or are used by one thread while another
//! changes them.

use std::ffi::OsStr;
use std::sync::Arc;

use super::back::Writeback;
use crate::alloc::AllocHandle;
use crate::error::Error;
use crate::file::File;
use crate::fs::FileSystem;
use crate::inode::Node;
use crate::inode::registry::Entered;
use crate::inode::shared::Inode;
use crate::inode::writable::{Stamp, Wanted};
use crate::mkfs::make;
use crate::ops::names;
use crate::options::{
    Advice, Allocate, MountOptions, NewNode, OpenOptions, ReadOptions, WriteOptions,
};
use meantime_block::{self as block, Device};
use meantime_ext4_format::Timestamp;
use meantime_ext4_format::mkfs::MakeOptions;

const NEW: NewNode = NewNode { mode: 0o644, uid: 0, gid: 0, umask: 0 };

fn device(dir: &tempfile::TempDir) -> Device {
    let path = dir.path().join("image");
    let uri = format!("file:{}?model=null", path.display());
    block::open(&uri, &block::OpenOptions::default()).unwrap()
}

fn new_image() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::File::create(dir.path().join("image")).unwrap().set_len(16 << 20).unwrap();
    make(&device(&dir), &MakeOptions::new([7; 32], Timestamp { seconds: 1, nanoseconds: 0 }))
        .unwrap();
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

fn everything() -> Wanted {
    Wanted { range: 0..u64::MAX, upto: Stamp(u64::MAX) }
}

fn not_written(_: &Inode, error: Error) {
    panic!("{error}");
}

/// Writes and deletes a file. Returns its inode, and the next file, which has its number.
fn successor(fs: &FileSystem) -> (Arc<Inode>, Node) {
    let root = fs.root().unwrap();
    let old = fs.create(&root, OsStr::new("old"), &NEW).unwrap();
    write(fs, &old, b"old");
    let inode = Arc::clone(&old.inode);
    drop(old);
    fs.unlink(&root, OsStr::new("old")).unwrap();
    let new = fs.create(&root, OsStr::new("new"), &NEW).unwrap();
    assert_eq!(new.ino(), inode.ino, "the number is used again");
    assert!(!Arc::ptr_eq(&new.inode, &inode));
    (inode, new)
}

/// A thread that writes back, or has dropped a node, may come to an inode after it was deleted and
/// its number reused.
#[test]
fn what_is_gone_does_not_take_its_successor_along() {
    let dir = new_image();
    let fs = mounted(&dir);
    let (gone, new) = successor(&fs);
    let content = [b'n'; 9000];
    write(&fs, &new, &content);
    gone.writable.as_ref().unwrap().pages().times.modified =
        Some(Timestamp { seconds: 1, nanoseconds: 0 });
    Writeback::of(&fs.mount).unwrap().write_back_one(&gone, Stamp(u64::MAX)).unwrap();
    fs.mount.delete(&gone);
    let found = fs.lookup(&fs.root().unwrap(), OsStr::new("new")).unwrap();
    assert!(Arc::ptr_eq(&found.inode, &new.inode), "there is one inode of its number");
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

/// A thread that found the inode before it was deleted may have put it into the cache.
#[test]
fn what_is_gone_is_not_found() {
    let dir = new_image();
    let fs = mounted(&dir);
    let (gone, new) = successor(&fs);
    fs.mount.nodes.remove(&gone.ino);
    fs.mount.nodes.keep(gone.ino, Arc::clone(&gone), 1);
    let found = fs.lookup(&fs.root().unwrap(), OsStr::new("new")).unwrap();
    assert!(Arc::ptr_eq(&found.inode, &new.inode));
    drop((found, new));
    fs.unmount().unwrap();
}

/// An inode that was read before a change is not entered after it.
#[test]
fn what_was_read_too_early_is_not_entered() {
    let dir = new_image();
    let fs = mounted(&dir);
    let (gone, new) = successor(&fs);
    let registry = fs.mount.for_writing().unwrap().registry();
    let changes = registry.changes(gone.ino);
    fs.mount.forget_inode(&new.inode);
    let late = || -> Arc<Inode> { unreachable!("it is read anew") };
    assert!(matches!(registry.enter(gone.ino, changes, late), Entered::Changed));
    drop(new);
    fs.unmount().unwrap();
}

/// A thread that makes a change is descheduled as soon as it is visible. Another thread that sees
/// the change, and syncs, has it on the disk.
#[test]
fn what_is_seen_can_be_made_durable() {
    let dir = new_image();
    let fs = mounted(&dir);
    let root = fs.root().unwrap();
    let old = fs.create(&root, OsStr::new("old"), &NEW).unwrap();
    fs.sync().unwrap();
    let rw_mount = fs.mount.for_writing().unwrap();
    // The thread stops here: it has not yet done what follows the change.
    let made = rw_mount.journal.change(|handle| {
        let handle = &mut AllocHandle::new(handle, &rw_mount.allocator);
        names::create(handle, root.ino(), b"new", &NEW)?;
        names::link(handle, old.ino(), root.ino(), b"link")
    });
    let ((), sequence) = made.unwrap();
    for name in ["new", "link"] {
        let node = fs.lookup(&root, OsStr::new(name)).unwrap();
        let writable = node.inode.writable.as_ref().unwrap();
        assert_eq!(writable.sequence(false), sequence, "{name}");
    }
    let file = fs.open("/link").unwrap();
    assert_eq!(file.metadata().links, 2, "as it is now");
    assert!(rw_mount.journal.durable() < sequence);
    file.sync_all().unwrap();
    assert!(rw_mount.journal.durable() >= sequence, "it is committed");
    drop((file, old, root));
    fs.unmount().unwrap();
}

/// One thread gives a file its first name, and another takes it at once.
#[test]
fn a_first_name_that_is_taken_at_once() {
    let dir = new_image();
    let fs = mounted(&dir);
    let root = fs.root().unwrap();
    let free = fs.usage().unwrap().free_inodes;
    let name = OsStr::new("name");
    for _ in 0..400 {
        let node = fs.tmpfile(&root, &NEW).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| while fs.unlink(&root, name) == Err(Error::NotFound) {});
            fs.link(&node, &root, name).unwrap();
        });
        assert_eq!(fs.link(&node, &root, name), Err(Error::NotFound), "it has been deleted");
    }
    assert_eq!(fs.usage().unwrap().free_inodes, free, "all of them are deleted");
    drop(root);
    fs.unmount().unwrap();
}

/// A look-up by number does not find an inode that is being deleted.
#[test]
fn what_is_being_deleted_is_not_found_by_its_number() {
    let dir = new_image();
    let fs = mounted(&dir);
    let root = fs.root().unwrap();
    let node = fs.create(&root, OsStr::new("name"), &NEW).unwrap();
    let (ino, inode) = (node.ino(), Arc::clone(&node.inode));
    drop(node);
    assert_eq!(fs.inode(ino).unwrap().metadata().links, 1);
    let rw_mount = fs.mount.for_writing().unwrap();
    rw_mount
        .journal
        .change(|handle| {
            let handle = &mut AllocHandle::new(handle, &rw_mount.allocator);
            names::unlink(handle, root.ino(), b"name", names::MAYBE_USED)
        })
        .unwrap();
    // The state of a deletion at the point where other changes may come in between.
    assert!(inode.writable.as_ref().unwrap().end());
    fs.mount.nodes.remove(&ino);
    rw_mount.registry().begin_deletion(&inode);
    assert_eq!(fs.inode(ino).map(drop), Err(Error::NotFound));
    assert_eq!(fs.losing(ino).map(drop), Err(Error::NotFound));
    fs.mount.delete_orphans().unwrap();
    // Another inode gets the number before the end of the deletion is noted.
    let node = fs.create(&root, OsStr::new("next"), &NEW).unwrap();
    assert_eq!(node.ino(), ino);
    drop(node);
    fs.mount.nodes.remove(&ino);
    assert_eq!(fs.lookup(&root, OsStr::new("next")).unwrap().ino(), ino);
    rw_mount.registry().end_deletion(&inode);
    assert_eq!(fs.inode(ino).unwrap().metadata().links, 1);
    drop((inode, root));
    fs.unmount().unwrap();
}

/// The change that takes the last name does not mark an inode gone that has a node or is dirty. An
/// inode that was marked gone, and is not deleted after all, is read again from the disk.
#[test]
fn what_nobody_has_is_ended_by_the_change() {
    let dir = new_image();
    let fs = mounted(&dir);
    let root = fs.root().unwrap();
    let name = OsStr::new("name");
    let node = fs.create(&root, name, &NEW).unwrap();
    let ino = node.ino();
    assert!(fs.mount.end_unused(ino).is_none(), "somebody has it");
    write(&fs, &node, b"data");
    drop(node);
    assert!(fs.mount.end_unused(ino).is_none(), "it is newer than the disk");
    fs.sync().unwrap();
    let inode = fs.mount.end_unused(ino).unwrap();
    assert!(fs.mount.end_unused(ino).is_none());
    assert_eq!(fs.inode(ino).map(drop), Err(Error::NotFound));
    fs.mount.end_deletion(&inode);
    let node = fs.lookup(&root, name).unwrap();
    assert!(!Arc::ptr_eq(&node.inode, &inode));
    let mut read = [0; 10];
    assert_eq!(fs.open_node(&node).unwrap().read_at(&mut read, 0).unwrap(), 4);
    assert_eq!(&read[..4], b"data");
    drop(node);
    // A change that fails restores the inode itself.
    assert_eq!(fs.unlink(&root, OsStr::new("none")), Err(Error::NotFound));
    assert_eq!(fs.rmdir(&root, name), Err(Error::NotDirectory));
    let free = fs.usage().unwrap().free_inodes;
    fs.unlink(&root, name).unwrap();
    assert_eq!(fs.usage().unwrap().free_inodes, free + 1, "it is deleted");
    assert_eq!(fs.lookup(&root, name).map(drop), Err(Error::NotFound));
    // The next inode of its number does not see its pages.
    let node = fs.create(&root, name, &NEW).unwrap();
    assert_eq!(node.ino(), ino, "the number is used again");
    write(&fs, &node, b"x");
    assert_eq!(fs.open_node(&node).unwrap().read_at(&mut read, 0).unwrap(), 1);
    drop((node, root));
    fs.unmount().unwrap();
}

/// A new name is found without reading the directory, and only as long as it exists.
#[test]
fn names_made_and_moved_are_known() {
    let dir = new_image();
    let fs = mounted(&dir);
    let root = fs.root().unwrap();
    let found = |name: &str| fs.lookup(&root, OsStr::new(name)).map(|node| node.ino());
    let [a, b, c] = ["a", "b", "c"].map(OsStr::new);
    let first = fs.create(&root, a, &NEW).unwrap().ino();
    let second = fs.create(&root, b, &NEW).unwrap().ino();
    assert_eq!((found("a"), found("b")), (Ok(first), Ok(second)));
    fs.rename_at(&root, a, &root, c, Default::default()).unwrap();
    assert_eq!((found("a"), found("c")), (Err(Error::NotFound), Ok(first)));
    fs.rename_at(&root, c, &root, b, Default::default()).unwrap();
    assert_eq!((found("c"), found("b")), (Err(Error::NotFound), Ok(first)));
    fs.link(&fs.lookup(&root, b).unwrap(), &root, a).unwrap();
    assert_eq!(found("a"), Ok(first));
    fs.rename_at(&root, a, &root, b, Default::default()).unwrap();
    assert_eq!((found("a"), found("b")), (Ok(first), Ok(first)), "both stay");
    fs.unlink(&root, a).unwrap();
    fs.unlink(&root, b).unwrap();
    assert_eq!((found("a"), found("b")), (Err(Error::NotFound), Err(Error::NotFound)));
    let third = fs.mkdir(&root, a, &NEW).unwrap();
    assert_eq!(fs.lookup(&third, OsStr::new("..")).unwrap().ino(), root.ino());
    drop(third);
    fs.rmdir(&root, a).unwrap();
    let parent = fs.mkdir(&root, b, &NEW).unwrap();
    let child = fs.mkdir(&parent, c, &NEW).unwrap();
    assert_eq!(fs.lookup(&child, OsStr::new("..")).unwrap().ino(), parent.ino());
    drop((child, parent, root));
    fs.unmount().unwrap();
}

#[test]
fn ten_thousand_files_without_names() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::File::create(dir.path().join("image")).unwrap().set_len(64 << 20).unwrap();
    let mut options = MakeOptions::new([7; 32], Timestamp { seconds: 1, nanoseconds: 0 });
    options.bytes_per_inode = Some(4096);
    make(&device(&dir), &options).unwrap();
    let fs = mounted(&dir);
    let root = fs.root().unwrap();
    let free = fs.usage().unwrap().free_inodes;
    let mut open: Vec<Node> = (0..10_000)
        .map(|n| {
            let name = format!("file-{n}");
            let node = fs.create(&root, OsStr::new(&name), &NEW).unwrap();
            fs.unlink(&root, OsStr::new(&name)).unwrap();
            node
        })
        .collect();
    assert_eq!(fs.usage().unwrap().free_inodes, free - 10_000);
    // The inodes are dropped in no particular order.
    let mut at = 0;
    while open.len() > 10 {
        at = (at + 7919) % open.len();
        drop(open.swap_remove(at));
    }
    assert_eq!(fs.usage().unwrap().free_inodes, free - 10);
    drop((open, root));
    fs.unmount().unwrap();
    let path = dir.path().join("image");
    let Ok(said) = std::process::Command::new("e2fsck").arg("-fn").arg(&path).output() else {
        return println!("skipped: e2fsprogs are not installed");
    };
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stdout));
}

/// One thread takes blocks away from a file, and writes to their pages again, while another writes
/// back dirty pages: they go to the file's current blocks.
#[test]
fn writeback_goes_to_where_the_file_is_now() {
    const PAGES: u64 = 24;
    let dir = new_image();
    let options = MountOptions {
        write: true,
        background: false,
        commit_interval_ms: 0,
        ..MountOptions::default()
    };
    let fs = FileSystem::mount(device(&dir), &options).unwrap();
    let root = fs.root().unwrap();
    let node = fs.create(&root, OsStr::new("file"), &NEW).unwrap();
    let read_write = OpenOptions { read: true, write: true, ..OpenOptions::default() };
    let file = fs.open_node_with(&node, &read_write).unwrap();
    let ended = std::sync::atomic::AtomicBool::new(false);
    let mut model = [0_u8; PAGES as usize];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                fs.background_step().unwrap();
            }
        });
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            file.set_len(PAGES << 12).unwrap();
            for turn in 0..6000_u64 {
                let page = turn * 7 % PAGES;
                if turn % 3 == 0 {
                    file.allocate(page << 12, 2 << 12, Allocate::Punch).unwrap();
                    model[page as usize..].iter_mut().take(2).for_each(|byte| *byte = 0);
                }
                let byte = (turn % 255) as u8 + 1;
                file.write_at(&[byte; 4096], page << 12).unwrap();
                model[page as usize] = byte;
                if turn % 16 == 0 {
                    file.sync_range(0..PAGES << 12).unwrap();
                    file.advise(0, 0, Advice::DontNeed).unwrap();
                }
                let mut found = vec![0; (PAGES << 12) as usize];
                file.read_at(&mut found, 0).unwrap();
                for (at, byte) in model.iter().enumerate() {
                    assert!(
                        found[at << 12..(at + 1) << 12] == [*byte; 4096],
                        "page {at} in turn {turn}"
                    );
                }
            }
        }));
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
        checked.unwrap();
    });
    drop((file, node, root));
    fs.unmount().unwrap();
}

/// A page is written while another thread has it in flight. That write does not have the new data:
/// fsync writes them, too.
#[test]
fn what_was_written_to_a_page_in_flight_is_synced() {
    let dir = new_image();
    let fs = mounted(&dir);
    let root = fs.root().unwrap();
    let node = fs.create(&root, OsStr::new("file"), &NEW).unwrap();
    let (back, inode) = (Writeback::of(&fs.mount).unwrap(), &node.inode);
    let writable = inode.writable.as_ref().unwrap();
    let read_write = OpenOptions { read: true, write: true, ..OpenOptions::default() };
    let file = fs.open_node_with(&node, &read_write).unwrap();
    type Sync = fn(&File) -> Result<(), Error>;
    let syncs: [Sync; 4] = [
        File::sync_all,
        File::sync_data,
        |file| file.sync_range(0..4096),
        // This write goes past the cache: otherwise the older data would follow the newer.
        |file| {
            let direct = WriteOptions { direct: true, ..WriteOptions::default() };
            file.write_at_with(&[9; 4096], 0, &direct).map(drop)
        },
    ];
    for sync in syncs {
        file.write_at(&[1; 4096], 0).unwrap();
        let batch = back.begin_batch(inode, &everything(), false).unwrap().unwrap();
        std::thread::scope(|scope| {
            let file = &file;
            back.send_batch(batch, not_written, |_, _| {
                scope.spawn(move || {
                    file.write_at(&[2; 4096], 0).unwrap();
                    sync(file).unwrap();
                });
                // By then the other thread usually waits for this one.
                while writable.pages().dirty.is_empty() {
                    std::thread::yield_now();
                }
                std::thread::sleep(std::time::Duration::from_millis(50));
            });
        });
        assert!(writable.pages().dirty.is_empty(), "it is on the device");
    }
    let mut found = [0; 4096];
    file.read_at(&mut found, 0).unwrap();
    assert!(found == [9; 4096]);
    drop((file, node, root));
    fs.unmount().unwrap();
}

/// A thread takes a page, and puts it back because it cannot be placed. A sync that has waited for
/// it meanwhile writes the page itself.
#[test]
fn what_another_thread_puts_back_is_synced() {
    let dir = new_image();
    let fs = mounted(&dir);
    let root = fs.root().unwrap();
    let node = fs.create(&root, OsStr::new("file"), &NEW).unwrap();
    let (back, inode) = (Writeback::of(&fs.mount).unwrap(), &node.inode);
    let read_write = OpenOptions { read: true, write: true, ..OpenOptions::default() };
    let file = fs.open_node_with(&node, &read_write).unwrap();
    type Sync = fn(&FileSystem, &File) -> Result<(), Error>;
    let syncs: [Sync; 4] = [
        |_, file| file.sync_all(),
        |_, file| file.sync_range(0..4096),
        |fs, _| fs.sync(),
        |_, file| {
            let direct = WriteOptions { direct: true, ..WriteOptions::default() };
            file.write_at_with(&[9; 4096], 0, &direct).map(drop)
        },
    ];
    for sync in syncs {
        file.write_at(&[1; 4096], 0).unwrap();
        let taken = back.take_dirty(inode, &everything(), true).unwrap().unwrap();
        std::thread::scope(|scope| {
            let (fs, file) = (&fs, &file);
            let synced = scope.spawn(move || sync(fs, file));
            // By then the other thread usually waits for this one.
            std::thread::sleep(std::time::Duration::from_millis(50));
            taken.put_back();
            synced.join().unwrap().unwrap();
        });
        let writable = inode.writable.as_ref().unwrap();
        assert!(writable.pages().dirty.is_empty(), "it is on the device");
    }
    drop((file, node, root));
    fs.unmount().unwrap();
}

/// A sync of everything writes back all other files while it waits for one that another thread has
/// in flight.
#[test]
fn one_file_in_flight_holds_up_no_other() {
    let dir = new_image();
    let fs = mounted(&dir);
    let root = fs.root().unwrap();
    let nodes: Vec<Node> = (0..10)
        .map(|number| {
            let node = fs.create(&root, OsStr::new(&format!("name-{number}")), &NEW).unwrap();
            write(&fs, &node, &[number; 4096]);
            node
        })
        .collect();
    let back = Writeback::of(&fs.mount).unwrap();
    let batch = back.begin_batch(&nodes[0].inode, &everything(), false).unwrap().unwrap();
    // This has to be written once more.
    write(&fs, &nodes[0], &[0xAA; 4096]);
    let is_clean = |node: &Node| node.inode.writable.as_ref().unwrap().pages().are_clean();
    std::thread::scope(|scope| {
        let synced = scope.spawn(|| back.write_back_all());
        let began = std::time::Instant::now();
        let mut rest = nodes[1..].iter();
        while !rest.clone().all(is_clean) && began.elapsed().as_secs() < 20 {
            std::thread::yield_now();
        }
        let waiting: Vec<u32> =
            rest.by_ref().filter(|node| !is_clean(node)).map(Node::ino).collect();
        assert!(!is_clean(&nodes[0]));
        back.send_batch(batch, not_written, |_, _| ());
        synced.join().unwrap().unwrap();
        assert!(waiting.is_empty(), "{waiting:?} waited");
    });
    assert!(nodes.iter().all(is_clean));
    drop((nodes, root));
    fs.unmount().unwrap();
}

/// One page of a block of four pages was written. Until that is on the device, a reader of the
/// other pages does not see the block's old contents.
#[test]
fn nothing_old_is_seen_in_a_block_larger_than_a_page() {
    const BLOCK: usize = 16 << 10;
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("image"), vec![0xAA; 256 << 20]).unwrap();
    let mut options = MakeOptions::new([7; 32], Timestamp { seconds: 1, nanoseconds: 0 });
    options.block_bytes = Some(BLOCK as u32);
    make(&device(&dir), &options).unwrap();
    let fs = mounted(&dir);
    let root = fs.root().unwrap();
    let node = fs.create(&root, OsStr::new("file"), &NEW).unwrap();
    let (back, inode) = (Writeback::of(&fs.mount).unwrap(), &node.inode);
    let read_write = OpenOptions { read: true, write: true, ..OpenOptions::default() };
    let file = fs.open_node_with(&node, &read_write).unwrap();
    file.set_len(4 * BLOCK as u64).unwrap();
    let mut model = vec![0; 4 * BLOCK];
    let check = |model: &[u8], direct: bool| {
        let mut found = vec![1; 3 * 4096];
        for at in [0, BLOCK, 2 * BLOCK] {
            let from = at + 4096;
            let options = ReadOptions { direct, ..ReadOptions::default() };
            file.read_at_with(&mut found, from as u64, &options).unwrap();
            assert!(found == model[from..from + found.len()], "block at {at}, direct {direct}");
        }
    };
    for at in [0, BLOCK] {
        file.write_at(&[7; 4096], at as u64).unwrap();
        model[at..at + 4096].fill(7);
        let batch = back.begin_batch(inode, &everything(), false).unwrap().unwrap();
        // (A direct read would wait for the block.)
        check(&model, false);
        // Another page of the block is written meanwhile, and is not lost.
        file.write_at(&[8; 100], at as u64 + 8192).unwrap();
        model[at + 8192..at + 8292].fill(8);
        assert!(
            back.begin_batch(inode, &everything(), false).unwrap().is_none(),
            "one at a time has the block"
        );
        std::thread::scope(|scope| {
            // This waits for the block, not only for its page.
            let page = at as u64 + 8192;
            let file = &file;
            back.send_batch(batch, not_written, |_, _| {
                scope.spawn(move || file.sync_range(page..page + 100).unwrap());
                std::thread::sleep(std::time::Duration::from_millis(50));
            });
        });
        assert!(inode.writable.as_ref().unwrap().pages().dirty.is_empty());
        file.sync_all().unwrap();
        file.advise(0, 0, Advice::DontNeed).unwrap();
        check(&model, true);
        check(&model, false);
    }
    // The next writes are at the end of the file. Its size on the disk grows when the data are on
    // the device.
    file.write_at(&[5; 100], 4 * BLOCK as u64).unwrap();
    let batch = back.begin_batch(inode, &everything(), false).unwrap().unwrap();
    let on_disk = || inode.snapshot(&fs.mount.volume).unwrap().metadata.size;
    assert_eq!(on_disk(), 4 * BLOCK as u64);
    back.send_batch(batch, not_written, |_, _| ());
    assert_eq!(on_disk(), 4 * BLOCK as u64 + 100);
    drop((file, node, root));
    fs.unmount().unwrap();
    let path = dir.path().join("image");
    let Ok(said) = std::process::Command::new("e2fsck").arg("-fn").arg(&path).output() else {
        return println!("skipped: e2fsprogs are not installed");
    };
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stdout));
}

/// On a device full of garbage, what inode tables and bitmaps hold where mkfs does not write is
/// never used.
#[test]
fn every_inode_of_a_device_that_held_garbage() {
    for zeroed in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let garbage = |_| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random as u8
        };
        let bytes: Vec<u8> = (0..40 << 20).map(garbage).collect();
        std::fs::write(dir.path().join("image"), bytes).unwrap();
        let mut options = MakeOptions::new([7; 32], Timestamp { seconds: 1, nanoseconds: 0 });
        options.block_bytes = Some(1024);
        options.bytes_per_inode = Some(16 << 10);
        options.zero_inode_tables = zeroed;
        let made = make(&device(&dir), &options).unwrap();
        assert!(made.groups > 3);
        let path = dir.path().join("image");
        let check = || {
            let Ok(said) = std::process::Command::new("e2fsck").arg("-fn").arg(&path).output()
            else {
                return println!("skipped: e2fsprogs are not installed");
            };
            assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stdout));
        };
        check();
        let mut count = 0;
        // First part of a group's inodes, then all.
        for most in [700, u32::MAX] {
            let fs = mounted(&dir);
            let root = fs.root().unwrap();
            let mut parent = root.clone();
            let full = (0..most).find_map(|_| {
                let name = format!("name-{count}");
                count += 1;
                // Directories go into other groups.
                let made = if count % 50 == 0 {
                    fs.mkdir(&root, OsStr::new(&name), &NEW).map(|made| parent = made)
                } else {
                    fs.create(&parent, OsStr::new(&name), &NEW).map(drop)
                };
                made.err()
            });
            assert_eq!(full, (most == u32::MAX).then_some(Error::NoSpace));
            drop((parent, root));
            fs.unmount().unwrap();
            check();
        }
        let fs = mounted(&dir);
        assert_eq!(fs.usage().unwrap().free_inodes, 0, "of {}", made.inodes);
        fs.unmount().unwrap();
    }
}
