//! The kernel's column beside ours; and a program that competes for the CPU.

use crate::common::{files, json, run, succeed};

const SHORT: [&str; 4] = ["--rw", "randread", "--runtime", "120ms"];

/// On the disk that the tests are built on: a temporary directory may be in memory.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn kernel_and_meantime_are_in_one_table() {
    let dir = directory();
    let devices = "mem:4M,kernel:k.img?create=1M,kernel:k2.img?engine=preadv2&direct=0&create=1M";
    let args = [
        "bench",
        "--device",
        devices,
        "--completion",
        "interrupt,poll,hybrid,adaptive",
        "--json",
        "out.json",
        "--html",
        "out.html",
        "--time-based",
    ];
    let ran = succeed(dir.path(), &[&args[..], &SHORT].concat());
    let other = "kernel:k.img?create=1M · file in";
    assert!(
        ran.stdout.contains(other) && ran.stdout.contains("· another device\n"),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.replace('\n', " ").contains("through the page cache"), "{}", ran.stdout);
    // What the page says of its figures is said below the table, too.
    assert!(ran.stdout.contains("\nDifferent kinds of devices. A software SSD"), "{}", ran.stdout);
    let report = json(&dir.path().join("out.json"));
    let jobs = report["jobs"].as_array().unwrap();
    // What the kernel lacks is left out, and the reason is given.
    let ways: Vec<(&str, &str)> = jobs
        .iter()
        .map(|job| &job["job options"])
        .map(|way| (way["device"].as_str().unwrap(), way["completion"].as_str().unwrap()))
        .collect();
    assert!(
        ways.contains(&("mem:4M", "poll"))
            && ways.contains(&("kernel:k.img?create=1M", "interrupt")),
        "{ways:?}"
    );
    assert!(!ways.contains(&("kernel:k.img?create=1M", "hybrid")));
    assert_eq!(jobs[0]["medium"], "software SSD, model null");
    let left_out = report["meantime"]["left_out"].as_array().unwrap();
    let hybrid = left_out.iter().find(|one| one["completion"] == "hybrid").unwrap();
    assert!(hybrid["why"].as_str().unwrap().contains("6.4"), "{hybrid}");
    assert!(
        ran.stdout.contains("Not measured: kernel:k.img?create=1M cannot wait by hybrid"),
        "{}",
        ran.stdout
    );
    let page = std::fs::read_to_string(dir.path().join("out.html")).unwrap();
    assert!(page.contains("another device") && page.contains("6.4"));
    assert_eq!(files(dir.path()), ["k.img", "k2.img", "out.html", "out.json"]);
}

#[test]
fn what_nothing_can_do_is_an_error_and_leaves_nothing() {
    let dir = directory();
    for (devices, completion, word) in [
        ("kernel:k.img?create=1M", "hybrid", "6.4"),
        ("kernel:k.img?create=1M&engine=preadv2", "poll", "5.19"),
        ("kernel:k.img?create=1M,mem:1M?vectors=1", "hybrid", "6.4"),
        ("kernel:k.img", "interrupt", "create=SIZE"),
        ("kernel:/dev/null", "interrupt", "neither a file nor a block device"),
    ] {
        let args = ["bench", "--device", devices, "--completion", completion, "--json", "out.json"];
        let ran = run(dir.path(), &[&args[..], &SHORT].concat());
        assert_eq!(ran.code, Some(1), "{devices}: {}", ran.stderr);
        assert!(
            ran.stderr.contains(word) && ran.stderr.lines().count() == 1,
            "{devices}: {}",
            ran.stderr
        );
        assert!(files(dir.path()).is_empty(), "{devices}: {:?}", files(dir.path()));
    }
}

#[test]
fn what_is_written_through_the_kernel_is_verified() {
    let dir = directory();
    for (engine, depth) in [("io_uring", "8"), ("preadv2", "1")] {
        let device = format!("kernel:{engine}.img?engine={engine}&create=2M");
        let args = [
            "bench",
            "--device",
            &device,
            "--completion",
            "interrupt",
            "--rw",
            "randwrite",
            "--size",
            "2m",
        ];
        let rest = ["--iodepth", depth, "--verify", "crc32c", "--json", "out.json"];
        let ran = succeed(dir.path(), &[&args[..], &rest].concat());
        let job = &json(&dir.path().join("out.json"))["jobs"][0];
        assert_eq!(job["extra"]["verified_blocks"], 512.0, "{}", ran.stdout);
        let deep = run(dir.path(), &[&args[..], &["--iodepth", "9"]].concat());
        assert_eq!(
            deep.code == Some(1) && deep.stderr.contains("one I/O at a time"),
            depth == "1",
            "{}",
            deep.stderr
        );
    }
}

#[test]
fn a_competing_program_gets_what_is_left() {
    let dir = directory();
    let args = [
        "bench",
        "--device",
        "mem:4M?model=nand",
        "--completion",
        "interrupt,poll",
        "--json",
        "out.json",
    ];
    for kind in ["tsc", "walk=64k"] {
        let ran = succeed(
            dir.path(),
            &[&args[..], &SHORT, &["--time-based", "--competitor", kind]].concat(),
        );
        assert!(ran.stdout.contains("rival"), "{}", ran.stdout);
        for job in json(&dir.path().join("out.json"))["jobs"].as_array().unwrap() {
            assert!(job["competitor_percent"].as_f64().unwrap() > 0.0);
            assert_eq!(job["job options"]["competitor"], kind);
        }
    }
    for (kind, word) in [("walk", "walk=BYTES"), ("5", "walk=BYTES"), ("hog", "tsc")] {
        let ran = run(dir.path(), &[&args[..], &SHORT, &["--competitor", kind]].concat());
        assert!(
            ran.code == Some(2) && ran.stderr.contains(word),
            "{kind}: {:?} {}",
            ran.code,
            ran.stderr
        );
    }
}

/// A program that runs on the hogs' CPU as well would change how much they get; that they share one
/// CPU never does.
#[test]
fn hogs_share_one_cpu() {
    let dir = directory();
    let args =
        ["bench", "--device", "mem:4M?model=nand", "--completion", "interrupt,poll,hybrid=20us"];
    let hogs = ["--hog", "2", "--json", "out.json"];
    let ran = succeed(dir.path(), &[&args[..], &SHORT, &["--time-based"], &hogs].concat());
    for word in ["rival", "hogs", "poll, 2 hogs", "competitor_share_percent"] {
        assert!(ran.stdout.contains(word), "no {word:?} in {}", ran.stdout);
    }
    let report = json(&dir.path().join("out.json"));
    for job in report["jobs"].as_array().unwrap() {
        let share = job["extra"]["competitor_share_percent"].as_f64().unwrap();
        assert!((0.0..=100.0).contains(&share), "{share}");
        assert!(job["extra"]["competitor_ns_per_io"].as_f64().unwrap() >= 0.0);
        assert!(job["competitor_percent"].as_f64().unwrap() >= 0.0);
        assert_eq!(job["job options"]["hog"], "2");
    }
    // The page tells them from I/O without hogs.
    let text = succeed(dir.path(), &["report", "out.json", "--text"]).stdout;
    assert!(text.contains("interrupt, 2 hogs"), "{text}");
}

/// Not everybody may have a real-time class, and not every kernel has slices; what is in a row was
/// in force in its turns.
#[test]
fn classes_and_limits_are_compared_or_refused_with_the_reason() {
    let dir = directory();
    let args = ["bench", "--device", "mem:4M", "--completion", "poll", "--json", "out.json"];
    let ran =
        |more: &[&str]| run(dir.path(), &[&args[..], &SHORT, &["--time-based"], more].concat());
    for (list, reasons) in [
        ("other,slice:1ms", ["6.12", "seccomp"]),
        ("rr:1,fifo:2", ["CAP_SYS_NICE", "would keep the software SSD's from running"]),
    ] {
        let ran = ran(&["--sched", list]);
        if ran.code == Some(0) {
            let report = json(&dir.path().join("out.json"));
            let classes: Vec<&str> = report["jobs"]
                .as_array()
                .unwrap()
                .iter()
                .map(|job| job["job options"]["sched"].as_str().unwrap())
                .collect();
            assert_eq!(classes.join(","), list);
            assert!(classes.iter().all(|class| ran.stdout.contains(class)), "{}", ran.stdout);
        } else {
            assert!(
                ran.code == Some(1) && reasons.iter().any(|why| ran.stderr.contains(why)),
                "{}",
                ran.stderr
            );
            assert!(ran.stdout.is_empty());
        }
    }
    let limits = ran(&["--pm-qos=none,0"]);
    if limits.code == Some(0) {
        let report = json(&dir.path().join("out.json"));
        assert_eq!(report["jobs"][0]["job options"]["pm_qos"], "none");
        assert_eq!(report["jobs"][1]["job options"]["pm_qos"], "0");
        assert!(
            limits.stdout.contains("poll, PM QoS 0") && limits.stdout.contains("poll, no PM QoS")
        );
    } else {
        assert!(
            limits.stderr.contains("/dev/cpu_dma_latency") && limits.stdout.is_empty(),
            "{}",
            limits.stderr
        );
    }
    for (option, word) in [
        ("--sched=rt", "use other, rr:N"),
        ("--sched=slice:1us", "0.1 to 100 ms"),
        ("--pm-qos=-1", "negative"),
        ("--hog=65", "0 to 64"),
    ] {
        let ran = ran(&[option]);
        assert!(
            ran.code == Some(2) && ran.stderr.contains(word),
            "{option}: {:?} {}",
            ran.code,
            ran.stderr
        );
    }
}

#[test]
fn what_is_read_is_not_replaced_by_a_result() {
    let dir = directory();
    let make = [
        "bench",
        "--device",
        "file:m.img?create=1M",
        "--completion",
        "poll",
        "--rw",
        "write",
        "--size",
        "1m",
    ];
    succeed(dir.path(), &make);
    std::fs::hard_link(dir.path().join("m.img"), dir.path().join("y_lat.1.log")).unwrap();
    std::fs::write(
        dir.path().join("j.fio"),
        "[j]\nrw=read\nsize=1m\ncompletion=poll\nfilename=file:m.img\n",
    )
    .unwrap();
    for args in [
        &["bench", "j.fio", "--json", "./m.img"][..],
        &["bench", "j.fio", "--html", "m.img"],
        &["bench", "j.fio", "--html", "j.fio"],
        &["bench", "j.fio", "--write-lat-log", "y"],
        &["bench", "j.fio", "--json", "a.x", "--html", "./a.x"],
        &["bench", "j.fio", "--json", "q_lat.1.log", "--write-lat-log", "q"],
        &["anatomy", "--device", "kernel:m.img", "--json", "m.img"],
    ] {
        let ran = run(dir.path(), args);
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.stderr);
        assert!(
            ran.stderr.contains("another file") && ran.stderr.lines().count() == 1,
            "{}",
            ran.stderr
        );
    }
    assert_eq!(dir.path().join("m.img").metadata().unwrap().len(), 1 << 20);
    assert_eq!(files(dir.path()), ["j.fio", "m.img", "y_lat.1.log"]);
}

#[test]
fn the_same_command_works_again() {
    let dir = directory();
    let args = [
        "bench",
        "--device",
        "kernel:k.img?create=4M",
        "--size",
        "1m",
        "--completion",
        "interrupt",
    ];
    for _ in 0..2 {
        succeed(dir.path(), &[&args[..], &SHORT].concat());
    }
    let beyond = [
        "bench",
        "--device",
        "kernel:k.img?create=4M",
        "--size",
        "2m",
        "--completion",
        "interrupt",
    ];
    let ran = run(dir.path(), &[&beyond[..], &SHORT].concat());
    assert!(ran.code == Some(1) && ran.stderr.contains("never written"), "{}", ran.stderr);
    let other = ["bench", "--device", "kernel:k.img?create=8M", "--completion", "interrupt"];
    let ran = run(dir.path(), &[&other[..], &SHORT].concat());
    assert!(ran.code == Some(1) && ran.stderr.contains("not create="), "{}", ran.stderr);
}

/// However many turns a run is divided into.
#[test]
fn a_pace_is_kept_over_turns() {
    let dir = directory();
    let args = [
        "bench",
        "--device",
        "mem:4M",
        "--completion",
        "poll",
        "--json",
        "out.json",
        "--time-based",
        "--rw",
    ];
    for (pace, pace_ms, more) in
        [(["--rate-iops", "20"], 50, 9), (["--thinktime", "100ms"], 100, 3)]
    {
        let rest = ["randread", "--runtime", "600ms", "--rounds", "12"];
        succeed(dir.path(), &[&args[..], &rest, &pace].concat());
        let job = &json(&dir.path().join("out.json"))["jobs"][0];
        // The turns may have been longer than they were to be.
        let most = job["job_runtime"].as_u64().unwrap() / pace_ms + more;
        let ios = job["read"]["total_ios"].as_u64().unwrap();
        assert!((1..=most).contains(&ios) && most < 300, "{pace:?}: {ios} of {most}");
    }
}

#[test]
fn of_one_device_what_is_there_is_measured() {
    let dir = directory();
    let device = "kernel:k.img?create=1M&engine=preadv2";
    let args = ["bench", "--device", device, "--completion", "interrupt,poll"];
    let ran = succeed(dir.path(), &[&args[..], &["--json", "out.json"], &SHORT].concat());
    let report = json(&dir.path().join("out.json"));
    assert_eq!(report["jobs"].as_array().unwrap().len(), 1);
    let left_out = &report["meantime"]["left_out"][0];
    assert_eq!((&left_out["completion"], &left_out["device"]), (&"poll".into(), &device.into()));
    assert!(ran.stdout.contains("Not measured: ") && ran.stdout.contains("5.19"), "{}", ran.stdout);
}
