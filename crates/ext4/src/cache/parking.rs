//! Waiting for another reader's I/O: threads sleep on a word of a lot, tasks leave their wakers in
//! it.
//!
//! A sleeper first reads the lot's word, then marks the slot. The end of the I/O changes the slot,
//! sees the mark in the replaced state, and only then changes the word and wakes. So no wake-up is
//! lost: either the mark came too late, which the sleeper sees, or the word that it sleeps on has
//! already changed.

use std::task::Waker;

#[cfg(loom)]
use loom::sync::{Condvar, Mutex};
#[cfg(not(loom))]
use std::sync::Mutex;
use std::sync::PoisonError;

/// A word that changes, and threads that sleep until it does.
#[cfg(not(loom))]
#[derive(Debug, Default)]
struct Notifier(meantime_hw::Futex);

#[cfg(not(loom))]
impl Notifier {
    fn count(&self) -> u32 {
        self.0.get()
    }

    fn wait(&self, seen: u32, timeout_ns: u64) {
        self.0.wait(seen, timeout_ns);
    }

    fn notify(&self) {
        self.0.advance();
    }
}

/// A notifier for a model. It has no time-out, so loom reports a lost wake-up as a deadlock.
#[cfg(loom)]
#[derive(Default)]
struct Notifier {
    count: Mutex<u32>,
    changed: Condvar,
}

#[cfg(loom)]
impl Notifier {
    fn count(&self) -> u32 {
        *self.count.lock().unwrap()
    }

    fn wait(&self, seen: u32, _: u64) {
        let mut count = self.count.lock().unwrap();
        while *count == seen {
            count = self.changed.wait(count).unwrap();
        }
    }

    fn notify(&self) {
        *self.count.lock().unwrap() += 1;
        self.changed.notify_all();
    }
}

/// The threads and tasks that wait for some of the slots.
#[derive(Default)]
struct Lot {
    notifier: Notifier,
    /// Wakers of tasks, with their slots.
    wakers: Mutex<Vec<(u32, Waker)>>,
}

/// There are fewer lots than slots, so several slots share one. A woken thread therefore checks its
/// own slot.
const LOTS: usize = if cfg!(loom) { 1 } else { 64 };

/// All lots.
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

    /// Returns the lot's word. The caller reads it before it marks the slot.
    pub(super) fn seen(&self, slot: u32) -> u32 {
        self.lot(slot).notifier.count()
    }

    /// Sleeps until the word differs from `seen`, for `timeout_ns` at most.
    pub(super) fn sleep(&self, slot: u32, seen: u32, timeout_ns: u64) {
        self.lot(slot).notifier.wait(seen, timeout_ns);
    }

    /// Leaves a waker. The caller does this before it marks the slot. Returns false if the same
    /// task has left one already.
    pub(super) fn leave(&self, slot: u32, waker: &Waker) -> bool {
        let mut wakers = self.lot(slot).wakers.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !wakers.iter().any(|(other, there)| *other == slot && there.will_wake(waker));
        if is_new {
            wakers.push((slot, waker.clone()));
        }
        is_new
    }

    /// Removes the waker.
    pub(super) fn remove_waker(&self, slot: u32, waker: &Waker) {
        let mut wakers = self.lot(slot).wakers.lock().unwrap_or_else(PoisonError::into_inner);
        wakers.retain(|(other, there)| *other != slot || !there.will_wake(waker));
    }

    /// Wakes all that wait for `slot`.
    #[cold]
    pub(super) fn wake(&self, slot: u32) {
        let lot = self.lot(slot);
        lot.notifier.notify();
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
        // The wakers run after the lock is released, because a waker runs unknown code.
        woken.into_iter().for_each(Waker::wake);
    }
}
