//! Keys for time: duration, number in flight, pace, order of jobs; and the logs.

use super::super::value;
use super::super::{Exit, IODEPTH_MAX, LogName, NUMJOBS_MAX, lists};
use super::kind::{By, FLAG, Field, INT_MAX, Int, MICROSECONDS, Opt, SECONDS, Unless0, Words};
use super::kind::{count, field, int};
use super::{If, Key, LOGGED, RATED, VALUES_LOGGED, With, flag, key};

pub(super) const HOW_LONG: &[Key] = &[
    key(
        "runtime",
        field!(runtime, Unless0(SECONDS)),
        "How long to measure, in seconds or e.g. 500ms; beside --size, --io-size, --number-ios or \
         --loops a limit, unless with --time-based",
    )
    .also(&["timeout"])
    .means("5 without any of them")
    .listed("TIME"),
    flag(
        "time_based",
        field!(time_based, Opt(FLAG)),
        "Go on until --runtime, however often that means to begin again",
    )
    .means("0 if a size or number is given, else 1")
    .listed("0|1"),
    key(
        "ramp_time",
        field!(ramp_time, SECONDS),
        "How long to run each device and policy before anything is recorded, in seconds or e.g. \
         500ms",
    )
    .is("0")
    .listed("TIME"),
    key(
        "steadystate",
        field!(steady, Opt(By("a limit such as iops:10% or bw_slope:1%", value::steady))),
        "End when the speed is steady",
    )
    .also(&["ss"]),
    key(
        "steadystate_duration",
        field!(steady_window, SECONDS),
        "How long the speed must be steady",
    )
    .also(&["ss_dur"])
    .applies(&[With("steadystate")]),
    key("steadystate_ramp_time", field!(steady_ramp, SECONDS), "How long not to look at it")
        .also(&["ss_ramp"])
        .is("0")
        .applies(&[With("steadystate")]),
];

const DEPTH: Int<u32> = int(0, IODEPTH_MAX as u64);

pub(super) const HOW_MANY: &[Key] = &[
    key(
        "iodepth",
        field!(iodepth, int(1, IODEPTH_MAX as u64)),
        "I/Os in flight per thread, 1 to 1023; a device may take fewer",
    )
    .is("1")
    .listed("N"),
    key(
        "iodepth_batch",
        field!(batch.submit, Opt(DEPTH)),
        "How many to submit at once; 0: iodepth",
    )
    .also(&["iodepth_batch_submit"])
    .means("iodepth"),
    key(
        "iodepth_batch_complete_min",
        field!(batch.complete_min, Opt(DEPTH)),
        "How many to wait for at least; 0: look, and do not wait",
    )
    .also(&["iodepth_batch_complete"])
    .means("1"),
    key(
        "iodepth_batch_complete_max",
        field!(batch.complete_max, Opt(DEPTH)),
        "How many to take back at most",
    )
    .means("iodepth_batch_complete_min")
    .applies(&[With("iodepth_batch_complete_min")]),
    key(
        "iodepth_low",
        field!(batch.low, Opt(DEPTH)),
        "Once full, how many to leave before submitting",
    )
    .means("iodepth"),
    key(
        "numjobs",
        field!(numjobs, int(1, NUMJOBS_MAX as u64)),
        "Threads, each with queues of its own",
    )
    .is("1")
    .listed("N"),
];

pub(super) const DURABILITY: &[Key] = &[
    key(
        "fsync",
        field!(syncing.fsync, count(0, "writes")),
        "Flush after this number of writes, when they are done (a file: fsync); 0: never",
    )
    .is("0")
    .for_writes()
    .listed("N"),
    key(
        "fdatasync",
        field!(syncing.fdatasync, count(0, "writes")),
        "The same; of a file only the data, and the metadata needed to find them: a block device \
         has no metadata that could be left out",
    )
    .is("0")
    .for_writes()
    .listed("N"),
    key(
        "sync",
        field!(syncing.fua, Words(SYNCS)),
        "Whether each write is durable when it is done: none, sync or dsync (both force unit \
         access)",
    )
    .is("none")
    .for_writes()
    .listed("KIND"),
    flag("end_fsync", field!(syncing.end_fsync, FLAG), "Flush when all has been written")
        .for_writes(),
];

const SYNCS: &[(&str, bool)] =
    &[("none", false), ("0", false), ("sync", true), ("dsync", true), ("1", true)];

pub(super) const PACE: &[Key] = &[
    key(
        "rate",
        field!(
            pace.rate_bytes,
            By("bytes per second, such as 100m, or two, for reads and writes", |text| {
                lists::rates(text, 1 << 50)
            })
        ),
        "At most this number of bytes per second and thread; READ,WRITTEN for two rates",
    )
    .means("as fast as it goes")
    .listed("BYTES"),
    key(
        "rate_iops",
        field!(
            pace.rate_iops,
            By("I/Os per second, such as 10k, or two, for reads and writes", |text| {
                lists::rates(text, INT_MAX)
            })
        ),
        "At most this number of I/Os per second and thread, evenly spaced; READS,WRITES for two \
         rates",
    )
    .means("as fast as it goes")
    .listed("IOPS"),
    key(
        "rate_process",
        field!(pace.poisson, Words(&[("linear", false), ("poisson", true)])),
        "Whether the time between two I/Os of a rate is always the same, or drawn",
    )
    .is("linear")
    .applies(&[If(&RATED)]),
    key(
        "thinktime",
        field!(pace.thinktime, MICROSECONDS),
        "Pause after each I/O, in microseconds or e.g. 1ms (--thinktime-blocks: after this number \
         of I/Os)",
    )
    .is("0")
    .listed("TIME"),
    key(
        "thinktime_blocks",
        field!(pace.thinktime_blocks, count(1, "I/Os")),
        "How many I/Os lie between two pauses",
    )
    .is("1")
    .applies(&[With("thinktime")])
    .listed("N"),
    key(
        "thinktime_spin",
        field!(pace.thinktime_spin, MICROSECONDS),
        "How much of a pause is spent computing, in microseconds or e.g. 1ms",
    )
    .is("0")
    .applies(&[With("thinktime")])
    .listed("TIME"),
    key(
        "latency_target",
        field!(latency_target.target, Unless0(MICROSECONDS)),
        "Find the greatest depth up to --iodepth at which I/Os take no longer, in microseconds or \
         e.g. 1ms",
    )
    .listed("TIME"),
    key(
        "latency_window",
        field!(latency_target.window, MICROSECONDS),
        "How long each depth is tried, in microseconds or e.g. 100ms; 0: for one I/O",
    )
    .is("0")
    .applies(&[With("latency_target")])
    .listed("TIME"),
    key(
        "latency_percentile",
        field!(latency_target.percentile_ppm, By("a percentage such as 99.9", lists::percentile)),
        "Share of the I/Os that must keep --latency-target, in percent",
    )
    .is("100")
    .applies(&[With("latency_target")])
    .listed("PERCENT"),
    flag("latency_run", field!(latency_target.run, FLAG), "Go on at the depth that was found")
        .applies(&[With("latency_target")]),
    key(
        "flow",
        field!(flow.weight, By("a weight, or 0", flow)),
        "Its share of the I/Os of the jobs of one flow, in relation to the others'; 0: no flow",
    )
    .is("0"),
    key("flow_id", field!(flow.id, int(0, INT_MAX)), "Which flow").is("0").applies(&[With("flow")]),
    key("flow_sleep", field!(flow.sleep, MICROSECONDS), "How long a job that is ahead sleeps")
        .is("0")
        .applies(&[With("flow")]),
];

fn flow(text: &str) -> Result<u32, value::Why> {
    if text.starts_with('-') {
        return Err("a weight has no sign: fio's new meaning is a share of the flow".to_owned());
    }
    value::int(text, 0, INT_MAX).map(|weight| weight as u32)
}

pub(super) const JOBS: &[Key] = &[
    key("name", field!(name, By("a name", value::job_name)), "The job's name in the output")
        .means("the section's name, or the value of --rw")
        .listed("NAME"),
    flag("stonewall", field!(stonewall, FLAG), "Begin when the jobs before have ended")
        .also(&["wait_for_previous"]),
    key(
        "wait_for",
        field!(
            wait_for,
            By("the name of a job before", |text| {
                Ok(Some(value::printable(text)?).filter(|name| name != "none"))
            })
        ),
        "Begin when the job of that name has ended",
    )
    .is("none"),
    key("startdelay", field!(startdelay, SECONDS), "Begin so long after the others").is("0"),
    flag("exitall", EXITALL, "When the job has ended, those that exit_what names end, too"),
    key("exit_what", EXIT_WHAT, "Which jobs end: of the group, of the stonewall, or all")
        .is("group")
        .applies(&[With("exitall")]),
    flag("group_reporting", field!(group_reporting, FLAG), "Show the jobs of a group as one"),
    flag("new_group", field!(new_group, FLAG), "Begin a new group"),
];

const EXITALL: Field = Field {
    set: |job, text| {
        job.exitall = value::boolean(text)?.then_some(job.exit_what);
        Ok(None)
    },
    takes: |_| "1 or 0".to_owned(),
    ..field!(exitall, Opt(Words(EXITS)))
};
const EXIT_WHAT: Field = Field {
    set: |job, text| {
        let remark = (WHAT_EXITS.set)(job, text)?;
        job.exitall = job.exitall.map(|_| job.exit_what);
        Ok(remark)
    },
    ..WHAT_EXITS
};
const WHAT_EXITS: Field = field!(exit_what, Words(EXITS));
const EXITS: &[(&str, Exit)] =
    &[("group", Exit::Group), ("stonewall", Exit::Stonewall), ("all", Exit::All)];

const NAME: By<Option<LogName>> = By("the beginning of a file name", value::log_name);
const MS: Int<u64> = count(0, "milliseconds");

pub(super) const LOGS: &[Key] = &[
    key(
        "write_lat_log",
        field!(logs.lat, NAME),
        "Log the latency of each I/O to NAME_lat.N.log, NAME_clat.N.log and NAME_slat.N.log",
    )
    .alone("")
    .listed("NAME"),
    key("write_bw_log", field!(logs.bw, NAME), "Log the bandwidth to NAME_bw.N.log")
        .alone("")
        .listed("NAME"),
    key("write_iops_log", field!(logs.iops, NAME), "Log I/Os per second to NAME_iops.N.log")
        .alone("")
        .listed("NAME"),
    key(
        "write_hist_log",
        field!(logs.hist, NAME),
        "Log histograms to NAME_clat_hist.N.log; needs --log-hist-msec",
    )
    .alone("")
    .listed("NAME"),
    key(
        "log_avg_msec",
        field!(logs.avg_ms, MS),
        "Log averages over this number of milliseconds, not each I/O",
    )
    .is("0")
    .applies(&[If(&VALUES_LOGGED)])
    .listed("MS"),
    key("log_hist_msec", field!(logs.hist_ms, MS), "How many milliseconds a histogram covers")
        .applies(&[With("write_hist_log")])
        .listed("MS"),
    key(
        "log_hist_coarseness",
        field!(logs.hist_coarseness, int(0, 6)),
        "How often to halve the number of a histogram's bins",
    )
    .is("0")
    .applies(&[With("write_hist_log")]),
    flag("log_offset", field!(logs.offset, FLAG), "Log the offset of each I/O, too")
        .applies(&[If(&VALUES_LOGGED)])
        .listed("0|1"),
    flag("log_max_value", field!(logs.max_value, FLAG), "Log the greatest of a window, no average")
        .applies(&[If(&VALUES_LOGGED)]),
    flag("log_prio", field!(logs.prio, FLAG), "Log the whole priority of each I/O")
        .applies(&[If(&VALUES_LOGGED)]),
    flag("per_job_logs", field!(logs.per_job, FLAG), "A file for each thread")
        .is("1")
        .applies(&[If(&LOGGED)]),
];
