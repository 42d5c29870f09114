//! `meantime bench` as a user runs it, in short.

mod common;

use std::io::Read as _;
use std::time::{Duration, Instant};

use common::{Ran, files, json, meantime, run, succeed};

const SHORT: [&str; 3] = ["--runtime", "120ms", "--time-based"];

#[test]
fn a_job_file_gives_text_table_and_json() {
    let dir = tempfile::tempdir().unwrap();
    let text = "[global]\nrw=randread\nfilename=mem:4M\ncompletion=interrupt,poll,hybrid=2us\n[small]\nbs=512\n[large]\nstonewall\nbs=4k\n";
    std::fs::write(dir.path().join("j.fio"), text).unwrap();
    let ran = succeed(dir.path(), &[&["bench", "j.fio", "--json", "out.json"][..], &SHORT].concat());
    assert_eq!(ran.stderr, "");
    for word in ["small: (groupid=0", "large: (groupid=1", "clat percentiles", "vs\n", "hybrid=2us", "CPUs"] {
        assert!(ran.stdout.contains(word), "no {word:?} in {}", ran.stdout);
    }
    let widest = ran.stdout.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= 120, "{widest} columns\n{}", ran.stdout);

    let report = json(&dir.path().join("out.json"));
    let jobs = report["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 6);
    for (job, policy) in jobs.iter().zip(["interrupt", "poll", "hybrid=2us"].iter().cycle()) {
        assert_eq!(job["job options"]["completion"], **policy);
        assert_eq!(job["job options"]["device"], "mem:4M");
        assert_eq!(job["job options"]["rw"], "randread");
        assert!(job["read"]["total_ios"].as_u64().unwrap() > 0);
        assert!(job["read"]["clat_ns"]["percentile"]["99.900000"].as_u64().unwrap() > 0);
        assert!(job["read"]["lat_ns"]["mean"].as_f64().unwrap() > 0.0);
        assert!(job["usr_cpu"].as_f64().unwrap() + job["sys_cpu"].as_f64().unwrap() > 0.0);
        assert!(job.get("floor_ns").is_none());
        // 120 ms were asked for; a busy machine may take longer.
        let runtime_ms = job["job_runtime"].as_u64().unwrap();
        assert!((110..2_000).contains(&runtime_ms), "{runtime_ms}");
    }
    for key in [
        "revision",
        "cpu",
        "kernel",
        "governor",
        "isolcpus",
        "virtual_machine",
        "cacheline_rtt_ns",
        "turns_repeated",
    ] {
        assert!(report["meantime"].get(key).is_some(), "no {key}");
    }
    assert_eq!(files(dir.path()), ["j.fio", "out.json"]);
}

#[test]
fn several_devices_and_json_on_stdout() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "bench",
        "--device",
        "mem:4M,mem:8M?lba=4096",
        "--completion",
        "poll,hybrid",
        "--json",
        "-",
        "--name",
        "x",
    ];
    let ran = succeed(dir.path(), &[&args[..], &SHORT].concat());
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let ways: Vec<_> = report["jobs"].as_array().unwrap().iter().map(|job| &job["job options"]).collect();
    let ways: Vec<_> = ways
        .iter()
        .map(|way| (way["device"].as_str().unwrap(), way["completion"].as_str().unwrap()))
        .collect();
    assert_eq!(
        ways,
        [
            ("mem:4M", "poll"),
            ("mem:4M", "hybrid"),
            ("mem:8M?lba=4096", "poll"),
            ("mem:8M?lba=4096", "hybrid")
        ]
    );
    assert_eq!(report["jobs"][0]["jobname"], "x");
    assert!(ran.stderr.contains("vs\n"), "the table goes to stderr then: {}", ran.stderr);
}

#[test]
fn a_size_is_transferred_exactly() {
    let dir = tempfile::tempdir().unwrap();
    for (args, ios) in [
        (&["--size", "1m"][..], 256),
        (&["--size", "1m", "--loops", "3", "--iodepth", "7"], 768),
        (&["--size", "1m", "--numjobs", "2"], 512),
        (&["--size", "50%", "--rw", "randread"], 512),
        (&["--size", "1030656", "--rw", "randread"], 251),
        (&["--size", "1m", "--rounds", "4", "--iodepth", "3"], 256),
    ] {
        let base = ["bench", "--device", "mem:4M", "--completion", "poll,interrupt", "--json", "out.json"];
        succeed(dir.path(), &[&base[..], args].concat());
        for job in json(&dir.path().join("out.json"))["jobs"].as_array().unwrap() {
            assert_eq!(job["read"]["total_ios"], ios, "{args:?}");
            assert_eq!(job["read"]["io_bytes"], ios * 4096, "{args:?}");
        }
    }
}

#[test]
fn writes_are_verified() {
    let dir = tempfile::tempdir().unwrap();
    for args in [
        &["--rw", "randwrite", "--iodepth", "16", "--loops", "2", "--size", "100%"][..],
        &["--rw", "write", "--bs", "12k", "--numjobs", "2", "--size", "100%"],
        &["--rw", "randrw", "--iodepth", "4", "--loops", "3", "--rwmixread", "30", "--size", "2m"],
        &["--rw", "randwrite", "--bs", "512", "--runtime", "200ms", "--time-based"],
    ] {
        let base = [
            "bench",
            "--device",
            "file:d.img?create=2M",
            "--completion",
            "poll,interrupt",
            "--verify",
            "crc32c",
        ];
        let ran = succeed(dir.path(), &[&base[..], args, &["--json", "out.json"]].concat());
        assert!(!ran.stderr.contains("verify:"), "{}", ran.stderr);
        for job in json(&dir.path().join("out.json"))["jobs"].as_array().unwrap() {
            assert_eq!((&job["verify_errors"], &job["error"]), (&0.into(), &0.into()));
            assert!(job["extra"]["verified_blocks"].as_f64().unwrap() > 100.0, "{args:?}: {job}");
        }
    }
    // What was written is in the file: every block of the last job begins with its magic.
    let image = std::fs::read(dir.path().join("d.img")).unwrap();
    assert!(image.chunks(512).filter(|block| block.starts_with(b"MTVERIF1")).count() > 4000);
}

#[test]
fn the_floor_is_measured_in_pairs() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "bench",
        "--device",
        "mem:4M",
        "--completion",
        "poll",
        "--floor",
        "--json",
        "out.json",
        "--rw",
        "randread",
    ];
    let ran = succeed(dir.path(), &[&args[..], &["--runtime", "500ms", "--time-based"]].concat());
    assert!(ran.stdout.contains("floor"));
    let report = json(&dir.path().join("out.json"));
    let job = &report["jobs"][0];
    assert!(job["floor_ns"].as_f64().unwrap() > 0.0 && job["floor_ratio"].as_f64().unwrap() > 0.0);
    assert!(job["extra"]["floor_pairs"].as_f64().unwrap() >= 9.0, "{job}");
}

#[test]
fn ctrl_c_ends_with_what_was_measured() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["bench", "--device", "mem:4M", "--runtime", "600", "--time-based", "--json", "out.json"];
    let child = meantime(dir.path(), &args).spawn().unwrap();
    let start = Instant::now();
    std::thread::sleep(Duration::from_millis(2_500));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let ran: Ran = child.wait_with_output().unwrap().into();
    assert!(start.elapsed() < Duration::from_secs(20));
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert!(ran.stdout.contains("interrupt") && ran.stdout.contains("vs\n"), "{}", ran.stdout);
    let report = json(&dir.path().join("out.json"));
    assert_eq!(report["meantime"]["interrupted"], true);
    assert!(report["jobs"][0]["read"]["total_ios"].as_u64().unwrap() > 0);
    assert_eq!(files(dir.path()), ["out.json"]);
}

#[test]
fn a_closed_pipe_is_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["bench", "--device", "mem:4M", "--completion", "poll"];
    let mut child = meantime(dir.path(), &[&args[..], &SHORT].concat()).spawn().unwrap();
    drop(child.stdout.take());
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((child.wait().unwrap().code(), stderr.as_str()), (Some(0), ""));
}

#[test]
fn harmless_keys_are_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("j.fio"), "[a]\nioengine=libaio\ndirect=1\nfilename=mem:1M\nsize=1m\n")
        .unwrap();
    let ran = succeed(dir.path(), &["bench", "j.fio", "--completion", "poll"]);
    let lines: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{}", ran.stderr);
    assert!(lines[0].starts_with("meantime: warning: j.fio: line 2: key ioengine"), "{}", ran.stderr);
}

#[test]
fn the_example_is_sound() {
    let dir = tempfile::tempdir().unwrap();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../jobs/qd1.fio");
    let ran = run(
        dir.path(),
        &["bench", example, "--runtime", "50ms", "--device", "mem:4M?model=fast12,mem:4M?model=optane"],
    );
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert_eq!(ran.stdout.matches(": (groupid=").count(), 12);
}
