//! e2fsck -p, which distributions run at boot, on the disk of a mount that commits fast and loses
//! power: everything that was fsynced is there, and a full check finds nothing to fix.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use meantime_ext4::journal::JournalCounters;
use meantime_ext4::{File, FileSystem, MountOptions, NewNode};

use meantime_testkit::image::{READ_WRITE, mkfs, mount, run, run_for, scratch, tools, writable};

const BLOCK: usize = 4096;
/// The smallest log that mke2fs makes, without the blocks of fast commits.
const LOG_BLOCKS: u64 = 1024;
const NEW: NewNode = NewNode { mode: 0o640, uid: 1, gid: 2, umask: 0 };

/// A mounted file system, and what was fsynced in it.
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

    /// Writes `blocks` blocks of `byte` from block `at` of file `name`, and makes them durable.
    fn write(&mut self, name: &str, at: usize, blocks: usize, byte: u8) {
        let file = self.open(name);
        let (from, bytes) = (at * BLOCK, blocks * BLOCK);
        assert_eq!(file.write_at(&vec![byte; bytes], from as u64).unwrap(), bytes);
        file.sync_all().unwrap();
        let content = self.synced.entry(name.into()).or_default();
        content.resize(content.len().max(from + bytes), 0);
        content[from..from + bytes].fill(byte);
    }

    /// Truncates file `name` to zero durably.
    fn cut_off(&mut self, name: &str) {
        let file = self.open(name);
        file.set_len(0).unwrap();
        file.sync_all().unwrap();
        self.synced.insert(name.into(), Vec::new());
    }

    /// Makes directory `name`, which no fast commit can describe, durable.
    fn mkdir(&mut self, name: &str) {
        let root = self.fs.root().unwrap();
        let node = self.fs.mkdir(&root, OsStr::new(name), &NEW).unwrap();
        self.fs.sync_node(&node).unwrap();
        self.directories.push(name.into());
    }

    fn counters(&self) -> JournalCounters {
        self.fs.journal_counters().unwrap()
    }

    /// Makes directories durable one by one until the log has passed its end and begun again.
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

    /// Checks that e2fsck -p on a copy of the disk keeps everything that was fsynced.
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

/// e2fsck 1.47.0 takes the blocks of fast commits for the log's last ones (rule 20).
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

/// The same for a mount without fast commits, after one that made some and was not unmounted.
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

/// e2fsck 1.47.0 takes blocks for tree nodes that a later fast commit gives to a file (rule 21).
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
        // The tree's node goes before the data, where there is room.
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

/// These precautions cost nothing in the usual cases: overwrites, new files, and appends to a file
/// with few extents.
#[test]
fn the_usual_cases_stay_fast() {
    if !tools() {
        return;
    }
    let mut scene = Scene::new("24M", &[]);
    let counted = |scene: &mut Scene, what: &mut dyn FnMut(&mut Scene, usize)| {
        // This writes earlier changes in place: no fast commit is made over a group descriptor that
        // is not.
        scene.mkdir(&format!("d{}", scene.directories.len()));
        scene.write("first", 0, 1, 1);
        let before = scene.counters();
        // As many as fit into the blocks of fast commits.
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
