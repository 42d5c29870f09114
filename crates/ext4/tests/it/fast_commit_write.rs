//! Fast commits encoded by this crate, written into an image's journal by hand: e2fsck, the
//! kernel's mount and this crate must replay them alike, and what the first two leave must be
//! sound.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use meantime_ext4::format::checksum::crc32c;
use meantime_ext4::format::edit::InodeEdit;
use meantime_ext4::format::inode::flags;
use meantime_ext4::format::journal::fast_commit::{Change, Writer};
use meantime_ext4::format::journal::recover;
use meantime_ext4::format::{RunState, Volume};
use meantime_ext4::{FileType, Timestamp};

use meantime_testkit::image::{
    self, Image, Mounted, content, debugfs_write, mkfs, open, run, run_for, scratch, tools,
};

/// The transaction that the fast commits continue.
const TID: u32 = 77;

fn time(seconds: i64) -> Timestamp {
    Timestamp { seconds, nanoseconds: 5 }
}

/// An image whose journal will get fast commits.
struct Scene {
    path: PathBuf,
    volume: Volume<Image>,
    writers: Vec<Vec<u8>>,
    /// The first unused block.
    free: u64,
}

impl Scene {
    /// With files `a` (4 blocks), `b` (one block, also named `b2`), `c` (3 blocks, not adjacent),
    /// and a directory `d`.
    fn new(dir: &Path, args: &[&str]) -> Self {
        let mut all = vec!["-O", "fast_commit"];
        all.extend(args);
        let path = mkfs(dir, "base", "48M", &all);
        let block_bytes = open(&path).block_bytes();
        let mut requests = vec!["mkdir d".to_owned()];
        for (name, blocks) in [("a", 4), ("b", 1), ("c", 3)] {
            let content = dir.join(name);
            std::fs::write(&content, vec![name.as_bytes()[0]; blocks * block_bytes]).unwrap();
            requests.push(format!("write {} {name}", content.display()));
        }
        requests.extend(["ln b b2".to_owned(), "sif b links_count 2".to_owned()]);
        debugfs_write(&path, &requests);
        run("e2fsck", &["-fn", path.to_str().unwrap()]);
        let volume = open(&path);
        // After the blocks that mke2fs and debugfs allocated from the front, and not at a backup
        // superblock.
        let free = volume.block_count() - 2000;
        Self { path, volume, writers: Vec::new(), free }
    }

    fn ino(&self, name: &str) -> u32 {
        let root = self.volume.inode(2).unwrap();
        self.volume.lookup(&root, name.as_bytes()).unwrap().unwrap().0
    }

    fn inode(&self, name: &str) -> InodeEdit {
        let ino = self.ino(name);
        let (block, at) = self.volume.inode_place(ino).unwrap();
        let bytes = self.volume.block(block).unwrap();
        InodeEdit::of(ino, &bytes[at..at + self.volume.superblock().inode_bytes() as usize])
    }

    /// An unused inode as a new file.
    fn new_inode(&self, ino: u32) -> InodeEdit {
        let mut edit = InodeEdit::new(self.volume.superblock(), ino, 99);
        edit.set_mode(0x8000 | 0o640);
        edit.set_flags(flags::EXTENTS);
        edit.set_links(1);
        edit.set_created(time(1_500_000_000));
        edit.set_modified(time(1_500_000_001));
        edit
    }

    /// Fills unused blocks with `byte`. Returns the first.
    fn data(&mut self, blocks: u32, byte: u8) -> u64 {
        let at = self.free;
        self.free += u64::from(blocks) + 1;
        let bytes = vec![byte; blocks as usize * self.volume.block_bytes()];
        let file = OpenOptions::new().write(true).open(&self.path).unwrap();
        file.write_all_at(&bytes, at * self.volume.block_bytes() as u64).unwrap();
        at
    }

    fn commit(&mut self, changes: &[Change]) {
        let mut writer = Writer::new(self.volume.block_bytes(), TID, self.writers.is_empty());
        for change in changes {
            writer.add(change).unwrap();
        }
        self.writers.push(writer.finish().unwrap());
    }

    /// The byte offset of block `index` of the journal in the image.
    fn journal_at(&self, index: u64) -> u64 {
        let journal = self.volume.inode(self.volume.superblock().journal_ino()).unwrap();
        let run = self.volume.run_at(&journal, index).unwrap();
        assert_eq!(run.state, RunState::Written);
        run.physical * self.volume.block_bytes() as u64
    }

    /// Writes the commits and makes them valid.
    fn finish(&self) {
        let file = OpenOptions::new().read(true).write(true).open(&self.path).unwrap();
        let mut superblock = vec![0; 1024];
        let at = self.journal_at(0);
        file.read_exact_at(&mut superblock, at).unwrap();
        let word =
            |bytes: &[u8], at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        let maxlen = word(&superblock, 0x10);
        let count = match word(&superblock, 0x54) {
            0 => 256,
            count => count,
        };
        let put = |superblock: &mut Vec<u8>, at: usize, value: u32| {
            superblock[at..at + 4].copy_from_slice(&value.to_be_bytes());
        };
        put(&mut superblock, 0x14, 1);
        put(&mut superblock, 0x18, TID);
        put(&mut superblock, 0x1c, 1);
        let checksums = if self.volume.superblock().has_checksums() { 0x10 } else { 0 };
        put(&mut superblock, 0x28, 0x2 | 0x20 | checksums);
        if checksums != 0 {
            superblock[0x50] = 4;
            put(&mut superblock, 0xfc, 0);
            let sum = crc32c(!0, &superblock);
            put(&mut superblock, 0xfc, sum);
        }
        file.write_all_at(&superblock, at).unwrap();
        let first = u64::from(maxlen - count) + 1;
        for (number, block) in self
            .writers
            .iter()
            .flat_map(|bytes| bytes.chunks(self.volume.block_bytes()))
            .enumerate()
        {
            file.write_all_at(block, self.journal_at(first + number as u64)).unwrap();
        }
        let mut raw = vec![0; 1024];
        file.read_exact_at(&mut raw, 1024).unwrap();
        raw[0x60] |= 4;
        if self.volume.superblock().has_checksums() {
            let sum = crc32c(!0, &raw[..0x3fc]);
            raw[0x3fc..].copy_from_slice(&sum.to_le_bytes());
        }
        file.write_all_at(&raw, 1024).unwrap();
    }
}

fn raw(edit: &InodeEdit) -> Change {
    let bytes = &edit.as_bytes()[..128 + edit.extra_bytes()];
    Change::Inode { ino: edit.ino(), raw: bytes.to_vec() }
}

/// What is compared of each file: mode, links, change time, and content as runs of equal bytes.
type Seen = (u16, u32, i64, Vec<(u8, usize)>);

fn tree(volume: &Volume<Image>) -> BTreeMap<String, Seen> {
    let mut seen = BTreeMap::new();
    for (name, ino) in image::names(volume, 2) {
        let inode = volume.inode(ino).unwrap();
        let name = String::from_utf8(name).unwrap();
        if inode.file_type() != FileType::Regular {
            continue;
        }
        let metadata = volume.metadata(&inode);
        let bytes = content(volume, &inode);
        let runs = bytes.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect();
        seen.insert(name, (metadata.mode, metadata.links, metadata.modified.seconds, runs));
    }
    seen
}

/// Compares all three replays of `scene`. `last_name` says that an inode loses its last name.
fn compare(scene: &Scene, what: &str, last_name: bool) -> BTreeMap<String, Seen> {
    scene.finish();
    let ours = {
        let mut volume = open(&scene.path);
        let told = recover(&volume).unwrap().apply(&mut volume).unwrap();
        assert_eq!(told.fast_commits as usize, scene.writers.len(), "{what}");
        tree(&volume)
    };
    let checked = scene.path.with_extension("checked");
    std::fs::copy(&scene.path, &checked).unwrap();
    // Its replay leaves a sound image, unless an inode lost its last name: then only a full check
    // deletes the inode.
    let how = if last_name { "-fy" } else { "-p" };
    run_for("e2fsck", &[how, checked.to_str().unwrap()], &[0, 1]);
    run("e2fsck", &["-fn", checked.to_str().unwrap()]);
    assert_eq!(tree(&open(&checked)), ours, "{what}: e2fsck");
    let mounted = scene.path.with_extension("mounted");
    std::fs::copy(&scene.path, &mounted).unwrap();
    let at = scene.path.with_extension("mnt");
    if let Some(mount) = Mounted::new(&mounted, &at, "rw") {
        drop(mount);
        run("e2fsck", &["-fn", mounted.to_str().unwrap()]);
        assert_eq!(tree(&open(&mounted)), ours, "{what}: the kernel");
    }
    ours
}

const FLAVOURS: [&[&str]; 3] = [
    &["-b", "4096"],
    &["-b", "1024", "-O", "metadata_csum_seed"],
    &["-b", "4096", "-O", "^metadata_csum,^64bit"],
];

fn each(what: &str, changes: impl Fn(&mut Scene)) {
    each_with(what, false, changes);
}

fn each_with(what: &str, last_name: bool, changes: impl Fn(&mut Scene)) {
    if !tools() {
        return;
    }
    for args in FLAVOURS {
        let dir = scratch();
        let mut scene = Scene::new(dir.path(), args);
        let before = tree(&scene.volume);
        changes(&mut scene);
        let after = compare(&scene, &format!("{what} {args:?}"), last_name);
        assert_ne!(before, after, "{what}: nothing was changed");
    }
}

#[test]
fn times_of_an_overwrite() {
    each("overwrite", |scene| {
        let mut a = scene.inode("a");
        a.set_modified(time(1_600_000_000));
        scene.commit(&[raw(&a)]);
        a.set_modified(time(1_600_000_001));
        scene.commit(&[raw(&a)]);
    });
}

#[test]
fn appends() {
    each("append", |scene| {
        let mut a = scene.inode("a");
        let block_bytes = scene.volume.block_bytes() as u64;
        for n in 0..2 {
            let at = scene.data(2, b'x');
            a.set_size(a.size() + 2 * block_bytes);
            a.set_blocks(scene.volume.superblock(), 6 + 2 * u64::from(n));
            let first = 4 + 2 * n;
            let range = Change::AddRange { ino: a.ino(), first, blocks: 2, at, unwritten: false };
            scene.commit(&[range, raw(&a)]);
        }
    });
}

fn create(scene: &mut Scene, ino: u32, name: &str) -> InodeEdit {
    let at = scene.data(1, b'n');
    let mut new = scene.new_inode(ino);
    new.set_size(100);
    new.set_blocks(scene.volume.superblock(), 1);
    scene.commit(&[
        raw(&new),
        Change::Create { parent: 2, ino, name: name.into() },
        Change::AddRange { ino, first: 0, blocks: 1, at, unwritten: false },
        raw(&new),
    ]);
    new
}

#[test]
fn new_files() {
    each("create", |scene| {
        for ino in 40..44 {
            create(scene, ino, &format!("new-{ino}"));
        }
    });
}

#[test]
fn renames_and_links() {
    each("rename", |scene| {
        let mut a = scene.inode("a");
        let name = |name: &str| name.as_bytes().to_vec();
        scene.commit(&[
            Change::Link { parent: 2, ino: a.ino(), name: name("moved") },
            Change::Unlink { parent: 2, ino: a.ino(), name: name("a") },
            raw(&a),
        ]);
        a.set_links(2);
        scene.commit(&[Change::Link { parent: 2, ino: a.ino(), name: name("again") }, raw(&a)]);
        let mut b = scene.inode("b");
        b.set_links(1);
        scene.commit(&[Change::Unlink { parent: 2, ino: b.ino(), name: name("b2") }, raw(&b)]);
    });
}

#[test]
fn the_last_name_goes() {
    each_with("unlink", true, |scene| {
        let c = scene.inode("c");
        scene.commit(&[Change::Unlink { parent: 2, ino: c.ino(), name: b"c".to_vec() }]);
    });
}

#[test]
fn a_new_file_goes_again() {
    each_with("create and unlink", true, |scene| {
        create(scene, 40, "new");
        create(scene, 41, "stays");
        scene.commit(&[Change::Unlink { parent: 2, ino: 40, name: b"new".to_vec() }]);
    });
}

#[test]
fn a_rename_replaces() {
    each_with("rename over", true, |scene| {
        let (a, c) = (scene.inode("a"), scene.inode("c"));
        scene.commit(&[
            Change::Unlink { parent: 2, ino: c.ino(), name: b"c".to_vec() },
            Change::Link { parent: 2, ino: a.ino(), name: b"c".to_vec() },
            Change::Unlink { parent: 2, ino: a.ino(), name: b"a".to_vec() },
            raw(&a),
        ]);
    });
}

#[test]
fn truncation_and_what_comes_after() {
    each("truncate", |scene| {
        let mut a = scene.inode("a");
        let block_bytes = scene.volume.block_bytes() as u64;
        let ino = a.ino();
        a.set_size(block_bytes);
        a.set_blocks(scene.volume.superblock(), 1);
        scene.commit(&[Change::DelRange { ino, first: 1, blocks: u32::MAX - 1 }, raw(&a)]);
        let at = scene.data(3, b'y');
        a.set_size(4 * block_bytes);
        a.set_blocks(scene.volume.superblock(), 4);
        scene.commit(&[
            Change::AddRange { ino, first: 1, blocks: 3, at, unwritten: true },
            Change::AddRange { ino, first: 2, blocks: 1, at: at + 1, unwritten: false },
            raw(&a),
        ]);
    });
}
