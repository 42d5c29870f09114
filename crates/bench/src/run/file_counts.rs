//! The counters of a file system while a job runs on its files.

use meantime_ext4::{Counters, FileSystem, JournalCounters};

/// A figure among the counters of a mount.
type Figure = fn(&Counters, &JournalCounters) -> u64;

/// The counters' names in results, and where a mount has them.
const FIGURES: [(&str, Figure); 12] = [
    ("cache_hits", |reads, _| reads.hits),
    ("cache_misses", |reads, _| reads.misses),
    ("cache_waits", |reads, _| reads.waits),
    ("read_past_cache", |reads, _| reads.private + reads.direct),
    ("file_requests", |reads, _| reads.requests),
    ("file_requested_bytes", |reads, _| reads.requested_bytes),
    ("deferrable_ns", |reads, _| reads.deferrable_ns),
    ("hidden_ns", |reads, _| reads.hidden_ns),
    ("commits", |_, journal| journal.commits),
    ("log_blocks", |_, journal| journal.log_blocks),
    ("fast_commits", |_, journal| journal.fast_commits),
    ("fast_blocks", |_, journal| journal.fast_blocks),
];

/// Counters of a mount, or how much they grew, in the order of [`FIGURES`].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct FileCounts([u64; FIGURES.len()]);

impl FileCounts {
    /// Returns the counters of `fs` now.
    pub(crate) fn of(fs: &FileSystem) -> Self {
        let (reads, journal) = (fs.counters(), fs.journal_counters().unwrap_or_default());
        Self(FIGURES.map(|(_, of)| of(&reads, &journal)))
    }

    /// Adds how much the counters grew from `before` to `after`.
    pub(crate) fn add_growth(&mut self, before: &Self, after: &Self) {
        for ((sum, before), after) in self.0.iter_mut().zip(before.0).zip(after.0) {
            *sum += after.saturating_sub(before);
        }
    }

    /// Returns the counters with their names in results.
    pub(crate) fn figures(&self) -> impl Iterator<Item = (&'static str, u64)> {
        FIGURES.into_iter().zip(self.0).map(|((name, _), count)| (name, count))
    }
}
