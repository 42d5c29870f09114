//! Types for the values of keys: limits, single values, and groups of keys.

use std::time::Duration;

use meantime_ext4::{CommitOverlap, Overlap};

use super::Payload;

/// The largest queue depth of any device. A queue pair has 1,024 command slots, one of which is for
/// the parts of split requests. For a device with shorter queues the check of the job refuses more.
pub const IODEPTH_MAX: u32 = 1023;
/// The largest number of clones of a job.
pub const NUMJOBS_MAX: u32 = 1024;
/// The largest number of job sections in one file.
pub const JOBS_MAX: usize = 1024;
/// The highest CPU number `cpus_allowed` may name.
pub const CPU_MAX: u32 = 4095;
/// The maximum number of CPU-bound programs that compete with a job.
pub const HOGS_MAX: u32 = 64;
/// The largest limit on idling, in µs. Beyond it the kernel has no limit.
pub const PM_QOS_MAX_US: u32 = 1_999_999_999;
/// The maximum number of values of `sched` and of `pm_qos` that are compared.
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
    /// Sequential trims, by which blocks are deallocated.
    Trim,
    /// Random trims.
    RandTrim,
    /// Sequential, each place trimmed and then written.
    TrimWrite,
    /// Random, each place trimmed and then written.
    RandTrimWrite,
}

impl Rw {
    /// fio's words. The first one of each is the usual one.
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

    /// Returns fio's word for it.
    pub fn as_str(self) -> &'static str {
        Self::WORDS.iter().find(|(_, rw)| *rw == self).map_or("", |(word, _)| word)
    }

    /// Returns whether the I/Os go to random places.
    pub fn is_random(self) -> bool {
        matches!(self, Rw::RandRead | Rw::RandWrite | Rw::RandRw | Rw::RandTrim | Rw::RandTrimWrite)
    }

    /// Returns whether reads and writes are mixed.
    pub(crate) fn is_mixed(self) -> bool {
        matches!(self, Rw::Rw | Rw::RandRw)
    }
}

/// fio's `verify`, which says how written data is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verify {
    /// Written data is not checked.
    #[default]
    None,
    /// Every block carries its place and number.
    Meta,
    /// Every block carries place and number, and the rest is `verify_pattern`.
    PatternHdr,
    /// Every block is `verify_pattern` only.
    Pattern,
    /// Every block carries place and number, and its CRC-32C.
    Crc32c,
    /// Every block carries place and number, and its digest by fio's CRC-64.
    Crc64,
    /// Every block carries place and number, and its digest by MD5.
    Md5,
    /// Every block carries place and number, and its digest by SHA-256.
    Sha256,
}

/// A place or length on a device, in bytes or as a part of the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// In bytes.
    Bytes(u64),
    /// In percent of the device, 0 to 100.
    Percent(u8),
}

impl Default for Extent {
    fn default() -> Self {
        Extent::Bytes(0)
    }
}

impl Extent {
    /// Returns the bytes on a device of `device_bytes`. A percentage is rounded down to a multiple
    /// of `align_bytes`.
    pub fn resolve_bytes(self, device_bytes: u64, align_bytes: u64) -> u64 {
        match self {
            Extent::Bytes(bytes) => bytes,
            Extent::Percent(percent) => {
                let bytes = (u128::from(device_bytes) * u128::from(percent.min(100)) / 100) as u64;
                bytes - bytes % align_bytes.max(1)
            }
        }
    }
}

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
    /// The number of writes after which to flush, or 0 for never.
    pub fsync: u64,
    /// Like `fsync` for a block device, which has no metadata to leave out. A file has metadata.
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

/// `iodepth_batch` and related keys. With `None` the loop decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Batch {
    /// The number submitted at once, or 0 for as many as there are free slots.
    pub submit: Option<u32>,
    /// The minimum number for which to wait, or 0 to poll without waiting.
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
    /// The given name, which may contain a directory.
    Named(String),
}

/// The logs to write, and their format.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogKeys {
    /// The beginning of the names of `_lat`, `_slat` and `_clat`, or `None` for no log.
    pub lat: Option<LogName>,
    /// Length of an average, or 0 to log each I/O.
    pub avg_ms: u64,
    /// Write the offset in each line.
    pub offset: bool,
}

/// `do_verify`, `verify_interval`, `verify_pattern`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VerifyKeys {
    /// Whether data that is read is checked.
    pub checks: bool,
    /// The distance between headers, in bytes, or `None` if each block has one header.
    pub interval_bytes: Option<u64>,
    /// The content of blocks besides their headers, or `None` for random data.
    pub payload: Option<Payload>,
}

/// `fadvise_hint`: the advice on a file's future reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hint {
    /// No advice.
    None,
    /// The advice follows `rw`, as in fio.
    #[default]
    ByPattern,
    /// Random.
    Random,
    /// Sequential.
    Sequential,
}

/// The keys for reading and writing a file in a file system: `direct`, `overlap`, `cache`,
/// `fadvise_hint`, `commit_overlap`, `fast_commit` and `deferrable`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileKeys {
    /// Whether to bypass the page cache. `None` means no, as in fio. A device has no page cache.
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
