//! Waking a thread that may be about to sleep, from others.

#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, Ordering, fence};

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, Ordering, fence};

/// Tells one thread that there is something for it, and wakes it if it sleeps.
///
/// Dekker's pattern: the sleeper stores `asleep`, executes a full fence and loads `raised`; the
/// others store `raised`, execute a full fence and load `asleep`. Whichever fence is second sees the
/// other's store: either the sleeper does not sleep, or it is signalled.
#[derive(Debug, Default)]
pub struct Alert {
    raised: AtomicBool,
    asleep: AtomicBool,
}

impl Alert {
    /// Tells the thread that there is something. Calls `signal`, which must end its sleep, or the
    /// next one if that has not begun, only if the thread sleeps or is about to.
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

    /// Whether there was something. What the others stored before they told so is visible then.
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
mod model {
    use super::Alert;
    use loom::sync::atomic::{AtomicU32, Ordering};
    use loom::sync::{Arc, Condvar, Mutex};

    /// An eventfd: a sleep without a time-out, which a lost wake-up makes a deadlock.
    #[derive(Default)]
    struct Event(Mutex<bool>, Condvar);

    impl Event {
        fn signal(&self) {
            *self.0.lock().unwrap() = true;
            self.1.notify_all();
        }

        fn wait(&self) {
            let mut signalled = self.0.lock().unwrap();
            while !*signalled {
                signalled = self.1.wait(signalled).unwrap();
            }
            *signalled = false;
        }
    }

    /// Each of two threads adds a piece of work and raises; the sleeper ends when it has seen both.
    #[test]
    fn no_wake_up_is_lost() {
        loom::model(|| {
            let shared = Arc::new((Alert::default(), Event::default(), AtomicU32::new(0)));
            let others: Vec<_> = (0..2)
                .map(|_| {
                    let shared = Arc::clone(&shared);
                    loom::thread::spawn(move || {
                        shared.2.fetch_add(1, Ordering::Relaxed);
                        shared.0.raise(|| shared.1.signal());
                    })
                })
                .collect();
            let (alert, event, work) = &*shared;
            let mut seen = 0;
            while seen < 2 {
                if alert.take() {
                    seen = work.load(Ordering::Relaxed);
                } else {
                    alert.sleep(|| event.wait());
                }
            }
            others.into_iter().for_each(|other| other.join().unwrap());
        });
    }
}
