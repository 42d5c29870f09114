//! Inodes by number: counted, found by number and generation, and listed with their names.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use meantime_ext4::{
    Error, FileSystem, Lookups, MountOptions, NewNode, NodeId, OpenOptions, RenameFlags,
};

use meantime_testkit::filled::Image;

const NEW: NewNode = NewNode { mode: 0o755, uid: 0, gid: 0, umask: 0 };

fn writable() -> MountOptions {
    MountOptions { write: true, background: false, ..MountOptions::default() }
}

fn image() -> Option<Image> {
    Image::make(&[], 32, |root: &Path| {
        fs::create_dir(root.join("dir")).unwrap();
        for n in 0..500 {
            fs::write(root.join(format!("dir/file-{n}")), vec![1; n]).unwrap();
        }
        fs::create_dir(root.join("dir/sub")).unwrap();
        std::os::unix::fs::symlink("there", root.join("dir/link")).unwrap();
    })
}

#[test]
fn what_is_counted_stays() {
    let Some(image) = image() else { return };
    let fs = image.mount("", &writable());
    let root = fs.root().unwrap();
    let lookups = Lookups::new(&fs).unwrap();
    let file = fs.create(&root, "new".as_ref(), &NEW).unwrap();
    let id = file.id();
    lookups.count(&file);
    assert_eq!(lookups.lookup(root.ino(), "new".as_ref()).unwrap().id(), id);
    assert_eq!(lookups.lookup(root.ino(), "none".as_ref()).unwrap_err(), Error::NotFound);
    drop(file);
    assert_eq!(lookups.len(), 1);
    let free = fs.usage().unwrap().free_inodes;
    fs.unlink(&root, "new".as_ref()).unwrap();
    // The inode has no name, but can be written by its number.
    assert_eq!(lookups.lookup(root.ino(), "new".as_ref()).unwrap_err(), Error::NotFound);
    for node in [lookups.get(id.ino).unwrap(), fs.node(id).unwrap()] {
        let options = OpenOptions { read: true, write: true, ..OpenOptions::default() };
        let file = fs.open_node_with(&node, &options).unwrap();
        file.write_at(b"content", 0).unwrap();
        assert_eq!(node.metadata().links, 0);
    }
    lookups.forget(id.ino, 1);
    assert_eq!((lookups.len(), fs.usage().unwrap().free_inodes), (1, free));
    lookups.forget(id.ino, 1);
    assert_eq!(lookups.get(id.ino).unwrap_err(), Error::Stale);
    assert_eq!((lookups.len(), fs.usage().unwrap().free_inodes), (0, free + 1));
    assert_eq!(fs.node(id).unwrap_err(), Error::Stale);
    // Forgetting an uncounted inode has no effect, and the root is always present.
    lookups.forget(id.ino, 1);
    lookups.forget(root.ino(), 1000);
    assert_eq!(lookups.get(root.ino()).unwrap().ino(), root.ino());
    // The number is reused with another generation.
    let mut again = None;
    for n in 0..100 {
        let node = fs.create(&root, OsStr::new(&format!("again-{n}")), &NEW).unwrap();
        if node.ino() == id.ino {
            again = Some(node);
            break;
        }
    }
    let again = again.expect("the lowest free number is used");
    assert_ne!(again.id(), id);
    assert_eq!(fs.node(id).unwrap_err(), Error::Stale);
    assert_eq!(fs.node(again.id()).unwrap().id(), again.id());
    // A counted inode without a name is deleted at the end of the mount.
    lookups.count(&again);
    let name = (0..100).map(|n| format!("again-{n}"));
    for name in name {
        let _ = fs.unlink(&root, name.as_ref());
    }
    drop((again, root, lookups));
    fs.unmount().unwrap();
    image.check();
}

#[test]
fn a_name_that_comes_back_leads_to_what_it_has_now() {
    let Some(image) = image() else { return };
    let fs = image.mount("", &writable());
    let root = fs.root().unwrap();
    let there = |name: &str| fs.lookup(&root, name.as_ref()).map(|node| node.id());
    let other = fs.create(&root, "other".as_ref(), &NEW).unwrap();
    for _ in 0..3 {
        // The first inode is kept, so the next one has another number.
        let first = fs.create(&root, "name".as_ref(), &NEW).unwrap();
        assert_eq!(there("name"), Ok(first.id()));
        fs.unlink(&root, "name".as_ref()).unwrap();
        assert_eq!(there("name"), Err(Error::NotFound));
        assert_eq!(there("name"), Err(Error::NotFound));
        fs.link(&other, &root, "name".as_ref()).unwrap();
        assert_eq!(there("name"), Ok(other.id()));
        fs.unlink(&root, "name".as_ref()).unwrap();
        let second = fs.create(&root, "moved".as_ref(), &NEW).unwrap();
        let flags = RenameFlags::default();
        fs.rename_at(&root, "moved".as_ref(), &root, "name".as_ref(), flags).unwrap();
        assert_eq!((there("name"), there("moved")), (Ok(second.id()), Err(Error::NotFound)));
        assert_ne!(first.id(), second.id());
        fs.unlink(&root, "name".as_ref()).unwrap();
    }
    // What the disk says is found in the cache's place for the name, too.
    let again = fs.mkdir(&root, "name".as_ref(), &NEW).unwrap();
    assert_eq!(there("name"), Ok(again.id()));
}

#[test]
fn no_number_that_nobody_was_told_leads_anywhere() {
    let Some(image) = image() else { return };
    for options in [writable(), MountOptions::default()] {
        let fs = image.mount("", &options);
        let file = fs.resolve(&fs.root().unwrap(), "dir/file-7", true).unwrap();
        assert_eq!(fs.node(file.id()).unwrap().metadata(), file.metadata());
        let NodeId { ino, generation } = file.id();
        let inodes = fs.info().inodes;
        for id in [
            NodeId { ino, generation: generation ^ 1 },
            NodeId { ino: 0, generation: 0 },
            NodeId { ino: 1, generation: 0 },
            NodeId { ino: 8, generation: 0 },
            NodeId { ino: inodes, generation: 0 },
            NodeId { ino: inodes + 1, generation: 0 },
            NodeId { ino: u32::MAX, generation },
        ] {
            assert_eq!(fs.node(id).unwrap_err(), Error::Stale, "{id:?}");
        }
        drop(file);
        if fs.is_writable() {
            fs.unmount().unwrap();
        }
    }
}

#[test]
fn names_are_listed_with_their_inodes() {
    let Some(image) = image() else { return };
    for options in [writable(), MountOptions::default()] {
        let fs = image.mount("", &options);
        let dir = fs.resolve(&fs.root().unwrap(), "/dir", true).unwrap();
        let plain: Vec<_> = fs.entries(&dir).unwrap().map(Result::unwrap).collect();
        let mut with_nodes = fs.entries(&dir).unwrap();
        for (number, expected) in plain.iter().enumerate() {
            // This simulates a reader with room for only a few entries at a time.
            if number % 7 == 0 && number > 0 {
                with_nodes.seek(plain[number - 1].cookie);
            }
            let (entry, node) = with_nodes.next_with_node().unwrap().unwrap();
            assert_eq!(entry, *expected);
            match node {
                None => assert!(entry.name == "." || entry.name == ".."),
                Some(node) => {
                    let found = fs.lookup(&dir, &entry.name).unwrap();
                    assert_eq!(node.metadata(), found.metadata());
                    assert_eq!(Some(node.file_type()), entry.file_type);
                }
            }
        }
        assert!(with_nodes.next_with_node().is_none());
        drop((dir, with_nodes));
        if fs.is_writable() {
            fs.unmount().unwrap();
        }
    }
}

/// Lists while names are added and removed: a name that stays is listed once, and no name comes
/// with an inode that it never led to.
#[test]
fn a_name_comes_with_what_it_leads_to() {
    let Some(image) = image() else { return };
    let fs = image.mount("", &writable());
    let dir = fs.resolve(&fs.root().unwrap(), "/dir", true).unwrap();
    let ended = AtomicBool::new(false);
    // Each kind of name has its own mode, whatever its inode number.
    let change = |fs: &FileSystem| {
        for n in 0..3000_u32 {
            let kind = n % 2;
            let name = format!("{}-{}", ["odd", "even"][kind as usize], n % 40);
            let mode = [0o600, 0o640][kind as usize];
            let _ = fs.create(&dir, name.as_ref(), &NewNode { mode, ..NEW });
            let other = format!("{}-{}", ["odd", "even"][kind as usize], (n + 20) % 40);
            if n % 3 == 0 {
                let (name, flags) = (name.as_ref(), RenameFlags::default());
                let _ = fs.rename_at(&dir, name, &dir, other.as_ref(), flags);
            } else {
                let _ = fs.unlink(&dir, other.as_ref());
            }
        }
        ended.store(true, Ordering::Release);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| change(&fs));
        while !ended.load(Ordering::Acquire) {
            let mut stayed = BTreeSet::new();
            let mut entries = fs.entries(&dir).unwrap();
            while let Some(entry) = entries.next_with_node() {
                let (entry, node) = entry.unwrap();
                let Some(node) = node else { continue };
                let name = entry.name.into_string().unwrap();
                let mode = node.metadata().mode & 0o777;
                match name.split('-').next().unwrap() {
                    "odd" => assert_eq!(mode, 0o600, "{name}"),
                    "even" => assert_eq!(mode, 0o640, "{name}"),
                    _ => assert!(stayed.insert(name)),
                }
            }
            assert_eq!(stayed.len(), 502);
        }
    });
    drop(dir);
    fs.unmount().unwrap();
    image.check();
}
