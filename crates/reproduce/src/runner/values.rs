//! Figures of commands' output, by name. A name begins with the step's.
//!
//! - `bench`: `WAY/…`, with the job's name before it if there are several, and after it the
//!   scheduling class, the program beside it, and the PM QoS limit, if they were given: `mean_ns`,
//!   `sd_ns`, `min_ns`, `p50_ns`, `p99_ns`, `p999_ns`, `tail_ns` (the slowest 1 in 6,000), `max_ns`,
//!   `typical_ns` (the mean without the slowest tenth), `submit_mean_ns`, `sync_mean_ns`,
//!   `durable_ns` (a write and its flush, as `typical_ns`), `rate_iops`, `cpu_percent`,
//!   `usr_percent`, `sys_percent`, `rival_percent`, `switches_count`, `ios_count`, and the counters
//!   of the driver and the file system; the curve `WAY`. Of mixed jobs latencies are
//!   `WAY/read/…` and `WAY/write/…`. `dma_bytes` is the memory that the device may reach.
//! - `anatomy`: `WAY/BYTES/…`: `total_`, `device_` and `host_` with `mean_ns`, `sd_ns`, `p50_ns`,
//!   `p99_ns` and `max_ns`; each part as `typical_PART_ns`; beside a second program `rival_…`.
//! - `waits`: `CELL/WAY/…`: `mean_ns`, `p50_ns`, `p99_ns`, `tail_ns`, `rate_iops`, `cpu_percent`.
//! - `calibrate`: `free/US/…`, `held/US/…` (with PM QoS at 0) and `futex/US/…`, after so many
//!   microseconds of idleness: `mean_ns`, `p50_ns`.
//! - `run` with `db_bench`: `NAME_per_second`, of the last benchmark.
//! - The virtual machine: those of `bench`, and `interrupts_ratio` for each read.

use serde_json::Value;

use crate::measured::Measured;

/// Adds the numbers among `figures`, which are pairs: the end of the name, and the place in the
/// JSON.
fn add(measured: &mut Measured, name: &str, value: &Value, figures: &[(&str, &str)]) {
    for (figure, place) in figures {
        measured.add(format!("{name}/{figure}"), value.pointer(place).and_then(number));
    }
}

/// Returns the elements of an array, or an empty slice if the value is not an array.
fn each(array: &Value) -> &[Value] {
    array.as_array().map_or(&[], Vec::as_slice)
}

/// Adds the figures of `meantime bench`.
pub(super) fn bench(measured: &mut Measured, label: &str, report: &Value) {
    let jobs = each(&report["jobs"]);
    let distinct =
        |place: &str| jobs.iter().any(|job| job.pointer(place) != jobs[0].pointer(place));
    add(measured, label, report, &[("dma_bytes", "/meantime/dma_bytes")]);
    for job in jobs {
        let mut name = label.to_owned();
        for (always, place) in [
            (false, "/jobname"),
            (true, "/job options/completion"),
            (true, "/job options/sched"),
            (true, "/job options/hog"),
            (false, "/job options/pm_qos"),
        ] {
            let part = job.pointer(place).and_then(Value::as_str);
            if let Some(part) = part.filter(|_| always || distinct(place)) {
                name = format!("{name}/{part}");
            }
        }
        self::job(measured, &name, job);
    }
}

/// Adds the figures of a row of the virtual machine.
pub(super) fn guest(measured: &mut Measured, kernel: &str, cell: &Value) {
    let part = |key: &str| cell[key].to_string().replace('"', "");
    let name = format!("{kernel}/{}/{}/{}", part("controller"), part("bytes"), part("way"));
    job(measured, &name, &cell["job"]);
    // Our own driver's reads are not the kernel's.
    let reads = number(&cell["reads"]).filter(|reads| *reads > 0.0);
    let interrupts = number(&cell["interrupts"]).zip(reads).map(|(all, reads)| all / reads);
    measured.add(format!("{name}/interrupts_ratio"), interrupts);
}

/// Adds the figures of one job.
fn job(measured: &mut Measured, name: &str, job: &Value) {
    let ios = |stats: &Value| number(&stats["total_ios"]).unwrap_or(0.0);
    let directions = ["read", "write"].map(|direction| (direction, &job[direction]));
    let used: Vec<_> = directions.into_iter().filter(|(_, stats)| ios(stats) > 0.0).collect();
    let sum = |of: &dyn Fn(&Value) -> f64| used.iter().map(|(_, stats)| of(stats)).sum::<f64>();
    let all_ios = sum(&ios);
    if let [(_, stats)] = used[..] {
        latency(measured, name, stats);
    } else if !used.is_empty() {
        for (direction, stats) in &used {
            latency(measured, &format!("{name}/{direction}"), stats);
        }
        let whole_ns = sum(&|stats| ios(stats) * number(&stats["lat_ns"]["mean"]).unwrap_or(0.0));
        measured.add(format!("{name}/mean_ns"), whole_ns / all_ios);
    }
    let synced = &job["sync"]["lat_ns"];
    let typical = |times| typical_ns(&bins(times));
    for (figure, value) in [
        ("ios_count", Some(all_ios)),
        ("rate_iops", Some(sum(&|stats| number(&stats["iops"]).unwrap_or(0.0)))),
        ("cpu_percent", number(&job["usr_cpu"]).zip(number(&job["sys_cpu"])).map(|(u, s)| u + s)),
        ("durable_ns", typical(&job["write"]["lat_ns"]).zip(typical(synced)).map(|(w, s)| w + s)),
        ("sync_mean_ns", number(&synced["mean"]).filter(|ns| *ns > 0.0)),
    ] {
        measured.add(format!("{name}/{figure}"), value);
    }
    let figures = [
        ("usr_percent", "/usr_cpu"),
        ("sys_percent", "/sys_cpu"),
        ("rival_percent", "/competitor_percent"),
        ("switches_count", "/ctx"),
    ];
    add(measured, name, job, &figures);
    for (figure, value) in job["extra"].as_object().into_iter().flatten() {
        let has_unit = ["_ns", "_percent", "_bytes"].iter().any(|unit| figure.ends_with(unit));
        let unit = if has_unit { "" } else { "_count" };
        measured.add(format!("{name}/{figure}{unit}"), number(value));
    }
}

fn latency(measured: &mut Measured, name: &str, stats: &Value) {
    let figures = [
        ("mean_ns", "/lat_ns/mean"),
        ("sd_ns", "/lat_ns/stddev"),
        ("min_ns", "/lat_ns/min"),
        ("max_ns", "/lat_ns/max"),
        ("tail_ns", "/slowest_1_in_6000_ns"),
        ("submit_mean_ns", "/slat_ns/mean"),
    ];
    add(measured, name, stats, &figures);
    let bins = bins(&stats["lat_ns"]);
    for (figure, ns) in [
        ("typical_ns", typical_ns(&bins)),
        ("p50_ns", percentile_of(&bins, 50.0)),
        ("p99_ns", percentile_of(&bins, 99.0)),
        ("p999_ns", percentile_of(&bins, 99.9)),
    ] {
        measured.add(format!("{name}/{figure}"), ns);
    }
    if !bins.is_empty() {
        measured.curves.insert(name.to_owned(), exceedance(&bins));
    }
}

/// Returns the histogram of times, in order.
fn bins(times: &Value) -> Vec<(f64, f64)> {
    let bins = times["bins"].as_object().into_iter().flatten();
    let mut bins: Vec<(f64, f64)> =
        bins.filter_map(|(ns, count)| Some((ns.parse().ok()?, count.as_f64()?))).collect();
    bins.sort_by(|one, other| one.0.total_cmp(&other.0));
    bins
}

/// Returns the mean without the slowest tenth, which other programs make.
fn typical_ns(bins: &[(f64, f64)]) -> Option<f64> {
    let total: f64 = bins.iter().map(|(_, count)| count).sum();
    let (mut left, mut sum_ns) = (total * 0.9, 0.0);
    for (ns, count) in bins {
        let taken = count.min(left);
        sum_ns += ns * taken;
        left -= taken;
    }
    (total > 0.0).then(|| sum_ns / (total * 0.9))
}

/// Returns a percentile of a histogram in order.
fn percentile_of(bins: &[(f64, f64)], percentile: f64) -> Option<f64> {
    let total: f64 = bins.iter().map(|(_, count)| count).sum();
    let mut left = total * percentile / 100.0;
    bins.iter().find_map(|(ns, count)| {
        left -= count;
        (left <= 0.0).then_some(*ns)
    })
}

/// Returns the share of I/Os that take longer than each time, at most a hundred points.
fn exceedance(bins: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let total: f64 = bins.iter().map(|(_, count)| count).sum();
    let mut left = total;
    let mut points: Vec<(f64, f64)> = Vec::new();
    for (ns, count) in bins {
        left -= count;
        let share = left / total;
        // A point for each step that a plot can show: 3 % on a logarithmic axis.
        let far = points
            .last()
            .is_none_or(|(before, earlier)| *ns > before * 1.03 || share < earlier * 0.9);
        if far && share > 0.0 {
            points.push((*ns, share));
        }
    }
    points
}

/// Adds the figures of `meantime anatomy`.
pub(super) fn anatomy(measured: &mut Measured, label: &str, report: &Value) {
    for bar in each(&report["bars"]) {
        let cell = bar["completion"].as_str().zip(bar["bs_bytes"].as_u64());
        let Some((completion, bytes)) = cell else { continue };
        let name = format!("{label}/{completion}/{bytes}");
        let alone = &bar["alone"];
        for part in ["total", "host", "device"] {
            for (figure, key) in [
                ("mean_ns", "mean_ns"),
                ("sd_ns", "stddev_ns"),
                ("p50_ns", "p50_ns"),
                ("p99_ns", "p99_ns"),
                ("max_ns", "max_ns"),
            ] {
                let (figure, place) = (format!("{part}_{figure}"), format!("/{part}/{key}"));
                add(measured, &name, alone, &[(&figure, &place)]);
            }
        }
        for (group, figures) in [("typical", &alone["typical"]), ("rival", &bar["fast12"])] {
            for (figure, value) in figures.as_object().into_iter().flatten() {
                measured.add(format!("{name}/{group}_{figure}"), number(value));
            }
        }
        let slowest = ("slowest_host_percent", "/slowest/host_excess_percent");
        add(measured, &name, alone, &[slowest]);
        for curve in ["submit", "host", "device"] {
            let points = alone[format!("{curve}_percentile_ns")].as_object().into_iter().flatten();
            let points = points
                .filter_map(|(at, ns)| Some((number(ns)?, 1.0 - at.parse::<f64>().ok()? / 100.0)));
            measured.curves.insert(format!("{name}/{curve}"), points.collect());
        }
    }
    let rival = &report["competitor"]["alone"];
    let ran = number(&rival["ran_ns"]).zip(number(&rival["wall_ns"]));
    measured.add(format!("{label}/rival_alone_percent"), ran.map(|(ran, wall)| ran / wall * 100.0));
}

/// Adds the figures of `meantime waits`.
pub(super) fn waits(measured: &mut Measured, label: &str, report: &Value) {
    let figures = [
        ("mean_ns", "/mean_ns"),
        ("p50_ns", "/p50_ns"),
        ("p99_ns", "/p99_ns"),
        ("tail_ns", "/slowest_1_in_6000_ns"),
        ("rate_iops", "/iops"),
        ("cpu_percent", "/cpu_percent"),
    ];
    for cell in each(&report["cells"]) {
        for way in each(&cell["ways"]) {
            if let Some((cell, way_name)) = cell["name"].as_str().zip(way["completion"].as_str()) {
                add(measured, &format!("{label}/{cell}/{way_name}"), way, &figures);
            }
        }
    }
}

/// Adds wake-ups of `meantime calibrate`.
pub(super) fn calibrate(measured: &mut Measured, label: &str, report: &Value) {
    for (group, rows) in [
        ("free", &report["eventfd_wake"]),
        ("held", &report["pm_qos"]["eventfd_wake"]),
        ("futex", &report["futex_wake"]),
    ] {
        for row in each(rows) {
            let name = format!("{label}/{group}/{}", row["idle_us"]);
            add(measured, &name, row, &[("mean_ns", "/mean_ns"), ("p50_ns", "/median_ns")]);
        }
    }
}

/// Returns why `meantime calibrate` could not keep CPUs out of idle states.
pub(super) fn not_held(report: &Value) -> Option<&str> {
    let held = report.get("pm_qos")?;
    let refused = held["refused"].as_str().unwrap_or("it cannot be held");
    (held["held"].as_bool() != Some(true)).then_some(refused)
}

/// Adds the rate of the last benchmark of `RocksDB`.
pub(super) fn db_bench(measured: &mut Measured, label: &str, text: &str) {
    // readrandom : 12.345 micros/op 81000 ops/sec 0.123 seconds …
    let mut lines = text.lines().filter(|line| line.contains(" micros/op "));
    let rate =
        |line: &str| line.split(" ops/sec").next()?.split_whitespace().last()?.parse::<f64>().ok();
    measured.add(format!("{label}_per_second"), lines.next_back().and_then(rate));
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64().filter(|value| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_report_of_bench_has_its_figures_by_policy() {
        let stats = |mean: f64| {
            json!({"total_ios": 10, "iops": 5.0, "lat_ns": {
                "mean": mean, "stddev": 1.0, "min": 1, "max": 9, "bins": {"10": 9, "200": 1}}})
        };
        let none = json!({"total_ios": 0, "iops": 0.0, "lat_ns": {"mean": 0.0}});
        let job = |completion: &str, read: Value, write: Value| {
            json!({"jobname": "x", "job options": {"completion": completion}, "read": read,
                "write": write, "usr_cpu": 40.0, "sys_cpu": 2.0, "ctx": 3})
        };
        let report = json!({"jobs": [
            job("poll", stats(5.0), none.clone()),
            job("hybrid=2us", stats(7.0), stats(9.0)),
        ]});
        let mut measured = Measured::default();
        bench(&mut measured, "512", &report);
        let one = |name: &str| measured.samples(name)[0];
        assert_eq!(one("512/poll/mean_ns"), 5.0);
        assert_eq!(one("512/poll/p50_ns"), 10.0);
        assert_eq!(one("512/poll/cpu_percent"), 42.0);
        assert_eq!(one("512/hybrid=2us/mean_ns"), 8.0);
        assert_eq!(one("512/hybrid=2us/read/mean_ns"), 7.0);
        assert_eq!(one("512/hybrid=2us/rate_iops"), 10.0);
        assert_eq!(measured.curves["512/poll"], [(10.0, 0.1)]);
    }
}
