//! Blocks marked by Write Uncorrectable. Reads of them fail until they are written again.

use std::collections::BTreeMap;

/// Byte ranges of the medium that neither overlap nor touch, as the first byte and the one after
/// the last.
#[derive(Default)]
pub(crate) struct Uncorrectable {
    ranges: BTreeMap<u64, u64>,
}

impl Uncorrectable {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the first marked byte of the `len` bytes at `offset`.
    pub(crate) fn first_in(&self, offset: u64, len: u64) -> Option<u64> {
        let before = self.ranges.range(..=offset).next_back();
        if before.is_some_and(|(_, &end)| end > offset) {
            return Some(offset);
        }
        let next = self.ranges.range(offset..).next();
        next.map(|(&start, _)| start).filter(|&start| start < offset + len)
    }

    pub(crate) fn mark(&mut self, offset: u64, len: u64) {
        let (mut start, mut end) = (offset, offset + len);
        // This merges ranges that overlap or touch.
        while let Some((&s, &e)) =
            self.ranges.range(..=end).next_back().filter(|&(_, &e)| e >= start)
        {
            (start, end) = (start.min(s), end.max(e));
            self.ranges.remove(&s);
        }
        self.ranges.insert(start, end);
    }

    /// Makes the range readable again. Returns whether any byte was marked.
    pub(crate) fn clear(&mut self, offset: u64, len: u64) -> bool {
        let end = offset + len;
        let mut any = false;
        while let Some((&s, &e)) =
            self.ranges.range(..end).next_back().filter(|&(_, &e)| e > offset)
        {
            any = true;
            self.ranges.remove(&s);
            if s < offset {
                self.ranges.insert(s, offset);
            }
            if e > end {
                self.ranges.insert(end, e);
            }
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn as_a_bitmap_would(steps in prop::collection::vec((any::<bool>(), 0..60u64, 1..20u64), 1..60)) {
            let mut marks = Uncorrectable::default();
            let mut bitmap = [false; 80];
            for (mark, offset, len) in steps {
                let range = offset as usize..(offset + len) as usize;
                if mark {
                    marks.mark(offset, len);
                } else {
                    let any = bitmap[range.clone()].iter().any(|&b| b);
                    prop_assert_eq!(marks.clear(offset, len), any);
                }
                bitmap[range].fill(mark);
                prop_assert_eq!(marks.is_empty(), !bitmap.iter().any(|&b| b));
                for (offset, len) in [(0, 80), (offset, len), (offset / 2, len + 3)] {
                    let first = (offset..offset + len).find(|&at| bitmap[at as usize]);
                    prop_assert_eq!(marks.first_in(offset, len), first);
                }
            }
        }
    }
}
