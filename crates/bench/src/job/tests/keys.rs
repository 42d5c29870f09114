//! The keys that shape I/O: fio 3.33's interpretation of their values, and contradictions.

use std::time::Duration;

use meantime_ext4::{CommitOverlap, Overlap};

use super::super::*;
use super::parse;

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
fn ranges_of_sizes() {
    let sizes = one("bsrange=1k-4k,2k-8k").sizes;
    assert_eq!(sizes, [Some(Sizes::Range(1024, 4096)), Some(Sizes::Range(2048, 8192))]);
    assert_eq!(one("blocksize_range=4k-16k").sizes_of(1), Sizes::Range(4096, 16_384));
    assert_eq!(
        (one("bsrange=4k-16k").bs_max_bytes(), one("bsrange=4k-16k").bs_min_bytes()),
        (16_384, 4096)
    );
    assert!(error("bsrange=4k").contains("expected a range"));
    assert!(error("bsrange=8k-4k").contains("backwards"));
    assert!(error("bsrange=4k-6k").contains("not a multiple of 4096"));
    assert!(error("bsrange=1000-4000").contains("not a multiple of 512"));
    assert!(error("bsrange=4k-2g").contains("more than"));
    assert!(error("bsrange=1k-2k,1k-2k,1k-2k,1k-2k").contains("read[,write[,trim]]"));
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
fn distributions() {
    let of = |text: &str| one(&format!("random_distribution={text}")).random.distribution;
    assert_eq!(of("random"), Distribution::Uniform);
    assert_eq!(of("zipf"), Distribution::Zipf { theta_ppm: 1_100_000, center_ppm: None });
    assert_eq!(
        of("zipf:1.2:0.25"),
        Distribution::Zipf { theta_ppm: 1_200_000, center_ppm: Some(250_000) }
    );
    assert_eq!(of("pareto:0.2"), Distribution::Pareto { h_ppm: 200_000, center_ppm: None });
    assert_eq!(
        of("normal:20"),
        Distribution::Normal { deviation_ppm: 20_000_000, center_ppm: None }
    );
    let Distribution::Zoned([read, write]) = of("zoned:60/10:30/20:8/30:2/40") else { panic!() };
    assert_eq!((read.len(), read[0], &read), (4, Zone { access_percent: 60, length: 10 }, &write));
    // fio's own example, and two zones that share the rest.
    let lengths = |text: &str| match of(text) {
        Distribution::Zoned([read, _]) => read.iter().map(|zone| zone.length).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(lengths("zoned:50/5:30/15:20/"), [5, 15, 80]);
    assert_eq!(lengths("zoned:50/:30/15:20/"), [42, 15, 43]);
    assert_eq!(lengths("zoned:50/:30/15:20"), [42, 15, 43]);
    let Distribution::ZonedAbs([read, write]) = of("zoned_abs:60/1m:40/2m,100/4m") else {
        panic!()
    };
    assert_eq!((read[1].length, write[0].length), (2 << 20, 4 << 20));
    for (text, why) in [
        ("zipf:1.0", "not 1.0"),
        ("zipf:1", "not 1.0"),
        ("zipf:0", "more than 0"),
        ("zipf:x", "not a number"),
        ("zipf:1.2:2", "from 0 to 1"),
        ("pareto:1.5", "between 0 and 1"),
        ("normal:100", "below 100"),
        ("zoned", "60/10"),
        ("zoned:50/50:50/50:0/", "nothing is left"),
        ("zoned:60/10:30/20:8/30:1/40", "99 % together"),
        ("zoned:50/60:50/60", "longer than 100 %"),
        ("zoned:50/0:50/60", "must not be empty"),
        ("zoned_abs:100/1000", "not a multiple of 512"),
        ("random:1", "expected random"),
        ("poisson", "expected random"),
    ] {
        let error = error(&format!("random_distribution={text}"));
        assert!(
            error.starts_with("t.fio:2: random_distribution=") && error.contains(why),
            "{error}"
        );
    }
    let job = one("rw=randread\nnorandommap\nrandom_generator=lfsr\nrandrepeat=0\nrandseed=7");
    assert!(job.random.norandommap && !job.random.randrepeat);
    assert_eq!((job.random.generator, job.random.randseed), (Generator::Lfsr, Some(7)));
    assert!(error("random_generator=mersenne").contains("tausworthe"));
    assert!(warnings("random_distribution=zipf:1.2")[0].contains("which is not random"));
    assert!(
        invalid("rw=randwrite\nverify=crc32c\nrandom_distribution=zipf:1.2").starts_with("t.fio:4")
    );
    assert!(invalid("rw=randwrite\nverify=crc32c\nnorandommap").contains("writes each block once"));
    assert!(invalid("rw=write\nverify=crc32c\nbssplit=4k/50:8k/50").contains("blocks of one size"));
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
}

#[test]
fn latency_targets() {
    let job = one(
        "iodepth=32\nlatency_target=50\nlatency_window=5s\nlatency_percentile=99.9\nlatency_run=1",
    );
    let want = LatencyTarget {
        target: Some(Duration::from_micros(50)),
        window: Duration::from_secs(5),
        percentile_ppm: 99_900_000,
        run: true,
    };
    assert_eq!(job.latency_target, want);
    assert!(
        invalid("latency_target=50")
            .starts_with("t.fio:2: job a: latency_target finds the deepest queue")
    );
    assert!(
        invalid("iodepth=4\nrate_iops=9\nlatency_target=50")
            .starts_with("t.fio:4: job a: rate_iops and latency_target")
    );
    assert!(invalid("iodepth=4\nthinktime=9\nlatency_target=50").contains("pauses"));
    assert!(
        invalid("iodepth=4\nrw=write\nverify=crc32c\nlatency_target=50").contains("search ends")
    );
    assert!(error("latency_percentile=0").contains("above 0"));
    assert!(error("latency_percentile=100.1").contains("up to 100"));
    assert!(warnings("latency_window=1s")[0].contains("without latency_target="));
}

#[test]
fn batches() {
    let job = one("iodepth=16\niodepth_batch_submit=4\niodepth_batch_complete=2\n\
         iodepth_batch_complete_max=8\niodepth_low=4");
    let want =
        Batch { submit: Some(4), complete_min: Some(2), complete_max: Some(8), low: Some(4) };
    assert_eq!(job.batch, want);
    assert!(job.validate().unwrap().is_empty());
    assert!(
        invalid("iodepth=4\niodepth_low=8")
            .starts_with("t.fio:3: job a: iodepth_low=8 is more than iodepth=4")
    );
    let both = "iodepth=4\niodepth_batch_complete_min=3\niodepth_batch_complete_max=2";
    assert!(invalid(both).contains("is less than"));
    assert!(warnings("iodepth=4\niodepth_batch=8")[0].contains("beyond iodepth=4"));
}

#[test]
fn one_matter_is_said_once() {
    for (lines, words) in [
        ("bs=4k\nbsrange=4k-8k", "bs and bsrange contradict"),
        ("bs=4k\nbssplit=4k/100", "bs and bssplit contradict"),
        (
            "bsrange=4k-8k\nbssplit=4k/100\nbs=4k",
            "contradict each other: both say how large blocks are",
        ),
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
    a.set("bsrange", Some("512-1k"), &Origin::CommandLine).unwrap();
    assert!(a.validate().is_ok());
    assert_eq!(a.sizes_of(0), Sizes::Range(512, 1024));
    a.set("bs", Some("512"), &Origin::CommandLine).unwrap();
    assert!(
        a.validate().unwrap_err().to_string().starts_with("command line: job a: bs and bsrange")
    );
}

#[test]
fn logs() {
    let job = one("write_lat_log\nwrite_bw_log=x/y\nwrite_hist_log=h\nlog_hist_msec=100\n\
         log_hist_coarseness=2\nlog_offset=1\nlog_avg_msec=50\nper_job_logs=0");
    assert_eq!(job.logs.lat, Some(LogName::OfJob));
    assert_eq!(job.logs.bw, Some(LogName::Named("x/y".to_owned())));
    assert_eq!((job.logs.hist_ms, job.logs.avg_ms, job.logs.hist_coarseness), (100, 50, 2));
    assert!(job.logs.offset && !job.logs.per_job);
    assert!(job.validate().unwrap().is_empty());
    assert_eq!(
        invalid("write_hist_log=h"),
        "t.fio:2: job a: write_hist_log needs log_hist_msec=; it says how much time a histogram \
         covers"
    );
    assert!(error("log_hist_coarseness=7").contains("0 to 6"));
    assert!(warnings("log_avg_msec=9")[0].contains("without write_lat_log="));
    assert!(warnings("log_hist_msec=9")[0].contains("without write_hist_log="));
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
    assert_eq!(to("rw=randwrite\nsize=1m\nnumjobs=3\noffset_increment=2m"), 5 << 20);
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
    let waits = CommitOverlap { direct: true, data: true, prepare: false };
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

#[test]
fn what_else_says_where_ios_go() {
    let places = |lines: &str| one(lines).places;
    assert_eq!(places("rw=read"), Job::new("a").places);
    assert_eq!(places("rw=read:-8k").skip_bytes, -8192);
    assert_eq!(places("rw=write:112k").skip_bytes, 114_688);
    assert_eq!((one("rw=randread:8").rw, places("rw=randread:8").run), (Rw::RandRead, 8));
    assert!(places("rw=randread:8\nrw_sequencer=identical").identical);
    assert_eq!(places("ba=4k").align_bytes, [Some(4096); 2]);
    assert_eq!(places("blockalign=4k,8k").align_bytes, [Some(4096), Some(8192)]);
    assert_eq!(places("offset_increment=5%").offset_increment, Extent::Percent(5));
    assert_eq!(one("rw=randread\nba=4k").align_bytes(0), None, "as without it");
    assert_eq!(one("rw=randread\nbssplit=512/50:4k/50\nba=4k").align_bytes(0), Some(4096));
    assert!(error("rw=read:100").contains("not a multiple of 512"));
    assert!(error("rw=randread:0").contains("out of range"));
    assert!(error("rw=randread:-8").contains("negative"));
    assert!(error("rw=read:").contains("not a number"));
    assert!(error("ba=0").contains("must not be empty"));
    assert!(error("rw_sequencer=random").contains("sequential or identical"));
    assert!(warnings("rw=read\nba=4k\noffset_increment=1m").len() == 2);
    for keys in ["rw=randwrite:8", "rw=write:512", "rw=randwrite\nba=8k", "rw=trimwrite"] {
        assert!(invalid(&format!("verify=md5\n{keys}")).starts_with("t.fio:"), "{keys}");
    }
    assert!(one("verify=md5\nrw=write:8k").validate().is_ok());
    let job = one("filesize=8m\nsize=1m");
    assert_eq!(
        (job.range(), job.amount()),
        (Some(Extent::Bytes(8 << 20)), Some(Extent::Bytes(1 << 20)))
    );
    assert_eq!(
        (one("size=1m").range(), one("size=1m").amount()),
        (Some(Extent::Bytes(1 << 20)), None)
    );
}

#[test]
fn what_else_says_when_jobs_begin_and_end() {
    assert_eq!(one("exitall").exitall, Some(Exit::Group));
    assert_eq!(one("exit_what=all\nexitall=1").exitall, Some(Exit::All));
    assert_eq!(one("exitall\nexit_what=stonewall").exitall, Some(Exit::Stonewall));
    assert_eq!(one("exitall\nexitall=0").exitall, None);
    assert_eq!(one("startdelay=1500ms").startdelay, Duration::from_millis(1500));
    assert_eq!(one("wait_for=b").wait_for.as_deref(), Some("b"));
    assert!(one("rate_process=poisson").pace.poisson);
    assert!(warnings("exit_what=all\nrate_process=poisson").len() == 2);
    let steady = |text: &str| one(&format!("ss={text}")).steady.unwrap();
    let ten = Steady { bandwidth: false, slope: false, limit_ppm: 10_000_000, percent: true };
    assert_eq!(steady("iops:10%"), ten);
    assert_eq!(
        steady("bw_slope:0.5%"),
        Steady { bandwidth: true, slope: true, limit_ppm: 500_000, ..ten }
    );
    assert_eq!(
        steady("bw:1m"),
        Steady { bandwidth: true, limit_ppm: (1 << 20) * 1_000_000, percent: false, ..ten }
    );
    assert_eq!(
        steady("iops_slope:2.5"),
        Steady { slope: true, limit_ppm: 2_500_000, percent: false, ..ten }
    );
    for text in ["iops", "iops:", "iops:x", "lat:10%", "iops:0%"] {
        assert!(
            error(&format!("steadystate={text}")).starts_with("t.fio:2: steadystate="),
            "{text}"
        );
    }
    assert!(invalid("ss=iops:10%\nruntime=1\ntime_based").contains("steadystate_duration="));
    assert!(invalid("ss=iops:10%\nss_dur=1").contains("runtime="));
    assert!(
        one("ss=iops:10%\nss_dur=1\nss_ramp=1\nruntime=9\ntime_based")
            .validate()
            .unwrap()
            .is_empty()
    );
}
