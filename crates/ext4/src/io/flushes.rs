//! Which FLUSH has made which writes durable, on a device with a volatile cache (rule 18 of
//! `docs/ordering.md`).

use std::sync::atomic::{AtomicU64, Ordering};

/// The FLUSHes of a mount, numbered from 1 as they begin. A FLUSH is for all channels: when it
/// succeeds, every write is durable that had completed on any of them before it began. Writes older
/// than the FLUSH's channel do not count: that channel was not told of an earlier loss of the
/// cache.
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    begun: AtomicU64,
    /// The value of `begun` when the last channel was made, which counts as a FLUSH.
    newest_channel: AtomicU64,
    /// The highest number of a successful FLUSH, and of a failed one.
    done: AtomicU64,
    failed: AtomicU64,
    /// The highest result of [`Flushes::note_write`].
    landed: AtomicU64,
}

/// The state of a completed write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// It is durable.
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
        self.landed.fetch_max(number, Ordering::SeqCst);
        number
    }

    /// Returns the first FLUSH that makes all writes of the mount durable that have completed so
    /// far; 0: there was none.
    pub(crate) fn all_landed(&self) -> u64 {
        self.landed.load(Ordering::SeqCst)
    }

    /// Records a new channel, which has sent nothing: no FLUSH of it makes earlier writes durable.
    pub(crate) fn channel_made(&self) {
        let number = self.begin();
        self.newest_channel.fetch_max(number, Ordering::SeqCst);
    }

    /// Returns the number of a FLUSH that is about to be sent. (SeqCst, as in `note_write`: if a
    /// thread does not see the number, its write completed before the FLUSH is sent.)
    pub(crate) fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Records the end of FLUSH `number`.
    pub(crate) fn end(&self, number: u64, succeeded: bool) {
        let highest = if succeeded { &self.done } else { &self.failed };
        highest.fetch_max(number, Ordering::SeqCst);
    }

    /// Returns the state of a write for which FLUSH `number` is the first. After a failure a later
    /// success means nothing: the device may have lost its cache in between. (Neither does an
    /// earlier one: their order is not recorded.)
    pub(crate) fn durability(&self, number: u64) -> Durability {
        if self.failed.load(Ordering::SeqCst) >= number.max(1) {
            Durability::Unknown
        } else if number == 0
            || self.done.load(Ordering::SeqCst) >= number
                && self.newest_channel.load(Ordering::SeqCst) < number
        {
            Durability::Durable
        } else {
            Durability::Open
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn only_what_began_afterwards_counts() {
        let flushes = Flushes::default();
        assert_eq!((flushes.all_landed(), flushes.durability(0)), (0, Durability::Durable));
        let early = flushes.note_write();
        let first = flushes.begin();
        // Completed while a FLUSH was in flight.
        let late = flushes.note_write();
        assert_eq!(flushes.durability(early), Durability::Open);
        flushes.end(first, true);
        assert_eq!(
            (flushes.durability(early), flushes.durability(late)),
            (Durability::Durable, Durability::Open)
        );
        let second = flushes.begin();
        flushes.end(second, true);
        assert_eq!((flushes.durability(late), flushes.all_landed()), (Durability::Durable, late));
    }

    #[test]
    fn a_channel_made_later_says_nothing_of_what_was_before() {
        let flushes = Flushes::default();
        let early = flushes.note_write();
        flushes.channel_made();
        let late = flushes.note_write();
        flushes.end(flushes.begin(), true);
        assert_eq!(
            (flushes.durability(early), flushes.durability(late)),
            (Durability::Open, Durability::Durable)
        );
    }

    #[test]
    fn what_a_failed_one_was_for_is_not_known_any_more() {
        let flushes = Flushes::default();
        let lost = flushes.note_write();
        let (failing, other) = (flushes.begin(), flushes.begin());
        flushes.end(other, true);
        flushes.end(failing, false);
        assert_eq!(flushes.durability(lost), Durability::Unknown);
        let next = flushes.note_write();
        flushes.end(flushes.begin(), true);
        assert_eq!(
            (flushes.durability(lost), flushes.durability(next)),
            (Durability::Unknown, Durability::Durable)
        );
    }
}
