//! Latency statistics and the result of one run.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// fio's default percentile list.
pub(crate) const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];
/// Returns whether `ios` I/Os have such a percentile, that is, whether at least one is beyond it.
pub(crate) fn is_known(ios: u64, percentile: f64) -> bool {
    // Half an I/O of tolerance, since 100 - 99.9 is not exactly 0.1.
    (ios as f64 + 0.5) * (100.0 - percentile) >= 100.0
}

/// Le Moal's "slowest 1 in 6,000".
pub const SLOWEST_ONE_IN: u64 = 6000;
/// The longest latency that a histogram distinguishes from longer ones. Minimum, maximum and mean
/// are exact beyond it.
pub(crate) const LATENCY_MAX_NS: u64 = 60_000_000_000;
/// fio's depth buckets: up to 1, 2, 4, 8, 16, 32, and more.
pub(crate) const DEPTH_LEVELS: [&str; 7] = ["1", "2", "4", "8", "16", "32", ">=64"];

/// Latencies in ns: an HDR histogram with three significant digits, and exact minimum, maximum,
/// mean and deviation.
///
/// Recording never fails, panics or allocates: `new` allocates all 220 KB at once.
#[derive(Debug, Clone)]
pub struct LatencyStats {
    histogram: Histogram<u64>,
    min_ns: u64,
    max_ns: u64,
    sum_ns: u128,
    sum_of_squares: u128,
}

impl Default for LatencyStats {
    fn default() -> Self {
        Self {
            // Constant arguments are within the documented bounds; a test covers them.
            histogram: Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3)
                .expect("constant histogram bounds are valid"),
            min_ns: u64::MAX,
            max_ns: 0,
            sum_ns: 0,
            sum_of_squares: 0,
        }
    }
}

impl LatencyStats {
    /// Records one latency.
    #[inline]
    pub fn record(&mut self, latency_ns: u64) {
        self.histogram.saturating_record(latency_ns);
        self.min_ns = self.min_ns.min(latency_ns);
        self.max_ns = self.max_ns.max(latency_ns);
        // Neither sum can overflow: the first needs 2^64 I/Os of 2^32 s, the second 2^32 of them.
        self.sum_ns = self.sum_ns.wrapping_add(u128::from(latency_ns));
        let square = u128::from(latency_ns) * u128::from(latency_ns);
        self.sum_of_squares = self.sum_of_squares.wrapping_add(square);
    }

    /// Adds what `other` recorded.
    pub fn merge(&mut self, other: &LatencyStats) {
        // Both have the same bounds, so nothing is out of range.
        let added = self.histogram.add(&other.histogram);
        debug_assert!(added.is_ok());
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.sum_of_squares = self.sum_of_squares.saturating_add(other.sum_of_squares);
    }

    /// Discards everything, as after the ramp time.
    pub fn reset(&mut self) {
        self.histogram.reset();
        (self.min_ns, self.max_ns, self.sum_ns, self.sum_of_squares) = (u64::MAX, 0, 0, 0);
    }

    /// Returns the number of recorded latencies.
    pub fn n(&self) -> u64 {
        self.histogram.len()
    }

    /// Returns the exact minimum, or 0 when nothing was recorded.
    pub fn min_ns(&self) -> u64 {
        if self.n() == 0 { 0 } else { self.min_ns }
    }

    /// Returns the exact maximum, or 0 when nothing was recorded.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// Returns the mean, or 0 when nothing was recorded.
    pub fn mean_ns(&self) -> f64 {
        if self.n() == 0 { 0.0 } else { self.sum_ns as f64 / self.n() as f64 }
    }

    /// Returns the standard deviation of the sample (divided by n − 1, as in fio), or 0 with fewer
    /// than two latencies.
    pub fn stddev_ns(&self) -> f64 {
        if self.n() < 2 {
            return 0.0;
        }
        let n = self.n() as f64;
        let mean_ns = self.mean_ns();
        let variance =
            (self.sum_of_squares as f64 / n - mean_ns * mean_ns).max(0.0) * n / (n - 1.0);
        variance.sqrt()
    }

    /// Returns the latency that `percentile` percent of the I/Os did not exceed, or 0 when nothing
    /// was recorded.
    pub fn percentile_ns(&self, percentile: f64) -> u64 {
        self.quantile_ns(percentile / 100.0)
    }

    /// Returns fio's default percentiles with their latencies. The list is empty when nothing was
    /// recorded.
    pub fn percentiles_ns(&self) -> Vec<(f64, u64)> {
        let known = PERCENTILES.iter().filter(|_| self.n() > 0);
        known.map(|percentile| (*percentile, self.percentile_ns(*percentile))).collect()
    }

    /// Returns the latency that at least one in `of` I/Os reached or exceeded, or `None` with fewer
    /// than `of` recorded. It is at most that of a higher percentile.
    pub fn slowest_1_in(&self, of: u64) -> Option<u64> {
        let slow = (of > 0 && self.n() >= of).then(|| self.n().div_ceil(of))?;
        // Half a rank below, so that rounding cannot reach the next.
        let n = self.n() as f64;
        Some(self.quantile_ns((n - slow as f64 + 0.5) / n))
    }

    /// Returns the recorded latencies in ascending order: (highest latency of the step in ns,
    /// count).
    pub fn steps(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let highest = |ns| self.histogram.highest_equivalent(ns);
        self.histogram
            .iter_recorded()
            .map(move |step| (highest(step.value_iterated_to()), step.count_at_value()))
    }

    fn quantile_ns(&self, quantile: f64) -> u64 {
        if self.n() == 0 {
            return 0;
        }
        let ns = self.histogram.value_at_quantile(quantile);
        // A saturated value is at least as long as the histogram's end, and at most the maximum.
        ns.clamp(self.min_ns.min(LATENCY_MAX_NS), self.max_ns)
    }
}

/// The bytes and I/Os of one direction in samples of equal width over a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rates {
    /// The width of a sample.
    pub width_ns: u64,
    /// I/Os and bytes of each whole sample, from the beginning.
    pub samples: Vec<(u64, u64)>,
}

/// Statistics of one direction.
#[derive(Debug, Clone, Default)]
pub struct DirStats {
    /// I/Os completed.
    pub ios: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Submission latency: from the call to the doorbell.
    pub slat: LatencyStats,
    /// Completion latency: from the doorbell to having seen the CQE.
    pub clat: LatencyStats,
    /// The sum of both, which is what the caller sees.
    pub lat: LatencyStats,
    /// The rates over time of all threads together.
    pub rates: Rates,
}

impl DirStats {
    /// Adds the statistics of another thread, but for the rates.
    pub fn merge(&mut self, other: &DirStats) {
        self.ios += other.ios;
        self.bytes += other.bytes;
        self.slat.merge(&other.slat);
        self.clat.merge(&other.clat);
        self.lat.merge(&other.lat);
    }

    /// Returns the total latency, or the completion latency if only that was recorded.
    pub fn total(&self) -> &LatencyStats {
        if self.lat.n() > 0 { &self.lat } else { &self.clat }
    }
}

/// Latencies of an interval of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SeriesPoint {
    /// Start of the interval in the run's measured time.
    pub at_ms: u64,
    /// I/Os completed in the interval.
    pub ios: u64,
    /// Their mean latency.
    pub mean_ns: f64,
    /// Their 99th percentile.
    pub p99_ns: u64,
    /// Their maximum.
    pub max_ns: u64,
}

/// The figures of one turn of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// The mean latency, which is 0 without I/O.
    pub mean_ns: f64,
    /// The median latency.
    pub p50_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// I/Os per second.
    pub iops: f64,
    /// User and system time over wall time, in percent.
    #[serde(rename = "cpu")]
    pub cpu_percent: f64,
}

impl Turn {
    /// Creates the figures of a turn of `wall_ns`, in which all threads used `cpu_ns`.
    pub fn new(latency: &LatencyStats, wall_ns: u64, cpu_ns: u64) -> Self {
        Self {
            mean_ns: latency.mean_ns(),
            p50_ns: latency.percentile_ns(50.0),
            p99_ns: latency.percentile_ns(99.0),
            iops: per_second(latency.n(), wall_ns),
            cpu_percent: cpu_ns as f64 * 100.0 / wall_ns.max(1) as f64,
        }
    }
}

/// Conditions of the threads besides the policy. A setting that the job lacks is `None` or 0.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Their scheduling class.
    pub sched: Option<String>,
    /// The limit on idling in force, in µs, or `none`.
    pub pm_qos: Option<String>,
    /// Number of programs that only use the CPU and ran on the same one.
    pub hogs: u32,
}

impl Settings {
    /// Returns the settings as text, each after a comma.
    pub fn words(&self) -> String {
        let pm_qos = self.pm_qos.as_deref().map(|us| match us {
            "none" => "no PM QoS".to_owned(),
            us => format!("PM QoS {us}"),
        });
        let plural = if self.hogs == 1 { "" } else { "s" };
        let hogs = (self.hogs > 0).then(|| format!("{} hog{plural}", self.hogs));
        let words = [self.sched.clone(), pm_qos, hogs];
        words.into_iter().flatten().map(|word| format!(", {word}")).collect()
    }
}

/// The result of one job on one device with one policy.
#[derive(Debug, Clone, Default)]
pub struct RunResult {
    /// The job's name.
    pub job_name: String,
    /// The values of a sweep that the job has, by key.
    pub sweep: Vec<(String, String)>,
    /// The reporting group, from 0.
    pub group_id: u32,
    /// Index among the job's devices and policies, from 0, if other jobs ran at the same time.
    pub cell: Option<usize>,
    /// The jobs that ran at the same time, each with its policy.
    pub beside: Vec<String>,
    /// The device's URI.
    pub device: String,
    /// The storage below the device, in a few words.
    pub medium: String,
    /// The completion policy.
    pub completion: String,
    /// The conditions of the threads.
    pub settings: Settings,
    /// The job's options as set, for `job options`.
    pub options: Vec<(String, String)>,
    /// Queue depth asked for.
    pub iodepth: u32,
    /// Threads whose figures are added up here (0 counts as 1).
    pub numjobs: u32,
    /// I/Os by the depth at their submission, in fio's steps, or `None` when it was not counted.
    pub iodepth_levels: Option<[u64; 7]>,
    /// Submissions and completions by the number of I/Os in each.
    pub batch_levels: [[u64; 7]; 2],
    /// Reads.
    pub read: DirStats,
    /// Writes.
    pub write: DirStats,
    /// Trims.
    pub trim: DirStats,
    /// Flushes.
    pub flushes: LatencyStats,
    /// Latency over time.
    pub series: Vec<SeriesPoint>,
    /// The figures of each turn.
    pub turns: Vec<Turn>,
    /// Wall time of the measured part.
    pub runtime_ns: u64,
    /// User time over wall time, in percent.
    pub usr_cpu_percent: f64,
    /// System time over wall time, in percent.
    pub sys_cpu_percent: f64,
    /// Context switches.
    pub ctx_switches: u64,
    /// Page faults that read from a disk.
    pub major_faults: u64,
    /// Other page faults.
    pub minor_faults: u64,
    /// The share of its lone speed that a program that competed for the CPU kept, in percent.
    pub competitor_percent: Option<f64>,
    /// Energy of the processors for each I/O in µJ, including everything else that ran meanwhile.
    pub energy_uj_per_io: Option<f64>,
    /// The floor's median, when measured.
    pub floor_ns: Option<f64>,
    /// Median of the pairs' ratio to the floor, when measured.
    pub floor_ratio: Option<f64>,
    /// Minimum and maximum of the ratio, or other quantiles that the caller chooses.
    pub floor_ratio_spread: Option<(f64, f64)>,
    /// I/Os that failed.
    pub errors: u64,
    /// Blocks that differed from what was written.
    pub verify_errors: u64,
    /// Further figures, by name with unit.
    pub extra: Vec<(String, f64)>,
}

impl RunResult {
    /// Returns reads and writes together.
    pub fn latency(&self) -> LatencyStats {
        let mut both = self.read.total().clone();
        both.merge(self.write.total());
        both.merge(self.trim.total());
        both
    }

    /// Returns I/Os per second of all directions together.
    pub fn iops(&self) -> f64 {
        per_second(self.read.ios + self.write.ios + self.trim.ios, self.runtime_ns)
    }

    /// Returns user and system time over wall time, in percent.
    pub fn cpu_percent(&self) -> f64 {
        self.usr_cpu_percent + self.sys_cpu_percent
    }

    /// Returns the share of I/Os at each of [`DEPTH_LEVELS`], in percent. If depths were not
    /// counted, all I/Os are at the requested depth.
    pub(crate) fn iodepth_percents(&self) -> [f64; 7] {
        let mut all = [0; 7];
        all[depth_level(self.iodepth)] = 1;
        percents(self.iodepth_levels.filter(|levels| *levels != [0; 7]).unwrap_or(all))
    }
}

/// Returns the index of a depth in fio's steps: 1, 2–3, 4–7, 8–15, 16–31, 32–63, and 64 or more.
pub fn depth_level(depth: u32) -> usize {
    depth.max(1).ilog2().min(6) as usize
}

/// Returns the index among fio's steps of the number of I/Os that were submitted or completed at
/// once: 0, up to 4, 8, 16, 32, 64, more.
pub fn batch_level(ios: u64) -> usize {
    match ios {
        0 => 0,
        1..=4 => 1,
        5..=64 => (ios - 1).ilog2() as usize,
        _ => 6,
    }
}

/// Returns the share of each count, in percent.
pub(crate) fn percents(counts: [u64; 7]) -> [f64; 7] {
    let total: u64 = counts.iter().sum();
    counts.map(|count| if total == 0 { 0.0 } else { count as f64 * 100.0 / total as f64 })
}

/// Returns `count` per second over `ns`, or 0 when no time has passed.
pub(crate) fn per_second(count: u64, ns: u64) -> f64 {
    if ns == 0 { 0.0 } else { count as f64 * 1e9 / ns as f64 }
}
