//! Measures the costs of this machine's ways to wait; no figure is built in.

mod sleeps;
mod wakes;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use meantime_hw::{Clock, HwError, cpu};

pub use sleeps::{oversleep, oversleep_of, sleep_cpu_ns};
pub use wakes::{eventfd_wake, futex_wake};

/// A distribution of times in ns.
#[derive(Debug, Clone)]
pub struct Times(Vec<u64>);

impl Times {
    fn new(mut samples: Vec<u64>) -> Self {
        samples.sort_unstable();
        Self(samples)
    }

    /// All samples of several runs.
    pub fn merged(runs: impl IntoIterator<Item = Times>) -> Self {
        Self::new(runs.into_iter().flat_map(|run| run.0).collect())
    }

    /// The `q` (0 to 1) quantile of the samples; 0 without samples.
    pub fn quantile_ns(&self, q: f64) -> u64 {
        let Some(last) = self.0.len().checked_sub(1) else { return 0 };
        self.0[((last as f64 * q.clamp(0.0, 1.0)).round() as usize).min(last)]
    }

    /// The median.
    pub fn median_ns(&self) -> u64 {
        self.quantile_ns(0.5)
    }

    /// The mean.
    pub fn mean_ns(&self) -> f64 {
        self.0.iter().sum::<u64>() as f64 / self.0.len().max(1) as f64
    }

    /// Number of samples.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// The round trip time in ns of a cache line between the calling thread and one on `other_cpu`: the
/// median of batches.
///
/// # Errors
/// Fails if no thread can be started there.
pub fn cacheline_rtt(other_cpu: Option<usize>) -> Result<Times, HwError> {
    #[repr(align(128))]
    struct Line(AtomicU64);
    const BATCHES: u64 = 200;
    const EXCHANGES: u64 = 100;
    const END: u64 = u64::MAX;

    let lines = Arc::new((Line(AtomicU64::new(0)), Line(AtomicU64::new(0))));
    let theirs = Arc::clone(&lines);
    let responder = spawn(other_cpu, move || {
        let mut seen = 0;
        while seen != END {
            let ping = theirs.0.0.load(Ordering::Acquire);
            if ping != seen {
                seen = ping;
                theirs.1.0.store(ping, Ordering::Release);
            } else {
                std::hint::spin_loop();
            }
        }
    })?;
    let clock = Clock::real();
    let mut sequence = 0;
    let mut exchange = || {
        sequence += 1;
        lines.0.0.store(sequence, Ordering::Release);
        while lines.1.0.load(Ordering::Acquire) != sequence {}
    };
    // Warm-up: the thread starts, the core wakes up.
    (0..EXCHANGES * 10).for_each(|_| exchange());
    let samples = (0..BATCHES)
        .map(|_| {
            let start_ns = clock.now_ns();
            (0..EXCHANGES).for_each(|_| exchange());
            (clock.now_ns() - start_ns) / EXCHANGES
        })
        .collect();
    lines.0.0.store(END, Ordering::Release);
    let _ = responder.join();
    Ok(Times::new(samples))
}

/// The time in ns of one clock reading.
pub fn clock_read(clock: &Clock) -> Times {
    readings(clock, Clock::now_ns)
}

/// The time in ns of one serialised clock reading.
pub fn clock_read_in_order(clock: &Clock) -> Times {
    readings(clock, Clock::now_ns_in_order)
}

fn readings(clock: &Clock, read: impl Fn(&Clock) -> u64) -> Times {
    const READINGS: u64 = 1_000;
    let batch = || {
        let start_ns = clock.now_ns();
        for _ in 0..READINGS {
            std::hint::black_box(read(clock));
        }
        (clock.now_ns() - start_ns) / READINGS
    };
    Times::new((0..50).map(|_| batch()).collect())
}

fn spawn(
    on_cpu: Option<usize>,
    body: impl FnOnce() + Send + 'static,
) -> Result<std::thread::JoinHandle<()>, HwError> {
    let bound = move || {
        // If binding fails, the figure is still right for the CPU that the scheduler chooses.
        let _ = on_cpu.map(|cpu| cpu::bind(&[cpu]));
        body();
    };
    meantime_process::thread::spawn("meantime-calib", bound)
        .map_err(|source| HwError::Os { what: "cannot start a thread to calibrate with", source })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_clock_can_be_read() {
        let clock = Clock::real();
        assert!(clock_read(&clock).median_ns() < 10_000);
    }

    #[test]
    fn quantiles() {
        let times = Times::new(vec![5, 1, 3]);
        assert_eq!((times.quantile_ns(0.0), times.median_ns(), times.quantile_ns(1.0)), (1, 3, 5));
        assert_eq!(Times::new(vec![]).median_ns(), 0);
        let merged = Times::merged([times, Times::new(vec![2, 9])]);
        assert_eq!((merged.count(), merged.median_ns(), merged.quantile_ns(1.0)), (5, 3, 9));
    }
}
