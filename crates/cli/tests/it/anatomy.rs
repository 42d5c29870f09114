//! `meantime anatomy` as a user runs it, in short.

use std::time::{Duration, Instant};

use crate::common::{files, interrupted, json, meantime, run, succeed};
use serde_json::Value;

const SHORT: [&str; 2] = ["--runtime", "60ms"];

const PARTS: [&str; 7] = ["submit", "doorbell", "queue", "service", "wake", "cqe_seen", "complete"];

fn ns(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn parts_add_up_and_the_device_takes_what_its_model_says() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        &["anatomy", "--device", "mem:4M?model=fast12,mem:4M?model=optane", "--bs", "512,4k"][..],
        &["--completion", "interrupt,poll,hybrid=2us", "--json", "a.json", "--svg", "a.svg"],
        &SHORT,
    ];
    let ran = succeed(dir.path(), &args.concat());
    assert_eq!(ran.stderr, "");
    for word in
        ["host submit", "service", "wake", "CQE to seen", "Ta + Tb", "1 in 6,000", "p99.99", "CPUs"]
    {
        assert!(ran.stdout.contains(word), "no {word:?} in {}", ran.stdout);
    }
    let widest = ran.stdout.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= 120, "{widest} columns\n{}", ran.stdout);
    assert!(!ran.stdout.contains('\x1b'), "no colours where there is no terminal");

    let report = json(&dir.path().join("a.json"));
    let bars = report["bars"].as_array().unwrap();
    assert_eq!(bars.len(), 12);
    for bar in bars {
        assert_eq!(bar["stamped"], true);
        for tally in [&bar["alone"], &bar["competing"]] {
            assert!(tally["ios"].as_u64().unwrap() > 0, "{tally}");
            let typical: f64 =
                PARTS.iter().map(|part| ns(&tally["typical"][format!("{part}_ns")])).sum();
            let whole = ns(&tally["typical"]["total_ns"]);
            assert!((typical - whole).abs() < 0.01 && whole > 0.0, "{tally}");
            // Means of all I/Os add up as well.
            let mean: f64 = PARTS.iter().map(|part| ns(&tally["parts"][part]["mean_ns"])).sum();
            assert!((mean - ns(&tally["total"]["mean_ns"])).abs() < 0.01, "{tally}");
            let sides = ns(&tally["host"]["mean_ns"]) + ns(&tally["device"]["mean_ns"]);
            assert!((sides - mean).abs() < 0.01, "{tally}");
            assert!(ns(&tally["slowest"]["from_ns"]) <= ns(&tally["total"]["max_ns"]));
        }
        // Exact: the SSD completes nothing early.
        let model_ns = match (bar["device"].as_str().unwrap(), bar["bs_bytes"].as_u64().unwrap()) {
            ("mem:4M?model=fast12", 512) => 1_500.0,
            ("mem:4M?model=fast12", 4096) => 2_900.0,
            ("mem:4M?model=optane", 4096) => 7_260.0,
            _ => 1.0,
        };
        if bar["alone"]["contradicted_ios"] == 0 && bar["device"] == "mem:4M?model=fast12" {
            assert!(ns(&bar["alone"]["parts"]["service"]["min_ns"]) >= model_ns, "{bar}");
        }
        if bar["completion"] == "poll" {
            // What falls back to sleeping is the exception.
            assert_eq!(ns(&bar["alone"]["parts"]["wake"]["p50_ns"]), 0.0, "{bar}");
        }
        let times = &bar["fast12"];
        let sum = ns(&times["ta_ns"]) + ns(&times["tb_ns"]) + ns(&times["tu_ns"]);
        assert!((sum - ns(&times["total_ns"])).abs() < 0.01, "{times}");
        assert!(
            (ns(&times["ta_ns"]) + ns(&times["tb_ns"]) - ns(&times["ta_tb_ns"])).abs() < 0.01,
            "{times}"
        );
        assert!(
            (ns(&times["td_ns"]) - ns(&times["tb_ns"]) - ns(&times["tu_ns"])).abs() < 0.01,
            "{times}"
        );
    }
    assert!(ns(&report["competitor"]["alone"]["ran_ns"]) > 0.0);
    for key in ["rw", "cpu", "clock_read_ns", "interrupted", "machine"] {
        assert!(!report[key].is_null(), "no {key}");
    }
    let svg = std::fs::read_to_string(dir.path().join("a.svg")).unwrap();
    assert!(
        svg.starts_with("<svg") && svg.contains("model=optane") && svg.contains("host completion")
    );
    assert_eq!(files(dir.path()), ["a.json", "a.svg"]);
}

#[test]
fn writes_and_a_walking_competitor() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "anatomy",
        "--device",
        "file:d.img?create=1M&model=null",
        "--rw",
        "write",
        "--completion",
        "poll",
    ];
    let ran = succeed(
        dir.path(),
        &[&args[..], &["--competitor", "walk=64k", "--json", "-"], &SHORT].concat(),
    );
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert!(
        ran.stderr.contains("sequential write"),
        "the text goes to stderr then: {}",
        ran.stderr
    );
    assert_eq!(report["competitor"]["kind"], "walk=64k");
    assert!(ns(&report["competitor"]["alone"]["work"]) > 0.0);
    // Moving the data takes the device its time.
    assert!(ns(&report["bars"][0]["alone"]["parts"]["service"]["p50_ns"]) > 0.0);
}

#[test]
fn alone() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "anatomy",
        "--device",
        "mem:1M",
        "--completion",
        "poll",
        "--competitor",
        "none",
        "--json",
        "a.json",
    ];
    let ran = succeed(dir.path(), &[&args[..], &SHORT].concat());
    assert!(!ran.stdout.contains("Ta + Tb"));
    let report = json(&dir.path().join("a.json"));
    assert!(report["competitor"].is_null() && report["bars"][0]["fast12"].is_null());
}

#[test]
fn what_cannot_be_is_one_line() {
    let dir = tempfile::tempdir().unwrap();
    for (code, args, word) in [
        (2, &["--device", "men:1M"][..], "unknown scheme"),
        (1, &["--device", "mem:1M?model=nome"], "nome"),
        (2, &["--device", "mem:1M,mem:1M"], "twice"),
        (2, &["--device", "mem:1M,"], "empty"),
        (2, &["--completion", "nap"], "interrupt, poll, adaptive"),
        (2, &["--completion", "poll,poll"], "twice"),
        (2, &["--rw", "randrw"], "one after the other"),
        (2, &["--rw", "sideways"], "randread"),
        (2, &["--bs", "100"], "512"),
        (2, &["--bs", "4k,4096"], "twice"),
        (1, &["--bs", "2m", "--device", "mem:64M"], "smaller --bs"),
        (1, &["--bs", "512", "--device", "mem:1M?lba=4096"], "4096-byte blocks"),
        (1, &["--device", "mem:4M?boundary=3", "--bs", "4k", "--runtime", "20ms"], "smaller --bs"),
        (2, &["--runtime", "1x"], "--runtime"),
        (2, &["--competitor", "cat"], "walk=BYTES"),
        (2, &["--cpu", "4000"], "--cpu"),
        (1, &["--json", "no/such/dir.json"], "--json"),
        (1, &["--svg", "no/such/dir.svg"], "--svg"),
        (2, &["--svg", "-", "--json", "-"], "--svg"),
        (2, &["--svg", "x", "--json", "x"], "same file"),
        (1, &["--device", "file:new.img?create=1M", "--bs", "2m"], "smaller bs"),
    ] {
        let ran = run(dir.path(), &[&["anatomy"], args].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(code), ""), "{args:?}: {}", ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 1, "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(word), "{args:?}: no {word:?} in {}", ran.stderr);
        assert_eq!(files(dir.path()), [""; 0], "{args:?} left something");
    }
    // The second program is nothing to be started by hand.
    let ran = run(dir.path(), &["competitor", "--cpu", "0", "--kind", "tsc", "--parent", "1"]);
    assert_eq!((ran.code, ran.stderr.lines().count()), (Some(2), 1), "{ran:?}");
}

#[test]
fn ctrl_c_ends_with_what_was_measured() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "anatomy",
        "--device",
        "mem:1M",
        "--completion",
        "poll",
        "--runtime",
        "600",
        "--json",
        "a.json",
    ];
    interrupted(dir.path(), &args, |ran| ran.stdout.contains("host submit"));
    assert_eq!(json(&dir.path().join("a.json"))["interrupted"], true);
}

/// Where the command dies, so does the second program, which would burn a CPU for ever.
#[test]
fn a_killed_command_leaves_nobody_behind() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["anatomy", "--device", "mem:1M", "--completion", "poll", "--runtime", "600"];
    let mut child = meantime(dir.path(), &args).spawn().unwrap();
    let parent = child.id().to_string();
    let start = Instant::now();
    let second = loop {
        if let Some(pid) = competitors(&parent).first() {
            break *pid;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "no second program");
        std::thread::sleep(Duration::from_millis(10));
    };
    child.kill().unwrap();
    child.wait().unwrap();
    let start = Instant::now();
    while std::path::Path::new(&format!("/proc/{second}")).exists() {
        assert!(start.elapsed() < Duration::from_secs(40), "the second program lives on");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Processes whose command line says that `parent` started them as a competitor.
fn competitors(parent: &str) -> Vec<u32> {
    let pids = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_one = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        words.get(1) == Some(&&b"competitor"[..]) && words.contains(&parent.as_bytes())
    };
    pids.filter(is_one).collect()
}
