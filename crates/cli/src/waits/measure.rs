//! Measures a cell: runs the bench crate with a job of the cell's shape on a device of its model.

use std::time::Duration;

use meantime_bench::run::{self, Devices, Group, JobResult, RunOptions};
use meantime_completion::Policy;
use meantime_report::figures::median;
use meantime_report::run::SLOWEST_ONE_IN;
use meantime_report::waits::{Baseline, CellResult, Competing, Figures};

use crate::bench::progress::Progress;
use crate::competitor::CompetitorGroup;
use crate::failure::Failure;
use crate::signal;

use super::grid::{GridCell, ModelFile};

/// Length of a turn.
const TURN: Duration = Duration::from_millis(100);

/// Minimum number of turns of each policy in a cell, even for short runtimes.
const ROUNDS_MIN: u32 = 4;

/// The number of turns beside a competing program. Before each turn that program runs alone for the
/// same time.
const COMPETING_ROUNDS: u32 = 2;

/// The measurements in each cell.
#[derive(Debug, Clone)]
pub(super) struct Spec {
    /// The policies. `poll` is one of them.
    pub policies: Vec<Policy>,
    /// Time for each.
    pub runtime: Duration,
    /// The program that competes for the CPU in a second pass, if any.
    pub competitor: Option<String>,
}

impl Spec {
    /// Returns the number of turns of each policy.
    pub(super) fn rounds(&self) -> u32 {
        let turns = self.runtime.as_nanos().div_ceil(TURN.as_nanos());
        u32::try_from(turns).unwrap_or(u32::MAX).clamp(ROUNDS_MIN, 100_000)
    }

    /// Returns the number of passes over a cell, each of which the progress counts.
    pub(super) fn passes(&self) -> usize {
        if self.competitor.is_some() { 2 } else { 1 }
    }
}

/// Measures `cell`.
pub(super) fn measure(
    cell: &GridCell,
    spec: &Spec,
    progress: &mut Progress,
) -> Result<CellResult, Failure> {
    let model = ModelFile::create(cell)?;
    let uri = cell.uri(&model.path());
    let mut devices = Devices::open_devices(std::slice::from_ref(&uri), true, false)?;
    let mut pass = |spec: &Spec, competitor: Option<&str>, rounds: u32| {
        let job = cell.job(&spec.policies, spec.runtime, competitor)?;
        let mut groups = run::groups(vec![(job, devices.indices(std::slice::from_ref(&uri)))])?;
        let mut group: Group = groups.remove(0);
        if competitor.is_none() {
            // A second run of `poll` shows which differences are significant.
            group.plans[0].policies.push(Policy::Poll);
        }
        run::leave_out(&mut group, &devices)?;
        let groups = [group];
        run::check(&groups, &devices, false)?;
        let options =
            RunOptions { rounds: Some(rounds), floor: false, stop: &signal::STOP, watch: None };
        let outcome = run::run::<CompetitorGroup, _>(&groups, &mut devices, &options, progress)?;
        Ok::<_, Failure>(outcome)
    };
    let outcome = pass(spec, None, spec.rounds())?;
    let (mut ways, again) = sort(outcome.results);
    let poll = ways.iter().find(|way| way.completion == Policy::Poll.to_string());
    let poll = poll.map(|poll| Baseline::of(poll, again.as_ref()));
    if let Some(kind) = spec.competitor.as_deref().filter(|_| !signal::stopped()) {
        let runtime = spec.runtime.min(2 * COMPETING_ROUNDS * TURN);
        let outcome = pass(&Spec { runtime, ..spec.clone() }, Some(kind), COMPETING_ROUNDS)?;
        for result in outcome.results {
            let result = result.into_result();
            if let Some(way) = ways.iter_mut().find(|way| way.completion == result.completion) {
                let latency = result.latency();
                way.competing = result.competitor_percent.map(|share_percent| Competing {
                    share_percent,
                    mean_ns: latency.mean_ns(),
                    p99_9_ns: latency.percentile_ns(99.9),
                });
            }
        }
    }
    let probes_ns: Vec<f64> = outcome.rtts.probes_ns.iter().map(|ns| *ns as f64).collect();
    Ok(CellResult {
        cell: cell.described(),
        ways,
        poll,
        moved_turns: (outcome.rtts.repeated, outcome.rtts.disturbed),
        cacheline_rtt_ns: median(&probes_ns),
        ..CellResult::default()
    })
}

/// Returns the figures of the policies, and of the second run of `poll` separately.
fn sort(results: Vec<JobResult>) -> (Vec<Figures>, Option<Figures>) {
    let mut ways: Vec<Figures> = Vec::with_capacity(results.len());
    let mut again = None;
    for figures in results.into_iter().map(figures_of) {
        if ways.iter().any(|way| way.completion == figures.completion) {
            again = Some(figures);
        } else {
            ways.push(figures);
        }
    }
    (ways, again)
}

/// Converts a result of the bench into figures.
fn figures_of(result: JobResult) -> Figures {
    let counters = result.counters();
    let result = result.into_result();
    let latency = result.latency();
    let gaps = || counters.iter().flat_map(|of| [of.polled_waits, of.interrupt_waits]);
    let queues = || counters.iter().flat_map(|of| [Some(of.polled), of.interrupt]).flatten();
    Figures {
        ios: latency.n(),
        errors: result.errors,
        mean_ns: latency.mean_ns(),
        p50_ns: latency.percentile_ns(50.0),
        p99_ns: latency.percentile_ns(99.0),
        p99_9_ns: latency.percentile_ns(99.9),
        means_ns: result.turns.iter().map(|turn| turn.mean_ns).collect(),
        slowest_ns: latency.slowest_1_in(SLOWEST_ONE_IN),
        max_ns: latency.max_ns(),
        iops: result.iops(),
        cpu_percent: result.cpu_percent(),
        sleeps: gaps().map(|gap| gap.sleeps).sum(),
        oversleeps: gaps().map(|gap| gap.oversleeps).sum(),
        fallbacks: gaps().map(|gap| gap.fallbacks).sum(),
        blocks: gaps().map(|gap| gap.blocks).sum(),
        ended: queues().map(|queue| queue.ended).sum(),
        completion: result.completion,
        ..Figures::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_short_but_not_too_few() {
        let rounds = |runtime_ms| {
            let runtime = Duration::from_millis(runtime_ms);
            Spec { policies: Vec::new(), runtime, competitor: None }.rounds()
        };
        assert_eq!((rounds(40), rounds(1_000), rounds(1_050)), (4, 10, 11));
    }
}
