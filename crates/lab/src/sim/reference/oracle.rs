//! Least cost if the time of each I/O is known.
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

/// What to do for each time that is left.
#[derive(Debug)]
pub(super) struct Plan {
    step_ns: f64,
    limit_ns: Option<f64>,
    /// One table for each number of steps by which an I/O is in time (a single one without a
    /// limit).
    tables: Vec<Table>,
}

/// For each number of steps left: 0 to spin, else one more than the number of steps before the
/// completion at which the timer goes off.
#[derive(Debug)]
struct Table {
    actions: Vec<u32>,
    cpu: Vec<f64>,
    late: Vec<f64>,
    beyond: Vec<f64>,
}

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

    /// With `spare`, an I/O that is later by more steps is beyond the limit; with `None`, lateness
    /// has the price.
    fn table(&self, price: f64, spare: Option<usize>) -> Table {
        let wake = &self.wake;
        // A sleep until the longest wake cost before the completion is never late.
        let points = 2 * wake.most + 2;
        let mut table =
            Table { actions: Vec::new(), cpu: Vec::new(), late: Vec::new(), beyond: Vec::new() };
        let cost = |(cpu, late, beyond): (f64, f64, f64)| match spare {
            Some(_) => cpu + price * beyond,
            None => cpu + price * late,
        };
        let mut best = (f64::INFINITY, 0.0, 0.0);
        let mut best_at = 0;
        for r in 0..points {
            let mut sleep = (self.sleep_cpu, 0.0, 0.0);
            for &(w, p) in &wake.steps {
                if w == 0 {
                    // The time left does not change.
                    sleep.0 += p * r as f64;
                } else if w <= r {
                    sleep.0 += p * table.cpu[r - w];
                    sleep.1 += p * table.late[r - w];
                    sleep.2 += p * table.beyond[r - w];
                } else {
                    sleep.1 += p * (w - r) as f64;
                    sleep.2 += if spare.is_some_and(|spare| w - r > spare) { p } else { 0.0 };
                }
            }
            if cost(sleep) < cost(best) {
                (best, best_at) = (sleep, r);
            }
            let spun = (r as f64, 0.0, 0.0);
            let sleeps = cost(best) < cost(spun);
            let (cpu, late, beyond) = if sleeps { best } else { spun };
            table.actions.push(if sleeps { best_at as u32 + 1 } else { 0 });
            table.cpu.push(cpu);
            table.late.push(late);
            table.beyond.push(beyond);
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
    /// go; `None`: spin.
    pub(super) fn sleep_until_before_ns(&self, device_ns: u64, left_ns: u64) -> Option<u64> {
        let actions = &self.table(device_ns).actions;
        let left = ((left_ns as f64 / self.step_ns) as usize).min(actions.len() - 1);
        actions[left].checked_sub(1).map(|before| (f64::from(before) * self.step_ns) as u64)
    }

    fn expected(&self, device_ns: u64, start_ns: u64, look_ns: u64) -> Expected {
        let table = self.table(device_ns);
        let left = device_ns.saturating_sub(start_ns) as f64 / self.step_ns;
        let at = (left as usize).min(table.actions.len() - 1);
        // A spinning time is known more exactly than the grid.
        let spins = table.actions[at] == 0;
        let lost = self.limit_ns.is_some_and(|limit_ns| (device_ns + look_ns) as f64 > limit_ns);
        Expected {
            cpu_ns: if spins {
                device_ns as f64
            } else {
                table.cpu[at] * self.step_ns + start_ns as f64
            },
            late_ns: table.late[at] * self.step_ns,
            beyond: if lost { 1.0 } else { table.beyond[at] },
        }
    }
}

impl Solve for Problem {
    type Plan = Plan;

    fn solve(&self, price: f64) -> (Plan, Expected) {
        let tables = match self.limit_ns {
            // The last table: in time whatever the wake cost is.
            Some(_) => {
                (0..=self.wake.most + 1).map(|spare| self.table(price, Some(spare))).collect()
            }
            None => vec![self.table(price, None)],
        };
        let plan = Plan { step_ns: self.step_ns, limit_ns: self.limit_ns, tables };
        let mut sum = Expected::default();
        for device_ns in &self.times_ns {
            sum.add(1.0, &plan.expected(*device_ns, self.start_ns, self.look_ns));
        }
        let count = self.times_ns.len().max(1) as f64;
        let mean = Expected {
            cpu_ns: sum.cpu_ns / count,
            late_ns: sum.late_ns / count,
            beyond: sum.beyond / count,
        };
        (plan, mean)
    }
}
