//! Lower bounds: the least CPU for a goal, with knowledge that no policy has.

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
    /// Whether the goal is reachable at all. If not, the plan is the nearest one.
    pub reachable: bool,
    /// The expected mean latency of the plan in ns.
    pub expected_mean_ns: f64,
    /// The expected CPU per I/O of the plan in ns.
    pub expected_cpu_ns: f64,
    /// The price in ns of CPU of a ns of lateness (for goals of latency and CPU), or of an I/O
    /// beyond the limit (for percentiles).
    pub price: f64,
}

/// Returns the result of the policy that knows the distributions of device time, for each kind and
/// size, and of the wake cost, but neither the time of this I/O nor the cost of this sleep. One I/O
/// is in flight. The policy sleeps whenever that pays, and otherwise spins. It uses no interrupt,
/// and does not pay for learning.
///
/// The latency goal is relative to classic polling's mean on the same trace. Two plans are mixed at
/// random so that the goal is met exactly.
pub fn informed(trace: &Trace, machine: &Machine, goal: Goal, seed: u64) -> Reference {
    let problem = informed::Problem::new(trace, machine, goal);
    let mixture = search_for(&problem, trace, machine, goal);
    let outcome = replay::informed(trace, machine, &mixture, seed);
    reference(&mixture, outcome, machine, trace)
}

/// Returns the result of the policy that also knows the time of each I/O, but only the distribution
/// of the cost of a sleep. It sleeps so as to wake with the completion. One I/O is in flight. No
/// policy reaches this bound, since none can know the times.
pub fn oracle(trace: &Trace, machine: &Machine, goal: Goal, seed: u64) -> Reference {
    let problem = oracle::Problem::new(trace, machine, goal);
    let mixture = search_for(&problem, trace, machine, goal);
    let outcome = replay::oracle(trace, machine, &mixture, seed);
    reference(&mixture, outcome, machine, trace)
}

/// Solves for one price.
trait Solve {
    type Plan;
    /// Returns the best plan when a ns of lateness (or an I/O beyond the limit) costs `price` ns of
    /// CPU, and the result that is expected of it.
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
        // `P999`. A goal that is not known here has the same share.
        _ => Target::Beyond { share: 0.001 },
    };
    search::search(target, |price| problem.solve(price))
}

/// Returns the limit of a percentile goal as a time since the doorbell, in ns.
fn limit_ns(goal: Goal, machine: &Machine) -> Option<f64> {
    match goal {
        Goal::P99(ns) | Goal::P999(ns) => Some(f64::from(ns) - machine.host_path_ns() as f64),
        _ => None,
    }
}

/// Returns the cost of a sleep beyond the timer's lateness, in ns: reading the clock and looking at
/// the queue.
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
        expected_mean_ns: fixed_ns + trace.mean_ns() + expected.late,
        expected_cpu_ns: fixed_ns + expected.cpu,
        price: mixture.price,
    }
}

#[cfg(test)]
mod tests;
