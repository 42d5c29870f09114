//! The circular log of the journal: where the next transaction goes.
//!
//! With fast commits the log does not wrap: e2fsck 1.47.0 and older versions of Linux look for what
//! follows its last block in the blocks of fast commits, and find the log's end there (`wrap` in
//! the `recovery.c` of each). The log then restarts at its first block when it is empty (rule 20 of
//! `docs/ordering.md`).

use std::ops::Range;

use super::sequence::Sequence;

/// Blocks of the journal that are contiguous in the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogRun {
    /// The first block, as a block of the journal.
    pub(super) first: u32,
    /// The number of blocks.
    pub(super) blocks: u32,
    /// The place of the first block, as a block of the file system.
    pub(super) place: u64,
}

/// A transaction in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Logged {
    pub(super) sequence: Sequence,
    /// Its number in the journal (32 bits).
    pub(super) tid: u32,
    /// Its first block in the log.
    pub(super) start: u32,
    /// Its number of blocks.
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
    /// Whether no transaction wraps around the end.
    never_wraps: bool,
}

impl Log {
    /// Returns an empty log that starts at the first of the blocks `all` of a journal. The whole
    /// journal lies in `runs`, in order.
    pub(super) fn new(runs: Vec<LogRun>, all: Range<u32>) -> Self {
        Self { runs, head: all.start, all, used: 0, never_wraps: false }
    }

    /// Returns this log, in which no transaction wraps around the end if `never_wraps`.
    pub(super) fn never_wraps(self, never_wraps: bool) -> Self {
        Self { never_wraps, ..self }
    }

    /// Returns the number of blocks of the log.
    pub(super) fn len(&self) -> u32 {
        self.all.end - self.all.start
    }

    /// Returns the maximum number of blocks that a transaction may have now. One block is never
    /// used, because a full log could not be told from an empty one.
    pub(super) fn free(&self) -> u32 {
        let unused = (self.len() - 1).saturating_sub(self.used);
        if !self.never_wraps {
            unused
        } else if self.used > 0 && self.head == self.all.start {
            // The log is full to its last block.
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
        if self.never_wraps { self.all.start } else { self.head }
    }

    /// Returns the next block to be written.
    pub(super) fn head(&self) -> u32 {
        self.head
    }

    /// Returns the block `count` blocks after `at`, which is in the log.
    pub(super) fn after(&self, at: u32, count: u32) -> u32 {
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
        self.head = self.after(self.head, blocks);
        self.used += blocks;
    }

    /// Marks the oldest `blocks` as free. An empty log [restarts](Self::start_if_empty).
    pub(super) fn release(&mut self, blocks: u32) {
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

/// A transaction's layout in the log: the parts in which it is written. A part begins with some
/// revoke blocks; a descriptor follows, and then the copies that it names. Each entry has the
/// numbers of revoke blocks and of copies.
#[derive(Debug, Clone)]
pub(super) struct LogLayout {
    pub(super) revoke_blocks: usize,
    pub(super) copies: usize,
    /// The maximum number of blocks of a part, at least two, and the maximum number of copies that
    /// a descriptor can name.
    pub(super) buffer_blocks: usize,
    pub(super) tags_most: usize,
}

impl Iterator for LogLayout {
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

impl LogLayout {
    /// Returns how many log blocks the transaction takes, the commit block included.
    pub(super) fn log_blocks(&self) -> usize {
        let each = |(revokes, copies): (usize, usize)| revokes + copies + usize::from(copies > 0);
        self.clone().map(each).sum::<usize>() + 1
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
