//! A ring of I/Os, from the thread that measures them to one that shows them.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The number of I/Os for which a ring has room.
pub(super) const SLOTS: u64 = 2048;

/// An I/O as it is in a ring.
pub(super) type Words = [u64; 4];

/// I/Os that one thread puts in and one thread takes out. Neither waits for the other: an I/O for
/// which there is no room is counted and left out.
#[derive(Debug)]
pub(super) struct Ring {
    slots: Box<[[AtomicU64; 4]]>,
    put: AtomicU64,
    taken: AtomicU64,
    left_out: AtomicU64,
}

impl Ring {
    /// Creates an empty ring. Its memory has been touched.
    pub(super) fn new() -> Self {
        let slots = (0..SLOTS).map(|_| Default::default()).collect();
        let [put, taken, left_out] = Default::default();
        Self { slots, put, taken, left_out }
    }

    /// Puts an I/O in if there is room. Only one thread may call it.
    #[inline]
    pub(super) fn put(&self, words: Words) {
        let put = self.put.load(Relaxed);
        // Acquire: `take` has read the slot before it is used again.
        if put - self.taken.load(Acquire) >= SLOTS {
            self.left_out.store(self.left_out.load(Relaxed) + 1, Relaxed);
            return;
        }
        let slot = &self.slots[(put % SLOTS) as usize];
        slot.iter().zip(words).for_each(|(slot, word)| slot.store(word, Relaxed));
        // Release: a thread that loads the new number sees the words.
        self.put.store(put + 1, Release);
    }

    /// Takes out all I/Os that are in it. Only one thread may call it. Returns the number of I/Os
    /// left out since the ring was created.
    pub(super) fn take(&self, mut show: impl FnMut(Words)) -> u64 {
        let taken = self.taken.load(Relaxed);
        // Acquire: the words were stored before the number.
        let put = self.put.load(Acquire);
        for at in taken..put {
            let slot = &self.slots[(at % SLOTS) as usize];
            show(slot.each_ref().map(|word| word.load(Relaxed)));
        }
        // Release: the loads above come before new words.
        self.taken.store(put, Release);
        self.left_out.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_is_counted() {
        let ring = Ring::new();
        let put = |numbers: std::ops::Range<u64>| numbers.for_each(|at| ring.put([at; 4]));
        let take = || {
            let mut seen = Vec::new();
            let left_out = ring.take(|[at, ..]| seen.push(at));
            (seen, left_out)
        };
        put(0..5);
        assert_eq!(take(), (vec![0, 1, 2, 3, 4], 0));
        put(5..5 + SLOTS);
        put(9_000..9_003);
        assert_eq!(take(), ((5..5 + SLOTS).collect(), 3));
        put(7..8);
        assert_eq!(take(), (vec![7], 3));
        assert_eq!(take(), (vec![], 3));
    }

    /// Every I/O is either shown, in its order and whole, or counted.
    #[test]
    fn two_threads_lose_nothing() {
        const IOS: u64 = 200_000;
        let (ring, mut seen) = (Ring::new(), Vec::new());
        let left_out = std::thread::scope(|scope| {
            let putting = scope.spawn(|| (0..IOS).for_each(|at| ring.put([at, !at, at, at])));
            while !putting.is_finished() {
                ring.take(|words| seen.push(words));
                std::thread::yield_now();
            }
            ring.take(|words| seen.push(words))
        });
        assert_eq!(seen.len() as u64 + left_out, IOS);
        assert!(seen.is_sorted_by(|one, next| one[0] < next[0]));
        assert!(seen.iter().all(|[at, not, rest @ ..]| *not == !at && *rest == [*at; 2]));
    }
}
