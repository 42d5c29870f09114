//! The results of a policy in a cell.

use serde::Serialize;

use crate::figures::median;

/// A cell of the grid.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cell {
    /// Its name, e.g. `4.1us-bimodal`.
    pub name: String,
    /// The time of a 4 KiB read that nothing delays, in ns.
    pub device_ns: u64,
    /// Its variation, in a word and in a sentence.
    pub shape: [String; 2],
    /// The model of its device.
    pub model: String,
}

/// The figures of a policy in a cell.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Figures {
    /// The policy.
    pub completion: String,
    /// I/Os measured.
    pub ios: u64,
    /// I/Os that failed.
    pub errors: u64,
    /// Mean latency, from submission to having seen the completion.
    pub mean_ns: f64,
    /// The median.
    pub p50_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// p99.9.
    pub p99_9_ns: u64,
    /// The mean latency of each turn, or 0 for a turn without I/O.
    #[serde(skip)]
    pub means_ns: Vec<f64>,
    /// The latency that the slowest one in 6,000 reached, or `None` with fewer I/Os.
    #[serde(rename = "slowest_1_in_6000_ns")]
    pub slowest_ns: Option<u64>,
    /// The maximum.
    pub max_ns: u64,
    /// I/Os per second.
    pub iops: f64,
    /// User and system time of the waiting thread over wall time.
    pub cpu_percent: f64,
    /// Number of sleeps. This and the next figures include warm-ups.
    pub sleeps: u64,
    /// Number of sleeps that ended after the completion.
    pub oversleeps: u64,
    /// Number of times that the spin budget ran out.
    pub fallbacks: u64,
    /// Number of times that the thread blocked until the interrupt.
    #[serde(rename = "interrupt_waits")]
    pub blocks: u64,
    /// I/Os that these counters cover.
    #[serde(skip)]
    pub ended: u64,
    /// The figures with a competing program on the CPU.
    pub competing: Option<Competing>,
    /// The informed policy with this policy's own goal, if it has one.
    pub informed: Option<Reference>,
}

/// A policy beside a competing program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Competing {
    /// The share of its lone speed that the program kept, in percent.
    pub share_percent: f64,
    /// Mean latency.
    pub mean_ns: f64,
    /// p99.9.
    pub p99_9_ns: u64,
}

impl Figures {
    /// Returns I/Os per second for each percent of a CPU, or `None` without CPU time.
    pub fn iops_per_cpu_percent(&self) -> Option<f64> {
        (self.cpu_percent > 0.0).then(|| self.iops / self.cpu_percent)
    }

    /// Returns oversleeps in percent of the sleeps, or `None` without sleeps.
    pub fn overslept_sleeps_percent(&self) -> Option<f64> {
        (self.sleeps > 0).then(|| self.oversleeps as f64 * 100.0 / self.sleeps as f64)
    }

    /// Returns oversleeps in percent of the I/Os, or `None` without sleeps.
    pub fn overslept_ios_percent(&self) -> Option<f64> {
        (self.sleeps > 0 && self.ended > 0)
            .then(|| self.oversleeps as f64 * 100.0 / self.ended as f64)
    }
}

/// Mean latency and CPU of a policy that cannot be implemented, computed from the distributions of
/// device time and wake cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Reference {
    /// Mean latency.
    pub mean_ns: f64,
    /// CPU of the waiting thread.
    pub cpu_percent: f64,
    /// Whether the goal is reachable at all. If it is not, this is the nearest result.
    pub reachable: bool,
}

/// References for comparison with policies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct References {
    /// The policy that knows both distributions, device time and wake cost, but not this I/O's
    /// time. It is the best reachable result.
    pub informed: Reference,
    /// The policy that also knows this I/O's time. It is a bound that no policy reaches.
    pub oracle: Reference,
}

/// Classic polling, the baseline of all comparisons.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Baseline {
    /// Its mean latency.
    pub mean_ns: f64,
    /// Its CPU.
    pub cpu_percent: f64,
    /// The mean latency of each turn, or the mean of both runs if a round has two.
    #[serde(skip)]
    pub means_ns: Vec<f64>,
    /// The difference of the means of two runs, as a part of the mean, or `None` if it ran once.
    pub mean_spread: Option<f64>,
    /// The difference of their CPU, in percent of a CPU.
    pub cpu_spread_percent: Option<f64>,
}

/// Smaller differences are ignored, even if two runs of `poll` differ less.
const LEAST_MEAN_SPREAD: f64 = 0.01;
const LEAST_CPU_SPREAD_PERCENT: f64 = 1.0;

/// A thread that polls alone on a CPU uses more than this.
const ALONE_CPU_PERCENT: f64 = 85.0;

impl Baseline {
    /// Returns the baseline of `poll`, which may have run `again`.
    pub fn of(poll: &Figures, again: Option<&Figures>) -> Self {
        let other = again.unwrap_or(poll);
        let middle = |one: f64, other: f64| (one + other) / 2.0;
        let mean_ns = middle(poll.mean_ns, other.mean_ns);
        let turns = poll.means_ns.iter().zip(&other.means_ns);
        Self {
            mean_ns,
            cpu_percent: middle(poll.cpu_percent, other.cpu_percent),
            means_ns: turns.map(|(one, other)| middle(*one, *other)).collect(),
            mean_spread: again
                .filter(|_| mean_ns > 0.0)
                .map(|again| (poll.mean_ns - again.mean_ns).abs() / mean_ns),
            cpu_spread_percent: again.map(|again| (poll.cpu_percent - again.cpu_percent).abs()),
        }
    }

    /// Returns whether other programs used much of the CPU. Figures of live runs then mean little.
    pub(crate) fn is_crowded(&self) -> bool {
        self.cpu_percent < ALONE_CPU_PERCENT
    }

    /// Returns the difference below which means are equal, as a part of the mean.
    fn mean_tolerance(&self) -> f64 {
        self.mean_spread.unwrap_or(0.0).max(LEAST_MEAN_SPREAD)
    }

    /// Returns the difference below which CPU is equal, in percent of a CPU.
    fn cpu_tolerance_percent(&self) -> f64 {
        self.cpu_spread_percent.unwrap_or(0.0).max(LEAST_CPU_SPREAD_PERCENT)
    }
}

/// A cell with all its results.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CellResult {
    /// The cell.
    pub cell: Cell,
    /// The figures by policy, in the order of the command.
    pub ways: Vec<Figures>,
    /// The figures of classic polling, or `None` if it did not run.
    pub poll: Option<Baseline>,
    /// The references, if they were computed.
    pub references: Option<References>,
    /// Turns repeated since the CPUs moved during them, and moved turns that count nevertheless.
    pub moved_turns: (u64, u64),
    /// The cache-line time: the median of all probes.
    pub cacheline_rtt_ns: Option<f64>,
}

impl CellResult {
    /// Returns the mean of `way` over that of `poll`.
    pub fn mean_over_poll(&self, way: &Figures) -> Option<f64> {
        let poll = self.poll.as_ref().filter(|poll| poll.mean_ns > 0.0 && way.ios > 0)?;
        Some(way.mean_ns / poll.mean_ns)
    }

    /// Returns the median of that ratio over the turns. It does not show disturbances of single
    /// turns.
    pub fn mean_over_poll_by_turns(&self, way: &Figures) -> Option<f64> {
        let turns = way.means_ns.iter().zip(&self.poll.as_ref()?.means_ns);
        let ratios: Vec<f64> = turns
            .filter(|(way, poll)| **way > 0.0 && **poll > 0.0)
            .map(|(way, poll)| way / poll)
            .collect();
        median(&ratios)
    }

    /// Returns the CPU of `way` over that of the informed policy with the same goal, or with that
    /// of `adaptive`.
    pub fn cpu_over_informed(&self, way: &Figures) -> Option<f64> {
        let informed = way.informed.unwrap_or(self.references?.informed).cpu_percent;
        (informed > 0.0 && way.ios > 0).then(|| way.cpu_percent / informed)
    }

    /// Returns the percent of a CPU by which `way` is above the oracle.
    pub fn cpu_above_oracle_percent(&self, way: &Figures) -> Option<f64> {
        self.references.filter(|_| way.ios > 0).map(|of| way.cpu_percent - of.oracle.cpu_percent)
    }

    /// Returns whether `one` is as good as `other` in mean latency and in CPU, and better in one of
    /// them by more than two runs of `poll` differ.
    pub fn dominates(&self, one: &Figures, other: &Figures) -> bool {
        let Some(poll) = self.poll.as_ref().filter(|_| one.ios > 0 && other.ios > 0) else {
            return false;
        };
        let (slack, cpu_slack_percent) =
            (1.0 + poll.mean_tolerance(), poll.cpu_tolerance_percent());
        let quicker = one.mean_ns * slack < other.mean_ns;
        let slower = other.mean_ns * slack < one.mean_ns;
        let cheaper = one.cpu_percent + cpu_slack_percent < other.cpu_percent;
        let dearer = other.cpu_percent + cpu_slack_percent < one.cpu_percent;
        !slower && !dearer && (quicker || cheaper)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waits::testing::{cell, way};

    #[test]
    fn the_baseline_is_the_mean_of_two_runs() {
        let poll = Baseline::of(&way("poll", 9.9, 99.0), Some(&way("poll", 10.1, 97.0)));
        assert_eq!((poll.mean_ns, poll.cpu_percent), (10_000.0, 98.0));
        assert!((poll.mean_spread.unwrap() - 0.02).abs() < 1e-12);
        assert_eq!(poll.cpu_spread_percent, Some(2.0));
        let once = Baseline::of(&way("poll", 10.0, 99.0), None);
        assert_eq!((once.mean_spread, once.mean_tolerance()), (None, LEAST_MEAN_SPREAD));
        assert_eq!(once.cpu_tolerance_percent(), LEAST_CPU_SPREAD_PERCENT);
    }

    #[test]
    fn dominance_is_beyond_the_spread() {
        // Means that differ by 2 % are equal, and CPU within 2 %.
        let ways = [
            way("poll", 10.0, 98.0),
            way("a", 10.1, 60.0),
            way("b", 10.2, 61.0),
            way("c", 10.2, 63.0),
            way("d", 12.0, 40.0),
            way("e", 12.0, 63.0),
        ];
        let cell = cell(&ways, (9.9, 98.0), (10.1, 96.0));
        let dominated = |one: usize| -> Vec<&str> {
            let others = ways.iter().filter(|other| cell.dominates(&ways[one], other));
            others.map(|other| other.completion.as_str()).collect()
        };
        assert_eq!(dominated(0), Vec::<&str>::new());
        assert_eq!(dominated(1), ["poll", "c", "e"]);
        assert_eq!(dominated(2), ["poll", "e"]);
        assert_eq!(dominated(4), ["e"]);
    }

    #[test]
    fn turns_are_held_against_those_of_their_round() {
        let turns = |way: Figures, means_ns: &[f64]| Figures { means_ns: means_ns.to_vec(), ..way };
        let (poll, again) =
            (turns(way("poll", 10.0, 98.0), &[10.0, 30.0, 10.0]), way("poll", 10.0, 98.0));
        let again = turns(again, &[10.0, 10.0, 20.0]);
        let mut cell = cell(&[], (10.0, 98.0), (10.0, 98.0));
        cell.poll = Some(Baseline::of(&poll, Some(&again)));
        // Against 10, 20 and 15: 1.1, 1.2 and 2; a turn without I/O does not count.
        assert_eq!(
            cell.mean_over_poll_by_turns(&turns(again.clone(), &[11.0, 24.0, 30.0])),
            Some(1.2)
        );
        assert_eq!(cell.mean_over_poll_by_turns(&turns(again.clone(), &[11.0, 0.0])), Some(1.1));
        assert_eq!(cell.mean_over_poll_by_turns(&turns(again, &[])), None);
    }

    #[test]
    fn shares_of_sleeps_and_of_ios() {
        let figures =
            Figures { sleeps: 200, oversleeps: 50, ended: 1_000, ..way("hybrid", 10.0, 50.0) };
        assert_eq!(figures.overslept_sleeps_percent(), Some(25.0));
        assert_eq!(figures.overslept_ios_percent(), Some(5.0));
        let awake = way("poll", 10.0, 98.0);
        assert_eq!((awake.overslept_sleeps_percent(), awake.overslept_ios_percent()), (None, None));
    }

    #[test]
    fn references_are_what_ratios_are_to() {
        let mut cell = cell(&[], (10.0, 98.0), (10.0, 98.0));
        let one = way("adaptive", 10.2, 50.0);
        assert_eq!(
            (cell.cpu_over_informed(&one), cell.cpu_above_oracle_percent(&one)),
            (None, None)
        );
        cell.references = Some(References {
            informed: Reference { mean_ns: 10_300.0, cpu_percent: 40.0, reachable: true },
            oracle: Reference { mean_ns: 10_000.0, cpu_percent: 20.0, reachable: true },
        });
        assert_eq!(cell.cpu_over_informed(&one), Some(1.25));
        assert_eq!(cell.cpu_above_oracle_percent(&one), Some(30.0));
        let informed = Some(Reference { mean_ns: 12_000.0, cpu_percent: 25.0, reachable: true });
        assert_eq!(cell.cpu_over_informed(&Figures { informed, ..one.clone() }), Some(2.0));
        assert!((cell.mean_over_poll(&one).unwrap() - 1.02).abs() < 1e-12);
    }
}
