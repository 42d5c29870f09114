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
fn tool(dir: &Path, program: &str, args: &[&str]) -> String {
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
fn log(path: &Path) -> Vec<Vec<u64>> {
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
         [rated]\nstonewall\nrw=randread\nrate_iops=20k\nrandom_generator=lfsr\n\
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
fn gaps_runs_and_increments_are_fios() {
    let dir = tempfile::tempdir().unwrap();
    both(
        dir.path(),
        "write_lat_log=l\nlog_offset=1\n[gaps]\nrw=read:12k\n[back]\nstonewall\nrw=write:-8k\n\
         [parts]\nstonewall\nrw=read\nsize=256k\noffset_increment=256k\nnumjobs=3\n",
    );
    let ios = |who: &str, number: u32| {
        let lines = log(&dir.path().join(format!("{who}/l_lat.{number}.log")));
        lines.into_iter().map(|line| line[2..5].to_vec()).collect::<Vec<_>>()
    };
    for number in 1..=2 {
        assert_eq!(ios("fio", number), ios("ours", number), "{number}");
    }
    // fio numbers its clones' logs the other way round.
    let parts = |who: &str| {
        let mut parts: Vec<_> = (3..=5).map(|number| ios(who, number)).collect();
        parts.sort();
        parts
    };
    assert_eq!(parts("fio"), parts("ours"));
}

#[test]
fn random_runs_and_alignment_are_fios() {
    for (keys, step) in [
        ("rw=randread:4\nnorandommap", 4096),
        ("rw=randread:4\nrw_sequencer=identical\nnorandommap", 4096),
        ("rw=randread\nbssplit=512/50:4k/50\nblockalign=8k\nnorandommap", 8192),
    ] {
        let [theirs, ours] = drawn("8m", keys);
        for ios in [&theirs, &ours] {
            assert!(ios.iter().all(|(_, offset)| offset % step == 0), "{keys}");
        }
        // How often an I/O begins where the one before did, or ended.
        let follow = |ios: &[(u64, u64)], gap: fn(u64) -> u64| {
            let follows =
                ios.windows(2).filter(|pair| pair[1].1 == pair[0].1 + gap(pair[0].0)).count();
            follows as f64 / ios.len() as f64
        };
        for gap in [(|_| 0) as fn(u64) -> u64, |bytes| bytes] {
            let (theirs, ours) = (follow(&theirs, gap), follow(&ours, gap));
            assert!((theirs - ours).abs() < 0.02, "{keys}: {theirs} and {ours}");
        }
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
    assert!(ran.stderr.contains("fio's key read_iolog is not supported: "), "{}", ran.stderr);
    // All are said at once, each with its line.
    assert!(ran.stderr.lines().count() > 100, "{}", ran.stderr);
}

#[test]
fn a_steady_job_ends_and_says_so_as_fio_does() {
    let dir = tempfile::tempdir().unwrap();
    let (theirs, ours) = both(
        dir.path(),
        "[a]\nrw=randread\nthinktime=2ms\ntime_based\nruntime=30\nss=iops:300%\nss_dur=2\nss_ramp=1\n",
    );
    let [theirs, ours] = [&theirs, &ours].map(|report| &jobs(report)[0]);
    assert_like(&theirs["steadystate"], &ours["steadystate"], "steadystate");
    for key in ["ss", "duration", "attained"] {
        assert_eq!(theirs["steadystate"][key], ours["steadystate"][key], "{key}");
    }
    assert_eq!(ours["steadystate"]["attained"], 1);
    assert!(ours["job_runtime"].as_u64().unwrap() < 25_000, "{}", ours["job_runtime"]);
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

#[test]
fn jobs_begin_and_end_as_fios_do() {
    for text in [
        // Said by one, meant for all.
        "[short]\nexitall\nrw=read\nnumber_ios=4\nthinktime=1ms\n\
         [long]\nrw=randread\nruntime=60\ntime_based\nthinktime=1ms\n",
        "[late]\nstartdelay=1\nrw=read\n[early]\nrw=read\nruntime=2\n[after]\nwait_for=early\nrw=read\n",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (theirs, ours) = both(dir.path(), text);
        let (theirs, ours) = (jobs(&theirs), jobs(&ours));
        assert_eq!(theirs.len(), ours.len());
        for (theirs, ours) in theirs.iter().zip(ours) {
            let name = theirs["jobname"].as_str().unwrap();
            assert_eq!(name, ours["jobname"]);
            let times = [theirs, ours].map(|job| job["job_runtime"].as_u64().unwrap());
            assert!(times.iter().all(|ms| *ms < 20_000), "{name}: {times:?}");
            if name != "long" {
                assert_eq!(theirs["read"]["total_ios"], ours["read"]["total_ios"], "{name}");
            }
        }
    }
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
    // fio's averages of bandwidth are another thread's work, which it begins up to 150 ms after the
    // job's first I/O: a job no longer than that leaves it an empty log. The jobs with averages
    // take most of a second.
    for (keys, thinktime_us, same_count) in [
        ("", 500, true),
        ("log_offset=1\n", 500, true),
        ("log_avg_msec=10\n", 3000, false),
        ("log_avg_msec=10\nlog_offset=1\n", 3000, false),
    ] {
        let dir = tempfile::tempdir().unwrap();
        both(
            dir.path(),
            &format!(
                "{keys}write_lat_log\nwrite_bw_log\nwrite_iops_log=i\nwrite_hist_log=h\nlog_hist_msec=20\n[a]\nrw=randread\n\
                 thinktime={thinktime_us}\n"
            ),
        );
        for file in
            ["a_lat.1.log", "a_clat.1.log", "a_bw.1.log", "i_iops.1.log", "h_clat_hist.1.log"]
        {
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
            if same_count && !file.starts_with('h') {
                assert_eq!((theirs.len(), ours.len()), (256, 256), "{file} {keys}");
            }
            if file.starts_with('h') {
                let ios: u64 = ours.iter().flat_map(|line| &line[3..]).sum();
                assert_eq!(ios, 256, "{file} {keys}");
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
fn distributions_are_fios() {
    for keys in [
        "zipf:0.6",
        "zipf:1.2",
        "zipf:2",
        "pareto:0.2",
        "pareto:0.4",
        "normal:20",
        "normal:0",
        "random",
    ] {
        let [theirs, ours] =
            drawn("1m", &format!("rw=randread\nbs=4k\nnorandommap\nrandom_distribution={keys}"));
        // Where the popular blocks are is a matter of the seed; how popular they are is not.
        let popular = |ios: &[(u64, u64)]| {
            let mut shares: Vec<f64> =
                shares(ios.iter().map(|(_, offset)| *offset)).into_values().collect();
            shares.sort_by(|a, b| b.total_cmp(a));
            [1, 3, 13, 26, 51, 128].map(|most| shares.iter().take(most).sum::<f64>())
        };
        let (theirs, ours) = (popular(&theirs), popular(&ours));
        for (theirs_share, our_share) in theirs.iter().zip(ours) {
            assert!(
                (theirs_share - our_share).abs() < 0.025,
                "{keys}: {theirs:.3?} and {ours:.3?}"
            );
        }
    }
}

#[test]
fn zones_are_fios() {
    for keys in ["zoned:60/10:30/20:8/30:2/40", "zoned_abs:70/128k:30/256k"] {
        let both = drawn("1m", &format!("rw=randread\nbs=4k\nrandom_distribution={keys}"));
        let [theirs, ours] = both.map(|ios| {
            shares(ios.iter().map(|(_, offset)| {
                [104, 308, 616].partition_point(|end| offset / 1024 >= *end) as u64
            }))
        });
        assert_eq!(theirs.keys().collect::<Vec<_>>(), ours.keys().collect::<Vec<_>>(), "{keys}");
        for (zone, share) in &theirs {
            assert!((share - ours[zone]).abs() < 0.02, "{keys}: {theirs:?} and {ours:?}");
        }
    }
}

#[test]
fn sizes_are_fios() {
    for (size, keys) in [
        ("1m", "rw=randread\nnorandommap\nbssplit=4k/70:16k/30"),
        // fio draws the same sizes again when it begins at the beginning again.
        ("80m", "rw=read\nbssplit=4k/50:1k/:32k/"),
        ("1m", "rw=randread\nnorandommap\nbsrange=1k-4k"),
        ("80m", "rw=read\nblocksize_range=4k-32k"),
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
        "[global]\nfilename=mem:4M?inline=1\ncompletion=interrupt,poll\nruntime=300ms\ntime_based\nwrite_bw_log=x\nwrite_iops_log=x\n\
         log_avg_msec=50\nwrite_hist_log=x\nlog_hist_msec=100\n[a]\nrw=randrw\n[b]\nrw=randread\nstonewall\nlog_hist_coarseness=3\n",
    )
    .unwrap();
    let ran = succeed(dir.path(), &["bench", "j.fio", "--json", "o.json"]);
    assert!(
        ran.stdout.contains("x_bw.N.log, x_iops.N.log, x_clat_hist.N.log; N=4"),
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
        tool(dir.path(), PYTHON, &["/usr/bin/fio2gnuplot", "-p", "x_bw*.log", "-d", "./"]);
    assert!(plotted.contains("4 files Selected"), "{plotted}");
    let averages = std::fs::read_to_string(dir.path().join("x_bw.average")).unwrap();
    let average =
        |line: &str| line.split_whitespace().last().and_then(|figure| figure.parse::<f64>().ok());
    assert!(
        averages.lines().filter_map(average).filter(|figure| *figure > 0.0).count() >= 4,
        "{averages}"
    );

    let reader = tool(dir.path(), PYTHON, &["-c", HIST_READER]);
    for (number, coarse) in [(2, false), (4, true)] {
        let file = format!("x_clat_hist.{number}.log");
        let lines = tool(
            dir.path(),
            PYTHON,
            &[reader.trim(), "--group_nr", "29", "--interval", "100", &file],
        );
        let rows: Vec<&str> = lines.lines().collect();
        assert!(rows[0].starts_with("end-time") && rows.len() > 2, "{lines}");
        let samples: f64 = rows[1..]
            .iter()
            .filter_map(|row| row.split(',').nth(1)?.trim().parse::<f64>().ok())
            .sum();
        let job = &report["jobs"][number - 1];
        let ios = (job["read"]["total_ios"].as_u64().unwrap()
            + job["write"]["total_ios"].as_u64().unwrap()) as f64;
        assert!(samples > 0.8 * ios, "{samples} of {ios}, coarse: {coarse}\n{lines}");
    }
}

/// Debian's, whose modules `make setup-test` installs.
const PYTHON: &str = "/usr/bin/python3";

/// Unpacks Debian's copy of fiologparser_hist.py, and says where it is.
const HIST_READER: &str = "
import gzip, os, sys
packed = '/usr/share/doc/fio/fiologparser_hist.py.gz'
try:
    import numpy, pandas
except ImportError as missing:
    sys.exit(f'{missing}: run `make setup-test`, which installs it')
if not os.path.exists(packed):
    sys.exit(packed + ' is missing: it is of the package fio, which `make setup-test` installs')
open('hist.py', 'wb').write(gzip.open(packed).read())
print('hist.py')
";

#[test]
fn what_is_logged_is_whole_and_nothing_else_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let keys = "[global]\nfilename=mem:1M?inline=1\ncompletion=poll\nsize=1m\nwrite_iops_log=s\nper_job_logs=0\n[a]\nnumjobs=2\n[b]\nstonewall\n";
    std::fs::write(dir.path().join("j.fio"), keys).unwrap();
    succeed(dir.path(), &["bench", "j.fio"]);
    assert_eq!(crate::common::files(dir.path()), ["j.fio", "s_iops.log"]);
    assert_eq!(log(&dir.path().join("s_iops.log")).len(), 3 * 256);
    let ran = crate::common::run(dir.path(), &["bench", "j.fio", "--write-lat-log", "no/such/dir"]);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stderr.contains("no/such/dir_slat") && ran.stderr.lines().count() == 1,
        "{}",
        ran.stderr
    );
}

#[test]
fn a_target_is_searched_for() {
    let dir = tempfile::tempdir().unwrap();
    let bench = |target: &str, window: &str| {
        let args = [
            "bench",
            "--device",
            "mem:4M?inline=1",
            "--completion",
            "poll",
            "--rw",
            "randread",
            "--iodepth",
            "8",
        ];
        let search = [
            "--latency-target",
            target,
            "--latency-window",
            window,
            "--runtime",
            "2",
            "--time-based",
        ];
        crate::common::run(dir.path(), &[&args[..], &search, &["--json", "o.json"]].concat())
    };
    // Any latency keeps it, so that the depth doubles up to the limit, and the job ends before its
    // time.
    let ran = bench("60s", "2ms");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let job = &json(&dir.path().join("o.json"))["jobs"][0];
    assert_eq!(
        (&job["latency_depth"], &job["latency_target"]),
        (&8.into(), &60_000_000_000u64.into())
    );
    assert_eq!(job["latency_window"], 2000);
    assert!(
        job["iodepth_level"]["8"].as_f64().unwrap() > 50.0,
        "only what came after is reported: {job}"
    );
    // None keeps a target of nothing: there is no such latency.
    let ran = bench("1us", "2ms");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("latency_target cannot be kept"), "{}", ran.stderr);
}
