//! What groups of keys say together, as typed values.

use std::time::Duration;

use meantime_ext4::Overlap;
use meantime_hw::MemPolicy;

use super::{Extent, Payload};

/// The most zones of a zoned distribution, as in fio.
pub const ZONES_MAX: usize = 256;

/// Sizes of the I/Os of one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sizes {
    /// All the same: `bs`.
    Fixed(u64),
    /// Multiples of the first, up to the second, each as likely as the others: `bsrange`.
    Range(u64, u64),
    /// Size and its share in percent: `bssplit`.
    Split(Vec<(u64, u8)>),
}

impl Sizes {
    /// The smallest, in bytes.
    pub fn min_bytes(&self) -> u64 {
        self.ends().into_iter().min().unwrap_or(0)
    }

    /// The largest, in bytes.
    pub fn max_bytes(&self) -> u64 {
        self.ends().into_iter().max().unwrap_or(0)
    }

    /// What every size and every place is a multiple of.
    pub fn step_bytes(&self) -> u64 {
        self.ends().into_iter().fold(0, gcd)
    }

    /// All sizes, or the ends of the range. (Its last is a multiple of its first.)
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
    /// The same: a block device has no metadata to leave out.
    pub fdatasync: u64,
    /// Flush when all has been written.
    pub end_fsync: bool,
    /// Every write is durable when it is done (`sync`): FUA.
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
    /// Each block as likely as the others.
    #[default]
    Uniform,
    /// Zipf's law.
    Zipf {
        /// θ, in millionths.
        theta_ppm: u64,
        /// Where the most popular one is, as a part of the range in millionths; `None`: anywhere.
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
    /// Shares of the accesses for parts of the range, of reads and of writes; lengths in percent.
    Zoned([Vec<Zone>; 2]),
    /// The same with lengths in bytes.
    ZonedAbs([Vec<Zone>; 2]),
}

/// `random_generator`. All are the same generator here; without `norandommap` all visit each block
/// once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Generator {
    /// With `norandommap` each place is drawn for itself.
    #[default]
    Tausworthe,
    /// Visits each block once even then.
    Lfsr,
}

/// Where random I/Os go.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Randomness {
    /// How likely each place is.
    pub distribution: Distribution,
    /// A place may be visited again before all have been.
    pub norandommap: bool,
    /// The generator.
    pub generator: Generator,
    /// The same in every run.
    pub randrepeat: bool,
    /// The seed, if one was chosen.
    pub randseed: Option<u64>,
}

/// What else says where I/Os go: `rw=…:N`, `rw_sequencer`, `blockalign`, `offset_increment`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Places {
    /// Added to the place of each I/O of a sequence, in bytes; negative: backwards.
    pub skip_bytes: i64,
    /// The number of I/Os that follow each random place.
    pub run: u64,
    /// All of them are at that place (`identical`), not one after the other.
    pub identical: bool,
    /// What random places of reads and writes are multiples of; `None`: the smallest size.
    pub align_bytes: [Option<u64>; 2],
    /// How far after the thread before each thread begins.
    pub offset_increment: Extent,
}

/// `exitall` and `exit_what`: which jobs end when this one has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exit {
    /// Those of its reporting group.
    #[default]
    Group,
    /// Those that run at the same time.
    Stonewall,
    /// All, and those to come.
    All,
}

/// `steadystate`: the job ends when its speed has been the same for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Steady {
    /// Bytes per second, not I/Os.
    pub bandwidth: bool,
    /// The slope of its line over time, not its greatest deviation from the mean.
    pub slope: bool,
    /// The deviation or the slope must be below this limit. The unit is a millionth: of a percent
    /// of the mean if `percent` is set, else of one I/O or byte per second.
    pub limit_ppm: u64,
    /// Whether the limit is relative to the mean.
    pub percent: bool,
}

/// `thinktime`, `rate` and their kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pace {
    /// How long a pause is.
    pub thinktime: Duration,
    /// How much of it, at its beginning, is spent busily.
    pub thinktime_spin: Duration,
    /// The number of I/Os between two pauses.
    pub thinktime_blocks: u64,
    /// The most reads and writes per second.
    pub rate_iops: [Option<u64>; 2],
    /// The most bytes read and written per second.
    pub rate_bytes: [Option<u64>; 2],
    /// The time between two I/Os of a rate is drawn (a Poisson process), not always the same.
    pub poisson: bool,
}

impl Pace {
    /// Whether anything is capped.
    pub fn is_rated(&self) -> bool {
        self.rate_iops.iter().chain(&self.rate_bytes).any(Option::is_some)
    }
}

/// `latency_target` and its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LatencyTarget {
    /// The latency to keep; `None`: whatever it is.
    pub target: Option<Duration>,
    /// How long each depth is tried.
    pub window: Duration,
    /// The share of the I/Os that must keep it, in millionths of a percent.
    pub percentile_ppm: u64,
    /// Go on when the depth is found.
    pub run: bool,
}

/// `iodepth_batch` and its kind. `None`: as it suits the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Batch {
    /// The number submitted at once; 0: all there is room for.
    pub submit: Option<u32>,
    /// The least number waited for; 0: look, do not wait.
    pub complete_min: Option<u32>,
    /// The most taken at once.
    pub complete_max: Option<u32>,
    /// Once full, the number still in flight when submitting begins again.
    pub low: Option<u32>,
}

impl Batch {
    /// Whether any was set.
    pub fn is_set(&self) -> bool {
        *self != Batch::default()
    }
}

/// The first part of a log's file name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogName {
    /// The job's name.
    OfJob,
    /// As given; may lead into another directory.
    Named(String),
}

/// Which logs to write, and how.
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
    /// How long an average covers; 0: log each I/O.
    pub avg_ms: u64,
    /// How long a histogram covers.
    pub hist_ms: u64,
    /// How often to halve the number of a histogram's bins.
    pub hist_coarseness: u8,
    /// The offset in each line.
    pub offset: bool,
    /// The greatest of a window, not its average.
    pub max_value: bool,
    /// Each I/O's priority, as the kernel has it, not only whether it is real time.
    pub prio: bool,
    /// A file for each thread.
    pub per_job: bool,
}

impl LogKeys {
    /// Whether any log has I/Os or averages of them.
    pub(crate) fn has_values(&self) -> bool {
        self.lat.is_some() || self.bw.is_some() || self.iops.is_some()
    }

    /// Whether there is any log.
    pub fn any(&self) -> bool {
        self.has_values() || self.hist.is_some()
    }
}

/// `do_verify`, `verify_interval`, `verify_pattern`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VerifyKeys {
    /// What is read is checked.
    pub checks: bool,
    /// The distance between headers, in bytes. `None`: each block has one header.
    pub interval_bytes: Option<u64>,
    /// What blocks hold beside their headers; `None`: random data.
    pub payload: Option<Payload>,
}

/// `flow` and its kind: jobs of one flow have shares of its I/Os.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FlowKeys {
    /// This share, in relation to the others'; 0: it belongs to no flow.
    pub weight: u32,
    /// Which flow.
    pub id: u32,
    /// How long a thread that is ahead sleeps.
    pub sleep: Duration,
}

/// `numa_cpu_nodes` and `numa_mem_policy`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NumaKeys {
    /// On the CPUs of these nodes, ascending; empty: any.
    pub cpu_nodes: Vec<u32>,
    /// Where memory comes from; `None`: the policy of the process.
    pub policy: Option<MemPolicy>,
}

/// `fadvise_hint`: the advice on a file's reads to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hint {
    /// Nothing.
    None,
    /// What `rw` is, as in fio.
    #[default]
    ByPattern,
    /// Random.
    Random,
    /// Sequential.
    Sequential,
}

/// How a file in a file system is read: `direct`, `overlap`, `cache`, `fadvise_hint`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileKeys {
    /// Past the page cache; `None`: as fio, through it. A device has none.
    pub direct: Option<bool>,
    /// Our own key: which steps of the read path are taken while the device works.
    pub overlap: Overlap,
    /// Our own key: memory of the page cache.
    pub cache_bytes: usize,
    /// The advice on the reads to come.
    pub hint: Hint,
}
