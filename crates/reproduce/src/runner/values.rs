//! Figures of the command's JSON, by name.

use serde_json::Value;

use crate::measured::Measured;

/// Adds the figures of `meantime bench`.
pub(super) fn bench(measured: &mut Measured, label: &str, report: &Value) {
    let jobs = report["jobs"].as_array().map_or(&[][..], Vec::as_slice);
    let distinct = |of: &dyn Fn(&Value) -> String| {
        let first = jobs.first().map(of);
        jobs.iter().any(|job| Some(of(job)) != first)
    };
    if let Some(bytes) = number(&report["meantime"]["dma_bytes"]) {
        measured.add(format!("{label}/dma_bytes"), bytes);
    }
    let named = distinct(&|job| job["jobname"].to_string());
    let limited = distinct(&|job| job["job options"]["pm_qos"].to_string());
    for job in jobs {
        let options = &job["job options"];
        let mut name = label.to_owned();
        for (wanted, part) in [
            (named, &job["jobname"]),
            (true, &options["completion"]),
            (true, &options["sched"]),
            (true, &options["hog"]),
            (limited, &options["pm_qos"]),
        ] {
            if let Some(part) = part.as_str().filter(|_| wanted) {
                name = format!("{name}/{part}");
            }
        }
        self::job(measured, &name, job);
    }
}

/// Adds the figures of a row of the virtual machine.
pub(super) fn guest(measured: &mut Measured, kernel: &str, cell: &Value) {
    let (Some(controller), Some(bytes), Some(way)) =
        (cell["controller"].as_str(), cell["bytes"].as_u64(), cell["way"].as_str())
    else {
        return;
    };
    let name = format!("{kernel}/{controller}/{bytes}/{way}");
    job(measured, &name, &cell["job"]);
    // Our own driver's reads are not the kernel's.
    let reads = number(&cell["reads"]).filter(|reads| *reads > 0.0);
    if let Some((interrupts, reads)) = number(&cell["interrupts"]).zip(reads) {
        measured.add(format!("{name}/interrupts_ratio"), interrupts / reads);
    }
}

/// Adds the figures of one job.
fn job(measured: &mut Measured, name: &str, job: &Value) {
    let mut total = Sums::default();
    for direction in ["read", "write"] {
        let stats = &job[direction];
        if stats["total_ios"].as_u64().unwrap_or(0) > 0 {
            total.add(stats);
        }
    }
    let both = total.directions > 1;
    let typical = |stats: &Value| typical_ns(&bins(&stats["lat_ns"]));
    let synced = typical(&job["sync"]);
    let durable = typical(&job["write"]).zip(synced).map(|(write, sync)| write + sync);
    for direction in ["read", "write"].into_iter().filter(|_| both) {
        latency(measured, &format!("{name}/{direction}"), &job[direction]);
    }
    if let Some(stats) = total.only.filter(|_| !both) {
        latency(measured, name, stats);
    } else if both {
        measured.add(format!("{name}/mean_ns"), total.sum_ns / total.ios);
    }
    let cpu = number(&job["usr_cpu"]).zip(number(&job["sys_cpu"])).map(|(one, two)| one + two);
    for (figure, value) in [
        ("rate_iops", Some(total.iops)),
        ("cpu_percent", cpu),
        ("usr_percent", number(&job["usr_cpu"])),
        ("sys_percent", number(&job["sys_cpu"])),
        ("rival_percent", number(&job["competitor_percent"])),
        ("switches_count", number(&job["ctx"])),
        ("ios_count", Some(total.ios)),
        ("durable_ns", durable),
        ("sync_mean_ns", number(&job["sync"]["lat_ns"]["mean"]).filter(|ns| *ns > 0.0)),
    ] {
        if let Some(value) = value {
            measured.add(format!("{name}/{figure}"), value);
        }
    }
    for (figure, value) in job["extra"].as_object().into_iter().flatten() {
        if let Some(value) = number(value) {
            let has_unit = ["_ns", "_percent", "_bytes"].iter().any(|unit| figure.ends_with(unit));
            let unit = if has_unit { "" } else { "_count" };
            measured.add(format!("{name}/{figure}{unit}"), value);
        }
    }
}

#[derive(Default)]
struct Sums<'a> {
    directions: usize,
    only: Option<&'a Value>,
    ios: f64,
    iops: f64,
    sum_ns: f64,
}

impl<'a> Sums<'a> {
    fn add(&mut self, stats: &'a Value) {
        let ios = number(&stats["total_ios"]).unwrap_or(0.0);
        self.directions += 1;
        self.only = Some(stats);
        self.ios += ios;
        self.iops += number(&stats["iops"]).unwrap_or(0.0);
        self.sum_ns += ios * number(&stats["lat_ns"]["mean"]).unwrap_or(0.0);
    }
}

fn latency(measured: &mut Measured, name: &str, stats: &Value) {
    let times = &stats["lat_ns"];
    for (figure, value) in [
        ("mean_ns", &times["mean"]),
        ("sd_ns", &times["stddev"]),
        ("min_ns", &times["min"]),
        ("max_ns", &times["max"]),
        ("tail_ns", &stats["slowest_1_in_6000_ns"]),
        ("submit_mean_ns", &stats["slat_ns"]["mean"]),
    ] {
        if let Some(value) = number(value) {
            measured.add(format!("{name}/{figure}"), value);
        }
    }
    let bins = bins(times);
    if bins.is_empty() {
        return;
    }
    if let Some(ns) = typical_ns(&bins) {
        measured.add(format!("{name}/typical_ns"), ns);
    }
    for (figure, percentile) in [("p50_ns", 50.0), ("p99_ns", 99.0), ("p999_ns", 99.9)] {
        if let Some(ns) = percentile_of(&bins, percentile) {
            measured.add(format!("{name}/{figure}"), ns);
        }
    }
    measured.curves.insert(name.to_owned(), exceedance(&bins));
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
    for bar in report["bars"].as_array().map_or(&[][..], Vec::as_slice) {
        let (Some(completion), Some(bytes)) =
            (bar["completion"].as_str(), bar["bs_bytes"].as_u64())
        else {
            continue;
        };
        let name = format!("{label}/{completion}/{bytes}");
        let alone = &bar["alone"];
        for (figure, times) in
            [("total", &alone["total"]), ("host", &alone["host"]), ("device", &alone["device"])]
        {
            for (suffix, key) in
                [("mean_ns", "mean_ns"), ("sd_ns", "stddev_ns"), ("p50_ns", "p50_ns")]
                    .into_iter()
                    .chain([("p99_ns", "p99_ns"), ("max_ns", "max_ns")])
            {
                if let Some(ns) = number(&times[key]) {
                    measured.add(format!("{name}/{figure}_{suffix}"), ns);
                }
            }
        }
        for (figure, ns) in alone["typical"].as_object().into_iter().flatten() {
            if let Some(ns) = number(ns) {
                measured.add(format!("{name}/typical_{figure}"), ns);
            }
        }
        for (figure, value) in bar["fast12"].as_object().into_iter().flatten() {
            if let Some(value) = number(value) {
                measured.add(format!("{name}/rival_{figure}"), value);
            }
        }
        if let Some(percent) = number(&alone["slowest"]["host_excess_percent"]) {
            measured.add(format!("{name}/slowest_host_percent"), percent);
        }
        for (curve, key) in [
            ("submit", "submit_percentile_ns"),
            ("host", "host_percentile_ns"),
            ("device", "device_percentile_ns"),
        ] {
            let cdf = alone[key].as_object().into_iter().flatten();
            let points = cdf
                .filter_map(|(at, ns)| Some((number(ns)?, 1.0 - at.parse::<f64>().ok()? / 100.0)));
            measured.curves.insert(format!("{name}/{curve}"), points.collect());
        }
    }
    let rival = &report["competitor"]["alone"];
    if let Some((ran, wall)) = number(&rival["ran_ns"]).zip(number(&rival["wall_ns"])) {
        measured.add(format!("{label}/rival_alone_percent"), ran / wall * 100.0);
    }
}

/// Adds the figures of `meantime waits`.
pub(super) fn waits(measured: &mut Measured, label: &str, report: &Value) {
    for cell in report["cells"].as_array().map_or(&[][..], Vec::as_slice) {
        let Some(cell_name) = cell["name"].as_str() else { continue };
        for way in cell["ways"].as_array().map_or(&[][..], Vec::as_slice) {
            let Some(completion) = way["completion"].as_str() else { continue };
            let name = format!("{label}/{cell_name}/{completion}");
            for (figure, key) in [
                ("mean_ns", "mean_ns"),
                ("p50_ns", "p50_ns"),
                ("p99_ns", "p99_ns"),
                ("tail_ns", "slowest_1_in_6000_ns"),
                ("rate_iops", "iops"),
                ("cpu_percent", "cpu_percent"),
            ] {
                if let Some(value) = number(&way[key]) {
                    measured.add(format!("{name}/{figure}"), value);
                }
            }
        }
    }
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
