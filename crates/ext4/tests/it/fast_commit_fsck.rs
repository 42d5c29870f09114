//! What e2fsck -p, which distributions run at boot, makes of a mount that commits fast and loses
//! its power: everything that was fsynced is there, and nothing is left for a whole check to mend.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use meantime_ext4::journal::JournalCounters;
use meantime_ext4::{File, FileSystem, MountOptions, NewNode};

use meantime_testkit::image::{READ_WRITE, mkfs, mount, run, run_for, scratch, tools, writable};

const BLOCK: usize = 4096;
/// mke2fs makes no smaller log; the blocks of fast commits come on top.
const LOG_BLOCKS: u64 = 1024;
const NEW: NewNode = NewNode { mode: 0o640, uid: 1, gid: 2, umask: 0 };

/// A file system that is mounted, and what was fsynced of it.
struct Scene {
    dir: tempfile::TempDir,
    path: PathBuf,
    fs: FileSystem,
    synced: BTreeMap<String, Vec<u8>>,
    directories: Vec<String>,
}

impl Scene {
    fn new(size: &str, args: &[&str]) -> Self {
        let dir = scratch();
        let args = [&["-O", "fast_commit", "-b", "4096", "-J", "size=4"], args].concat();
        let path = mkfs(dir.path(), "image", size, &args);
        let fs = mount(&path, &MountOptions { fast_commit: true, ..writable() });
        Self { dir, path, fs, synced: BTreeMap::new(), directories: Vec::new() }
    }

    fn open(&self, name: &str) -> File {
        let root = self.fs.root().unwrap();
        let node = match self.fs.lookup(&root, OsStr::new(name)) {
            Ok(node) => node,
            Err(_) => self.fs.create(&root, OsStr::new(name), &NEW).unwrap(),
        };
        self.fs.open_node_with(&node, &READ_WRITE).unwrap()
    }

    /// Writes `blocks` blocks of `byte` from block `at` of file `name` on, and makes them durable.
    fn write(&mut self, name: &str, at: usize, blocks: usize, byte: u8) {
        let file = self.open(name);
        let (from, bytes) = (at * BLOCK, blocks * BLOCK);
        assert_eq!(file.write_at(&vec![byte; bytes], from as u64).unwrap(), bytes);
        file.sync_all().unwrap();
        let content = self.synced.entry(name.into()).or_default();
        content.resize(content.len().max(from + bytes), 0);
        content[from..from + bytes].fill(byte);
    }

    /// Takes the blocks of file `name` from it, durably.
    fn cut_off(&mut self, name: &str) {
        let file = self.open(name);
        file.set_len(0).unwrap();
        file.sync_all().unwrap();
        self.synced.insert(name.into(), Vec::new());
    }

    /// Makes directory `name`, which no fast commit says, durable.
    fn mkdir(&mut self, name: &str) {
        let root = self.fs.root().unwrap();
        let node = self.fs.mkdir(&root, OsStr::new(name), &NEW).unwrap();
        self.fs.sync_node(&node).unwrap();
        self.directories.push(name.into());
    }

    fn counters(&self) -> JournalCounters {
        self.fs.journal_counters().unwrap()
    }

    /// Makes directories durable, one after another, until the end of the log has come and its
    /// beginning.
    fn go_round(&mut self) {
        let mut made = 0;
        while self.counters().log_blocks < LOG_BLOCKS + 100 {
            made += 1;
            self.mkdir(&format!("d{made}"));
            if self.counters().log_blocks > LOG_BLOCKS - 100 {
                self.check(&format!("after {made} directories"));
            }
        }
    }

    /// What e2fsck -p makes of the disk as it is has all that was fsynced.
    fn check(&self, what: &str) {
        let copy = self.dir.path().join("crashed");
        run("cp", &["--sparse=always", self.path.to_str().unwrap(), copy.to_str().unwrap()]);
        run_for("e2fsck", &["-p", copy.to_str().unwrap()], &[0, 1]);
        let fs = mount(&copy, &MountOptions::default());
        for (name, content) in &self.synced {
            let file = fs
                .open(Path::new("/").join(name))
                .unwrap_or_else(|e| panic!("{what}: {name}: {e}"));
            let mut found = vec![0; content.len()];
            assert_eq!(
                file.read_at(&mut found, 0).unwrap(),
                content.len(),
                "{what}: the end of {name}"
            );
            let wrong = found.chunks(BLOCK).zip(content.chunks(BLOCK)).position(|(a, b)| a != b);
            assert_eq!(wrong, None, "{what}: a block of {name}");
        }
        for name in &self.directories {
            let found = fs.read_dir(Path::new("/").join(name)).map(Iterator::count);
            assert_eq!(found.ok(), Some(2), "{what}: directory {name}");
        }
        drop(fs);
        run("e2fsck", &["-fn", copy.to_str().unwrap()]);
    }
}

/// Where e2fsck 1.47.0 takes the blocks of fast commits for the log's last ones.
#[test]
fn the_end_of_the_log_comes_and_its_beginning() {
    if !tools() {
        return;
    }
    let mut scene = Scene::new("24M", &[]);
    scene.go_round();
    scene.write("a", 0, 1, 7);
    scene.check("on top of a log that has been gone round");
}

/// The same for a mount that makes no fast commits, after one that did and was not unmounted.
#[test]
fn the_end_of_the_log_without_fast_commits() {
    if !tools() {
        return;
    }
    let mut scene = Scene::new("24M", &[]);
    scene.write("a", 0, 1, 3);
    assert_eq!(scene.counters().fast_commits, 1);
    scene.mkdir("d");
    scene.write("a", 0, 1, 4);
    let path = scene.dir.path().join("again");
    std::fs::copy(&scene.path, &path).unwrap();
    scene.fs = mount(&path, &writable());
    scene.path = path;
    scene.go_round();
    assert_eq!(scene.counters().fast_commits, 0);
}

/// Where e2fsck 1.47.0 takes blocks for the nodes of a tree that a later fast commit gives to a
/// file.
#[test]
fn trees_that_have_left_their_inode() {
    if !tools() {
        return;
    }
    let mut scene = Scene::new("24M", &[]);
    for round in 0..6 {
        let (name, other, hole) = (format!("a{round}"), format!("b{round}"), format!("f{round}"));
        scene.write(&hole, 0, 4, 9);
        // Four extents fit into an inode.
        for n in 0..4 {
            scene.write(&name, 2 * n, 1, 1 + n as u8);
        }
        // The node of the tree will be before the data, where there is room.
        scene.cut_off(&hole);
        scene.mkdir(&format!("c{round}"));
        for n in 4..5 + round % 3 {
            scene.write(&name, 2 * n, 1, 1 + n as u8);
            scene.check(&format!("round {round}, extent {n}"));
        }
        scene.mkdir(&format!("d{round}"));
        for n in 0..4 {
            scene.write(&name, 20 + 2 * n, 1, 40 + n as u8);
            scene.write(&other, n, 1, 80 + n as u8);
            scene.check(&format!("round {round}, block {n}"));
        }
    }
    println!("{:?}", scene.counters());
}

/// The care that is taken costs nothing in the usual cases: what is written over, new files, and
/// what is appended to one of a few extents.
#[test]
fn the_usual_cases_stay_fast() {
    if !tools() {
        return;
    }
    let mut scene = Scene::new("24M", &[]);
    let counted = |scene: &mut Scene, what: &mut dyn FnMut(&mut Scene, usize)| {
        // What was done before is home, then: over a group's descriptor that is not, there is none.
        scene.mkdir(&format!("d{}", scene.directories.len()));
        scene.write("first", 0, 1, 1);
        let before = scene.counters();
        // No more than there is room for in the blocks of fast commits.
        (0..10).for_each(|n| what(scene, n));
        let after = scene.counters();
        (after.commits - before.commits, after.fast_commits - before.fast_commits)
    };
    let appended = counted(&mut scene, &mut |scene, n| scene.write("a", n, 1, n as u8));
    assert_eq!(appended, (0, 10), "appended");
    let written = counted(&mut scene, &mut |scene, n| scene.write("a", n, 1, n as u8 + 1));
    assert_eq!(written, (0, 10), "written over");
    let created = counted(&mut scene, &mut |scene, n| scene.write(&format!("n{n}"), 0, 1, 3));
    assert_eq!(created, (0, 10), "new files");
    let grown = counted(&mut scene, &mut |scene, n| scene.write("b", 2 * n, 1, 4));
    assert_eq!(grown, (6, 4), "one extent after another");
    let written = counted(&mut scene, &mut |scene, n| scene.write("b", 2 * n, 1, 5));
    assert_eq!(written, (0, 10), "written over, with nodes");
    scene.check("in the end");
}
