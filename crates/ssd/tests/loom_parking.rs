//! The parking protocol between a doorbell and the SSD's thread, in every interleaving that the
//! memory model allows (as far as loom models it). Run by `make loom`.
//!
//! The model: a submitter stores a doorbell, fences, looks at `parked` and, if set, leaves a
//! wake-up token. The SSD announces that it parks, fences, looks at the doorbell once more, and
//! sleeps until there is a token. If the protocol is right it always sees the doorbell in the end;
//! if not, it sleeps for ever, which loom reports as a deadlock.
#![cfg(loom)]

use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex};
use meantime_nvme_spec::soft_port::Doorbells;

/// What `std::thread::park` and `unpark` are: a token that is taken, or waited for.
struct Token {
    there: Mutex<bool>,
    left: Condvar,
}

impl Token {
    fn new() -> Self {
        Self { there: Mutex::new(false), left: Condvar::new() }
    }

    fn unpark(&self) {
        *self.there.lock().unwrap() = true;
        self.left.notify_one();
    }

    fn park(&self) {
        let mut there = self.there.lock().unwrap();
        while !*there {
            there = self.left.wait(there).unwrap();
        }
        *there = false;
    }
}

/// The SSD's loop, cut down to one doorbell: returns once it has seen `expected`.
fn ssd(bells: &Doorbells, token: &Token, expected: u32) {
    let bell = bells.sq_tail(0).unwrap();
    while bell.load(Ordering::Acquire) != expected {
        bells.parking().announce();
        // Look at all work once more.
        if bell.load(Ordering::Acquire) != expected {
            token.park();
        }
        bells.parking().retract();
    }
}

#[test]
fn a_doorbell_is_never_left_unseen() {
    loom::model(|| {
        let bells = Arc::new(Doorbells::new(1));
        let token = Arc::new(Token::new());
        let submitter = {
            let (bells, token) = (Arc::clone(&bells), Arc::clone(&token));
            loom::thread::spawn(move || {
                bells.sq_tail(0).unwrap().store(1, Ordering::Release);
                if bells.parking().must_wake() {
                    token.unpark();
                }
            })
        };
        ssd(&bells, &token, 1);
        submitter.join().unwrap();
    });
}

#[test]
fn two_doorbells_one_after_the_other() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let bells = Arc::new(Doorbells::new(1));
        let token = Arc::new(Token::new());
        let submitter = {
            let (bells, token) = (Arc::clone(&bells), Arc::clone(&token));
            loom::thread::spawn(move || {
                for tail in 1..=2 {
                    bells.sq_tail(0).unwrap().store(tail, Ordering::Release);
                    if bells.parking().must_wake() {
                        token.unpark();
                    }
                }
            })
        };
        ssd(&bells, &token, 2);
        submitter.join().unwrap();
    });
}

/// The mailbox's flag follows the same protocol, and two submitters may wake at once.
#[test]
fn a_doorbell_and_a_call_at_once() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let bells = Arc::new(Doorbells::new(1));
        let call = Arc::new(AtomicBool::new(false));
        let token = Arc::new(Token::new());
        let submitter = {
            let (bells, token) = (Arc::clone(&bells), Arc::clone(&token));
            loom::thread::spawn(move || {
                bells.sq_tail(0).unwrap().store(1, Ordering::Release);
                if bells.parking().must_wake() {
                    token.unpark();
                }
            })
        };
        let caller = {
            let (bells, token, call) = (Arc::clone(&bells), Arc::clone(&token), Arc::clone(&call));
            loom::thread::spawn(move || {
                call.store(true, Ordering::Relaxed);
                if bells.parking().must_wake() {
                    token.unpark();
                }
            })
        };
        let bell = bells.sq_tail(0).unwrap();
        let done = || bell.load(Ordering::Acquire) == 1 && call.load(Ordering::Relaxed);
        while !done() {
            bells.parking().announce();
            if !done() {
                token.park();
            }
            bells.parking().retract();
        }
        submitter.join().unwrap();
        caller.join().unwrap();
    });
}

/// The same protocol written out, with either fence left out at will.
fn with_fences(submitter_fences: bool, ssd_fences: bool) {
    loom::model(move || {
        let bell = Arc::new(AtomicU32::new(0));
        let parked = Arc::new(AtomicBool::new(false));
        let token = Arc::new(Token::new());
        let submitter = {
            let (bell, parked, token) =
                (Arc::clone(&bell), Arc::clone(&parked), Arc::clone(&token));
            loom::thread::spawn(move || {
                bell.store(1, Ordering::Release);
                if submitter_fences {
                    fence(Ordering::SeqCst);
                }
                if parked.load(Ordering::Relaxed) {
                    token.unpark();
                }
            })
        };
        while bell.load(Ordering::Acquire) != 1 {
            parked.store(true, Ordering::Relaxed);
            if ssd_fences {
                fence(Ordering::SeqCst);
            }
            if bell.load(Ordering::Acquire) != 1 {
                token.park();
            }
            parked.store(false, Ordering::Relaxed);
        }
        submitter.join().unwrap();
    });
}

#[test]
fn written_out_it_holds() {
    with_fences(true, true);
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_the_submitters_fence_a_wake_up_is_lost() {
    with_fences(false, true);
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_the_ssds_fence_a_wake_up_is_lost() {
    with_fences(true, false);
}

/// Shadow doorbells (NVMe Base 1.4 §7.13): no flag, but an event index that says from which value
/// on a ring is wanted.
fn with_event_index(submitter_fences: bool, ssd_fences: bool) {
    use meantime_nvme_spec::dbbuf::must_ring;
    /// The event index of a controller that looks by itself.
    const POLLED: u32 = 0xffff;
    loom::model(move || {
        let cells = Arc::new((AtomicU32::new(0), AtomicU32::new(POLLED)));
        let token = Arc::new(Token::new());
        let submitter = {
            let (cells, token) = (Arc::clone(&cells), Arc::clone(&token));
            loom::thread::spawn(move || {
                let (shadow, event) = &*cells;
                for tail in 1..=2 {
                    shadow.store(tail, Ordering::Release);
                    if submitter_fences {
                        fence(Ordering::SeqCst);
                    }
                    if must_ring(event.load(Ordering::Relaxed), tail, tail - 1) {
                        // The register, whose write wakes.
                        token.unpark();
                    }
                }
            })
        };
        let (shadow, event) = &*cells;
        loop {
            let seen = shadow.load(Ordering::Acquire);
            if seen == 2 {
                break;
            }
            event.store(seen, Ordering::Relaxed);
            if ssd_fences {
                fence(Ordering::SeqCst);
            }
            if shadow.load(Ordering::Acquire) == seen {
                token.park();
            }
            event.store(POLLED, Ordering::Relaxed);
        }
        submitter.join().unwrap();
    });
}

#[test]
fn a_shadow_doorbell_is_never_left_unseen() {
    with_event_index(true, true);
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_the_hosts_fence_a_shadow_doorbell_is_lost() {
    with_event_index(false, true);
}

#[test]
#[should_panic(expected = "deadlock")]
fn without_the_controllers_fence_a_shadow_doorbell_is_lost() {
    with_event_index(true, false);
}
