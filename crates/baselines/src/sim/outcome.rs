//! Results of a simulated run.

use meantime_completion::GapCounters;

/// One I/O of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    /// From the beginning of the submission until the caller has the result, in ns.
    pub latency_ns: u64,
    /// Planned sleep in the wait in which the I/O ended, in ns.
    pub slept_ns: u64,
}

/// The results of a run. Every figure of a run without I/Os is 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    series: Vec<Seen>,
    sorted_ns: Vec<u64>,
    elapsed_ns: u64,
    cpu_ns: u64,
    counters: GapCounters,
}

impl Outcome {
    pub(super) fn new(
        series: Vec<Seen>,
        elapsed_ns: u64,
        cpu_ns: u64,
        counters: GapCounters,
    ) -> Self {
        let mut sorted_ns: Vec<u64> = series.iter().map(|seen| seen.latency_ns).collect();
        sorted_ns.sort_unstable();
        Self { series, sorted_ns, elapsed_ns, cpu_ns, counters }
    }

    /// Returns each I/O, in the order of submission.
    pub fn series(&self) -> &[Seen] {
        &self.series
    }

    /// Returns the number of I/Os.
    pub fn ios(&self) -> usize {
        self.series.len()
    }

    /// Returns the duration of the run in ns.
    pub fn elapsed_ns(&self) -> u64 {
        self.elapsed_ns
    }

    /// Returns the counters of sleeps and fall-backs.
    pub fn counters(&self) -> GapCounters {
        self.counters
    }

    /// Returns the mean latency in ns.
    pub fn mean_ns(&self) -> f64 {
        ratio(self.sorted_ns.iter().sum::<u64>() as f64, self.ios() as f64)
    }

    /// Returns the latency in ns that the fraction `q` (0 to 1) of the I/Os does not exceed.
    pub fn quantile_ns(&self, q: f64) -> u64 {
        let rank = (self.sorted_ns.len() as f64 * q.clamp(0.0, 1.0)).ceil() as usize;
        self.sorted_ns.get(rank.saturating_sub(1)).copied().unwrap_or(0)
    }

    /// Returns the latency in ns that one I/O in 6,000 exceeds.
    pub fn slowest_in_6000_ns(&self) -> u64 {
        self.quantile_ns(1.0 - 1.0 / 6_000.0)
    }

    /// Returns the longest latency in ns.
    pub fn max_ns(&self) -> u64 {
        self.sorted_ns.last().copied().unwrap_or(0)
    }

    /// Returns the share of I/Os that took longer than `ns`.
    pub fn share_above(&self, ns: u64) -> f64 {
        let above =
            self.sorted_ns.len() - self.sorted_ns.partition_point(|latency_ns| *latency_ns <= ns);
        ratio(above as f64, self.ios() as f64)
    }

    /// Returns the mean CPU of an I/O in ns.
    pub fn cpu_ns_per_io(&self) -> f64 {
        ratio(self.cpu_ns as f64, self.ios() as f64)
    }

    /// Returns the used share of a CPU in percent.
    pub fn cpu_percent(&self) -> f64 {
        100.0 * ratio(self.cpu_ns as f64, self.elapsed_ns as f64)
    }

    /// Returns the share of the CPU that is left to a competing program, in percent.
    pub fn competitor_percent(&self) -> f64 {
        (100.0 - self.cpu_percent()).max(0.0)
    }

    /// Returns the I/Os per second.
    pub fn iops(&self) -> f64 {
        1e9 * ratio(self.ios() as f64, self.elapsed_ns as f64)
    }

    /// Returns the I/Os per second for each percent of a CPU.
    pub fn iops_per_cpu_percent(&self) -> f64 {
        ratio(self.iops(), self.cpu_percent())
    }

    /// Returns the share of sleeps during which the completion arrived.
    pub fn oversleep_rate(&self) -> f64 {
        ratio(self.counters.oversleeps as f64, self.counters.sleeps as f64)
    }
}

fn ratio(a: f64, b: f64) -> f64 {
    if b == 0.0 { 0.0 } else { a / b }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_by_hand() {
        let series = (1..=1_000).rev().map(|ns| Seen { latency_ns: ns, slept_ns: 0 }).collect();
        let counters = GapCounters { sleeps: 8, oversleeps: 2, ..GapCounters::default() };
        let outcome = Outcome::new(series, 1_000_000, 250_000, counters);
        assert_eq!((outcome.quantile_ns(0.5), outcome.quantile_ns(0.99)), (500, 990));
        assert_eq!((outcome.quantile_ns(0.0), outcome.max_ns()), (1, 1_000));
        assert_eq!(outcome.mean_ns(), 500.5);
        assert_eq!((outcome.share_above(990), outcome.share_above(0)), (0.01, 1.0));
        assert_eq!((outcome.cpu_percent(), outcome.competitor_percent()), (25.0, 75.0));
        assert_eq!((outcome.cpu_ns_per_io(), outcome.iops()), (250.0, 1e6));
        assert_eq!((outcome.iops_per_cpu_percent(), outcome.oversleep_rate()), (4e4, 0.25));
    }

    #[test]
    fn nothing_is_zero() {
        let outcome = Outcome::new(Vec::new(), 0, 0, GapCounters::default());
        assert_eq!((outcome.mean_ns(), outcome.max_ns(), outcome.cpu_percent()), (0.0, 0, 0.0));
        assert_eq!((outcome.share_above(1), outcome.iops_per_cpu_percent()), (0.0, 0.0));
    }
}
