//! Half the minimum, as in io_uring.

use meantime_completion::Class;
use meantime_completion::rule::{Choice, Expected, Rule, Sample};

/// Half the shortest run time ever seen, as io_uring's `HYBRID_IOPOLL` (Linux 6.13) keeps it for a
/// ring. A run time is the time of an I/O less the sleep that was planned for it. So each sleep
/// makes the next one shorter, and the minimum never rises.
#[derive(Debug, Clone, Copy)]
pub struct HalfMin {
    min_ns: u64,
}

impl Default for HalfMin {
    fn default() -> Self {
        Self { min_ns: u64::MAX }
    }
}

impl HalfMin {
    /// Records an I/O that took `device_ns`, of which `slept_ns` were planned as sleep.
    #[inline]
    pub fn record(&mut self, device_ns: u64, slept_ns: u64) {
        self.min_ns = self.min_ns.min(device_ns.saturating_sub(slept_ns));
    }

    /// Returns the sleep in ns, which is 0 before the first I/O.
    #[inline]
    pub fn sleep_ns(&self) -> u64 {
        if self.min_ns == u64::MAX { 0 } else { self.min_ns / 2 }
    }
}

impl Rule for HalfMin {
    #[inline]
    fn choose(&mut self, _: Class) -> Choice {
        Choice::Sleep(self.sleep_ns())
    }

    #[inline]
    fn record(&mut self, sample: &Sample) {
        HalfMin::record(self, sample.device_ns, sample.slept_ns);
    }

    fn expected(&self) -> Expected {
        // The rule sleeps for half of the minimum.
        Expected { median_ns: 0, low_ns: 2 * self.sleep_ns() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: 10 µs without a sleep give a sleep of 5. The next 10 less that leave 5, which gives
    /// 2.5. A slower I/O changes nothing.
    #[test]
    fn half_the_shortest_run_time_only_falls() {
        let mut min = HalfMin::default();
        assert_eq!(min.sleep_ns(), 0);
        min.record(10_000, 0);
        assert_eq!(min.sleep_ns(), 5_000);
        min.record(10_000, 5_000);
        assert_eq!(min.sleep_ns(), 2_500);
        min.record(80_000, 2_500);
        assert_eq!(min.sleep_ns(), 2_500);
    }
}
