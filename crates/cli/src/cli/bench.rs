//! Options of `meantime bench`.

use std::path::PathBuf;

use clap::Args;

use super::{HtmlPath, JsonPath, texts};

/// What `meantime bench` is to do.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// A fio job file; without one, the job options below say what to do
    #[arg(value_name = "JOB.fio", long_help = texts::JOB_FILE)]
    pub job_file: Option<PathBuf>,

    /// Devices to measure, e.g. mem:1G?model=optane; several are compared
    #[arg(long, value_name = "URI[,URI…]", value_delimiter = ',', long_help = texts::DEVICE)]
    pub device: Vec<String>,

    /// Ways to wait to compare: interrupt, poll, adaptive, auto, hybrid=2us
    #[arg(long, value_name = "LIST", long_help = texts::COMPLETION)]
    pub completion: Option<String>,

    /// Measure, in the same run, what no protocol between two cores can beat
    #[arg(long, long_help = texts::FLOOR)]
    pub floor: bool,

    /// Write the results as fio's JSON to FILE, or to standard output (-)
    #[arg(long, value_name = "FILE", long_help = texts::JSON)]
    pub json: Option<JsonPath>,

    /// Write a report of the results as one HTML page to FILE, or to standard output (-)
    #[arg(long, value_name = "FILE", long_help = texts::HTML)]
    pub html: Option<HtmlPath>,

    /// How often each device and policy has its turn within a job
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000), long_help = texts::ROUNDS)]
    pub rounds: Option<u32>,

    /// Serve no control socket: `meantime top` cannot look at this run
    #[arg(long, long_help = texts::NO_CONTROL)]
    pub no_control: bool,

    /// The job's keys as options.
    #[command(flatten)]
    pub job: JobArgs,
}

/// fio's keys. They are stored and checked by `Job::set`, the one place that knows them.
#[derive(Debug, Args)]
#[command(next_help_heading = "Job options (fio's keys; they override the job file's)")]
pub(crate) struct JobArgs {
    /// Direction and order: read, write, randread, randwrite, rw, randrw [default: read]
    #[arg(long, value_name = "KIND")]
    rw: Option<String>,
    /// Block size; k, m, g are powers of 1024; READ,WRITE for two sizes [default: 4k]
    #[arg(long, value_name = "BYTES")]
    bs: Option<String>,
    /// Sizes from a range, all multiples of the first equally likely, e.g. 4k-16k; two for reads
    /// and writes
    #[arg(long, value_name = "RANGE")]
    bsrange: Option<String>,
    /// Sizes with their shares in percent, e.g. 4k/70:16k/30; a comma before those of writes
    #[arg(long, value_name = "SIZES")]
    bssplit: Option<String>,
    /// I/Os in flight per thread, 1 to 1022 [default: 1]
    #[arg(long, value_name = "N")]
    iodepth: Option<String>,
    /// Threads, each with queues of its own [default: 1]
    #[arg(long, value_name = "N")]
    numjobs: Option<String>,
    /// How much of the device to use, e.g. 64m or 25%; alone it ends the job when so much was
    /// transferred [default: the rest of the device]
    #[arg(long, value_name = "BYTES")]
    size: Option<String>,
    /// Where on the device to begin, e.g. 1g or 50% [default: 0]
    #[arg(long, value_name = "BYTES")]
    offset: Option<String>,
    /// How much to transfer, if that is more or less than --size holds
    #[arg(long, value_name = "BYTES")]
    io_size: Option<String>,
    /// End after this number of I/Os of each thread
    #[arg(long, value_name = "N")]
    number_ios: Option<String>,
    /// How long to measure, in seconds or e.g. 500ms; beside --size, --io-size, --number-ios or
    /// --loops a limit, unless with --time-based [default: 5 without any of them]
    #[arg(long, value_name = "TIME")]
    runtime: Option<String>,
    /// Go on until --runtime, however often that means to begin again
    #[arg(long, value_name = "0|1", num_args = 0..=1, default_missing_value = "1", require_equals = true)]
    time_based: Option<String>,
    /// How long to run each device and policy before anything is recorded, in seconds or e.g. 500ms
    /// [default: 0]
    #[arg(long, value_name = "TIME")]
    ramp_time: Option<String>,
    /// Share of reads of rw and randrw, in percent [default: 50]
    #[arg(long, value_name = "PERCENT")]
    rwmixread: Option<String>,
    /// How likely random places are: random, zipf:θ, pareto:h, normal:deviation, or in zones, share
    /// by length, as zoned:60/10:40/90 [default: random]
    #[arg(long, value_name = "KIND")]
    random_distribution: Option<String>,
    /// Random places may come again before all have been
    #[arg(long, value_name = "0|1", num_args = 0..=1, default_missing_value = "1", require_equals = true)]
    norandommap: Option<String>,
    /// Flush after this number of writes, when they are done [default: 0, never]
    #[arg(long, value_name = "N")]
    fsync: Option<String>,
    /// The same: a block device has no metadata that could be left out
    #[arg(long, value_name = "N")]
    fdatasync: Option<String>,
    /// Whether each write is durable when it is done: none, sync or dsync (both force unit access)
    /// [default: none]
    #[arg(long, value_name = "KIND")]
    sync: Option<String>,
    /// At most this number of I/Os per second and thread, evenly spaced; READS,WRITES for two rates
    #[arg(long, value_name = "IOPS")]
    rate_iops: Option<String>,
    /// At most this number of bytes per second and thread; READ,WRITTEN for two rates
    #[arg(long, value_name = "BYTES")]
    rate: Option<String>,
    /// Pause after each I/O, in microseconds or e.g. 1ms (--thinktime-blocks: after this number of I/Os)
    #[arg(long, value_name = "TIME")]
    thinktime: Option<String>,
    /// How many I/Os lie between two pauses [default: 1]
    #[arg(long, value_name = "N")]
    thinktime_blocks: Option<String>,
    /// How much of a pause is spent computing, in microseconds or e.g. 1ms [default: 0]
    #[arg(long, value_name = "TIME")]
    thinktime_spin: Option<String>,
    /// Find the greatest depth up to --iodepth at which I/Os take no longer, in microseconds or
    /// e.g. 1ms
    #[arg(long, value_name = "TIME")]
    latency_target: Option<String>,
    /// How long each depth is tried, in microseconds or e.g. 100ms [default: 0, one I/O]
    #[arg(long, value_name = "TIME")]
    latency_window: Option<String>,
    /// Share of the I/Os that must keep --latency-target, in percent [default: 100]
    #[arg(long, value_name = "PERCENT")]
    latency_percentile: Option<String>,
    /// Log the latency of each I/O to NAME_lat.N.log, NAME_clat.N.log and NAME_slat.N.log
    #[arg(long, value_name = "NAME")]
    write_lat_log: Option<String>,
    /// Log the bandwidth to NAME_bw.N.log
    #[arg(long, value_name = "NAME")]
    write_bw_log: Option<String>,
    /// Log I/Os per second to NAME_iops.N.log
    #[arg(long, value_name = "NAME")]
    write_iops_log: Option<String>,
    /// Log histograms to NAME_clat_hist.N.log; needs --log-hist-msec
    #[arg(long, value_name = "NAME")]
    write_hist_log: Option<String>,
    /// Log averages over this number of milliseconds, not each I/O
    #[arg(long, value_name = "MS")]
    log_avg_msec: Option<String>,
    /// How many milliseconds a histogram covers
    #[arg(long, value_name = "MS")]
    log_hist_msec: Option<String>,
    /// Log the offset of each I/O, too
    #[arg(long, value_name = "0|1", num_args = 0..=1, default_missing_value = "1", require_equals = true)]
    log_offset: Option<String>,
    /// Read back and check what was written: crc32c, crc64, md5, sha256, meta, pattern, pattern_hdr
    /// or none [default: none]
    #[arg(long, value_name = "METHOD")]
    verify: Option<String>,
    /// CPUs for the job's threads, e.g. 0-1,3 [default: all but the software SSDs']
    #[arg(long, value_name = "LIST")]
    cpus_allowed: Option<String>,
    /// Have a second program want the same CPU: tsc (does nothing but read the clock), or walk=8m
    /// (walks a working set of that size); shown is which share of its lone speed it keeps
    #[arg(long, value_name = "KIND")]
    competitor: Option<String>,
    /// Start this number of programs that only use the CPU, on the same one; shown is which
    /// share of it they keep
    #[arg(long, value_name = "N")]
    hog: Option<String>,
    /// Scheduling classes of the job's threads to compare: other, rr:N, fifo:N (N from 1 to 99),
    /// slice:T (e.g. slice:1ms) [default: as they are]
    #[arg(long, value_name = "LIST")]
    sched: Option<String>,
    /// Hold /dev/cpu_dma_latency at this number of microseconds, so that idle CPUs wake up in time; a
    /// list, in which none is no limit, is compared [without a value: 0]
    #[arg(long, value_name = "LIST", num_args = 0..=1, default_missing_value = "0", require_equals = true)]
    pm_qos: Option<String>,
    /// Read files past the page cache [default: 0, through it]; devices have none
    #[arg(long, value_name = "0|1", num_args = 0..=1, default_missing_value = "1", require_equals = true)]
    direct: Option<String>,
    /// Which steps of a file's read path are taken while the device works: preload, pool,
    /// lazy-insert, lazy-unmap; or all, or none [default: all]
    #[arg(long, value_name = "LIST")]
    overlap: Option<String>,
    /// Memory of a file system's page cache [default: 256m]
    #[arg(long, value_name = "BYTES")]
    cache: Option<String>,
    /// What to say of a file's reads beforehand: 0 (nothing), 1 (by --rw), random, sequential
    /// [default: 1]
    #[arg(long, value_name = "KIND")]
    fadvise_hint: Option<String>,
    /// How many times to transfer the size [default: 1]
    #[arg(long, value_name = "N")]
    loops: Option<String>,
    /// The job's name in the output [default: the section's name, or the value of --rw]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Any other of fio's keys, as `super::job_keys` hands them on: KEY or KEY=VALUE
    #[arg(long = super::job_keys::OPTION, hide = true)]
    others: Vec<String>,
}

impl JobArgs {
    /// The keys given, with their values, `name` excepted.
    pub(crate) fn keys(&self) -> Vec<(&str, Option<&str>)> {
        let all = [
            ("rw", &self.rw),
            ("bs", &self.bs),
            ("bsrange", &self.bsrange),
            ("bssplit", &self.bssplit),
            ("iodepth", &self.iodepth),
            ("numjobs", &self.numjobs),
            ("size", &self.size),
            ("offset", &self.offset),
            ("runtime", &self.runtime),
            ("time-based", &self.time_based),
            ("ramp-time", &self.ramp_time),
            ("rwmixread", &self.rwmixread),
            ("io-size", &self.io_size),
            ("number-ios", &self.number_ios),
            ("random-distribution", &self.random_distribution),
            ("norandommap", &self.norandommap),
            ("fsync", &self.fsync),
            ("fdatasync", &self.fdatasync),
            ("sync", &self.sync),
            ("rate-iops", &self.rate_iops),
            ("rate", &self.rate),
            ("thinktime", &self.thinktime),
            ("thinktime-blocks", &self.thinktime_blocks),
            ("thinktime-spin", &self.thinktime_spin),
            ("latency-target", &self.latency_target),
            ("latency-window", &self.latency_window),
            ("latency-percentile", &self.latency_percentile),
            ("write-lat-log", &self.write_lat_log),
            ("write-bw-log", &self.write_bw_log),
            ("write-iops-log", &self.write_iops_log),
            ("write-hist-log", &self.write_hist_log),
            ("log-avg-msec", &self.log_avg_msec),
            ("log-hist-msec", &self.log_hist_msec),
            ("log-offset", &self.log_offset),
            ("verify", &self.verify),
            ("cpus-allowed", &self.cpus_allowed),
            ("loops", &self.loops),
            ("competitor", &self.competitor),
            ("hog", &self.hog),
            ("sched", &self.sched),
            ("pm-qos", &self.pm_qos),
            ("direct", &self.direct),
            ("overlap", &self.overlap),
            ("cache", &self.cache),
            ("fadvise-hint", &self.fadvise_hint),
        ];
        let others = self.others.iter().map(|other| match other.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (other.as_str(), None),
        });
        let own = all.into_iter().filter_map(|(key, value)| Some((key, Some(value.as_deref()?))));
        own.chain(others).collect()
    }
}
