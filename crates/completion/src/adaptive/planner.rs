//! Decides when to sleep during an I/O, given the distributions of its device time and of wake-up
//! lateness, if a ns of lateness is worth `price` ns of CPU.
//!
//! The cost of an I/O is the CPU used while waiting, plus `price` times the time between its
//! completion and the next look. Suppose that the I/O is not complete at moment `m`. Sleeping until
//! `s` (and running again at `s + W`) instead of spinning saves CPU while the I/O is not complete,
//! and makes it late afterwards. Given `T > m`, moving `s` by `ds` saves `P(T > s + W) ds` of CPU
//! and costs `price * P(T <= s + W) ds` of lateness. If spinning follows, the best `s` is where
//! `P(T <= s + W | T > m) = 1 / (1 + price)`, a quantile of device time less wake cost. Comparing
//! costs, from the last moment backwards, decides whether a sleep is worth its own CPU, and whether
//! a shorter one followed by another is better. So an I/O that has missed its usual time is slept
//! for again (docs/waiting.md derives it all).

use super::super::plan::{MAX_STAGES, Plan, Stage};
use super::times::{MAX_POINTS, Support};
use super::tuning::*;
use super::wake::{GROUPS, Groups};

/// A plan and its expected costs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Planned {
    /// The sleeps.
    pub plan: Plan,
    /// Expected time between completion and the next look, in ns.
    pub late_ns: f32,
    /// Expected CPU used while waiting, in ns.
    pub cpu_ns: f32,
}

/// Expected cost of sleeping until `s` from a moment on, not yet divided by the probability of
/// reaching that moment.
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

/// The costs of sleeping, in ns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs<'a> {
    /// Lateness of a sleep that ends at its time.
    pub wake: &'a Groups,
    /// Lateness of a sleep that the completion ends, by the queue's interrupt; `None` if the queue
    /// has no interrupt.
    pub interrupt: Option<f32>,
    /// CPU of a sleep.
    pub cpu: f32,
}

/// A distribution as stretches, within each of which all times are equally likely. A point without
/// neighbours is a stretch of no length.
struct Known {
    count: usize,
    low_ns: [f32; MAX_POINTS],
    high_ns: [f32; MAX_POINTS],
    mass: [f32; MAX_POINTS],
    /// For each stretch, the cumulative probability and the moment of the stretches before it.
    below: [f32; MAX_POINTS + 1],
    moment: [f32; MAX_POINTS + 1],
}

/// A time: the first stretch that has not passed, and the part of it that has.
#[derive(Debug, Clone, Copy)]
struct Place {
    at_ns: f32,
    stretch: usize,
    part: f32,
}

impl Known {
    fn of(support: &Support) -> Self {
        let (ns, mass, count) = (&support.ns, &support.mass, support.count);
        let (mut low_ns, mut high_ns) = (*ns, *ns);
        for k in 1..count {
            let gap_ns = ns[k] - ns[k - 1];
            let rare = mass[k].max(mass[k - 1]) < RARE_PART;
            if gap_ns < ns[k - 1] * if rare { ADJACENT_RARE_PART } else { ADJACENT_PART } {
                high_ns[k - 1] = ns[k - 1] + 0.5 * gap_ns;
                low_ns[k] = high_ns[k - 1];
            }
        }
        let (mut below, mut moment) = ([0.0; MAX_POINTS + 1], [0.0; MAX_POINTS + 1]);
        for k in 0..count {
            below[k + 1] = below[k] + mass[k];
            moment[k + 1] = moment[k] + mass[k] * 0.5 * (low_ns[k] + high_ns[k]);
        }
        Self { count, low_ns, high_ns, mass: *mass, below, moment }
    }

    /// The end of the stretch before `m`: the I/O is then known not to have ended in it.
    fn moment_ns(&self, m: usize) -> f32 {
        if m == 0 { 0.0 } else { self.high_ns[m - 1] }
    }

    /// The place of the time `at_ns`, which is in the stretch `from` or after it.
    #[inline(always)]
    fn place(&self, from: usize, at_ns: f32) -> Place {
        let mut stretch = from;
        while stretch < self.count && self.high_ns[stretch] <= at_ns {
            stretch += 1;
        }
        let mut part = 0.0;
        if stretch < self.count && at_ns > self.low_ns[stretch] {
            part = (at_ns - self.low_ns[stretch]) / (self.high_ns[stretch] - self.low_ns[stretch]);
        }
        Place { at_ns, stretch, part }
    }

    /// The probability of having ended by then.
    #[inline(always)]
    fn passed(&self, Place { stretch, part, .. }: Place) -> f32 {
        self.below[stretch] + if part > 0.0 { self.mass[stretch] * part } else { 0.0 }
    }

    /// The probability of not having ended.
    #[inline(always)]
    fn left(&self, place: Place) -> f32 {
        self.below[self.count] - self.passed(place)
    }

    /// The probability that an I/O that has not ended at the moment `m` ends within `ns`.
    fn ends_within(&self, m: usize, ns: f32) -> f32 {
        let then = self.place(m, self.moment_ns(m) + ns);
        (self.passed(then) - self.below[m]) / (self.below[self.count] - self.below[m])
    }

    /// Expected lateness at `place` of those that have ended since the moment `m`.
    #[inline(always)]
    fn late(&self, m: usize, Place { at_ns, stretch, part }: Place) -> f32 {
        let whole = (self.below[stretch] - self.below[m]) * at_ns;
        let mut late = whole - (self.moment[stretch] - self.moment[m]);
        if part > 0.0 {
            late += 0.5 * self.mass[stretch] * part * (at_ns - self.low_ns[stretch]);
        }
        late.max(0.0)
    }

    /// CPU of spinning from `place` to the end of its stretch.
    #[inline(always)]
    fn spun(&self, place: Place) -> f32 {
        let Place { at_ns, stretch, part } = place;
        let high_ns = self.high_ns[stretch];
        let ending = self.mass[stretch] * (1.0 - part);
        self.left(place) * (high_ns - at_ns)
            - 0.5 * ending * (high_ns - at_ns.max(self.low_ns[stretch]))
    }
}

/// Returns the best plan. `support` is the distribution of the device time since submission.
pub fn plan(support: &Support, costs: &Costs<'_>, price: f32) -> Planned {
    let n = support.count;
    if n == 0 {
        return Planned::default();
    }
    let known = Known::of(support);
    let (wake, below) = (costs.wake, &known.below);
    let share = 1.0 / (1.0 + price);
    let quantile_ns = quantiles(support, &known, wake, share);

    // Backwards: the cost from each moment on, the minimum of spinning to the next one and of
    // sleeping. At moment `m` the first `m` stretches have passed; moment 0 is submission.
    let mut best = [Cost::default(); MAX_POINTS + 1];
    let mut until = [f32::NEG_INFINITY; MAX_POINTS];
    let typical_wake = wake[GROUPS / 2];
    // The first moment of the next time for which spinning is best.
    let mut spins_from = None;
    // From this time on, more than `share` of the I/Os end within a wake-up, so no sleep goes on.
    let (mut rises_ns, mut soon_after) = (f32::NEG_INFINITY, 1.0);
    for m in (0..n).rev() {
        let left = below[n] - below[m];
        let began = Place { at_ns: known.moment_ns(m), stretch: m, part: 0.0 };
        best[m] = Cost { cpu: known.spun(began) + best[m + 1].cpu, late: best[m + 1].late };
        // The cost of sleeping until `until_ns`.
        let slept = |until_ns: f32, best: &[Cost; MAX_POINTS + 1], until: &[f32; MAX_POINTS]| {
            let mut sum = Cost { cpu: costs.cpu * left, late: 0.0 };
            // I/Os that end before the sleep is over end the sleep themselves.
            let ends = known.place(m, until_ns);
            let mut woken = 0.0;
            if let Some(late_ns) = costs.interrupt {
                woken = known.passed(ends) - below[m];
                sum.late = woken * late_ns - known.late(m, ends);
            }
            let mut from = ends.stretch;
            for wake_ns in wake {
                let runs = known.place(from, until_ns + wake_ns);
                from = runs.stretch;
                let late = (known.late(m, runs) - woken * wake_ns).max(0.0);
                let mut then = Cost { cpu: 0.0, late };
                if from < n {
                    let cpu = known.spun(runs) + best[from + 1].cpu;
                    let spun = Cost { cpu, late: best[from + 1].late };
                    let mut after = spun;
                    if from > m && until[from] - runs.at_ns > PLANNED_LEAST_NS {
                        let share = known.left(runs) / (below[n] - below[from]);
                        let Cost { cpu, late } = best[from];
                        let again = Cost { cpu: share * cpu, late: share * late };
                        if again.at(price) < spun.at(price) {
                            after = again;
                        }
                    }
                    then.cpu = after.cpu;
                    then.late += after.late;
                }
                sum.cpu += then.cpu / GROUPS as f32;
                sum.late += then.late / GROUPS as f32;
            }
            sum
        };
        let next = until.get(m + 1).copied();
        let mut consider = |until_ns: f32| {
            if until_ns - began.at_ns < PLANNED_LEAST_NS {
                return;
            }
            let cost = slept(until_ns, &best, &until);
            if cost.at(price) < best[m].at(price) {
                best[m] = cost;
                until[m] = until_ns;
            }
        };
        // If sleeps follow, or if the I/O ends the sleep, the cost has more than one minimum. So
        // these ends are considered, too: before the next stretch, at the end of the sleep that is
        // best from the next moment on, before a time for which spinning is best, and at the end of
        // all. If the I/O ends the sleep, moving `s` by `ds` costs `price * P(s < T <= s + W) ds`
        // more. It is best where `P(T <= s + W | T > s)` rises above `1 / (1 + price)`.
        consider(quantile_ns[m]);
        consider(known.low_ns[m] - typical_wake);
        consider(next.unwrap_or(f32::NEG_INFINITY));
        consider(spins_from.map_or(f32::NEG_INFINITY, |at: usize| known.low_ns[at] - typical_wake));
        if costs.interrupt.is_some() {
            let soon = known.ends_within(m, typical_wake);
            if soon < share && share <= soon_after {
                let part = (share - soon) / (soon_after - soon);
                rises_ns = began.at_ns + part * (known.high_ns[m] - began.at_ns);
            }
            soon_after = soon;
            consider(rises_ns);
            consider(known.high_ns[n - 1]);
        }
        if until[m] == f32::NEG_INFINITY {
            spins_from = Some(m);
        }
    }
    Planned { plan: collect(&known, wake, &until), late_ns: best[0].late, cpu_ns: best[0].cpu }
}

/// For each moment, the end of the sleep after which the part `share` of the remaining I/Os has
/// ended when the sleeper runs. This is the best end if spinning follows. It increases with the
/// moment.
fn quantiles(support: &Support, known: &Known, wake: &Groups, share: f32) -> [f32; MAX_POINTS] {
    let (ns, mass, below, n) = (&support.ns, &support.mass, &known.below, known.count);
    let mut quantile_ns = [0.0f32; MAX_POINTS];
    let (mut at, mut passed, mut sum) = (f32::NEG_INFINITY, [0usize; GROUPS], 0.0f32);
    let (mut before, mut step) = (f32::NEG_INFINITY, 0.0);
    for m in 0..n {
        let target = (below[m] + (below[n] - below[m]) * share) * GROUPS as f32;
        loop {
            // The next point that some group would pass.
            let mut next = f32::INFINITY;
            let mut group = GROUPS;
            for (g, passed) in passed.iter().enumerate() {
                if *passed < n && ns[*passed] - wake[g] < next {
                    next = ns[*passed] - wake[g];
                    group = g;
                }
            }
            if group == GROUPS || sum >= target {
                break;
            }
            before = at;
            at = at.max(next);
            step = mass[passed[group]];
            sum += step;
            passed[group] += 1;
        }
        // Within a stretch, between its points.
        let (gap, over) = (at - before, ((sum - target) / step).clamp(0.0, 1.0));
        quantile_ns[m] = if gap < ADJACENT_PART * at { at - gap * over } else { at };
    }
    quantile_ns
}

/// Collects the sleeps in order, from the first moment on.
fn collect(known: &Known, wake: &Groups, until: &[f32; MAX_POINTS]) -> Plan {
    let n = known.count;
    let mut plan = Plan::SPIN;
    let mut m = 0;
    while m < n && plan.stages().len() < MAX_STAGES {
        if until[m] == f32::NEG_INFINITY {
            m += 1;
            continue;
        }
        // A point without neighbours represents a small part of its time, or half of the gap.
        let high_ns = known.moment_ns(m);
        let from = high_ns + (0.5 * (known.low_ns[m] - high_ns)).min(LONE_STRETCH_PART * high_ns);
        if until[m] - from >= PLANNED_LEAST_NS {
            plan.push(Stage { from_ns: from as u32, until_ns: until[m] as u32 });
        }
        // Continues where the sleeper usually runs again.
        m = known.place(m, until[m] + wake[GROUPS / 2]).stretch.max(m + 1);
    }
    plan
}

#[cfg(all(test, not(loom)))]
mod tests;
