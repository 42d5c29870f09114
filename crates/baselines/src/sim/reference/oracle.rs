//! Finds the least cost if the time of each I/O is known.
//!
//! The state is the time r that is left until the completion. V(r) is the lower of spinning, r, and
//! of a sleep whose timer goes off w ≤ r before the completion: c + E[V(w - W); W ≤ w] + λ E[W - w;
//! W > w]. For a percentile, an I/O that would have been in time by d is late if W - w > d. For
//! I/Os that miss the limit anyway only c and spinning count.

use super::grid::{Wake, step_ns};
use super::search::Expected;
use super::{Solve, after_wake_ns, limit_ns};
use crate::sim::machine::Machine;
use crate::sim::trace::Trace;
use meantime_completion::Goal;

/// A trace whose times are all known.
#[derive(Debug)]
pub(super) struct Problem {
    times_ns: Vec<u64>,
    step_ns: f64,
    wake: Wake,
    /// CPU of a sleep, in steps.
    sleep_cpu: f64,
    limit_ns: Option<f64>,
    look_ns: u64,
    /// Time of the first decision since the doorbell, in ns.
    start_ns: u64,
}

/// The action for each time that is left.
#[derive(Debug)]
pub(super) struct Plan {
    step_ns: f64,
    limit_ns: Option<f64>,
    /// One table for each number of steps by which an I/O is in time, or a single one without a
    /// limit.
    tables: Vec<Table>,
}

/// For each number of steps left, the action and the result that is expected, in steps. The action
/// is 0 to spin, and otherwise one more than the number of steps before the completion at which the
/// timer goes off.
type Table = Vec<(u32, Expected)>;

impl Problem {
    pub(super) fn new(trace: &Trace, machine: &Machine, goal: Goal) -> Self {
        let limit_ns = limit_ns(goal, machine);
        let longest_wake_ns = machine.timer_wake.quantile_ns(1.0) as f64;
        // With a limit there is a table for each step of the wake cost.
        let coarsest_ns = if limit_ns.is_some() { (longest_wake_ns / 150.0).ceil() } else { 0.0 };
        let step_ns = step_ns(trace.mean_ns() as u64, 0).max(coarsest_ns);
        Self {
            times_ns: trace.ios.iter().map(|io| io.device_ns).collect(),
            step_ns,
            wake: Wake::new(&machine.timer_wake, after_wake_ns(machine), step_ns),
            sleep_cpu: (machine.sleep_cpu_ns + after_wake_ns(machine)) as f64 / step_ns,
            limit_ns,
            look_ns: machine.look_ns,
            start_ns: after_wake_ns(machine),
        }
    }

    /// With `spare`, an I/O that is later by more steps is beyond the limit. With `None`, lateness
    /// has the price.
    fn table(&self, price: f64, spare: Option<usize>) -> Table {
        let wake = &self.wake;
        // A sleep until the longest wake cost before the completion is never late.
        let points = 2 * wake.most + 2;
        let mut table = Table::new();
        let cost =
            |of: &Expected| of.cpu + price * if spare.is_some() { of.beyond } else { of.late };
        let cpu_only = |cpu: f64| Expected { cpu, ..Expected::default() };
        let (mut best, mut best_at) = (cpu_only(f64::INFINITY), 0);
        for r in 0..points {
            let mut sleep = cpu_only(self.sleep_cpu);
            for &(w, p) in &wake.steps {
                if w == 0 {
                    // The time left does not change.
                    sleep.cpu += p * r as f64;
                } else if w <= r {
                    sleep.add(p, &table[r - w].1);
                } else {
                    sleep.late += p * (w - r) as f64;
                    sleep.beyond += if spare.is_some_and(|spare| w - r > spare) { p } else { 0.0 };
                }
            }
            if cost(&sleep) < cost(&best) {
                (best, best_at) = (sleep, r as u32);
            }
            let spun = cpu_only(r as f64);
            table.push(if cost(&best) < cost(&spun) { (best_at + 1, best) } else { (0, spun) });
        }
        table
    }
}

impl Plan {
    /// Returns the table of an I/O that takes `device_ns`.
    fn table(&self, device_ns: u64) -> &Table {
        let last = self.tables.len() - 1;
        let spare = match self.limit_ns {
            Some(limit_ns) if device_ns as f64 <= limit_ns => {
                (limit_ns - device_ns as f64) / self.step_ns
            }
            _ => f64::INFINITY,
        };
        &self.tables[if spare < last as f64 { spare as usize } else { last }]
    }

    /// Returns how long before the completion the timer goes off, with `left_ns` of `device_ns` to
    /// go, or `None` to spin.
    pub(super) fn sleep_until_before_ns(&self, device_ns: u64, left_ns: u64) -> Option<u64> {
        let (action, _) = self.at(device_ns, left_ns);
        action.checked_sub(1).map(|before| (f64::from(before) * self.step_ns) as u64)
    }

    /// Returns the entry in the table of an I/O that takes `device_ns`, with `left_ns` to go.
    fn at(&self, device_ns: u64, left_ns: u64) -> (u32, Expected) {
        let table = self.table(device_ns);
        table[((left_ns as f64 / self.step_ns) as usize).min(table.len() - 1)]
    }

    fn expected(&self, device_ns: u64, start_ns: u64, look_ns: u64) -> Expected {
        let (action, Expected { cpu, late, beyond }) =
            self.at(device_ns, device_ns.saturating_sub(start_ns));
        let asleep_ns = cpu * self.step_ns + start_ns as f64;
        let lost = self.limit_ns.is_some_and(|limit_ns| (device_ns + look_ns) as f64 > limit_ns);
        Expected {
            // A spinning time is known more exactly than the grid.
            cpu: if action == 0 { device_ns as f64 } else { asleep_ns },
            late: late * self.step_ns,
            beyond: if lost { 1.0 } else { beyond },
        }
    }
}

impl Solve for Problem {
    type Plan = Plan;

    fn solve(&self, price: f64) -> (Plan, Expected) {
        let tables = match self.limit_ns {
            // This is the last table, for an I/O that is in time whatever the wake cost is.
            Some(_) => {
                (0..=self.wake.most + 1).map(|spare| self.table(price, Some(spare))).collect()
            }
            None => vec![self.table(price, None)],
        };
        let plan = Plan { step_ns: self.step_ns, limit_ns: self.limit_ns, tables };
        let mut mean = Expected::default();
        for device_ns in &self.times_ns {
            let expected = plan.expected(*device_ns, self.start_ns, self.look_ns);
            mean.add(1.0 / self.times_ns.len() as f64, &expected);
        }
        (plan, mean)
    }
}
