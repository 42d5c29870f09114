//! Sleeping for a time: how late it ends, and what of it the sleeper is charged.

use super::Times;
use meantime_hw::clock::thread_cpu_ns;
use meantime_hw::{Clock, SleepWay, Sleeper};

/// Sleeps between two readings of the CPU clock, which costs a system call itself.
const BATCH: usize = 16;

/// How late in ns a sleep of `sleep_ns` by `nanosleep` ends, with a timer slack of 1 ns.
pub fn oversleep(clock: &Clock, sleep_ns: u64, count: usize) -> Times {
    match Sleeper::new(SleepWay::Nanosleep) {
        Ok(Some(sleeper)) => oversleep_of(&sleeper, clock, sleep_ns, count),
        // It takes nothing that could be missing.
        _ => Times::new(Vec::new()),
    }
}

/// How late in ns a sleep of `sleep_ns` by `sleeper` ends.
pub fn oversleep_of(sleeper: &Sleeper, clock: &Clock, sleep_ns: u64, count: usize) -> Times {
    let once = |_| {
        let start_ns = clock.now_ns();
        sleeper.sleep_ns(sleep_ns);
        (clock.now_ns() - start_ns).saturating_sub(sleep_ns)
    };
    Times::new((0..count).map(once).collect())
}

/// The CPU time in ns that a sleep of `sleep_ns` by `sleeper` costs its thread, by the kernel's own
/// account (`CLOCK_THREAD_CPUTIME_ID`): means of 16 sleeps, so many that there are `count` sleeps
/// at least. What the kernel does for it in interrupts, and what a cold cache costs later, is
/// charged to no thread: a competitor sees more of it than this.
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
        for way in SleepWay::available() {
            let sleeper = Sleeper::new(way).unwrap().unwrap();
            assert_eq!(oversleep_of(&sleeper, &clock, 1_000, 20).count(), 20, "{way}");
            assert_eq!(sleep_cpu_ns(&sleeper, 1_000, 20).count(), 2, "{way}");
        }
        assert_eq!(oversleep(&clock, 1_000, 20).count(), 20);
    }

    /// Spinning for a time costs that time, to within what the machine takes away; asleep, a thread
    /// is charged for less than all of it.
    #[test]
    fn the_cpu_clock_stands_while_the_thread_sleeps() {
        let sleeper = Sleeper::new(SleepWay::Nanosleep).unwrap().unwrap();
        let times = sleep_cpu_ns(&sleeper, 20_000_000, 1);
        assert!(times.quantile_ns(1.0) < 20_000_000, "{times:?}");
        assert!(times.quantile_ns(0.0) > 0, "{times:?}");
    }
}
