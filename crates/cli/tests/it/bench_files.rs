//! `meantime bench` on files in a file system: read and written through the page cache and past it,
//! beside the device and the kernel's file.

use std::path::Path;
use std::time::Duration;

use crate::common::{json, meantime, run, succeed};
use meantime_testkit::e2fs::{make, run_for, tools};

/// So much I/O that a run takes no time.
const SHORT: [&str; 6] = ["--rw", "randread", "--number-ios", "200", "--completion", "poll"];

/// A directory with `disk.img`, in which there is `data` of 2 MiB; nothing if no images can be
/// made.
fn planted() -> Option<tempfile::TempDir> {
    if !tools() {
        return None;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("data"), vec![7; 2 << 20]).unwrap();
    make(&dir.path().join("disk.img"), "16M", &[], &tree);
    Some(dir)
}

fn bench(dir: &Path, args: &[&str]) -> serde_json::Value {
    succeed(dir, &[&["bench", "--json", "out.json"], args].concat());
    json(&dir.join("out.json"))
}

fn refused(dir: &Path, args: &[&str], words: &str) {
    let ran = run(dir, &[&["bench"], args].concat());
    assert!(matches!(ran.code, Some(1 | 2)) && ran.stdout.is_empty(), "{args:?}: {ran:?}");
    assert!(ran.stderr.contains(words), "{args:?}: {}", ran.stderr);
}

#[test]
fn a_file_is_measured_beside_its_device_and_the_kernels() {
    let Some(dir) = planted() else { return };
    let dir = dir.path();
    let devices = "file:disk.img:/data,file:disk.img,kernel:tree/data?engine=preadv2&direct=0";
    let args = [
        "--rw",
        "randread",
        "--number-ios",
        "200",
        "--completion",
        "interrupt",
        "--size",
        "1m",
        "--device",
        devices,
    ];
    let report = bench(dir, &args);
    let jobs = report["jobs"].as_array().unwrap();
    let names: Vec<&str> =
        jobs.iter().map(|job| job["job options"]["device"].as_str().unwrap()).collect();
    assert_eq!(names, devices.split(',').collect::<Vec<_>>());
    for job in jobs {
        assert!(job["read"]["total_ios"].as_u64().unwrap() >= 200 && job["errors"] == 0, "{job}");
    }
}

#[test]
fn files_are_read_as_the_job_says() {
    let Some(dir) = planted() else { return };
    let dir = dir.path();
    for more in [
        &["--direct=1"][..],
        &["--direct=0", "--cache", "1m"],
        &["--overlap", "none"],
        &["--overlap", "pool,lazy-insert", "--fadvise-hint", "sequential"],
        &["--numjobs", "2", "--bs", "64k"],
    ] {
        let report =
            bench(dir, &[&SHORT, more, &["--device", "file:disk.img?model=optane:/data"]].concat());
        let job = &report["jobs"][0];
        // (Two threads with blocks of 64 KiB are through sooner.)
        assert!(
            job["read"]["total_ios"].as_u64().unwrap() >= 64 && job["errors"] == 0,
            "{more:?}: {job}"
        );
        if more[0].starts_with("--overlap") {
            assert_eq!(job["job options"]["overlap"], more[1]);
        }
    }
    // Two jobs of a file, one mount for both, another for a job that wants it otherwise.
    let text = "[global]\nrw=randread\nnumber_ios=50\ncompletion=poll\nfilename=file:disk.img:/data\n\
                [a]\n[b]\ndirect=1\n[c]\nstonewall\noverlap=none\nbuffered=1\n";
    std::fs::write(dir.join("j.fio"), text).unwrap();
    let report = bench(dir, &["j.fio"]);
    assert_eq!(report["jobs"].as_array().unwrap().len(), 3);
}

#[test]
fn what_cannot_be_is_said_before_anything_runs() {
    let Some(dir) = planted() else { return };
    let dir = dir.path();
    let on = |device: &'static str| [&SHORT[..], &["--device", device]].concat();
    refused(dir, &on("file:disk.img:/none"), "no such file");
    refused(dir, &on("file:disk.img:/lost+found"), "is a directory");
    refused(dir, &on("mem:16M?inline=1:/data"), "no ext4");
    refused(
        dir,
        &[&on("mem:16M?inline=1")[..], &["--direct=0"]].concat(),
        "there is no page cache",
    );
    refused(
        dir,
        &[&on("file:disk.img:/data")[..], &["--iodepth", "4"]].concat(),
        "one I/O at a time",
    );
    refused(
        dir,
        &[&on("file:disk.img:/data")[..], &["--overlap", "preload,pools"]].concat(),
        "there is no \"pools\"",
    );
    let write = ["--rw", "write", "--size", "1m", "--completion", "poll", "--device"];
    let written = |device: &'static str| [&write[..], &[device]].concat();
    refused(dir, &written("file:disk.img?ro=1:/data"), "cannot be written: ro=1");
    refused(
        dir,
        &["--rw", "write", "--size", "1m", "--device", "file:disk.img:/data"],
        "one way to wait",
    );
    let trims = ["--rw", "trim", "--size", "1m", "--completion", "poll", "--device"];
    refused(dir, &[&trims[..], &["file:disk.img:/data"]].concat(), "deallocate");
    let mixed = ["--rw", "rw", "--size", "3m", "--completion", "poll", "--device"];
    refused(dir, &[&mixed[..], &["file:disk.img:/data"]].concat(), "beyond the end");
    refused(
        dir,
        &[&written("file:disk.img:/data")[..], &["--commit-overlap", "log"]].concat(),
        "there is no \"log\"",
    );
    // A job that was refused has made no file.
    refused(dir, &[&written("file:disk.img:/new")[..], &["--bs", "700"]].concat(), "bs=700");
    refused(dir, &[&written("file:disk.img:/new")[..], &["--iodepth", "4"]].concat(), "at a time");
    refused(dir, &on("file:disk.img:/new"), "no such file");
    let text = "[global]\nrw=write\nsize=64k\ncompletion=poll\nfilename=file:disk.img:/data\n[a]\n[b]\n\
                stonewall\ncommit_overlap=none\n";
    std::fs::write(dir.join("j.fio"), text).unwrap();
    refused(dir, &["j.fio"], "mounted once");
    let both = ["--rw", "write", "--size", "1m", "--device", "file:disk.img,file:disk.img:/data"];
    refused(dir, &[&both[..], &["--completion", "poll"]].concat(), "cannot be written");
    clean(dir);
}

/// The image is sound, and was unmounted.
fn clean(dir: &Path) {
    run_for("e2fsck", &["-fn", dir.join("disk.img").to_str().unwrap()], &[0]);
}

/// The size of the file at `path`, by `fs stat`.
fn size_of(dir: &Path, path: &str) -> u64 {
    let listed = succeed(dir, &["fs", "ls", "-l", &format!("file:disk.img:{path}")]).stdout;
    let numbers = listed.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
    numbers.max().unwrap_or(0)
}

#[test]
fn a_file_is_written_as_the_job_says() {
    let Some(dir) = planted() else { return };
    let dir = dir.path();
    let all =
        ["--bs", "4k", "--completion", "poll", "--device", "file:disk.img?model=optane:/data"];
    for (more, syncs) in [
        (&["--rw", "randwrite", "--size", "1m", "--verify", "crc32c"][..], 0),
        (&["--rw", "randwrite", "--size", "1m", "--verify", "md5", "--direct=1"], 0),
        (&["--rw", "write", "--size", "256k", "--fsync", "2"], 32),
        (&["--rw", "write", "--size", "256k", "--fdatasync", "4", "--commit-overlap", "none"], 16),
        (
            &["--rw", "write", "--size", "256k", "--fsync", "1", "--commit-overlap", "direct,data"],
            64,
        ),
        (&["--rw", "write", "--size", "256k", "--sync", "dsync", "--direct=1"], 0),
        (&["--rw", "randrw", "--size", "1m", "--numjobs", "2", "--end-fsync=1"], 0),
        (&["--rw", "write", "--size", "256k", "--fsync", "1", "--fast-commit"], 64),
    ] {
        let report = bench(dir, &[&all[..], more].concat());
        let job = &report["jobs"][0];
        assert!(job["errors"] == 0 && job["write"]["total_ios"].as_u64().unwrap() > 0, "{more:?}");
        // The last flush of a job without another write after it is not made.
        let flushed = job["sync"]["total_ios"].as_u64().unwrap_or(0);
        assert!((syncs.max(1) - 1..=syncs).contains(&flushed), "{more:?}: {flushed}");
        if more.contains(&"--verify") {
            assert_eq!(job["extra"]["verified_blocks"], 256.0, "{job}");
        }
        if syncs > 0 && !more.contains(&"--fdatasync") {
            let commits = job["extra"]["commits"].as_f64().unwrap();
            assert!(commits >= flushed as f64, "{more:?}: {commits} commits");
        }
        clean(dir);
    }
    assert_eq!(size_of(dir, "/data"), 2 << 20);
}

#[test]
fn a_file_grows_as_far_as_the_job_says() {
    let Some(dir) = planted() else { return };
    let dir = dir.path();
    let args = ["--completion", "poll", "--bs", "8k", "--fsync", "1", "--verify", "crc32c"];
    let grown = |path: &str, more: &[&str]| {
        let device = format!("file:disk.img:{path}");
        let report = bench(dir, &[&args[..], more, &["--device", &device]].concat());
        assert_eq!(report["jobs"][0]["errors"], 0, "{more:?}");
        clean(dir);
        size_of(dir, path)
    };
    assert_eq!(grown("/new", &["--rw", "write", "--size", "512k"]), 512 << 10);
    assert_eq!(grown("/new", &["--rw", "write", "--offset", "512k", "--size", "64k"]), 576 << 10);
    assert_eq!(grown("/data", &["--rw", "write", "--size", "3m", "--numjobs", "3"]), 3 << 20);
    assert_eq!(grown("/lost+found/r", &["--rw", "randwrite", "--size", "256k"]), 256 << 10);
    // A job that reads it finds it, and checks what the one before wrote.
    bench(
        dir,
        &[
            "--rw",
            "read",
            "--bs",
            "8k",
            "--verify",
            "crc32c",
            "--size",
            "256k",
            "--completion",
            "poll",
            "--device",
            "file:disk.img:/lost+found/r",
        ],
    );
}

#[test]
fn a_file_that_finds_no_room_is_an_error_of_the_job() {
    let Some(dir) = planted() else { return };
    let dir = dir.path();
    let args = [
        "bench",
        "--rw",
        "write",
        "--bs",
        "64k",
        "--size",
        "64m",
        "--fsync",
        "8",
        "--completion",
        "poll",
        "--device",
        "file:disk.img:/big",
    ];
    let ran = run(dir, &args);
    assert!(ran.code == Some(1), "{ran:?}");
    assert!(ran.stderr.contains("No space left"), "{}", ran.stderr);
    clean(dir);
}

#[test]
fn a_killed_job_leaves_a_consistent_file_system() {
    let Some(dir) = planted() else { return };
    let dir = dir.path();
    for wait_ms in [150, 300] {
        let args = [
            "bench",
            "--rw",
            "write",
            "--bs",
            "4k",
            "--size",
            "8m",
            "--fsync",
            "3",
            "--time-based",
            "--runtime",
            "30",
            "--completion",
            "poll",
            "--device",
            "file:disk.img?vwc=0:/data,file:disk.img?vwc=0:/other",
        ];
        let mut child = meantime(dir, &args).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(wait_ms));
        child.kill().unwrap();
        child.wait().unwrap();
        succeed(dir, &["fs", "check", "file:disk.img"]);
        // The next job replays the journal.
        let device = ["--device", "file:disk.img:/data"];
        bench(
            dir,
            &[
                &["--rw", "write", "--number-ios", "9", "--size", "1m", "--completion", "poll"][..],
                &device,
            ]
            .concat(),
        );
        clean(dir);
    }
}

#[test]
fn the_example_is_sound() {
    let Some(dir) = planted() else { return };
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../jobs/file.fio");
    let report = bench(dir.path(), &[example, "--runtime", "30ms"]);
    assert_eq!(report["jobs"].as_array().unwrap().len(), 4);
}
