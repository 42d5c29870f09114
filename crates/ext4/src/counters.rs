//! What the reads of a mount have come to.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Independent counters, so that threads do not share lines.
const SHARDS: usize = 16;

/// A number of the calling thread: small, and no other living thread's as long as there are few.
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

/// What the reads of a mount have come to. Pages are of 4 KiB.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Pages that a read found in the cache.
    pub hits: u64,
    /// Pages that a read had the device fill, and that went into the cache.
    pub misses: u64,
    /// Pages that were read ahead into the cache.
    pub ahead: u64,
    /// Times a read waited for a page that another one, or read-ahead, had asked the device for.
    pub waits: u64,
    /// Pages that were read past the cache because such a wait took too long, or no page could be
    /// had.
    pub private: u64,
    /// Pages' worth of direct reads, begun ones included.
    pub direct: u64,
    /// Requests of direct reads that the device answered straight into the caller's memory, without
    /// a copy.
    pub lent: u64,
    /// Requests sent to the device for file data.
    pub requests: u64,
    /// Bytes asked of the device for file data.
    pub requested_bytes: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Work that could be deferred and was done while the device worked, in ns; and all of it. Only
    /// while times are taken: see
    /// [`FileSystem::time_deferrable`](super::FileSystem::time_deferrable).
    pub hidden_ns: u64,
    /// See [`hidden_ns`](Self::hidden_ns).
    pub deferrable_ns: u64,
}

/// What is counted.
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
    /// Requests ahead of their readers that are under way, and those who are about to send some.
    ahead: AtomicUsize,
}

impl Counts {
    /// `n` more of `count`.
    #[inline]
    pub(super) fn add(&self, count: Count, n: u64) {
        let shard = &self.shards[thread_number() % SHARDS];
        shard.0[count as usize].fetch_add(n, Ordering::Relaxed);
    }

    /// Something is read ahead from now on: before its pages are claimed, so that who finds them
    /// claimed finds this too.
    pub(super) fn begin_ahead(&self) {
        self.ahead.fetch_add(1, Ordering::AcqRel);
    }

    /// One less.
    pub(super) fn end_ahead(&self) {
        self.ahead.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether anything is being read ahead.
    pub(super) fn is_ahead(&self) -> bool {
        self.ahead.load(Ordering::Acquire) > 0
    }

    /// The sums.
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
