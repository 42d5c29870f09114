//! What other threads see of a run while it goes on.
//!
//! A measuring thread stores what it has seen and never waits. Another thread looks when it likes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::ring::{Ring, Words};
use crate::pattern::{Dir, Io};

/// The operations, by their numbers in a ring.
const OPERATIONS: [Option<Dir>; 4] = [Some(Dir::Read), Some(Dir::Write), Some(Dir::Trim), None];
const FLUSH: usize = 3;

/// A look at a run while it goes on. Without one, a run pays nothing for it.
#[derive(Debug, Default)]
pub struct Watch {
    each: bool,
    jobs: Mutex<Vec<WatchedJob>>,
}

/// The threads of a job. Each has one turn after the other, so a ring is enough for all its cells.
#[derive(Debug)]
struct WatchedJob {
    cells: Vec<WatchedCell>,
    threads: Vec<Arc<WatchedThread>>,
}

/// A job on a device with a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedCell {
    /// The job, the device, the policy and the settings.
    pub name: String,
    /// Size of the device's logical blocks in bytes.
    pub(crate) block_bytes: u64,
}

/// An I/O that ended without an error, or a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchedIo {
    /// Its direction, or `None` for a flush.
    pub dir: Option<Dir>,
    /// Its place on the device or in the file, in bytes.
    pub offset_bytes: u64,
    /// Its length.
    pub bytes: u64,
    /// The time from before its submission until it was seen.
    pub latency_ns: u64,
}

/// What a measuring thread stores. Two of them share no cache line.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct WatchedThread {
    ring: Option<Ring>,
}

/// The place of a thread's cell in what it stores.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CellWatch<'a> {
    ring: Option<&'a Ring>,
    cell: usize,
}

impl Watch {
    /// Creates a look at each I/O, or at nothing.
    pub fn new(each: bool) -> Self {
        Self { each, ..Self::default() }
    }

    fn jobs(&self) -> MutexGuard<'_, Vec<WatchedJob>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job with its threads.
    pub(crate) fn add(&self, cells: Vec<WatchedCell>, threads: u32) -> Vec<Arc<WatchedThread>> {
        let thread = |_| Arc::new(WatchedThread { ring: self.each.then(Ring::new) });
        let threads: Vec<_> = (0..threads).map(thread).collect();
        self.jobs().push(WatchedJob { cells, threads: threads.clone() });
        threads
    }

    /// Takes the I/Os that have ended since the last call: those of a thread in the order in which
    /// they were seen. Returns the number of I/Os that were left out so far, because they came
    /// faster than they were taken.
    pub fn take(&self, mut show: impl FnMut(&WatchedCell, WatchedIo)) -> u64 {
        let mut left_out = 0;
        for WatchedJob { cells, threads } in &*self.jobs() {
            for ring in threads.iter().filter_map(|thread| thread.ring.as_ref()) {
                left_out += ring.take(|[lba, bytes, latency_ns, of]: Words| {
                    let (cell, dir) = (&cells[of as usize >> 2], OPERATIONS[of as usize & 3]);
                    let offset_bytes = lba * cell.block_bytes;
                    show(cell, WatchedIo { dir, offset_bytes, bytes, latency_ns });
                });
            }
        }
        left_out
    }
}

impl WatchedThread {
    /// Returns the place for cell number `cell`.
    pub(crate) fn cell(&self, cell: usize) -> CellWatch<'_> {
        CellWatch { ring: self.ring.as_ref(), cell }
    }
}

impl CellWatch<'_> {
    /// Stores an I/O.
    #[inline]
    pub(crate) fn record(&self, io: &Io, latency_ns: u64) {
        if let Some(ring) = self.ring {
            ring.put([io.lba, io.bytes as u64, latency_ns, self.of(io.dir as usize)]);
        }
    }

    /// Stores a flush.
    pub(crate) fn flushed(&self, latency_ns: u64) {
        if let Some(ring) = self.ring {
            ring.put([0, 0, latency_ns, self.of(FLUSH)]);
        }
    }

    fn of(&self, operation: usize) -> u64 {
        (self.cell << 2 | operation) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::ring::SLOTS;

    #[test]
    fn ios_are_seen_with_their_cells() {
        let watch = Watch::new(true);
        let cell = |name: &str, block_bytes| WatchedCell { name: name.to_owned(), block_bytes };
        let threads = watch.add(vec![cell("a", 512), cell("b", 4096)], 2);
        let write = Io { dir: Dir::Write, lba: 3, bytes: 8192 };
        threads[0].cell(1).record(&write, 77);
        threads[1].cell(0).flushed(5);
        let mut seen = Vec::new();
        let mut take = || watch.take(|cell, io| seen.push((cell.name.clone(), io)));
        assert_eq!(take(), 0);
        for _ in 0..SLOTS + 2 {
            threads.iter().for_each(|thread| thread.cell(0).record(&write, 1));
        }
        assert_eq!(take(), 4);
        let io = |dir, offset_bytes, bytes, latency_ns| WatchedIo {
            dir,
            offset_bytes,
            bytes,
            latency_ns,
        };
        assert_eq!(seen.len() as u64, 2 + 2 * SLOTS);
        assert_eq!(seen[0], ("b".to_owned(), io(Some(Dir::Write), 3 * 4096, 8192, 77)));
        assert_eq!(seen[1], ("a".to_owned(), io(None, 0, 0, 5)));
        assert_eq!(seen[2].1.offset_bytes, 3 * 512);
    }
}
