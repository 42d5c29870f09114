//! Traces that fio has recorded, replayed by fio and by us.

use crate::common::{json, run, succeed};
use crate::fio::{log, tool};

#[test]
fn a_trace_of_fios_is_replayed_as_by_fio() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let record = ["--name=r", "--filename=d.img", "--ioengine=psync", "--rw=randrw", "--size=1m"];
    let record = [&record[..], &["--bssplit=4k/50:8k/50", "--fsync=3", "--number_ios=40"]].concat();
    tool(dir, "fio", &[&record[..], &["--write_iolog=t.log"]].concat());

    let replay = ["--read_iolog=t.log", "--replay_redirect=d.img", "--replay_no_stall=1"];
    let logs = |name: &'static str| [name, "--log_offset=1"];
    let theirs = [&["--name=a", "--ioengine=psync"], &replay[..], &logs("--write_lat_log=fio")];
    let output = ["--output-format=json", "--output=fio.json"];
    tool(dir, "fio", &[&theirs.concat()[..], &output].concat());
    let ours =
        ["bench", "--name=a", "--device=file:d.img?inline=1", "--completion=poll", "--no-control"];
    let ours = [&ours[..], &replay, &logs("--write_lat_log=ours"), &["--json=ours.json"]].concat();
    let said = succeed(dir, &ours).stderr;
    assert!(said.contains("replay_redirect (a trace is replayed on the job's device)"), "{said}");

    // Direction, block size, offset, priority: all but when and how long.
    let ios = |who: &str| {
        let lines = log(&dir.join(format!("{who}_lat.1.log"))).into_iter();
        lines.map(|line| line[2..].to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(ios("ours").len(), 40);
    assert_eq!(ios("ours"), ios("fio"));
    let [theirs, ours] = ["fio.json", "ours.json"].map(|name| json(&dir.join(name)));
    for direction in ["read", "write"] {
        let bytes = [&theirs, &ours].map(|report| &report["jobs"][0][direction]["io_bytes"]);
        assert_eq!(bytes[0], bytes[1], "{direction}");
    }
}

#[test]
fn what_cannot_be_replayed_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |trace: &str, keys: &[&str], why: &str| {
        std::fs::write(dir.path().join("t.log"), trace).unwrap();
        let usual = ["bench", "--device=mem:1M?inline=1", "--read-iolog=t.log"];
        let ran = run(dir.path(), &[&usual[..], keys].concat());
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(why), "{}", ran.stderr);
    };
    let header = "fio version 2 iolog\n";
    refused("", &[], "t.log: line 1: expected");
    refused(&format!("{header}x trim 0 4096\n"), &[], "t.log: line 2: trims are not replayed");
    refused(&format!("{header}x read 0 4096\n"), &["--rate-iops=1"], "leave one out");
    let ran = run(dir.path(), &["bench", "--device=mem:1M?inline=1", "--read-iolog=none.log"]);
    assert!(ran.stderr.contains("none.log: No such file"), "{}", ran.stderr);

    std::fs::write(dir.path().join("t.log"), format!("{header}x read 1048576 4096\n")).unwrap();
    let ran = run(dir.path(), &["bench", "--device=mem:1M?inline=1", "--read-iolog=t.log"]);
    assert!(ran.stderr.contains("t.log: line 2: 4096 bytes at 1048576"), "{}", ran.stderr);
}
