//! fio job files: what a `[job]` section says, as typed values.
//!
//! [`parse()`] reads a whole file, [`Job::set`] is the single place that knows the keys (the command line's
//! `--bs 4k` goes through it too), and [`Job::validate`] finds keys that contradict each other once everything
//! is set. Nothing here does I/O and nothing here panics, whatever the text.

pub mod error;
mod keys;
mod parse;
mod validate;
mod value;

#[cfg(test)]
mod tests;

use std::time::Duration;

pub use error::{JobError, Origin};
pub use parse::parse;

/// The largest queue depth a job may ask for.
pub const IODEPTH_MAX: u32 = 1024;
/// The largest number of clones of a job.
pub const NUMJOBS_MAX: u32 = 1024;
/// The largest number of job sections in one file.
pub const JOBS_MAX: usize = 1024;
/// The highest CPU number `cpus_allowed` may name.
pub const CPU_MAX: u32 = 4095;
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
}

impl Rw {
    /// fio's word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Rw::Read => "read",
            Rw::Write => "write",
            Rw::RandRead => "randread",
            Rw::RandWrite => "randwrite",
            Rw::Rw => "rw",
            Rw::RandRw => "randrw",
        }
    }

    /// Whether the I/Os go to random places.
    pub fn is_random(self) -> bool {
        matches!(self, Rw::RandRead | Rw::RandWrite | Rw::RandRw)
    }

    /// Whether reads and writes are mixed.
    pub fn is_mixed(self) -> bool {
        matches!(self, Rw::Rw | Rw::RandRw)
    }
}

/// fio's `verify`: how written data is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Verify {
    /// Not at all.
    #[default]
    None,
    /// Every block carries its CRC-32C.
    Crc32c,
}

/// A place or length on a device: bytes, or a part of the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// So many bytes.
    Bytes(u64),
    /// So many percent of the device, 0 to 100.
    Percent(u8),
}

impl Extent {
    /// In bytes, on a device of `device_bytes`; a percentage is rounded down to a multiple of `align_bytes`.
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

/// A key as it was set: last value and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SetKey {
    key: &'static str,
    value: String,
    origin: Origin,
}

/// One job: a `[section]` with its defaults from `[global]`, or what the command line says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The section's name, or `name=`.
    pub name: String,
    /// Direction and order; `read` unless set, as in fio.
    pub rw: Rw,
    /// Size of each read; 4096 unless set.
    pub bs_read_bytes: u64,
    /// Size of each write; 4096 unless set.
    pub bs_write_bytes: u64,
    /// I/Os in flight; 1 unless set.
    pub iodepth: u32,
    /// Clones of this job, each with a thread and queue pair of its own; 1 unless set.
    pub numjobs: u32,
    /// How much of the device to use, and to transfer in one loop; the rest of the device unless set.
    pub size: Option<Extent>,
    /// Where on the device to begin; 0 unless set.
    pub offset: Extent,
    /// End after this time. `None`: when `size` has been transferred.
    pub runtime: Option<Duration>,
    /// Go on until `runtime` even when `size` has been transferred.
    pub time_based: bool,
    /// Run for this long before anything is recorded.
    pub ramp_time: Duration,
    /// Share of reads in a mixed job, in percent; 50 unless set.
    pub rwmixread_percent: u8,
    /// How written data is checked.
    pub verify: Verify,
    /// CPUs this job may run on, ascending, each once; empty: any.
    pub cpus_allowed: Vec<u32>,
    /// The device's URI. The whole value: `:` separates nothing here.
    pub filename: Option<String>,
    /// How many times to do the whole job; 1 unless set.
    pub loops: u64,
    /// Our own key: the completion policies to compare, as written (`interrupt,poll,hybrid=2us`).
    pub completion: Option<String>,
    pub(crate) set_keys: Vec<SetKey>,
}

impl Job {
    /// A job with fio's defaults and nothing set.
    pub fn new(name: &str) -> Job {
        Job {
            name: name.to_owned(),
            rw: Rw::default(),
            bs_read_bytes: 4096,
            bs_write_bytes: 4096,
            iodepth: 1,
            numjobs: 1,
            size: None,
            offset: Extent::Bytes(0),
            runtime: None,
            time_based: false,
            ramp_time: Duration::ZERO,
            rwmixread_percent: 50,
            verify: Verify::None,
            cpus_allowed: Vec::new(),
            filename: None,
            loops: 1,
            completion: None,
            set_keys: Vec::new(),
        }
    }

    /// The keys that were set, from `[global]`, the section or the command line, under their usual names and with
    /// their values as written: what fio lists as `job options`. Keys without effect here are left out.
    pub fn fio_options(&self) -> Vec<(String, String)> {
        self.set_keys.iter().map(|set| (set.key.to_owned(), set.value.clone())).collect()
    }

    /// Whether `key` (its usual name: `bs`, not `blocksize`) was set.
    pub fn is_set(&self, key: &str) -> bool {
        self.set_keys.iter().any(|set| set.key == key)
    }

    /// Whether the job issues reads.
    pub fn reads(&self) -> bool {
        matches!(self.rw, Rw::Read | Rw::RandRead) || (self.rw.is_mixed() && self.rwmixread_percent > 0)
    }

    /// Whether the job issues writes.
    pub fn writes(&self) -> bool {
        matches!(self.rw, Rw::Write | Rw::RandWrite) || (self.rw.is_mixed() && self.rwmixread_percent < 100)
    }

    /// The largest block this job transfers.
    pub fn bs_max_bytes(&self) -> u64 {
        match (self.reads(), self.writes()) {
            (true, false) => self.bs_read_bytes,
            (false, true) => self.bs_write_bytes,
            _ => self.bs_read_bytes.max(self.bs_write_bytes),
        }
    }

    pub(crate) fn origin_of(&self, key: &str) -> Option<&Origin> {
        self.set_keys.iter().find(|set| set.key == key).map(|set| &set.origin)
    }
}
