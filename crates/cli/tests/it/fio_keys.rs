//! Keys of fio's whose effect is seen from outside: what is on the medium.

use std::path::Path;
use std::process::Command;

use crate::common::{json, meantime, succeed};

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
