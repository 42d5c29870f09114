//! Threads that make things durable at the same time.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::counters::thread_number;

/// After so many turns of one thread alone nobody else is expected.
const ALONE: u32 = 16;

/// After so many commits one waiter less is believed.
const SLOWNESS: u32 = 16;

/// After so many looks a thread lets others have its CPU, though none are known of.
const LOOKS_ALONE: u32 = 32;

/// Whether several threads make things durable these days. Then each lets the others have its CPU,
/// if they want it, as long as it waits: what they do until they have to wait too is done in its
/// device's time, and made durable together. A thread that is alone does not ask for that: a system
/// call is a part of a microsecond.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(crate) struct GroupCommit {
    /// The number of the thread that came last.
    last: AtomicUsize,
    /// How often it may come again before it counts as alone.
    left: AtomicU32,
    /// How many have come to wait for another thread's commit since the last one; and at most how
    /// many did for one of the last, in parts of [`SLOWNESS`].
    waiting: AtomicU32,
    waited: AtomicU32,
}

impl GroupCommit {
    /// The calling thread makes something durable.
    pub(crate) fn arrive(&self) {
        let number = thread_number();
        let left = self.left.load(Ordering::Relaxed);
        if self.last.load(Ordering::Relaxed) != number {
            // Whoever is the first is none.
            let others = self.last.swap(number, Ordering::Relaxed) != 0;
            self.left.store(if others { ALONE } else { 0 }, Ordering::Relaxed);
        } else if left > 0 {
            self.left.store(left - 1, Ordering::Relaxed);
        }
    }

    /// Whether there are several.
    pub(crate) fn is_there(&self) -> bool {
        self.left.load(Ordering::Relaxed) > 0
    }

    /// The calling thread waits for another one's commit.
    pub(crate) fn wait(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// A commit has ended, which nobody knows yet.
    pub(crate) fn committed(&self) {
        let waiting = self.waiting.load(Ordering::Relaxed);
        if waiting > 0 {
            self.waiting.store(0, Ordering::Relaxed);
        }
        let waited = self.waited.load(Ordering::Relaxed);
        // Fewer are believed slowly: who finds few and does not let the others have the CPU finds
        // few again.
        let now = waiting.saturating_mul(SLOWNESS).max(waited.saturating_sub(1));
        if now != waited {
            self.waited.store(now, Ordering::Relaxed);
        }
    }

    /// Whether there are any who have something to do while one waits for the device: as many as
    /// waited for the last commit wait for this one's, else.
    pub(crate) fn is_busy(&self) -> bool {
        let waited = self.waited.load(Ordering::Relaxed).max(1);
        self.is_there() && self.waiting.load(Ordering::Relaxed).saturating_mul(SLOWNESS) < waited
    }

    /// Look `look` of somebody who waits for another thread, and has found nothing.
    pub(crate) fn pause(&self, look: u32) {
        // Whom he waits for may want this CPU.
        if self.is_there() || look.is_multiple_of(LOOKS_ALONE) {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_busy_when_all_wait_who_waited_before() {
        let group = GroupCommit::default();
        group.arrive();
        assert!(!group.is_busy());
        std::thread::scope(|scope| scope.spawn(|| group.arrive()).join().unwrap());
        assert!(group.is_busy());
        group.wait();
        group.wait();
        assert!(!group.is_busy());
        group.committed();
        assert!(group.is_busy());
        group.wait();
        for _ in 0..SLOWNESS {
            assert!(group.is_busy());
            group.committed();
            group.wait();
        }
        assert!(!group.is_busy());
    }

    #[test]
    fn two_are_a_crowd_until_one_is_alone_for_long() {
        let group = GroupCommit::default();
        for _ in 0..3 {
            group.arrive();
            assert!(!group.is_there());
        }
        std::thread::scope(|scope| scope.spawn(|| group.arrive()).join().unwrap());
        assert!(group.is_there());
        group.arrive();
        for _ in 0..ALONE {
            assert!(group.is_there());
            group.arrive();
        }
        assert!(!group.is_there());
    }
}
