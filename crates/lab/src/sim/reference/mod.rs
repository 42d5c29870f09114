//! What can be reached: the least CPU for a goal, with knowledge that no policy has.

mod grid;
mod informed;
mod oracle;
mod replay;
mod schedule;
mod search;

use super::machine::Machine;
use super::outcome::Outcome;
use super::run::simulate;
use super::trace::Trace;
use meantime_completion::{Goal, Policy};
pub use schedule::{Rest, Schedule};
use search::{Expected, Mixture, Target};

/// A reference for one trace, machine and goal.
#[derive(Debug, Clone)]
pub struct Reference {
    /// The trace, replayed by the plan.
    pub outcome: Outcome,
    /// Whether the goal can be reached at all. If not, the plan is the one that comes nearest.
    pub reachable: bool,
    /// The mean latency in ns that was expected of the plan.
    pub expected_mean_ns: f64,
    /// The CPU per I/O in ns that was expected of the plan.
    pub expected_cpu_ns: f64,
    /// The CPU in ns that a ns of lateness is worth (for goals of latency and CPU), or an I/O
    /// beyond the limit (for percentiles).
    pub price: f64,
}

/// The policy that knows the distributions of device time, for each kind and size, and of the wake
/// cost, but neither the time of this I/O nor the cost of this sleep. With one I/O in flight; it
/// sleeps as often as pays, and spins; it uses no interrupt. It does not pay for learning.
///
/// The latency goal is over classic polling's mean on the same trace. Two plans are mixed at random
/// so that the goal is met exactly.
pub fn informed(trace: &Trace, machine: &Machine, goal: Goal, seed: u64) -> Reference {
    let problem = informed::Problem::new(trace, machine, goal);
    let mixture = search_for(&problem, trace, machine, goal);
    let outcome = replay::informed(trace, machine, &mixture, seed);
    reference(&mixture, outcome, machine, trace)
}

/// The policy that knows the time of each I/O as well, and of a sleep only how its cost is
/// distributed: it sleeps so as to wake with the completion. With one I/O in flight. A bound that
/// no policy reaches, since none can know.
pub fn oracle(trace: &Trace, machine: &Machine, goal: Goal, seed: u64) -> Reference {
    let problem = oracle::Problem::new(trace, machine, goal);
    let mixture = search_for(&problem, trace, machine, goal);
    let outcome = replay::oracle(trace, machine, &mixture, seed);
    reference(&mixture, outcome, machine, trace)
}

/// A way to solve for one price.
trait Solve {
    type Plan;
    /// The best plan when a ns of lateness (or an I/O beyond the limit) is worth `price` ns of CPU,
    /// and what it is expected to come to.
    fn solve(&self, price: f64) -> (Self::Plan, Expected);
}

fn search_for<S: Solve>(
    problem: &S,
    trace: &Trace,
    machine: &Machine,
    goal: Goal,
) -> Mixture<S::Plan> {
    let poll_mean_ns = simulate(trace, machine, Policy::Poll, 1, 0).mean_ns();
    let fixed_ns = machine.host_path_ns() as f64;
    let target = match goal {
        Goal::Latency(permille) => {
            Target::Late { most_ns: f64::from(permille) / 1000.0 * poll_mean_ns }
        }
        Goal::Cpu(percent) => Target::Cpu {
            share: f64::from(percent) / 100.0,
            fixed_ns,
            polled_ns: fixed_ns + trace.mean_ns(),
        },
        Goal::P99(_) => Target::Beyond { share: 0.01 },
        // `P999`, and what is not known here is held as strictly.
        _ => Target::Beyond { share: 0.001 },
    };
    search::search(target, |price| problem.solve(price))
}

/// The limit of a percentile's goal as a time since the doorbell, in ns.
fn limit_ns(goal: Goal, machine: &Machine) -> Option<f64> {
    match goal {
        Goal::P99(ns) | Goal::P999(ns) => Some(f64::from(ns) - machine.host_path_ns() as f64),
        _ => None,
    }
}

/// What a sleep costs beyond the timer's lateness, in ns: the clock is read and the queue looked
/// at.
fn after_wake_ns(machine: &Machine) -> u64 {
    machine.clock_ns + machine.look_ns
}

fn reference<P>(
    mixture: &Mixture<P>,
    outcome: Outcome,
    machine: &Machine,
    trace: &Trace,
) -> Reference {
    let expected = mixture.expected();
    let fixed_ns = machine.host_path_ns() as f64;
    Reference {
        outcome,
        reachable: mixture.reachable,
        expected_mean_ns: fixed_ns + trace.mean_ns() + expected.late_ns,
        expected_cpu_ns: fixed_ns + expected.cpu_ns,
        price: mixture.price,
    }
}

#[cfg(test)]
mod tests;
