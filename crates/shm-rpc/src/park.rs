//! Sleeps until the other side stores something.
//!
//! The storing side stores its number, executes a full fence, and loads `parked`. The sleeping side
//! stores `parked`, executes a full fence, checks the number once more, and sleeps. The side whose
//! fence is second sees the other's store, so no wake-up is lost. The kernel compares `parked`
//! before it puts the thread to sleep, and the waker clears it before it wakes, so a wake-up that
//! comes first ends the sleep at once.
//!
//! A waker may clear the word late, when its sleeper has already set it again for the next sleep.
//! Its wake follows, so that sleep ends early, and the sleeper checks again. Only a waker that ends
//! between the two leaves a sleeper that no other side would wake. Therefore each sleep has a
//! time-out.

use std::time::Duration;

use crate::sync::{Futex, Side, full_fence};

/// The word that says whether one side sleeps.
#[repr(C, align(64))]
pub(crate) struct Parking {
    parked: Futex,
}

impl Parking {
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self { parked: Futex::new() }
    }

    /// Does what a client can do to its owner's word.
    #[cfg(loom)]
    pub(crate) fn say_awake(&self) {
        self.parked.store(0);
    }

    /// Sleeps for at most `time`, unless `is_there` is true already. It may return without a
    /// reason. Returns whether all of the time has passed.
    pub(crate) fn sleep(&self, time: Duration, is_there: impl Fn() -> bool) -> bool {
        self.parked.store(1);
        full_fence(Side::Sleeper);
        let has_passed = !is_there() && self.parked.sleep_while_one(time);
        self.parked.store(0);
        has_passed
    }

    /// Returns whether the side that sleeps here seems to sleep.
    #[cfg(not(loom))]
    #[inline]
    pub(crate) fn seems_asleep(&self) -> bool {
        self.parked.load() != 0
    }

    /// Wakes the side that sleeps here, after something was stored for it.
    #[inline]
    pub(crate) fn wake(&self) {
        full_fence(Side::Waker);
        if self.parked.load() != 0 {
            self.clear_and_wake();
        }
    }

    /// Wakes the side that sleeps here, whatever the other process has stored in `parked`.
    pub(crate) fn wake_surely(&self) {
        full_fence(Side::Waker);
        self.clear_and_wake();
    }

    fn clear_and_wake(&self) {
        self.parked.store(0);
        self.parked.wake();
    }
}
