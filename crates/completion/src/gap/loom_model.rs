//! Loom models of the waits: no lost wake-up when the waiter blocks for an interrupt, and none when
//! it falls back from spinning (ARCHITECTURE.md §5). The device, the completion queue's line and
//! the eventfd are loom's.
//!
//! Run by `make loom`.

use super::{Gap, Source, WaitPlan};
use crate::plan::{Plan, Stage};
use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use loom::sync::{Arc, Condvar, Mutex};

/// A model of an eventfd: a counter that a reader takes, and waits for while it is 0.
struct Eventfd {
    counter: Mutex<u64>,
    changed: Condvar,
}

impl Eventfd {
    fn signal(&self) {
        *self.counter.lock().unwrap() += 1;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let mut counter = self.counter.lock().unwrap();
        while *counter == 0 {
            // Without a time-out: a lost wake-up is a deadlock, which loom reports.
            counter = self.changed.wait(counter).unwrap();
        }
        *counter = 0;
    }
}

/// The two halves of a completion queue entry, the data, and the interrupt.
struct Device {
    data: AtomicU64,
    low: AtomicU64,
    high: AtomicU64,
    event: Eventfd,
}

struct Queue {
    device: Arc<Device>,
    interrupt: bool,
    taken: u64,
    clock: AtomicUsize,
}

impl Source for Queue {
    fn reap(&mut self) -> usize {
        // As in `nvme::ring::Ring::take`, the phase comes first, with Acquire, and then the rest.
        if self.device.high.load(Ordering::Acquire) <= self.taken {
            return 0;
        }
        self.taken += 1;
        assert!(
            self.device.low.load(Ordering::Relaxed) >= self.taken,
            "the lower half was not there"
        );
        assert!(self.device.data.load(Ordering::Relaxed) >= self.taken, "the data was not there");
        1
    }

    fn has_completion(&self) -> bool {
        self.device.high.load(Ordering::Acquire) > self.taken
    }

    fn tick(&mut self, _: u64) -> usize {
        0
    }

    fn tick_interval_ns(&self) -> u64 {
        1_000_000_000
    }

    fn now_ns(&self) -> u64 {
        // Each reading is later than any spin budget.
        self.clock.fetch_add(1_000_000_000, Ordering::Relaxed) as u64
    }

    fn sleep_ns(&self, _: u64) {
        loom::thread::yield_now();
    }

    fn wait_interrupt(&self, _: u64) -> bool {
        if self.interrupt {
            self.device.event.wait();
        }
        self.interrupt
    }
}

fn device() -> Arc<Device> {
    Arc::new(Device {
        data: AtomicU64::new(0),
        low: AtomicU64::new(0),
        high: AtomicU64::new(0),
        event: Eventfd { counter: Mutex::new(0), changed: Condvar::new() },
    })
}

/// Completes like the software SSD: data, lower half, upper half with Release, then the signal.
fn complete(device: &Device, n: u64) {
    device.data.store(n, Ordering::Relaxed);
    device.low.store(n, Ordering::Relaxed);
    device.high.store(n, Ordering::Release);
    device.event.signal();
}

fn run(plans: &[WaitPlan], interrupt: bool) {
    let plans = plans.to_vec();
    loom::model(move || {
        let device = device();
        let theirs = Arc::clone(&device);
        let count = plans.len() as u64;
        let thread = loom::thread::spawn(move || {
            for n in 1..=count {
                complete(&theirs, n);
            }
        });
        let mut queue = Queue { device, interrupt, taken: 0, clock: AtomicUsize::new(0) };
        let mut gap = Gap::default();
        gap.set_spin_budget_ns(0);
        for &plan in &plans {
            assert_eq!(gap.wait(&mut queue, plan), 1);
        }
        thread.join().unwrap();
    });
}

#[test]
fn blocking_loses_no_interrupt() {
    run(&[WaitPlan::Interrupt], true);
    run(&[WaitPlan::Interrupt, WaitPlan::Interrupt], true);
}

#[test]
fn falling_back_from_spinning_loses_no_interrupt() {
    run(&[WaitPlan::Poll], true);
    run(&[WaitPlan::Sleep(1_000)], true);
    // The plan is over at once, so that the wait also falls back.
    let plan = Plan::of(&[Stage { from_ns: 0, until_ns: 1_000 }]).with_patience_ns(1);
    run(&[WaitPlan::Planned { plan, since_ns: 0 }], true);
}

/// A sleep without an end of its own: if its interrupt were lost, it would never end.
#[test]
fn a_planned_sleep_is_ended_by_the_interrupt() {
    let plan = Plan::of(&[Stage { from_ns: 0, until_ns: u32::MAX }]);
    let sleeps = WaitPlan::Planned { plan, since_ns: 0 };
    run(&[sleeps], true);
    run(&[sleeps, sleeps], true);
    run(&[WaitPlan::Poll, sleeps], true);
}

/// A polled I/O leaves its signal in the counter; the next wait for an interrupt must not take it
/// for its own.
#[test]
fn a_stale_signal_is_only_a_spurious_turn() {
    run(&[WaitPlan::Poll, WaitPlan::Interrupt], true);
}

#[test]
fn growing_sleeps_end() {
    run(&[WaitPlan::Poll], false);
}

/// Shows that the models can fail: a device that signals before it writes the entry loses the
/// wake-up. Runs in its own process, since loom aborts on a deadlocked model.
#[test]
fn a_device_that_signals_first_is_caught() {
    let broken = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "gap::loom_model::broken_device"])
        .env("LOOM_BROKEN_DEVICE", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&broken.stderr).into_owned()
        + &String::from_utf8_lossy(&broken.stdout);
    assert!(
        !broken.status.success() && said.contains("deadlock"),
        "the broken device was not caught: {said}"
    );
}

/// The body of the test above; not a test of its own.
#[test]
fn broken_device() {
    if std::env::var_os("LOOM_BROKEN_DEVICE").is_none() {
        return;
    }
    loom::model(|| {
        let device = device();
        let theirs = Arc::clone(&device);
        let thread = loom::thread::spawn(move || {
            theirs.event.signal();
            theirs.data.store(1, Ordering::Relaxed);
            theirs.low.store(1, Ordering::Relaxed);
            theirs.high.store(1, Ordering::Release);
        });
        let mut queue = Queue { device, interrupt: true, taken: 0, clock: AtomicUsize::new(0) };
        Gap::default().wait(&mut queue, WaitPlan::Interrupt);
        thread.join().unwrap();
    });
}
