//! Keys for time: duration, number in flight, pace, order of jobs; and the logs.

use super::super::value;
use super::super::{IODEPTH_MAX, NUMJOBS_MAX, lists};
use super::key::{If, Key, RATED, With, flag, key};
use super::kind::{By, FLAG, Field, INT_MAX, Int, MICROSECONDS, Opt, SECONDS, Unless0, Words};
use super::kind::{count, field, int};

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
];

pub(super) const JOBS: &[Key] = &[
    key("name", field!(name, By("a name", value::job_name)), "The job's name in the output")
        .means("the section's name, or the value of --rw")
        .listed("NAME"),
    flag("stonewall", field!(stonewall, FLAG), "Begin when the jobs before have ended")
        .also(&["wait_for_previous"]),
    flag("group_reporting", field!(group_reporting, FLAG), "Show the jobs of a group as one"),
    flag("new_group", field!(new_group, FLAG), "Begin a new group"),
];

pub(super) const LOGS: &[Key] = &[
    key(
        "write_lat_log",
        field!(logs.lat, By("the beginning of a file name", value::log_name)),
        "Log the latency of each I/O to NAME_lat.N.log, NAME_clat.N.log and NAME_slat.N.log",
    )
    .alone("")
    .listed("NAME"),
    key(
        "log_avg_msec",
        field!(logs.avg_ms, count(0, "milliseconds")),
        "Log averages over this number of milliseconds, not each I/O",
    )
    .is("0")
    .applies(&[With("write_lat_log")])
    .listed("MS"),
    flag("log_offset", field!(logs.offset, FLAG), "Log the offset of each I/O, too")
        .applies(&[With("write_lat_log")])
        .listed("0|1"),
];
