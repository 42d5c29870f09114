//! One run in the form of fio's text.

use std::fmt::Write as _;

use crate::figures::{iops, with_prefix};

use super::stats::{DEPTH_LEVELS, DirStats, LatencyStats, RunResult, SLOWEST_ONE_IN, per_second};

/// Returns a run in fio's text form, ending in a newline.
pub fn run_text(result: &RunResult) -> String {
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = write_run(&mut out, result);
    out
}

fn write_run(out: &mut String, result: &RunResult) -> std::fmt::Result {
    let RunResult { job_name, group_id, device, completion, errors, verify_errors, .. } = result;
    let failed = errors + verify_errors;
    let (jobs, settings) = (result.numjobs.max(1), result.settings.words());
    let beside = match &result.beside[..] {
        [] => String::new(),
        others => format!(", beside {}", others.join(", ")),
    };
    writeln!(
        out,
        "{job_name}: (groupid={group_id}, jobs={jobs}): err={failed:2}: {device}, \
         {completion}{settings}{beside}"
    )?;
    for (name, stats) in [("read", &result.read), ("write", &result.write), ("trim", &result.trim)]
    {
        if stats.ios > 0 {
            write_direction(out, name, stats, result.runtime_ns)?;
        }
    }
    if result.flushes.n() > 0 {
        writeln!(out, "  sync: total={}", result.flushes.n())?;
        write_moments(out, "sync", &result.flushes)?;
    }
    writeln!(
        out,
        "  cpu          : usr={:.2}%, sys={:.2}%, ctx={}, majf={}, minf={}",
        result.usr_cpu_percent,
        result.sys_cpu_percent,
        result.ctx_switches,
        result.major_faults,
        result.minor_faults
    )?;
    if let Some(uj) = result.energy_uj_per_io {
        writeln!(out, "  energy       : {uj:.2} uJ per I/O, of the processors as a whole")?;
    }
    let depths = DEPTH_LEVELS.iter().zip(result.iodepth_percents());
    let depths: Vec<_> = depths.map(|(name, percent)| format!("{name}={percent:.1}%")).collect();
    writeln!(out, "  IO depths    : {}", depths.join(", "))?;
    if let Some(floor_ns) = result.floor_ns {
        write!(out, "  floor        : {floor_ns:.0} nsec")?;
        if let Some(ratio) = result.floor_ratio {
            write!(out, ", ratio={ratio:.2}")?;
        }
        if let Some((least, most)) = result.floor_ratio_spread {
            write!(out, " ({least:.2} to {most:.2})")?;
        }
        writeln!(out)?;
    }
    for (name, figure) in &result.extra {
        // A count has no decimals.
        let digits = if figure.fract() == 0.0 { 0 } else { 2 };
        writeln!(out, "  {name:<13}: {figure:.digits$}")?;
    }
    if failed > 0 {
        writeln!(out, "  errors       : {errors} failed, {verify_errors} verify")?;
    }
    Ok(())
}

fn write_direction(
    out: &mut String,
    name: &str,
    stats: &DirStats,
    runtime_ns: u64,
) -> std::fmt::Result {
    let bytes_per_second = per_second(stats.bytes, runtime_ns);
    writeln!(
        out,
        "  {name}: IOPS={}, BW={}/s ({}/s)({}/{}msec)",
        iops(per_second(stats.ios, runtime_ns)),
        binary_bytes(bytes_per_second),
        decimal_bytes(bytes_per_second),
        binary_bytes(stats.bytes as f64),
        runtime_ns / 1_000_000
    )?;
    for (name, latency) in [("slat", &stats.slat), ("clat", &stats.clat), (" lat", &stats.lat)] {
        if latency.n() > 0 {
            write_moments(out, name, latency)?;
        }
    }
    if stats.clat.n() > 0 {
        write_percentiles(out, &stats.clat)?;
    }
    if let Some(ns) = stats.total().slowest_1_in(SLOWEST_ONE_IN) {
        let (unit, unit_ns) = unit_of(stats.total());
        writeln!(out, "    slowest 1 in 6,000 ({unit}): {}", scaled(ns, unit_ns))?;
    }
    Ok(())
}

fn write_moments(out: &mut String, name: &str, stats: &LatencyStats) -> std::fmt::Result {
    let (unit, unit_ns) = unit_of(stats);
    let [min, max] = [stats.min_ns(), stats.max_ns()].map(|ns| scaled(ns, unit_ns));
    let [mean, deviation] = [stats.mean_ns(), stats.stddev_ns()].map(|ns| ns / unit_ns);
    writeln!(out, "    {name} ({unit}): min={min}, max={max}, avg={mean:.2}, stdev={deviation:.2}")
}

fn write_percentiles(out: &mut String, stats: &LatencyStats) -> std::fmt::Result {
    let (unit, unit_ns) = unit_of(stats);
    let all: Vec<_> = stats
        .percentiles_ns()
        .into_iter()
        .map(|(at, ns)| (format!("{at:5.2}th"), scaled(ns, unit_ns)))
        .collect();
    let width = all.iter().map(|(_, ns)| ns.len()).max().unwrap_or(0);
    writeln!(out, "    clat percentiles ({unit}):")?;
    let rows = all.chunks(4);
    let last = rows.len().saturating_sub(1);
    for (at, row) in rows.enumerate() {
        let cells: Vec<_> = row.iter().map(|(name, ns)| format!("{name}=[{ns:>width$}]")).collect();
        writeln!(out, "     | {}{}", cells.join(", "), if at == last { "" } else { "," })?;
    }
    Ok(())
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

fn decimal_bytes(bytes: f64) -> String {
    with_prefix(bytes, 1000.0, &["B", "kB", "MB", "GB", "TB"])
}
