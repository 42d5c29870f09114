//! Valid jobs that other load generators run otherwise (docs/interop.md).

use std::path::Path;

use serde_json::Value;

use crate::common::{json, run, succeed};

/// Runs a job with these options on a new SSD. Returns the first job of its JSON.
fn job(dir: &Path, device: &str, options: &[&str]) -> Value {
    let args = ["bench", "--no-control", "--completion", "poll", "--json", "out.json"];
    succeed(dir, &[&args[..], &["--device", device], options].concat());
    json(&dir.join("out.json"))["jobs"][0].clone()
}

fn count(of: &Value) -> u64 {
    of.as_u64().unwrap_or_else(|| panic!("{of}"))
}

/// The I/Os of the log of a job: the time in ms, the size and the offset.
fn logged(dir: &Path, log: &str) -> Vec<(u64, u64, u64)> {
    let text = std::fs::read_to_string(dir.join(format!("{log}_lat.1.log"))).unwrap();
    let number = |text: &str| text.trim().parse::<u64>().unwrap();
    let line = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        (number(fields[0]), number(fields[3]), number(fields[4]))
    };
    text.lines().map(line).collect()
}

#[test]
fn each_kind_of_sync_is_counted_as_a_sync() {
    let dir = tempfile::tempdir().unwrap();
    let of = |options: &[&str]| job(dir.path(), "mem:4M?inline=1", options);
    for key in ["--fsync", "--fdatasync"] {
        let done = of(&["--rw", "write", "--size", "1m", key, "8"]);
        assert_eq!(count(&done["sync"]["total_ios"]), 31, "{key}");
        assert_eq!(count(&done["sync"]["lat_ns"]["N"]), 31, "{key}");
        for dir in ["read", "write"] {
            assert_eq!(count(&done[dir]["short_ios"]), 0, "{key} {dir}");
        }
    }
    let done = of(&["--rw", "trimwrite", "--size", "1m", "--fsync", "8"]);
    assert_eq!((count(&done["write"]["total_ios"]), count(&done["sync"]["total_ios"])), (256, 31));
    // One for eight writes, whatever is read beside them.
    let done = of(&["--rw", "randrw", "--size", "4m", "--fsync", "8"]);
    let (writes, syncs) = (count(&done["write"]["total_ios"]), count(&done["sync"]["total_ios"]));
    assert!((writes / 8 - 1..=writes / 8).contains(&syncs), "{syncs} for {writes}");
}

#[test]
fn a_mix_holds_beside_a_rate() {
    let dir = tempfile::tempdir().unwrap();
    let share = |options: &[&str]| {
        let timed = ["--rw", "randrw", "--runtime", "1s"];
        let done = job(dir.path(), "mem:16M?inline=1", &[&timed[..], options].concat());
        let [reads, writes] = ["read", "write"].map(|dir| count(&done[dir]["total_ios"]) as f64);
        assert!(reads + writes > 100.0 && reads + writes < 4_000.0, "{reads} {writes}");
        reads / (reads + writes)
    };
    let mixed = share(&["--rwmixread", "70", "--rate-iops", "1000"]);
    assert!((0.65..0.75).contains(&mixed), "{mixed}");
    // The direction without a rate waits for the other.
    let one = share(&["--rate-iops", "100,"]);
    assert!((0.4..0.6).contains(&one), "{one}");
}

#[test]
fn blocks_of_two_sizes_are_whole_and_move_all() {
    let dir = tempfile::tempdir().unwrap();
    let options = ["--rw", "randrw", "--bs", "4k,16k", "--job-key", "size=16m"];
    let options = [&options[..2], &["--job-key", "bs=4k,16k"], &options[4..]].concat();
    let done = job(dir.path(), "mem:16M?inline=1", &options);
    let moved = count(&done["read"]["io_bytes"]) + count(&done["write"]["io_bytes"]);
    assert!(moved > (16 << 20) - (16 << 10), "{moved}");
    let options = ["--rw", "randwrite", "--bssplit", "4k/10:64k/90", "--size", "4m"];
    let log = ["--write-lat-log", "split", "--job-key", "log_offset=1"];
    job(dir.path(), "mem:16M?inline=1", &[&options[..], &log].concat());
    let sizes = logged(dir.path(), "split");
    assert!(sizes.iter().all(|(_, size, _)| [4 << 10, 64 << 10].contains(size)), "{sizes:?}");
}

#[test]
fn what_was_written_is_checked_whatever_ended_the_job() {
    let dir = tempfile::tempdir().unwrap();
    let verified = |options: &[&str]| {
        let verify = ["--rw", "randwrite", "--verify", "crc32c", "--size", "1m"];
        let done = job(dir.path(), "mem:16M?inline=1", &[&verify[..], options].concat());
        (
            count(&done["write"]["total_ios"]),
            done["extra"]["verified_blocks"].as_f64().unwrap() as u64,
        )
    };
    for time_based in ["0", "1"] {
        let limit = ["--runtime", "300ms", "--rate-iops", "200"];
        let time_based = format!("--time-based={time_based}");
        let (written, checked) = verified(&[&limit[..], &[&time_based]].concat());
        assert!(written > 0 && checked > 0, "{time_based}: {written} {checked}");
    }
    assert_eq!(verified(&["--io-size", "2m"]), (512, 256));
}

#[test]
fn each_loop_begins_at_the_offset() {
    let dir = tempfile::tempdir().unwrap();
    let options = ["--rw", "write", "--size", "64k", "--io-size", "32k", "--loops", "2"];
    let log = ["--write-lat-log", "loops", "--job-key", "log_offset=1"];
    job(dir.path(), "mem:16M?inline=1", &[&options[..], &log].concat());
    let offsets = logged(dir.path(), "loops").into_iter().map(|(.., offset)| offset >> 12);
    assert_eq!(offsets.collect::<Vec<_>>(), (0..8).chain(0..8).collect::<Vec<_>>());
}

/// The last window of a log ends where it would have ended, and is there.
#[test]
fn the_window_that_the_end_cuts_is_logged() {
    let dir = tempfile::tempdir().unwrap();
    let options = ["--rw", "randread", "--runtime", "1700ms", "--rate-iops", "100"];
    let log = ["--write-lat-log", "log", "--job-key", "log_avg_msec=500"];
    job(dir.path(), "mem:16M?inline=1", &[&options[..], &log].concat());
    let text = std::fs::read_to_string(dir.path().join("log_lat.1.log")).unwrap();
    let times: Vec<&str> = text.lines().map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(times, ["500", "1000", "1500", "2000"], "{text}");
}

#[test]
fn a_share_of_a_file_that_is_not_there_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["bench", "--rw", "write", "--size", "1m", "--completion", "interrupt"];
    let device = ["--device", "kernel:new?create=1M&direct=0", "--job-key", "offset=50%"];
    let ran = run(dir.path(), &[&args[..], &device].concat());
    assert!(ran.code != Some(0) && ran.stderr.contains("offset"), "{ran:?}");
    assert!(!dir.path().join("new").exists());
}

/// Fewer than a thousand I/Os in less than a millisecond: nothing is rounded to one.
#[test]
fn rates_of_short_runs_are_right() {
    let dir = tempfile::tempdir().unwrap();
    let options = ["--rw", "randread", "--number-ios", "200", "--size", "4m"];
    let done = job(dir.path(), "mem:4M?inline=1", &options);
    let (ios, mean_ns) = (&done["read"]["total_ios"], &done["read"]["lat_ns"]["mean"]);
    let iops = done["read"]["iops"].as_f64().unwrap();
    // One at a time, so the latencies are most of the time.
    let by_latency = 1e9 / mean_ns.as_f64().unwrap();
    assert_eq!(count(ios), 200);
    assert!(iops < by_latency && iops > by_latency / 10.0, "{iops} {by_latency}");
}
