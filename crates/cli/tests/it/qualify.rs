//! `meantime qualify`: on a served SSD, with writers that are killed and power that is cut.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use serde_json::Value;

use crate::common::{Ran, interrupted, json, meantime, run, succeed};

const DEVICE: &str = "vfio-user:ssd.sock";

/// A served SSD, killed at the end.
struct Served(Child);

impl Served {
    fn start(dir: &Path, device: &str) -> Self {
        let args = ["ssd", "--socket", "ssd.sock", "--ctl", "ctl.sock", "--serial", "SN 7", device];
        let mut child = meantime(dir, &args).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert!(!ready.is_empty(), "it does not begin");
        Self(child)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The verdict of a check.
fn verdict<'a>(report: &'a Value, name: &str) -> &'a str {
    let checks = report["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["name"] == name).unwrap();
    check["verdict"].as_str().unwrap()
}

/// Qualifies the served SSD, whose power can be cut.
fn destroyed(dir: &Path, serial: &str) -> Ran {
    let cut = format!("{} ssd ctl ctl.sock power-cut", env!("CARGO_BIN_EXE_meantime"));
    let destroy = format!("--destroy={serial}");
    let args = [
        "qualify",
        DEVICE,
        &destroy,
        "--power-cycle",
        &cut,
        "--runtime",
        "20ms",
        "--timeout",
        "30",
    ];
    let files = ["--json", "report.json", "--html", "report.html"];
    run(dir, &[&args[..], &files].concat())
}

#[test]
fn a_served_ssd_conforms_with_kills_and_power_cuts() {
    let dir = tempfile::tempdir().unwrap();
    let _served = Served::start(dir.path(), "mem:16M?model=null&vwc=1");
    let ran = destroyed(dir.path(), "SN 7");
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    let report = json(&dir.path().join("report.json"));
    for name in ["killed", "power-cycle", "reset", "abort", "attach", "patterns"] {
        assert_eq!(verdict(&report, name), "conforms", "{ran:#?}");
    }
    // What is sent to others has no serial number, unless that is asked for.
    let page = std::fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert!(!page.contains("SN 7") && !report.to_string().contains("SN 7"));
    assert!(page.contains("Power is cut") && !page.contains("Deviations"), "{page}");
    let args = ["qualify", DEVICE, "--runtime", "1ms", "--no-reset", "--serial", "--json", "-"];
    let ran = succeed(dir.path(), &args);
    assert!(ran.stdout.contains("SN 7"), "{ran:#?}");
}

#[test]
fn what_only_a_power_cut_shows_deviates() {
    let dir = tempfile::tempdir().unwrap();
    let _served = Served::start(dir.path(), "mem:16M?model=null&vwc=1");
    for (fault, words) in
        [("torn-write", "are there in part"), ("ignored-flush", "flushed, then power was cut")]
    {
        succeed(dir.path(), &["ssd", "ctl", "ctl.sock", "faults", "add", fault]);
        let ran = destroyed(dir.path(), "SN 7");
        assert_eq!(ran.code, Some(3), "{ran:#?}");
        let report = json(&dir.path().join("report.json"));
        assert_eq!(verdict(&report, "power-cycle"), "deviates", "{ran:#?}");
        assert!(ran.stdout.contains(words), "{ran:#?}");
        succeed(dir.path(), &["ssd", "ctl", "ctl.sock", "faults", "clear"]);
    }
}

#[test]
fn only_the_serial_number_permits_writes() {
    let dir = tempfile::tempdir().unwrap();
    let _served = Served::start(dir.path(), "file:disk.img?create=4M&model=null");
    let before = std::fs::read(dir.path().join("disk.img")).unwrap();
    let ran = destroyed(dir.path(), "SN 8");
    assert_eq!(ran.code, Some(2), "{ran:#?}");
    assert!(ran.stderr.contains("is not the serial number"), "{ran:#?}");
    let ran = run(dir.path(), &["qualify", DEVICE, "--destroy"]);
    assert_eq!(ran.code, Some(2), "{ran:#?}");
    assert!(ran.stderr.contains("--destroy=SERIAL"), "{ran:#?}");
    let ran = run(dir.path(), &["qualify", DEVICE, "--power-cycle", "true"]);
    assert_eq!(ran.code, Some(2), "{ran:#?}");
    assert!(before == std::fs::read(dir.path().join("disk.img")).unwrap(), "data were written");
}

#[test]
fn interrupted_it_reports_and_leaves_the_device_usable() {
    let dir = tempfile::tempdir().unwrap();
    let _served = Served::start(dir.path(), "mem:16M?model=null");
    let args = ["qualify", DEVICE, "--runtime", "300", "--json", "report.json"];
    let has_begun = |ran: &Ran| ran.stdout.contains("Identify Controller");
    let ran = interrupted(dir.path(), &args, has_begun);
    assert!(ran.stdout.contains("interrupted before the end"), "{ran:#?}");
    assert_eq!(json(&dir.path().join("report.json"))["interrupted"], true);
    succeed(dir.path(), &["info", "--device", DEVICE]);
}

#[test]
fn killed_at_any_moment_it_leaves_a_device_that_attaches() {
    let dir = tempfile::tempdir().unwrap();
    let _served = Served::start(dir.path(), "mem:16M?model=null&vwc=1");
    let args = ["qualify", DEVICE, "--destroy=SN 7", "--runtime", "20ms", "--timeout", "30"];
    for round in 0..20u64 {
        let mut child = meantime(dir.path(), &args).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(10 + round * round * 5));
        child.kill().unwrap();
        child.wait().unwrap();
        succeed(dir.path(), &["info", "--device", DEVICE]);
    }
}
