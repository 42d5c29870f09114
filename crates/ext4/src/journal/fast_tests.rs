//! Compares what changes record for fast commits with what they do: replay by e2fsck, by the kernel
//! and by us has to result in the same files.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use super::fast::Unrecorded;
use super::tests::image::Image;
use super::{Changes, Handle};
use crate::alloc::{AllocHandle, Allocator, Want};
use crate::ops::{extents, fallocate, truncate};
use crate::{Error, FileType};
use meantime_ext4_format::checksum::crc32c;
use meantime_ext4_format::journal::recover;
use meantime_ext4_format::{Inode as DiskInode, MappedExtent, ROOT_INO, RunState, Source, Volume};

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % u64::from(limit)) as u32
    }
}

/// What is compared of each file: mode, links, blocks, and its content as runs of equal bytes.
type Seen = (u16, u32, u64, Vec<(u8, usize)>);

fn content<S: Source>(volume: &Volume<S>, inode: &DiskInode) -> Vec<u8> {
    let block_bytes = volume.block_bytes() as u64;
    let mut content = vec![0; inode.size() as usize];
    let mut logical = 0;
    while logical * block_bytes < inode.size() {
        let run = volume.run_at(inode, logical).unwrap();
        let written = if run.state == RunState::Written { run.blocks } else { 0 };
        for n in 0..written {
            let at = ((logical + n) * block_bytes) as usize;
            let Some(room) = content.get_mut(at..).filter(|room| !room.is_empty()) else { break };
            let bytes = volume.block(run.physical + n).unwrap();
            let len = room.len().min(bytes.len());
            room[..len].copy_from_slice(&bytes[..len]);
        }
        logical += run.blocks.min(1 << 32);
    }
    content
}

fn names<S: Source>(volume: &Volume<S>, ino: u32) -> BTreeMap<Vec<u8>, u32> {
    let (dir, mut found, mut cookie) = (volume.linked_inode(ino).unwrap(), BTreeMap::new(), 0);
    loop {
        let some = volume.entries(&dir, cookie).unwrap();
        let Some(last) = some.last() else { return found };
        cookie = last.cookie;
        found.extend(some.into_iter().map(|entry| (entry.name, entry.ino)));
    }
}

fn tree<S: Source>(volume: &Volume<S>) -> BTreeMap<String, Seen> {
    let mut seen = BTreeMap::new();
    for (name, ino) in names(volume, ROOT_INO) {
        let inode = volume.inode(ino).unwrap();
        if inode.file_type() == FileType::Regular {
            let metadata = volume.metadata(&inode);
            let bytes = content(volume, &inode);
            let runs = bytes.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).collect();
            seen.insert(
                String::from_utf8(name).unwrap(),
                (metadata.mode, metadata.links, metadata.blocks_512, runs),
            );
        }
    }
    seen
}

fn run(program: &str, args: &[&str], codes: &[i32]) {
    let output = Command::new(program).args(args).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.code().is_some_and(|code| codes.contains(&code)),
        "{program} {args:?}: {text}"
    );
}

/// A file system as of its last whole commit, the fast commits since, and its current state.
struct Scene {
    image: Image,
    allocator: Allocator,
    base: Image,
    unrecorded: Unrecorded,
    /// Blocks changed since the last whole commit.
    blocks: BTreeMap<u64, Arc<[u8]>>,
    tid: u32,
    area: Vec<u8>,
    commits: usize,
    /// The files as of the last fast commit.
    recorded: BTreeMap<String, Seen>,
    dir: tempfile::TempDir,
}

impl Scene {
    fn new(args: &[&str]) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir(&root).unwrap();
        for file in 0..4_usize {
            std::fs::write(root.join(format!("f{file}")), vec![b'0' + file as u8; 10_000 * file])
                .unwrap();
        }
        let image = Image::make(
            "40M",
            &[args, &["-O", "fast_commit", "-d", root.to_str().unwrap()]].concat(),
        )?;
        let base_path = dir.path().join("base");
        image.save(&base_path);
        let allocator = Allocator::new(&image.volume()).unwrap();
        let recorded = tree(&image.volume());
        Some(Self {
            base: Image::load(&base_path),
            image,
            allocator,
            unrecorded: Unrecorded::default(),
            blocks: BTreeMap::new(),
            tid: 7,
            area: Vec::new(),
            commits: 0,
            recorded,
            dir,
        })
    }

    fn change<T>(
        &mut self,
        work: impl FnOnce(&mut AllocHandle<'_, '_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let (unrecorded, blocks, allocator) =
            (&mut self.unrecorded, &mut self.blocks, &self.allocator);
        let work = |handle: &mut Handle<'_>| work(&mut AllocHandle::new(handle, allocator));
        self.image.change_told(work, |changes: &Changes| {
            unrecorded.merge(changes);
            blocks.extend(changes.blocks.clone());
            allocator.completed(changes);
        })
    }

    fn ino(&self, name: &str) -> u32 {
        names(&self.image.volume(), ROOT_INO)[name.as_bytes()]
    }

    /// Writes data, which are not journalled.
    fn write(&self, block: u64, blocks: u32, byte: u8) {
        let block_bytes = self.image.volume().block_bytes();
        let data = vec![byte; blocks as usize * block_bytes];
        self.image.write(block * block_bytes as u64, &data);
        self.base.write(block * block_bytes as u64, &data);
    }

    /// Makes a fast commit. Returns false if that was not possible.
    fn commit_fast(&mut self) -> bool {
        let volume = self.image.volume();
        let first = self.area.is_empty();
        let Ok(bytes) = self.unrecorded.write(volume.superblock(), &self.blocks, self.tid, first)
        else {
            return false;
        };
        drop(volume);
        self.area.extend(bytes);
        self.commits += 1;
        self.unrecorded = Unrecorded::default();
        self.recorded = tree(&self.image.volume());
        true
    }

    fn commit_whole(&mut self) {
        self.base.write(0, &self.image.bytes());
        self.image.commit();
        self.unrecorded = Unrecorded::default();
        self.blocks.clear();
        self.tid += 1;
        self.area.clear();
        self.commits = 0;
        self.recorded = tree(&self.image.volume());
    }

    /// Returns the disk after a crash.
    fn crashed(&self) -> Vec<u8> {
        let mut disk = self.base.bytes();
        let volume = self.base.volume();
        let journal = volume.inode(volume.superblock().journal_ino()).unwrap();
        let place = |index: u32| {
            let run = volume.run_at(&journal, u64::from(index)).unwrap();
            run.physical as usize * volume.block_bytes()
        };
        let superblock = &mut disk[place(0)..][..1024];
        let word =
            |bytes: &[u8], at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        let (blocks, count) = (word(superblock, 0x10), word(superblock, 0x54));
        let first_fast = blocks - if count == 0 { 256 } else { count } + 1;
        let checksums = volume.superblock().has_checksums();
        // These are the first block, the transaction and the start, and then 64BIT, FAST_COMMIT and
        // CSUM_V3.
        let features = 0x22 | if checksums { 0x10 } else { 0 };
        for (at, value) in [(0x14, 1), (0x18, self.tid), (0x1c, 1), (0x28, features)] {
            superblock[at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
        if checksums {
            superblock[0x50] = 4;
            superblock[0xfc..0x100].fill(0);
            let sum = crc32c(!0, superblock);
            superblock[0xfc..0x100].copy_from_slice(&sum.to_be_bytes());
        }
        for (number, block) in self.area.chunks(volume.block_bytes()).enumerate() {
            disk[place(first_fast + number as u32)..][..block.len()].copy_from_slice(block);
        }
        let raw = &mut disk[1024..2048];
        raw[0x60] |= 4;
        if checksums {
            let sum = crc32c(!0, &raw[..0x3fc]);
            raw[0x3fc..].copy_from_slice(&sum.to_le_bytes());
        }
        disk
    }

    fn check(&self, what: &str) {
        let path = self.dir.path().join("crashed");
        std::fs::write(&path, self.crashed()).unwrap();
        let image = Image::load(&path);
        let mut volume = image.volume();
        let told = recover(&volume).unwrap().apply(&mut volume).unwrap();
        assert_eq!(told.fast_commits as usize, self.commits, "{what}");
        self.same(&tree(&volume), &format!("{what}: here"));
        let at = path.to_str().unwrap();
        let copy = self.dir.path().join("mounted");
        std::fs::copy(&path, &copy).unwrap();
        // Without checksums, e2fsck 1.47.0 takes groups for uninitialized ones, so mounts write no
        // fast commits there.
        if volume.superblock().has_checksums() {
            run("e2fsck", &["-p", at], &[0, 1]);
            run("e2fsck", &["-fn", at], &[0]);
            self.same(&tree(&Image::load(&path).volume()), &format!("{what}: e2fsck"));
        }
        if mount_once(&copy, &self.dir.path().join("mnt")) {
            run("e2fsck", &["-fn", copy.to_str().unwrap()], &[0]);
            self.same(&tree(&Image::load(&copy).volume()), &format!("{what}: the kernel"));
        }
    }

    fn same(&self, found: &BTreeMap<String, Seen>, what: &str) {
        assert_eq!(
            found.keys().collect::<Vec<_>>(),
            self.recorded.keys().collect::<Vec<_>>(),
            "{what}"
        );
        for (name, seen) in &self.recorded {
            assert_eq!(&found[name], seen, "{what}: {name}");
        }
    }

    /// Makes a random change to a file.
    fn step(&mut self, random: &mut Random) {
        let name = format!("f{}", random.below(4));
        let ino = self.ino(&name);
        let block_bytes = self.image.volume().block_bytes() as u64;
        let size = self.image.volume().inode(ino).unwrap().size();
        let (byte, blocks) = (b'a' + random.below(26) as u8, 1 + random.below(5));
        let end = size.div_ceil(block_bytes) as u32;
        match random.below(7) {
            0 | 1 => {
                let found = self.append(ino, end, blocks).unwrap();
                self.write(found.0, found.1, byte);
            }
            2 => {
                let from = random.below(end + 10);
                let keep = random.below(2) == 0;
                let reach = (u64::from(from + blocks) * block_bytes).max(size);
                self.change(|handle| {
                    let size = (!keep).then_some(reach);
                    fallocate::allocate(handle, ino, from..from + blocks, size, 100)
                })
                .unwrap();
            }
            3 => {
                let to = u64::from(random.below(end + 3)) * block_bytes;
                let _ = self.change(|handle| truncate::set_size(handle, ino, to, 100)).unwrap();
            }
            4 => {
                let from = random.below(end + 1);
                let _ = self
                    .change(|handle| fallocate::punch(handle, ino, from..from + blocks, 100))
                    .unwrap();
            }
            5 => self.fill_unwritten(ino, random.below(end + 1), blocks, byte),
            _ => {
                let mode = 0x8000 | random.below(0o1000) as u16;
                self.change(|handle| {
                    let mut inode = handle.load_inode(ino)?;
                    inode.set_mode(mode);
                    handle.store_inode(&inode, false)?;
                    handle.fast_eligible();
                    Ok(())
                })
                .unwrap();
            }
        }
    }

    /// Appends blocks to the file. Returns their place and number.
    fn append(&mut self, ino: u32, end: u32, blocks: u32) -> Result<(u64, u32), Error> {
        self.change(|handle| {
            let mut inode = handle.load_inode(ino)?;
            // This frees blocks preallocated there.
            let _ = extents::remove(handle, &mut inode, end..end + blocks, 100)?;
            let found = handle.allocator.blocks(handle, Want::data(ino, None, blocks))?;
            let blocks = (found.end - found.start) as u32;
            let extent =
                MappedExtent { logical: end, blocks, physical: found.start, unwritten: false };
            extents::insert(handle, &mut inode, extent)?;
            inode.set_size(u64::from(end + blocks) * u64::from(handle.superblock().block_bytes()));
            handle.store_inode(&inode, true)?;
            handle.fast_eligible();
            Ok((found.start, blocks))
        })
    }

    /// Writes to the unwritten blocks of `from` to `from + blocks` below the file's end.
    fn fill_unwritten(&mut self, ino: u32, from: u32, blocks: u32, byte: u8) {
        let volume = self.image.volume();
        let inode = volume.inode(ino).unwrap();
        let mut data = Vec::new();
        let end = inode.size().div_ceil(volume.block_bytes() as u64) as u32;
        for logical in from..(from + blocks).min(end) {
            let run = volume.run_at(&inode, u64::from(logical)).unwrap();
            if run.state == RunState::Unwritten {
                data.push((logical, run.physical));
            }
        }
        drop(volume);
        for (_, block) in &data {
            self.write(*block, 1, byte);
        }
        self.change(|handle| {
            let mut inode = handle.load_inode(ino)?;
            for (logical, _) in &data {
                extents::set_written(handle, &mut inode, *logical..logical + 1, true)?;
            }
            handle.store_inode(&inode, true)?;
            handle.fast_eligible();
            Ok(())
        })
        .unwrap();
    }
}

/// Mounts `image` for writing with the kernel and unmounts it. Returns whether that was possible.
fn mount_once(image: &Path, at: &Path) -> bool {
    std::fs::create_dir_all(at).unwrap();
    let output =
        Command::new("mount").args(["-t", "ext4", "-o", "loop"]).arg(image).arg(at).output();
    if !output.as_ref().is_ok_and(|output| output.status.success()) {
        println!("skipped: no mount on a loop device ({output:?})");
        return false;
    }
    super::tests::image::unmount(at);
    true
}

#[test]
fn what_is_recorded_of_files_is_what_was_done() {
    let mut fast = 0;
    let rounds = std::env::var("MEANTIME_FAST_ROUNDS").map_or(4, |text| text.parse().unwrap());
    for (seed, args) in [
        (1, &["-b", "4096"][..]),
        (2, &["-b", "1024"]),
        (3, &["-b", "4096", "-O", "^metadata_csum"]),
        (4, &["-b", "4096", "-O", "orphan_file,metadata_csum_seed"]),
    ] {
        let Some(mut scene) = Scene::new(args) else { return };
        let mut random = Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        for round in 0..rounds {
            for _ in 0..1 + random.below(12) {
                for _ in 0..1 + random.below(3) {
                    scene.step(&mut random);
                }
                if !scene.commit_fast() {
                    break;
                }
            }
            if scene.commits > 0 {
                fast += scene.commits;
                scene.check(&format!("seed {seed}, round {round}"));
            }
            scene.commit_whole();
        }
    }
    println!("{fast} fast commits");
    assert!(fast > 50);
}
