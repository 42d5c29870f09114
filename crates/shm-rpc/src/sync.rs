//! Atomics, the full fence and the futex. The models use loom's.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};

#[cfg(loom)]
pub(crate) use modelled::{Futex, full_fence, leave_out_fence_of};
#[cfg(not(loom))]
pub(crate) use system::{Futex, full_fence};

/// The side of a sleep that executes a fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Sleeper,
    Waker,
}

#[cfg(not(loom))]
mod system {
    use std::sync::atomic::{AtomicU32, Ordering, fence};
    use std::time::Duration;

    use rustix::io::Errno;
    use rustix::thread::futex::{Flags, Timespec, wait, wake};

    use super::Side;

    #[inline]
    pub(crate) fn full_fence(_: Side) {
        fence(Ordering::SeqCst);
    }

    /// A word on which a thread sleeps. Another process may share it.
    #[repr(transparent)]
    pub(crate) struct Futex(AtomicU32);

    impl Futex {
        #[inline]
        pub(crate) fn store(&self, value: u32) {
            self.0.store(value, Ordering::Relaxed);
        }

        #[inline]
        pub(crate) fn load(&self) -> u32 {
            self.0.load(Ordering::Relaxed)
        }

        /// Sleeps while the word is 1, for at most `time`. Returns whether all of the time has
        /// passed.
        pub(crate) fn sleep_while_one(&self, time: Duration) -> bool {
            let time =
                Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
            // If anything else ends the sleep, the caller checks again.
            wait(&self.0, Flags::empty(), 1, Some(&time)) == Err(Errno::TIMEDOUT)
        }

        /// Wakes the sleeper.
        pub(crate) fn wake(&self) {
            let _ = wake(&self.0, Flags::empty(), 1);
        }
    }
}

#[cfg(loom)]
mod modelled {
    use std::cell::Cell;
    use std::time::Duration;

    use loom::sync::atomic::{AtomicU32, Ordering, fence};
    use loom::sync::{Condvar, Mutex};

    use super::Side;

    thread_local! {
        /// The side that executes no fence. All threads of a model run on one thread.
        static WITHOUT: Cell<Option<Side>> = const { Cell::new(None) };
    }

    /// Breaks all later models of this thread.
    pub(crate) fn leave_out_fence_of(side: Side) {
        WITHOUT.set(Some(side));
    }

    pub(crate) fn full_fence(side: Side) {
        if WITHOUT.get() != Some(side) {
            fence(Ordering::SeqCst);
        }
    }

    /// The kernel's futex. It compares under a lock that wakers take. It has no time-out, so a lost
    /// wake-up is a deadlock.
    pub(crate) struct Futex {
        word: AtomicU32,
        kernel: Mutex<()>,
        woken: Condvar,
    }

    impl Futex {
        pub(crate) fn new() -> Self {
            Self { word: AtomicU32::new(0), kernel: Mutex::new(()), woken: Condvar::new() }
        }

        pub(crate) fn store(&self, value: u32) {
            self.word.store(value, Ordering::Relaxed);
        }

        pub(crate) fn load(&self) -> u32 {
            self.word.load(Ordering::Relaxed)
        }

        pub(crate) fn sleep_while_one(&self, _: Duration) -> bool {
            let held = self.kernel.lock().unwrap();
            if self.word.load(Ordering::Relaxed) == 1 {
                drop(self.woken.wait(held).unwrap());
            }
            false
        }

        pub(crate) fn wake(&self) {
            drop(self.kernel.lock().unwrap());
            self.woken.notify_one();
        }
    }
}
