//! The keys that shape I/O: fio 3.33's interpretation of their values, and contradictions.

use std::time::Duration;

use meantime_ext4::{CommitOverlap, Overlap};

use super::super::*;
use super::parse;
use crate::competitor::Kind;

fn one(lines: &str) -> Job {
    parse(&format!("[a]\n{lines}\n"), "t.fio")
        .unwrap_or_else(|error| panic!("{lines}: {error}"))
        .jobs
        .remove(0)
}

fn error(lines: &str) -> String {
    parse(&format!("[a]\n{lines}\n"), "t.fio").unwrap_err().to_string()
}

fn invalid(lines: &str) -> String {
    one(lines).validate().unwrap_err().to_string()
}

fn warnings(lines: &str) -> Vec<String> {
    one(lines).validate().unwrap()
}

#[test]
fn shares_of_sizes() {
    let split = |text: &str| one(&format!("bssplit={text}")).sizes_of(0);
    assert_eq!(
        split("4k/10:64k/50:32k/40"),
        Sizes::Split(vec![(4096, 10), (65_536, 50), (32_768, 40)])
    );
    assert_eq!(split("4k/50:1k/:32k/"), Sizes::Split(vec![(4096, 50), (1024, 25), (32_768, 25)]));
    assert_eq!(split("1k:2k:4k"), Sizes::Split(vec![(1024, 34), (2048, 33), (4096, 33)]));
    let both = one("bssplit=2k/50:4k/50,4k/90:8k/10");
    assert_eq!(both.sizes_of(1), Sizes::Split(vec![(4096, 90), (8192, 10)]));
    assert_eq!(both.sizes_of(1).step_bytes(), 4096);
    let writes = one("bssplit=,8k/50:16k/50");
    assert_eq!(writes.sizes_of(0), Sizes::Fixed(4096));
    assert_eq!(writes.sizes_of(1), Sizes::Split(vec![(8192, 50), (16384, 50)]));
    assert_eq!(one("bssplit=4k/50:6k/50").sizes_of(0).step_bytes(), 2048);
    assert_eq!(
        error("bssplit=4k/50:8k/40"),
        "t.fio:2: bssplit=4k/50:8k/40: the shares are 90 % together, not 100 %"
    );
    assert!(error("bssplit=4k/50:8k/60").contains("110 % together"));
    assert!(error("bssplit=4k/x").contains("whole percentage"));
    assert!(error("bssplit=4k/100:").contains("not a number"));
    assert!(error(&format!("bssplit={}", vec!["4k"; 65].join(":"))).contains("more than 64 sizes"));
}

#[test]
fn durability() {
    let job = one("rw=write\nfsync=16\nfdatasync=4\nend_fsync=1\nsync=dsync");
    assert_eq!(job.syncing, Syncing { fsync: 16, fdatasync: 4, end_fsync: true, fua: true });
    for (value, fua) in [("none", false), ("0", false), ("1", true), ("sync", true)] {
        assert_eq!(one(&format!("sync={value}")).syncing.fua, fua);
    }
    assert!(error("sync=maybe").contains("none, sync or dsync"));
    assert!(error("fsync=x").contains("not a number"));
    assert_eq!(
        invalid("fsync=1"),
        "t.fio:2: job a: fsync is about writes, and rw=read writes nothing; leave it out, or use \
         rw=write"
    );
    for key in ["fdatasync=4", "sync=dsync", "end_fsync"] {
        assert!(invalid(&format!("rw=randread\n{key}")).starts_with("t.fio:3: job a: "), "{key}");
    }
    assert!(warnings("rw=write\nfsync=1").is_empty() && warnings("fsync=0").is_empty());
    let file = parse("[global]\nfsync=1\n[r]\nrw=read\n[w]\nrw=write\n", "t.fio").unwrap();
    assert!(file.jobs[0].validate().unwrap()[0].contains("fsync has no effect with rw=read"));
    assert!(file.jobs[1].validate().unwrap().is_empty());
}

#[test]
fn places() {
    let job = one("rw=randread\nnorandommap\nrandrepeat=0\nrandseed=7");
    assert!(job.random.norandommap && !job.random.randrepeat);
    assert_eq!(job.random.randseed, Some(7));
    assert!(error("random_generator=lfsr").contains("only random_generator=tausworthe"));
    assert!(error("rw=read:8k").contains("left to fio") && error("rw=randread:4").contains("rw="));
    assert!(warnings("norandommap")[0].contains("which is not random"));
    assert!(invalid("rw=randwrite\nverify=crc32c\nnorandommap").contains("writes each block once"));
    assert!(invalid("rw=write\nverify=crc32c\nbssplit=4k/50:8k/50").contains("blocks of one size"));
    assert!(invalid("verify=md5\nrw=trimwrite").starts_with("t.fio:"));
    assert!(one("verify=md5\nrw=write").validate().is_ok());
}

#[test]
fn pace() {
    let job = one("thinktime=100\nthinktime_spin=20us\nthinktime_blocks=8\nrate_iops=1k,500");
    assert_eq!(
        (job.pace.thinktime, job.pace.thinktime_spin),
        (Duration::from_micros(100), Duration::from_micros(20))
    );
    assert_eq!((job.pace.thinktime_blocks, job.pace.rate_iops), (8, [Some(1024), Some(500)]));
    assert_eq!(one("rate=1m").pace.rate_bytes, [Some(1 << 20); 2]);
    assert_eq!(one("rate=500k,").pace.rate_bytes, [Some(500 << 10), None]);
    assert_eq!(one("rate=,500k").pace.rate_bytes, [None, Some(500 << 10)]);
    assert_eq!(one("rate=0").pace.rate_bytes, [None, None]);
    assert!(
        invalid("rate=1m\nrate_iops=100")
            .starts_with("t.fio:3: job a: rate and rate_iops contradict")
    );
    assert!(invalid("thinktime=10\nthinktime_spin=20").contains("is longer"));
    assert!(warnings("thinktime_blocks=4")[0].contains("without thinktime="));
    assert!(one("rate_process=poisson").pace.poisson);
    assert!(warnings("rate_process=poisson")[0].contains("without rate="));
}

#[test]
fn batches() {
    let job = one("iodepth=16\niodepth_batch_submit=4\niodepth_batch_complete=2\n\
         iodepth_batch_complete_max=8");
    let want = Batch { submit: Some(4), complete_min: Some(2), complete_max: Some(8) };
    assert_eq!(job.batch, want);
    assert!(job.validate().unwrap().is_empty());
    let both = "iodepth=4\niodepth_batch_complete_min=3\niodepth_batch_complete_max=2";
    assert!(invalid(both).contains("is less than"));
    assert!(warnings("iodepth=4\niodepth_batch=8")[0].contains("beyond iodepth=4"));
}

#[test]
fn one_matter_is_said_once() {
    for (lines, words) in [
        ("bs=4k\nbssplit=4k/100", "bs and bssplit contradict"),
        ("bssplit=4k/100\nbs=4k", "contradict each other: both say how large blocks are"),
        ("hipri\ncompletion=interrupt", "hipri means completion=poll, and completion=interrupt"),
    ] {
        let error = invalid(lines);
        assert!(error.starts_with("t.fio:") && error.contains(words), "{error}");
    }
    assert!(one("hipri=1\ncompletion=poll").validate().is_ok());
    // A section replaces the keys of [global], and so does the command line.
    let file = parse(
        "[global]\nbs=8k,16k\nhipri\n[a]\nbssplit=4k/100\ncompletion=interrupt\n[b]\n",
        "t.fio",
    )
    .unwrap();
    let (mut a, b) = (file.jobs[0].clone(), &file.jobs[1]);
    assert!(a.validate().is_ok() && !a.hipri && b.hipri);
    assert_eq!((a.bs_read_bytes, b.bs_read_bytes), (4096, 8192));
    assert!(!a.is_set("bs"));
    a.set("bssplit", Some("512/100"), &Origin::CommandLine).unwrap();
    assert!(a.validate().is_ok());
    assert_eq!(a.sizes_of(0), Sizes::Split(vec![(512, 100)]));
    a.set("bs", Some("512"), &Origin::CommandLine).unwrap();
    assert!(
        a.validate().unwrap_err().to_string().starts_with("command line: job a: bs and bssplit")
    );
}

#[test]
fn logs() {
    let job = one("write_lat_log\nlog_offset=1\nlog_avg_msec=50");
    assert_eq!(job.logs, LogKeys { lat: Some(LogName::OfJob), avg_ms: 50, offset: true });
    assert_eq!(one("write_lat_log=x/y").logs.lat, Some(LogName::Named("x/y".to_owned())));
    assert!(job.validate().unwrap().is_empty());
    assert!(warnings("log_avg_msec=9")[0].contains("without write_lat_log="));
}

#[test]
fn amounts_and_groups() {
    let job = one("size=1m\nio_size=4m\nnumber_ios=100\nstonewall\ngroup_reporting\nnew_group=1");
    assert_eq!((job.io_size, job.number_ios), (Some(Extent::Bytes(4 << 20)), Some(100)));
    assert!(job.stonewall && job.group_reporting && job.new_group);
    assert!(one("wait_for_previous").stonewall && !one("stonewall=0").stonewall);
    assert_eq!(one("io_limit=50%").io_size, Some(Extent::Percent(50)));
    assert!(error("io_size=0").contains("more than 0"));
    assert!(error("number_ios=0").contains("out of range"));
}

#[test]
fn io_priorities_are_fio_s() {
    use meantime_hw::IoPriority::{BestEffort, Idle, None, RealTime};
    for (text, priority) in [
        ("prio=3", BestEffort(3)),
        ("prioclass=1\nprio=2", RealTime(2)),
        ("prioclass=1", RealTime(0)),
        ("prioclass=2\nprio=7", BestEffort(7)),
        ("prioclass=3", Idle),
        ("prioclass=0", None),
    ] {
        assert_eq!(one(text).io_priority(), Some(priority), "{text}");
    }
    assert_eq!(one("rw=read").io_priority(), Option::None);
    assert!(error("prio=8").contains("out of range"));
    assert!(error("prioclass=4").contains("out of range"));
}

#[test]
fn what_the_threads_compete_with_and_how() {
    use meantime_hw::SchedClass::{Fifo, Other, RoundRobin, Slice};
    let job = one("sched=other, rr:1,fifo:99,slice:0.1ms\npm_qos=none,0,1ms\nhog=3");
    assert_eq!(job.scheds, [Other, RoundRobin(1), Fifo(99), Slice(100_000)]);
    assert_eq!(job.pm_qos_us, [None, Some(0), Some(1_000)]);
    assert_eq!(job.rivals(), Some((Kind::Tsc, 3)));
    assert_eq!(one("pm_qos").pm_qos_us, [Some(0)]);
    assert_eq!(one("hog=0").rivals(), None);
    assert_eq!(one("competitor=8m").rivals(), Some((Kind::Walk { bytes: 8 << 20 }, 1)));
    assert!(error("sched=rt").contains("use other, rr:N"));
    assert!(error("sched=rr:0").contains("from 1 to 99"));
    assert!(error("sched=slice:50us").contains("0.1 to 100 ms"));
    assert!(error("sched=rr:1,rr:1").contains("rr:1 is listed twice"));
    assert!(error("sched=rr:1,").contains("no scheduling class"));
    assert!(error("sched").contains("needs a value"));
    assert!(error("pm_qos=-1").contains("negative"));
    assert!(error("pm_qos=2000s").contains("say none"));
    assert!(error("pm_qos=1ms,1000").contains("twice"));
    assert!(error("hog=65").contains("0 to 64"));
    assert!(invalid("hog=1\ncompetitor=tsc").contains("same CPU"));
    assert!(warnings("hog=1\ncompetitor=none").is_empty());
}

#[test]
fn how_far_a_job_extends_a_file() {
    let to = |keys: &str| one(keys).extends_to_bytes();
    assert_eq!(to("rw=write\nsize=1m\noffset=4k"), (1 << 20) + 4096);
    for none in ["rw=read\nsize=1m", "rw=rw\nsize=1m", "rw=write", "rw=write\nsize=50%"] {
        assert_eq!(to(none), 0, "{none}");
    }
}

#[test]
fn how_files_are_read() {
    let one = |keys: &str| one(keys).file;
    assert_eq!(one("rw=read"), Job::new("a").file);
    assert_eq!((one("direct=1").direct, one("buffered=1").direct), (Some(true), Some(false)));
    assert_eq!(one("direct=1\nbuffered=1").direct, Some(false));
    assert_eq!(one("cache=8m").cache_bytes, 8 << 20);
    assert_eq!(
        (one("overlap=all").overlap, one("overlap=none").overlap),
        (Overlap::ALL, Overlap::NONE)
    );
    let waits = CommitOverlap { caller_commits: true, data: true, prepare: false };
    assert_eq!(one("rw=write\ncommit_overlap=data,direct").commit_overlap, waits);
    assert_eq!(one("rw=write\ncommit_overlap=none").commit_overlap, CommitOverlap::NONE);
    assert!(one("rw=write\nfast_commit=1").fast_commit && one("deferrable=1").times_deferrable);
    let two = Overlap { pool: true, lazy_insert: true, ..Overlap::NONE };
    assert_eq!(one("overlap=pool, lazy-insert").overlap, two);
    assert_eq!(
        (one("fadvise_hint=0").hint, one("fadvise_hint=random").hint),
        (Hint::None, Hint::Random)
    );
    for wrong in [
        "overlap=pool,pool",
        "overlap=",
        "overlap=pools",
        "rw=write\ncommit_overlap=log",
        "cache=512k",
        "fadvise_hint=2",
        "direct=2",
    ] {
        error(wrong);
    }
}
