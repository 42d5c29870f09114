//! `meantime info` and `meantime calibrate` as a user runs them.

use crate::common::{run, succeed};
use serde_json::Value;

#[test]
fn info_shows_the_device() {
    let dir = tempfile::tempdir().unwrap();
    let ran = succeed(dir.path(), &["info", "--device", "mem:8M?namespaces=2&lba=4096&vwc=1"]);
    for word in [
        "Meantime software SSD",
        "1.4.0",
        "yes, opened",
        "Arbitration",
        "Number of Queues",
        "power cycles",
    ] {
        assert!(ran.stdout.contains(word), "no {word:?} in {}", ran.stdout);
    }
    let widest = ran.stdout.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= 120, "{widest} columns\n{}", ran.stdout);

    let ran =
        succeed(dir.path(), &["info", "--device", "mem:8M?namespaces=2&lba=4096&vwc=1", "--json"]);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["controller"]["model"], "Meantime software SSD");
    assert_eq!(report["controller"]["volatile_write_cache"], true);
    assert_eq!(report["namespaces"].as_array().unwrap().len(), 2);
    assert_eq!(report["namespaces"][1]["blocks"], 1024);
    assert_eq!(report["features"][4]["value"], 1, "the volatile write cache is on");
    assert_eq!(report["smart"]["critical_warning"], 0);
}

#[test]
fn info_shows_coalescing_of_the_uri() {
    let dir = tempfile::tempdir().unwrap();
    let shown = |uri: &str| succeed(dir.path(), &["info", "--device", uri]).stdout;
    assert!(shown("mem:8M?coalesce=4/200us").contains("4 completions or 200 µs"));
    assert!(shown("mem:8M").contains("an interrupt per completion"));
}

#[test]
fn calibrate_has_the_agreed_keys() {
    let dir = tempfile::tempdir().unwrap();
    let ran = succeed(dir.path(), &["calibrate", "--quick", "--json"]);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    for key in
        ["cacheline_rtt_ns", "cacheline_rtt", "clock_read", "eventfd_wake", "oversleep", "machine"]
    {
        assert!(report.get(key).is_some(), "no {key}");
    }
    let sleeps: Vec<u64> = report["oversleep"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["sleep_us"].as_u64().unwrap())
        .collect();
    assert_eq!(sleeps, [1, 2, 5, 10, 20, 50, 100, 1000]);
    for row in report["oversleep"].as_array().unwrap() {
        let at = |key: &str| row[key].as_u64().unwrap();
        assert!(at("median_ns") <= at("p99_ns") && at("p99_ns") <= at("max_ns"), "{row}");
    }
    // With the limit on idling the same, if this user may set it.
    let held = report["pm_qos"]["held"].as_bool().unwrap();
    assert_eq!(report["pm_qos"]["refused"].is_null(), held);
    let rows = report["pm_qos"]["oversleep"].as_array().unwrap();
    assert_eq!(rows.len(), if held { sleeps.len() } else { 0 });
    for (row, free) in rows.iter().zip(report["oversleep"].as_array().unwrap()) {
        assert_eq!((&row["sleep_us"], &row["count"]), (&free["sleep_us"], &free["count"]));
    }
    // The ways of sleeping, each with what it costs: user-mode waits are there if the CPU has them.
    for (group, without) in [("sleep_cpu", 0), ("oversleep_by_way", 1)] {
        let rows = report[group].as_array().unwrap();
        let ways: Vec<&str> = rows.iter().map(|row| row["way"].as_str().unwrap()).collect();
        let expected = [
            "nanosleep",
            "nanosleep",
            "clock_nanosleep",
            "clock_nanosleep",
            "eventfd",
            "eventfd",
            "futex",
            "futex",
        ];
        assert_eq!(ways[..8 - 2 * without], expected[2 * without..], "{group}");
        assert!(ways[8 - 2 * without..].iter().all(|way| *way == "user"), "{group}");
        assert!(rows.iter().all(
            |row| row["median_ns"].as_u64().unwrap() > 0 && row["count"].as_u64().unwrap() > 0
        ));
        assert_eq!(
            report["pm_qos"][group].as_array().unwrap().len(),
            if held { rows.len() } else { 0 }
        );
    }
    // Where the kernel counts it, a share.
    let waited = &report["waited_percent"];
    assert!(waited.is_null() || (0.0..=100.0).contains(&waited.as_f64().unwrap()), "{waited}");
    assert!(report["idle"]["states"].is_array() && report["idle"]["boot_options"].is_array());
    if report["cpu"] != report["peer_cpu"] {
        assert_eq!(
            report["pm_qos"]["eventfd_wake"].as_array().unwrap().len(),
            if held { 3 } else { 0 }
        );
        assert!(report["cacheline_rtt_ns"].as_u64().unwrap() > 0);
        assert_eq!(report["eventfd_wake"].as_array().unwrap().len(), 3);
        assert_eq!(report["futex_wake"].as_array().unwrap().len(), 3);
        // How much of an interrupt is the idle state.
        let costs = report["idle_cost"].as_array().unwrap();
        assert_eq!(costs.len(), if held { 3 } else { 0 });
        for (cost, wake) in costs.iter().zip(report["eventfd_wake"].as_array().unwrap()) {
            let percent = cost["idle_state_percent"].as_f64().unwrap();
            assert!((0.0..=100.0).contains(&percent), "{cost}");
            assert_eq!(
                (&cost["idle_us"], &cost["wake_ns"]),
                (&wake["idle_us"], &wake["median_ns"])
            );
        }
    }
}

#[test]
fn calibrate_tells_how_the_cpus_idle() {
    let dir = tempfile::tempdir().unwrap();
    let ran = succeed(dir.path(), &["calibrate", "--quick"]);
    for word in [
        "oversleep of nanosleep 1 ms",
        "CPU time of an eventfd that times out, 10 µs",
        "PM QoS 0",
        "C-states: driver",
        "Measured on CPU",
    ] {
        assert!(ran.stdout.contains(word), "no {word:?} in {}", ran.stdout);
    }
    let widest = ran.stdout.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= 120, "{widest} columns\n{}", ran.stdout);
}

#[test]
fn help_and_version_are_results() {
    let dir = tempfile::tempdir().unwrap();
    assert!(succeed(dir.path(), &["--version"]).stdout.starts_with("meantime 0."));
    for args in [
        &["--help"][..],
        &["bench", "--help"],
        &["bench", "-h"],
        &["info", "--help"],
        &["calibrate", "--help"],
        &["anatomy", "--help"],
    ] {
        let ran = succeed(dir.path(), args);
        assert!(ran.stdout.contains("Usage:") && ran.stderr.is_empty());
    }
    for args in [&["help"][..], &["help", "bench"]] {
        let ran = succeed(dir.path(), args);
        assert!(ran.stdout.contains("Usage:") && ran.stderr.is_empty());
    }
    assert_eq!(run(dir.path(), &["help", "nothing"]).code, Some(2));
}
