//! Tests of the statistics, the JSON's keys, and the printed texts.

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};

use super::stats::{LATENCY_MAX_NS, PERCENTILES};
use super::*;

/// Returns `n` reads of 4 KiB around `mean_ns`, one in a hundred three times as slow.
fn result(job: &str, device: &str, completion: &str, mean_ns: u64, cpu_percent: f64) -> RunResult {
    let mut result = RunResult {
        job_name: job.to_owned(),
        device: device.to_owned(),
        completion: completion.to_owned(),
        options: [("rw", "randread"), ("bs", "4k"), ("completion", "interrupt,poll")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .to_vec(),
        iodepth: 1,
        usr_cpu_percent: cpu_percent * 0.75,
        sys_cpu_percent: cpu_percent * 0.25,
        ctx_switches: 7,
        ..RunResult::default()
    };
    for at in 0..12_000u64 {
        let clat_ns = if at % 100 == 99 { mean_ns * 3 } else { mean_ns + at % 11 };
        result.read.slat.record(100);
        result.read.clat.record(clat_ns);
        result.read.lat.record(clat_ns + 100);
        result.read.ios += 1;
        result.read.bytes += 4096;
        result.runtime_ns += clat_ns + 100;
    }
    result
}

#[test]
fn statistics() {
    let mut stats = LatencyStats::default();
    assert_eq!(
        (stats.n(), stats.min_ns(), stats.max_ns(), stats.percentile_ns(50.0)),
        (0, 0, 0, 0)
    );
    assert_eq!((stats.mean_ns(), stats.stddev_ns(), stats.slowest_1_in(1)), (0.0, 0.0, None));
    assert!(stats.percentiles_ns().is_empty());
    for ns in [2, 4, 4, 4, 5, 5, 7, 9] {
        stats.record(ns);
    }
    assert_eq!((stats.n(), stats.min_ns(), stats.max_ns(), stats.mean_ns()), (8, 2, 9, 5.0));
    assert!((stats.stddev_ns() - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
    assert_eq!(stats.percentile_ns(50.0), 4);
    assert_eq!(
        (stats.slowest_1_in(8), stats.slowest_1_in(4), stats.slowest_1_in(9)),
        (Some(9), Some(7), None)
    );
    assert_eq!(stats.slowest_1_in(0), None);
    assert_eq!(stats.percentiles_ns().len(), PERCENTILES.len());

    let mut other = LatencyStats::default();
    other.record(100);
    other.merge(&stats);
    assert_eq!((other.n(), other.min_ns(), other.max_ns()), (9, 2, 100));
    other.merge(&LatencyStats::default());
    assert_eq!((other.n(), other.min_ns()), (9, 2));
    other.reset();
    assert_eq!((other.n(), other.percentile_ns(99.0)), (0, 0));
}

#[test]
fn extremes_are_recorded_without_error() {
    let mut stats = LatencyStats::default();
    for ns in [0, 1, LATENCY_MAX_NS, LATENCY_MAX_NS + 1, u64::MAX, u64::MAX] {
        stats.record(ns);
    }
    assert_eq!((stats.n(), stats.min_ns(), stats.max_ns()), (6, 0, u64::MAX));
    assert!(stats.percentile_ns(100.0) >= LATENCY_MAX_NS);
    assert!(stats.stddev_ns().is_finite());
    let mut only_late = LatencyStats::default();
    only_late.record(u64::MAX);
    assert!(only_late.percentile_ns(50.0) >= LATENCY_MAX_NS);
}

/// Compares percentiles with the sorted list, within the histogram's three digits.
/// A percentile is one of what was recorded: the least that so many did not exceed.
#[test]
fn percentiles_of_few_are_among_them() {
    let of = |all: &[u64], at: f64| {
        let mut stats = LatencyStats::default();
        all.iter().for_each(|ns| stats.record(*ns));
        stats.percentile_ns(at)
    };
    let twelve: Vec<u64> = (1..=12).collect();
    assert_eq!((of(&twelve, 95.0), of(&twelve, 50.0), of(&twelve, 99.0)), (12, 6, 12));
    assert_eq!((of(&twelve[..10], 90.0), of(&twelve[..10], 99.0)), (9, 10));
    for at in [1.0, 50.0, 95.0, 99.99] {
        assert_eq!(of(&[11_292], at), 11_292, "the step of a histogram is no latency");
        assert_eq!(of(&[100; 70_000], at), 100);
    }
}

#[test]
fn percentiles_agree_with_sorting() {
    let mut stats = LatencyStats::default();
    let mut sorted: Vec<u64> = (0..60_000u64).map(|at| 1000 + at * at % 1_000_003 * 7).collect();
    sorted.iter().for_each(|ns| stats.record(*ns));
    sorted.sort_unstable();
    for (at, ns) in stats.percentiles_ns() {
        let want = sorted[((at / 100.0 * sorted.len() as f64).ceil() as usize).max(1) - 1] as f64;
        assert!((ns as f64 - want).abs() <= want * 0.001 + 1.0, "{at}: {ns} for {want}");
    }
    let want = sorted[sorted.len() - 10] as f64;
    let got = stats.slowest_1_in(6000).unwrap() as f64;
    assert!((got - want).abs() <= want * 0.001 + 1.0);
}

#[test]
fn depths_are_sorted_as_fio_does() {
    let levels = [0, 1, 2, 3, 4, 8, 16, 31, 32, 63, 64, 1024].map(depth_level);
    assert_eq!(levels, [0, 0, 1, 1, 2, 3, 4, 4, 5, 5, 6, 6]);
    let counted = RunResult { iodepth_levels: Some([1, 0, 3, 0, 0, 0, 0]), ..RunResult::default() };
    assert_eq!(counted.iodepth_percents()[..3], [25.0, 0.0, 75.0]);
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn report(results: &[RunResult]) -> Value {
    let machine = Map::from_iter([("cpu".to_owned(), json!("x"))]);
    report_json(
        results,
        &[],
        machine,
        SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_257_870_840),
    )
}

#[test]
fn json_has_fios_keys_in_fios_order() {
    let mut one = result("a", "mem:1G", "poll", 4_400, 50.0);
    (one.floor_ns, one.floor_ratio, one.floor_ratio_spread) =
        (Some(710.0), Some(1.25), Some((1.2, 1.3)));
    one.extra.push(("oversleep_ns".to_owned(), f64::NAN));
    let report = report(&[one, RunResult::default()]);
    let top =
        ["fio version", "timestamp", "timestamp_ms", "time", "global options", "jobs", "meantime"];
    assert_eq!(keys(&report), top);
    assert_eq!(report["timestamp_ms"], 1_795_257_870_840u64);
    assert_eq!(report["time"], "Sat Nov 21 10:44:30 2026");
    assert!(report["fio version"].as_str().unwrap().starts_with("meantime-"));
    let job = &report["jobs"][0];
    // Taken from fio 3.33.
    let fio = "jobname groupid error eta elapsed job_options read write trim sync job_runtime \
               usr_cpu sys_cpu ctx majf minf iodepth_level iodepth_submit iodepth_complete \
               latency_ns latency_us latency_ms latency_depth latency_target latency_percentile \
               latency_window";
    let got: Vec<_> = keys(job).iter().map(|key| key.replace(' ', "_")).collect();
    assert_eq!(got[..26].join(" "), fio);
    let ours = [
        "numjobs",
        "medium",
        "errors",
        "verify_errors",
        "series",
        "slowest_1_in_6000_ns",
        "floor_ns",
        "floor_ratio",
    ];
    assert_eq!(got[26..34], ours);
    assert_eq!(got[34..], ["floor_ratio_spread", "extra"]);
    let direction = "io_bytes io_kbytes bw_bytes bw iops runtime total_ios short_ios drop_ios \
                     slat_ns clat_ns lat_ns bw_min bw_max bw_agg bw_mean bw_dev bw_samples \
                     iops_min iops_max iops_mean iops_stddev iops_samples";
    assert_eq!(keys(&job["read"])[..23].join(" "), direction);
    assert_eq!(keys(&job["trim"]).join(" "), direction);
    assert_eq!(
        keys(&job["read"]["clat_ns"]),
        ["min", "max", "mean", "stddev", "N", "percentile", "bins"]
    );
    assert_eq!(keys(&job["read"]["lat_ns"]), ["min", "max", "mean", "stddev", "N", "bins"]);
    assert_eq!(keys(&job["iodepth_submit"]), ["0", "4", "8", "16", "32", "64", ">=64"]);
    assert_eq!(keys(&job["read"]["slat_ns"]), ["min", "max", "mean", "stddev", "N"]);
    assert_eq!(keys(&job["trim"]["clat_ns"]), ["min", "max", "mean", "stddev", "N"]);
    let percentiles = "1.000000 5.000000 10.000000 20.000000 30.000000 40.000000 50.000000 \
                       60.000000 70.000000 80.000000 90.000000 95.000000 99.000000 99.500000 \
                       99.900000 99.950000 99.990000";
    assert_eq!(keys(&job["read"]["clat_ns"]["percentile"]).join(" "), percentiles);
    assert_eq!(keys(&job["iodepth_level"]), ["1", "2", "4", "8", "16", "32", ">=64"]);
    assert_eq!(keys(&job["latency_ns"]).join(" "), "2 4 10 20 50 100 250 500 750 1000");
    assert_eq!(keys(&job["latency_ms"]).join(" "), "2 4 10 20 50 100 250 500 750 1000 2000 >=2000");
    assert_eq!(keys(&job["sync"]), ["total_ios", "lat_ns"]);
}

#[test]
fn json_has_the_figures() {
    let mut failed = result("b", "mem:1G", "poll", 4_400, 50.0);
    failed.verify_errors = 1;
    let report =
        report(&[result("a", "mem:1G", "interrupt", 4_400, 50.0), failed, RunResult::default()]);
    let job = &report["jobs"][0];
    assert_eq!(keys(&job["job options"]), ["rw", "bs", "completion", "device"]);
    assert_eq!(
        job["job options"]["completion"], "interrupt",
        "the policy of this run, not the list"
    );
    assert_eq!(job["job options"]["device"], "mem:1G");
    let read = &job["read"];
    assert_eq!((&read["total_ios"], &read["io_bytes"]), (&json!(12_000), &json!(12_000 * 4096)));
    assert_eq!(read["clat_ns"]["percentile"]["99.500000"], 13_200);
    assert_eq!(job["slowest_1_in_6000_ns"], 13_300);
    let ns_per_io = job["read"]["lat_ns"]["mean"].as_f64().unwrap();
    assert!((read["iops"].as_f64().unwrap() * ns_per_io / 1e9 - 1.0).abs() < 1e-9);
    assert_eq!(
        (&job["usr_cpu"], &job["sys_cpu"], &job["ctx"]),
        (&json!(37.5), &json!(12.5), &json!(7))
    );
    let bins = read["lat_ns"]["bins"].as_object().unwrap();
    assert_eq!(bins.values().map(|count| count.as_u64().unwrap()).sum::<u64>(), 12_000);
    assert_eq!(bins.values().next_back(), Some(&json!(120)), "the slow ones: one in a hundred");
    assert_eq!(job["latency_us"]["10"], 99.0);
    assert_eq!(job["latency_us"]["20"], 1.0);
    assert_eq!(job["iodepth_level"]["1"], 100.0);
    assert_eq!(job["write"]["iops"], 0.0);
    assert!(
        job.get("floor_ns").is_none()
            && job.get("floor_ratio").is_none()
            && job.get("extra").is_none()
    );
    assert_eq!((&report["jobs"][0]["error"], &report["jobs"][1]["error"]), (&json!(0), &json!(84)));
    assert!(report["jobs"][2].get("slowest_1_in_6000_ns").is_none());
    assert_eq!(report["meantime"]["cpu"], "x");
}

#[test]
fn rates_are_those_of_samples() {
    let mut one = result("a", "mem:1G", "poll", 4_400, 50.0);
    // 2,000, 4,000 and 6,000 IOPS of 4 KiB.
    let samples = [1000, 2000, 3000].map(|ios| (ios, ios * 4096)).to_vec();
    one.read.rates = Rates { width_ns: 500_000_000, samples };
    one.write.rates = Rates { width_ns: 500_000_000, samples: vec![(0, 0); 3] };
    one.cell = Some(0);
    let mut other = one.clone();
    let json = report(&[one.clone(), other.clone()]);
    let read = &json["jobs"][0]["read"];
    let of = |name: &str| ["min", "max", "mean"].map(|of| read[format!("{name}_{of}")].as_f64());
    assert_eq!(of("iops"), [2_000.0, 6_000.0, 4_000.0].map(Some));
    assert_eq!(of("bw"), [8_000.0, 24_000.0, 16_000.0].map(Some));
    assert_eq!((&read["iops_stddev"], &read["bw_dev"]), (&json!(2_000.0), &json!(8_000.0)));
    assert_eq!((&read["iops_samples"], &read["bw_samples"]), (&json!(3), &json!(3)));
    assert_eq!(json["jobs"][0]["write"]["bw_samples"], 0, "it was not used");
    // Half of what the two moved that ran at the same time; all of what one moved.
    let share = |json: &serde_json::Value| json["jobs"][0]["read"]["bw_agg"].as_f64().unwrap();
    other.cell = Some(1);
    let (half, all) = (share(&json), share(&report(&[one, other])));
    assert!((half * 2.0 - all).abs() < 1e-6 && all > 0.0, "{half} {all}");
}

#[test]
fn text_looks_like_fios() {
    let mut one = result("rr4k", "mem:1G?model=fast12", "poll", 4_400, 99.0);
    (one.floor_ns, one.floor_ratio, one.floor_ratio_spread) =
        (Some(712.4), Some(1.25), Some((1.2, 1.31)));
    let want = "\
rr4k: (groupid=0, jobs=1): err= 0: mem:1G?model=fast12, poll
  read: IOPS=218k, BW=850MiB/s (892MB/s)(46.9MiB/55msec)
    slat (nsec): min=100, max=100, avg=100.00, stdev=0.00
    clat (nsec): min=4400, max=13200, avg=4492.95, stdev=875.13
     lat (nsec): min=4500, max=13300, avg=4592.95, stdev=875.13
    clat percentiles (nsec):
     |  1.00th=[ 4403],  5.00th=[ 4403], 10.00th=[ 4403], 20.00th=[ 4403],
     | 30.00th=[ 4403], 40.00th=[ 4407], 50.00th=[ 4407], 60.00th=[ 4407],
     | 70.00th=[ 4407], 80.00th=[ 4411], 90.00th=[ 4411], 95.00th=[ 4411],
     | 99.00th=[ 4411], 99.50th=[13200], 99.90th=[13200], 99.95th=[13200],
     | 99.99th=[13200]
    slowest 1 in 6,000 (nsec): 13300
  cpu          : usr=74.25%, sys=24.75%, ctx=7, majf=0, minf=0
  IO depths    : 1=100.0%, 2=0.0%, 4=0.0%, 8=0.0%, 16=0.0%, 32=0.0%, >=64=0.0%
  floor        : 712 nsec, ratio=1.25 (1.20 to 1.31)
";
    assert_eq!(run_text(&one), want, "\n{}", run_text(&one));
}

#[test]
fn energy_is_shown_where_it_was_counted() {
    let plain = result("a", "mem:1G", "interrupt", 4_400, 50.0);
    let counted =
        RunResult { energy_uj_per_io: Some(12.345), completion: "poll".into(), ..plain.clone() };
    let both = [plain, counted];
    let json = report(&both);
    assert_eq!(json["jobs"][1]["energy_uj_per_io"], 12.345);
    assert!(json["jobs"][0].get("energy_uj_per_io").is_none());
    let [without, with] = [0, 1].map(|at: usize| run_text(&both[at]));
    assert!(with.contains("  energy       : 12.35 uJ per I/O") && !without.contains("energy"));
}
