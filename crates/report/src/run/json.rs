//! fio's JSON (`fio --output-format=json`, version 3.33), with our own additions.
//!
//! Additions:
//! - `job options` has `device`, `completion`, `sched`, `pm_qos` and `hog`.
//! - Each job has `errors`, `verify_errors`, and `medium` (the storage below the device).
//! - `series` is latency over time: at most 500 windows, each with its start in `at_ms`.
//! - `turns` has `mean_ns`, `p50_ns`, `p99_ns`, `iops` and `cpu` (in percent) of each turn; left out
//!   for jobs that are reported with others.
//! - `cell` and `beside`: for jobs that ran at the same time, the index of this job's device and
//!   policy, and the other jobs.
//! - `sweep`: the values of a sweep that the job has, by fio's key; left out without a sweep.
//! - `slowest_1_in_6000_ns`, also per direction; left out with fewer I/Os.
//! - `competitor_percent`, `floor_ns`, `floor_ratio` and `floor_ratio_spread` if measured, `extra`
//!   if there is any.
//! - `meantime` is beside `jobs`.
//! - `bw_min`, `iops_min` and their kind are of samples of 512 ms in the job's measured time; longer
//!   ones in runs above four minutes. fio's are of 500 ms.
//! - `bins` (the whole histogram: highest latency of a step in ns, count) are those of fio's json+, in
//!   `lat_ns` too.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};
use time::OffsetDateTime;

use super::stats::{
    DEPTH_LEVELS, DirStats, LatencyStats, Rates, RunResult, SLOWEST_ONE_IN, Settings, per_second,
    percents,
};

/// fio's steps for the number of I/Os that were submitted or completed at once.
const BATCH_LEVELS: [&str; 7] = ["0", "4", "8", "16", "32", "64", ">=64"];

const EIO: u32 = 5;
const EILSEQ: u32 = 84;

/// Returns the whole report. `global_options` are those of `[global]`, if the caller separates
/// them. `machine` becomes the `meantime` object. `at` is when the run ended, shown in UTC.
pub fn report_json(
    results: &[RunResult],
    global_options: &[(String, String)],
    machine: Map<String, Value>,
    at: SystemTime,
) -> Value {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    json!({
        "fio version": concat!("meantime-", env!("CARGO_PKG_VERSION")),
        "timestamp": since.as_secs(),
        "timestamp_ms": since.as_millis() as u64,
        "time": ctime_utc(since),
        "global options": strings(global_options),
        "jobs": results.iter().map(|result| job(result, results)).collect::<Vec<_>>(),
        "meantime": machine,
    })
}

fn job(result: &RunResult, all: &[RunResult]) -> Value {
    let direction = |of: fn(&RunResult) -> &DirStats| {
        // Other members of its reporting group that ran at the same time.
        let is_beside = |other: &&RunResult| {
            other.group_id == result.group_id && other.cell == result.cell && result.cell.is_some()
        };
        let beside: f64 =
            all.iter().filter(is_beside).map(|it| bandwidth(of(it), it.runtime_ns)).sum();
        direction(of(result), result.runtime_ns, beside)
    };
    let unlike = if result.verify_errors > 0 { EILSEQ } else { 0 };
    let error = if result.errors > 0 { EIO } else { unlike };
    // The options that the job compares get the value of this result.
    let Settings { sched, pm_qos, hogs } = &result.settings;
    let mut options = strings(&result.options);
    options.extend(known(json!({
        "device": result.device,
        "completion": result.completion,
        "sched": sched,
        "pm_qos": pm_qos,
        "hog": (*hogs > 0).then(|| hogs.to_string()),
    })));
    let latency = result.latency();
    let runtime = Duration::from_nanos(result.runtime_ns);
    let mut object = known(json!({
        "jobname": result.job_name,
        "groupid": result.group_id,
        "error": error,
        "eta": 0,
        "elapsed": runtime.as_secs() + u64::from(runtime.subsec_nanos() > 0),
        "job options": options,
        "read": direction(|it| &it.read),
        "write": direction(|it| &it.write),
        "trim": direction(|it| &it.trim),
        "sync": {
            "total_ios": result.flushes.n(),
            "lat_ns": latency_object(&result.flushes, Detail::PercentilesAndBins),
        },
        "job_runtime": runtime.as_millis() as u64,
        "usr_cpu": finite(result.usr_cpu_percent),
        "sys_cpu": finite(result.sys_cpu_percent),
        "ctx": result.ctx_switches,
        "majf": result.major_faults,
        "minf": result.minor_faults,
        "iodepth_level": levels(&DEPTH_LEVELS, &result.iodepth_percents()),
        "iodepth_submit": levels(&BATCH_LEVELS, &percents(result.batch_levels[0])),
        "iodepth_complete": levels(&BATCH_LEVELS, &percents(result.batch_levels[1])),
    }));
    latency_buckets(&mut object, &latency);
    let extra = result.extra.iter().map(|(key, figure)| (key.clone(), json!(finite(*figure))));
    let extra: Map<_, _> = extra.collect();
    object.extend(known(json!({
        // fio writes these values for a job without a latency target.
        "latency_depth": result.iodepth,
        "latency_target": 0,
        "latency_percentile": 100.0,
        "latency_window": 0,
        "numjobs": result.numjobs.max(1),
        "medium": result.medium,
        "errors": result.errors,
        "verify_errors": result.verify_errors,
        "sweep": (!result.sweep.is_empty()).then(|| strings(&result.sweep)),
        "cell": result.cell,
        "beside": result.cell.map(|_| &result.beside),
        "series": result.series,
        "turns": (!result.turns.is_empty()).then_some(&result.turns),
        "slowest_1_in_6000_ns": latency.slowest_1_in(SLOWEST_ONE_IN),
        "competitor_percent": result.competitor_percent,
        "energy_uj_per_io": result.energy_uj_per_io,
        "floor_ns": result.floor_ns,
        "floor_ratio": result.floor_ratio,
        "floor_ratio_spread": result.floor_ratio_spread,
        "extra": (!extra.is_empty()).then_some(extra),
    })));
    Value::Object(object)
}

/// Bytes a second.
fn bandwidth(stats: &DirStats, runtime_ns: u64) -> f64 {
    per_second(stats.bytes, if stats.ios == 0 { 0 } else { runtime_ns })
}

/// `of_group` is the rate of its reporting group in bytes a second, or 0 if it was alone.
fn direction(stats: &DirStats, runtime_ns: u64, of_group: f64) -> Value {
    let runtime_ns = if stats.ios == 0 { 0 } else { runtime_ns };
    let bytes_per_second = bandwidth(stats, runtime_ns);
    let Rates { width_ns, samples } = &stats.rates;
    // A direction that was not used has no samples.
    let samples = if stats.ios == 0 { &[][..] } else { samples };
    let iops = Moments::of(samples.iter().map(|(ios, _)| per_second(*ios, *width_ns)));
    let kib = samples.iter().map(|(_, bytes)| per_second(*bytes, *width_ns) / 1024.0);
    let kib = Moments::of(kib);
    let share = kib.mean * 1024.0 * 100.0 / f64::max(of_group, bytes_per_second).max(1.0);
    Value::Object(known(json!({
        "io_bytes": stats.bytes,
        "io_kbytes": stats.bytes >> 10,
        "bw_bytes": bytes_per_second as u64,
        "bw": (bytes_per_second / 1024.0) as u64,
        "iops": per_second(stats.ios, runtime_ns),
        "runtime": runtime_ns / 1_000_000,
        "total_ios": stats.ios,
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": latency_object(&stats.slat, Detail::Moments),
        "clat_ns": latency_object(&stats.clat, Detail::PercentilesAndBins),
        "lat_ns": latency_object(&stats.lat, Detail::Bins),
        // These are computed from samples of half a second.
        "bw_min": kib.min as u64,
        "bw_max": kib.max as u64,
        "bw_agg": share.min(100.0),
        "bw_mean": kib.mean,
        "bw_dev": kib.deviation,
        "bw_samples": samples.len(),
        "iops_min": iops.min as u64,
        "iops_max": iops.max as u64,
        "iops_mean": iops.mean,
        "iops_stddev": iops.deviation,
        "iops_samples": samples.len(),
        "slowest_1_in_6000_ns": stats.total().slowest_1_in(SLOWEST_ONE_IN),
    })))
}

/// Minimum, maximum, mean and deviation. All are 0 without figures.
struct Moments {
    min: f64,
    max: f64,
    mean: f64,
    deviation: f64,
}

impl Moments {
    fn of(figures: impl Iterator<Item = f64> + Clone) -> Self {
        let n = figures.clone().count().max(1) as f64;
        // The sum of no floats is −0.
        let mean = figures.clone().fold(0.0, |sum, figure| sum + figure) / n;
        let squares: f64 = figures.clone().map(|figure| (figure - mean).powi(2)).sum();
        let min = figures.clone().reduce(f64::min).unwrap_or(0.0);
        let max = figures.fold(0.0, f64::max);
        Self { min, max, mean, deviation: (squares / (n - 1.0).max(1.0)).sqrt() }
    }
}

/// The detail of a latency, beyond minimum, maximum, mean and deviation. Bins are as in fio's
/// json+: a count for each latency.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Detail {
    Moments,
    Bins,
    PercentilesAndBins,
}

fn latency_object(stats: &LatencyStats, detail: Detail) -> Value {
    let has = |of: Detail| stats.n() > 0 && detail >= of;
    let percentiles = stats.percentiles_ns().into_iter();
    let percentiles = percentiles.map(|(at, ns)| (format!("{at:.6}"), json!(ns)));
    let bins = stats.steps().map(|(ns, count)| (ns.to_string(), json!(count)));
    Value::Object(known(json!({
        "min": stats.min_ns(),
        "max": stats.max_ns(),
        "mean": stats.mean_ns(),
        "stddev": stats.stddev_ns(),
        "N": stats.n(),
        "percentile": has(Detail::PercentilesAndBins).then(|| percentiles.collect::<Map<_, _>>()),
        "bins": has(Detail::Bins).then(|| bins.collect::<Map<_, _>>()),
    })))
}

/// Adds fio's three histograms, in ns, µs and ms: the share of I/Os below each bound, in percent.
fn latency_buckets(object: &mut Map<String, Value>, stats: &LatencyStats) {
    const BOUNDS: [u64; 11] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000, 2000];
    const NAMES: [&str; 12] =
        ["2", "4", "10", "20", "50", "100", "250", "500", "750", "1000", "2000", ">=2000"];
    for (key, from_ns, buckets) in
        [("latency_ns", 0, 10), ("latency_us", 1_000, 10), ("latency_ms", 1_000_000, NAMES.len())]
    {
        let unit_ns = u64::max(from_ns, 1);
        let end_ns = if buckets == NAMES.len() { u64::MAX } else { unit_ns * 1000 };
        let mut counts = [0u64; NAMES.len()];
        for (ns, count) in stats.steps().filter(|(ns, _)| (from_ns..end_ns).contains(ns)) {
            let at = BOUNDS.iter().position(|bound| ns / unit_ns < *bound);
            counts[at.unwrap_or(BOUNDS.len())] += count;
        }
        let percents = counts.map(|count| match count {
            0 => 0.0,
            // fio shows a tiny share as 0.01, not as 0.
            _ => (count as f64 * 100.0 / stats.n() as f64).max(0.01),
        });
        object.insert(key.to_owned(), levels(&NAMES[..buckets], &percents[..buckets]));
    }
}

fn levels(names: &[&str], percents: &[f64]) -> Value {
    let pairs = names.iter().zip(percents);
    Value::Object(pairs.map(|(name, percent)| ((*name).to_owned(), json!(percent))).collect())
}

fn strings(pairs: &[(String, String)]) -> Map<String, Value> {
    pairs.iter().map(|(key, value)| (key.clone(), json!(value))).collect()
}

/// Returns an object without its unknown values, which are null. NaN and infinity are null, too,
/// since JSON does not have them.
fn known(value: Value) -> Map<String, Value> {
    let Value::Object(mut map) = value else { return Map::new() };
    map.retain(|_, value| !value.is_null());
    map
}

/// Replaces NaN and infinity, which JSON does not have.
fn finite(figure: f64) -> f64 {
    if figure.is_finite() { figure } else { 0.0 }
}

/// Formats C's `ctime` without its newline, in UTC: `Sat Nov 21 10:44:30 2026`.
pub fn ctime_utc(since_epoch: Duration) -> String {
    let seconds = i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX);
    // There is no date beyond the year 9999.
    let at = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (weekday, month) = (at.weekday().to_string(), at.month().to_string());
    let (hour, minute, second) = at.to_hms();
    let (day, year) = (at.day(), at.year());
    format!("{weekday:.3} {month:.3} {day:>2} {hour:02}:{minute:02}:{second:02} {year}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        // date -u -d @N '+%a %b %e %T %Y'
        for (seconds, want) in [
            (0, "Thu Jan  1 00:00:00 1970"),
            (951_782_400, "Tue Feb 29 00:00:00 2000"),
            (1_709_251_199, "Thu Feb 29 23:59:59 2024"),
            (1_795_257_870, "Sat Nov 21 10:44:30 2026"),
            (4_107_542_400, "Mon Mar  1 00:00:00 2100"),
        ] {
            assert_eq!(ctime_utc(Duration::from_secs(seconds)), want);
        }
        let _ = ctime_utc(Duration::MAX);
    }
}
