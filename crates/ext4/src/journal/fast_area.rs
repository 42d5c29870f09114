//! The area of fast commits: the blocks after the log.

use std::ops::Range;

/// The journal blocks that fast commits are written to.
#[derive(Debug, Clone)]
pub(super) struct FastArea {
    blocks: Range<u32>,
    /// The next block, for a fast commit on top of the transaction before `tid`.
    next: u32,
    tid: u32,
    /// Whether a fast commit failed, so that no more are written.
    pub(super) off: bool,
    /// Whether the area holds anything that would be older than the log's end once its transaction
    /// has committed.
    pub(super) used: bool,
}

impl FastArea {
    /// Returns the area in `all`, the blocks after the log.
    pub(super) fn new(all: Range<u32>) -> Option<Self> {
        // The area leaves out the first block, as Linux does (`j_fc_first`), and the last one,
        // after which Linux would look for more.
        let blocks = all.start.checked_add(1)?..all.end.checked_sub(1)?;
        (!blocks.is_empty()).then_some(Self {
            next: blocks.start,
            blocks,
            tid: 0,
            off: false,
            used: false,
        })
    }

    /// Returns its first block.
    pub(super) fn first(&self) -> u32 {
        self.blocks.start
    }

    /// Returns where the next fast commit on top of the transaction before `tid` goes, and whether
    /// it is the first.
    pub(super) fn at(&self, tid: u32) -> (u32, bool) {
        let first = self.tid != tid || self.next == self.blocks.start;
        (if first { self.blocks.start } else { self.next }, first)
    }

    /// Returns whether `count` blocks fit at `at`.
    pub(super) fn has_room(&self, at: u32, count: usize) -> bool {
        count <= (self.blocks.end - at) as usize
    }

    pub(super) fn take(&mut self, tid: u32, at: u32, count: usize) {
        (self.tid, self.next) = (tid, at + count as u32);
        self.used = true;
    }

    /// Stops fast commits after one failed, which may be on the device in whole or in part.
    pub(super) fn turn_off(&mut self) {
        (self.off, self.used) = (true, true);
    }

    /// Empties the area, after its transaction has committed.
    pub(super) fn restart(&mut self) {
        (self.next, self.used) = (self.blocks.start, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_area_begins_anew_with_each_transaction() {
        let mut area = FastArea::new(100..110).unwrap();
        assert_eq!(area.at(7), (101, true));
        area.take(7, 101, 3);
        assert_eq!(area.at(7), (104, false));
        assert!(area.has_room(104, 5) && !area.has_room(104, 6));
        assert_eq!(area.at(8), (101, true));
        assert!(area.used && !area.off);
        assert!(FastArea::new(100..102).is_none() && FastArea::new(5..5).is_none());
    }
}
