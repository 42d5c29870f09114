//! A job, as the keys of its section define it.

use std::sync::Arc;
use std::time::Duration;

use meantime_hw::{IoPriority, SchedClass};

use super::error::{JobError, Origin, Problem};
use super::settings::{
    Batch, Extent, FileKeys, LogKeys, Pace, Randomness, Rw, Sizes, Syncing, Verify, VerifyKeys,
};
use super::trace::{ReplayKeys, Trace};
use crate::competitor::Kind;

/// A key that was set, with its last value and place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SetKey {
    pub(super) key: &'static str,
    pub(super) value: String,
    pub(super) origin: Origin,
    /// Whether it comes from `[global]`, so that a key of the section for the same setting replaces
    /// it.
    pub(super) inherited: bool,
}

/// One job: a `[section]` with its defaults from `[global]`, or the keys of the command line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Job {
    /// The section's name, or `name=`.
    pub name: String,
    /// Direction and order. The default is `read`, as in fio.
    pub rw: Rw,
    /// Size of each read. The default is 4096.
    pub bs_read_bytes: u64,
    /// Size of each write. The default is 4096.
    pub bs_write_bytes: u64,
    /// Sizes of reads and of writes that vary, or `None` for those above.
    pub sizes: [Option<Sizes>; 2],
    /// I/Os in flight. The default is 1.
    pub iodepth: u32,
    /// Clones of this job, each with a thread and queue pair of its own. The default is 1.
    pub numjobs: u32,
    /// Amount of the device to use, and to transfer in one loop. The default is the rest of the
    /// device.
    pub size: Option<Extent>,
    /// Start on the device. The default is 0.
    pub offset: Extent,
    /// The time after which the job ends, or `None` if it ends when `size` has been transferred.
    pub runtime: Option<Duration>,
    /// Go on until `runtime` even when `size` has been transferred.
    pub time_based: Option<bool>,
    /// Run for this long before anything is recorded.
    pub ramp_time: Duration,
    /// Share of reads in a mixed job, in percent. The default is 50.
    pub rwmixread_percent: u8,
    /// The way in which written data is checked.
    pub verify: Verify,
    /// The other keys of the checks.
    pub verify_keys: VerifyKeys,
    /// CPUs on which this job may run, ascending, each once. If there are none, it may run on any.
    pub cpus_allowed: Vec<u32>,
    /// Level of the threads' I/O priority, 0 to 7.
    pub prio: Option<u8>,
    /// Class of the threads' I/O priority, in the encoding of `ioprio_set(2)`.
    pub prioclass: Option<u8>,
    /// Our own key: the work of a program that competes for the job's CPU.
    pub competitor: Option<Kind>,
    /// Our own key: the number of programs that only use the job's CPU.
    pub hogs: u32,
    /// Our own key: scheduling classes of the job's threads to compare. If there are none, it is
    /// that of the process.
    pub scheds: Vec<SchedClass>,
    /// Our own key: limits on how deep idle CPUs fall asleep, in µs, to compare (`None` is no
    /// limit). If there are none, it is the machine's.
    pub pm_qos_us: Vec<Option<u32>>,
    /// The device's URI. The whole value: `:` separates nothing here.
    pub filename: Option<String>,
    /// The way in which a file in a file system is read.
    pub file: FileKeys,
    /// Number of repetitions of the whole job. The default is 1.
    pub loops: u64,
    /// Our own key: the completion policies to compare, as written (`interrupt,poll,hybrid=2us`).
    pub completion: Option<String>,
    /// fio's word for `completion=poll`.
    pub hipri: bool,
    /// Amount to transfer in one loop, if it differs from `size`.
    pub io_size: Option<Extent>,
    /// End after this number of I/Os of each thread.
    pub number_ios: Option<u64>,
    /// Durability of writes.
    pub syncing: Syncing,
    /// Places of random I/Os.
    pub random: Randomness,
    /// Times of submission.
    pub pace: Pace,
    /// Number of I/Os submitted and completed at once.
    pub batch: Batch,
    /// The trace to replay, and how.
    pub replay: ReplayKeys,
    /// The trace, once [`Job::read_trace`] has read it.
    pub trace: Option<Arc<Trace>>,
    /// Logs to write.
    pub logs: LogKeys,
    /// Begin after the jobs before have ended.
    pub stonewall: bool,
    /// Show the jobs of this group as one.
    pub group_reporting: bool,
    /// Begin a new group for [`Job::group_reporting`].
    pub new_group: bool,
    /// The values of a sweep that this job has. They are a part of its name.
    pub sweep: Vec<(&'static str, String)>,
    /// Its number among the jobs of the sweep, from 0. All have turns one after the other.
    pub point: usize,
    /// Whether a key of its section, or of `[global]`, was not accepted.
    pub is_faulty: bool,
    pub(crate) set_keys: Vec<SetKey>,
}

impl Job {
    /// Returns the I/O priority of the job's threads, if it sets one. As in fio a level without a
    /// class is one of best effort.
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

    /// Returns whether the I/O priority of the job's threads is real time.
    pub fn is_real_time(&self) -> bool {
        matches!(self.io_priority(), Some(IoPriority::RealTime(_)))
    }

    /// Creates a job with fio's defaults and nothing set.
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
            random: Randomness { randrepeat: true, ..Randomness::default() },
            pace: Pace { thinktime_blocks: 1, ..Pace::default() },
            ..Job::default()
        }
    }

    /// Returns the keys that were set in `[global]`, the section or on the command line, under
    /// their usual names and with their values as written: fio's `job options`. Keys without effect
    /// here are left out.
    pub fn fio_options(&self) -> Vec<(String, String)> {
        self.set_keys.iter().map(|set| (set.key.to_owned(), set.value.clone())).collect()
    }

    /// Copies from `other` where each key was set, and whether one was refused.
    #[cfg(feature = "fuzzing")]
    pub fn take_origins(&mut self, other: &Job) {
        (self.set_keys, self.is_faulty) = (other.set_keys.clone(), other.is_faulty);
    }

    /// Returns whether `key` (its usual name: `bs`, not `blocksize`) was set.
    pub fn is_set(&self, key: &str) -> bool {
        self.set_keys.iter().any(|set| set.key == key)
    }

    /// Returns the programs that compete for the job's CPU: their work and number.
    pub(crate) fn rivals(&self) -> Option<(Kind, u32)> {
        let hogs = (self.hogs > 0).then_some((Kind::Tsc, self.hogs));
        self.competitor.map(|kind| (kind, 1)).or(hogs)
    }

    /// Returns the least size in bytes of a file that the job only writes, by `offset` and `size`,
    /// or 0 if they do not define one.
    pub fn extends_to_bytes(&self) -> u64 {
        let bytes = |extent: Extent| match extent {
            Extent::Bytes(bytes) => Some(bytes),
            _ => None,
        };
        let end = || bytes(self.offset)?.checked_add(bytes(self.size?)?);
        let writes_only = self.writes() && !self.reads() && !self.trims();
        end().filter(|_| writes_only).unwrap_or(0)
    }

    /// Returns whether the job issues reads.
    pub fn reads(&self) -> bool {
        matches!(self.rw, Rw::Read | Rw::RandRead)
            || (self.rw.is_mixed() && self.rwmixread_percent > 0)
    }

    /// Returns whether the job issues writes.
    pub fn writes(&self) -> bool {
        let always =
            matches!(self.rw, Rw::Write | Rw::RandWrite | Rw::TrimWrite | Rw::RandTrimWrite);
        always || (self.rw.is_mixed() && self.rwmixread_percent < 100)
    }

    /// Returns whether the job deallocates blocks. They have the size of its writes.
    pub fn trims(&self) -> bool {
        matches!(self.rw, Rw::Trim | Rw::RandTrim | Rw::TrimWrite | Rw::RandTrimWrite)
    }

    /// Returns whether the job changes the content of the device.
    pub fn changes(&self) -> bool {
        self.writes() || self.trims()
    }

    /// Returns the sizes of reads (0) or writes (1).
    pub fn sizes_of(&self, direction: usize) -> Sizes {
        let fixed_bytes = if direction == 0 { self.bs_read_bytes } else { self.bs_write_bytes };
        self.sizes[direction].clone().unwrap_or(Sizes::Fixed(fixed_bytes))
    }

    /// Returns the sizes of the directions that the job has.
    fn used_sizes(&self) -> impl Iterator<Item = Sizes> {
        let used = [(0, self.reads()), (1, self.changes())];
        used.into_iter().filter(|(_, used)| *used).map(|(direction, _)| self.sizes_of(direction))
    }

    /// Returns the largest block that this job transfers.
    pub fn bs_max_bytes(&self) -> u64 {
        self.used_sizes().map(|sizes| sizes.max_bytes()).max().unwrap_or(self.bs_read_bytes)
    }

    /// Returns the smallest block that this job transfers.
    pub fn bs_min_bytes(&self) -> u64 {
        self.used_sizes().map(|sizes| sizes.min_bytes()).min().unwrap_or(self.bs_read_bytes)
    }

    /// Returns whether blocks of one direction differ in size.
    pub fn has_varied_sizes(&self) -> bool {
        self.used_sizes().any(|sizes| !matches!(sizes, Sizes::Fixed(_)))
    }

    /// Returns an error in the value of `key`, in a file or on the command line, where the key is
    /// an option.
    pub(crate) fn error_of(&self, key: &str, what: String) -> JobError {
        let origin = self.origin_of(key);
        JobError::new(origin, Problem::InKey { key: origin.key(key), what })
    }

    pub(crate) fn origin_of(&self, key: &str) -> &Origin {
        let found = self.set_keys.iter().find(|set| set.key == key);
        found.map_or(&Origin::CommandLine, |set| &set.origin)
    }
}
