//! A file that holds one state after another, each written over the remains of the last.

use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use meantime_ssd::{Medium, SsdError};
use meantime_testkit::power_cut::{History, State, content_hash};

use crate::device::Base;

/// The granularity of `dirty`, in bytes.
const PAGE_BYTES: usize = 4096;

/// The bytes compared at a time, few enough to stay in a CPU's cache.
const PIECE_BYTES: usize = 16 * PAGE_BYTES;

/// How long the lock of a stopped SSD may persist.
const PATIENCE: Duration = Duration::from_secs(60);

/// One worker's image, in memory if there is such a directory.
pub(crate) struct Place {
    dir: tempfile::TempDir,
    image: PathBuf,
    file: File,
    /// The medium when recording began.
    base: Vec<u8>,
    base_hash: u64,
    /// Pages that may differ from `base`.
    dirty: BTreeSet<usize>,
    scratch: Vec<u8>,
    /// The places of the log's blocks without the journal's superblock, and the place of that.
    log: Vec<Range<usize>>,
    journal: usize,
}

impl Place {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let image = dir.path().join("image");
        let file = File::options().read(true).write(true).create_new(true).open(&image).unwrap();
        let (base, dirty, scratch, log) = Default::default();
        Self { dir, image, file, base, base_hash: 0, dirty, scratch, log, journal: 0 }
    }

    pub(crate) fn image(&self) -> &Path {
        &self.image
    }

    /// The path of another file beside the image.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Loads the content of `base` into the image.
    pub(crate) fn load(&mut self, base: &Base) {
        self.file.set_len(base.bytes.len() as u64).unwrap();
        self.file.write_all_at(&base.bytes, 0).unwrap();
        self.log.clone_from(&base.log);
        self.journal = base.journal;
        self.base.clear();
        self.dirty.clear();
    }

    /// The image as an SSD's medium.
    pub(crate) fn medium(&self) -> Medium {
        // A process that another thread is just starting briefly holds the previous SSD's lock.
        let begun = Instant::now();
        loop {
            match Medium::file(&self.image, None) {
                Err(SsdError::InUse { .. }) if begun.elapsed() < PATIENCE => {}
                medium => return medium.unwrap(),
            }
        }
    }

    /// Makes the current image the base of later states.
    pub(crate) fn begin(&mut self) {
        let bytes = self.file.metadata().unwrap().len() as usize;
        self.base.resize(bytes, 0);
        self.file.read_exact_at(&mut self.base, 0).unwrap();
        let (low, high) = self.base.split_at(bytes / 2);
        self.base_hash = u64::from(crc32c::crc32c(low)) << 32 | u64::from(crc32c::crc32c(high));
        self.dirty.clear();
    }

    pub(crate) fn base(&self) -> &[u8] {
        &self.base
    }

    /// A hash of the content of the base with `state`.
    pub(crate) fn hash(&self, state: &State) -> u64 {
        self.base_hash.wrapping_add(state.hash())
    }

    fn pages(offset: u64, bytes: usize) -> Range<usize> {
        offset as usize / PAGE_BYTES..(offset as usize + bytes).div_ceil(PAGE_BYTES)
    }

    /// Notes that the writes of `history` were made to the image.
    pub(crate) fn wrote(&mut self, history: &History) {
        for write in history.writes() {
            self.dirty.extend(Self::pages(write.offset, write.data.len()));
        }
    }

    /// Loads the base with these states, applied in order, into the image.
    pub(crate) fn put(&mut self, states: &[&State]) {
        for page in std::mem::take(&mut self.dirty) {
            let at = page * PAGE_BYTES;
            self.file.write_all_at(&self.base[at..at + PAGE_BYTES], at as u64).unwrap();
        }
        for (offset, content) in states.iter().flat_map(|state| state.changes()) {
            self.file.write_all_at(content, offset).unwrap();
            self.dirty.extend(Self::pages(offset, content.len()));
        }
    }

    /// Finds the pages that another program has changed in the image: outside of the log, or
    /// (`log`) in it, too.
    pub(crate) fn find_changes(&mut self, log: bool) {
        self.scratch.resize(PIECE_BYTES, 0);
        let all = 0..self.base.len();
        let mut kept: Vec<Range<usize>> = Vec::new();
        let mut at = 0;
        for skipped in self.log.iter().filter(|_| !log) {
            let (begin, end) =
                (skipped.start.next_multiple_of(PAGE_BYTES), skipped.end / PAGE_BYTES * PAGE_BYTES);
            kept.push(at..begin);
            at = end;
        }
        kept.push(at..all.end);
        for range in kept {
            // In large pieces first, because most are unchanged.
            for begin in range.clone().step_by(PIECE_BYTES) {
                let end = (begin + PIECE_BYTES).min(range.end);
                let now = &mut self.scratch[..end - begin];
                self.file.read_exact_at(now, begin as u64).unwrap();
                let base = &self.base[begin..end];
                if *now == *base {
                    continue;
                }
                let pages = now.chunks(PAGE_BYTES).zip(base.chunks(PAGE_BYTES));
                let differ = pages.enumerate().filter(|(_, (now, base))| now != base);
                self.dirty.extend(differ.map(|(page, _)| begin / PAGE_BYTES + page));
            }
        }
    }

    /// Marks the whole image as changed.
    pub(crate) fn corrupt(&mut self) {
        self.dirty.extend(0..self.base.len() / PAGE_BYTES);
    }

    /// The bytes of the image.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.image).unwrap()
    }

    /// A hash of what a check of the image, whose log is empty, depends on: everything except the
    /// content of the log's blocks, the times and counts in the superblock, and the number in the
    /// journal's superblock, on which nothing else depends. Images with equal hashes are
    /// equivalent.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut sum = 0_u64;
        let special = [0, self.journal / PAGE_BYTES];
        for page in self.dirty.iter().copied().chain(special).collect::<BTreeSet<_>>() {
            let range = page * PAGE_BYTES..(page + 1) * PAGE_BYTES;
            if self.log.iter().any(|log| log.start <= range.start && range.end <= log.end) {
                continue;
            }
            let mut content = [0; PAGE_BYTES];
            self.file.read_exact_at(&mut content, range.start as u64).unwrap();
            if special.contains(&page) {
                self.forget_times(range.start, &mut content);
            } else if content == self.base[range.clone()] {
                continue;
            }
            sum = sum.wrapping_add(content_hash(range.start as u64, &content));
        }
        sum
    }

    /// Zeroes the fields that differ from mount to mount.
    fn forget_times(&self, first: usize, content: &mut [u8; PAGE_BYTES]) {
        let mut forget = |at: usize, bytes: usize| {
            if let Some(field) =
                at.checked_sub(first).and_then(|at| content.get_mut(at..at + bytes))
            {
                field.fill(0);
            }
        };
        // Mount and write times (and the mount count after), last check, KiB written, the high
        // bytes of times, the checksum.
        for (at, bytes) in [(0x2C, 10), (0x40, 4), (0x178, 8), (0x274, 6), (0x3FC, 4)] {
            forget(1024 + at, bytes);
        }
        // The next transaction's number, the checksum.
        for (at, bytes) in [(24, 4), (0xFC, 4)] {
            forget(self.journal + at, bytes);
        }
    }
}
