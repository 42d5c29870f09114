//! Which FLUSH has made which writes durable, on a device with a volatile cache.

use std::sync::atomic::{AtomicU64, Ordering};

/// The FLUSHes of a mount, numbered from 1 as they begin. Each is for all channels: what had
/// completed on any of them before it began is durable once it has succeeded, whoever sent it; if
/// his channel was there already, for one that was made later was not told of an earlier loss of
/// the cache.
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    begun: AtomicU64,
    /// What `begun` was when the last channel was made, which counts as one.
    newest_channel: AtomicU64,
    /// The highest number of those that succeeded, and of those that failed.
    done: AtomicU64,
    failed: AtomicU64,
    /// The highest of what [`Flushes::landed`] has returned.
    landed: AtomicU64,
}

/// What has become of a write that landed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// It is durable.
    Durable,
    /// No FLUSH that began afterwards is known to have made it durable.
    Open,
    /// One that began afterwards has failed: the write may be lost.
    Unknown,
}

impl Flushes {
    /// A write has completed. The first FLUSH that makes it durable: it has not begun yet.
    pub(crate) fn landed(&self) -> u64 {
        let number = self.begun.load(Ordering::SeqCst) + 1;
        self.landed.fetch_max(number, Ordering::SeqCst);
        number
    }

    /// The first FLUSH that makes all of the mount's writes durable that have landed so far; 0:
    /// there was none.
    pub(crate) fn all_landed(&self) -> u64 {
        self.landed.load(Ordering::SeqCst)
    }

    /// A channel has been made, and has sent nothing: what landed before is not made durable by any
    /// FLUSH that it may send.
    pub(crate) fn channel_made(&self) {
        let number = self.begin();
        self.newest_channel.fetch_max(number, Ordering::SeqCst);
    }

    /// A FLUSH is about to be sent: its number. (SeqCst, as for whom a write completes: whoever
    /// does not see the number has seen his write complete before it is sent.)
    pub(crate) fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// That FLUSH has ended.
    pub(crate) fn end(&self, number: u64, succeeded: bool) {
        let highest = if succeeded { &self.done } else { &self.failed };
        highest.fetch_max(number, Ordering::SeqCst);
    }

    /// What has become of a write that FLUSH `number` is the first for. After a failure a later
    /// success says nothing: the device may have lost its cache in between. (Nor does an earlier
    /// one: which of them was first nobody remembers.)
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
        let early = flushes.landed();
        let first = flushes.begin();
        // It completed while a FLUSH was under way.
        let late = flushes.landed();
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
        let early = flushes.landed();
        flushes.channel_made();
        let late = flushes.landed();
        flushes.end(flushes.begin(), true);
        assert_eq!(
            (flushes.durability(early), flushes.durability(late)),
            (Durability::Open, Durability::Durable)
        );
    }

    #[test]
    fn what_a_failed_one_was_for_is_not_known_any_more() {
        let flushes = Flushes::default();
        let lost = flushes.landed();
        let (failing, other) = (flushes.begin(), flushes.begin());
        flushes.end(other, true);
        flushes.end(failing, false);
        assert_eq!(flushes.durability(lost), Durability::Unknown);
        let next = flushes.landed();
        flushes.end(flushes.begin(), true);
        assert_eq!(
            (flushes.durability(lost), flushes.durability(next)),
            (Durability::Unknown, Durability::Durable)
        );
    }
}
