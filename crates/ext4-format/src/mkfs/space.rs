//! The used blocks of a new file system.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges of blocks that do not touch.
#[derive(Debug, Clone, Default)]
pub(super) struct Space {
    /// The end of each used range, by its first block.
    used: BTreeMap<u64, u64>,
}

impl Space {
    /// Marks `blocks`, which must all be free.
    pub(super) fn mark(&mut self, blocks: Range<u64>) {
        if blocks.is_empty() {
            return;
        }
        let Range { mut start, mut end } = blocks;
        if let Some((before, _)) =
            self.used.range(..start).next_back().filter(|(_, end)| **end == start)
        {
            start = *before;
        }
        if let Some(after) = self.used.remove(&end) {
            end = after;
        }
        self.used.insert(start, end);
    }

    /// Returns the first free run of at least `blocks_min` blocks within `within`, in full length.
    fn free_run(&self, within: Range<u64>, blocks_min: u64) -> Option<Range<u64>> {
        let mut at = within.start;
        if let Some((_, end)) = self.used.range(..=at).next_back() {
            at = at.max(*end);
        }
        for (start, end) in self.used.range(at..within.end.max(at)) {
            if start - at >= blocks_min {
                return Some(at..*start);
            }
            at = *end;
        }
        (at < within.end && within.end - at >= blocks_min).then_some(at..within.end)
    }

    /// Takes the first `blocks` consecutive free blocks within `within`.
    pub(super) fn take(&mut self, within: Range<u64>, blocks: u64) -> Option<u64> {
        let start = self.free_run(within, blocks)?.start;
        self.mark(start..start + blocks);
        Some(start)
    }

    /// Takes the first free blocks within `within`, at most `blocks`.
    pub(super) fn take_some(&mut self, within: Range<u64>, blocks: u64) -> Option<Range<u64>> {
        let run = self.free_run(within, 1)?;
        let taken = run.start..run.end.min(run.start + blocks);
        self.mark(taken.clone());
        Some(taken)
    }

    /// Returns the used parts of `within`, in order.
    pub(super) fn used_in(&self, within: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let before = self.used.range(..within.start).next_back();
        before.into_iter().chain(self.used.range(within.clone())).filter_map(move |(start, end)| {
            let inside = (*start).max(within.start)..(*end).min(within.end);
            (!inside.is_empty()).then_some(inside)
        })
    }

    /// Returns the number of used blocks of `within`.
    pub(super) fn count_in(&self, within: Range<u64>) -> u64 {
        self.used_in(within).map(|range| range.end - range.start).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_large_enough_run_is_taken() {
        let mut space = Space::default();
        space.mark(10..20);
        space.mark(25..30);
        space.mark(20..22);
        assert_eq!(space.used_in(15..100).collect::<Vec<_>>(), [15..22, 25..30]);
        assert_eq!(space.take(10..100, 3), Some(22));
        assert!(space.used_in(0..100).eq(std::iter::once(10..30)));
        assert_eq!(space.take(0..100, 11), Some(30));
        assert_eq!(space.take(12..35, 1), None);
        assert_eq!(space.take_some(0..12, 50), Some(0..10));
        assert_eq!(space.take_some(0..45, 50), Some(41..45));
        assert_eq!(space.count_in(40..50), 5);
    }
}
