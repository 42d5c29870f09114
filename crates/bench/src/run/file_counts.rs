//! The counters of a file system while a job runs on its files.

use meantime_ext4::{Counters, FileSystem, JournalCounters};

/// Counters of a mount, or how much they grew.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct FileCounts {
    reads: Counters,
    journal: JournalCounters,
}

impl FileCounts {
    /// Returns the counters of `fs` now.
    pub(crate) fn of(fs: &FileSystem) -> Self {
        Self { reads: fs.counters(), journal: fs.journal_counters().unwrap_or_default() }
    }

    /// Adds how much the counters grew from `before` to `after`.
    pub(crate) fn add_growth(&mut self, before: &Self, after: &Self) {
        let grow = |sum: &mut u64, of: fn(&Self) -> u64| {
            *sum += of(after).saturating_sub(of(before));
        };
        let Self { reads, journal } = self;
        grow(&mut reads.hits, |one| one.reads.hits);
        grow(&mut reads.misses, |one| one.reads.misses);
        grow(&mut reads.waits, |one| one.reads.waits);
        grow(&mut reads.private, |one| one.reads.private);
        grow(&mut reads.direct, |one| one.reads.direct);
        grow(&mut reads.requests, |one| one.reads.requests);
        grow(&mut reads.requested_bytes, |one| one.reads.requested_bytes);
        grow(&mut reads.hidden_ns, |one| one.reads.hidden_ns);
        grow(&mut reads.deferrable_ns, |one| one.reads.deferrable_ns);
        grow(&mut journal.commits, |one| one.journal.commits);
        grow(&mut journal.log_blocks, |one| one.journal.log_blocks);
        grow(&mut journal.fast_commits, |one| one.journal.fast_commits);
        grow(&mut journal.fast_blocks, |one| one.journal.fast_blocks);
    }

    /// Returns the counters by name, but those that are 0. They count what came before the
    /// measurement in each turn, too.
    pub(crate) fn figures(&self) -> Vec<(&'static str, f64)> {
        let Self { reads, journal } = self;
        let all = [
            ("cache_hits", reads.hits),
            ("cache_misses", reads.misses),
            ("cache_waits", reads.waits),
            ("read_past_cache", reads.private + reads.direct),
            ("file_requests", reads.requests),
            ("file_requested_bytes", reads.requested_bytes),
            ("deferrable_ns", reads.deferrable_ns),
            ("hidden_ns", reads.hidden_ns),
            ("commits", journal.commits),
            ("log_blocks", journal.log_blocks),
            ("fast_commits", journal.fast_commits),
            ("fast_blocks", journal.fast_blocks),
        ];
        let counted = all.into_iter().filter(|(_, count)| *count > 0);
        counted.map(|(name, count)| (name, count as f64)).collect()
    }
}
