//! The length of turns, and the state of the cells.

use std::time::Duration;

use meantime_hw::ThreadUsage;
use meantime_report::run::{LatencyStats, Turn};

use super::file_counts::FileCounts;
use super::worker::{Visit, VisitReport, WARM_UP_NS};
use crate::competitor::Sample;
use crate::plan::JobPlan;

/// Usual length of a turn.
const TURN_NS: u64 = 500_000_000;

/// Length of a turn with a floor, which drifts faster.
const TURN_WITH_FLOOR_NS: u64 = 250_000_000;

/// A median of fewer pairs is not meaningful (docs/benchmarks.md).
const PAIRS_MIN: u64 = 9;

/// Ratio of two probes above which the CPUs have moved.
const MOVED: f64 = 1.5;

/// The mean of `hybrid` is first known after 100 ms.
const FIRST_MEAN_NS: u64 = 120_000_000;

/// The length of a job's turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turns {
    /// Time to measure each cell, or `None` to measure until all is transferred.
    pub runtime_ns: Option<u64>,
    /// Maximum length of a turn.
    pub turn_ns: u64,
    /// Maximum number of I/Os per thread in a turn.
    pub turn_ios: u64,
    /// The number of turns, if time ends the job. Turns are counted, since a turn may exceed its
    /// time.
    pub rounds: Option<u64>,
    /// Total amount of a cell, if that ends it.
    pub total_bytes: Option<u64>,
}

impl Turns {
    /// Creates the turns of `plan`. A thread transfers `thread_bytes` if the job ends by amount.
    /// `longest` is the longest runtime among the jobs that run at the same time, which all have
    /// turns of one length.
    pub(crate) fn new(
        plan: &JobPlan,
        thread_bytes: Option<u64>,
        rounds: Option<u32>,
        floor: bool,
        longest: Option<Duration>,
    ) -> Self {
        let runtime_ns = plan.runtime.map(nanos);
        let longest_ns = longest.map_or(runtime_ns.unwrap_or(0), nanos);
        let usual_ns = if floor { TURN_WITH_FLOOR_NS } else { TURN_NS };
        let least = if floor { PAIRS_MIN } else { 1 };
        let total_bytes =
            thread_bytes.map(|bytes| bytes.saturating_mul(u64::from(plan.job.numjobs)));
        let (mut turn_ns, mut turn_ios, mut counted) = (usual_ns, u64::MAX, None);
        match (runtime_ns, thread_bytes) {
            // The job ends by time.
            (Some(runtime_ns), None) => {
                let rounds = rounds.map_or(longest_ns.div_ceil(usual_ns), u64::from).max(least);
                turn_ns = longest_ns.div_ceil(rounds).max(1);
                counted = Some(runtime_ns.div_ceil(turn_ns));
            }
            // The job ends by amount.
            (_, Some(bytes)) if rounds.is_some() || floor => {
                let rounds = rounds.map_or(least, u64::from).max(least);
                turn_ios = (bytes / plan.job.bs_max_bytes()).div_ceil(rounds).max(1);
                turn_ns = u64::MAX;
            }
            _ => {}
        }
        Self { runtime_ns, turn_ns, turn_ios, rounds: counted, total_bytes }
    }

    /// Returns the next turn of a cell, or `None` if the cell is done.
    pub(crate) fn next(&self, cell: &CellState, warm_up_ns: u64) -> Option<Visit> {
        if cell.finished || cell.lost.is_some() {
            return None;
        }
        let left_ns = match (self.rounds, self.runtime_ns) {
            (Some(rounds), _) if cell.turns >= rounds => 0,
            (None, Some(runtime_ns)) => runtime_ns.saturating_sub(cell.wall_ns + cell.checked_ns),
            _ => u64::MAX,
        };
        if left_ns == 0 {
            return None;
        }
        // The last counted turn gets the rest of the time.
        let last = self.rounds.is_some_and(|rounds| cell.turns + 1 == rounds);
        let rest_ns = match (self.runtime_ns, last) {
            (Some(runtime_ns), true) => runtime_ns.saturating_sub(cell.turns * self.turn_ns).max(1),
            _ => u64::MAX,
        };
        // The sum with the clock must not overflow.
        let limit_ns = self.turn_ns.min(left_ns).min(rest_ns).min(u64::MAX / 4);
        Some(Visit { warm_up_ns, limit_ns, max_ios: self.turn_ios })
    }

    /// Returns the share of a cell's work that is done, from 0 to 1.
    pub(crate) fn progress(&self, cell: &CellState) -> f64 {
        if cell.finished || cell.lost.is_some() {
            return 1.0;
        }
        let by_turns = self.rounds.map_or(0.0, |rounds| cell.turns as f64 / rounds.max(1) as f64);
        let passed_ns = (cell.wall_ns + cell.checked_ns) as f64;
        let by_time = self.runtime_ns.map_or(0.0, |ns| passed_ns / ns.max(1) as f64);
        let by_amount =
            self.total_bytes.map_or(0.0, |bytes| cell.bytes as f64 / bytes.max(1) as f64);
        if self.rounds.is_some() { by_turns } else { by_time.max(by_amount).min(1.0) }
    }
}

/// The state of a device and policy.
#[derive(Debug, Default)]
pub(crate) struct CellState {
    /// Measured time.
    pub wall_ns: u64,
    /// Time to read back passes, which is a part of the job's runtime. Small passes over a large
    /// range take much longer to check than to write.
    pub checked_ns: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Number of turns that count.
    pub turns: u64,
    /// Whether all is transferred.
    pub finished: bool,
    /// Why its device takes no more I/O, if so.
    pub lost: Option<String>,
    /// The counts of the file system, if the target is a file.
    pub file_counts: FileCounts,
    /// Energy of the processors in its turns, in µJ, or `None` where it is not known.
    pub energy_uj: Option<f64>,
    /// Floors.
    pub floors_ns: Vec<f64>,
    /// The work of a competing program meanwhile.
    pub competed: Sample,
    /// The figures of each turn that counts.
    pub by_turn: Vec<Turn>,
    /// The median latency of its first thread over the floor around it, by turn.
    pub ratios: Vec<f64>,
    /// Failures reported already.
    pub reported: Reported,
}

/// Messages that were shown; each is shown once.
#[derive(Debug, Default)]
pub(crate) struct Reported {
    /// That an I/O failed.
    pub fault: bool,
    /// That a block differed from what was written.
    pub mismatch: bool,
}

impl CellState {
    /// Adds a turn that counts, and what the processors used in it, if that is known.
    pub(crate) fn count(
        &mut self,
        reports: &[VisitReport],
        floor_ns: Option<f64>,
        energy_uj: Option<f64>,
    ) {
        let before = if self.turns == 0 { Some(0.0) } else { self.energy_uj };
        self.energy_uj = before.zip(energy_uj).map(|(before, uj)| before + uj);
        let turn_ns = reports.iter().map(|report| report.wall_ns).max().unwrap_or(0);
        self.wall_ns += turn_ns;
        self.checked_ns += reports.iter().map(|report| report.checked_ns).max().unwrap_or(0);
        self.bytes += reports.iter().map(|report| report.bytes).sum::<u64>();
        self.turns += 1;
        let (mut latency, mut usage) = (LatencyStats::default(), ThreadUsage::default());
        for report in reports {
            report.latency.iter().for_each(|of| latency.merge(of));
            usage += report.usage;
        }
        self.by_turn.push(Turn::new(&latency, turn_ns, usage.user_ns + usage.system_ns));
        let first = reports.first().and_then(|report| report.latency.as_ref());
        let median_ns = first.map(|latency| latency.percentile_ns(50.0) as f64);
        if let (Some(floor_ns), Some(median_ns)) = (floor_ns.filter(|ns| *ns > 0.0), median_ns) {
            self.floors_ns.push(floor_ns);
            self.ratios.push(median_ns / floor_ns);
        }
    }
}

/// Returns the time of unrecorded I/O before a turn.
pub(crate) fn warm_up_ns(first_turn: bool, plan: &JobPlan, cell_learns: bool) -> u64 {
    match first_turn {
        // A warm-up must not overwrite blocks that are verified.
        _ if plan.verifies() => 0,
        true if cell_learns => nanos(plan.job.ramp_time).max(FIRST_MEAN_NS),
        true => nanos(plan.job.ramp_time).max(WARM_UP_NS),
        false => WARM_UP_NS,
    }
}

/// Probes of the cache-line time between the two CPUs.
#[derive(Debug, Default, Clone)]
pub struct Rtts {
    /// All probes of a job, in ns.
    pub probes_ns: Vec<u64>,
    /// Turns repeated since the time changed around them.
    pub repeated: u64,
    /// Turns that count although the time changed around them.
    pub disturbed: u64,
}

impl Rtts {
    /// Adds a probe. Returns whether the time has changed since the one before.
    pub(crate) fn moved(&mut self, rtt_ns: Option<u64>) -> bool {
        let Some(now_ns) = rtt_ns else { return false };
        let before_ns = self.probes_ns.last().copied();
        self.probes_ns.push(now_ns);
        before_ns.is_some_and(|before_ns| {
            let (low, high) = (before_ns.min(now_ns).max(1) as f64, before_ns.max(now_ns) as f64);
            high / low > MOVED
        })
    }

    /// Returns the time before and after the job.
    pub fn ends_ns(&self) -> Option<(u64, u64)> {
        Some((*self.probes_ns.first()?, *self.probes_ns.last()?))
    }
}

/// Returns the minimum and the maximum, or `None` without values.
pub(crate) fn spread(values: &[f64]) -> Option<(f64, f64)> {
    let least = values.iter().copied().reduce(f64::min)?;
    Some((least, values.iter().copied().reduce(f64::max)?))
}

/// Returns a time in ns.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use meantime_report::figures::median;

    use super::*;
    use crate::job::testing::job;

    fn plan(keys: &[(&str, &str)]) -> JobPlan {
        let job = job(keys);
        let runtime = job.runtime;
        let endless = job.time_based == Some(true);
        JobPlan {
            job,
            devices: vec![0],
            policies: Vec::new(),
            scheds: vec![None],
            runtime,
            endless,
            group_id: 0,
            seed: 0,
            log_entries_max: 0,
        }
    }

    const TIMED: [(&str, &str); 2] = [("runtime", "3"), ("time_based", "1")];

    #[test]
    fn a_timed_job_has_turns_of_half_a_second() {
        let turns = Turns::new(&plan(&TIMED), None, None, false, None);
        assert_eq!((turns.rounds, turns.turn_ns), (Some(6), 500_000_000));
        assert_eq!(Turns::new(&plan(&TIMED), None, None, true, None).rounds, Some(12));
        assert_eq!(Turns::new(&plan(&TIMED), None, Some(30), false, None).turn_ns, 100_000_000);
        let short = plan(&[("runtime", "90ms"), ("time_based", "1")]);
        assert_eq!(Turns::new(&short, None, Some(2), true, None).rounds, Some(9));
        assert_eq!(Turns::new(&short, None, None, false, None).rounds, Some(1));
    }

    #[test]
    fn a_turn_that_ran_over_takes_nothing_from_the_others() {
        let turns = Turns::new(&plan(&TIMED), None, None, false, None);
        let mut cell = CellState { turns: 5, wall_ns: 9_000_000_000, ..CellState::default() };
        assert!(turns.next(&cell, 0).is_some());
        cell.turns = 6;
        assert!(turns.next(&cell, 0).is_none());
        cell.lost = Some("gone".to_owned());
        assert_eq!(turns.progress(&cell), 1.0);
    }

    #[test]
    fn jobs_of_a_group_have_turns_of_one_length() {
        let longest = Some(Duration::from_millis(3_000));
        let short = plan(&[("runtime", "1200ms"), ("time_based", "1")]);
        let turns = Turns::new(&short, None, None, false, longest);
        assert_eq!((turns.rounds, turns.turn_ns), (Some(3), 500_000_000));
        let last = CellState { turns: 2, wall_ns: 1_000_000_000, ..CellState::default() };
        assert_eq!(turns.next(&last, 0).map(|visit| visit.limit_ns), Some(200_000_000));
    }

    #[test]
    fn a_job_of_a_size_is_divided_by_ios_for_pairs() {
        let turns = Turns::new(&plan(&[("size", "1m")]), Some(1 << 20), None, true, None);
        assert_eq!((turns.turn_ios, turns.rounds), (29, None));
        let limited = plan(&[("size", "1m"), ("runtime", "2")]);
        let turns = Turns::new(&limited, Some(1 << 20), None, false, None);
        let cell = CellState { wall_ns: 1_900_000_000, ..CellState::default() };
        assert_eq!(turns.next(&cell, 0).map(|visit| visit.limit_ns), Some(100_000_000));
        let checking = CellState { checked_ns: 40_000_000, ..cell };
        assert_eq!(turns.next(&checking, 0).map(|visit| visit.limit_ns), Some(60_000_000));
        assert!(
            turns.next(&CellState { wall_ns: 2_000_000_000, ..CellState::default() }, 0).is_none()
        );
    }

    #[test]
    fn a_move_of_the_cpus_is_seen() {
        let mut rtts = Rtts::default();
        let moves = [110, 120, 100, 400, 410, 130].map(|ns| rtts.moved(Some(ns)));
        assert_eq!(moves, [false, false, false, true, false, true]);
        assert!(!rtts.moved(None));
        assert_eq!(rtts.ends_ns(), Some((110, 130)));
    }

    #[test]
    fn energy_is_known_if_it_is_of_every_turn() {
        let turns = |turns: &[Option<f64>]| {
            let mut state = CellState::default();
            for uj in turns {
                state.count(&[], None, *uj);
            }
            state.energy_uj
        };
        assert_eq!(turns(&[Some(2.0), Some(3.0)]), Some(5.0));
        assert_eq!(turns(&[None, Some(3.0)]), None);
        assert_eq!(turns(&[Some(2.0), None, Some(3.0)]), None);
    }

    #[test]
    fn medians_and_spreads() {
        assert_eq!(
            (median(&[]), median(&[3.0, 1.0, 2.0]), median(&[1.0, 2.0])),
            (None, Some(2.0), Some(1.5))
        );
        assert_eq!((spread(&[]), spread(&[3.0, 1.0, 2.0])), (None, Some((1.0, 3.0))));
    }
}
