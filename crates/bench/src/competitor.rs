//! What a competing program does, and how a run controls several of them.

use std::fmt;
use std::ops::{AddAssign, Sub};
use std::str::FromStr;
use std::time::Duration;

use meantime_block::parse_bytes;

/// The largest working set.
const WALK_MAX_BYTES: u64 = 1 << 32;

/// What a competitor does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Reads the time stamp counter, and nothing else: a unit of work is a reading.
    Tsc,
    /// Walks and writes a working set in random order, which empties caches and TLB for its
    /// neighbour, and suffers from them being emptied: a unit of work is a cache line.
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
        let wrong = || {
            format!("{text:?} is no competitor: use tsc, or walk=BYTES (4k to 4g, e.g. walk=4m)")
        };
        let bytes = text.strip_prefix("walk=").and_then(parse_bytes).ok_or_else(wrong)?;
        if (4096..=WALK_MAX_BYTES).contains(&bytes) {
            Ok(Self::Walk { bytes })
        } else {
            Err(wrong())
        }
    }
}

/// What a competitor has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sample {
    /// When this was looked at.
    pub at_ns: u64,
    /// Units of work.
    pub work: u64,
    /// Time in which it ran.
    pub ran_ns: u64,
    /// Times it did not run, the scheduler's and the interrupts' alike; pauses do not count.
    pub gaps: u64,
    /// How long it did not run.
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
    /// Of a difference: work per second of wall time.
    pub fn work_per_second(&self) -> f64 {
        if self.at_ns == 0 { 0.0 } else { self.work as f64 * 1e9 / self.at_ns as f64 }
    }

    /// Of a difference: the part of wall time in which it ran, in percent.
    pub fn share_percent(&self) -> f64 {
        if self.at_ns == 0 { 0.0 } else { self.ran_ns as f64 * 100.0 / self.at_ns as f64 }
    }
}

/// Programs that compete with jobs for one CPU, and with each other. Errors are in words.
pub trait Competitors: Sized {
    /// Starts `count` of them on `cpu`; they are paused when this returns.
    ///
    /// # Errors
    /// One cannot be started.
    fn start(cpu: usize, kind: Kind, count: u32) -> Result<Self, String>;
    /// What they have done so far, together. Take differences.
    fn sample(&self) -> Sample;
    /// Whether all of them still run.
    ///
    /// # Errors
    /// One has ended.
    fn check(&mut self) -> Result<(), String>;
    /// What they do in `duration` when nothing else competes: the caller sleeps meanwhile. They
    /// must be paused, and are again.
    fn alone(&mut self, duration: Duration) -> Sample;
    /// Stops them for a while.
    fn pause(&mut self);
    /// Lets them go on.
    fn resume(&mut self);
}
