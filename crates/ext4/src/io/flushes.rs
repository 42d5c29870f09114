//! Which FLUSH has made which writes durable, on a device with a volatile cache (rule 18 of
//! `docs/ordering.md`).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The FLUSHes of a mount, numbered from 1 as they begin. A FLUSH is for all channels: when it
/// succeeds, every write is durable that had completed on any of them before it began. After one
/// has failed, or the device has lost its cache, none succeeds any more ([`Flushes::may_succeed`]).
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    begun: AtomicU64,
    /// The number of times that the device had lost its cache before the mount.
    losses_before: OnceLock<u32>,
    /// The highest number of a successful FLUSH.
    done: AtomicU64,
    /// The highest number of a failed FLUSH.
    failed: AtomicU64,
    /// The highest result of [`Flushes::note_write`]: the first FLUSH that makes all writes durable.
    flush_needed: AtomicU64,
}

/// The state of a completed write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// The write is durable.
    Durable,
    /// No FLUSH that began afterwards has made it durable yet.
    Open,
    /// A FLUSH that began afterwards has failed: the write may be lost.
    Unknown,
}

impl Flushes {
    /// Records a completed write. Returns the first FLUSH that makes it durable, which has not
    /// begun.
    pub(crate) fn note_write(&self) -> u64 {
        let number = self.begun.load(Ordering::SeqCst) + 1;
        self.flush_needed.fetch_max(number, Ordering::SeqCst);
        number
    }

    /// Returns the first FLUSH that makes all writes of the mount durable that have completed so
    /// far, or 0 if there was no write.
    pub(crate) fn needed_by_all(&self) -> u64 {
        self.flush_needed.load(Ordering::SeqCst)
    }

    /// Notes how often the device had lost its cache before the mount sent anything. The first call
    /// counts.
    pub(crate) fn note_losses_at_mount(&self, losses: u32) {
        let _ = self.losses_before.set(losses);
    }

    /// Returns whether a FLUSH that the device completed has made earlier writes durable, on a
    /// device that has lost its cache `losses` times. A channel's FLUSH fails once for each loss,
    /// and a channel made after the loss knows nothing of it, so a later success says nothing about
    /// writes before the loss.
    pub(crate) fn may_succeed(&self, losses: u32) -> bool {
        *self.losses_before.get_or_init(|| losses) == losses
            && self.failed.load(Ordering::SeqCst) == 0
    }

    /// Returns the number of a FLUSH that is about to be sent. It is SeqCst, as in `note_write`: if
    /// a thread does not see the number, its write completed before the FLUSH is sent.
    pub(crate) fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Records the end of FLUSH `number`.
    pub(crate) fn end(&self, number: u64, succeeded: bool) {
        let highest = if succeeded { &self.done } else { &self.failed };
        highest.fetch_max(number, Ordering::SeqCst);
    }

    /// Returns the state of a write for which FLUSH `number` is the first. After a failure a later
    /// success means nothing, because the device may have lost its cache in between. An earlier
    /// success means nothing either, because the order of the two is not recorded.
    pub(crate) fn durability(&self, number: u64) -> Durability {
        if self.failed.load(Ordering::SeqCst) >= number.max(1) {
            Durability::Unknown
        } else if number == 0 || self.done.load(Ordering::SeqCst) >= number {
            Durability::Durable
        } else {
            Durability::Open
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
