//! What other threads see of a run while it goes on.
//!
//! A measuring thread stores what it has seen and never waits. Another thread looks when it likes.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use meantime_report::histogram::{BUCKETS, bucket};

use super::ring::{Ring, Words};
use crate::pattern::{Dir, Io};

/// The operations, by their numbers in a ring.
const OPERATIONS: [Option<Dir>; 4] = [Some(Dir::Read), Some(Dir::Write), Some(Dir::Trim), None];
const FLUSH: usize = 3;

/// A look at a run while it goes on. Without one, a run pays nothing for it.
#[derive(Debug, Default)]
pub struct Watch {
    each: bool,
    histograms: bool,
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
    /// By cell, or empty.
    counts: Vec<Counts>,
}

/// The number of I/Os by [`bucket`] of their latency. One thread adds to it.
#[derive(Debug)]
#[repr(align(128))]
struct Counts([AtomicU64; BUCKETS]);

/// The place of a thread's cell in what it stores.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CellWatch<'a> {
    ring: Option<&'a Ring>,
    counts: Option<&'a Counts>,
    cell: usize,
}

impl Watch {
    /// Creates a look at each I/O, at histograms of the latencies, or at both.
    pub fn new(each: bool, histograms: bool) -> Self {
        Self { each, histograms, ..Self::default() }
    }

    fn jobs(&self) -> MutexGuard<'_, Vec<WatchedJob>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job with its threads.
    pub(crate) fn add(&self, cells: Vec<WatchedCell>, threads: u32) -> Vec<Arc<WatchedThread>> {
        let thread = |_| {
            let counted = if self.histograms { cells.len() } else { 0 };
            let counts = (0..counted).map(|_| Counts::new()).collect();
            Arc::new(WatchedThread { ring: self.each.then(Ring::new), counts })
        };
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

    /// Returns all cells, with the number of I/Os so far by [`bucket`] of the latency. A later call
    /// has these cells first and in the same order.
    pub fn histograms(&self) -> Vec<(WatchedCell, [u64; BUCKETS])> {
        let jobs = self.jobs();
        let of = |job: &WatchedJob, cell: usize| {
            let mut sums = [0; BUCKETS];
            for Counts(counts) in job.threads.iter().filter_map(|thread| thread.counts.get(cell)) {
                // Relaxed: the numbers need not be of one moment.
                sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count.load(Relaxed));
            }
            sums
        };
        let cells = jobs.iter().flat_map(|job| {
            let cells = job.cells.iter().cloned().enumerate();
            cells.map(move |(at, cell)| (cell, of(job, at)))
        });
        cells.collect()
    }
}

impl Counts {
    fn new() -> Self {
        Self([const { AtomicU64::new(0) }; BUCKETS])
    }

    #[inline]
    fn add(&self, ns: u64) {
        let count = &self.0[bucket(ns)];
        // Relaxed: no other thread writes it, and nothing else depends on it.
        count.store(count.load(Relaxed) + 1, Relaxed);
    }
}

impl WatchedThread {
    /// Returns the place for cell number `cell`.
    pub(crate) fn cell(&self, cell: usize) -> CellWatch<'_> {
        CellWatch { ring: self.ring.as_ref(), counts: self.counts.get(cell), cell }
    }
}

impl CellWatch<'_> {
    /// Stores an I/O.
    #[inline]
    pub(crate) fn record(&self, io: &Io, latency_ns: u64) {
        if let Some(ring) = self.ring {
            ring.put([io.lba, io.bytes as u64, latency_ns, self.of(io.dir as usize)]);
        }
        if let Some(counts) = self.counts {
            counts.add(latency_ns);
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
        let watch = Watch::new(true, false);
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
        assert!(watch.histograms().iter().all(|(_, counts)| *counts == [0; BUCKETS]));
    }

    #[test]
    fn latencies_are_counted_by_cell() {
        let watch = Watch::new(false, true);
        let cell = |name: &str| WatchedCell { name: name.to_owned(), block_bytes: 512 };
        let threads = watch.add(vec![cell("a"), cell("b")], 2);
        let read = Io { dir: Dir::Read, lba: 3, bytes: 512 };
        for (thread, of, ns) in [(0, 1, 1_000), (1, 1, 1_024), (1, 1, 1_025), (0, 0, 1)] {
            threads[thread].cell(of).record(&read, ns);
            threads[thread].cell(of).flushed(ns);
        }
        let seen: Vec<_> = watch.histograms();
        let names: Vec<&str> = seen.iter().map(|(cell, _)| cell.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!((seen[0].1[0], seen[1].1[10], seen[1].1[11]), (1, 2, 1));
        assert_eq!(seen.iter().flat_map(|(_, counts)| counts).sum::<u64>(), 4);
        assert_eq!(watch.take(|_, io| panic!("{io:?}")), 0);
    }
}
