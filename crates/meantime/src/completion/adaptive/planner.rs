//! The decision: when to sleep during an I/O, given how long such I/Os take and how late sleepers run, if a ns of lateness is worth `price` ns of CPU.
//!
//! The cost of an I/O is the CPU it burns waiting, plus `price` times how long it was complete and nobody looked. Let the I/O not be complete at some
//! moment `m`. Sleeping on until `s` (and running again at `s + W`) instead of spinning saves CPU as long as the I/O is not complete, and makes it late
//! once it is. Moving `s` by `ds` saves `P(T > s + W) ds` of CPU and costs `price * P(T <= s + W) ds` of lateness, both given `T > m`: the best `s`
//! is where `P(T <= s + W | T > m) = 1 / (1 + price)`, a quantile of device time less wake cost. Whether that sleep is worth its own CPU is found
//! by comparing the costs, from the last moment backwards, so that an I/O that has missed its usual time is slept for again
//! (docs/waiting.md derives it all).

use super::super::plan::{MAX_STAGES, Plan, Stage};
use super::times::{MAX_POINTS, Support};
use super::wake::{GROUPS, Groups};

/// A sleep shorter than that is none.
const SHORTEST_SLEEP_NS: f32 = 100.0;

/// A plan and what it is expected to come to.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Planned {
    /// When to sleep.
    pub plan: Plan,
    /// How long a completed I/O is not looked at, on average, in ns.
    pub late_ns: f32,
    /// CPU burnt while waiting, on average, in ns.
    pub cpu_ns: f32,
}

/// What sleeping until `s` costs from a moment on, not yet divided by the likelihood of getting there.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    cpu: f32,
    late: f32,
}

impl Cost {
    fn at(&self, price: f32) -> f32 {
        self.cpu + price * self.late
    }
}

/// The best plan. `support` is of the device time since submission, `wake` of lateness, `sleep_cpu_ns` what a sleep costs.
pub fn plan(support: &Support, wake: &Groups, sleep_cpu_ns: f32, price: f32) -> Planned {
    let n = support.count;
    if n == 0 {
        return Planned::default();
    }
    let (ns, mass) = (&support.ns, &support.mass);
    // Up to and including point k - 1: likelihood, and its moment.
    let mut below = [0.0f32; MAX_POINTS + 1];
    let mut moment = [0.0f32; MAX_POINTS + 1];
    for k in 0..n {
        below[k + 1] = below[k] + mass[k];
        moment[k + 1] = moment[k] + mass[k] * ns[k];
    }
    // Moment m: the first m points are over, and the I/O is not complete; moment 0 is submission.
    let elapsed = |m: usize| if m == 0 { 0.0 } else { ns[m - 1] };

    // For each moment the best time to sleep until, and how many points are over when the sleeper runs, by group of lateness. Rising with the moment.
    let mut until = [0.0f32; MAX_POINTS];
    let mut over = [[0u8; GROUPS]; MAX_POINTS];
    let share = 1.0 / (1.0 + price);
    let (mut at, mut passed, mut sum) = (f32::NEG_INFINITY, [0usize; GROUPS], 0.0f32);
    for m in 0..n {
        let target = (below[m] + (below[n] - below[m]) * share) * GROUPS as f32;
        while sum < target {
            // The next point that some group would pass.
            let mut next = f32::INFINITY;
            let mut group = GROUPS;
            for (g, passed) in passed.iter().enumerate() {
                if *passed < n && ns[*passed] - wake[g] < next {
                    next = ns[*passed] - wake[g];
                    group = g;
                }
            }
            if group == GROUPS {
                break;
            }
            at = at.max(next);
            sum += mass[passed[group]];
            passed[group] += 1;
        }
        until[m] = at;
        over[m] = passed.map(|passed| passed as u8);
    }

    // Backwards: what it costs from each moment on, by the better of spinning to the next point and sleeping.
    let mut best = [Cost::default(); MAX_POINTS + 1];
    let mut sleeps = [false; MAX_POINTS];
    for m in (0..n).rev() {
        let left = below[n] - below[m];
        let spun = Cost { cpu: left * (ns[m] - elapsed(m)) + best[m + 1].cpu, late: best[m + 1].late };
        best[m] = spun;
        if until[m] - elapsed(m) < SHORTEST_SLEEP_NS {
            continue;
        }
        let mut slept = Cost { cpu: sleep_cpu_ns * left, late: 0.0 };
        for g in 0..GROUPS {
            let runs = until[m] + wake[g];
            // Points that were passed may be a hair after it by rounding, or before the moment.
            let k = usize::from(over[m][g]).max(m);
            let late = (below[k] - below[m]) * runs - (moment[k] - moment[m]);
            let mut then = Cost { cpu: 0.0, late: late.max(0.0) };
            if k < n {
                then.cpu = (below[n] - below[k]) * (ns[k] - runs).max(0.0) + best[k + 1].cpu;
                then.late += best[k + 1].late;
            }
            slept.cpu += then.cpu / GROUPS as f32;
            slept.late += then.late / GROUPS as f32;
        }
        if slept.at(price) < spun.at(price) {
            best[m] = slept;
            sleeps[m] = true;
        }
    }

    // Forwards: the sleeps that come one after the other.
    let mut plan = Plan::SPIN;
    let mut m = 0;
    while m < n && plan.stages().len() < MAX_STAGES {
        if !sleeps[m] {
            m += 1;
            continue;
        }
        let from = match m {
            0 => 0.0,
            // A point stands for its neighbourhood: half way to the next one, or a little later than it.
            _ => ns[m - 1] + (0.5 * (ns[m] - ns[m - 1])).min(0.04 * ns[m - 1]),
        };
        plan.push(Stage { from_ns: from as u64, until_ns: until[m] as u64 });
        // On from where the latest sleeper runs; who runs earlier spins until there.
        let runs = usize::from(over[m][GROUPS - 1]).max(usize::from(over[m][0]));
        m = runs.max(m + 1);
    }
    Planned { plan, late_ns: best[0].late, cpu_ns: best[0].cpu }
}
