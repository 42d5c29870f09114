//! Statistics of many time lines.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::Serialize;

use super::timeline::{PARTS, TimeLine};
use crate::competitor::Sample;
use meantime_report::run::{LatencyStats, SLOWEST_ONE_IN};

/// Number of slowest I/Os that are kept with their parts: the slowest 1 in 6,000 of 24 million.
const SLOWEST_KEPT: usize = 4096;

/// The maximum number of I/Os from the whole run that are kept with their parts. After enough I/Os
/// at least half as many are kept.
const KEPT: usize = 1 << 15;

/// The time lines of one device, size and policy.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// The times of each of [`PARTS`].
    pub parts: [LatencyStats; 7],
    /// The total times.
    pub total: LatencyStats,
    /// The sums of the host's parts.
    pub host: LatencyStats,
    /// The sums of the device's parts.
    pub device: LatencyStats,
    /// I/Os whose doorbell the device saw before `submit` returned.
    pub overlapped: u64,
    /// I/Os whose clocks contradict each other.
    pub contradicted: u64,
    /// Measured time.
    pub wall_ns: u64,
    /// The time that the competing program ran during each I/O.
    pub competitor: LatencyStats,
    /// The competing program's sample over the whole time.
    pub competed: Sample,
    /// The slowest I/Os. The heap's top is the quickest of them.
    slowest: BinaryHeap<Reverse<(u64, [u64; 7])>>,
    /// One in 2^`thinning` I/Os.
    kept: Vec<Kept>,
    thinning: u32,
}

/// An I/O in little memory. Times saturate at four seconds.
#[derive(Debug, Clone, Copy)]
struct Kept {
    parts_ns: [u32; 7],
    competitor_ns: u32,
}

impl Kept {
    fn total_ns(&self) -> u64 {
        self.parts_ns.iter().map(|ns| u64::from(*ns)).sum()
    }
}

/// A typical I/O: the mean of the middle half of I/Os, without the quickest and the slowest
/// quarter.
///
/// Means of one set of I/Os add up, medians do not. Unlike means of all I/Os they describe an I/O
/// for which the scheduler has not taken the CPU away for a while.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Typical {
    /// The time of each of [`PARTS`].
    pub parts_ns: [f64; 7],
    /// The time that the competing program ran meanwhile.
    pub competitor_ns: f64,
}

impl Typical {
    /// Returns the total time.
    pub(crate) fn total_ns(&self) -> f64 {
        self.parts_ns.iter().sum()
    }

    /// Returns the device's part: Td.
    pub(crate) fn device_ns(&self) -> f64 {
        PARTS.iter().zip(self.parts_ns).filter(|(part, _)| part.is_device).map(|(_, ns)| ns).sum()
    }

    /// Returns the host's part: Ta.
    pub(crate) fn host_ns(&self) -> f64 {
        self.total_ns() - self.device_ns()
    }
}

/// The slowest I/Os, and whether host or device made them slow.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Worst {
    /// Number of I/Os.
    pub ios: u64,
    /// The quickest of them.
    pub from_ns: u64,
    /// Their mean.
    pub mean_ns: f64,
    /// The host's part of the mean.
    pub host_ns: f64,
    /// The host's share of the time beyond the mean I/O, in percent.
    pub host_excess_percent: f64,
}

impl Tally {
    /// Records one time line.
    pub(crate) fn record(&mut self, line: &TimeLine) {
        self.keep(line);
        for (stats, ns) in self.parts.iter_mut().zip(line.parts_ns) {
            stats.record(ns);
        }
        let total_ns = line.total_ns();
        self.total.record(total_ns);
        self.host.record(line.host_ns());
        self.device.record(line.device_ns());
        self.competitor.record(line.competitor_ns);
        self.overlapped += u64::from(line.overlapped);
        self.contradicted += u64::from(line.contradicted);
        let full = self.slowest.len() == SLOWEST_KEPT;
        if !full || self.slowest.peek().is_some_and(|Reverse((least_ns, _))| *least_ns < total_ns) {
            if full {
                self.slowest.pop();
            }
            self.slowest.push(Reverse((total_ns, line.parts_ns)));
        }
    }

    fn keep(&mut self, line: &TimeLine) {
        if self.ios() & ((1 << self.thinning) - 1) != 0 {
            return;
        }
        if self.kept.len() == KEPT {
            // Every other one is removed. The rest are as far apart as future ones will be.
            let mut at = 0;
            self.kept.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.thinning += 1;
            if self.ios() & ((1 << self.thinning) - 1) != 0 {
                return;
            }
        }
        let short = |ns: u64| u32::try_from(ns).unwrap_or(u32::MAX);
        self.kept.push(Kept {
            parts_ns: line.parts_ns.map(short),
            competitor_ns: short(line.competitor_ns),
        });
    }

    /// Returns the number of I/Os.
    pub(crate) fn ios(&self) -> u64 {
        self.total.n()
    }

    /// Returns the typical I/O, or zeroes without I/Os.
    pub(crate) fn typical(&self) -> Typical {
        let mut kept: Vec<&Kept> = self.kept.iter().collect();
        kept.sort_by_key(|io| io.total_ns());
        let quarter = kept.len() / 4;
        let middle = &kept[quarter..kept.len() - quarter];
        let n = middle.len().max(1) as f64;
        let mean =
            |of: &dyn Fn(&Kept) -> u32| middle.iter().map(|io| f64::from(of(io))).sum::<f64>() / n;
        Typical {
            parts_ns: std::array::from_fn(|at| mean(&|io| io.parts_ns[at])),
            competitor_ns: mean(&|io| io.competitor_ns),
        }
    }

    /// Returns the slowest 1 in 6,000, or the slowest one of fewer I/Os. Returns `None` without
    /// I/Os.
    pub(crate) fn worst(&self) -> Option<Worst> {
        let count = (self.ios() / SLOWEST_ONE_IN).clamp(1, SLOWEST_KEPT as u64) as usize;
        let mut slowest: Vec<&(u64, [u64; 7])> =
            self.slowest.iter().map(|Reverse(io)| io).collect();
        slowest.sort_unstable_by_key(|(total_ns, _)| Reverse(*total_ns));
        slowest.truncate(count);
        let from_ns = slowest.last()?.0;
        let n = slowest.len() as f64;
        let mean_ns = slowest.iter().map(|(total_ns, _)| *total_ns as f64).sum::<f64>() / n;
        let host_ns = |parts: &[u64; 7]| -> u64 {
            PARTS.iter().zip(parts).filter(|(part, _)| !part.is_device).map(|(_, ns)| ns).sum()
        };
        let host_ns = slowest.iter().map(|(_, parts)| host_ns(parts) as f64).sum::<f64>() / n;
        let excess_ns = mean_ns - self.total.mean_ns();
        let host_excess_percent = match excess_ns {
            excess_ns if excess_ns > 0.0 => (host_ns - self.host.mean_ns()) / excess_ns * 100.0,
            _ => 0.0,
        };
        Some(Worst { ios: slowest.len() as u64, from_ns, mean_ns, host_ns, host_excess_percent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(submit_ns: u64, service_ns: u64) -> TimeLine {
        TimeLine { parts_ns: [submit_ns, 0, 0, service_ns, 0, 0, 0], ..TimeLine::default() }
    }

    /// 11,998 I/Os of 1 + 9 µs, one that the host delays by 80 µs, one that the device delays by
    /// 20.
    #[test]
    fn the_worst_say_who_was_late() {
        let mut tally = Tally::default();
        (0..11_998).for_each(|_| tally.record(&line(1_000, 9_000)));
        tally.record(&line(81_000, 9_000));
        tally.record(&line(1_000, 29_000));
        let worst = tally.worst().unwrap();
        assert_eq!(
            (worst.ios, worst.from_ns, worst.mean_ns, worst.host_ns),
            (2, 30_000, 60_000.0, 41_000.0)
        );
        assert!((79.9..80.1).contains(&worst.host_excess_percent), "{worst:?}");
        assert_eq!(Tally::default().worst(), None);
    }

    #[test]
    fn only_the_slowest_are_kept() {
        let mut tally = Tally::default();
        (0..30_000).for_each(|ns| tally.record(&line(0, ns)));
        assert_eq!(tally.slowest.len(), SLOWEST_KEPT);
        let worst = tally.worst().unwrap();
        assert_eq!((worst.ios, worst.from_ns, worst.host_excess_percent), (5, 29_995, 0.0));
    }

    /// A quarter of the I/Os is late by a second, and a quarter completes at once. The typical I/O
    /// shows neither.
    #[test]
    fn the_typical_is_that_of_the_middle_half() {
        let mut tally = Tally::default();
        for nth in 0..4_000 {
            tally.record(&match nth % 4 {
                0 => line(0, 0),
                1 => line(1_000_000_000, 9_000),
                2 => line(1_000, 8_000),
                _ => line(2_000, 9_000),
            });
        }
        let typical = tally.typical();
        assert_eq!((typical.parts_ns[0], typical.parts_ns[3]), (1_500.0, 8_500.0));
        assert_eq!(
            (typical.total_ns(), typical.device_ns(), typical.host_ns()),
            (10_000.0, 8_500.0, 1_500.0)
        );
        assert_eq!(Tally::default().typical(), Typical::default());
    }

    /// A part of many I/Os is kept, from the whole run.
    #[test]
    fn a_long_run_is_thinned_evenly() {
        let mut tally = Tally::default();
        let ios = 5 * KEPT as u64 + 7;
        (0..ios).for_each(|ns| tally.record(&line(0, ns)));
        assert!(tally.kept.len() > KEPT / 2 && tally.kept.len() <= KEPT);
        let steps: Vec<u64> =
            tally.kept.windows(2).map(|pair| pair[1].total_ns() - pair[0].total_ns()).collect();
        assert!(steps.iter().all(|step| *step == 1 << tally.thinning), "{}", tally.thinning);
        let middle = tally.typical().total_ns() / ios as f64;
        assert!((0.499..0.501).contains(&middle), "{middle}");
    }
}
