//! Loom models of a line. Each call gets its own reply and data, and no wake-up is lost, in every
//! interleaving that the memory model allows (as far as loom models it). Sleeps have no time-outs
//! here, so a lost wake-up is a deadlock.
//!
//! Run by `make loom`.

use loom::cell::UnsafeCell;
use loom::sync::Arc;

use crate::Ended;
use crate::layout::{Line, ReplyWords, RequestWords};
use crate::message::{Op, Reply, Request};
use crate::park::Parking;
use crate::sync::{
    AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering, Side, leave_out_fence_of,
};

/// The state that two processes share, and the owner's own state.
struct Shared {
    line: Line,
    /// The data. Loom reports a side that accesses them while the other one does.
    data: UnsafeCell<u64>,
    is_ended: AtomicBool,
}

impl Shared {
    fn new() -> Arc<Self> {
        let word = || AtomicU32::new(0);
        let long = || AtomicU64::new(0);
        let request = RequestWords {
            number: word(),
            op: word(),
            flags: word(),
            len: word(),
            handle: long(),
            offset: long(),
            closings: long(),
            cpu: word(),
        };
        let reply = ReplyWords {
            number: word(),
            status: word(),
            result: AtomicI64::new(0),
            end: long(),
            cpu: word(),
            ended: word(),
        };
        let line = Line { request, reply, client: Parking::new(), owner: Parking::new() };
        Arc::new(Self { line, data: UnsafeCell::new(0), is_ended: AtomicBool::new(false) })
    }

    /// Makes a call as `Caller::put`, `call` and `get` do, without spinning.
    fn call(&self, number: u32, data: u64) -> Result<(Reply, u64), Ended> {
        let request = request(number);
        self.data.with_mut(|at| {
            // SAFETY: loom checks that nobody else uses the data.
            unsafe { *at = data }
        });
        self.line.ask(number, &request, 0);
        self.line.sleep_until_over(number, || true);
        let reply = self.line.reply_to(number, &request)?;
        // SAFETY: as above.
        Ok((reply, self.data.with(|at| unsafe { *at })))
    }

    /// Serves `calls` calls as `Answerer::next`, `take`, `give` and `answer` do, and then the end.
    fn serve(&self, calls: u32) {
        for old in 0..calls {
            let asked = self.line.sleep_until_asked(old, &self.is_ended);
            let Ok(taken) = asked.and_then(|()| self.line.request_after(old, &self.is_ended))
            else {
                break;
            };
            assert_eq!(taken, request(old + 1));
            // SAFETY: as above.
            let data = self.data.with_mut(|at| unsafe { std::mem::replace(&mut *at, *at + 1) });
            self.line.answer(old + 1, &Reply::done(i64::from(taken.len), data), 0);
        }
        self.line.tell_end();
    }
}

/// Returns the request with this number, which each of its words tells.
fn request(number: u32) -> Request {
    let long = u64::from(number);
    Request {
        op: Op::Write,
        flags: number & 3,
        handle: long,
        closings: long,
        offset: long << 32,
        len: number,
    }
}

#[test]
fn each_call_gets_its_own_reply_and_data() {
    loom::model(calls);
}

fn calls() {
    let shared = Shared::new();
    let client = {
        let shared = Arc::clone(&shared);
        loom::thread::spawn(move || {
            for number in 1..=2 {
                let data = u64::from(number) * 10;
                let (reply, given) = shared.call(number, data).unwrap();
                assert_eq!((reply.result, reply.end, given), (i64::from(number), data, data + 1));
            }
        })
    };
    shared.serve(2);
    client.join().unwrap();
}

/// A side that is asleep when the line ends wakes up. A call that was answered has its reply.
#[test]
fn the_end_of_a_line_ends_a_call_and_the_owners_sleep() {
    loom::model(|| {
        let shared = Shared::new();
        let client = {
            let shared = Arc::clone(&shared);
            loom::thread::spawn(move || {
                if let Ok((reply, given)) = shared.call(1, 10) {
                    assert_eq!((reply.result, reply.end, given), (1, 10, 11));
                } else {
                    assert!(shared.line.has_ended());
                    assert_ne!(shared.line.reply.number.load(Ordering::Relaxed), 1, "executed");
                }
            })
        };
        let ending = {
            let shared = Arc::clone(&shared);
            loom::thread::spawn(move || shared.line.end(&shared.is_ended))
        };
        shared.serve(u32::MAX);
        client.join().unwrap();
        ending.join().unwrap();
    });
}

/// A client that stores anything in the owner's word cannot prevent the owner from seeing the end.
#[test]
fn a_client_cannot_hide_the_end() {
    loom::model(|| {
        let shared = Shared::new();
        let hostile = {
            let shared = Arc::clone(&shared);
            loom::thread::spawn(move || shared.line.owner.say_awake())
        };
        let ending = {
            let shared = Arc::clone(&shared);
            loom::thread::spawn(move || shared.line.end(&shared.is_ended))
        };
        shared.serve(u32::MAX);
        hostile.join().unwrap();
        ending.join().unwrap();
    });
}

/// Tests that the models can see a lost wake-up, and that each fence is needed. It runs in a
/// process of its own, since loom aborts on a deadlocked model.
fn deadlocks_without(fence: &str) {
    let broken = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "loom_model::broken"])
        .env("LOOM_WITHOUT_FENCE", fence)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&broken.stderr).into_owned()
        + &String::from_utf8_lossy(&broken.stdout);
    assert!(!broken.status.success() && said.contains("deadlock"), "no deadlock: {said}");
}

#[test]
fn without_the_sleepers_fence_a_wake_up_is_lost() {
    deadlocks_without("sleeper");
}

#[test]
fn without_the_wakers_fence_a_wake_up_is_lost() {
    deadlocks_without("waker");
}

/// The body of the tests above. It is not a test of its own.
#[test]
fn broken() {
    let side = match std::env::var("LOOM_WITHOUT_FENCE").as_deref() {
        Ok("sleeper") => Side::Sleeper,
        Ok("waker") => Side::Waker,
        _ => return,
    };
    leave_out_fence_of(side);
    loom::model(calls);
}
