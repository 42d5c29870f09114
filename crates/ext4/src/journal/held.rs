//! Blocks freed by transactions that have not committed. A crash would return them to their owners,
//! so they must not be reused yet (rule 8 of `docs/ordering.md`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::PoisonError;

use super::sequence::Sequence;
use meantime_process::lock::{Mutex, MutexGuard, Rank};

/// Ranges of blocks without overlaps. Each is held until its transaction has committed.
#[derive(Debug)]
pub struct Held {
    /// The end of each range and the transaction that freed it, by the range's first block.
    ranges: Mutex<BTreeMap<u64, (u64, Sequence)>>,
}

impl Default for Held {
    fn default() -> Self {
        Self { ranges: Mutex::new(Rank::JournalHeld, BTreeMap::new()) }
    }
}

impl Held {
    fn ranges(&self) -> MutexGuard<'_, BTreeMap<u64, (u64, Sequence)>> {
        // The state is consistent after each step, so a poisoned lock may be used.
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds `blocks`, which transaction `sequence` freed.
    pub fn hold(&self, blocks: Range<u64>, sequence: Sequence) {
        self.ranges().insert(blocks.start, (blocks.end, sequence));
    }

    /// Returns the first held range that overlaps `blocks`, clipped to `blocks`.
    pub fn first_in(&self, blocks: Range<u64>) -> Option<Range<u64>> {
        let ranges = self.ranges();
        let before =
            ranges.range(..=blocks.start).next_back().filter(|(_, (end, _))| *end > blocks.start);
        let (start, (end, _)) = before.or_else(|| ranges.range(blocks.start..blocks.end).next())?;
        Some((*start).max(blocks.start)..(*end).min(blocks.end))
    }

    /// Releases what transaction `sequence` and older ones freed, because they have committed.
    pub fn release(&self, sequence: Sequence) {
        self.ranges().retain(|_, (_, freed_in)| *freed_in > sequence);
    }

    /// Returns how many blocks are held.
    pub fn blocks(&self) -> u64 {
        self.ranges().iter().map(|(start, (end, _))| end - start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_freed_is_held_until_it_has_committed() {
        let held = Held::default();
        held.hold(10..20, Sequence(3));
        held.hold(30..40, Sequence(4));
        assert_eq!(held.first_in(0..100), Some(10..20));
        assert_eq!(held.first_in(15..17), Some(15..17));
        assert_eq!(held.first_in(20..35), Some(30..35));
        assert_eq!(held.first_in(20..30), None);
        held.release(Sequence(3));
        assert_eq!((held.first_in(0..100), held.blocks()), (Some(30..40), 10));
    }
}
