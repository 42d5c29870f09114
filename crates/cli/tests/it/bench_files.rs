//! `meantime bench` on files in a file system: through the page cache and past it, beside the
//! device and the kernel's file.

use std::path::Path;

use crate::common::{json, run, succeed};
use meantime_testkit::e2fs::{make, tools};

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
    refused(dir, &on("mem:16M:/data"), "no ext4");
    refused(dir, &[&on("mem:16M")[..], &["--direct=0"]].concat(), "there is no page cache");
    refused(
        dir,
        &[&on("file:disk.img:/data")[..], &["--iodepth", "4"]].concat(),
        "one I/O at a time",
    );
    refused(
        dir,
        &[&on("file:disk.img:/data")[..], &["--overlap", "preload,pools"]].concat(),
        "no step",
    );
    refused(
        dir,
        &["--rw", "write", "--size", "1m", "--device", "file:disk.img:/data"],
        "for reading only",
    );
    let both = ["--rw", "write", "--size", "1m", "--device", "file:disk.img,file:disk.img:/data"];
    refused(dir, &both, "cannot be written");
}

#[test]
fn the_example_is_sound() {
    let Some(dir) = planted() else { return };
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../jobs/file.fio");
    let report = bench(dir.path(), &[example, "--runtime", "30ms"]);
    assert_eq!(report["jobs"].as_array().unwrap().len(), 4);
}
