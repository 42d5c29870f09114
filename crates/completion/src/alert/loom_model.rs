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
