//! A mount that commits fast and loses power: after any `fsync`, this crate, e2fsck and the kernel
//! recover from the disk what the mount has.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use meantime_ext4::format::journal::recover;
use meantime_ext4::{
    Allocate, File, FileSystem, FileType, MountOptions, NewNode, Node, RenameFlags, SetMetadata,
};

use meantime_testkit::image::{
    Mounted, READ_WRITE, clean, mkfs, mount, open, run, run_for, scratch, tools, writable,
};
use meantime_testkit::{Rng, setting};

/// The mode, link count and content of each file.
type Tree = BTreeMap<String, (u16, u32, Vec<u8>)>;

fn fast() -> MountOptions {
    MountOptions { fast_commit: true, ..writable() }
}

fn tree(fs: &FileSystem) -> Tree {
    let mut all = Tree::new();
    for entry in fs.read_dir("/").unwrap() {
        let entry = entry.unwrap();
        let name = entry.name.to_str().unwrap().to_owned();
        if !name.starts_with('f') {
            continue;
        }
        let metadata = fs.metadata(Path::new("/").join(&name)).unwrap();
        let file = fs.open(Path::new("/").join(&name)).unwrap();
        let mut content = vec![0; file.size() as usize];
        assert_eq!(file.read_at(&mut content, 0).unwrap(), content.len());
        all.insert(name, (metadata.mode, metadata.links, content));
    }
    all
}

fn write(file: &File, random: &mut Rng, offset: u64) {
    let len = 1 + random.below(20_000) as usize;
    let data = vec![1 + random.below(255) as u8; len];
    assert_eq!(file.write_at(&data, offset).unwrap(), len);
}

/// Makes a change and makes it durable.
fn step(fs: &FileSystem, random: &mut Rng, number: usize) {
    let root = fs.root().unwrap();
    let names: Vec<String> = tree(fs).into_keys().collect();
    let new = format!("f{number}");
    if names.len() < 3 || random.below(5) == 0 {
        fs.create(&root, OsStr::new(&new), &NewNode { mode: 0o640, uid: 1, gid: 2, umask: 0 })
            .unwrap();
        let file = fs.open_with(Path::new("/").join(&new), &READ_WRITE).unwrap();
        if random.below(4) > 0 {
            write(&file, random, 0);
        }
        return file.sync_all().unwrap();
    }
    let name = &names[random.below(names.len() as u64) as usize];
    let path = Path::new("/").join(name);
    let file = fs.open_with(&path, &READ_WRITE).unwrap();
    match random.below(9) {
        0 => write(&file, random, file.size()),
        1 | 2 => write(&file, random, random_below(file.size(), number)),
        3 => file.set_len(random.below(30_000)).unwrap(),
        4 => fs
            .rename_at(&root, OsStr::new(name), &root, OsStr::new(&new), RenameFlags::default())
            .unwrap(),
        5 => fs.link(file.node(), &root, OsStr::new(&new)).unwrap(),
        6 => {
            let at = random.below(60_000);
            file.allocate(at, 10_000, Allocate::KeepSize).unwrap();
            write(&file, random, at);
        }
        7 => drop(
            fs.set_metadata(
                file.node(),
                &SetMetadata {
                    mode: Some(0o600 + random.below(64) as u16),
                    ..SetMetadata::default()
                },
            )
            .unwrap(),
        ),
        _ => {
            fs.unlink(&root, OsStr::new(name)).unwrap();
            return fs.sync_node(&root).unwrap();
        }
    }
    file.sync_all().unwrap();
}

fn random_below(size: u64, number: usize) -> u64 {
    (number as u64).wrapping_mul(7919) % (size + 1)
}

#[test]
fn what_was_committed_fast_survives() {
    if !tools() {
        return;
    }
    let mut fast_commits = 0;
    for seed in 1..=setting("MEANTIME_FAST_SEEDS").unwrap_or(1) {
        let dir = scratch();
        let path = mkfs(dir.path(), "image", "64M", &["-O", "fast_commit"]);
        let options = fast();
        let fs = mount(&path, &options);
        let mut random = Rng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for round in 0..12 {
            for number in 0..1 + random.below(10) as usize {
                step(&fs, &mut random, 100 * round + number);
            }
            let live = tree(&fs);
            let crashed = dir.path().join("crashed");
            std::fs::copy(&path, &crashed).unwrap();
            let mut volume = open(&crashed);
            fast_commits += recover(&volume).unwrap().apply(&mut volume).unwrap().fast_commits;
            drop(volume);
            let what = format!("seed {seed}, round {round}");
            let here = mount(&crashed, &MountOptions::default());
            same(&tree(&here), &live, &format!("{what}: here"));
            clean(&here, &what);
            drop(here);
            let replayed = dir.path().join("replayed");
            std::fs::copy(&path, &replayed).unwrap();
            mount(&replayed, &options).unmount().unwrap();
            run("e2fsck", &["-fn", replayed.to_str().unwrap()]);
            same(
                &tree(&mount(&replayed, &MountOptions::default())),
                &live,
                &format!("{what}: on the disk"),
            );
            let mounted = dir.path().join("mounted");
            std::fs::copy(&path, &mounted).unwrap();
            run_for("e2fsck", &["-p", crashed.to_str().unwrap()], &[0, 1]);
            run("e2fsck", &["-fn", crashed.to_str().unwrap()]);
            same(
                &tree(&mount(&crashed, &MountOptions::default())),
                &live,
                &format!("{what}: e2fsck"),
            );
            if let Some(kernel) = Mounted::new(&mounted, &dir.path().join("mnt"), "rw") {
                drop(kernel);
                run("e2fsck", &["-fn", mounted.to_str().unwrap()]);
                same(
                    &tree(&mount(&mounted, &MountOptions::default())),
                    &live,
                    &format!("{what}: the kernel"),
                );
            }
        }
        let live = tree(&fs);
        fs.unmount().unwrap();
        run("e2fsck", &["-fn", path.to_str().unwrap()]);
        same(&tree(&mount(&path, &MountOptions::default())), &live, "at the end");
    }
    println!("{fast_commits} fast commits");
    assert!(fast_commits > 20, "{fast_commits}");
}

fn same(found: &Tree, live: &Tree, what: &str) {
    assert_eq!(found.keys().collect::<Vec<_>>(), live.keys().collect::<Vec<_>>(), "{what}");
    for (name, (mode, links, content)) in live {
        let found = &found[name];
        assert_eq!(
            (found.0, found.1, found.2.len()),
            (*mode, *links, content.len()),
            "{what}: {name}"
        );
        assert!(found.2 == *content, "{what}: the content of {name}");
    }
}

/// A kind of node other than a file, which no fast commit can describe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// With its target in the inode.
    Link,
    /// With its target in a block.
    LongLink,
    Directory,
    Fifo,
}

impl Kind {
    fn target(self) -> String {
        if self == Self::Link { "f1".to_owned() } else { format!("./{}f1", "d/../".repeat(40)) }
    }

    fn make(self, fs: &FileSystem, name: &str) -> Node {
        let (root, name) = (fs.root().unwrap(), OsStr::new(name));
        let new = NewNode { mode: 0o640, uid: 1, gid: 2, umask: 0 };
        match self {
            Self::Link | Self::LongLink => {
                fs.symlink_at(&root, name, OsStr::new(&self.target()), &new).unwrap()
            }
            Self::Directory => fs.mkdir(&root, name, &new).unwrap(),
            Self::Fifo => fs.mknod(&root, name, &new, FileType::Fifo, (0, 0)).unwrap(),
        }
    }

    /// Checks that `name` is such a node on disk `path`, which needs no recovery, or whose log is
    /// replayed.
    fn is_there(self, path: &Path, name: &str, what: &str) {
        let fs = mount(path, &MountOptions::default());
        let root = fs.root().unwrap();
        let links = root.metadata().links;
        assert_eq!(
            links,
            3 + u32::from(self == Self::Directory),
            "{self:?}, {what}: the root's links"
        );
        let node = fs.lookup(&root, OsStr::new(name));
        let node = node.unwrap_or_else(|error| panic!("{self:?}, {what}: {error}"));
        let metadata = node.metadata();
        assert_eq!(
            (metadata.mode & 0o777, metadata.uid, metadata.gid),
            (self.mode(), 1, 2),
            "{what}"
        );
        match self {
            Self::Link | Self::LongLink => {
                assert_eq!(fs.read_link_at(&node).unwrap(), Path::new(&self.target()), "{what}");
            }
            Self::Directory => {
                assert_eq!((node.file_type(), metadata.links), (FileType::Directory, 2), "{what}");
                assert_eq!(fs.read_dir(Path::new("/").join(name)).unwrap().count(), 2, "{what}");
            }
            Self::Fifo => assert_eq!(node.file_type(), FileType::Fifo, "{what}"),
        }
    }

    fn mode(self) -> u16 {
        if matches!(self, Self::Link | Self::LongLink) { 0o777 } else { 0o640 }
    }
}

/// An fsync of a link, a directory or a FIFO commits the whole transaction, with everything that
/// fast commits contained before or would have contained.
#[test]
fn what_is_never_said_commits_all() {
    if !tools() {
        return;
    }
    for kind in [Kind::Link, Kind::LongLink, Kind::Directory, Kind::Fifo] {
        let dir = scratch();
        let path = mkfs(dir.path(), "image", "64M", &["-O", "fast_commit"]);
        let fs = mount(&path, &fast());
        let counts = || {
            let counters = fs.journal_counters().unwrap();
            (counters.commits, counters.fast_commits)
        };
        let root = fs.root().unwrap();
        let file = |name: &str, byte: u8| {
            let node = fs
                .create(&root, OsStr::new(name), &NewNode { mode: 0o640, uid: 1, gid: 2, umask: 0 })
                .unwrap();
            let file = fs.open_node_with(&node, &READ_WRITE).unwrap();
            assert_eq!(file.write_at(&[byte; 5000], 0).unwrap(), 5000);
            file
        };
        // The first fsync of a new image may be a whole commit.
        file("f0", 1).sync_all().unwrap();
        let before = counts();
        let said = file("f1", 2);
        said.sync_all().unwrap();
        assert_eq!(counts(), (before.0, before.1 + 1), "{kind:?}: a file is committed fast");
        // Changes that are not synced.
        fs.create(&root, OsStr::new("f2"), &NewNode { mode: 0o640, uid: 1, gid: 2, umask: 0 })
            .unwrap();
        fs.set_metadata(said.node(), &SetMetadata { mode: Some(0o600), ..SetMetadata::default() })
            .unwrap();
        let node = kind.make(&fs, "new");
        fs.sync_node(&node).unwrap();
        assert_eq!(
            counts(),
            (before.0 + 1, before.1 + 1),
            "{kind:?}: the transaction has committed"
        );
        let crashed = dir.path().join("crashed");
        std::fs::copy(&path, &crashed).unwrap();
        let live = tree(&fs);
        // Later commits are fast again.
        let after = file("f3", 3);
        after.sync_all().unwrap();
        assert_eq!(counts(), (before.0 + 1, before.1 + 2), "{kind:?}: the next one is fast");
        let later = dir.path().join("later");
        std::fs::copy(&path, &later).unwrap();
        let last = tree(&fs);
        drop((node, said, after));

        for (cut, live) in [(&crashed, &live), (&later, &last)] {
            for who in ["here", "e2fsck", "the kernel"] {
                let copy = dir.path().join("copy");
                std::fs::copy(cut, &copy).unwrap();
                kind.is_there(&copy, "new", "in the log");
                match who {
                    "here" => mount(&copy, &fast()).unmount().unwrap(),
                    "e2fsck" => drop(run_for("e2fsck", &["-p", copy.to_str().unwrap()], &[0, 1])),
                    _ => match Mounted::new(&copy, &dir.path().join("mnt"), "rw") {
                        Some(mounted) => drop(mounted),
                        None => continue,
                    },
                }
                run("e2fsck", &["-fn", copy.to_str().unwrap()]);
                kind.is_there(&copy, "new", who);
                same(
                    &tree(&mount(&copy, &MountOptions::default())),
                    live,
                    &format!("{kind:?}, {who}"),
                );
            }
        }
        drop(root);
        fs.unmount().unwrap();
        run("e2fsck", &["-fn", path.to_str().unwrap()]);
    }
}
