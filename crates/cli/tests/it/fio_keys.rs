//! Keys of fio's whose effect is seen from outside: which places are touched, what is on the
//! medium, who goes ahead.

use std::path::Path;
use std::process::Command;

use crate::common::{json, meantime, succeed};
use serde_json::Value;

/// Runs fio in `dir` on `d.img`.
fn fio(dir: &Path, args: &[&str]) {
    let usual = ["--name=a", "--filename=d.img", "--ioengine=psync", "--output=fio.out"];
    let output = Command::new("fio").current_dir(dir).args(usual).args(args).output();
    let output = output.unwrap_or_else(|error| panic!("fio: {error}; run `make setup-test`"));
    assert!(output.status.success(), "fio {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Runs us in `dir` on a new `d.img` of 1 MiB.
fn ours(dir: &Path, args: &[&str]) -> String {
    let usual =
        ["bench", "--name", "a", "--device", "file:d.img?create=1M", "--completion", "poll"];
    succeed(dir, &[&usual[..], args].concat()).stdout
}

/// The lines of a log with offsets: direction, length and offset of each I/O.
fn places(path: &Path) -> Vec<[u64; 3]> {
    let text =
        std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let number = |field: Option<&&str>| field.unwrap().trim().parse().unwrap();
    let lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    lines.map(|line| [number(line.get(2)), number(line.get(3)), number(line.get(4))]).collect()
}

/// The places of the same job, by fio and by us.
fn both(args: &[&str]) -> [Vec<[u64; 3]>; 2] {
    let dir = tempfile::tempdir().unwrap();
    let dirs = ["fio", "ours"].map(|name| dir.path().join(name));
    dirs.iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
    std::fs::write(dirs[0].join("d.img"), vec![0; 1 << 20]).unwrap();
    let args = [args, &["--write_bw_log=l", "--log_offset=1"]].concat();
    fio(&dirs[0], &args);
    ours(&dirs[1], &args);
    dirs.map(|dir| places(&dir.join("l_bw.1.log")))
}

#[test]
fn strided_zones_are_those_of_fio() {
    for keys in [
        "--zonesize=16k --zoneskip=32k --size=1m",
        "--zonesize=16k --zonerange=32k --zoneskip=32k --size=1m",
        "--zonesize=32k --zonerange=16k --zoneskip=64k --size=256k",
        "--zonesize=16k --zoneskip=32k --size=128k --offset=64k --io_size=256k",
        "--zonesize=10k --zoneskip=32k --size=128k",
        "--zonesize=16k --zoneskip=400k --size=256k",
        "--zonesize=16k --zoneskip=1000k --size=256k --rw=write",
        "--zonesize=16k --size=64k",
    ] {
        let mut args = vec!["--bs=4k", "--zonemode=strided"];
        args.extend(keys.split(' '));
        let [theirs, ours] = both(&args);
        assert!(theirs.len() >= 6, "{keys}");
        assert_eq!(theirs, ours, "{keys}");
    }
    // At random: as many in the same zones, each place once.
    let args = "--bs=4k --zonemode=strided --rw=randread --zonesize=16k --zonerange=32k --zoneskip=32k --size=256k";
    let zones = |places: Vec<[u64; 3]>| {
        for of_zone in places.chunks(4) {
            let mut once = of_zone.to_vec();
            once.sort_unstable();
            once.dedup();
            assert_eq!(once.len(), 4, "{of_zone:?}");
        }
        places.iter().map(|[.., offset]| offset >> 15).collect::<Vec<_>>()
    };
    let [theirs, ours] = both(&args.split(' ').collect::<Vec<_>>()).map(zones);
    assert_eq!(theirs, ours);
}

#[test]
fn zones_are_filled_as_fio_fills_them() {
    for keys in [
        "--rw=write --size=512k",
        "--rw=write --size=512k --loops=2",
        "--rw=write --offset=1z --size=2z",
        "--rw=write --offset=20k --size=512k",
        "--rw=write --size=500k",
        "--rw=write --zonecapacity=32k --size=1m",
        "--rw=read --size=512k --read_beyond_wp=1",
        "--rw=randwrite --size=512k --max_open_zones=1",
    ] {
        let mut args = vec!["--bs=16k", "--zonemode=zbd", "--zonesize=64k", "--direct=1"];
        args.extend(keys.split(' '));
        let [theirs, ours] = both(&args);
        assert!(theirs.len() >= 6, "{keys}");
        if keys.contains("rand") {
            // Which zones is chance; each from its beginning to its end before the next one.
            for places in [theirs, ours] {
                assert_eq!(places.len(), 32);
                for of_zone in places.chunks(4) {
                    let offsets: Vec<u64> =
                        of_zone.iter().map(|[.., offset]| offset % (64 << 10)).collect();
                    assert_eq!(offsets, [0, 16 << 10, 32 << 10, 48 << 10], "{keys}");
                }
            }
            continue;
        }
        assert_eq!(theirs, ours, "{keys}");
    }
    // One job's zones are the next one's.
    let dir = tempfile::tempdir().unwrap();
    let jobs = "[global]\nfilename=mem:1M?inline=1\ncompletion=poll\nzonemode=zbd\nzonesize=64k\nbs=16k\n\
                write_bw_log\nlog_offset=1\n[w]\nrw=write\nsize=96k\n[r]\nstonewall\nrw=read\nsize=512k\n";
    let jobs = jobs.replace("size=96k", "size=128k\nio_size=96k");
    std::fs::write(dir.path().join("j.fio"), jobs).unwrap();
    succeed(dir.path(), &["bench", "j.fio"]);
    let read: Vec<u64> =
        places(&dir.path().join("r_bw.2.log")).iter().map(|place| place[2] >> 14).collect();
    assert_eq!(read, [0, 1, 2, 3, 4, 5]);
}

/// Reads of each job of the report.
fn ios(report: &Value) -> Vec<u64> {
    let jobs = report["jobs"].as_array().unwrap();
    jobs.iter()
        .map(|job| {
            ["read", "write"].iter().map(|dir| job[dir]["total_ios"].as_u64().unwrap()).sum()
        })
        .collect()
}

#[test]
fn jobs_of_a_flow_have_its_shares() {
    let dir = tempfile::tempdir().unwrap();
    let run = |keys: &str| {
        let jobs = format!(
            "[global]\nfilename=mem:16M?inline=1\ncompletion=poll\nrw=randread\nnorandommap\ntime_based\nruntime=1\n{keys}"
        );
        std::fs::write(dir.path().join("j.fio"), jobs).unwrap();
        succeed(dir.path(), &["bench", "j.fio", "--json", "o.json"]);
        ios(&json(&dir.path().join("o.json")))
    };
    for keys in ["", "flow_sleep=100\n", "iodepth=8\n"] {
        let ios = run(&format!("{keys}[a]\nflow=1\n[b]\nflow=8\n"));
        let ratio = ios[1] as f64 / ios[0] as f64;
        assert!((7.0..9.0).contains(&ratio) && ios[0] > 10, "{keys}: {ios:?}");
    }
    // Of a flow each: nobody waits.
    let apart = run("[a]\nflow=1\nflow_id=1\nrate_iops=100\n[b]\nflow=1\nflow_id=2\n");
    assert!(apart[1] > 10 * apart[0], "{apart:?}");
    // When one has ended, the other one goes on.
    let shorter = run("[a]\nflow=1\nruntime=700ms\n[b]\nflow=1\nruntime=1\nrate_iops=1000\n");
    assert!((950..1050).contains(&shorter[1]), "{shorter:?}");
    let ended = run("time_based=0\n[a]\nflow=1\nnumber_ios=100\n[b]\nflow=1\nnumber_ios=1000\n");
    assert_eq!(ended, [100, 1000]);
}

/// What `d.img` holds.
fn image(dir: &Path) -> Vec<u8> {
    std::fs::read(dir.join("d.img")).unwrap()
}

#[test]
fn patterns_are_on_the_medium_and_checked_by_a_job_that_reads() {
    let dir = tempfile::tempdir().unwrap();
    for (verify, pattern) in
        [("pattern", "0xff%o\"abcd\"-12"), ("meta", "0xaa555aa5"), ("pattern_hdr", "7")]
    {
        let _ = std::fs::remove_file(dir.path().join("d.img"));
        let verify_key = format!("--verify={verify}");
        let pattern_key = format!("--verify_pattern={pattern}");
        let keys = [&verify_key, &pattern_key, "--bs=4k", "--size=64k"];
        let written = [&keys[..], &["--rw=write", "--do_verify=0"]].concat();
        ours(dir.path(), &written);
        let bytes = image(dir.path());
        if verify != "pattern_hdr" {
            // What fio writes there; the headers are not alike, and fio 3.33 knows only two of
            // these.
            let theirs = dir.path().join("theirs");
            std::fs::create_dir_all(&theirs).unwrap();
            std::fs::write(theirs.join("d.img"), vec![0; 1 << 20]).unwrap();
            fio(&theirs, &written);
            let header = if verify == "pattern" { 0 } else { 128 };
            for (block, theirs) in bytes.chunks(4096).zip(image(&theirs).chunks(4096)).take(16) {
                assert!(block[header..] == theirs[header..], "{verify}");
            }
        }
        let read = [&keys[..], &["--rw=randread"]].concat();
        let report = ours(dir.path(), &read);
        assert!(!report.contains("verify errors"), "{report}");
        let mut torn = bytes.clone();
        torn[3 * 4096 + 1000] ^= 1;
        std::fs::write(dir.path().join("d.img"), torn).unwrap();
        let usual = ["bench", "--device", "file:d.img", "--completion", "poll"];
        let output = meantime(dir.path(), &[&usual[..], &read].concat()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(
            stderr.contains("at offset 12288 is not what was written: its byte 1000 "),
            "{stderr}"
        );
        // Unless it is not to look.
        let output = [&read[..], &["--do_verify=0"]].concat();
        ours(dir.path(), &output);
    }
}

#[test]
fn each_interval_is_found_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let keys = ["--verify=md5", "--verify_interval=512", "--bs=4k", "--size=64k"];
    ours(dir.path(), &[&keys[..], &["--rw=write"]].concat());
    let mut bytes = image(dir.path());
    for sector in bytes[..65_536].chunks(512) {
        assert_eq!(&sector[..8], b"MTVERIF2");
    }
    bytes[8192 + 1024 + 300] ^= 1;
    std::fs::write(dir.path().join("d.img"), bytes).unwrap();
    let usual = ["bench", "--device", "file:d.img", "--completion", "poll", "--rw=read"];
    let output = meantime(dir.path(), &[&usual[..], &keys].concat()).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("the block of 512 bytes at offset 9216 is not"), "{stderr}");
}

#[test]
fn without_do_verify_nothing_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let checked = |do_verify: &str| {
        ours(dir.path(), &["--rw=write", "--verify=md5", "--size=64k", do_verify, "--json=o.json"]);
        json(&dir.path().join("o.json"))["jobs"][0]["extra"]["verified_blocks"].as_f64()
    };
    assert_eq!(checked("--do_verify=1"), Some(16.0));
    assert_eq!(checked("--do_verify=0"), Some(0.0));
}

#[test]
fn a_device_is_filled_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    ours(
        dir.path(),
        &["--rw=write", "--bs=64k", "--fill_device=1", "--offset=512k", "--json=o.json"],
    );
    let bytes = json(&dir.path().join("o.json"))["jobs"][0]["write"]["io_bytes"].as_u64();
    assert_eq!(bytes, Some(1 << 19));
}

#[test]
fn logs_have_the_priority_of_each_io() {
    let dir = tempfile::tempdir().unwrap();
    let keys = [
        "--rw=randread",
        "--bs=512",
        "--number_ios=2000",
        "--prioclass=2",
        "--prio=5",
        "--write_lat_log=l",
    ];
    let shares = |more: &[&str]| {
        let args = [&keys[..], more].concat();
        ours(dir.path(), &args);
        let text = std::fs::read_to_string(dir.path().join("l_lat.1.log")).unwrap();
        let mut counts = std::collections::BTreeMap::<String, u64>::new();
        for line in text.lines() {
            *counts.entry(line.rsplit(", ").next().unwrap().to_owned()).or_default() += 1;
        }
        counts
    };
    let counts =
        shares(&["--cmdprio_percentage=20", "--cmdprio_class=2", "--cmdprio=1", "--log_prio=1"]);
    assert_eq!(counts.keys().collect::<Vec<_>>(), ["0x4001", "0x4005"]);
    assert!(counts["0x4001"].abs_diff(400) < 100, "{counts:?}");
    // Real time or not.
    let counts = shares(&["--cmdprio_percentage=20"]);
    assert!(counts["1"].abs_diff(400) < 100 && counts["0"] + counts["1"] == 2000, "{counts:?}");
    let counts = shares(&["--log_prio=1"]);
    assert_eq!(counts.keys().collect::<Vec<_>>(), ["0x4005"]);
    // A device that does not go by it says so, once.
    let usual = ["bench", "--device", "mem:1M?inline=1", "--completion", "poll"];
    let args = [&usual[..], &keys, &["--cmdprio_percentage=20"]].concat();
    let output = meantime(dir.path(), &args).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr.matches("knows no priority of a single I/O").count(), 1, "{stderr}");
}

#[test]
fn threads_and_memory_are_on_their_nodes() {
    let dir = tempfile::tempdir().unwrap();
    let usual = [
        "bench",
        "--device",
        "mem:64M?inline=1",
        "--completion",
        "poll",
        "--rw",
        "randread",
        "--runtime",
        "3",
    ];
    let keys = ["--numa_cpu_nodes=0", "--numa_mem_policy=bind:0"];
    let mut child = meantime(dir.path(), &[&usual[..], &keys].concat())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let cpus = std::fs::read_to_string("/sys/devices/system/node/node0/cpulist").unwrap();
    let seen = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", child.id())).ok()?;
        let job = tasks.flatten().map(|task| task.path()).find(|task| {
            std::fs::read_to_string(task.join("comm"))
                .is_ok_and(|name| name.starts_with("meantime-job"))
        })?;
        let status = std::fs::read_to_string(job.join("status")).ok()?;
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        let maps = std::fs::read_to_string(job.join("numa_maps")).ok()?;
        let policy = maps.lines().find_map(|line| line.split(' ').nth(1))?.to_owned();
        Some((allowed.trim().to_owned(), policy))
    };
    let wanted = Some((cpus.trim().to_owned(), "bind:0".to_owned()));
    let mut last = None;
    for _ in 0..100 {
        last = seen().or(last);
        if last == wanted {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(last, wanted);
}
