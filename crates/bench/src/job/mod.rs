//! fio job files: what a `[job]` section says, as typed values.
//!
//! [`parse()`] reads a whole file and finds all that is wrong with it, [`Job::set`] is the single
//! place that looks keys up (the command line's `--bs 4k` goes through it too), and
//! [`Job::validate`] finds keys that contradict each other once everything is set. Nothing here
//! does I/O and nothing here panics, whatever the text.

mod cmdprio;
pub mod error;
mod keys;
mod lists;
mod parse;
mod payload;
mod settings;
mod validate;
mod value;
mod variables;
mod zones;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::time::Duration;

use meantime_hw::{IoPriority, SchedClass};

use crate::competitor::Kind;

pub use cmdprio::{CmdPrio, PriorityShare};
pub use error::{JobError, JobErrors, Origin};
pub use keys::{Ignored, KeyOption, Note, known_key, may_stand_alone, options, subjects};
pub use parse::{JobFile, parse};
pub use payload::Payload;
pub use settings::ZONES_MAX;
pub use settings::{
    Batch, Distribution, Exit, FileKeys, FlowKeys, Generator, Hint, LatencyTarget, LogKeys,
    LogName, NumaKeys, Pace, Places, Randomness, Sizes, Steady, Syncing, VerifyKeys, Zone,
};
pub use zones::{ZoneKeys, ZoneMode};

/// The largest queue depth of any device: a queue pair has 1,024 command slots, one of which is for
/// the parts of split requests. A device with shorter queues refuses more when the job is checked.
pub const IODEPTH_MAX: u32 = 1023;
/// The largest number of clones of a job.
pub const NUMJOBS_MAX: u32 = 1024;
/// The largest number of job sections in one file.
pub const JOBS_MAX: usize = 1024;
/// The highest CPU number `cpus_allowed` may name.
pub const CPU_MAX: u32 = 4095;
/// The most CPU-bound programs that may compete with a job.
pub const HOGS_MAX: u32 = 64;
/// The largest limit on idling, in µs: beyond it the kernel has none.
pub const PM_QOS_MAX_US: u32 = 1_999_999_999;
/// The most values of `sched` and of `pm_qos` that are compared.
pub const SETTINGS_MAX: usize = 16;
/// Every block size, size and offset is a multiple of this many bytes.
pub const SECTOR_BYTES: u64 = 512;
/// The largest block size.
pub const BS_MAX_BYTES: u64 = 1 << 30;

/// fio's `rw`: direction and order of the I/Os.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(clippy::enum_variant_names)] // fio's own words
pub enum Rw {
    /// Sequential reads.
    #[default]
    Read,
    /// Sequential writes.
    Write,
    /// Random reads.
    RandRead,
    /// Random writes.
    RandWrite,
    /// Sequential reads and writes, mixed by `rwmixread`.
    Rw,
    /// Random reads and writes, mixed by `rwmixread`.
    RandRw,
    /// Sequential trims: blocks are deallocated.
    Trim,
    /// Random trims.
    RandTrim,
    /// Sequential, each place trimmed and then written.
    TrimWrite,
    /// Random, each place trimmed and then written.
    RandTrimWrite,
}

impl Rw {
    /// fio's words, the usual one for each first.
    pub(crate) const WORDS: [(&str, Rw); 11] = [
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
    ];

    /// fio's word for it.
    pub fn as_str(self) -> &'static str {
        Self::WORDS.iter().find(|(_, rw)| *rw == self).map_or("", |(word, _)| word)
    }

    /// Whether the I/Os go to random places.
    pub fn is_random(self) -> bool {
        matches!(self, Rw::RandRead | Rw::RandWrite | Rw::RandRw | Rw::RandTrim | Rw::RandTrimWrite)
    }

    /// Whether reads and writes are mixed.
    pub(crate) fn is_mixed(self) -> bool {
        matches!(self, Rw::Rw | Rw::RandRw)
    }
}

/// fio's `verify`: how written data is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verify {
    /// Not at all.
    #[default]
    None,
    /// Every block carries its place and number.
    Meta,
    /// And what follows is `verify_pattern`.
    PatternHdr,
    /// Every block is `verify_pattern`, and nothing else.
    Pattern,
    /// Every block carries place and number, and its CRC-32C.
    Crc32c,
    /// Or fio's CRC-64.
    Crc64,
    /// Or its MD5.
    Md5,
    /// Or its SHA-256.
    Sha256,
}

/// A place or length on a device: bytes, or a part of the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// In bytes.
    Bytes(u64),
    /// In percent of the device, 0 to 100.
    Percent(u8),
    /// In zones (`zonesize`), until all keys are known.
    Zones(u64),
}

impl Default for Extent {
    fn default() -> Self {
        Extent::Bytes(0)
    }
}

impl Extent {
    /// In bytes, on a device of `device_bytes`; a percentage is rounded down to a multiple of
    /// `align_bytes`.
    pub fn resolve_bytes(self, device_bytes: u64, align_bytes: u64) -> u64 {
        match self {
            Extent::Bytes(bytes) => bytes,
            Extent::Percent(percent) => {
                let bytes = (u128::from(device_bytes) * u128::from(percent.min(100)) / 100) as u64;
                bytes - bytes % align_bytes.max(1)
            }
            Extent::Zones(_) => 0,
        }
    }
}

/// A key as it was set: last value and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SetKey {
    key: &'static str,
    value: String,
    origin: Origin,
    /// From `[global]`: what the section says of the same matter replaces it.
    inherited: bool,
}

/// One job: a `[section]` with its defaults from `[global]`, or what the command line says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Job {
    /// The section's name, or `name=`.
    pub name: String,
    /// Direction and order; `read` unless set, as in fio.
    pub rw: Rw,
    /// Size of each read; 4096 unless set.
    pub bs_read_bytes: u64,
    /// Size of each write; 4096 unless set.
    pub bs_write_bytes: u64,
    /// Sizes of reads and of writes that vary; `None`: those above.
    pub sizes: [Option<Sizes>; 2],
    /// I/Os in flight; 1 unless set.
    pub iodepth: u32,
    /// Clones of this job, each with a thread and queue pair of its own; 1 unless set.
    pub numjobs: u32,
    /// How much of the device to use, and to transfer in one loop; the rest of the device unless
    /// set.
    pub size: Option<Extent>,
    /// Where on the device to begin; 0 unless set.
    pub offset: Extent,
    /// End after this time. `None`: when `size` has been transferred.
    pub runtime: Option<Duration>,
    /// Go on until `runtime` even when `size` has been transferred.
    pub time_based: Option<bool>,
    /// Run for this long before anything is recorded.
    pub ramp_time: Duration,
    /// Share of reads in a mixed job, in percent; 50 unless set.
    pub rwmixread_percent: u8,
    /// How written data is checked.
    pub verify: Verify,
    /// The other keys about that.
    pub verify_keys: VerifyKeys,
    /// Ends at the end of the device.
    pub fill_device: bool,
    /// The device's zones.
    pub zones: ZoneKeys,
    /// How active it is beside other jobs.
    pub flow: FlowKeys,
    /// The nodes of its CPUs and memory.
    pub numa: NumaKeys,
    /// I/Os with a priority of their own.
    pub cmdprio: CmdPrio,
    /// CPUs this job may run on, ascending, each once; empty: any.
    pub cpus_allowed: Vec<u32>,
    /// Level of the threads' I/O priority, 0 to 7.
    pub prio: Option<u8>,
    /// Class of the threads' I/O priority, as `ioprio_set(2)` counts them.
    pub prioclass: Option<u8>,
    /// Our own key: a program that wants the job's CPU as well.
    pub competitor: Option<Kind>,
    /// Our own key: the number of programs that only use the job's CPU.
    pub hogs: u32,
    /// Our own key: scheduling classes of the job's threads to compare; empty: that of the process.
    pub scheds: Vec<SchedClass>,
    /// Our own key: limits on how deep idle CPUs fall asleep, in µs, to compare (`None`: no limit);
    /// empty: the machine's.
    pub pm_qos_us: Vec<Option<u32>>,
    /// The device's URI. The whole value: `:` separates nothing here.
    pub filename: Option<String>,
    /// How a file in a file system is read.
    pub file: FileKeys,
    /// How many times to do the whole job; 1 unless set.
    pub loops: u64,
    /// Our own key: the completion policies to compare, as written (`interrupt,poll,hybrid=2us`).
    pub completion: Option<String>,
    /// fio's word for `completion=poll`.
    pub hipri: bool,
    /// How much to transfer in one loop, if not `size`.
    pub io_size: Option<Extent>,
    /// How much of the device to use, if not `size`, which then is how much to transfer.
    pub filesize: Option<Extent>,
    /// What else says where I/Os go.
    pub places: Places,
    /// How long after the others to begin.
    pub startdelay: Duration,
    /// Begin when the job of that name has ended.
    pub wait_for: Option<String>,
    /// Which jobs end when this job has ended.
    pub exitall: Option<Exit>,
    /// Kept apart, since it may come before `exitall`.
    pub exit_what: Exit,
    /// End when the speed is steady.
    pub steady: Option<Steady>,
    /// For how long the speed must be steady.
    pub steady_window: Duration,
    /// How long not to look at it.
    pub steady_ramp: Duration,
    /// End after this number of I/Os of each thread.
    pub number_ios: Option<u64>,
    /// When writes are made durable.
    pub syncing: Syncing,
    /// Where random I/Os go.
    pub random: Randomness,
    /// When I/Os are submitted.
    pub pace: Pace,
    /// Find the depth at which this is kept.
    pub latency_target: LatencyTarget,
    /// How many I/Os are submitted and taken back at once.
    pub batch: Batch,
    /// Logs to write.
    pub logs: LogKeys,
    /// Begin when the jobs before have ended.
    pub stonewall: bool,
    /// Show the jobs of this group as one.
    pub group_reporting: bool,
    /// Begin a new group for [`Job::group_reporting`].
    pub new_group: bool,
    /// A key of its section was not accepted, or of `[global]`.
    pub is_faulty: bool,
    pub(crate) set_keys: Vec<SetKey>,
}

impl Job {
    /// The I/O priority of the job's threads, if it names one. As in fio a level without a class is
    /// one of best effort.
    pub(crate) fn io_priority(&self) -> Option<IoPriority> {
        if self.prio.is_none() && self.prioclass.is_none() {
            return None;
        }
        let level = self.prio.unwrap_or(0);
        Some(match self.prioclass.unwrap_or(0) {
            1 => IoPriority::RealTime(level),
            3 => IoPriority::Idle,
            0 if self.prio.is_none() => IoPriority::None,
            _ => IoPriority::BestEffort(level),
        })
    }

    /// A job with fio's defaults and nothing set.
    pub fn new(name: &str) -> Job {
        Job {
            name: name.to_owned(),
            bs_read_bytes: 4096,
            bs_write_bytes: 4096,
            iodepth: 1,
            numjobs: 1,
            rwmixread_percent: 50,
            loops: 1,
            verify_keys: VerifyKeys { checks: true, ..VerifyKeys::default() },
            file: FileKeys { cache_bytes: 256 << 20, ..FileKeys::default() },
            places: Places { run: 1, ..Places::default() },
            random: Randomness { randrepeat: true, ..Randomness::default() },
            pace: Pace { thinktime_blocks: 1, ..Pace::default() },
            latency_target: LatencyTarget {
                percentile_ppm: 100_000_000,
                ..LatencyTarget::default()
            },
            logs: LogKeys { per_job: true, ..LogKeys::default() },
            ..Job::default()
        }
    }

    /// The keys that were set, from `[global]`, the section or the command line, under their usual
    /// names and with their values as written: what fio lists as `job options`. Keys without effect
    /// here are left out.
    pub fn fio_options(&self) -> Vec<(String, String)> {
        self.set_keys.iter().map(|set| (set.key.to_owned(), set.value.clone())).collect()
    }

    /// Where each key was set, and whether one was refused, as in `other`.
    #[cfg(feature = "fuzzing")]
    pub fn take_origins(&mut self, other: &Job) {
        (self.set_keys, self.is_faulty) = (other.set_keys.clone(), other.is_faulty);
    }

    /// Whether `key` (its usual name: `bs`, not `blocksize`) was set.
    pub fn is_set(&self, key: &str) -> bool {
        self.set_keys.iter().any(|set| set.key == key)
    }

    /// The programs that want the job's CPU as well: what they do, and how many.
    pub(crate) fn rivals(&self) -> Option<(Kind, u32)> {
        let hogs = (self.hogs > 0).then_some((Kind::Tsc, self.hogs));
        self.competitor.map(|kind| (kind, 1)).or(hogs)
    }

    /// How much of the device is used, if the job says so. Strided zones go on to its end.
    pub fn range(&self) -> Option<Extent> {
        let is_strided = self.zones.mode() == ZoneMode::Strided;
        self.filesize.or(self.size.filter(|_| !is_strided))
    }

    /// How much is transferred in one loop, if that is not the range.
    pub fn amount(&self) -> Option<Extent> {
        self.io_size.or(self.size.filter(|_| self.range() != self.size))
    }

    /// What random places of that direction are multiples of, if not of the smallest size.
    pub(crate) fn align_bytes(&self, direction: usize) -> Option<u64> {
        let smallest = self.sizes_of(direction).min_bytes();
        self.places.align_bytes[direction].filter(|bytes| self.rw.is_random() && *bytes != smallest)
    }

    /// Whether the job issues reads.
    pub fn reads(&self) -> bool {
        matches!(self.rw, Rw::Read | Rw::RandRead)
            || (self.rw.is_mixed() && self.rwmixread_percent > 0)
    }

    /// Whether the job issues writes.
    pub fn writes(&self) -> bool {
        let always =
            matches!(self.rw, Rw::Write | Rw::RandWrite | Rw::TrimWrite | Rw::RandTrimWrite);
        always || (self.rw.is_mixed() && self.rwmixread_percent < 100)
    }

    /// Whether the job deallocates blocks. They are of the size of its writes.
    pub fn trims(&self) -> bool {
        matches!(self.rw, Rw::Trim | Rw::RandTrim | Rw::TrimWrite | Rw::RandTrimWrite)
    }

    /// Whether the job changes what is on the device.
    pub fn changes(&self) -> bool {
        self.writes() || self.trims()
    }

    /// The sizes of reads (0) or writes (1).
    pub fn sizes_of(&self, direction: usize) -> Sizes {
        let fixed_bytes = if direction == 0 { self.bs_read_bytes } else { self.bs_write_bytes };
        self.sizes[direction].clone().unwrap_or(Sizes::Fixed(fixed_bytes))
    }

    /// Sizes of the directions that the job has.
    fn used_sizes(&self) -> impl Iterator<Item = Sizes> {
        let used = [(0, self.reads()), (1, self.changes())];
        used.into_iter().filter(|(_, used)| *used).map(|(direction, _)| self.sizes_of(direction))
    }

    /// The largest block this job transfers.
    pub fn bs_max_bytes(&self) -> u64 {
        self.used_sizes().map(|sizes| sizes.max_bytes()).max().unwrap_or(self.bs_read_bytes)
    }

    /// The smallest block this job transfers.
    pub fn bs_min_bytes(&self) -> u64 {
        self.used_sizes().map(|sizes| sizes.min_bytes()).min().unwrap_or(self.bs_read_bytes)
    }

    /// Whether blocks of one direction differ in size.
    pub fn has_varied_sizes(&self) -> bool {
        self.used_sizes().any(|sizes| !matches!(sizes, Sizes::Fixed(_)))
    }

    /// An error in the value of `key`: in a file, or on the command line, where it is an option.
    pub(crate) fn error_of(&self, key: &str, what: String) -> JobError {
        let origin = self.origin_of(key).unwrap_or(&Origin::CommandLine);
        JobError::new(origin, error::Problem::InKey { key: origin.key(key), what })
    }

    pub(crate) fn origin_of(&self, key: &str) -> Option<&Origin> {
        self.set_keys.iter().find(|set| set.key == key).map(|set| &set.origin)
    }
}
