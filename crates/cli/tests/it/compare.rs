//! `meantime compare` and `bench --against`.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::common::{Ran, await_handler, files, json, meantime, run, succeed};

/// Writes a file of ours, or of fio's, whose mean latency is `ns`.
fn write(dir: &Path, name: &str, tool: &str, ns: u64) {
    let none = json!({"min": 0, "max": 0, "mean": 0.0, "N": 0});
    let percentiles = json!({"50.000000": ns, "99.000000": 2 * ns});
    let lat = json!({"min": ns, "max": 3 * ns, "mean": ns, "N": 10_000, "percentile": percentiles});
    let options = json!({"rw": "randread", "bs": "4k", "device": "mem:1M", "completion": "poll",
        "filename": "/dev/x", "ioengine": "io_uring", "direct": "1"});
    let file = json!({
        "fio version": tool,
        "jobs": [{
            "jobname": "rr", "job options": options,
            "usr_cpu": 20.0 + ns as f64 / 1e4, "sys_cpu": 1.0,
            "read": {"iops": 1e9 / ns as f64, "lat_ns": lat, "clat_ns": none},
            "write": {"lat_ns": none, "clat_ns": none},
        }],
    });
    std::fs::write(dir.join(name), file.to_string()).unwrap();
}

/// Six files: three before, and three after that are 5 % slower.
fn three_each(tool: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for at in 0..3 {
        write(dir.path(), &format!("b{at}.json"), tool, 100_000 + 100 * at);
        write(dir.path(), &format!("a{at}.json"), tool, 105_000 + 100 * at);
    }
    dir
}

const LISTS: [&str; 3] = ["compare", "b0.json,b1.json,b2.json", "a0.json,a1.json,a2.json"];

#[test]
fn three_files_a_side_have_verdicts() {
    for (tool, way) in [("meantime-0.1.0", "mem:1M, poll"), ("fio-3.33", "fio, kernel (io_uring)")]
    {
        let dir = three_each(tool);
        let text = succeed(dir.path(), &LISTS).stdout;
        assert!(text.contains(way) && text.contains("+5.0 %"), "{text}");
        assert!(text.contains("slower: mean, "), "{text}");
        let args = "compare --before b0.json b1.json b2.json --after a0.json,a1.json a2.json";
        let args: Vec<&str> = args.split(' ').collect();
        assert_eq!(succeed(dir.path(), &args).stdout, text);
        let json = succeed(dir.path(), &[&LISTS[..], &["--json"]].concat()).stdout;
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["cells"][0]["figures"]["iops"]["verdict"], "slower");
        let text = succeed(dir.path(), &[&LISTS[..], &["--markdown"]].concat()).stdout;
        assert!(text.contains("| mean | 100 µs | 105 µs | +5.0 % |"), "{text}");
    }
}

#[test]
fn two_files_have_a_difference_and_no_verdict() {
    let dir = three_each("meantime-0.1.0");
    let ran = succeed(dir.path(), &["compare", "b0.json", "a0.json"]);
    assert!(ran.stdout.contains("fewer than 3 values a side"), "{}", ran.stdout);
    assert!(ran.stdout.contains("+5.0 %") && !ran.stdout.contains("slower"), "{}", ran.stdout);
    let ran = run(dir.path(), &["compare", "b0.json", "a0.json", "--fail-if", "p99>+1%"]);
    assert_eq!(ran.code, Some(1), "what cannot be judged is no pass: {ran:?}");
    assert!(ran.stderr.contains("cannot judge p99>+1%: rr, "), "{}", ran.stderr);
}

#[test]
fn a_change_that_is_forbidden_has_its_status() {
    let dir = three_each("meantime-0.1.0");
    let fail_if = |conditions: &[&str]| {
        let args = conditions.iter().flat_map(|condition| ["--fail-if", *condition]);
        run(dir.path(), &LISTS.into_iter().chain(args).collect::<Vec<_>>())
    };
    let ran = fail_if(&["mean>+4%", "IOPS<-10%", "p50<-1%"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("--fail-if mean>+4%: rr, 4 KiB random reads"), "{}", ran.stderr);
    assert!(ran.stderr.contains("mem:1M, poll: +5.0 % (+4.8 % to +5.2 %)"), "{}", ran.stderr);
    // A part of the interval is below the limit.
    assert_eq!(fail_if(&["mean>+5%"]).code, Some(0));
    let ran = fail_if(&["p98>+5%"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let dir = three_each("meantime-0.1.0");
    write(dir.path(), "fio.json", "fio-3.33", 100_000);
    for (args, code, word) in [
        (&["b0.json", "./b0.json"][..], 2, "twice"),
        (&["b0.json"], 2, "AFTER.json"),
        (&["--before", "b0.json"], 2, "--after"),
        (&["b0.json", "a0.json", "--after", "a1.json"], 2, "BEFORE.json"),
        (&["b0.json", "none.json"], 1, "none.json"),
        (&["b0.json", "fio.json"], 1, "nothing is on both sides; before: rr, 4 KiB random reads"),
    ] {
        let ran = run(dir.path(), &[&["compare"], args].concat());
        assert!(ran.code == Some(code) && ran.stderr.contains(word), "{args:?}: {ran:?}");
    }
}

#[test]
fn a_program_against_itself() {
    let dir = tempfile::tempdir().unwrap();
    let this = env!("CARGO_BIN_EXE_meantime");
    let job = ["--rw", "randread", "--runtime", "50ms", "--time-based", "--completion", "poll"];
    let against = |args: &[&str]| -> Ran {
        run(dir.path(), &[&["bench", "--device", "mem:1M?inline=1"], &job[..], args].concat())
    };
    let ran = against(&["--against", this, "--rounds", "3", "--json", "out.json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert!(ran.stdout.contains("3 pairs of runs") && !ran.stdout.contains("Different revisions"));
    let json = json(&dir.path().join("out.json"));
    assert_eq!((&json["pairs"], json["cells"].as_array().unwrap().len()), (&json!(true), 1));
    assert_eq!(json["cells"][0]["figures"]["mean_ns"]["values"], json!([3, 3]));
    // What is far from any noise.
    let ran = against(&["--against", this, "--rounds", "3", "--fail-if", "iops<+1000000%"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let ran = against(&["--against", "/no/such/meantime"]);
    assert!(ran.code == Some(1) && ran.stderr.contains("/no/such/meantime: "), "{ran:?}");
    // One that refuses the command line.
    let ran = against(&["--against", "/bin/false"]);
    assert_eq!(ran.stderr, "meantime: /bin/false: it ended with status 1\n");
    assert_eq!(files(dir.path()), ["out.json"]);
}

#[test]
fn ctrl_c_ends_both() {
    let dir = tempfile::tempdir().unwrap();
    let job = ["--rw", "randread", "--runtime", "100ms", "--time-based", "--completion", "poll"];
    let against = ["--device", "mem:1M?inline=1", "--against", env!("CARGO_BIN_EXE_meantime")];
    let mut child =
        meantime(dir.path(), &[&["bench", "--rounds", "1000"], &against[..], &job].concat())
            .spawn()
            .unwrap();
    await_handler(&mut child);
    std::thread::sleep(Duration::from_secs(1));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ran: Ran = child.wait_with_output().unwrap().into();
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert!(ran.stderr.starts_with("meantime: ended by a signal after "), "{ran:?}");
    assert_eq!(ran.stdout.is_empty(), ran.stderr.contains("after 0 of 1000 pairs"), "{ran:?}");
}
