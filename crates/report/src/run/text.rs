//! One run in the form of fio's text.

use itertools::Itertools as _;

use super::stats::{DEPTH_LEVELS, DirStats, LatencyStats, RunResult, SLOWEST_ONE_IN, per_second};
use crate::figures::{iops, with_prefix};

/// Returns a run in fio's text form, ending in a newline.
pub fn run_text(run: &RunResult) -> String {
    let failed = run.errors + run.verify_errors;
    let (jobs, settings) = (run.numjobs.max(1), run.settings.words());
    let beside = match &run.beside[..] {
        [] => String::new(),
        others => format!(", beside {}", others.join(", ")),
    };
    let RunResult { job_name, group_id, device, completion, .. } = run;
    let mut out = format!(
        "{job_name}: (groupid={group_id}, jobs={jobs}): err={failed:2}: {device}, \
         {completion}{settings}{beside}\n"
    );
    for (name, stats) in [("read", &run.read), ("write", &run.write), ("trim", &run.trim)] {
        if stats.ios > 0 {
            out += &direction(name, stats, run.runtime_ns);
        }
    }
    if run.flushes.n() > 0 {
        out += &format!("  sync: total={}\n{}", run.flushes.n(), moments("sync", &run.flushes));
    }
    let mut line = |name: &str, text: String| out += &format!("  {name:<13}: {text}\n");
    let (usr, sys) = (run.usr_cpu_percent, run.sys_cpu_percent);
    let (ctx, majf, minf) = (run.ctx_switches, run.major_faults, run.minor_faults);
    line("cpu", format!("usr={usr:.2}%, sys={sys:.2}%, ctx={ctx}, majf={majf}, minf={minf}"));
    if let Some(uj) = run.energy_uj_per_io {
        line("energy", format!("{uj:.2} uJ per I/O, of the processors as a whole"));
    }
    let depths = DEPTH_LEVELS.iter().zip(run.iodepth_percents());
    line("IO depths", depths.map(|(name, percent)| format!("{name}={percent:.1}%")).join(", "));
    if let Some(floor_ns) = run.floor_ns {
        let ratio = run.floor_ratio.map(|ratio| format!(", ratio={ratio:.2}"));
        let spread = run.floor_ratio_spread.map(|(low, high)| format!(" ({low:.2} to {high:.2})"));
        let [ratio, spread] = [ratio, spread].map(Option::unwrap_or_default);
        line("floor", format!("{floor_ns:.0} nsec{ratio}{spread}"));
    }
    for (name, figure) in &run.extra {
        // A count has no decimals.
        let digits = if figure.fract() == 0.0 { 0 } else { 2 };
        line(name, format!("{figure:.digits$}"));
    }
    if failed > 0 {
        line("errors", format!("{} failed, {} verify", run.errors, run.verify_errors));
    }
    out
}

fn direction(name: &str, stats: &DirStats, runtime_ns: u64) -> String {
    let iops = iops(per_second(stats.ios, runtime_ns));
    let rate = per_second(stats.bytes, runtime_ns);
    let (binary, decimal) = (binary_bytes(rate), with_prefix(rate, 1000.0, &DECIMAL));
    let (bytes, ms) = (binary_bytes(stats.bytes as f64), runtime_ns / 1_000_000);
    let mut out = format!("  {name}: IOPS={iops}, BW={binary}/s ({decimal}/s)({bytes}/{ms}msec)\n");
    for (name, latency) in [("slat", &stats.slat), ("clat", &stats.clat), (" lat", &stats.lat)] {
        if latency.n() > 0 {
            out += &moments(name, latency);
        }
    }
    if stats.clat.n() > 0 {
        out += &percentiles(&stats.clat);
    }
    if let Some(ns) = stats.total().slowest_1_in(SLOWEST_ONE_IN) {
        let (unit, unit_ns) = unit_of(stats.total());
        out += &format!("    slowest 1 in 6,000 ({unit}): {}\n", scaled(ns, unit_ns));
    }
    out
}

fn moments(name: &str, stats: &LatencyStats) -> String {
    let (unit, unit_ns) = unit_of(stats);
    let [min, max] = [stats.min_ns(), stats.max_ns()].map(|ns| scaled(ns, unit_ns));
    let [mean, deviation] = [stats.mean_ns(), stats.stddev_ns()].map(|ns| ns / unit_ns);
    format!("    {name} ({unit}): min={min}, max={max}, avg={mean:.2}, stdev={deviation:.2}\n")
}

fn percentiles(stats: &LatencyStats) -> String {
    let (unit, unit_ns) = unit_of(stats);
    let all = stats.percentiles_ns();
    let all: Vec<_> = all.into_iter().map(|(at, ns)| (at, scaled(ns, unit_ns))).collect();
    let width = all.iter().map(|(_, ns)| ns.len()).max().unwrap_or(0);
    let cell = |(at, ns): &(f64, String)| format!("{at:5.2}th=[{ns:>width$}]");
    let rows = all.chunks(4).map(|row| row.iter().map(cell).join(", "));
    format!("    clat percentiles ({unit}):\n     | {}\n", rows.collect_vec().join(",\n     | "))
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

const DECIMAL: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];

fn binary_bytes(bytes: f64) -> String {
    with_prefix(bytes, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"])
}
