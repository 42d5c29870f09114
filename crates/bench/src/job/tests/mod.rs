//! Examples for every key and every error, and arbitrary text.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

mod keys;
mod table;

/// Returns a file without errors, or the errors.
pub(super) fn parse(text: &str, source: &str) -> Result<JobFile, JobErrors> {
    let file = super::parse(text, source);
    if file.errors.is_empty() { Ok(file) } else { Err(JobErrors(file.errors)) }
}

fn one(line: &str) -> Job {
    let mut file = parse(&format!("[a]\n{line}\n"), "t.fio").unwrap();
    assert_eq!(file.jobs.len(), 1);
    file.jobs.remove(0)
}

fn error(line: &str) -> String {
    parse(&format!("[a]\n{line}\n"), "t.fio").unwrap_err().to_string()
}

fn invalid(lines: &str) -> String {
    one(lines).validate().unwrap_err().to_string()
}

#[test]
fn defaults_are_fios() {
    let job = one("");
    assert_eq!(job, Job::new("a"));
    assert_eq!(
        (job.rw, job.bs_read_bytes, job.iodepth, job.numjobs, job.loops),
        (Rw::Read, 4096, 1, 1, 1)
    );
    assert!(job.fio_options().is_empty());
    assert_eq!(job.validate().unwrap(), Vec::<String>::new());
}

#[test]
fn every_key() {
    for (text, rw) in [
        ("read", Rw::Read),
        ("write", Rw::Write),
        ("randread", Rw::RandRead),
        ("randwrite", Rw::RandWrite),
        ("rw", Rw::Rw),
        ("readwrite", Rw::Rw),
        ("randrw", Rw::RandRw),
        ("trim", Rw::Trim),
        ("randtrim", Rw::RandTrim),
        ("trimwrite", Rw::TrimWrite),
        ("randtrimwrite", Rw::RandTrimWrite),
    ] {
        assert_eq!(one(&format!("rw={text}")).rw, rw);
        assert_eq!(one(&format!("readwrite = {text}")).rw, rw);
    }
    assert_eq!(one("name=other").name, "other");
    assert_eq!(one("iodepth=32").iodepth, 32);
    assert_eq!(one("iodepth=0x3ff").iodepth, 1023);
    assert_eq!(one("numjobs=4").numjobs, 4);
    assert_eq!(one("size=1g").size, Some(Extent::Bytes(1 << 30)));
    assert_eq!(one("size=20%").size, Some(Extent::Percent(20)));
    assert_eq!(one("offset=0x200").offset, Extent::Bytes(512));
    assert_eq!(one("offset=5%").offset, Extent::Percent(5));
    assert_eq!(one("time_based").time_based, Some(true));
    assert_eq!(one("time_based=1").time_based, Some(true));
    assert_eq!(one("time_based=0").time_based, Some(false));
    assert_eq!(one("ramp_time=2").ramp_time, Duration::from_secs(2));
    assert_eq!(one("rwmixread=70").rwmixread_percent, 70);
    assert_eq!(one("rwmixwrite=70").rwmixread_percent, 30);
    assert_eq!(one("rwmixread=70\nrwmixwrite=10").rwmixread_percent, 90);
    assert_eq!(one("verify=crc32c").verify, Verify::Crc32c);
    assert_eq!(one("verify=none").verify, Verify::None);
    let methods =
        ["crc64", "md5", "sha256", "meta"].map(|name| one(&format!("verify={name}")).verify);
    assert_eq!(methods, [Verify::Crc64, Verify::Md5, Verify::Sha256, Verify::Meta]);
    assert_eq!(one("cpus_allowed=0-1,3").cpus_allowed, [0, 1, 3]);
    assert_eq!(one("cpus_allowed = 3, 1-2 ,2").cpus_allowed, [1, 2, 3]);
    assert_eq!(
        one("filename=mem:1G?model=optane").filename.as_deref(),
        Some("mem:1G?model=optane")
    );
    assert_eq!(one("filename=file:a#b;c").filename.as_deref(), Some("file:a#b;c"));
    assert_eq!(one("loops=3").loops, 3);
    assert_eq!(
        one("completion=interrupt,hybrid=2us").completion.as_deref(),
        Some("interrupt,hybrid=2us")
    );
}

#[test]
fn times() {
    for (text, want) in [
        ("10", Duration::from_secs(10)),
        ("10s", Duration::from_secs(10)),
        ("10SEC", Duration::from_secs(10)),
        ("7us", Duration::from_micros(7)),
        ("7usec", Duration::from_micros(7)),
        ("500ms", Duration::from_millis(500)),
        ("2m", Duration::from_secs(120)),
        ("1h", Duration::from_secs(3600)),
        ("1d", Duration::from_secs(86_400)),
    ] {
        assert_eq!(one(&format!("runtime={text}")).runtime, Some(want), "{text}");
    }
    assert_eq!(one("runtime=0").runtime, None, "fio: no limit");
    assert_eq!(
        error("runtime=1.5"),
        "t.fio:2: runtime=1.5: not a whole number; use a smaller unit, as 1500ms for 1.5 s"
    );
    assert!(error("runtime=1w").contains("unknown unit \"w\""));
    assert!(error("runtime=99999999d").contains("longer than ten years"));
    assert!(error("runtime=-1").contains("must not be negative"));
}

/// Compares with fio 3.33 itself (`fio --ioengine=null --size=…`).
#[test]
fn sizes() {
    for (text, want) in [
        ("512", 512),
        ("512b", 512),
        ("4k", 4096),
        ("4K", 4096),
        ("4kb", 4096),
        ("4ki", 4096),
        ("64kib", 64_000),
        ("1m", 1 << 20),
        ("1g", 1 << 30),
        ("1gib", 1_000_000_000),
        ("1t", 1 << 40),
        ("1p", 1 << 50),
        ("0x1000", 4096),
    ] {
        assert_eq!(one(&format!("size={text}")).size, Some(Extent::Bytes(want)), "{text}");
    }
    let warnings = |line: &str| parse(&format!("[a]\n{line}"), "t.fio").unwrap().warnings;
    assert!(warnings("size=64kib")[0].starts_with("t.fio:2: size=64kib: as in fio (kb_base=1024)"));
    assert!(warnings("size=64ki")[0].contains("powers of 1024"));
    assert!(warnings("size=64k").is_empty());
    assert!(error("size=4x").contains("unknown suffix \"x\""));
    assert!(error("size=k").contains("not a number"));
    assert!(error("size=0").contains("must be more than 0"));
    assert!(error("size=0%").contains("must be more than 0"));
    assert!(error("size=101%").contains("0 to 100"));
    assert!(error("size=1k%").contains("0 to 100"));
    assert!(error("size=1000").contains("not a multiple of 512"));
    assert!(error("offset=100").contains("not a multiple of 512"));
    assert!(error("offset=100%").contains("nothing is left"));
    assert!(error("size=99999999999999999999").contains("too large"));
    assert!(error("size=16384p").contains("too large"));
}

#[test]
fn block_sizes() {
    let both = |line: &str| (one(line).bs_read_bytes, one(line).bs_write_bytes);
    assert_eq!(both("bs=8k"), (8192, 8192));
    assert_eq!(both("blocksize=8k"), (8192, 8192));
    assert_eq!(both("bs=8k,16k"), (8192, 16_384));
    assert_eq!(both("bs=8k,"), (8192, 4096));
    assert_eq!(both("bs=,8k"), (4096, 8192));
    assert_eq!(both("bs=8k, 16k, 32k"), (8192, 16_384));
    assert_eq!(error("bs=0"), "t.fio:2: bs=0: a block must not be empty");
    assert_eq!(error("bs=1000"), "t.fio:2: bs=1000: 1000 bytes is not a multiple of 512");
    assert!(error("bs=4kib").contains("write k for 1024"));
    assert!(error("bs=1.5k").contains("not a whole number"));
    assert!(error("rate_iops=1.5k").contains("not a whole number"));
    assert!(error("bs=99999999999999g").contains("too large for 64 bits"));
    assert!(error("bs=2g").contains("more than"));
    assert!(error("bs=,").contains("expected read"));
    assert!(error("bs=4k,4k,4k,4k").contains("expected read"));
}

#[test]
fn bad_values() {
    assert_eq!(error("iodepth=0"), "t.fio:2: iodepth=0: out of range, expected 1 to 1023");
    assert!(error("iodepth=1k").contains("out of range"));
    assert!(error("numjobs=0").contains("out of range"));
    assert!(error("loops=0").contains("out of range"));
    assert!(error("rwmixread=101").contains("out of range"));
    assert!(error("rw=trin").contains("expected read, write"));
    assert!(error("verify=md6").contains("expected crc32c, crc64, md5"));
    assert!(error("verify=sha512").contains("fio's method is not supported"));
    assert!(error("time_based=yes").contains("expected 1 or 0"));
    assert!(error("cpus_allowed=3-1").contains("backwards"));
    assert!(error("cpus_allowed=1,,2").contains("is not a CPU number"));
    assert!(error("cpus_allowed=+1").contains("is not a CPU number"));
    assert!(error("cpus_allowed=0-4294967295").contains("is not a CPU number"));
    assert!(error("completion=poll,,interrupt").contains("a policy in the list is empty"));
    assert!(
        error("filename=a\u{1b}b").contains("filename=a\\u{1b}b: contains a control character")
    );
    assert_eq!(
        error("bs"),
        "t.fio:2: bs needs a value: a size such as 4k, or read and write sizes such as 4k,8k"
    );
    assert!(error("bs=").contains("needs a value"));
    assert!(error("time_based=").contains("needs a value"));
    assert!(error("direct").contains("needs a value"));
    assert!(error("=4k").contains("has no key"));
}

#[test]
fn unknown_and_harmless_keys() {
    assert_eq!(error("iodpeth=4"), "t.fio:2: unknown key iodpeth; did you mean iodepth?");
    assert_eq!(error("frobnicate=4"), "t.fio:2: unknown key frobnicate");
    assert!(error("sqthread_poll=1").contains("is not supported: say completion=poll"));
    assert!(error("include=b.fio").contains("put the sections into one file"));
    assert_eq!(error("cpumask=1").split(": ").nth(1), Some("fio's key cpumask is not supported"));
    assert!(error("bs_unaligned").contains("whole blocks only"));
    let text = "[a]\nioengine=libaio\nthread\ninvalidate=1\ngtod_reduce=1\ndisable_lat=1\n\
                kb_base=1024\n[b]\nthread=1\n";
    let file = parse(text, "t.fio").unwrap();
    assert_eq!(file.warnings, Vec::<String>::new());
    assert_eq!(file.ignored.len(), 7);
    assert_eq!(
        Ignored::line(&file.ignored),
        "fio's keys without effect here: ioengine (the device's URI says how I/O is done); thread \
         (jobs are threads); invalidate (no files are made, opened anew or removed); gtod_reduce, \
         disable_lat (latencies are always measured); kb_base (it is fio's default)"
    );
    assert!(file.jobs[0].fio_options().is_empty());
    assert!(error("kb_base=1000").contains("only kb_base=1024 is"));
    assert!(error("ioengine").contains("needs a value"));
    assert!(
        error("ioengine=cpuio").contains("fio's engine cpuio is not supported: it does no I/O")
    );
    assert!(error("ioengine=warp").contains("no engine of fio's"));
}

#[test]
fn all_errors_are_said_at_once() {
    let text = "iodepth=1\n[global]\nbs=4x\niodpeth=4\n[a\nbs=1\n[b]\n=4k\ncpumask=1\nnumjobs=2\n\
                hostname=h\n";
    let file = super::parse(text, "t.fio");
    let said: Vec<String> = file.errors.iter().map(JobError::to_string).collect();
    let lines = [1, 3, 4, 5, 8, 9, 11];
    assert_eq!(said.len(), lines.len(), "{said:?}");
    for (said, line) in said.iter().zip(lines) {
        assert!(said.starts_with(&format!("t.fio:{line}: ")), "{said}");
    }
    assert!(file.jobs[0].is_faulty && file.jobs[0].numjobs == 2);
    // The contradictions of a job are errors, too.
    let job = one("time_based\nsize=1k\nverify=pattern");
    let said = job.validate().unwrap_err().to_string();
    let lines: Vec<&str> = said.lines().map(|line| &line[..8]).collect();
    assert_eq!(lines, ["t.fio:2:", "t.fio:4:", "t.fio:3:"], "{said}");
}

#[test]
fn sections() {
    let text = "\u{feff}# comment\r\n; another\n\n[global]\nrw = randread ; all\nbs=4k\n[a]\n \
                iodepth = 2\n[b c]\nbs=512\n[global]\nbs=8k\nruntime=1 # s\n[a]\n[a]\nrw=write\n";
    let file = parse(text, "t.fio").unwrap();
    let got: Vec<_> = file
        .jobs
        .iter()
        .map(|job| (job.name.as_str(), job.rw, job.bs_read_bytes, job.iodepth))
        .collect();
    let want = [
        ("a", Rw::RandRead, 4096, 2),
        ("b c", Rw::RandRead, 512, 1),
        ("a", Rw::RandRead, 8192, 1),
        ("a", Rw::Write, 8192, 1),
    ];
    assert_eq!(got, want);
    assert_eq!(file.jobs[0].runtime, None, "a later [global] is for what follows it");
    let options = file.jobs[3].fio_options();
    let want = [("bs", "8k"), ("runtime", "1"), ("rw", "write")]
        .map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(options, want);
    assert!(file.warnings.is_empty());

    // A blank after the sign is no part of the value.
    let spaced = parse("[a]\nbs = 8k\nsize = 64k\nruntime = 500ms\n", "t.fio").unwrap();
    assert_eq!(spaced.jobs[0].bs_read_bytes, 8192);
    assert_eq!(spaced.jobs[0].runtime, Some(Duration::from_millis(500)));

    let twice = parse("[a]\nbs=4k\nbs=8k\n", "t.fio").unwrap();
    assert_eq!(twice.jobs[0].bs_read_bytes, 8192);
    assert_eq!(twice.warnings, ["t.fio:3: bs again in this section; the last one counts"]);
    assert_eq!(parse("[global]\nname=x\n[a]\n", "t").unwrap().jobs[0].name, "a");
}

#[test]
fn bad_files() {
    let error = |text: &str| parse(text, "t.fio").unwrap_err().to_string();
    assert_eq!(error(""), "t.fio:1: the job file is empty; it needs at least one [job] section");
    assert_eq!(
        error("\n# only\n  ; comments\n"),
        "t.fio:3: the job file is empty; it needs at least one [job] section"
    );
    assert!(error("[global]\nbs=4k\n").starts_with("t.fio:2: no job: "));
    assert!(error("bs=4k\n[a]\n").starts_with("t.fio:1: bs stands outside a section"));
    assert_eq!(error("[a"), "t.fio:1: bad section header \"[a\": expected [name]");
    assert!(error("[]").contains("bad section header"));
    assert!(error("[a] b").contains("bad section header"));
    assert!(error("[a\u{7}]").contains("bad section header"));
    assert!(error(&"[a]\n".repeat(JOBS_MAX + 1)).contains("1025: more than 1024 jobs"));
}

#[test]
fn contradictions() {
    let both = "t.fio:2: job a: time_based needs runtime=; it says how long to go on";
    assert_eq!(invalid("time_based"), both);
    assert_eq!(invalid("time_based\nruntime=0"), both);
    assert!(one("time_based\nruntime=1").validate().is_ok());
    let error = invalid("verify=crc32c\nrw=randtrim");
    assert!(error.starts_with("t.fio:2: job a: verify with rw=randtrim"), "{error}");
    assert!(error.contains("leave it out"));
    // A job that only reads checks the writes of an earlier job.
    for rw in ["read", "randread", "randrw", "randrw\nrwmixread=100"] {
        assert!(one(&format!("verify=crc32c\nrw={rw}")).validate().unwrap().len() < 2, "{rw}");
    }
    assert!(invalid("verify=crc32c\nrw=randrw\nbs=4k,8k").contains("use one bs"));
    assert!(invalid("size=4k\nbs=8k").contains("smaller than one block"));
    assert!(invalid("size=60%\noffset=50%").contains("past the end"));
    assert!(invalid("size=16383p\noffset=16383p").contains("does not fit"));
    assert_eq!(one("size=9k\nbs=4k").validate().unwrap().len(), 1);
    assert_eq!(
        one("rwmixread=70").validate().unwrap(),
        ["t.fio:2: job a: rwmixread has no effect with rw=read; only rw and randrw mix"]
    );
    assert!(one("rwmixread=70\nrw=rw").validate().unwrap().is_empty());
}

#[test]
fn command_line() {
    let mut job = one("bs=4k\ntime_based");
    assert_eq!(job.set("bs", Some("512"), &Origin::CommandLine), Ok(None));
    assert_eq!(job.set("ramp-time", Some("1"), &Origin::CommandLine), Ok(None));
    assert_eq!((job.bs_read_bytes, job.ramp_time), (512, Duration::from_secs(1)));
    let error = job.set("iodepth", Some("0"), &Origin::CommandLine).unwrap_err();
    assert_eq!(error.to_string(), "command line: --iodepth=0: out of range, expected 1 to 1023");
    let error = job.set("io-depth", Some("1"), &Origin::CommandLine).unwrap_err();
    assert_eq!(error.to_string(), "command line: unknown key --io-depth; did you mean --iodepth?");
    assert_eq!(job.fio_options().len(), 3);
    let note = job.set("thread", None, &Origin::CommandLine).unwrap().unwrap();
    assert_eq!(note.to_string(), "fio's keys without effect here: thread (jobs are threads)");
}

#[test]
fn extents() {
    assert_eq!(Extent::Percent(20).resolve_bytes(10_000, 512), 1536);
    assert_eq!(Extent::Percent(100).resolve_bytes(u64::MAX, 1), u64::MAX);
    assert_eq!(Extent::Bytes(7).resolve_bytes(1, 0), 7);
}

/// Text that is almost a job file: it gets further into the parser than arbitrary text.
fn nearly() -> impl Strategy<Value = String> {
    let keys = prop::sample::select(vec![
        "rw",
        "bs",
        "iodepth",
        "numjobs",
        "size",
        "offset",
        "runtime",
        "time_based",
        "ramp_time",
        "rwmixread",
        "rwmixwrite",
        "verify",
        "cpus_allowed",
        "filename",
        "loops",
        "completion",
        "direct",
        "kb_base",
        "hipri",
        "bssplit",
        "rate_iops",
        "write_lat_log",
        "fsync",
        "blokc",
    ]);
    let values = prop_oneof![
        "[0-9]{1,22}[kKmMgGtTpPiIbB%sudh.,-]{0,4}",
        "([0-9]{1,3}k?[/:,.-]){1,5}[0-9]{0,2}",
        "[a-z0-9,%-]{0,12}",
        "\\PC{0,12}",
        ".{0,8}"
    ];
    let line = prop_oneof![
        6 => (keys, values).prop_map(|(key, value)| format!("{key}={value}")),
        2 => "\\[[a-z]{0,3}\\]?",
        1 => Just("[global]".to_owned()),
        1 => ".{0,20}",
    ];
    prop::collection::vec(line, 0..12).prop_map(|lines| format!("[a]\n{}", lines.join("\n")))
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(4000)
    })]

    #[test]
    fn any_text_is_a_file_or_an_error(
        text in prop_oneof![any::<String>(), "[ -~\n]{0,200}", nearly()]
    ) {
        match parse(&text, "any") {
            Ok(file) => {
                prop_assert!(!file.jobs.is_empty());
                for job in &file.jobs {
                    let _ = job.validate();
                    prop_assert!(job.bs_read_bytes >= SECTOR_BYTES);
                    prop_assert!(job.bs_write_bytes >= SECTOR_BYTES);
                    prop_assert!((1..=IODEPTH_MAX).contains(&job.iodepth));
                    prop_assert!(job.rwmixread_percent <= 100);
                    // The options that a job lists set the same job again.
                    let mut again = Job::new(&job.name);
                    for (key, value) in job.fio_options() {
                        prop_assert!(again.set(&key, Some(&value), &Origin::CommandLine).is_ok());
                    }
                }
            }
            Err(JobErrors(errors)) => {
                for text in errors.iter().map(JobError::to_string) {
                    prop_assert!(text.starts_with("any:"), "{}", text);
                    prop_assert!(!text.chars().any(char::is_control), "{:?}", text);
                }
            }
        }
    }
}
