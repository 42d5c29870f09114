//! The software SSD conforms; and with each fault that a host can see, the deviation is named.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use meantime_qualify::{Plan, Report, Verdict, qualify};

/// A plan that neither writes nor resets, with short measurements.
fn gentle<'a>(uri: &'a str, stop: &'a AtomicBool) -> Plan<'a> {
    Plan {
        uri,
        destroy: false,
        reset: false,
        measured: Duration::from_millis(30),
        timeout: Duration::from_secs(2),
        power_cycle: None,
        writer: None,
        stop,
    }
}

/// Qualifies `uri` with `faults`, rules of a fault plan.
fn qualified(uri: &str, faults: &str, destroy: bool) -> Report {
    let dir = tempfile::tempdir().unwrap();
    let plan = dir.path().join("plan.toml");
    std::fs::write(&plan, faults).unwrap();
    let uri = match faults {
        "" => uri.to_owned(),
        _ => format!("{uri}&faults={}", plan.display()),
    };
    let stop = AtomicBool::new(false);
    // On a busy machine nothing may look late; what is late by a fault takes that long.
    let timeout = Duration::from_secs(if faults.is_empty() { 30 } else { 2 });
    let plan = Plan { destroy, reset: true, timeout, ..gentle(&uri, &stop) };
    qualify(&plan, |_, _, _| {}).unwrap()
}

/// All deviations, with the check's name before each.
fn deviations(report: &Report) -> Vec<String> {
    let of = |check: &meantime_qualify::Check| -> Vec<String> {
        let name = check.name;
        check.deviations.iter().map(|one| format!("{name}: {} {}", one.section, one.what)).collect()
    };
    report.checks.iter().flat_map(of).collect()
}

#[test]
fn the_software_ssd_conforms() {
    for uri in [
        "mem:16M?model=null",
        "mem:16M?model=null&lba=4096&namespaces=2&vwc=1",
        "mem:32M?model=optane&boundary=32&mdts=64K",
    ] {
        let report = qualified(uri, "", true);
        assert_eq!(deviations(&report), Vec::<String>::new(), "{uri}");
        // It keeps nothing in memory beyond this process, and cannot be power-cycled from here.
        for name in ["killed", "power-cycle"] {
            assert_eq!(report.check(name).unwrap().verdict, Verdict::NotTested, "{uri}: {name}");
        }
        assert!(report.count(Verdict::Conforms) >= 20, "{uri}: {}", report.summary());
        assert_eq!(report.json()["conforms"], true);
    }
}

#[test]
fn without_leave_nothing_is_written_and_nothing_reset() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.img");
    let content: Vec<u8> =
        (0..8u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(&image, &content).unwrap();
    let stop = AtomicBool::new(false);
    let uri = format!("file:{}?model=null", image.display());
    let plan = gentle(&uri, &stop);
    let report = qualify(&plan, |_, _, _| {}).unwrap();
    assert_eq!(deviations(&report), Vec::<String>::new());
    for name in ["write-sizes", "patterns", "reset", "abort", "attach"] {
        assert_eq!(report.check(name).unwrap().verdict, Verdict::NotTested, "{name}");
    }
    assert!(std::fs::read(&image).unwrap() == content, "the medium changed");
}

#[test]
fn a_partition_is_refused() {
    let stop = AtomicBool::new(false);
    let plan = gentle("mem:16M?partition=1", &stop);
    let error = qualify(&plan, |_, _, _| {}).unwrap_err().to_string();
    assert!(error.contains("leave out `partition`"), "{error}");
}

/// A fault's rule, and what one of the deviations has to say.
const SEEN: &[(&str, &str)] = &[
    ("fault = \"wrong-phase\"\nopcode = \"read\"\nfrom = 3000\ntimes = 1", "wrong phase tag"),
    (
        "fault = \"lost-completion\"\nopcode = \"read\"\nfrom = 3000\ntimes = 1",
        "before their deadline",
    ),
    (
        "fault = \"late-completion\"\nby = \"3s\"\nopcode = \"read\"\nfrom = 3000\ntimes = 1",
        "deadline",
    ),
    ("fault = \"stray-cqe\"\nopcode = \"read\"\nevery = 700", "not outstanding"),
    ("fault = \"duplicate-cqe\"\nopcode = \"read\"\nevery = 700", "not outstanding"),
    ("fault = \"wrong-sqhd\"\nopcode = \"read\"\nevery = 700", "SQ Head"),
    ("fault = \"lost-interrupt\"\nopcode = \"read\"\nevery = 101", "without an interrupt"),
    (
        "fault = \"status\"\nstatus = \"command-interrupted\"\nopcode = \"read\"\nevery = 700",
        "allows a repetition",
    ),
    ("fault = \"fatal-status\"\nopcode = \"read\"\nfrom = 3000\ntimes = 1", "CSTS.CFS"),
    ("fault = \"corrupt-read\"\nopcode = \"read\"\nevery = 50", "other data"),
    ("fault = \"surprise-removal\"\nopcode = \"read\"\nfrom = 3000\ntimes = 1", "gone"),
];

#[test]
fn faults_that_a_host_can_see_are_named() {
    for &(rule, word) in SEEN {
        let report = qualified("mem:16M?model=null", &format!("[[fault]]\n{rule}\n"), false);
        let all = deviations(&report);
        assert!(all.iter().any(|one| one.contains(word)), "{rule}: {all:?}");
        assert_eq!(report.json()["conforms"], false);
    }
}

/// Faults of data that are written.
const WRITTEN: &[(&str, &str, &str)] = &[
    ("fault = \"corrupt-write\"\nopcode = \"write\"\nevery = 20", "write-sizes", "other data"),
    ("fault = \"unfused\"", "compare-and-write", "still wrote"),
    (
        "fault = \"status\"\nstatus = \"write-fault\"\ndnr = true\nopcode = \"write-zeroes\"",
        "write-zeroes",
        "Write Fault",
    ),
];

#[test]
fn wrong_data_are_named() {
    for &(rule, check, word) in WRITTEN {
        let report = qualified("mem:16M?model=null", &format!("[[fault]]\n{rule}\n"), true);
        let check = report.check(check).unwrap();
        assert_eq!(check.verdict, Verdict::Deviates, "{rule}: {check:?}");
        assert!(check.deviations.iter().any(|one| one.what.contains(word)), "{rule}: {check:?}");
    }
}

#[test]
fn a_device_that_cannot_be_enabled_deviates() {
    let report = qualified("mem:16M?model=null", "[[fault]]\nfault = \"never-ready\"\n", false);
    let enable = report.check("enable").unwrap();
    assert_eq!(enable.verdict, Verdict::Deviates);
    assert!(enable.deviations[0].what.contains("CAP.TO"), "{enable:?}");
    assert_eq!(report.count(Verdict::NotTested), report.checks.len() - 1);
}
