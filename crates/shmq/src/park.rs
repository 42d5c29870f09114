//! Sleeping until the other side stores something.
//!
//! The storing side stores its number, executes a full fence, and loads `parked`. The sleeping side
//! stores `parked`, executes a full fence, looks at the number once more, and sleeps. Whichever
//! fence is second sees the other's store, so no wake-up is lost. The kernel compares `parked`
//! before it puts the thread to sleep, and the waker clears it before it wakes, so a wake-up that
//! comes first ends the sleep at once. Each sleep has a time-out.

use std::time::Duration;

use crate::sync::{AtomicU32, Ordering, fence, sleep_while_one, wake};

/// Whether one side sleeps.
#[repr(C, align(64))]
pub(crate) struct Parking {
    parked: AtomicU32,
}

impl Parking {
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self { parked: AtomicU32::new(0) }
    }

    /// Sleeps for `time` at most, unless `is_there` is true already. Returns also for no reason.
    pub(crate) fn sleep(&self, time: Duration, is_there: impl Fn() -> bool) {
        self.parked.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !is_there() {
            sleep_while_one(&self.parked, time);
        }
        self.parked.store(0, Ordering::Relaxed);
    }

    /// Wakes the side that sleeps here, after something was stored for it.
    pub(crate) fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.parked.load(Ordering::Relaxed) != 0 {
            self.parked.store(0, Ordering::Relaxed);
            wake(&self.parked);
        }
    }
}
