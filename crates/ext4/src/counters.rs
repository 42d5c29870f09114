//! Counters of a mount's reads.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Independent counters, so that threads do not share cache lines.
const SHARDS: usize = 16;

/// Returns the calling thread's number: unique in the process, counted from 1.
#[inline]
pub(crate) fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(0) };
    }
    NUMBER.with(|number| match number.get() {
        0 => {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
            number.get()
        }
        known => known,
    })
}

/// Counters of a mount's reads. Pages are 4 KiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Pages found in the cache.
    pub hits: u64,
    /// Pages read from the device into the cache.
    pub misses: u64,
    /// Pages read ahead into the cache.
    pub ahead: u64,
    /// Waits for a page that another read, or read-ahead, had requested.
    pub waits: u64,
    /// Pages read past the cache because such a wait took too long or no page was free.
    pub private: u64,
    /// Direct reads, in pages, partial ones included.
    pub direct: u64,
    /// Requests of direct reads that the device completed in the caller's memory, without a copy.
    pub lent: u64,
    /// Requests sent to the device for file data.
    pub requests: u64,
    /// Bytes asked of the device for file data.
    pub requested_bytes: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Deferrable work done while the device worked, in ns. Counted only while timing is on: see
    /// [`FileSystem::time_deferrable`](super::FileSystem::time_deferrable).
    pub hidden_ns: u64,
    /// All deferrable work, in ns. Counted only while timing is on.
    pub deferrable_ns: u64,
}

/// The kinds of counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Count {
    Hits,
    Misses,
    Ahead,
    Waits,
    Private,
    Direct,
    Lent,
    Requests,
    RequestedBytes,
    Failed,
    HiddenNs,
    DeferrableNs,
}

const KINDS: usize = Count::DeferrableNs as usize + 1;

#[repr(align(128))]
#[derive(Default)]
struct Shard([AtomicU64; KINDS]);

/// The counters of a mount.
#[derive(Default)]
pub(super) struct Counts {
    shards: [Shard; SHARDS],
    /// Read-ahead requests in flight, and threads about to send one.
    ahead: AtomicUsize,
}

impl Counts {
    /// Adds `n` to `count`.
    #[inline]
    pub(super) fn add(&self, count: Count, n: u64) {
        let shard = &self.shards[thread_number() % SHARDS];
        shard.0[count as usize].fetch_add(n, Ordering::Relaxed);
    }

    /// Announces read-ahead. Called before its pages are claimed, so a thread that finds them
    /// claimed also finds [`is_ahead`](Self::is_ahead).
    pub(super) fn begin_ahead(&self) {
        self.ahead.fetch_add(1, Ordering::AcqRel);
    }

    /// Ends one read-ahead.
    pub(super) fn end_ahead(&self) {
        self.ahead.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether any read-ahead is under way.
    pub(super) fn is_ahead(&self) -> bool {
        self.ahead.load(Ordering::Acquire) > 0
    }

    /// Returns the sums over all shards.
    pub(super) fn read(&self) -> Counters {
        let sum = |count: Count| {
            self.shards.iter().fold(0u64, |sum, shard| {
                sum.wrapping_add(shard.0[count as usize].load(Ordering::Relaxed))
            })
        };
        Counters {
            hits: sum(Count::Hits),
            misses: sum(Count::Misses),
            ahead: sum(Count::Ahead),
            waits: sum(Count::Waits),
            private: sum(Count::Private),
            direct: sum(Count::Direct),
            lent: sum(Count::Lent),
            requests: sum(Count::Requests),
            requested_bytes: sum(Count::RequestedBytes),
            failed: sum(Count::Failed),
            hidden_ns: sum(Count::HiddenNs),
            deferrable_ns: sum(Count::DeferrableNs),
        }
    }
}
