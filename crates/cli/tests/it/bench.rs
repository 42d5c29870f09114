//! `meantime bench` as a user runs it, in short.

use std::io::Read as _;
use std::process::Child;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{Ran, files, interrupted, json, meantime, run, succeed};

const SHORT: [&str; 3] = ["--runtime", "120ms", "--time-based"];

#[test]
fn a_job_file_gives_text_table_and_json() {
    let dir = tempfile::tempdir().unwrap();
    let text = "[global]\nrw=randread\nfilename=mem:4M?inline=1\ncompletion=interrupt,poll,hybrid=2us\n[small]\nbs=512\n[large]\nstonewall\nbs=4k\n";
    std::fs::write(dir.path().join("j.fio"), text).unwrap();
    let ran =
        succeed(dir.path(), &[&["bench", "j.fio", "--json", "out.json"][..], &SHORT].concat());
    assert_eq!(ran.stderr, "");
    for word in [
        "small: (groupid=0",
        "large: (groupid=1",
        "clat percentiles",
        "vs interrupt",
        "hybrid=2us",
        "CPUs",
    ] {
        assert!(ran.stdout.contains(word), "no {word:?} in {}", ran.stdout);
    }
    let widest = ran.stdout.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= 120, "{widest} columns\n{}", ran.stdout);

    let report = json(&dir.path().join("out.json"));
    let jobs = report["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), 6);
    for (job, policy) in jobs.iter().zip(["interrupt", "poll", "hybrid=2us"].iter().cycle()) {
        assert_eq!(job["job options"]["completion"], **policy);
        assert_eq!(job["job options"]["device"], "mem:4M?inline=1");
        assert_eq!(job["job options"]["rw"], "randread");
        assert!(job["read"]["total_ios"].as_u64().unwrap() > 0);
        assert!(job["read"]["clat_ns"]["percentile"]["99.900000"].as_u64().unwrap() > 0);
        assert!(job["read"]["lat_ns"]["mean"].as_f64().unwrap() > 0.0);
        assert!(job["usr_cpu"].as_f64().unwrap() + job["sys_cpu"].as_f64().unwrap() > 0.0);
        assert!(job.get("floor_ns").is_none());
        // 120 ms were asked for. A busy machine may take longer, but not nearly the 120 s that a
        // mistaken unit would.
        let runtime_ms = job["job_runtime"].as_u64().unwrap();
        assert!((110..60_000).contains(&runtime_ms), "{runtime_ms}");
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
fn a_sweep_is_a_job_for_each_combination() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["bench", "--device", "mem:4M?inline=1", "--rw", "randread", "--bs", "512,4k"];
    let more = ["--iodepth", "1,4", "--completion", "poll", "--runtime", "20ms", "--rounds", "2"];
    let outputs = ["--json", "o.json", "--html", "o.html", "--csv", "-", "--markdown", "o.md"];
    let ran = succeed(dir.path(), &[&args[..], &more, &outputs].concat());
    let report = json(&dir.path().join("o.json"));
    let jobs = report["jobs"].as_array().unwrap();
    let names: Vec<&str> = jobs.iter().map(|job| job["jobname"].as_str().unwrap()).collect();
    let want = ["bs=512 iodepth=1", "bs=512 iodepth=4", "bs=4k iodepth=1", "bs=4k iodepth=4"];
    assert_eq!(names, want.map(|values| format!("randread {values}")));
    assert_eq!(jobs[1]["sweep"], serde_json::json!({"bs": "512", "iodepth": "4"}));
    assert_eq!(jobs[1]["job options"]["iodepth"], "4");
    // The CSV has standard output for itself, with the figures of the JSON.
    let csv: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(csv.len(), 1 + 4, "{}", ran.stdout);
    for (line, job) in csv[1..].iter().zip(jobs) {
        // The JSON's reader may be off by the last digit.
        let mean = job["read"]["lat_ns"]["mean"].as_f64().unwrap();
        let is_mean =
            |field: &str| field.parse::<f64>().is_ok_and(|ns| (ns / mean - 1.0).abs() < 1e-12);
        assert!(line.split(',').any(is_mean), "{mean}: {line}");
    }
    assert!(ran.stderr.contains("way to wait"));
    let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    assert!(read("o.html").contains("heat h8") && read("o.md").contains("| poll | "));
    // In a file a comma has fio's meaning.
    std::fs::write(dir.path().join("j.fio"), "[j]\nrw=randrw\nbs=512,4k\n").unwrap();
    let args = ["bench", "j.fio", "--device", "mem:4M?inline=1", "--completion", "poll"];
    succeed(dir.path(), &[&args[..], &["--number-ios", "50", "--json", "o.json"]].concat());
    let report = json(&dir.path().join("o.json"));
    assert_eq!(report["jobs"].as_array().unwrap().len(), 1);
    let bytes = |of: &str| report["jobs"][0][of]["io_bytes"].as_u64().unwrap();
    let ios = |of: &str| report["jobs"][0][of]["total_ios"].as_u64().unwrap();
    assert_eq!((bytes("read"), bytes("write")), (512 * ios("read"), 4096 * ios("write")));
    // A report writes the same again.
    let args = ["report", "o.json", "--text", "--csv", "r.csv", "--markdown", "r.md"];
    succeed(dir.path(), &args);
    assert!(
        read("r.csv").starts_with("file,job,device,completion,ios,")
            && read("r.md").contains("| poll |")
    );
    let ran = run(dir.path(), &["report", "o.json", "--csv", "o.json"]);
    assert_eq!(ran.code, Some(2), "{ran:#?}");
}

#[test]
fn several_devices_and_json_on_stdout() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "bench",
        "--device",
        "mem:4M?inline=1,mem:8M?lba=4096&inline=1",
        "--completion",
        "poll,hybrid",
        "--json",
        "-",
        "--name",
        "x",
    ];
    let ran = succeed(dir.path(), &[&args[..], &SHORT].concat());
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let ways: Vec<_> =
        report["jobs"].as_array().unwrap().iter().map(|job| &job["job options"]).collect();
    let ways: Vec<_> = ways
        .iter()
        .map(|way| (way["device"].as_str().unwrap(), way["completion"].as_str().unwrap()))
        .collect();
    assert_eq!(
        ways,
        [
            ("mem:4M?inline=1", "poll"),
            ("mem:4M?inline=1", "hybrid"),
            ("mem:8M?lba=4096&inline=1", "poll"),
            ("mem:8M?lba=4096&inline=1", "hybrid")
        ]
    );
    assert_eq!(report["jobs"][0]["jobname"], "x");
    assert!(ran.stderr.contains("vs poll"), "the table goes to stderr then: {}", ran.stderr);
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
        let base = [
            "bench",
            "--device",
            "mem:4M?inline=1",
            "--completion",
            "poll,interrupt",
            "--json",
            "out.json",
        ];
        succeed(dir.path(), &[&base[..], args].concat());
        for job in json(&dir.path().join("out.json"))["jobs"].as_array().unwrap() {
            assert_eq!(job["read"]["total_ios"], ios, "{args:?}");
            assert_eq!(job["read"]["io_bytes"], ios * 4096, "{args:?}");
        }
    }
}

/// What a job reads was filled before. What another job has written there stays.
#[test]
fn a_larger_range_is_filled_around_what_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let text = "[global]\nfilename=mem:4M?inline=1\ncompletion=poll\n\
                [written]\nrw=write\nsize=1m\nverify=crc32c\ndo_verify=0\n\
                [larger]\nstonewall\nrw=read\nsize=2m\n\
                [checked]\nstonewall\nrw=read\nsize=1m\nverify=crc32c\n";
    std::fs::write(dir.path().join("j.fio"), text).unwrap();
    succeed(dir.path(), &["bench", "j.fio", "--json", "out.json"]);
    let report = json(&dir.path().join("out.json"));
    let checked = &report["jobs"][2];
    assert_eq!((&checked["verify_errors"], &checked["error"]), (&0.into(), &0.into()));
    assert_eq!(checked["read"]["total_ios"], 256);
}

#[test]
fn writes_are_verified() {
    let dir = tempfile::tempdir().unwrap();
    for args in [
        &["--rw", "randwrite", "--iodepth", "16", "--loops", "2", "--size", "100%"][..],
        &["--rw", "write", "--bs", "12k", "--numjobs", "2", "--size", "100%"],
        &["--rw", "randrw", "--iodepth", "4", "--loops", "3", "--rwmixread", "30", "--size", "2m"],
        &["--rw", "randwrite", "--bs", "512", "--runtime", "200ms", "--time-based"],
        &["--rw", "randwrite", "--bs", "512", "--size", "100%"],
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
            // How many there are in a given time depends on the machine.
            let least = if args.contains(&"--time-based") { 0.0 } else { 100.0 };
            assert!(job["extra"]["verified_blocks"].as_f64().unwrap() > least, "{args:?}: {job}");
        }
    }
    // What was written is in the file: every block of the last job begins with its magic.
    let image = std::fs::read(dir.path().join("d.img")).unwrap();
    assert_eq!(image.chunks(512).filter(|block| block.starts_with(b"MTVERIF2")).count(), 4096);
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
    // A turn is a ninth of that: long enough for an I/O, whoever else has the CPU.
    let ran = succeed(dir.path(), &[&args[..], &["--runtime", "3", "--time-based"]].concat());
    assert!(ran.stdout.contains("floor"));
    let report = json(&dir.path().join("out.json"));
    let job = &report["jobs"][0];
    assert!(job["floor_ns"].as_f64().unwrap() > 0.0 && job["floor_ratio"].as_f64().unwrap() > 0.0);
    assert!(job["extra"]["floor_pairs"].as_f64().unwrap() >= 9.0, "{job}");
}

#[test]
fn ctrl_c_ends_with_what_was_measured() {
    // With fewer writes between two flushes than the depth, this depth is never reached.
    let flushed = ["--rw", "randwrite", "--iodepth", "8", "--fsync", "4"];
    for (keys, direction) in [(&[][..], "read"), (&flushed, "write")] {
        let dir = tempfile::tempdir().unwrap();
        let args = ["bench", "--device", "mem:4M?inline=1", "--json", "out.json", "--time-based"];
        let args = [&args, keys, &["--runtime"]].concat();
        interrupted(dir.path(), &[&args[..], &["600"]].concat(), |ran| {
            ran.stdout.contains("interrupt") && ran.stdout.contains("vs interrupt")
        });
        let report = json(&dir.path().join("out.json"));
        assert_eq!(report["meantime"]["interrupted"], true);
        assert!(report["jobs"][0][direction]["total_ios"].as_u64().unwrap() > 0);
        assert_eq!(files(dir.path()), ["out.json"]);
        succeed(dir.path(), &[&args[..], &["120ms"]].concat());
    }
}

/// Stops the program that competes with `bench`, before it is ready.
fn stop_competitor(bench: &mut Child) {
    let children = format!("/proc/{0}/task/{0}/children", bench.id());
    loop {
        assert!(bench.try_wait().unwrap().is_none(), "it has ended");
        let text = std::fs::read_to_string(&children).unwrap();
        let pid = text.split_whitespace().next().and_then(|pid| pid.parse().ok());
        // Before that it is still a copy of the bench, which waits for it.
        let is_itself = |pid: &i32| {
            let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
            command.is_ok_and(|command| command.starts_with("meantime-competitor"))
        };
        if let Some(pid) = pid.filter(is_itself).and_then(Pid::from_raw) {
            kill_process(pid, Signal::STOP).unwrap();
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_signal_does_not_wait_for_a_competing_program() {
    let dir = tempfile::tempdir().unwrap();
    // It takes a second to fill its memory.
    let args =
        ["bench", "--device", "mem:4M?inline=1", "--competitor", "walk=512m", "--runtime", "600"];
    let mut bench = meantime(dir.path(), &args).spawn().unwrap();
    stop_competitor(&mut bench);
    kill_process(Pid::from_child(&bench), Signal::TERM).unwrap();
    let ran: Ran = bench.wait_with_output().unwrap().into();
    assert_eq!(ran.code, Some(143), "{ran:?}");
}

#[test]
fn a_closed_pipe_is_no_panic() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["bench", "--device", "mem:4M?inline=1", "--completion", "poll"];
    let mut child = meantime(dir.path(), &[&args[..], &SHORT].concat()).spawn().unwrap();
    drop(child.stdout.take());
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!((child.wait().unwrap().code(), stderr.as_str()), (Some(0), ""));
}

#[test]
fn harmless_keys_are_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(
        dir.path().join("j.fio"),
        "[a]\nioengine=libaio\ndirect=1\ninvalidate=1\nfilename=mem:1M?inline=1\nsize=1m\n",
    )
    .unwrap();
    let ran = succeed(dir.path(), &["bench", "j.fio", "--completion", "poll"]);
    // One warning for all, each with its reason; of what is obeyed, as direct is, it says nothing.
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    assert!(
        ran.stderr.starts_with(
            "meantime: warning: fio's keys without effect here: ioengine (the device's"
        ),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stderr.contains("; invalidate (no files") && !ran.stderr.contains("direct"),
        "{}",
        ran.stderr
    );
}

#[test]
fn the_example_is_sound() {
    let dir = tempfile::tempdir().unwrap();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../jobs/qd1.fio");
    let ran = run(
        dir.path(),
        &[
            "bench",
            example,
            "--runtime",
            "50ms",
            "--device",
            "mem:4M?model=fast12&inline=1,mem:4M?model=optane&inline=1",
        ],
    );
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert_eq!(ran.stdout.matches(": (groupid=").count(), 16);
}

/// Two jobs need twice the queues when they run at the same time, and no more than one when they do
/// not.
#[test]
fn jobs_of_a_file_run_at_the_same_time_unless_a_stonewall_divides_them() {
    let dir = tempfile::tempdir().unwrap();
    let bench = |walls: &str, device: &str| {
        let text =
            format!("[global]\nrw=randread\nsize=1m\ncompletion=poll\n[a]\n[b]\n{walls}rw=write\n");
        std::fs::write(dir.path().join("j.fio"), text).unwrap();
        run(dir.path(), &["bench", "j.fio", "--device", device, "--json", "out.json"])
    };
    let ran = bench("", "mem:1M?queues=1&inline=1");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.stderr.contains("need 2 queue pairs") && ran.stderr.contains("stonewall"),
        "{}",
        ran.stderr
    );
    let ran = bench("stonewall\n", "mem:1M?queues=1&inline=1");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let groups = |dir: &std::path::Path| {
        let report = json(&dir.join("out.json"));
        let jobs = report["jobs"].as_array().unwrap().iter();
        jobs.map(|job| (job["groupid"].as_u64(), job.get("cell").and_then(|cell| cell.as_u64())))
            .collect::<Vec<_>>()
    };
    assert_eq!(groups(dir.path()), [(Some(0), None), (Some(1), None)]);
    let ran = bench("", "mem:1M?queues=2&inline=1");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(groups(dir.path()), [(Some(0), Some(0)); 2]);
    let ran = bench("new_group\n", "mem:1M?inline=1,mem:2M?inline=1");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let cells = [(Some(0), Some(0)), (Some(0), Some(1)), (Some(1), Some(0)), (Some(1), Some(1))];
    assert_eq!(groups(dir.path()), cells);
}

#[test]
fn a_reporting_group_is_shown_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let text = "[global]\nsize=1m\nfilename=mem:1M?inline=1\ncompletion=interrupt,poll\ngroup_reporting\n\
                [a]\nrw=randread\nnumjobs=2\n[b]\nrw=write\n[c]\nnew_group\n[d]\nstonewall\n";
    std::fs::write(dir.path().join("j.fio"), text).unwrap();
    succeed(dir.path(), &["bench", "j.fio", "--json", "out.json"]);
    let report = json(&dir.path().join("out.json"));
    let jobs = report["jobs"].as_array().unwrap().iter();
    let got: Vec<_> = jobs
        .map(|job| {
            let number = |value: &serde_json::Value| value.as_u64().unwrap();
            let ios =
                [&job["read"], &job["write"]].map(|direction| number(&direction["total_ios"]));
            (
                job["jobname"].as_str().unwrap(),
                number(&job["groupid"]),
                number(&job["numjobs"]),
                ios,
            )
        })
        .collect();
    let want = [
        ("a", 0, 3, [512, 256]),
        ("a", 0, 3, [512, 256]),
        ("c", 1, 1, [256, 0]),
        ("c", 1, 1, [256, 0]),
        ("d", 2, 1, [256, 0]),
        ("d", 2, 1, [256, 0]),
    ];
    assert_eq!(got, want);
}

/// One that has ended is idle while the other goes on.
#[test]
fn a_short_job_beside_a_long_one() {
    let dir = tempfile::tempdir().unwrap();
    let text = "[global]\nfilename=mem:1M?inline=1\ncompletion=poll\n[short]\nsize=64k\n[long]\nrw=randrw\nruntime=1200ms\ntime_based\n\
                rate_iops=2000\n";
    std::fs::write(dir.path().join("j.fio"), text).unwrap();
    let ran = succeed(dir.path(), &["bench", "j.fio", "--json", "out.json"]);
    assert!(ran.stdout.contains("mem:1M?inline=1, poll, beside long (poll)\n"), "{}", ran.stdout);
    let report = json(&dir.path().join("out.json"));
    let (short, long) = (&report["jobs"][0], &report["jobs"][1]);
    assert_eq!(
        (&short["beside"][0], &long["beside"][0]),
        (&"long (poll)".into(), &"short (poll)".into())
    );
    assert_eq!(short["read"]["total_ios"], 16);
    assert!(short["job_runtime"].as_u64() < long["job_runtime"].as_u64());
    // A rate is a limit, for each direction: a busy machine may not reach it, or take longer.
    let ios = |direction: &str| long[direction]["total_ios"].as_u64().unwrap();
    let most = 2_000 * (long["job_runtime"].as_u64().unwrap() + 100) / 1_000;
    assert!((1..=most).contains(&ios("read")) && (1..=most).contains(&ios("write")), "{long}");
    let series = long["series"].as_array().unwrap();
    let in_series: u64 = series.iter().map(|point| point["ios"].as_u64().unwrap()).sum();
    assert_eq!(in_series, ios("read") + ios("write"));
    assert!(series.len() <= 500 && series.last().unwrap()["at_ms"].as_u64().unwrap() > 500);
    let turns = long["turns"].as_array().unwrap();
    let figures = ["mean_ns", "p50_ns", "p99_ns", "iops", "cpu"];
    let positive =
        |turn: &serde_json::Value| figures.iter().all(|key| turn[key].as_f64() > Some(0.0));
    assert!(turns.len() > 1 && turns.iter().all(positive), "{turns:?}");
}

/// As fio has it: a plain path, which is made if it is not there.
#[test]
fn a_plain_file_name_is_the_kernels_file() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let text = "[plain]\nfilename=data\nrw=randwrite\nbs=4k\nsize=1m\ndirect=0\nioengine=psync\n";
    std::fs::write(dir.path().join("j.fio"), text).unwrap();
    let ran = succeed(dir.path(), &["bench", "j.fio", "--completion", "interrupt"]);
    assert!(ran.stderr.contains("kernel:data?direct=0&create=1048576"), "{}", ran.stderr);
    assert_eq!(std::fs::metadata(dir.path().join("data")).unwrap().len(), 1 << 20);
    // It is there now, and not made again.
    let again = succeed(dir.path(), &["bench", "j.fio", "--completion", "interrupt"]);
    assert!(again.stderr.contains("kernel:data?direct=0,"), "{}", again.stderr);
}

#[test]
fn progress_is_in_lines_where_there_is_no_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["bench", "--rw", "randread", "--device", "mem:4M?inline=1", "--completion", "poll"];
    let lines = |more: &[&str]| {
        let ran = succeed(dir.path(), &[&args[..], &SHORT, &["--rounds", "8"], more].concat());
        ran.stderr.lines().filter(|line| line.contains("% done, randread")).count()
    };
    let figures = |more: &[&str]| {
        let ran = succeed(dir.path(), &[&args[..], &SHORT, &["--rounds", "8"], more].concat());
        let of = "  randread, mem:4M?inline=1, poll: ";
        let lines = ran.stderr.lines().filter_map(|line| line.strip_prefix(of));
        lines.filter(|line| line.contains(" IOPS, mean ") && line.contains(" turn")).count()
    };
    assert!(lines(&["--status-interval", "1ms"]) > 1);
    assert!(figures(&["--status-interval", "1ms"]) > 1);
    assert_eq!(lines(&["--status-interval", "1ms", "-q"]), 0);
    assert_eq!(lines(&["--status-interval", "30"]), 0);
}

#[test]
fn results_go_where_fios_options_say() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["bench", "--rw", "randread", "--device", "mem:4M?inline=1", "--completion", "poll"];
    let bench = |more: &[&str]| succeed(dir.path(), &[&args[..], &SHORT, more].concat());
    let ran = bench(&["--output", "text", "--output-format=normal"]);
    assert_eq!(ran.stdout, "");
    let text = std::fs::read_to_string(dir.path().join("text")).unwrap();
    assert!(text.contains("clat percentiles") && text.contains("1 in 6,000"), "{text}");
    let ran = bench(&["--output-format", "json"]);
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(report["jobs"].as_array().unwrap().len(), 1);
    bench(&["--output-format=json+", "--output=out.json"]);
    assert!(!json(&dir.path().join("out.json"))["jobs"][0]["read"]["lat_ns"]["bins"].is_null());
    let refused = run(dir.path(), &[&args[..], &["--output-format=terse"]].concat());
    assert!(refused.code == Some(2) && refused.stderr.contains("json"), "{refused:?}");
}
