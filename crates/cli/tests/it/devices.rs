//! `meantime devices` on whatever machine this is, and ending by signals.

use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::{meantime, succeed};

#[test]
fn devices_are_shown_or_said_to_be_none() {
    let dir = tempfile::tempdir().unwrap();
    let text = succeed(dir.path(), &["devices"]).stdout;
    let json: serde_json::Value =
        serde_json::from_str(&succeed(dir.path(), &["devices", "--json"]).stdout).unwrap();
    let devices = json["devices"].as_array().unwrap();
    if devices.is_empty() {
        assert!(text.contains("No NVMe controller") && text.contains("mem:1G"), "{text}");
    }
    for device in devices {
        assert!(text.contains(device["address"].as_str().unwrap()), "{text}");
    }
}

/// A bench, sent `signal` when it runs: its exit code, or the signal that killed it.
fn ended_by(signal: libc::c_int, ignored: bool) -> (Option<i32>, Option<i32>) {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "bench",
        "--device",
        "mem:4M",
        "--rw",
        "randread",
        "--completion",
        "interrupt",
        "--time-based",
    ];
    let runtime = ["--runtime", if ignored { "2" } else { "600" }];
    let mut command = meantime(dir.path(), &[&args[..], &runtime].concat());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    if ignored {
        // SAFETY: `signal` is async-signal-safe, and nothing else happens between fork and exec.
        unsafe {
            command.pre_exec(move || {
                libc::signal(signal, libc::SIG_IGN);
                Ok(())
            });
        }
    }
    let mut child = command.spawn().unwrap();
    // It catches signals before it opens the device, whose thread then shows.
    let tasks = format!("/proc/{}/task", child.id());
    let end = Instant::now() + Duration::from_secs(60);
    while std::fs::read_dir(&tasks).is_ok_and(|tasks| tasks.count() < 2) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
    // SAFETY: the child has not been waited for, so that the number is still its own.
    unsafe { libc::kill(child.id() as libc::pid_t, signal) };
    let status = child.wait().unwrap();
    (status.code(), status.signal())
}

#[test]
fn every_signal_that_asks_for_the_end_gets_an_orderly_one() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        assert_eq!(ended_by(signal, false), (Some(128 + signal), None));
    }
}

#[test]
fn under_nohup_a_closed_terminal_ends_nothing() {
    assert_eq!(ended_by(libc::SIGHUP, true), (Some(0), None));
}
