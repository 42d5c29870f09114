//! Bad input of every kind: one clear line, a non-zero exit, nothing left behind, nothing
//! overwritten.

use std::time::{Duration, Instant};

use crate::common::{Ran, files, meantime, run};

/// Runs in a fresh directory; the error's line.
fn refused(args: &[&str], code: i32, words: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let Ran { code: got, stdout, stderr } = run(dir.path(), args);
    assert_eq!(got, Some(code), "{args:?}: {stderr}");
    assert_eq!(stdout, "", "{args:?}");
    assert_eq!(stderr.lines().count(), 1, "{args:?}: {stderr}");
    assert!(stderr.starts_with("meantime: "), "{args:?}: {stderr}");
    for word in words {
        assert!(stderr.contains(word), "{args:?}: no {word:?} in {stderr}");
    }
    assert_eq!(files(dir.path()), Vec::<String>::new(), "{args:?}");
}

#[test]
fn usage() {
    refused(&[], 2, &["no command"]);
    refused(&["bensh"], 2, &["bensh"]);
    refused(&["bench", "--flor"], 2, &["--flor", "--floor"]);
    refused(&["bench", "--rounds", "0", "--device", "mem:1M"], 2, &["--rounds"]);
    refused(&["bench"], 2, &["no device", "--device"]);
    refused(&["bench", "--device", "mem:1M,,mem:2M"], 2, &["empty URI"]);
    refused(&["bench", "--device", "mem:1M,mem:1M"], 2, &["named twice"]);
    refused(&["info", "--devise", "mem:1M"], 2, &["--device"]);
    refused(&["calibrate", "now"], 2, &["now"]);
    refused(&["reproduce", "fast12-nothing"], 2, &["fast12-nothing", "--list"]);
    refused(&["reproduce", "vault17-guest-ways"], 2, &["virtual machine", "--guest FILE"]);
    refused(&["reproduce", "--guest", "no.json"], 1, &["no.json: No such file"]);
    refused(
        &["fs", "ls", "disk.img:/etc"],
        2,
        &["did you mean file:disk.img:/etc?", "DEVICE:/PATH"],
    );
    refused(&["fs", "mkfs", "/dev/sda1"], 2, &["did you mean kernel:/dev/sda1?"]);
    refused(&["copy", "mem:1M", "/dev/sda1"], 2, &["did you mean kernel:/dev/sda1?"]);
}

#[test]
fn help_is_found_either_way() {
    let dir = tempfile::tempdir().unwrap();
    for command in ["bench", "fs", "ssd"] {
        let asked = run(dir.path(), &["help", command]);
        assert_eq!(asked.code, Some(0), "{asked:?}");
        assert_eq!(asked.stdout, run(dir.path(), &[command, "--help"]).stdout);
    }
    assert!(run(dir.path(), &["help"]).stdout.contains("EXAMPLES"));
    assert_eq!(run(dir.path(), &["help", "bensh"]).code, Some(2));
}

#[test]
fn devices() {
    for command in ["bench", "info"] {
        let written_wrong =
            |uri: &str, words: &[&str]| refused(&[command, "--device", uri], 2, words);
        written_wrong("men:1G", &["men:1G", "unknown scheme", "mem:"]);
        written_wrong("mem:1X", &["mem:1X", "no size"]);
        written_wrong("mem:1000", &["4096"]);
        written_wrong("mem:1M?modle=nand", &["unknown parameter", "model"]);
        written_wrong("/dev/nvme0n1", &["did you mean kernel:/dev/nvme0n1?"]);
        written_wrong("disk.img", &["did you mean file:disk.img?"]);
        let refused = |uri: &str, words: &[&str]| refused(&[command, "--device", uri], 1, words);
        refused("mem:1M?model=optan", &["optan", "optane"]);
        refused("mem:1M?model=no/such.toml", &["no/such.toml"]);
        refused("file:none.img", &["none.img", "No such file"]);
        refused("file:/dev/null", &["/dev/null", "regular file"]);
        refused("vfio:fffe:ff:1f.7", &["fffe:ff:1f.7", "no such PCI device"]);
    }
    refused(&["bench", "--device", "mem:1M?cpu=1000"], 1, &["cpu=1000"]);
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let file = format!("kernel:{}?direct=0", file.path().display());
    refused(&["info", "--device", &file], 1, &["only an NVMe controller", "kernel:/dev/nvme0n1"]);
    refused(&["bench", "--device", "file:a?create=1M,file:./a?create=1M"], 1, &["same file"]);
}

#[test]
fn job_keys_on_the_command_line() {
    let refused = |args: &[&str], words: &[&str]| {
        refused(&[&["bench", "--device", "mem:1M"], args].concat(), 2, words);
    };
    refused(&["--rw", "reed"], &["--rw=reed", "randread"]);
    refused(&["--bs", "1000"], &["--bs=1000", "512"]);
    refused(&["--bs", "-4k"], &["-4", "minus sign"]);
    refused(&["--runtime", "-1"], &["-1", "minus sign"]);
    refused(&["--iodepth", "0"], &["--iodepth=0"]);
    refused(&["--runtime", "1x"], &["--runtime=1x"]);
    refused(&["--size", "1"], &["--size=1", "512"]);
    refused(&["--time-based"], &["runtime"]);
    refused(&["--completion", "pole"], &["pole", "interrupt, poll, adaptive"]);
    refused(&["--completion", "poll,poll"], &["twice"]);
    refused(&["--completion", "adaptive:cpu=0"], &["adaptive:cpu=0", "1 to 100"]);
    refused(&["--verify", "md6"], &["--verify=md6", "crc32c"]);
    refused(&["--verify", "crc32c", "--rw", "trim"], &["nothing to say of trims"]);
    refused(&["--verify", "pattern"], &["verify_pattern="]);
    refused(&["--verify_pattern", "abc"], &["--verify-pattern=abc", "0xaa55"]);
    refused(&["--verify", "md5", "--verify_interval", "1536"], &["does not divide bs=4096"]);
    refused(&["--zonemode", "zbd"], &["--zonemode", "fio --name=job", "--zonemode=zbd"]);
    refused(&["--bs", "4k", "--bssplit", "4k/100"], &["bs and bssplit contradict"]);
    refused(&["--bssplit", "4k/50:8k/40"], &["--bssplit=4k/50:8k/40", "90 %"]);
    refused(&["--fsync", "1"], &["fsync", "writes nothing"]);
    refused(&["--rate", "1m", "--rate-iops", "9"], &["contradict", "leave one out"]);
    refused(&["--rw", "read:8k"], &["--rw=read:8k", "left to fio"]);
}

#[test]
fn jobs_that_do_not_fit_the_device() {
    let refused = |uri: &str, args: &[&str], words: &[&str]| {
        refused(&[&["bench", "--device", uri], args].concat(), 1, words);
    };
    refused("mem:1M", &["--size", "2m"], &["size=2097152", "mem:1M", "1048576"]);
    refused("mem:1M", &["--offset", "1m"], &["offset=1048576", "mem:1M"]);
    refused("mem:1M", &["--offset", "512k", "--size", "768k"], &["beyond the end"]);
    refused("mem:1M", &["--bs", "2m"], &["bs=2097152"]);
    refused("mem:1M?lba=4096", &["--bs", "512"], &["bs=512", "4096-byte blocks"]);
    refused("mem:1M?lba=4096", &["--offset", "512"], &["offset=512"]);
    refused("mem:1M?lba=4096", &["--bs", "4k", "--size", "4608"], &["size=4608"]);
    refused("mem:1M", &["--iodepth", "1023"], &["iodepth=1023", "1022", "1024 entries"]);
    refused("mem:1M", &["--numjobs", "64"], &["queue pairs"]);
    refused("mem:1M?vectors=1", &["--completion", "interrupt"], &["vectors"]);
    refused("mem:1M", &["--cpus-allowed", "4000"], &["CPU 4000"]);
    refused("mem:1T", &["--bs", "1g", "--iodepth", "1000"], &["memory", "iodepth"]);
    refused("mem:1M", &["--json", "no/such/dir.json"], &["no/such/dir.json"]);
    refused("mem:1M", &["--json", "/"], &["directory"]);
    refused("mem:1M?lba=4096", &["--bssplit", "512/50:4k/50"], &["bs=512", "4096-byte blocks"]);
    refused("mem:1M?lba=4096", &["--bssplit", "4k/50:6k/50"], &["bs=2048", "4096-byte blocks"]);
    refused("mem:1M", &["--io-size", "512", "--bssplit", "4k/50:8k/50"], &["io_size=512"]);
    // A medium that was created for a run that cannot be is removed again.
    refused("file:new.img?create=1M", &["--size", "2m"], &["beyond the end"]);
    refused("file:new.img?create=1M,mem:1M?model=optan", &[], &["optan"]);
}

#[test]
fn job_files() {
    let dir = tempfile::tempdir().unwrap();
    for (text, words) in [
        ("", &["j.fio:1", "empty"][..]),
        ("[global]\nbs=4k\n", &["no job"]),
        ("[a]\nfilename=mem:1M\niodpeth=4\n", &["j.fio:3", "iodpeth", "iodepth"]),
        ("[a]\nfilename=mem:1M\nbs=4x\n", &["j.fio:3", "bs=4x"]),
        (
            "[a]\nfilename=mem:1M\nhipri=1\ncompletion=interrupt\n",
            &["j.fio:4", "hipri means completion=poll"],
        ),
        ("[a]\nfilename=mem:1M\nsqthread_poll=1\n", &["j.fio:3", "completion=poll"]),
        ("[a]\nfilename=mem:1M\ncompletion=poll,warp\n", &["j.fio:3", "warp"]),
        ("[a]\nfilename=mem:1M\nsize=3m\n", &["job a", "beyond the end"]),
        (
            "[global]\nfilename=mem:1M\n[a]\n[b]\ncompletion=poll,interrupt\n",
            &["job b", "lists 2", "job a", "stonewall"],
        ),
        (
            "[global]\nfilename=mem:1M\nrw=write\nverify=crc32c\n[a]\n[b]\n",
            &["job a", "verify", "job b", "same blocks"],
        ),
        // The second job is looked at before the first one runs.
        ("[a]\nfilename=mem:1M\n[b]\nfilename=mem:1M\noffset=2m\n", &["job b", "offset=2097152"]),
    ] {
        std::fs::write(dir.path().join("j.fio"), text).unwrap();
        let ran = run(dir.path(), &["bench", "j.fio"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{text:?}: {}", ran.stderr);
        assert_eq!(ran.stderr.lines().count(), 1, "{text:?}: {}", ran.stderr);
        for word in words {
            assert!(ran.stderr.contains(word), "{text:?}: no {word:?} in {}", ran.stderr);
        }
    }
    assert_eq!(files(dir.path()), ["j.fio"]);
    let ran = run(dir.path(), &["bench", "none.fio"]);
    assert!(ran.code == Some(1) && ran.stderr.contains("none.fio"), "{ran:?}");
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let text = "[global]\nfilename=mem:1M\nbs=4x\n[a\nzonesize=1m\n[b]\niodpeth=4\n[c]\ncpumask=1\nioengine=net\n";
    std::fs::write(dir.path().join("j.fio"), text).unwrap();
    let ran = run(dir.path(), &["bench", "j.fio", "--iodepth", "0"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
    let words = [
        "j.fio:3: bs=4x",
        "j.fio:4: bad section",
        "j.fio:7: unknown key iodpeth; did you mean iodepth?",
        "j.fio:9: fio's key cpumask is not supported: ",
        "j.fio:10: ioengine=net: fio's engine net is not supported: ",
        "command line: --iodepth=0",
    ];
    assert_eq!(ran.stderr.lines().count(), words.len(), "{}", ran.stderr);
    for (line, word) in ran.stderr.lines().zip(words) {
        assert!(line.starts_with(&format!("meantime: {word}")), "{line}");
    }
}

#[test]
fn fios_command_line_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let args = "bench --filename=mem:1M --ioengine=libaio --rw=randread --bs=4k --time_based \
                --runtime 100ms --direct 1 \
                --group_reporting --gtod_reduce=1 --thread --completion poll --json o.json";
    let ran = run(dir.path(), &args.split_whitespace().collect::<Vec<_>>());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let notes: Vec<&str> = ran.stderr.lines().collect();
    assert_eq!(notes.len(), 1, "{}", ran.stderr);
    for key in ["ioengine (", "gtod_reduce (", "thread ("] {
        assert!(notes[0].contains(key), "no {key} in {}", notes[0]);
    }
    let report = crate::common::json(&dir.path().join("o.json"));
    let options = &report["jobs"][0]["job options"];
    assert_eq!(options["device"], "mem:1M");
    assert!(options["time_based"] == "1" && options["group_reporting"] == "1", "{options}");
    refused(&["bench", "--device", "mem:1M", "--zone_size", "1m"], 2, &["--zone_size"]);
    refused(
        &["bench", "--device", "mem:1M", "--cpumask", "1"],
        2,
        &["fio's key --cpumask is not supported"],
    );
    refused(
        &["bench", "--device", "mem:1M", "--ioengine", "rbd"],
        2,
        &["fio's engine rbd is not supported"],
    );
}

#[test]
fn nothing_is_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.img");
    std::fs::write(&image, vec![0x5a; 1 << 20]).unwrap();
    std::fs::write(dir.path().join("out.json"), "mine").unwrap();
    for args in [
        &["--device", "file:disk.img", "--rw", "write", "--size", "2m"][..],
        &["--device", "file:disk.img?create=2M", "--rw", "write"],
        &["--device", "file:disk.img,mem:1M?model=optan", "--rw", "write"],
        // Reading fills memory media, and no others.
        &["--device", "file:disk.img", "--rw", "randread", "--size", "1m", "--completion", "poll"],
    ] {
        let failed = run(dir.path(), &[&["bench", "--json", "out.json"], args].concat());
        let reads = args.contains(&"randread");
        assert_eq!(failed.code, Some(if reads { 0 } else { 1 }), "{args:?}: {}", failed.stderr);
        assert!(std::fs::read(&image).unwrap().iter().all(|byte| *byte == 0x5a), "{args:?}");
        if !reads {
            assert_eq!(std::fs::read_to_string(dir.path().join("out.json")).unwrap(), "mine");
        }
    }
    assert_eq!(files(dir.path()), ["disk.img", "out.json"]);
}

#[test]
fn one_file_belongs_to_one_process() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "bench",
        "--device",
        "file:disk.img?create=1M",
        "--completion",
        "poll",
        "--runtime",
        "60",
        "--time-based",
    ];
    let first = meantime(dir.path(), &args).spawn().unwrap();
    let start = Instant::now();
    let second = loop {
        let second = run(dir.path(), &["info", "--device", "file:disk.img"]);
        // Until the first has created and locked it, there is no file, or one that is not locked.
        if second.stderr.contains("in use") || start.elapsed() > Duration::from_secs(20) {
            break second;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let pid = rustix::process::Pid::from_child(&first);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let first: Ran = first.wait_with_output().unwrap().into();
    assert_eq!(second.code, Some(1), "{second:?}");
    assert!(second.stderr.contains("disk.img") && second.stderr.lines().count() == 1, "{second:?}");
    // The probing `info` may have been quicker to lock it; then it is the bench that was refused.
    assert!(matches!(first.code, Some(130 | 1)), "{first:?}");
}

#[test]
fn controllers_by_wrong_names() {
    for command in ["bind", "unbind"] {
        refused(&[command], 2, &["ADDRESS"]);
        refused(&[command, "/dev/sda"], 2, &["/dev/sda", "0000:01:00.0", "/dev/nvme0"]);
        refused(&[command, "0000:01:00"], 2, &["names no device"]);
        // Well-formed, and nowhere.
        refused(&[command, "fffe:ff:1f.7"], 1, &["fffe:ff:1f.7", "no such PCI device"]);
        refused(&[command, "nvme9999"], 1, &["nvme9999", "no NVMe controller"]);
    }
    refused(&["bind", "fffe:ff:1f.7", "--owner", "no such user"], 2, &["--owner no such user"]);
    refused(&["devices", "0000:01:00.0"], 2, &["0000:01:00.0"]);
}
