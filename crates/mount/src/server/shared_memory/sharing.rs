//! The state of an open file for the shared-memory path: whether it was taken, and which others
//! have it open.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use meantime_process::lock::{Mutex, Rank};

use super::connection::Connection;
use super::gate::Gate;
use super::left_files::LeftFiles;
use super::words::Word;

/// The state of an open file for the shared-memory path. It is dropped with the file.
pub(crate) struct Sharing {
    pub(crate) gate: Arc<Gate>,
    pub(super) ino: u32,
    left_files: Arc<LeftFiles>,
    /// Whether the file was opened to append, or may append.
    appends: bool,
    /// Whether it counts among those that take the FUSE path.
    is_other: AtomicBool,
    /// Whether it was opened to read through a cache, and for nothing else.
    pub(super) only_reads: bool,
    pub(super) word: OnceLock<Word>,
    /// Where the last read ended that took the shared-memory path and was not direct, and how many
    /// reads followed one another until then.
    next: AtomicU64,
    sequence: AtomicU32,
    /// The handles of the file in the connections.
    pub(super) handles: Mutex<Vec<(Weak<Connection>, u64)>>,
}

impl Drop for Sharing {
    fn drop(&mut self) {
        if self.word.get().is_none() {
            self.taken();
        }
        self.used();
        if self.gate.is_better_left() {
            self.left_files.add(self.ino);
        }
    }
}

impl Sharing {
    pub(super) fn new(gate: Arc<Gate>, ino: u32, left_files: &Arc<LeftFiles>, flags: i32) -> Self {
        let is_reader = flags & libc::O_ACCMODE == libc::O_RDONLY;
        let is_direct = flags & libc::O_DIRECT != 0;
        // A descriptor for direct writes counts as well. It may append later (RWF_APPEND, F_SETFL),
        // and the kernel would choose the place.
        let appends = flags & libc::O_APPEND != 0 || is_direct && !is_reader;
        if !is_reader {
            gate.has_writer.store(true, Ordering::Relaxed);
        }
        if flags & libc::O_APPEND != 0 && !is_reader {
            gate.opened_to_append();
        }
        gate.others.fetch_add(1, Ordering::SeqCst);
        gate.appenders.fetch_add(appends.into(), Ordering::SeqCst);
        Self {
            gate,
            ino,
            left_files: Arc::clone(left_files),
            appends,
            is_other: AtomicBool::new(true),
            only_reads: is_reader && !is_direct,
            word: OnceLock::new(),
            next: AtomicU64::new(u64::MAX),
            sequence: AtomicU32::new(0),
            handles: Mutex::new(Rank::Served, Vec::new()),
        }
    }

    /// Notes that the file is taken now, or closed.
    pub(super) fn taken(&self) {
        self.gate.appenders.fetch_sub(self.appends.into(), Ordering::SeqCst);
        // A file that appends is taken when it is opened, and may belong to a stream or to another
        // program that does not have the library. The kernel is told sizes until it is used.
        if !self.appends {
            self.used();
        }
    }

    /// Notes that the shared-memory path is used for the file now, or that the file is closed.
    #[inline]
    pub(super) fn used(&self) {
        if self.is_other.load(Ordering::Relaxed) && self.is_other.swap(false, Ordering::SeqCst) {
            self.gate.others.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Returns whether some users of the file take the FUSE path, as far as is known.
    pub(super) fn is_open_elsewhere(&self) -> bool {
        self.gate.others.load(Ordering::SeqCst) > 0
    }

    /// Returns whether some of these append. The kernel places what they append by the size that it
    /// knows.
    pub(super) fn is_appended_elsewhere(&self) -> bool {
        self.gate.appenders.load(Ordering::SeqCst) > 0
    }

    /// Returns how many reads followed one another, including that of `range`.
    pub(super) fn in_sequence(&self, range: Range<u64>) -> u32 {
        // It does no harm if a count is lost to another thread.
        let is_next = self.next.load(Ordering::Relaxed) == range.start;
        let count =
            if is_next { self.sequence.load(Ordering::Relaxed).saturating_add(1) } else { 1 };
        self.next.store(range.end, Ordering::Relaxed);
        self.sequence.store(count, Ordering::Relaxed);
        count
    }

    /// Returns how often descriptors of the file were closed, or `None` if it was not taken.
    pub(super) fn closings(&self) -> Option<u64> {
        self.word.get().map(Word::count)
    }

    /// Counts a close of a descriptor of the file, before it is answered.
    pub(crate) fn closed(&self) {
        if let Some(word) = self.word.get() {
            word.note();
        }
    }
}
