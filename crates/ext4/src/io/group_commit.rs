//! Group commit: tracks whether fsync callers overlap.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::counters::thread_number;

/// After this many calls in a row by one thread, it counts as alone.
const ALONE: u32 = 16;

/// Commits after which the expected number of waiters falls by one.
const SLOWNESS: u32 = 16;

/// A waiting thread yields once in this many polls, even if it counts as alone.
const LOOKS_ALONE: u32 = 32;

/// Tracks whether fsync callers currently overlap. If they do, each yields the CPU while it waits:
/// the other callers work, until they have to wait, while the device works, and their changes are
/// committed together. A thread that is alone does not yield, because the system call takes a
/// fraction of a microsecond.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(crate) struct GroupCommit {
    /// The number of the thread that called last.
    last: AtomicUsize,
    /// How many more calls it may make before it counts as alone.
    left: AtomicU32,
    /// Threads that have begun to wait for another thread's commit since the last one, and a slowly
    /// falling maximum of that number over the last commits, in units of 1/[`SLOWNESS`].
    waiting: AtomicU32,
    waited: AtomicU32,
}

impl GroupCommit {
    /// Records that the calling thread makes something durable.
    pub(crate) fn arrive(&self) {
        let number = thread_number();
        let left = self.left.load(Ordering::Relaxed);
        if self.last.load(Ordering::Relaxed) != number {
            // The first thread has no predecessor.
            let others = self.last.swap(number, Ordering::Relaxed) != 0;
            self.left.store(if others { ALONE } else { 0 }, Ordering::Relaxed);
        } else if left > 0 {
            self.left.store(left - 1, Ordering::Relaxed);
        }
    }

    /// Returns whether callers overlap.
    pub(crate) fn callers_overlap(&self) -> bool {
        self.left.load(Ordering::Relaxed) > 0
    }

    /// Records that the calling thread waits for another thread's commit.
    pub(crate) fn note_waiter(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// Records the end of a commit, before its waiters see it.
    pub(crate) fn committed(&self) {
        let waiting = self.waiting.load(Ordering::Relaxed);
        if waiting > 0 {
            self.waiting.store(0, Ordering::Relaxed);
        }
        let waited = self.waited.load(Ordering::Relaxed);
        // The number falls slowly: a leader that finds few waiters and does not yield would find
        // few again.
        let now = waiting.saturating_mul(SLOWNESS).max(waited.saturating_sub(1));
        if now != waited {
            self.waited.store(now, Ordering::Relaxed);
        }
    }

    /// Returns whether other threads may have work to do while one waits for the device. They may,
    /// until as many wait for this commit as for the last.
    pub(crate) fn is_busy(&self) -> bool {
        let waited = self.waited.load(Ordering::Relaxed).max(1);
        self.callers_overlap()
            && self.waiting.load(Ordering::Relaxed).saturating_mul(SLOWNESS) < waited
    }

    /// Pauses after poll number `look` that found nothing, while it waits for another thread.
    pub(crate) fn pause(&self, look: u32) {
        // The other thread may need this CPU.
        if self.callers_overlap() || look.is_multiple_of(LOOKS_ALONE) {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_busy_when_all_wait_who_waited_before() {
        let group = GroupCommit::default();
        group.arrive();
        assert!(!group.is_busy());
        std::thread::scope(|scope| scope.spawn(|| group.arrive()).join().unwrap());
        assert!(group.is_busy());
        group.note_waiter();
        group.note_waiter();
        assert!(!group.is_busy());
        group.committed();
        assert!(group.is_busy());
        group.note_waiter();
        for _ in 0..SLOWNESS {
            assert!(group.is_busy());
            group.committed();
            group.note_waiter();
        }
        assert!(!group.is_busy());
    }

    #[test]
    fn two_are_a_crowd_until_one_is_alone_for_long() {
        let group = GroupCommit::default();
        for _ in 0..3 {
            group.arrive();
            assert!(!group.callers_overlap());
        }
        std::thread::scope(|scope| scope.spawn(|| group.arrive()).join().unwrap());
        assert!(group.callers_overlap());
        group.arrive();
        for _ in 0..ALONE {
            assert!(group.callers_overlap());
            group.arrive();
        }
        assert!(!group.callers_overlap());
    }
}
