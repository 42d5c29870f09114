//! Waiting for another's I/O: threads sleep on a word of a lot, tasks leave their wakers in it.
//!
//! Who sleeps has read the lot's word first, then marked the slot; who ends the I/O changes the
//! slot, sees the mark in what it replaced, and only then changes the word and wakes. So a wake-up
//! is never lost: either the mark came too late, and the sleeper saw that, or the word it sleeps on
//! is another one already.

use std::task::Waker;

#[cfg(loom)]
use loom::sync::{Condvar, Mutex};
#[cfg(not(loom))]
use std::sync::Mutex;
use std::sync::PoisonError;

/// A word that changes, and threads that sleep until it does.
#[cfg(not(loom))]
#[derive(Debug, Default)]
struct Bell(meantime_hw::Futex);

#[cfg(not(loom))]
impl Bell {
    fn count(&self) -> u32 {
        self.0.get()
    }

    fn wait(&self, seen: u32, timeout_ns: u64) {
        self.0.wait(seen, timeout_ns);
    }

    fn ring(&self) {
        self.0.advance();
    }
}

/// The same for a model. Without a time-out: a lost wake-up is a deadlock, which loom reports.
#[cfg(loom)]
#[derive(Default)]
struct Bell {
    count: Mutex<u32>,
    changed: Condvar,
}

#[cfg(loom)]
impl Bell {
    fn count(&self) -> u32 {
        *self.count.lock().unwrap()
    }

    fn wait(&self, seen: u32, _: u64) {
        let mut count = self.count.lock().unwrap();
        while *count == seen {
            count = self.changed.wait(count).unwrap();
        }
    }

    fn ring(&self) {
        *self.count.lock().unwrap() += 1;
        self.changed.notify_all();
    }
}

/// Where those sleep who wait for some of the slots.
#[derive(Default)]
struct Lot {
    bell: Bell,
    /// Of tasks: for which slot.
    wakers: Mutex<Vec<(u32, Waker)>>,
}

/// Few, so that a lot is shared by many slots: who is woken looks.
const LOTS: usize = if cfg!(loom) { 1 } else { 64 };

/// All of them.
pub(super) struct Parking([Lot; LOTS]);

impl Default for Parking {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Lot::default()))
    }
}

impl Parking {
    fn lot(&self, slot: u32) -> &Lot {
        &self.0[slot as usize % LOTS]
    }

    /// To be asked for before the slot is marked.
    pub(super) fn seen(&self, slot: u32) -> u32 {
        self.lot(slot).bell.count()
    }

    /// Sleeps until somebody was woken since `seen`, for `timeout_ns` at most.
    pub(super) fn sleep(&self, slot: u32, seen: u32, timeout_ns: u64) {
        self.lot(slot).bell.wait(seen, timeout_ns);
    }

    /// Leaves a waker, before the slot is marked. One for the same task as another is not left
    /// twice: false.
    pub(super) fn leave(&self, slot: u32, waker: &Waker) -> bool {
        let mut wakers = self.lot(slot).wakers.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !wakers.iter().any(|(other, there)| *other == slot && there.will_wake(waker));
        if is_new {
            wakers.push((slot, waker.clone()));
        }
        is_new
    }

    /// Takes it back.
    pub(super) fn take_back(&self, slot: u32, waker: &Waker) {
        let mut wakers = self.lot(slot).wakers.lock().unwrap_or_else(PoisonError::into_inner);
        wakers.retain(|(other, there)| *other != slot || !there.will_wake(waker));
    }

    /// Wakes all who wait for `slot`.
    #[cold]
    pub(super) fn wake(&self, slot: u32) {
        let lot = self.lot(slot);
        lot.bell.ring();
        let mut woken = Vec::new();
        {
            let mut wakers = lot.wakers.lock().unwrap_or_else(PoisonError::into_inner);
            let mut at = 0;
            while at < wakers.len() {
                if wakers[at].0 == slot {
                    woken.push(wakers.swap_remove(at).1);
                } else {
                    at += 1;
                }
            }
        }
        // Outside of the lock: what a waker does is not ours to know.
        woken.into_iter().for_each(Waker::wake);
    }
}
