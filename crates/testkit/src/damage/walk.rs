//! Executes every query on a volume.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, VecDeque};
use std::fmt::Debug;
use std::hash::{Hash as _, Hasher as _};

use meantime_ext4::format::{
    DirectoryEntry, Error, Inode, OpenFailure, ROOT_INO, Volume, VolumeOptions, journal,
};
use meantime_ext4::{FileType, MountError};

use super::memory::Memory;

/// The result of a walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walk {
    /// Digest of all answers, without data that no checksum covers.
    pub digest: u64,
    /// Queries without an answer.
    pub errors: u64,
    /// Inodes that could be read.
    pub inodes: u64,
    /// Reads of the device.
    pub reads: u64,
    /// Whether the volume was opened.
    pub opened: bool,
}

struct Walker<'a> {
    memory: &'a Memory<'a>,
    volume: Volume<&'a Memory<'a>>,
    digest: DefaultHasher,
    errors: u64,
    /// The most reads of one operation.
    reads_max: u64,
}

/// Checks that an error says what is wrong and where, and can be printed.
fn judge(error: &Error) {
    let text = error.to_string();
    assert!(!text.is_empty() && text.len() < 4096, "{text:?}");
    match error {
        Error::Corrupt(corruption) => {
            assert!(
                corruption.ino.is_some() || corruption.block.is_some(),
                "{corruption:?} is nowhere"
            );
        }
        Error::Unsupported(unsupported) => {
            assert!(!unsupported.what.is_empty() && !unsupported.advice.is_empty())
        }
        Error::NotFound
        | Error::NotDirectory
        | Error::Loop
        | Error::NameTooLong
        | Error::Invalid(_) => {}
        other => panic!("a damaged volume in memory cannot fail so: {other:?}"),
    }
}

impl<'a> Walker<'a> {
    /// Returns the answer and adds it to the digest, or counts an error.
    fn ask<T: Debug>(
        &mut self,
        digested: bool,
        what: impl FnOnce(&Volume<&'a Memory<'a>>) -> Result<T, Error>,
    ) -> Option<T> {
        self.memory.allow(self.reads_max);
        let answer = what(&self.volume);
        assert_eq!(self.memory.broken(), None);
        match answer {
            Ok(answer) => {
                if digested {
                    format!("{answer:?}").hash(&mut self.digest);
                }
                Some(answer)
            }
            Err(error) => {
                judge(&error);
                if digested {
                    format!("{error:?}").hash(&mut self.digest);
                }
                // Errors due to a path or the type of a file are valid answers, too.
                self.errors +=
                    u64::from(matches!(error, Error::Corrupt(_) | Error::Unsupported(_)));
                if std::env::var_os("MEANTIME_TRACE").is_some() {
                    println!("{error}");
                }
                None
            }
        }
    }

    fn inode(&mut self, ino: u32, queue: &mut VecDeque<u32>) {
        let Some(inode) = self.ask(false, |volume| volume.linked_inode(ino)) else { return };
        self.ask(true, |volume| Ok(volume.metadata(&inode)));
        self.ask(true, |volume| volume.attributes(&inode));
        match inode.file_type() {
            FileType::Directory => self.directory(&inode, queue),
            FileType::Symlink => {
                // The target of a long link is data, which no checksum covers.
                let covered = inode.is_fast_symlink();
                self.ask(covered, |volume| volume.read_link(&inode));
            }
            FileType::Regular if inode.is_inline() => {
                self.ask(true, |volume| volume.inline_data(&inode));
            }
            FileType::Regular => self.file(&inode),
            _ => {}
        }
    }

    fn file(&mut self, inode: &Inode) {
        let mapped = inode.has(0x8_0000);
        let Some(map) = self.ask(mapped, |volume| volume.extent_map(inode)) else { return };
        let (mut end, block_count) = (0, self.volume.block_count());
        for extent in map.extents() {
            assert!(
                u64::from(extent.logical) >= end && extent.blocks > 0,
                "extents out of order: {extent:?}"
            );
            assert!(
                extent.physical > 0 && extent.physical + u64::from(extent.blocks) <= block_count,
                "{extent:?}"
            );
            end = extent.end();
        }
        let size_blocks = inode.size() / self.volume.block_bytes() as u64;
        for logical in [0, 1, 13, 300, size_blocks / 2, size_blocks, u64::from(u32::MAX)] {
            let Some(run) = self.ask(mapped, |volume| volume.run_at(inode, logical)) else {
                continue;
            };
            assert!(run.blocks > 0, "a run of nothing");
            // The whole map agrees; a block map is only known up to the file's end.
            let Some(mapped) = map.run_at(logical).filter(|_| mapped || logical < size_blocks)
            else {
                continue;
            };
            assert_eq!(
                (run.physical, run.state),
                (mapped.physical, mapped.state),
                "block {logical} of {inode:?}"
            );
        }
        self.ask(false, |volume| volume.visit_mapping_blocks(inode, &mut |_| Ok(())));
    }

    fn directory(&mut self, inode: &Inode, queue: &mut VecDeque<u32>) {
        self.ask(false, |volume| volume.check_index(inode));
        let mut entries: Vec<DirectoryEntry> = Vec::new();
        loop {
            let cookie = entries.last().map_or(0, |last| last.cookie);
            match self.ask(false, |volume| volume.entries(inode, cookie)) {
                Some(more) if !more.is_empty() => entries.extend(more),
                _ => break,
            }
            assert!(entries.len() < 100_000, "a directory without end: {inode:?}");
        }
        for pair in entries.windows(2) {
            assert!(pair[0].cookie < pair[1].cookie, "cookies do not grow: {pair:?}");
        }
        // In hash order: it ends, however the index is formed.
        let (mut cookie, mut listed) = (0, 0);
        while let Some(some) = self.ask(false, |volume| volume.list(inode, cookie, u64::MAX)) {
            assert!(some.is_sorted_by_key(|entry| entry.cookie), "cookies fall: {some:?}");
            let Some(last) = some.last() else { break };
            assert!(last.cookie > cookie, "a place twice: {last:?}");
            (cookie, listed) = (last.cookie, listed + some.len());
            assert!(listed < 100_000, "a directory without end: {inode:?}");
        }
        for (at, entry) in entries.iter().enumerate() {
            (&entry.name, entry.ino).hash(&mut self.digest);
            queue.push_back(entry.ino);
            if at < 4 || at % 64 == 0 {
                self.ask(true, |volume| volume.lookup(inode, &entry.name));
            }
        }
        self.ask(true, |volume| volume.lookup(inode, b"nothing has this name"));
    }
}

/// Opens the volume and executes every query, or only those about `inodes`. Panics if an answer is
/// invalid.
pub fn walk<'a>(memory: &'a Memory<'a>, options: VolumeOptions, inodes: Option<&[u32]>) -> Walk {
    let mut nothing = Walk { digest: 0, errors: 1, inodes: 0, reads: 0, opened: false };
    // Backups are searched for with each block size.
    memory.allow(4096);
    let opened = Volume::open(memory, memory.device_bytes(), options);
    assert_eq!(memory.broken(), None);
    let volume = match opened {
        Ok(volume) => volume,
        Err(failure) => {
            if let OpenFailure::Failed(error) = &failure {
                judge(error);
            }
            let text = MountError::of_device(failure, "image", memory.device_bytes()).to_string();
            assert!(!text.is_empty() && text.len() < 4096, "{text:?}");
            nothing.reads = memory.reads();
            return nothing;
        }
    };
    let blocks = memory.device_bytes() / volume.block_bytes() as u64;
    let mut walker = Walker {
        memory,
        volume,
        digest: DefaultHasher::new(),
        errors: 0,
        reads_max: 4 * blocks + 4096,
    };
    walker.ask(true, |volume| Ok(volume.info()));

    // A replay reads each block of the journal a few times.
    if let Some(recovery) = walker.ask(false, journal::recover) {
        recovery.summary().hash_into(&mut walker.digest);
        memory.allow(walker.reads_max);
        if let Err(failure) = recovery.apply(&mut walker.volume) {
            if let OpenFailure::Failed(error) = &failure {
                judge(error);
            }
            walker.errors += 1;
        }
        assert_eq!(memory.broken(), None);
    }
    let mut queue: VecDeque<u32> = [ROOT_INO].into();
    match inodes {
        Some(inodes) => {
            for ino in inodes {
                walker.inode(*ino, &mut queue);
            }
            queue.clear();
        }
        None => {
            walker.ask(true, |volume| volume.usage());
            walker.ask(true, |volume| {
                let mut groups = 0u32;
                volume.visit_groups(|_, _| groups += 1)?;
                (0..groups.min(64)).try_for_each(|group| {
                    volume.block_bitmap(group)?;
                    volume.inode_bitmap(group).map(drop)
                })
            });
            for path in [&b"/"[..], b"/..//.", b"/no/such", b"/d/x", b"/s/link/..", b"/long"] {
                walker.ask(false, |volume| volume.resolve(ROOT_INO, path, true));
            }
        }
    }
    let mut seen = BTreeSet::new();
    while let Some(ino) = queue.pop_front() {
        if seen.len() < 1000 && seen.insert(ino) {
            walker.inode(ino, &mut queue);
        }
    }
    let (errors, reads) = (walker.errors + walker.volume.ignored(), memory.reads());
    Walk { digest: walker.digest.finish(), errors, inodes: seen.len() as u64, reads, opened: true }
}

trait HashInto {
    fn hash_into(&self, hasher: &mut DefaultHasher);
}

impl<T: Debug> HashInto for T {
    fn hash_into(&self, hasher: &mut DefaultHasher) {
        format!("{self:?}").hash(hasher);
    }
}
