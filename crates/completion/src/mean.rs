//! Half the mean, as Linux 4.10 computed it.

use super::class::Class;
use super::rule::{Choice, Rule, Sample};

/// Lifetime of one mean: Linux 4.10's statistics window.
const WINDOW_NS: u64 = 100_000_000;

/// The mean device time of all I/Os, regardless of size, refreshed every 100 ms.
///
/// Before the first window has closed there is no mean and no sleep, as in Linux. Time overslept
/// counts as device time, as in Linux.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HalfMean {
    mean_ns: u64,
    sum_ns: u64,
    count: u64,
    window_start_ns: u64,
}

impl HalfMean {
    /// Records an I/O that was found complete at `now_ns`.
    #[inline]
    pub(super) fn record(&mut self, device_ns: u64, now_ns: u64) {
        self.sum_ns = self.sum_ns.saturating_add(device_ns);
        self.count += 1;
        if self.count == 1 {
            self.window_start_ns = now_ns;
        } else if now_ns.saturating_sub(self.window_start_ns) >= WINDOW_NS {
            self.mean_ns = self.sum_ns / self.count;
            self.sum_ns = 0;
            self.count = 0;
        }
    }

    /// The time to sleep: half the mean of the last window, rounded up; 0 while there is none.
    #[inline]
    pub(super) fn sleep_ns(&self) -> u64 {
        self.mean_ns.div_ceil(2)
    }

    /// The mean of the last window; 0 while there is none.
    pub(super) fn mean_ns(&self) -> u64 {
        self.mean_ns
    }
}

impl Rule for HalfMean {
    #[inline]
    fn choose(&mut self, _: Class) -> Choice {
        Choice::Sleep(self.sleep_ns())
    }

    #[inline]
    fn record(&mut self, sample: &Sample) {
        HalfMean::record(self, sample.device_ns, sample.now_ns);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// By hand: I/Os of 10 µs at 0, 50 and 100 ms close a window with mean 10 µs; then 20 µs ones
    /// at 150, 200 and 250 ms.
    #[test]
    fn a_window_closes_after_100_ms() {
        let mut mean = HalfMean::default();
        mean.record(10_000, 1_000_000);
        mean.record(10_000, 51_000_000);
        assert_eq!(mean.sleep_ns(), 0);
        mean.record(10_001, 101_000_000);
        assert_eq!(mean.mean_ns(), 10_000);
        assert_eq!(mean.sleep_ns(), 5_000);
        mean.record(20_000, 151_000_000);
        mean.record(20_000, 201_000_000);
        assert_eq!(mean.sleep_ns(), 5_000);
        mean.record(20_000, 251_000_000);
        assert_eq!(mean.sleep_ns(), 10_000);
    }
}
