//! `meantime report` and `bench --html`: what they write, and what they refuse.

use std::path::Path;

use crate::common::{Ran, files, json, run, succeed};
use serde_json::{Value, json};

/// A short run's JSON as `name` in `dir`.
fn bench(dir: &Path, name: &str) {
    let job = [
        "--rw",
        "randread",
        "--runtime",
        "100ms",
        "--completion",
        "poll,interrupt",
        "--name",
        "rr",
    ];
    succeed(dir, &[&["bench", "--device", "mem:1M", "--json", name], &job[..]].concat());
}

fn refused(dir: &Path, args: &[&str], code: i32, words: &[&str]) {
    let before = files(dir);
    let Ran { code: got, stdout, stderr } = run(dir, &[&["report"], args].concat());
    assert_eq!((got, stdout.as_str()), (Some(code), ""), "{args:?}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
    for word in words {
        assert!(stderr.contains(word), "{args:?}: no {word:?} in {stderr}");
    }
    assert_eq!(files(dir), before, "{args:?}");
}

#[test]
fn one_renderer_for_both_commands() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "--rw",
        "randread",
        "--runtime",
        "100ms",
        "--completion",
        "poll",
        "--json",
        "a.json",
        "--html",
        "a.html",
    ];
    succeed(dir.path(), &[&["bench", "--device", "mem:1M"], &args[..]].concat());
    let ran = succeed(dir.path(), &["report", "a.json"]);
    assert!(ran.stdout.contains("Report: meantime-report.html"), "{}", ran.stdout);
    assert!(ran.stdout.contains("IOPS") && ran.stdout.contains("poll"));
    assert_eq!(files(dir.path()), ["a.html", "a.json", "meantime-report.html"]);
    let read = |name| std::fs::read_to_string(dir.path().join(name)).unwrap();
    let (of_bench, of_report) = (read("a.html"), read("meantime-report.html"));
    // The same but for the command that made it from a file.
    assert_eq!(
        of_bench.replace("</section>\n</main>", ""),
        of_report.replace(
            "<pre tabindex=\"0\"><code>meantime report a.json</code></pre></section>\n</main>",
            ""
        )
    );
    assert!(
        of_bench.contains("meantime bench --device mem:1M --rw randread"),
        "the command is told"
    );
    // The table is that of the run.
    let table = |text: &str| {
        let rows = text.lines().skip_while(|line| !line.contains(": mem:1M · software SSD"));
        rows.skip(1).take_while(|line| !line.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    let text = succeed(dir.path(), &["report", "--text", "a.json"]).stdout;
    assert_eq!(table(&text), table(&ran.stdout));
    assert_eq!(table(&text).len(), 1, "{text}");
}

#[test]
fn standard_output_has_one_owner() {
    let dir = tempfile::tempdir().unwrap();
    bench(dir.path(), "a.json");
    let ran = succeed(dir.path(), &["report", "a.json", "--html", "-"]);
    assert!(ran.stdout.starts_with("<!doctype html>") && ran.stderr.contains("IOPS"));
    assert_eq!(files(dir.path()), ["a.json"]);
    let both = ["bench", "--device", "mem:1M", "--json", "-", "--html", "-"];
    let ran = run(dir.path(), &both);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.stderr.contains("--json") && ran.stderr.contains("--html") && ran.stdout.is_empty()
    );
}

#[test]
fn several_files() {
    let dir = tempfile::tempdir().unwrap();
    bench(dir.path(), "before.json");
    let mut after = json(&dir.path().join("before.json"));
    after["meantime"]["kernel"] = json!("99.9");
    std::fs::write(dir.path().join("after.json"), after.to_string()).unwrap();
    let ran = succeed(dir.path(), &["report", "before.json", "after.json", "--html", "out.html"]);
    assert!(
        ran.stdout.contains("poll · before") && ran.stdout.contains("poll · after"),
        "{}",
        ran.stdout
    );
    assert!(ran.stdout.contains("Different kernels"), "{}", ran.stdout);
    let page = std::fs::read_to_string(dir.path().join("out.html")).unwrap();
    assert!(page.contains("Before you compare") && page.contains("after: 99.9"));
}

/// The parts of fio 3.33's output that count here.
fn fio(bins: bool) -> Value {
    let percentiles = json!({"50.000000": 44_800, "99.000000": 71_168, "99.900000": 115_200, "99.990000": 395_264});
    let mut clat = json!({"min": 30_000, "max": 590_000, "mean": 45_000.5, "stddev": 1.0, "N": 21_000, "percentile": percentiles});
    if bins {
        clat["bins"] = json!({"44800": 20_000, "71168": 990, "395264": 10});
    }
    let none = json!({"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0});
    let lat = json!({"min": 30_100, "max": 590_080, "mean": 45_900.25, "stddev": 1.0, "N": 21_000});
    json!({
        "fio version": "fio-3.33",
        "time": "Sat Nov 21 13:56:08 2026",
        "global options": {"direct": "1", "runtime": "1"},
        "jobs": [{
            "jobname": "f",
            "error": 0,
            "job options": {"filename": "/dev/nvme0n1", "rw": "randread", "bs": "4096", "ioengine": "libaio", "numjobs": "2"},
            "read": {"iops": 21_000.5, "bw_bytes": 1, "runtime": 1001, "lat_ns": lat, "clat_ns": clat, "slat_ns": none},
            "write": {"iops": 0.0, "bw_bytes": 0, "runtime": 0, "lat_ns": none, "clat_ns": none, "slat_ns": none},
            "job_runtime": 2000, "usr_cpu": 2.0, "sys_cpu": 20.0,
        }],
    })
}

#[test]
fn fios_own_results() {
    let dir = tempfile::tempdir().unwrap();
    for (name, bins) in [("plus.json", true), ("plain.json", false)] {
        // Warnings of fio's stand before the JSON, its text after it.
        let text = format!("fio: job 'f' is odd\n{}\nf: (groupid=0, jobs=2): err= 0\n", fio(bins));
        std::fs::write(dir.path().join(name), text).unwrap();
        let ran = succeed(dir.path(), &["report", name, "--html", "out.html"]);
        let row = ran
            .stdout
            .lines()
            .find(|line| line.contains("fio, kernel (libaio)"))
            .unwrap()
            .to_owned();
        assert!(
            ran.stdout.contains("f, 4 KiB random reads: kernel:/dev/nvme0n1"),
            "{}",
            ran.stdout
        );
        assert!(row.contains("45.90") && row.contains("44.80"), "{row}");
        assert!(row.contains("44.0"), "two threads' CPU: {row}");
        let page = std::fs::read_to_string(dir.path().join("out.html")).unwrap();
        assert!(page.contains("4 KiB random reads, queue depth 1, 2 threads"));
        assert_eq!(page.contains("Curves with dots"), !bins);
        assert!(page.contains("clat, without submission") && !page.contains("page cache"));
    }
    // The installed one, if there is one, unchanged.
    let real = std::process::Command::new("fio")
        .args([
            "--name=rr",
            "--filename=medium",
            "--size=1M",
            "--rw=randread",
            "--bs=4k",
            "--ioengine=psync",
            "--number_ios=100",
        ])
        .args(["--output-format=json+", "--output=real.json"])
        .current_dir(dir.path())
        .output();
    if real.is_ok_and(|ran| ran.status.success()) {
        let ran = succeed(dir.path(), &["report", "real.json", "--html", "out.html"]);
        assert!(ran.stdout.contains("fio, kernel (psync)"), "{}", ran.stdout);
        let page = std::fs::read_to_string(dir.path().join("out.html")).unwrap();
        assert!(page.contains("page cache (direct=0)"));
    }
}

#[test]
fn what_is_no_report_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let write = |name: &str, bytes: &[u8]| std::fs::write(dir.join(name), bytes).unwrap();
    bench(dir, "good.json");
    let good = std::fs::read(dir.join("good.json")).unwrap();
    write("cut.json", &good[..good.len() / 2]);
    write("empty.json", b" \n");
    write("text.json", b"job: (groupid=0, jobs=1): err= 0\n  read: IOPS=1\n");
    write("binary.json", b"\x7fELF\xff\xfe");
    write("list.json", b"[1, 2, 3]");
    write("other.json", br#"{"name": "package", "version": "1.0"}"#);
    refused(dir, &["cut.json"], 1, &["cut.json", "ends in its middle"]);
    refused(dir, &["empty.json"], 1, &["empty.json", "is empty", "meantime bench --json"]);
    refused(dir, &["text.json"], 1, &["text.json", "no JSON", "expected", "job: (groupid=0"]);
    refused(dir, &["binary.json"], 1, &["binary.json", "no text", "expected"]);
    refused(dir, &["list.json"], 1, &["list.json", "expected an object", "a list of 3"]);
    refused(dir, &["other.json"], 1, &["other.json", "\"jobs\"", "\"name\", \"version\""]);
    refused(dir, &["good.json", "other.json"], 1, &["other.json"]);
    refused(dir, &["none.json"], 1, &["none.json", "No such file"]);
    refused(dir, &["."], 1, &["directory"]);
    refused(dir, &[], 2, &["FILE.json"]);
    refused(dir, &["good.json", "./good.json"], 2, &["twice"]);
    refused(dir, &["good.json", "--html", "good.json"], 2, &["replace", "--html"]);
    refused(dir, &["good.json", "--html", "no/such/dir.html"], 1, &["no/such/dir.html", "--html"]);
    refused(dir, &["good.json", "--html", "/dev/full"], 1, &["/dev/full"]);
    refused(dir, &["good.json", "--text", "--html", "x"], 2, &["--text", "--html"]);
    assert_eq!(std::fs::read(dir.join("good.json")).unwrap(), good);
}

#[test]
fn a_page_that_cannot_be_written_is_found_before_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let ran = run(
        dir.path(),
        &[
            "bench",
            "--device",
            "mem:1M",
            "--runtime",
            "1h",
            "--time-based",
            "--html",
            "no/dir.html",
        ],
    );
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("no/dir.html") && ran.stderr.contains("--html"), "{}", ran.stderr);
}
