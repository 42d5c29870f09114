//! Groups of keys as typed values.

use std::time::Duration;

use meantime_ext4::{CommitOverlap, Overlap};
use meantime_hw::MemPolicy;

use super::{Extent, Payload};

/// The maximum number of zones of a zoned distribution, as in fio.
pub const ZONES_MAX: usize = 256;

/// Sizes of the I/Os of one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sizes {
    /// All equal: `bs`.
    Fixed(u64),
    /// Multiples of the first, up to the second, all equally likely: `bsrange`.
    Range(u64, u64),
    /// Each size with its share in percent: `bssplit`.
    Split(Vec<(u64, u8)>),
}

impl Sizes {
    /// Returns the smallest size, in bytes.
    pub fn min_bytes(&self) -> u64 {
        self.ends().into_iter().min().unwrap_or(0)
    }

    /// Returns the largest size, in bytes.
    pub fn max_bytes(&self) -> u64 {
        self.ends().into_iter().max().unwrap_or(0)
    }

    /// Returns the size that every size and every place is a multiple of.
    pub fn step_bytes(&self) -> u64 {
        self.ends().into_iter().fold(0, gcd)
    }

    /// Returns all sizes, or the ends of the range. (The last is a multiple of the first.)
    fn ends(&self) -> Vec<u64> {
        match self {
            Sizes::Fixed(bytes) => vec![*bytes],
            Sizes::Range(first, last) => vec![*first, *last],
            Sizes::Split(shares) => shares.iter().map(|(bytes, _)| *bytes).collect(),
        }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// `fsync`, `fdatasync`, `sync`, `end_fsync`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Syncing {
    /// Flush after this number of writes; 0: never.
    pub fsync: u64,
    /// As `fsync`: a block device has no metadata to leave out. A file has.
    pub fdatasync: u64,
    /// Flush at the end.
    pub end_fsync: bool,
    /// Every write is durable when it completes (`sync`): FUA.
    pub fua: bool,
}

/// A zone: its share of the accesses, and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zone {
    /// Share of the accesses, in percent.
    pub access_percent: u8,
    /// Percent of the range, or bytes.
    pub length: u64,
}

/// `random_distribution`. Real numbers are kept in millionths, so that jobs can be compared.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Distribution {
    /// All blocks equally likely.
    #[default]
    Uniform,
    /// Zipf's law.
    Zipf {
        /// θ, in millionths.
        theta_ppm: u64,
        /// Place of the most popular block, as a part of the range in millionths; `None`: anywhere.
        center_ppm: Option<u64>,
    },
    /// A power law.
    Pareto {
        /// The power h, in millionths.
        h_ppm: u64,
        /// As for Zipf.
        center_ppm: Option<u64>,
    },
    /// Bell-shaped.
    Normal {
        /// The deviation in percent of the range, in millionths.
        deviation_ppm: u64,
        /// As for Zipf; `None`: the middle.
        center_ppm: Option<u64>,
    },
    /// Shares of the accesses for parts of the range, for reads and for writes; lengths in percent.
    Zoned([Vec<Zone>; 2]),
    /// As `Zoned`, with lengths in bytes.
    ZonedAbs([Vec<Zone>; 2]),
}

/// `random_generator`. All names mean the same generator here; without `norandommap` all visit each
/// block once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Generator {
    /// With `norandommap` each place is drawn independently.
    #[default]
    Tausworthe,
    /// Visits each block once even with `norandommap`.
    Lfsr,
}

/// The places of random I/Os.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Randomness {
    /// The likelihood of each place.
    pub distribution: Distribution,
    /// Whether a place may be visited again before all others were visited.
    pub norandommap: bool,
    /// The generator.
    pub generator: Generator,
    /// Equal in every run.
    pub randrepeat: bool,
    /// The seed, if one is set.
    pub randseed: Option<u64>,
}

/// Other keys for the places of I/Os: `rw=…:N`, `rw_sequencer`, `blockalign`, `offset_increment`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Places {
    /// Added to the place of each I/O of a sequence, in bytes; negative: backwards.
    pub skip_bytes: i64,
    /// The number of I/Os that follow each random place.
    pub run: u64,
    /// Whether all of them go to that place (`identical`), not one after the other.
    pub identical: bool,
    /// Sizes that random places of reads and writes are multiples of; `None`: the smallest size.
    pub align_bytes: [Option<u64>; 2],
    /// Distance between the starts of two threads.
    pub offset_increment: Extent,
}

/// `exitall` and `exit_what`: the jobs that end with this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exit {
    /// The jobs of its reporting group.
    #[default]
    Group,
    /// The jobs that run at the same time.
    Stonewall,
    /// All jobs, also later ones.
    All,
}

/// `steadystate`: the job ends when its speed has been constant for some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steady {
    /// Judge bytes per second, not I/Os.
    pub bandwidth: bool,
    /// Judge the slope over time, not the greatest deviation from the mean.
    pub slope: bool,
    /// The deviation or the slope must be below this limit. The unit is a millionth: of a percent
    /// of the mean if `percent` is set, else of one I/O or byte per second.
    pub limit_ppm: u64,
    /// Whether the limit is relative to the mean.
    pub percent: bool,
}

/// `thinktime`, `rate` and related keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pace {
    /// Length of a pause.
    pub thinktime: Duration,
    /// Part of a pause, at its beginning, that the thread spins.
    pub thinktime_spin: Duration,
    /// The number of I/Os between two pauses.
    pub thinktime_blocks: u64,
    /// The maximum number of reads and of writes per second.
    pub rate_iops: [Option<u64>; 2],
    /// The maximum number of bytes read and written per second.
    pub rate_bytes: [Option<u64>; 2],
    /// Whether the time between two I/Os of a rate is drawn (a Poisson process), not constant.
    pub poisson: bool,
}

impl Pace {
    /// Returns whether any rate is limited.
    pub fn is_rated(&self) -> bool {
        self.rate_iops.iter().chain(&self.rate_bytes).any(Option::is_some)
    }
}

/// `latency_target` and related keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LatencyTarget {
    /// The latency to keep; `None`: no target.
    pub target: Option<Duration>,
    /// Time for which each depth is tried.
    pub window: Duration,
    /// The share of the I/Os that must keep it, in millionths of a percent.
    pub percentile_ppm: u64,
    /// Whether to continue after the depth is found.
    pub run: bool,
}

/// `iodepth_batch` and related keys. `None`: the loop decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Batch {
    /// The number submitted at once; 0: as many as there are free slots.
    pub submit: Option<u32>,
    /// The minimum number waited for; 0: look, do not wait.
    pub complete_min: Option<u32>,
    /// The maximum number completed at once.
    pub complete_max: Option<u32>,
    /// When full, submit again after the number in flight has fallen to this.
    pub low: Option<u32>,
}

impl Batch {
    /// Returns whether any key was set.
    pub fn is_set(&self) -> bool {
        *self != Batch::default()
    }
}

/// The first part of a log's file name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogName {
    /// The job's name.
    OfJob,
    /// The given name; may contain a directory.
    Named(String),
}

/// The logs to write, and their format.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogKeys {
    /// `_lat`, `_slat` and `_clat`.
    pub lat: Option<LogName>,
    /// `_bw`.
    pub bw: Option<LogName>,
    /// `_iops`.
    pub iops: Option<LogName>,
    /// `_clat_hist`.
    pub hist: Option<LogName>,
    /// Length of an average; 0: log each I/O.
    pub avg_ms: u64,
    /// Length of a histogram.
    pub hist_ms: u64,
    /// Number of times that the number of a histogram's bins is halved.
    pub hist_coarseness: u8,
    /// Write the offset in each line.
    pub offset: bool,
    /// Log the maximum of a window, not its average.
    pub max_value: bool,
    /// Log each I/O's priority in the kernel's encoding, not only whether it is real time.
    pub prio: bool,
    /// Write a file for each thread.
    pub per_job: bool,
}

impl LogKeys {
    /// Returns whether any log has I/Os or averages of them.
    pub(crate) fn has_values(&self) -> bool {
        self.lat.is_some() || self.bw.is_some() || self.iops.is_some()
    }

    /// Returns whether there is any log.
    pub fn any(&self) -> bool {
        self.has_values() || self.hist.is_some()
    }
}

/// `do_verify`, `verify_interval`, `verify_pattern`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VerifyKeys {
    /// Whether data that is read is checked.
    pub checks: bool,
    /// The distance between headers, in bytes. `None`: each block has one header.
    pub interval_bytes: Option<u64>,
    /// The content of blocks besides their headers; `None`: random data.
    pub payload: Option<Payload>,
}

/// `flow` and related keys: jobs of one flow share its I/Os by weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowKeys {
    /// This job's weight; 0: it belongs to no flow.
    pub weight: u32,
    /// The flow's number.
    pub id: u32,
    /// Time for which a thread that is ahead sleeps.
    pub sleep: Duration,
}

/// `numa_cpu_nodes` and `numa_mem_policy`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NumaKeys {
    /// Nodes whose CPUs the threads run on, ascending; empty: any.
    pub cpu_nodes: Vec<u32>,
    /// Policy for memory; `None`: the policy of the process.
    pub policy: Option<MemPolicy>,
}

/// `fadvise_hint`: the advice on a file's future reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hint {
    /// No advice.
    None,
    /// By `rw`, as in fio.
    #[default]
    ByPattern,
    /// Random.
    Random,
    /// Sequential.
    Sequential,
}

/// How a file in a file system is read and written: `direct`, `overlap`, `cache`, `fadvise_hint`,
/// `commit_overlap`, `fast_commit`, `deferrable`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileKeys {
    /// Whether to bypass the page cache; `None`: no, as in fio. A device has no page cache.
    pub direct: Option<bool>,
    /// Our own key: the steps of the read path that run while the device works.
    pub overlap: Overlap,
    /// Our own key: size of the page cache.
    pub cache_bytes: usize,
    /// The advice on future reads.
    pub hint: Hint,
    /// Our own key: the waits of a commit that are moved from their classic places.
    pub commit_overlap: CommitOverlap,
    /// Our own key: commit changes of single files as fast commits.
    pub fast_commit: bool,
    /// Our own key: time what reads could leave for the gap.
    pub times_deferrable: bool,
}
