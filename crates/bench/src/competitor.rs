//! The work of a competing program, and how a run controls several of them.

use std::fmt;
use std::ops::{AddAssign, Sub};
use std::str::FromStr;
use std::time::Duration;

use meantime_block::parse_bytes;

/// The largest working set.
const WALK_MAX_BYTES: u64 = 1 << 32;

/// The work of a competitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Reads only the time stamp counter: a unit of work is a reading.
    Tsc,
    /// Walks and writes a working set in random order, which evicts the neighbour's caches and TLB
    /// entries and suffers from its own evictions: a unit of work is a cache line.
    Walk {
        /// Size of the working set.
        bytes: u64,
    },
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tsc => f.write_str("tsc"),
            Self::Walk { bytes } if bytes.is_multiple_of(1 << 20) => {
                write!(f, "walk={}m", bytes >> 20)
            }
            Self::Walk { bytes } if bytes.is_multiple_of(1 << 10) => {
                write!(f, "walk={}k", bytes >> 10)
            }
            Self::Walk { bytes } => write!(f, "walk={bytes}"),
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "tsc" {
            return Ok(Self::Tsc);
        }
        let bytes = text.strip_prefix("walk=").and_then(parse_bytes);
        let fits = bytes.filter(|bytes| (4096..=WALK_MAX_BYTES).contains(bytes));
        fits.map(|bytes| Self::Walk { bytes }).ok_or_else(|| {
            format!("{text:?} is no competitor: use tsc, or walk=BYTES (4k to 4g, e.g. walk=4m)")
        })
    }
}

/// Counters of a competitor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    /// Time of this sample.
    pub at_ns: u64,
    /// Units of work.
    pub work: u64,
    /// Time during which it ran.
    pub ran_ns: u64,
    /// Number of times it did not run, because of the scheduler or of interrupts; pauses do not
    /// count.
    pub gaps: u64,
    /// Time during which it did not run.
    pub gap_ns: u64,
}

impl Sub for Sample {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            at_ns: self.at_ns - before.at_ns,
            work: self.work - before.work,
            ran_ns: self.ran_ns - before.ran_ns,
            gaps: self.gaps - before.gaps,
            gap_ns: self.gap_ns - before.gap_ns,
        }
    }
}

impl AddAssign for Sample {
    fn add_assign(&mut self, other: Self) {
        self.at_ns += other.at_ns;
        self.work += other.work;
        self.ran_ns += other.ran_ns;
        self.gaps += other.gaps;
        self.gap_ns += other.gap_ns;
    }
}

impl Sample {
    /// Returns the work per second of wall time, for a difference of samples.
    pub fn work_per_second(&self) -> f64 {
        if self.at_ns == 0 { 0.0 } else { self.work as f64 * 1e9 / self.at_ns as f64 }
    }

    /// Returns the percentage of wall time in which it ran, for a difference of samples.
    pub fn share_percent(&self) -> f64 {
        if self.at_ns == 0 { 0.0 } else { self.ran_ns as f64 * 100.0 / self.at_ns as f64 }
    }
}

/// Programs that compete with jobs for one CPU, and with each other. Errors are texts.
pub trait Competitors: Sized {
    /// Starts `count` of them on `cpu`; they are paused when this returns.
    ///
    /// # Errors
    /// Returns an error if one cannot be started.
    fn start(cpu: usize, kind: Kind, count: u32) -> Result<Self, String>;
    /// Returns the sum of their counters so far. Take differences.
    fn sample(&self) -> Sample;
    /// Checks that all of them still run.
    ///
    /// # Errors
    /// Returns an error if one has ended.
    fn check(&mut self) -> Result<(), String>;
    /// Returns their counters for `duration` without other competition: the caller sleeps
    /// meanwhile. They must be paused, and are paused afterwards.
    fn alone(&mut self, duration: Duration) -> Sample;
    /// Pauses them.
    fn pause(&mut self);
    /// Resumes them.
    fn resume(&mut self);
}
