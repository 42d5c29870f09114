//! A full disk: operations that need a block fail, nothing is lost, and deleting makes room again.

use std::ffi::OsStr;
use std::path::Path;

use meantime_ext4::{
    Allocate, Caller, Error, FileSystem, MountOptions, NewNode, Node, RenameFlags, ReservedBlocks,
    SetAttribute,
};

use meantime_testkit::image::{self, Mounted, READ_WRITE, mkfs, run_for, scratch, tools};

const NEW: NewNode = NewNode { mode: 0o644, uid: 1000, gid: 1000, umask: 0 };
fn mount(image: &Path, reserved: ReservedBlocks) -> FileSystem {
    image::mount(image, &MountOptions { cache_bytes: 8 << 20, reserved, ..image::writable() })
}

/// Appends `data` to `node`.
fn append(fs: &FileSystem, node: &Node, data: &[u8]) -> Result<(), Error> {
    fs.open_node_with(node, &READ_WRITE)?.append(data).map(drop)
}

/// Creates `name` in `dir` with content `data`.
fn make(fs: &FileSystem, dir: &Node, name: &str, data: &[u8]) -> Result<(), Error> {
    let node = fs.create(dir, OsStr::new(name), &NEW)?;
    append(fs, &node, data)
}

fn long(number: usize) -> String {
    format!("{number:0>200}")
}

/// Operations that need another block, each tried when no block is free and when some are again.
fn each_kind(fs: &FileSystem, full_name: &str) -> Vec<(&'static str, Result<(), Error>)> {
    let root = fs.root().unwrap();
    let dir = fs.lookup(&root, OsStr::new("dir")).unwrap();
    let old = fs.lookup(&root, OsStr::new("old")).unwrap();
    let holes = fs.lookup(&root, OsStr::new("holes")).unwrap();
    let name = OsStr::new;
    let file = fs.open_node_with(&holes, &READ_WRITE).unwrap();
    let attribute =
        |node: &Node| fs.set_attribute(node, b"user.large", &[7; 800], SetAttribute::Any);
    vec![
        ("write", make(fs, &root, "new", &[7; 100])),
        ("append", append(fs, &old, &[7; 10_000])),
        ("into a hole", file.write_at(&[7; 100], 1 << 20).map(drop)),
        ("fallocate", file.allocate(2 << 20, 8 << 10, Allocate::KeepSize)),
        ("mkdir", fs.mkdir(&root, name("made"), &NEW).map(drop)),
        ("symlink", fs.symlink_at(&root, name("link"), name(&"t".repeat(200)), &NEW).map(drop)),
        ("attribute", attribute(&old)),
        ("create", fs.create(&dir, name(full_name), &NEW).map(drop)),
        ("link", fs.link(&old, &dir, name(full_name))),
        ("rename", fs.rename_at(&root, name("old"), &dir, name(full_name), RenameFlags::default())),
    ]
}

#[test]
fn what_needs_room_fails_and_nothing_is_lost() {
    if !tools() {
        return;
    }
    // The reserved blocks may be used either by no process, or by some of which the caller is none.
    let user = Caller { uid: 1000, gid: 1000 };
    let kept = (ReservedBlocks::Keep, None);
    let for_others = (ReservedBlocks::ByProcess, Some(user));
    for ((block, journal), (reserved, caller)) in
        [(("1024", "size=1"), kept), (("4096", "size=4"), kept), (("4096", "size=4"), for_others)]
    {
        let _acting = caller.map(Caller::act);
        let dir = scratch();
        let image = mkfs(
            dir.path(),
            "image",
            "20M",
            &["-b", block, "-J", journal, "-N", "2000", "-m", "5"],
        );
        let fs = mount(&image, reserved);
        let root = fs.root().unwrap();
        let content = vec![3; 50_000 / 4096 * 4096];
        make(&fs, &root, "old", &content).unwrap();
        fs.create(&root, OsStr::new("holes"), &NEW).unwrap();
        fs.open_with("/holes", &READ_WRITE).unwrap().set_len(4 << 20).unwrap();
        let sub = fs.mkdir(&root, OsStr::new("dir"), &NEW).unwrap();
        // Fill the directory until another such name needs another block.
        let mut names = 0;
        let bytes = sub.metadata().size;
        loop {
            fs.create(&sub, OsStr::new(&long(names)), &NEW).unwrap();
            names += 1;
            if sub.metadata().size > bytes {
                fs.unlink(&sub, OsStr::new(&long(names - 1))).unwrap();
                break;
            }
            assert!(names < 100);
        }
        // The file has that block now, so it is filled, too.
        let fill = |fs: &FileSystem, piece: usize| {
            let mut count = 0;
            let node = match fs.lookup(&root, OsStr::new("fill")) {
                Ok(node) => node,
                Err(_) => fs.create(&root, OsStr::new("fill"), &NEW).unwrap(),
            };
            while append(fs, &node, &vec![9; piece]) == Ok(()) {
                count += 1;
            }
            count
        };
        assert!(fill(&fs, 64 << 10) > 100);
        fill(&fs, 1024);
        while fs.create(&sub, OsStr::new(&long(names)), &NEW).is_ok() {
            names += 1;
        }
        // In a hash tree, another leaf may have room.
        let full_name = long(names);
        fill(&fs, 1024);
        fs.sync().unwrap();
        let usage = fs.usage().unwrap();
        assert!(usage.available_blocks == 0 && usage.free_blocks > 100, "{usage:?}");

        for (what, result) in each_kind(&fs, &full_name) {
            assert_eq!(result, Err(Error::NoSpace), "{what}, blocks of {block}");
        }
        fs.sync().unwrap();
        let check = |fs: &FileSystem| {
            let file = fs.open("/old").unwrap();
            let mut found = vec![0; content.len() + 1];
            let read = file.read_at(&mut found, 0).unwrap();
            assert!(found[..read] == content[..]);
            assert_eq!(fs.metadata("/made").map(drop), Err(Error::NotFound));
            assert_eq!(fs.read_dir("/dir").unwrap().count(), names + 1);
        };
        // The last name of the loop above was removed.
        check(&fs);
        drop((root, sub));
        fs.unmount().unwrap();
        run_for("e2fsck", &["-fn", image.to_str().unwrap()], &[0]);

        // A caller who may use the reserved blocks can go on.
        let fs = mount(&image, if caller.is_some() { reserved } else { ReservedBlocks::Use });
        let root = fs.root().unwrap();
        fs.unlink(&root, OsStr::new("new")).unwrap();
        let acting = Caller { uid: 0, gid: 0 }.act();
        make(&fs, &root, "reserved", &[7; 5000]).unwrap();
        drop(acting);
        // The blocks are promised now, no matter which process writes the data back.
        fs.sync().unwrap();
        let bytes = fs.metadata("/reserved").unwrap().blocks_512 * 512;
        assert_eq!(bytes, 5000_u64.next_multiple_of(block.parse().unwrap()));
        fs.unlink(&root, OsStr::new("reserved")).unwrap();
        drop(root);
        fs.unmount().unwrap();

        let fs = mount(&image, reserved);
        check(&fs);
        let root = fs.root().unwrap();
        fs.unlink(&root, OsStr::new("fill")).unwrap();
        for (what, result) in each_kind(&fs, &full_name) {
            // The first operation that creates the name has succeeded by then.
            let expected = match what {
                "link" => Err(Error::Exists),
                _ => Ok(()),
            };
            assert_eq!(result, expected, "{what}, blocks of {block}");
        }
        drop(root);
        fs.unmount().unwrap();
        run_for("e2fsck", &["-fn", image.to_str().unwrap()], &[0]);
        if let Some(mounted) = Mounted::new(&image, &dir.path().join("mnt"), "ro") {
            let moved = std::fs::read(dir.path().join("mnt/dir").join(&full_name)).unwrap();
            assert!(moved.starts_with(&content) && moved.len() == content.len() + 10_000);
            drop(mounted);
        }
    }
}
