//! Timed sleeps: their lateness, and the CPU time charged for them.

use super::Times;
use meantime_hw::clock::thread_cpu_ns;
use meantime_hw::{Clock, SleepMethod, Sleeper};

/// Sleeps between two readings of the CPU clock, which is a system call itself.
const BATCH: usize = 16;

/// The lateness in ns of a sleep of `sleep_ns` by `nanosleep`, with a timer slack of 1 ns.
pub fn oversleep(clock: &Clock, sleep_ns: u64, count: usize) -> Times {
    match Sleeper::new(SleepMethod::Nanosleep) {
        Ok(Some(sleeper)) => oversleep_of(&sleeper, clock, sleep_ns, count),
        // `nanosleep` needs no resource that could be missing.
        _ => Times::new(Vec::new()),
    }
}

/// The lateness in ns of a sleep of `sleep_ns` by `sleeper`.
pub fn oversleep_of(sleeper: &Sleeper, clock: &Clock, sleep_ns: u64, count: usize) -> Times {
    let once = |_| {
        let start_ns = clock.now_ns();
        sleeper.sleep_ns(sleep_ns);
        (clock.now_ns() - start_ns).saturating_sub(sleep_ns)
    };
    Times::new((0..count).map(once).collect())
}

/// The CPU time in ns of a sleep of `sleep_ns` by `sleeper`, as the kernel charges it to the thread
/// (`CLOCK_THREAD_CPUTIME_ID`): means of 16 sleeps, at least `count` sleeps in all. The kernel's
/// interrupt work, and the later cost of cold caches, are charged to no thread: a competing thread
/// sees a higher cost.
pub fn sleep_cpu_ns(sleeper: &Sleeper, sleep_ns: u64, count: usize) -> Times {
    let batch = |_| {
        let before_ns = thread_cpu_ns();
        (0..BATCH).for_each(|_| sleeper.sleep_ns(sleep_ns));
        thread_cpu_ns().saturating_sub(before_ns) / BATCH as u64
    };
    Times::new((0..count.div_ceil(BATCH)).map(batch).collect())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_way_has_its_figures() {
        let clock = Clock::real();
        for method in SleepMethod::available() {
            let sleeper = Sleeper::new(method).unwrap().unwrap();
            assert_eq!(oversleep_of(&sleeper, &clock, 1_000, 20).count(), 20, "{method}");
            assert_eq!(sleep_cpu_ns(&sleeper, 1_000, 20).count(), 2, "{method}");
        }
        assert_eq!(oversleep(&clock, 1_000, 20).count(), 20);
    }

    /// Spinning costs its duration, to within what the machine takes away; a sleeping thread is
    /// charged less.
    #[test]
    fn the_cpu_clock_stands_while_the_thread_sleeps() {
        let sleeper = Sleeper::new(SleepMethod::Nanosleep).unwrap().unwrap();
        let times = sleep_cpu_ns(&sleeper, 20_000_000, 1);
        assert!(times.quantile_ns(1.0) < 20_000_000, "{times:?}");
        assert!(times.quantile_ns(0.0) > 0, "{times:?}");
    }
}
