use std::cell::Cell;

use super::*;

/// A device that has lost its command; deadlines are checked every millisecond.
#[derive(Default)]
struct Silent {
    now_ns: Cell<u64>,
    longest_ns: Cell<u64>,
    checks: u64,
    /// Whether the clock restarts at the next reading of CPU time.
    restarts: Cell<bool>,
}

impl Source for Silent {
    fn reap(&mut self) -> usize {
        usize::from(self.checks == 3)
    }

    fn has_completion(&self) -> bool {
        false
    }

    fn tick(&mut self, _: u64) -> usize {
        self.checks += 1;
        usize::from(self.checks == 3)
    }

    fn tick_interval_ns(&self) -> u64 {
        1_000_000
    }

    fn now_ns(&self) -> u64 {
        self.now_ns.update(|ns| ns + 100);
        self.now_ns.get()
    }

    fn sleep_ns(&self, duration_ns: u64) {
        self.now_ns.update(|ns| ns + duration_ns);
        self.longest_ns.update(|ns| ns.max(duration_ns));
    }

    fn wait_interrupt(&self, timeout_ns: u64) -> bool {
        self.sleep_ns(timeout_ns);
        true
    }

    fn cpu_ns(&self) -> u64 {
        if self.restarts.take() {
            self.now_ns.set(0);
        }
        0
    }
}

#[test]
fn a_clock_that_steps_back_makes_a_sleep_no_shorter() {
    let (mut gap, mut silent) = (Gap::default(), Silent::default());
    silent.restarts.set(true);
    gap.sleep_until(&mut silent, 1_000_000_000, 1_000_000);
    assert!(!silent.restarts.get());
    assert_eq!(silent.longest_ns.get(), 1_000_000);
}

#[test]
fn no_wait_goes_on_beyond_a_check_of_deadlines() {
    for plan in [WaitPlan::Sleep(1_000_000_000), WaitPlan::Interrupt, WaitPlan::Poll] {
        let (mut gap, mut silent) = (Gap::default(), Silent::default());
        assert_eq!(gap.wait(&mut silent, plan), 1);
        assert_eq!(silent.checks, 3, "{plan:?}");
        assert!(silent.longest_ns.get() <= 1_000_000, "{plan:?}: {:?}", silent.longest_ns);
    }
}
