//! Options of `meantime bench`.

use std::path::PathBuf;

use clap::Args;

use super::{HtmlPath, JsonPath, texts};

/// What `meantime bench` is to do.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// A fio job file; without one, the job options below say what to do
    #[arg(value_name = "JOB.fio", long_help = texts::JOB_FILE)]
    pub job_file: Option<PathBuf>,

    /// Devices to measure, e.g. mem:1G?model=optane; several are compared
    #[arg(long, value_name = "URI[,URI…]", value_delimiter = ',', long_help = texts::DEVICE)]
    pub device: Vec<String>,

    /// Ways to wait to compare: interrupt, poll, hybrid, hybrid=2us
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

    /// The job's keys as options.
    #[command(flatten)]
    pub job: JobArgs,
}

/// fio's keys. They are stored and checked by `Job::set`, the one place that knows them.
#[derive(Debug, Args)]
#[command(next_help_heading = "Job options (fio's keys; they override the job file's)")]
pub struct JobArgs {
    /// Direction and order: read, write, randread, randwrite, rw, randrw [default: read]
    #[arg(long, value_name = "KIND")]
    rw: Option<String>,
    /// Block size; k, m, g are powers of 1024; READ,WRITE for two sizes [default: 4k]
    #[arg(long, value_name = "BYTES")]
    bs: Option<String>,
    /// I/Os in flight per thread, 1 to 1024 [default: 1]
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
    /// How long to measure, in seconds or e.g. 500ms: a limit, or with --time-based the time itself [default: 5 s,
    /// time-based, if no size is given either]
    #[arg(long, value_name = "TIME")]
    runtime: Option<String>,
    /// Go on until --runtime, however often that means to begin again
    #[arg(long, value_name = "0|1", num_args = 0..=1, default_missing_value = "1", require_equals = true)]
    time_based: Option<String>,
    /// How long to run each device and policy before anything is recorded, in seconds or e.g. 500ms [default: 0]
    #[arg(long, value_name = "TIME")]
    ramp_time: Option<String>,
    /// Share of reads of rw and randrw, in percent [default: 50]
    #[arg(long, value_name = "PERCENT")]
    rwmixread: Option<String>,
    /// Read back and check what was written: crc32c or none [default: none]
    #[arg(long, value_name = "METHOD")]
    verify: Option<String>,
    /// CPUs for the job's threads, e.g. 0-1,3 [default: all but the software SSDs']
    #[arg(long, value_name = "LIST")]
    cpus_allowed: Option<String>,
    /// Have a second program want the same CPU: tsc (does nothing but read the clock), or walk=8m (walks a working set of
    /// that size); shown is which share of its lone speed it keeps
    #[arg(long, value_name = "KIND")]
    competitor: Option<String>,
    /// How many times to transfer the size [default: 1]
    #[arg(long, value_name = "N")]
    loops: Option<String>,
    /// The job's name in the output [default: the section's name, or the value of --rw]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}

impl JobArgs {
    /// The keys given, with their values, `name` excepted.
    pub fn keys(&self) -> Vec<(&'static str, &str)> {
        let all = [
            ("rw", &self.rw),
            ("bs", &self.bs),
            ("iodepth", &self.iodepth),
            ("numjobs", &self.numjobs),
            ("size", &self.size),
            ("offset", &self.offset),
            ("runtime", &self.runtime),
            ("time-based", &self.time_based),
            ("ramp-time", &self.ramp_time),
            ("rwmixread", &self.rwmixread),
            ("verify", &self.verify),
            ("cpus-allowed", &self.cpus_allowed),
            ("loops", &self.loops),
            ("competitor", &self.competitor),
        ];
        all.into_iter().filter_map(|(key, value)| Some((key, value.as_deref()?))).collect()
    }
}
