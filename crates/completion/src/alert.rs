//! Wakes a thread that may be about to sleep, from other threads.

#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering, fence};

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering, fence};

/// Tells one thread that there is something for it, and wakes it if it sleeps.
///
/// Dekker's pattern: the sleeper stores `asleep`, executes a full fence and loads `raised`; the
/// others store `raised`, execute a full fence and load `asleep`. Whichever fence is second sees
/// the other's store: either the sleeper does not sleep, or it is signalled.
#[derive(Debug, Default)]
pub struct Alert {
    raised: AtomicBool,
    asleep: AtomicBool,
}

impl Alert {
    /// Tells the thread that there is something. Calls `signal` only if the thread sleeps or is
    /// about to; `signal` must end that sleep, or the next one if it has not begun.
    pub fn raise(&self, signal: impl FnOnce()) {
        // A swap, not a store, which would hide what another thread has released by its own.
        self.raised.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel) {
            signal();
        }
    }

    /// Whether there is something.
    #[inline(always)]
    pub fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Relaxed)
    }

    /// Returns whether there was something. What the other threads stored before they said so is
    /// then visible.
    #[inline(always)]
    pub fn take(&self) -> bool {
        self.is_raised() && self.raised.swap(false, Ordering::AcqRel)
    }

    /// Calls `sleep` unless there is something.
    pub fn sleep(&self, sleep: impl FnOnce()) {
        // A swap, so that what another thread has swapped in comes before, also for loom.
        self.asleep.swap(true, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        if !self.raised.load(Ordering::Relaxed) {
            sleep();
        }
        self.asleep.store(false, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(loom, test))]
mod loom_model;
