//! What a thread counts while it does I/O.

use crate::report::DirStats;
use crate::report::stats::depth_level;

use super::pattern::{Dir, Io};

/// Latencies of both directions, and the depths that were reached.
#[derive(Debug, Default)]
pub struct Tally {
    /// Reads.
    pub read: DirStats,
    /// Writes.
    pub write: DirStats,
    /// I/Os by depth at submission, in fio's steps.
    pub depths: [u64; 7],
}

impl Tally {
    /// Records one I/O: from before its submission to the doorbell, and on until it was seen.
    #[inline(always)]
    pub fn record(&mut self, io: &Io, slat_ns: u64, clat_ns: u64) {
        let stats = match io.dir {
            Dir::Read => &mut self.read,
            Dir::Write => &mut self.write,
        };
        stats.ios += 1;
        stats.bytes += io.bytes as u64;
        stats.slat.record(slat_ns);
        stats.clat.record(clat_ns);
        stats.lat.record(slat_ns + clat_ns);
    }

    /// Counts `ios` that were submitted at a depth of `depth`.
    #[inline(always)]
    pub fn record_depth(&mut self, depth: usize, ios: u64) {
        self.depths[depth_level(depth as u32)] += ios;
    }

    /// I/Os of both directions.
    pub fn ios(&self) -> u64 {
        self.read.ios + self.write.ios
    }

    /// Bytes of both directions.
    pub fn bytes(&self) -> u64 {
        self.read.bytes + self.write.bytes
    }

    /// The median latency of both directions in ns.
    pub fn median_ns(&self) -> u64 {
        match (self.read.ios, self.write.ios) {
            (_, 0) => self.read.lat.percentile_ns(50.0),
            (0, _) => self.write.lat.percentile_ns(50.0),
            _ => {
                let mut both = self.read.lat.clone();
                both.merge(&self.write.lat);
                both.percentile_ns(50.0)
            }
        }
    }

    /// Adds what `other` counted.
    pub fn merge(&mut self, other: &Self) {
        // A histogram that nothing was recorded in need not be walked through.
        for (ours, theirs) in [(&mut self.read, &other.read), (&mut self.write, &other.write)] {
            if theirs.ios > 0 {
                ours.merge(theirs);
            }
        }
        for (ours, theirs) in self.depths.iter_mut().zip(other.depths) {
            *ours += theirs;
        }
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        for stats in [&mut self.read, &mut self.write] {
            if stats.ios > 0 {
                (stats.ios, stats.bytes) = (0, 0);
                stats.slat.reset();
                stats.clat.reset();
                stats.lat.reset();
            }
        }
        self.depths = [0; 7];
    }
}
