//! Atomics and the futex; loom's in its models.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(crate) use modelled::{sleep_while_one, wake};
#[cfg(not(loom))]
pub(crate) use system::{sleep_while_one, wake};

#[cfg(not(loom))]
mod system {
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    use rustix::thread::futex::{Flags, Timespec, wait, wake as wake_threads};

    /// Sleeps while `word` is 1, for `time` at most. Another process may share the word.
    pub(crate) fn sleep_while_one(word: &AtomicU32, time: Duration) {
        let time =
            Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        // Whatever ends it: the caller looks again.
        let _ = wait(word, Flags::empty(), 1, Some(&time));
    }

    /// Wakes who sleeps on `word`.
    pub(crate) fn wake(word: &AtomicU32) {
        let _ = wake_threads(word, Flags::empty(), 1);
    }
}

#[cfg(loom)]
mod modelled {
    use std::time::Duration;

    use loom::sync::atomic::{AtomicU32, Ordering};
    use loom::sync::{Condvar, Mutex};

    loom::lazy_static! {
        static ref KERNEL: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
    }

    /// The kernel's futex: it compares under a lock that wakers take. No time-out, so a lost
    /// wake-up is a deadlock.
    pub(crate) fn sleep_while_one(word: &AtomicU32, _: Duration) {
        let held = KERNEL.0.lock().unwrap();
        if word.load(Ordering::SeqCst) == 1 {
            drop(KERNEL.1.wait(held).unwrap());
        }
    }

    pub(crate) fn wake(_: &AtomicU32) {
        drop(KERNEL.0.lock().unwrap());
        KERNEL.1.notify_all();
    }
}
