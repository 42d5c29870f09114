//! The log with its lead, and the state of the threads that wait for it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::committer::Committer;
use super::counters::Counts;
use super::sequence::Sequence;
use meantime_hw::futex::Futex;
use meantime_process::lock::{Mutex, Rank};

/// The log, and the state of the threads that wait for it.
pub(super) struct Commits {
    /// The lock that the leader holds from the beginning of a commit to its end (rule 4).
    pub(super) committer: Mutex<Committer>,
    /// The last transaction up to which all are durable.
    durable: AtomicU64,
    /// The number of the last change up to which all are durable by fast commits.
    pub(super) fast: AtomicU64,
    pub(super) half_full: AtomicBool,
    pub(super) counts: Counts,
    /// The number of threads that sleep on `progress`.
    pub(super) sleepers: AtomicU32,
    /// The number of leads that have ended.
    pub(super) ended: AtomicU64,
    /// Advances when a lead ends, if a thread sleeps.
    pub(super) progress: Futex,
}

impl Commits {
    pub(super) fn new(committer: Committer) -> Self {
        Self {
            committer: Mutex::new(Rank::Committer, committer),
            durable: AtomicU64::new(0),
            fast: AtomicU64::new(0),
            half_full: AtomicBool::new(false),
            counts: Counts::default(),
            sleepers: AtomicU32::new(0),
            ended: AtomicU64::new(0),
            progress: Futex::default(),
        }
    }

    /// Returns the transaction up to which everything is durable.
    #[inline]
    pub(super) fn durable(&self) -> Sequence {
        Sequence(self.durable.load(Ordering::Acquire))
    }

    /// Returns whether the log was more than half full when the last lead ended.
    pub(super) fn is_half_full(&self) -> bool {
        self.half_full.load(Ordering::Relaxed)
    }

    /// Returns whether a leader has panicked. If so, the state of the log and of its transaction is
    /// unknown.
    pub(super) fn is_poisoned(&self) -> bool {
        self.committer.is_poisoned()
    }

    /// Records that everything up to transaction `sequence` is durable.
    pub(super) fn committed(&self, sequence: Sequence) {
        // Release: a thread that sees the number also sees the released blocks.
        self.durable.store(sequence.0, Ordering::Release);
    }
}
