//! The same jobs by fio itself and by us; and fio's own readers on what we write.
//!
//! fio's figures depend on the machine. What is compared is what does not: which I/Os there are,
//! how often what is flushed, and the form of everything that is written.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::common::{json, succeed};
use serde_json::Value;

/// Runs a tool of fio's (or what its tools need) in `dir` to a successful end.
pub(crate) fn tool(dir: &Path, program: &str, args: &[&str]) -> String {
    let output =
        Command::new(program).current_dir(dir).args(args).output().unwrap_or_else(|error| {
            panic!(
                "{program}: {error}; these tests need it: run `make setup-test`, which installs it"
            )
        });
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {args:?}: {stdout}{stderr}");
    stdout.into_owned()
}

/// Runs `jobs` by fio and by us, each in a directory of its own; the two JSONs. Files are of 1 MiB.
fn both(dir: &Path, jobs: &str) -> (Value, Value) {
    let (theirs, ours) = (dir.join("fio"), dir.join("ours"));
    for (dir, device) in [
        (&theirs, "filename=d.img\nioengine=psync"),
        (&ours, "filename=file:d.img?create=1M\ncompletion=poll"),
    ] {
        std::fs::create_dir_all(dir).unwrap();
        std::fs::write(dir.join("j.fio"), format!("[global]\n{device}\nsize=1m\nbs=4k\n{jobs}"))
            .unwrap();
    }
    tool(&theirs, "fio", &["--output-format=json+", "--output=o.json", "j.fio"]);
    succeed(&ours, &["bench", "j.fio", "--json", "o.json"]);
    (json(&theirs.join("o.json")), json(&ours.join("o.json")))
}

fn jobs(report: &Value) -> &Vec<Value> {
    report["jobs"].as_array().unwrap()
}

/// The lines of a log, as numbers.
pub(crate) fn log(path: &Path) -> Vec<Vec<u64>> {
    let text =
        std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let number = |field: &str| {
        field.trim().parse().unwrap_or_else(|_| panic!("{}: {field:?}", path.display()))
    };
    text.lines().map(|line| line.split(", ").map(number).collect()).collect()
}

/// Every key of theirs is one of ours, and of the same type.
fn assert_like(theirs: &Value, ours: &Value, at: &str) {
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => {
            for (key, value) in theirs {
                let at = format!("{at}.{key}");
                // Each has the options of its own job file, and bins of the latencies it saw.
                if key == "job options" || key == "bins" {
                    assert!(ours.get(key).is_some_and(Value::is_object), "no {at}");
                    continue;
                }
                assert_like(value, ours.get(key).unwrap_or_else(|| panic!("no {at}")), &at);
            }
        }
        (Value::Number(theirs), Value::Number(ours)) => {
            assert_eq!(theirs.is_f64(), ours.is_f64(), "{at}: {theirs} and {ours}");
        }
        _ => assert_eq!(
            std::mem::discriminant(theirs),
            std::mem::discriminant(ours),
            "{at}: {theirs} and {ours}"
        ),
    }
}

#[test]
fn the_same_jobs_have_the_same_shape() {
    let dir = tempfile::tempdir().unwrap();
    let (theirs, ours) = both(
        dir.path(),
        "[write]\nrw=write\nfsync=16\n\
         [randwrite]\nstonewall\nrw=randwrite\nfsync=10\nend_fsync=1\nsync=dsync\n\
         [read]\nstonewall\nrw=read\nnumjobs=2\ngroup_reporting\n\
         [few]\nstonewall\nrw=randread\nnumber_ios=100\n\
         [more]\nstonewall\nrw=randread\nnorandommap\nio_size=3m\nbs=8k\n\
         [loops]\nstonewall\nrw=read\nloops=3\niodepth=4\nthinktime=1\nthinktime_blocks=64\n\
         [rated]\nstonewall\nrw=randread\nrate_iops=20k\nrandom_generator=tausworthe64\n\
         [split]\nstonewall\nrw=write\nbssplit=4k/50:16k/50\n\
         [together]\nstonewall\nrw=randread\n[beside]\nrw=read\nbs=16k\n",
    );
    assert_like(&jobs(&theirs)[0], &jobs(&ours)[0], "jobs[0]");
    assert_eq!(jobs(&theirs).len(), jobs(&ours).len());
    for (theirs, ours) in jobs(&theirs).iter().zip(jobs(&ours)) {
        assert_like(theirs, ours, theirs["jobname"].as_str().unwrap());
        for key in ["jobname", "groupid", "error"] {
            assert_eq!(theirs[key], ours[key], "{key}");
        }
        let name = &theirs["jobname"];
        for direction in ["read", "write", "trim"] {
            assert_eq!(
                theirs[direction]["io_bytes"], ours[direction]["io_bytes"],
                "{name} {direction}"
            );
            if name != "split" {
                assert_eq!(
                    theirs[direction]["total_ios"], ours[direction]["total_ios"],
                    "{name} {direction}"
                );
            }
        }
        assert_eq!(theirs["sync"]["total_ios"], ours["sync"]["total_ios"], "{name}");
    }
}

#[test]
fn rates_are_sampled() {
    let dir = tempfile::tempdir().unwrap();
    let limits = "time_based\nruntime=1200ms\nrate_iops=500";
    let (theirs, ours) = both(dir.path(), &format!("[a]\nrw=randrw\n{limits}\n"));
    for (name, report) in [("fio", theirs), ("ours", ours)] {
        for direction in ["read", "write"] {
            let of = &jobs(&report)[0][direction];
            let figure = |key: &str| of[key].as_f64().unwrap();
            assert_eq!(figure("iops_samples"), 2.0, "{name} {direction}: {of:#}");
            assert_eq!(figure("bw_samples"), 2.0, "{name} {direction}: {of:#}");
            for key in ["iops", "bw"] {
                let [min, mean, max] =
                    ["min", "mean", "max"].map(|of| figure(&format!("{key}_{of}")));
                assert!(min <= mean && mean <= max, "{name} {direction}: {of:#}");
                // Two samples are the most of the run.
                assert!((mean / figure(key) - 1.0).abs() < 0.4, "{name} {direction}: {of:#}");
            }
        }
    }
}

#[test]
fn a_sequence_is_the_same_io_by_io() {
    let dir = tempfile::tempdir().unwrap();
    let (_, _) = both(
        dir.path(),
        "write_lat_log=l\nlog_offset=1\n[a]\nrw=write\noffset=256k\nsize=512k\n[b]\nstonewall\nrw=read\nloops=2\nbs=16k\n\
         [c]\nstonewall\nrw=randread\n",
    );
    for number in 1..=3 {
        // Direction, block size, offset, priority: all but when and how long.
        let ios = |who: &str, kind: &str| {
            let lines = log(&dir.path().join(format!("{who}/l_{kind}.{number}.log")));
            let mut ios: Vec<Vec<u64>> = lines.into_iter().map(|line| line[2..].to_vec()).collect();
            if number == 3 {
                // Not in the same order, but each block once.
                ios.sort();
            }
            ios
        };
        assert_eq!(ios("fio", "lat"), ios("ours", "lat"), "{number}");
        assert_eq!(ios("ours", "clat"), ios("ours", "lat"), "{number}");
        assert_eq!(ios("ours", "slat"), ios("ours", "lat"), "{number}");
    }
}

#[test]
fn every_key_of_fios_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let help = tool(dir.path(), "fio", &["--cmdhelp=all"]);
    let names: Vec<&str> = help
        .lines()
        .filter_map(|line| line.split([' ', ':']).find(|name| !name.is_empty()))
        .collect();
    assert!(names.len() > 200, "{names:?}");
    let lines: String = names.iter().map(|name| format!("{name}=\u{7}\n")).collect();
    std::fs::write(dir.path().join("j.fio"), format!("[a]\n{lines}")).unwrap();
    let ran = crate::common::run(dir.path(), &["bench", "j.fio"]);
    assert!(!ran.stderr.contains("unknown key"), "{}", ran.stderr);
    assert!(ran.stderr.contains("fio's key replay_skip is not supported: "), "{}", ran.stderr);
    // All are said at once, each with its line.
    assert!(ran.stderr.lines().count() > 100, "{}", ran.stderr);
}

#[test]
fn trims_deallocate_and_are_reported_as_fios_are() {
    let dir = tempfile::tempdir().unwrap();
    let device = "file:d.img?create=1M";
    let bench = |rw: &str, json: &str| {
        succeed(
            dir.path(),
            &[
                "bench",
                "--device",
                device,
                "--completion",
                "poll",
                "--size=512k",
                "--rw",
                rw,
                "--json",
                json,
            ],
        );
    };
    bench("write", "w.json");
    let bytes = || std::fs::read(dir.path().join("d.img")).unwrap();
    let written = bytes();
    assert!(written[..512 << 10].chunks(4096).all(|block| block.iter().any(|byte| *byte != 0)));
    bench("trimwrite", "tw.json");
    // Each place is written after it was trimmed.
    assert!(bytes()[..512 << 10].chunks(4096).all(|block| block.iter().any(|byte| *byte != 0)));
    bench("randtrim", "t.json");
    assert!(bytes()[..512 << 10].iter().all(|byte| *byte == 0), "trimmed blocks read as zeroes");
    for (file, ios) in
        [("t.json", [0, 0, 128]), ("tw.json", [0, 128, 128]), ("w.json", [0, 128, 0])]
    {
        let report = json(&dir.path().join(file));
        let got = ["read", "write", "trim"]
            .map(|direction| jobs(&report)[0][direction]["total_ios"].as_u64().unwrap());
        assert_eq!(got, ios, "{file}");
    }
    let report = json(&dir.path().join("t.json"));
    assert!(jobs(&report)[0]["trim"]["clat_ns"]["mean"].as_f64().unwrap() > 0.0);
    // What destroys data needs the same leave as a write.
    let read_only = [
        "bench",
        "--device",
        "file:d.img?ro=1",
        "--completion",
        "poll",
        "--rw",
        "trim",
        "--size=4k",
    ];
    let ran = crate::common::run(dir.path(), &read_only);
    assert_ne!(ran.code, Some(0), "{ran:?}");
}

/// What each finds is asked of `bench::verify`; here, that it is taken and read back.
#[test]
fn every_method_of_verify_runs() {
    for method in ["crc32c", "crc64", "md5", "sha256", "meta"] {
        let dir = tempfile::tempdir().unwrap();
        let verify = format!("--verify={method}");
        let args = |uri: &'static str| {
            vec![
                "bench",
                "--device",
                uri,
                "--completion",
                "poll",
                "--rw=randwrite",
                "--size=1m",
                &verify,
            ]
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>()
        };
        let run = |uri| {
            let args = args(uri);
            crate::common::run(dir.path(), &args.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let good = run("mem:2M?inline=1");
        assert_eq!(good.code, Some(0), "{method}: {good:?}");
    }
}

#[test]
fn logs_have_fios_columns() {
    for (keys, same_count) in [
        ("", true),
        ("log_offset=1\n", true),
        ("log_avg_msec=10\n", false),
        ("log_avg_msec=10\nlog_offset=1\n", false),
    ] {
        let dir = tempfile::tempdir().unwrap();
        both(dir.path(), &format!("{keys}write_lat_log\n[a]\nrw=randread\nthinktime=500\n"));
        for file in ["a_lat.1.log", "a_clat.1.log"] {
            let (theirs, ours) =
                (log(&dir.path().join("fio").join(file)), log(&dir.path().join("ours").join(file)));
            assert!(
                !theirs.is_empty() && !ours.is_empty(),
                "{file} {keys}: {} {}",
                theirs.len(),
                ours.len()
            );
            let columns = theirs[0].len();
            assert!(
                theirs.iter().chain(&ours).all(|line| line.len() == columns),
                "{file} {keys}: {:?}",
                ours[0]
            );
            assert!(ours.is_sorted_by(|a, b| a[0] <= b[0]), "{file} {keys}");
            if same_count {
                assert_eq!((theirs.len(), ours.len()), (256, 256), "{file} {keys}");
            }
        }
    }
}

/// What `keys` do with 20,000 I/Os or so on `size`: (size, offset) of each, by fio and by us.
fn drawn(size: &str, keys: &str) -> [Vec<(u64, u64)>; 2] {
    let dir = tempfile::tempdir().unwrap();
    let keys = format!("[a]\nsize={size}\nio_size=80m\nwrite_lat_log=l\nlog_offset=1\n{keys}\n");
    std::fs::write(dir.path().join("fio.fio"), format!("{keys}ioengine=null\nfilename=x\n"))
        .unwrap();
    std::fs::write(
        dir.path().join("ours.fio"),
        format!("{keys}filename=mem:{size}?inline=1\ncompletion=poll\n"),
    )
    .unwrap();
    let ios = |path: &Path| log(path).iter().map(|line| (line[3], line[4])).collect::<Vec<_>>();
    tool(dir.path(), "fio", &["fio.fio"]);
    let theirs = ios(&dir.path().join("l_lat.1.log"));
    std::fs::remove_file(dir.path().join("l_lat.1.log")).unwrap();
    succeed(dir.path(), &["bench", "ours.fio"]);
    [theirs, ios(&dir.path().join("l_lat.1.log"))]
}

/// How often each value occurs, as shares of the whole.
fn shares(values: impl Iterator<Item = u64>) -> BTreeMap<u64, f64> {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    values.for_each(|value| *counts.entry(value).or_default() += 1);
    let all: u64 = counts.values().sum();
    counts.into_iter().map(|(value, count)| (value, count as f64 / all as f64)).collect()
}

#[test]
fn sizes_are_fios() {
    for (size, keys) in [
        ("1m", "rw=randread\nnorandommap\nbssplit=4k/70:16k/30"),
        // fio draws the same sizes again when it begins at the beginning again.
        ("80m", "rw=read\nbssplit=4k/50:1k/:32k/"),
    ] {
        let [theirs, ours] =
            drawn(size, keys).map(|ios| shares(ios.iter().map(|(bytes, _)| *bytes)));
        assert_eq!(theirs.keys().collect::<Vec<_>>(), ours.keys().collect::<Vec<_>>(), "{keys}");
        for (bytes, share) in &theirs {
            assert!((share - ours[bytes]).abs() < 0.03, "{keys}: {theirs:?} and {ours:?}");
        }
    }
}

#[test]
fn fios_readers_read_it() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(
        dir.path().join("j.fio"),
        "[global]\nfilename=mem:4M?inline=1\ncompletion=interrupt,poll\nruntime=300ms\ntime_based\n\
         write_lat_log=x\nlog_avg_msec=50\n[a]\nrw=randrw\n[b]\nrw=randread\nstonewall\n",
    )
    .unwrap();
    let ran = succeed(dir.path(), &["bench", "j.fio", "--json", "o.json"]);
    assert!(
        ran.stdout.contains("x_slat.N.log, x_clat.N.log, x_lat.N.log; N=1\n"),
        "{}",
        ran.stdout
    );

    let csv = tool(dir.path(), PYTHON, &["/usr/bin/fio_jsonplus_clat2csv", "o.json", "o.csv"]);
    assert_eq!(csv.lines().count(), 4, "{csv}");
    tool(dir.path(), PYTHON, &["/usr/bin/fio_jsonplus_clat2csv", "o.json", "o.csv", "--validate"]);
    let report = json(&dir.path().join("o.json"));
    let table = std::fs::read_to_string(dir.path().join("o_job3.csv")).unwrap();
    let header: Vec<&str> = table.lines().next().unwrap().split(", ").collect();
    let column = header.iter().position(|name| *name == "read_clat_ns_cumulative").unwrap();
    let last = table
        .lines()
        .filter_map(|line| line.split(", ").nth(column)?.trim().parse::<u64>().ok())
        .max();
    assert_eq!(last, report["jobs"][3]["read"]["total_ios"].as_u64(), "every I/O is in a bin");

    let plotted =
        tool(dir.path(), PYTHON, &["/usr/bin/fio2gnuplot", "-p", "x_lat*.log", "-d", "./"]);
    assert!(plotted.contains("4 files Selected"), "{plotted}");
    let averages = std::fs::read_to_string(dir.path().join("x_lat.average")).unwrap();
    let average =
        |line: &str| line.split_whitespace().last().and_then(|figure| figure.parse::<f64>().ok());
    assert!(
        averages.lines().filter_map(average).filter(|figure| *figure > 0.0).count() >= 4,
        "{averages}"
    );
}

/// Debian's, whose modules `make setup-test` installs.
const PYTHON: &str = "/usr/bin/python3";

#[test]
fn what_is_logged_is_whole_and_nothing_else_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let keys = "[global]\nfilename=mem:1M?inline=1\ncompletion=poll\nsize=1m\nwrite_lat_log=s\n[a]\nnumjobs=2\n[b]\nstonewall\n";
    std::fs::write(dir.path().join("j.fio"), keys).unwrap();
    succeed(dir.path(), &["bench", "j.fio"]);
    let mut files = vec!["j.fio".to_owned()];
    files.extend(
        ["clat", "lat", "slat"]
            .iter()
            .flat_map(|kind| (1..=3).map(move |number| format!("s_{kind}.{number}.log"))),
    );
    for file in &files[1..] {
        assert_eq!(log(&dir.path().join(file)).len(), 256, "{file}");
    }
    assert_eq!(crate::common::files(dir.path()), files);
    let ran = crate::common::run(dir.path(), &["bench", "j.fio", "--write-lat-log", "no/such/dir"]);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.contains("no/such/dir_lat") && ran.stderr.lines().count() == 1,
        "{}",
        ran.stderr
    );
}
