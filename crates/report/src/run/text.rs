//! One run in the form of fio's text.

use askama::Template;
use itertools::Itertools as _;

use super::stats::{DEPTH_LEVELS, DirStats, LatencyStats, RunResult, SLOWEST_ONE_IN, per_second};
use crate::figures::{iops, with_prefix};
use crate::view;

#[derive(Template)]
#[template(path = "run.txt", escape = "none")]
struct Text<'a> {
    run: &'a RunResult,
    failed: u64,
    directions: Vec<(&'static str, &'a DirStats)>,
    depths: String,
}

/// Returns a run in fio's text form, ending in a newline.
pub fn run_text(run: &RunResult) -> String {
    let directions = [("read", &run.read), ("write", &run.write), ("trim", &run.trim)];
    let depths = DEPTH_LEVELS.iter().zip(run.iodepth_percents());
    let text = Text {
        run,
        failed: run.errors + run.verify_errors,
        directions: directions.into_iter().filter(|(_, stats)| stats.ios > 0).collect(),
        depths: depths.map(|(name, percent)| format!("{name}={percent:.1}%")).join(", "),
    };
    view::render(&text) + "\n"
}

impl Text<'_> {
    fn rates(&self, stats: &DirStats) -> String {
        let runtime_ns = self.run.runtime_ns;
        let iops = iops(per_second(stats.ios, runtime_ns));
        let rate = per_second(stats.bytes, runtime_ns);
        let decimal = with_prefix(rate, 1000.0, &["B", "kB", "MB", "GB", "TB"]);
        let (bytes, ms) = (binary_bytes(stats.bytes as f64), runtime_ns / 1_000_000);
        format!("IOPS={iops}, BW={}/s ({decimal}/s)({bytes}/{ms}msec)", binary_bytes(rate))
    }
}

impl LatencyStats {
    fn moments(&self) -> String {
        let (unit, unit_ns) = unit_of(self);
        let [min, max] = [self.min_ns(), self.max_ns()].map(|ns| scaled(ns, unit_ns));
        let [mean, deviation] = [self.mean_ns(), self.stddev_ns()].map(|ns| ns / unit_ns);
        format!("({unit}): min={min}, max={max}, avg={mean:.2}, stdev={deviation:.2}")
    }

    fn percentiles(&self) -> String {
        let (unit, unit_ns) = unit_of(self);
        let all = self.percentiles_ns();
        let all: Vec<_> = all.into_iter().map(|(at, ns)| (at, scaled(ns, unit_ns))).collect();
        let width = all.iter().map(|(_, ns)| ns.len()).max().unwrap_or(0);
        let cell = |(at, ns): &(f64, String)| format!("{at:5.2}th=[{ns:>width$}]");
        let mut rows = all.chunks(4).map(|row| row.iter().map(cell).join(", "));
        format!("({unit}):\n     | {}", rows.join(",\n     | "))
    }

    fn slowest(&self) -> Option<String> {
        let (unit, unit_ns) = unit_of(self);
        Some(format!("({unit}): {}", scaled(self.slowest_1_in(SLOWEST_ONE_IN)?, unit_ns)))
    }
}

/// Returns a suitable unit for these latencies, by their mean.
fn unit_of(stats: &LatencyStats) -> (&'static str, f64) {
    match stats.mean_ns() {
        mean if mean >= 10_000_000.0 => ("msec", 1e6),
        mean if mean >= 10_000.0 => ("usec", 1e3),
        _ => ("nsec", 1.0),
    }
}

fn scaled(ns: u64, unit_ns: f64) -> String {
    if unit_ns == 1.0 { ns.to_string() } else { format!("{:.1}", ns as f64 / unit_ns) }
}

fn binary_bytes(bytes: f64) -> String {
    with_prefix(bytes, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"])
}
