//! Simulates a cell, and its references.

use clap::ValueEnum;
use meantime_baselines::sim::{self, Machine, Outcome, Trace};
use meantime_completion::{Goal, Policy};
use meantime_report::waits::{Baseline, CellResult, Figures, Reference, References};

use super::grid::GridCell;
use super::made;
use super::trace::WakeCosts;

/// One seed gives one outcome.
const SEED: u64 = 0x6d65_616e;

/// The wake costs of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Whose {
    /// A server without a hypervisor: 1.5 to 3 µs.
    BareMetal,
    /// Those of this machine, measured now.
    ThisMachine,
}

/// Returns the machine with these wake costs, and with the CPU time that the kernel charges here
/// for sleeping. Live figures are what the kernel charges, too.
pub(super) fn this_machine(costs: &WakeCosts) -> Machine {
    let [sleep_cpu_ns, interrupt_cpu_ns] = costs.cpu_ns;
    Machine { sleep_cpu_ns, interrupt_cpu_ns, ..Machine::this_vm(&costs.timer, &costs.interrupt) }
}

/// Simulates `cell` with each of `policies`, with the times of `trace`, or with generated ones of
/// the cell's model.
pub(super) fn cell(
    cell: &GridCell,
    policies: &[Policy],
    machine: &Machine,
    trace: Option<Trace>,
    going: &mut dyn FnMut(Policy) -> bool,
) -> CellResult {
    let trace = trace.unwrap_or_else(|| made::trace(cell, made::IOS, SEED));
    let mut ways = Vec::with_capacity(policies.len());
    for policy in policies {
        if !going(*policy) {
            break;
        }
        let outcome = sim::simulate(&trace, machine, *policy, cell.shape.depth(), SEED);
        ways.push(figures(*policy, &outcome));
    }
    let poll = ways.iter().find(|way| way.completion == Policy::Poll.to_string());
    let poll = poll.map(|poll| Baseline::of(poll, None));
    let mut result = CellResult { cell: cell.described(), ways, poll, ..CellResult::default() };
    hold_against_references(&mut result, cell, &trace, machine);
    result
}

/// Adds to `result` the references on `machine` with the times of `trace`: with the goal of
/// `adaptive`, and with that of each policy that has its own. Shapes with several I/Os in flight
/// get none.
pub(super) fn hold_against_references(
    result: &mut CellResult,
    cell: &GridCell,
    trace: &Trace,
    machine: &Machine,
) {
    if cell.shape.depth() > 1 || trace.ios.is_empty() {
        return;
    }
    let of = |reference: sim::Reference| Reference {
        mean_ns: reference.outcome.mean_ns(),
        cpu_percent: reference.outcome.cpu_percent(),
        reachable: reference.reachable,
    };
    let goal = Goal::default();
    result.references = Some(References {
        informed: of(sim::informed(trace, machine, goal, SEED)),
        oracle: of(sim::oracle(trace, machine, goal, SEED)),
    });
    for way in &mut result.ways {
        match way.completion.parse() {
            Ok(Policy::Adaptive(own)) if own != goal => {
                way.informed = Some(of(sim::informed(trace, machine, own, SEED)));
            }
            _ => {}
        }
    }
}

fn figures(policy: Policy, outcome: &Outcome) -> Figures {
    let counters = outcome.counters();
    let ios = outcome.ios() as u64;
    Figures {
        completion: policy.to_string(),
        ios,
        mean_ns: outcome.mean_ns(),
        p50_ns: outcome.quantile_ns(0.5),
        p99_ns: outcome.quantile_ns(0.99),
        p99_9_ns: outcome.quantile_ns(0.999),
        slowest_ns: (ios >= 6_000).then(|| outcome.slowest_in_6000_ns()),
        max_ns: outcome.max_ns(),
        iops: outcome.iops(),
        cpu_percent: outcome.cpu_percent(),
        sleeps: counters.sleeps,
        oversleeps: counters.oversleeps,
        fallbacks: counters.fallbacks,
        blocks: counters.blocks,
        ended: ios,
        ..Figures::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waits::grid::Shape;

    #[test]
    fn a_cell_of_bare_metal_is_the_same_every_time() {
        let grid = GridCell { device_ns: 20_000, shape: Shape::Lognormal };
        let policies = [Policy::Interrupt, Policy::Poll, Policy::ADAPTIVE];
        let run = || {
            let trace = made::trace(&grid, 3_000, 7);
            cell(&grid, &policies, &Machine::bare_metal(), Some(trace), &mut |_| true)
        };
        let first = run();
        assert_eq!(first, run());
        let poll = &first.ways[1];
        assert!(
            (20_000.0..21_500.0).contains(&poll.mean_ns) && poll.cpu_percent > 99.0,
            "{poll:?}"
        );
        assert!((1.0..1.2).contains(&first.mean_over_poll(&first.ways[0]).unwrap()));
        let references = first.references.unwrap();
        assert!(
            references.oracle.cpu_percent <= references.informed.cpu_percent + 0.5,
            "{references:?}"
        );
        assert!(references.informed.cpu_percent < 90.0, "{references:?}");
        // Ended after the first.
        let mut left = 1;
        let trace = made::trace(&grid, 100, 7);
        let ended = cell(&grid, &policies, &Machine::bare_metal(), Some(trace), &mut |_| {
            left -= 1;
            left >= 0
        });
        assert_eq!((ended.ways.len(), ended.poll), (1, None));
    }

    #[test]
    fn a_goal_of_its_own_is_held_against_the_informed_with_that_goal() {
        let grid = GridCell { device_ns: 20_000, shape: Shape::Lognormal };
        let goals = ["adaptive:latency=50", "adaptive:p99=1us", "adaptive"]
            .map(|name| name.parse().unwrap());
        let trace = made::trace(&grid, 2_000, 7);
        let result = cell(&grid, &goals, &Machine::bare_metal(), Some(trace), &mut |_| true);
        let references = result.references.unwrap();
        let [loose, impossible, usual] = [0, 1, 2].map(|at| result.ways[at].informed);
        assert!(
            loose.unwrap().cpu_percent < references.informed.cpu_percent / 2.0,
            "{loose:?} {references:?}"
        );
        assert!(!impossible.unwrap().reachable && loose.unwrap().reachable);
        assert_eq!(usual, None);
    }
}
