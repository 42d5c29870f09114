//! Counters of a journal.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a journal has written since the mount.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalCounters {
    /// Transactions committed with a commit block.
    pub commits: u64,
    /// Log blocks of these transactions, commit blocks included.
    pub log_blocks: u64,
    /// Fast commits.
    pub fast_commits: u64,
    /// Blocks of these fast commits.
    pub fast_blocks: u64,
    /// Checkpoints: how often committed blocks were written in place and the log's tail moved.
    pub checkpoints: u64,
}

/// The live counters; the leader updates them.
#[derive(Debug, Default)]
pub(super) struct Counts {
    commits: AtomicU64,
    log_blocks: AtomicU64,
    fast_commits: AtomicU64,
    fast_blocks: AtomicU64,
    checkpoints: AtomicU64,
}

impl Counts {
    /// Counts a transaction of `blocks` log blocks.
    pub(super) fn commit(&self, blocks: u32) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.log_blocks.fetch_add(u64::from(blocks), Ordering::Relaxed);
    }

    /// Counts a fast commit of `blocks` blocks.
    pub(super) fn fast_commit(&self, blocks: u32) {
        self.fast_commits.fetch_add(1, Ordering::Relaxed);
        self.fast_blocks.fetch_add(u64::from(blocks), Ordering::Relaxed);
    }

    /// Counts a checkpoint.
    pub(super) fn checkpoint(&self) {
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the current values.
    pub(super) fn read(&self) -> JournalCounters {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        JournalCounters {
            commits: get(&self.commits),
            log_blocks: get(&self.log_blocks),
            fast_commits: get(&self.fast_commits),
            fast_blocks: get(&self.fast_blocks),
            checkpoints: get(&self.checkpoints),
        }
    }
}
