//! The decision when to sleep during an I/O, given the distributions of its device time and of
//! wake-up lateness, if a ns of lateness is worth `price` ns of CPU.
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
use super::wake::{GROUPS, Groups};

/// Shorter sleeps are not made.
const SHORTEST_SLEEP_NS: f32 = 100.0;

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
    /// Lateness of a sleep that the completion ends, by the queue's interrupt; `None`: it has none.
    pub interrupt: Option<f32>,
    /// CPU of a sleep.
    pub cpu: f32,
}

/// Neighbouring points are parts of one stretch of times, and not times of their own, if they
/// differ by less than this part; if both are as rare as single observations, by less than the
/// second.
const ADJACENT: f32 = 0.06;
const ADJACENT_RARE: f32 = 0.15;
const RARE: f32 = 0.06;

/// A distribution as stretches, within each of which all times are equally likely. A point without
/// neighbours is a stretch of no length.
struct Known {
    count: usize,
    low_ns: [f32; MAX_POINTS],
    high_ns: [f32; MAX_POINTS],
    mass: [f32; MAX_POINTS],
    /// Cumulative probability and moment of the stretches before each.
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
            let rare = mass[k].max(mass[k - 1]) < RARE;
            if gap_ns < ns[k - 1] * if rare { ADJACENT_RARE } else { ADJACENT } {
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
    // From this time on, more than `share` of the I/Os end within a wake-up: no sleep goes on.
    let (mut rises_ns, mut soon_after) = (f32::NEG_INFINITY, 1.0);
    for m in (0..n).rev() {
        let left = below[n] - below[m];
        let began = Place { at_ns: known.moment_ns(m), stretch: m, part: 0.0 };
        best[m] = Cost { cpu: known.spun(began) + best[m + 1].cpu, late: best[m + 1].late };
        // The cost of sleeping until `until_ns`.
        let slept = |until_ns: f32, best: &[Cost; MAX_POINTS + 1], until: &[f32; MAX_POINTS]| {
            let mut sum = Cost { cpu: costs.cpu * left, late: 0.0 };
            // Those that end before it is over end it themselves.
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
                    if from > m && until[from] - runs.at_ns > SHORTEST_SLEEP_NS {
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
            if until_ns - began.at_ns < SHORTEST_SLEEP_NS {
                return;
            }
            let cost = slept(until_ns, &best, &until);
            if cost.at(price) < best[m].at(price) {
                best[m] = cost;
                until[m] = until_ns;
            }
        };
        // The cost has more than one minimum if sleeps follow, or if the I/O ends the sleep: also
        // before the next stretch, at the end of the sleep that is best from the next moment on,
        // before a time for which spinning is best, and at the end of all. If the I/O ends it, `s`
        // by `ds` more costs `price * P(s < T <= s + W) ds`: it is best where
        // `P(T <= s + W | T > s)` rises above `1 / (1 + price)`.
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

/// For each moment the end of the sleep after which the part `share` of what is left has ended when
/// the sleeper runs: the best if spinning follows. It increases with the moment.
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
        quantile_ns[m] = if gap < ADJACENT * at { at - gap * over } else { at };
    }
    quantile_ns
}

/// Forwards: collects the sleeps in order.
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
        let from = high_ns + (0.5 * (known.low_ns[m] - high_ns)).min(0.015 * high_ns);
        if until[m] - from >= SHORTEST_SLEEP_NS {
            plan.push(Stage { from_ns: from as u32, until_ns: until[m] as u32 });
        }
        // Continues where the sleeper usually runs again.
        m = known.place(m, until[m] + wake[GROUPS / 2]).stretch.max(m + 1);
    }
    plan
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const WAKE_2_US: Groups = [2_000.0; GROUPS];
    /// 1 or 3 µs, equally likely.
    const WAKE_1_OR_3_US: Groups =
        [1_000.0, 1_000.0, 1_000.0, 1_000.0, 3_000.0, 3_000.0, 3_000.0, 3_000.0];

    fn constant(ns: f32) -> Support {
        Support::of(&[(ns, 1.0)])
    }

    fn polled(support: &Support, wake: &Groups, cpu: f32, price: f32) -> Planned {
        plan(support, &Costs { wake, interrupt: None, cpu }, price)
    }

    fn stage(from_ns: u32, until_ns: u32) -> Stage {
        Stage { from_ns, until_ns }
    }

    /// Both are known: the thread wakes when the I/O ends.
    #[test]
    fn a_constant_is_met_exactly() {
        let planned = polled(&constant(10_000.0), &WAKE_2_US, 500.0, 8.0);
        assert_eq!(planned.plan.stages(), [stage(0, 8_000)]);
        assert_eq!((planned.cpu_ns, planned.late_ns), (500.0, 0.0));
    }

    /// By hand: s = 7 µs runs at 8 or 10: spins 1 µs on average, never late. s = 9 runs at 10 or
    /// 12: late by 1 µs on average. So 7 if lateness is expensive, 9 if it is cheap; the deciding
    /// quantile is 1/2, at a price of 1.
    #[test]
    fn the_price_decides_which_wake_up_is_met() {
        let at = |price| polled(&constant(10_000.0), &WAKE_1_OR_3_US, 0.0, price);
        assert_eq!(at(1.1).plan.stages(), [stage(0, 7_000)]);
        assert_eq!((at(1.1).cpu_ns, at(1.1).late_ns), (1_000.0, 0.0));
        assert_eq!(at(0.9).plan.stages(), [stage(0, 9_000)]);
        assert_eq!((at(0.9).cpu_ns, at(0.9).late_ns), (0.0, 1_000.0));
    }

    /// Sleeping 8 of 10 µs saves 10 µs of spinning.
    #[test]
    fn a_sleep_that_costs_more_than_it_saves_is_not_made() {
        assert!(!polled(&constant(10_000.0), &WAKE_2_US, 9_900.0, 8.0).plan.is_spin());
        let planned = polled(&constant(10_000.0), &WAKE_2_US, 10_100.0, 8.0);
        assert!(planned.plan.is_spin());
        assert_eq!((planned.cpu_ns, planned.late_ns), (10_000.0, 0.0));
    }

    #[test]
    fn a_device_faster_than_waking_is_spun_for() {
        assert!(polled(&constant(2_000.0), &[13_000.0; GROUPS], 1_000.0, 8.0).plan.is_spin());
    }

    /// By hand: 9 in 10 end at 10 µs, the others at 100; waking takes 13. No sleep fits before 10;
    /// after it, one of 77 µs does (until 87 µs), at a CPU cost of 2 µs for 1 in 10: 10 + 0.2 µs.
    #[test]
    fn what_missed_its_usual_time_is_slept_for() {
        let support = Support::of(&[(10_000.0, 0.9), (100_000.0, 0.1)]);
        let planned = polled(&support, &[13_000.0; GROUPS], 2_000.0, 10.0);
        assert_eq!(planned.plan.stages(), [stage(10_150, 87_000)]);
        assert!(
            (planned.cpu_ns - 10_200.0).abs() < 1.0 && planned.late_ns.abs() < 1.0,
            "{planned:?}"
        );
    }

    /// By hand: equally likely at 20 and 40 µs, waking takes 2, a price of 3: the quantile 1/4 is
    /// the first point, 18; after it, 38.
    #[test]
    fn two_modes_are_met_both() {
        let support = Support::of(&[(20_000.0, 0.5), (40_000.0, 0.5)]);
        let planned = polled(&support, &WAKE_2_US, 1_000.0, 3.0);
        assert_eq!(planned.plan.stages(), [stage(0, 18_000), stage(20_300, 38_000)]);
        assert!((planned.cpu_ns - 1_500.0).abs() < 1.0, "{planned:?}");
        // If lateness is nearly free, one sleep spans both: late by 20 for one in two.
        let planned = polled(&support, &WAKE_2_US, 1_000.0, 0.01);
        assert_eq!(planned.plan.stages(), [stage(0, 38_000)]);
        assert!((planned.late_ns - 10_000.0).abs() < 1.0);
    }

    /// By hand: equally likely at 20 and 40 µs, and an interrupt, 2 µs late. One sleep that meets
    /// the second costs 1 µs of CPU, and 2 of lateness for those that end it at 20; two sleeps that
    /// meet both cost 1.5 of CPU. So one is better up to a price of 1/2.
    #[test]
    fn a_sleep_that_the_completion_ends() {
        let support = Support::of(&[(20_000.0, 0.5), (40_000.0, 0.5)]);
        let costs = Costs { wake: &WAKE_2_US, interrupt: Some(2_000.0), cpu: 1_000.0 };
        let planned = plan(&support, &costs, 0.45);
        assert_eq!(planned.plan.stages(), [stage(0, 38_000)]);
        assert_eq!((planned.cpu_ns, planned.late_ns), (1_000.0, 1_000.0));
        let planned = plan(&support, &costs, 0.55);
        assert_eq!(planned.plan.stages(), [stage(0, 18_000), stage(20_300, 38_000)]);
        assert_eq!((planned.cpu_ns, planned.late_ns), (1_500.0, 0.0));
    }

    /// Equally likely from 10 to 20 µs.
    #[test]
    fn a_stretch_has_no_gaps_to_sleep_in() {
        let points: Vec<_> = (0..40).map(|k| (10_125.0 + 250.0 * k as f32, 0.025)).collect();
        let support = Support::of(&points);
        let stages = |interrupt, price| {
            let costs = Costs { wake: &WAKE_2_US, interrupt, cpu: 1_000.0 };
            plan(&support, &costs, price).plan.stages().to_vec()
        };
        // Lateness is dear: it wakes up before the first and spins.
        assert_eq!(stages(None, 200.0).len(), 1);
        assert_eq!(stages(Some(2_000.0), 200.0).len(), 1);
        // A ns of lateness is worth one of CPU: half have ended when it runs. If they end it, half
        // of those that are left end within 2 µs from 16 on.
        let half = stages(None, 1.0)[0];
        assert!((12_800..=13_200).contains(&half.until_ns), "{half:?}");
        let half = stages(Some(2_000.0), 1.0)[0];
        assert!((15_800..=16_200).contains(&half.until_ns), "{half:?}");
    }

    /// Compares the plan's expected costs with every single sleep.
    #[test]
    fn no_single_sleep_is_cheaper() {
        let mut state = 7u32;
        let mut random = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32
        };
        for round in 0..200 {
            // So far from each other that each is a time of its own.
            let mut ns = 1_000.0;
            let mut points: Vec<(f32, f32)> = (0..1 + round % 12)
                .map(|_| {
                    ns *= 1.16 + random();
                    (ns, 0.01 + random())
                })
                .collect();
            let sum: f32 = points.iter().map(|point| point.1).sum();
            points.iter_mut().for_each(|point| point.1 /= sum);
            let mut wake: Groups = std::array::from_fn(|_| 500.0 + 9_000.0 * random());
            wake.sort_by(f32::total_cmp);
            let (sleep_cpu_ns, price) = (4_000.0 * random(), 0.1 + 12.0 * random());
            let planned = polled(&Support::of(&points), &wake, sleep_cpu_ns, price);
            let cost = planned.cpu_ns + price * planned.late_ns;
            let once = |until_ns: f32| {
                let (mut cpu, mut late) = (sleep_cpu_ns, 0.0);
                for (ns, mass) in &points {
                    for wake_ns in &wake {
                        let runs = until_ns + wake_ns;
                        cpu += mass * (ns - runs).max(0.0) / GROUPS as f32;
                        late += mass * (runs - ns).max(0.0) / GROUPS as f32;
                    }
                }
                cpu + price * late
            };
            let spun: f32 = points.iter().map(|(ns, mass)| ns * mass).sum();
            let best = (1..160).map(|n| once(n as f32 * 500.0)).fold(spun, f32::min);
            assert!(cost <= best * 1.001 + 1.0, "{round}: {cost} against {best}");
        }
    }
}
