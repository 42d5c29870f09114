//! Groups of keys as typed values.

use std::time::Duration;

use meantime_ext4::{CommitOverlap, Overlap};

use super::Payload;

/// Sizes of the I/Os of one direction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sizes {
    /// All equal: `bs`.
    Fixed(u64),
    /// Each size with its share in percent: `bssplit`.
    Split(Vec<(u64, u8)>),
}

impl Sizes {
    /// Returns the smallest size, in bytes.
    pub fn min_bytes(&self) -> u64 {
        self.all().min().unwrap_or(0)
    }

    /// Returns the largest size, in bytes.
    pub fn max_bytes(&self) -> u64 {
        self.all().max().unwrap_or(0)
    }

    /// Returns the size that every size and every place is a multiple of.
    pub fn step_bytes(&self) -> u64 {
        self.all().fold(0, gcd)
    }

    /// Returns all sizes, each with its share in percent.
    pub(crate) fn shares(&self) -> Vec<(u64, u8)> {
        match self {
            Sizes::Fixed(bytes) => vec![(*bytes, 100)],
            Sizes::Split(shares) => shares.clone(),
        }
    }

    fn all(&self) -> impl Iterator<Item = u64> {
        self.shares().into_iter().map(|(bytes, _)| bytes)
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

/// The places of random I/Os.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Randomness {
    /// Whether a place may be visited again before all others were visited.
    pub norandommap: bool,
    /// Equal in every run.
    pub randrepeat: bool,
    /// The seed, if one is set.
    pub randseed: Option<u64>,
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

/// `iodepth_batch` and related keys. `None`: the loop decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Batch {
    /// The number submitted at once; 0: as many as there are free slots.
    pub submit: Option<u32>,
    /// The minimum number waited for; 0: look, do not wait.
    pub complete_min: Option<u32>,
    /// The maximum number completed at once.
    pub complete_max: Option<u32>,
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
    /// The beginning of the names of `_lat`, `_slat` and `_clat`; `None`: no log.
    pub lat: Option<LogName>,
    /// Length of an average; 0: log each I/O.
    pub avg_ms: u64,
    /// Write the offset in each line.
    pub offset: bool,
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
