//! Time stamps of single I/O commands, for experiments. They are in a ring with one writer, the
//! controller, and any number of readers.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// When one I/O command was seen, when its service began, and when its completion was written. The
/// times are in ns of the SSD's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Submission queue.
    pub qid: u16,
    /// Command identifier.
    pub cid: u16,
    /// When the SQE was fetched.
    pub seen_ns: u64,
    /// When service on its channel began.
    pub begun_ns: u64,
    /// When the CQE was written.
    pub written_ns: u64,
}

struct Cell {
    /// A sequence lock for each cell: 2 × lap + 1 while it is written, and 2 × lap + 2 afterwards.
    sequence: AtomicU64,
    words: [AtomicU64; 4],
}

/// The last stamps. The newest overwrites the oldest. There are one writer, any number of readers,
/// and no lock.
pub struct StampRing {
    cells: Box<[Cell]>,
    written: AtomicU64,
}

/// The number of stamps kept.
pub const STAMP_RING_LEN: usize = 1 << 16;

impl StampRing {
    pub(crate) fn new(len: usize) -> Self {
        assert!(len.is_power_of_two(), "a ring's length is a power of two");
        let cell =
            |_| Cell { sequence: AtomicU64::new(0), words: [const { AtomicU64::new(0) }; 4] };
        Self { cells: (0..len).map(cell).collect(), written: AtomicU64::new(0) }
    }

    pub(crate) fn push(&self, stamp: Stamp) {
        let at = self.written.load(Ordering::Relaxed);
        let len = self.cells.len() as u64;
        let cell = &self.cells[(at & (len - 1)) as usize];
        let lap = at / len;
        cell.sequence.store(2 * lap + 1, Ordering::Relaxed);
        // A reader that sees any of the words below also sees the odd sequence number.
        fence(Ordering::Release);
        let ids = u64::from(stamp.qid) << 16 | u64::from(stamp.cid);
        for (word, value) in
            cell.words.iter().zip([ids, stamp.seen_ns, stamp.begun_ns, stamp.written_ns])
        {
            word.store(value, Ordering::Relaxed);
        }
        cell.sequence.store(2 * lap + 2, Ordering::Release);
        self.written.store(at + 1, Ordering::Release);
    }

    /// Returns the number of stamps written so far.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Returns stamp number `index` (from 0), or `None` if it is not written yet or has been
    /// overwritten.
    #[must_use]
    pub fn get(&self, index: u64) -> Option<Stamp> {
        let len = self.cells.len() as u64;
        let cell = &self.cells[(index & (len - 1)) as usize];
        let expected = 2 * (index / len) + 2;
        if cell.sequence.load(Ordering::Acquire) != expected {
            return None;
        }
        let [ids, seen_ns, begun_ns, written_ns] =
            std::array::from_fn(|i| cell.words[i].load(Ordering::Relaxed));
        // Orders the loads of the words before the second load of the sequence number.
        fence(Ordering::Acquire);
        let (qid, cid) = ((ids >> 16) as u16, ids as u16);
        (cell.sequence.load(Ordering::Relaxed) == expected).then_some(Stamp {
            qid,
            cid,
            seen_ns,
            begun_ns,
            written_ns,
        })
    }
}

impl std::fmt::Debug for StampRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StampRing")
            .field("len", &self.cells.len())
            .field("written", &self.written())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_newest() {
        let ring = StampRing::new(4);
        for i in 0..6 {
            ring.push(Stamp { qid: 1, cid: i, seen_ns: u64::from(i), ..Stamp::default() });
        }
        assert_eq!(ring.written(), 6);
        assert_eq!(ring.get(1), None);
        assert_eq!(ring.get(2).unwrap().cid, 2);
        assert_eq!(ring.get(5).unwrap().seen_ns, 5);
        assert_eq!(ring.get(6), None);
    }
}
