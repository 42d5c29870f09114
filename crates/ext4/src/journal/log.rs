//! The circular log of the journal: where the next transaction goes.
//!
//! With fast commits the log does not wrap: e2fsck 1.47.0 and older versions of Linux look for what
//! follows its last block in the blocks of fast commits, and find the log's end there (`wrap` in
//! the `recovery.c` of each). The log then restarts at its first block when it is empty (rule 20 of
//! `docs/ordering.md`).

use std::ops::Range;

use super::Sequence;

/// Blocks of the journal that are contiguous in the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogRun {
    /// The first, as a block of the journal.
    pub(super) first: u32,
    /// The number of blocks.
    pub(super) blocks: u32,
    /// The place of the first, as a block of the file system.
    pub(super) place: u64,
}

/// A transaction in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Logged {
    pub(super) sequence: Sequence,
    /// Its number in the journal (32 bits).
    pub(super) tid: u32,
    /// Its first block in the log, and its number of blocks.
    pub(super) start: u32,
    pub(super) blocks: u32,
}

/// The log.
#[derive(Debug)]
pub(super) struct Log {
    runs: Vec<LogRun>,
    all: Range<u32>,
    /// The block at which the next transaction begins.
    head: u32,
    /// Blocks in use before the head.
    used: u32,
    /// No transaction wraps around the end.
    straight: bool,
}

impl Log {
    /// Returns an empty log that starts at the first of the blocks `all` of a journal, which lies
    /// in `runs` (all of it, in order).
    pub(super) fn new(runs: Vec<LogRun>, all: Range<u32>) -> Self {
        Self { runs, head: all.start, all, used: 0, straight: false }
    }

    /// Returns the same log; no transaction wraps around its end if `straight`.
    pub(super) fn straight(self, straight: bool) -> Self {
        Self { straight, ..self }
    }

    /// Returns the number of blocks of the log.
    pub(super) fn len(&self) -> u32 {
        self.all.end - self.all.start
    }

    /// Returns the most blocks that a transaction may have now. (One block is never used: a full
    /// log could not be told from an empty one.)
    pub(super) fn free(&self) -> u32 {
        let unused = (self.len() - 1).saturating_sub(self.used);
        if !self.straight {
            unused
        } else if self.used > 0 && self.head == self.all.start {
            // Full to its last block.
            0
        } else {
            unused.min(self.all.end - self.head)
        }
    }

    /// Returns whether the log is more than half full: less than half of it is free.
    pub(super) fn is_half_full(&self) -> bool {
        self.len() - 1 - self.free() > self.len() / 2
    }

    /// Returns the block at which the log begins when it is empty.
    pub(super) fn start_if_empty(&self) -> u32 {
        if self.straight { self.all.start } else { self.head }
    }

    /// Returns the next block to be written.
    pub(super) fn head(&self) -> u32 {
        self.head
    }

    /// Returns the block `count` blocks behind `at`, which is in the log.
    pub(super) fn behind(&self, at: u32, count: u32) -> u32 {
        let offset =
            (u64::from(at - self.all.start) + u64::from(count)) % u64::from(self.len().max(1));
        self.all.start + offset as u32
    }

    /// Moves the head of an empty log on by one block, if `blocks` blocks follow before the end.
    /// Returns false if they do not.
    pub(super) fn leave_out_head(&mut self, blocks: usize) -> bool {
        let room = self.all.end - self.head - 1;
        let fits = self.used == 0 && room as usize >= blocks;
        self.head += u32::from(fits);
        fits
    }

    /// Marks `blocks` from the head on as used.
    pub(super) fn take(&mut self, blocks: u32) {
        self.head = self.behind(self.head, blocks);
        self.used += blocks;
    }

    /// Marks the oldest `blocks` as free. An empty log [restarts](Self::start_if_empty).
    pub(super) fn give_back(&mut self, blocks: u32) {
        self.used = self.used.saturating_sub(blocks);
        if self.used == 0 {
            self.head = self.start_if_empty();
        }
    }

    /// Returns the place of block `index` of the journal in the file system, and how many blocks
    /// from there on are contiguous.
    pub(super) fn place(&self, index: u32) -> Option<(u64, u32)> {
        let after = self.runs.partition_point(|run| run.first <= index);
        let run = self.runs.get(after.checked_sub(1)?)?;
        let inside = index - run.first;
        let left = run.blocks.checked_sub(inside).filter(|left| *left > 0)?;
        let to_end = if index < self.all.end { self.all.end - index } else { left };
        Some((run.place + u64::from(inside), left.min(to_end)))
    }
}

/// The parts in which a transaction is written: for each part, the number of revoke blocks that it
/// begins with, and of copies that follow, after their descriptor.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) revoke_blocks: usize,
    pub(super) copies: usize,
    /// The most blocks of a part, at least two, and the most copies that a descriptor can name.
    pub(super) buffer_blocks: usize,
    pub(super) tags_most: usize,
}

impl Iterator for Plan {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<(usize, usize)> {
        let revokes = self.revoke_blocks.min(self.buffer_blocks);
        let room = (self.buffer_blocks - revokes).saturating_sub(1);
        let copies = self.copies.min(room).min(self.tags_most);
        self.revoke_blocks -= revokes;
        self.copies -= copies;
        (revokes + copies > 0).then_some((revokes, copies))
    }
}

impl Plan {
    /// Returns how many log blocks the transaction takes, the commit block included.
    pub(super) fn log_blocks(&self) -> usize {
        let each = |(revokes, copies): (usize, usize)| revokes + copies + usize::from(copies > 0);
        self.clone().map(each).sum::<usize>() + 1
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn goes_round() {
        let runs = vec![
            LogRun { first: 0, blocks: 4, place: 100 },
            LogRun { first: 4, blocks: 6, place: 50 },
            LogRun { first: 10, blocks: 10, place: 200 },
        ];
        let mut log = Log::new(runs, 1..16);
        assert_eq!((log.len(), log.free(), log.head()), (15, 14, 1));
        assert_eq!(log.place(1), Some((101, 3)));
        assert_eq!(log.place(4), Some((50, 6)));
        assert_eq!((log.place(12), log.place(20)), (Some((202, 4)), None));
        log.take(13);
        assert_eq!((log.free(), log.head(), log.is_half_full()), (1, 14, true));
        log.give_back(10);
        log.take(5);
        assert_eq!((log.free(), log.head(), log.is_half_full()), (6, 4, true));
    }

    #[test]
    fn a_transaction_apart_is_behind_the_head() {
        let runs = vec![LogRun { first: 0, blocks: 20, place: 100 }];
        let mut log = Log::new(runs, 1..16).straight(true);
        assert!(!log.leave_out_head(15) && log.head() == 1);
        assert!(log.leave_out_head(14) && log.head() == 2);
        log.take(10);
        assert!(!log.leave_out_head(1) && log.head() == 12);
        log.give_back(10);
        assert!(log.leave_out_head(1) && log.head() == 2);
    }

    #[test]
    fn a_straight_one_does_not_go_round() {
        let runs = vec![LogRun { first: 0, blocks: 20, place: 100 }];
        let mut log = Log::new(runs, 1..16).straight(true);
        assert_eq!((log.free(), log.is_half_full()), (14, false));
        log.take(6);
        log.take(4);
        log.give_back(6);
        // The free blocks before the oldest transaction cannot be used yet.
        assert_eq!((log.free(), log.head(), log.is_half_full()), (5, 11, true));
        log.take(5);
        assert_eq!((log.free(), log.is_half_full()), (0, true));
        log.give_back(4);
        assert_eq!((log.free(), log.start_if_empty()), (0, 1));
        log.give_back(5);
        assert_eq!((log.free(), log.head(), log.is_half_full()), (14, 1, false));
        // The used blocks are one run at all times, wherever transactions end.
        for blocks in 1..15 {
            let mut used = Vec::new();
            while log.free() >= blocks {
                used.push(log.head());
                log.take(blocks);
            }
            assert!(
                used.is_sorted() && used.last().is_some_and(|last| last + blocks <= 16),
                "{used:?}"
            );
            used.iter().for_each(|_| log.give_back(blocks));
        }
    }

    #[test]
    fn every_block_is_in_the_plan_once() {
        for (revoke_blocks, copies, buffer_blocks, tags_most) in [
            (0, 0, 4, 9),
            (1, 0, 4, 9),
            (0, 1, 2, 9),
            (3, 7, 2, 9),
            (2, 100, 64, 10),
            (5, 1, 5, 3),
            (4, 3, 5, 3),
        ] {
            let plan = Plan { revoke_blocks, copies, buffer_blocks, tags_most };
            let all: Vec<_> = plan.clone().collect();
            assert_eq!(all.iter().map(|(revokes, _)| revokes).sum::<usize>(), revoke_blocks);
            assert_eq!(all.iter().map(|(_, copies)| copies).sum::<usize>(), copies);
            let size =
                |(revokes, copies): &(usize, usize)| revokes + copies + usize::from(*copies > 0);
            assert!(all.iter().all(|part| size(part) <= buffer_blocks && part.1 <= tags_most));
            assert_eq!(plan.log_blocks(), all.iter().map(size).sum::<usize>() + 1);
        }
    }
}
