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

/// Returns the best plan. `support` is the distribution of the device time since submission, `wake`
/// that of lateness, `sleep_cpu_ns` the CPU cost of a sleep.
pub fn plan(support: &Support, wake: &Groups, sleep_cpu_ns: f32, price: f32) -> Planned {
    let n = support.count;
    if n == 0 {
        return Planned::default();
    }
    let (ns, mass) = (&support.ns, &support.mass);
    // Cumulative probability and moment, up to and including point k - 1.
    let mut below = [0.0f32; MAX_POINTS + 1];
    let mut moment = [0.0f32; MAX_POINTS + 1];
    for k in 0..n {
        below[k + 1] = below[k] + mass[k];
        moment[k + 1] = moment[k] + mass[k] * ns[k];
    }
    // At moment m the first m points have passed and the I/O is not complete; moment 0 is
    // submission.
    let elapsed = |m: usize| if m == 0 { 0.0 } else { ns[m - 1] };

    // For each moment the end of the sleep by the quantile, which is the best if spinning follows.
    // It increases with the moment.
    let mut quantile = [0.0f32; MAX_POINTS];
    let share = 1.0 / (1.0 + price);
    let (mut at, mut passed, mut sum) = (f32::NEG_INFINITY, [0usize; GROUPS], 0.0f32);
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
            at = at.max(next);
            sum += mass[passed[group]];
            passed[group] += 1;
        }
        quantile[m] = at;
    }

    // Backwards: the cost from each moment on, the minimum of spinning to the next point and of
    // sleeping. If more sleeps follow, ends earlier than the quantile's are better; the search goes
    // down from the best end of the following moment.
    let mut best = [Cost::default(); MAX_POINTS + 1];
    let mut until = [f32::NEG_INFINITY; MAX_POINTS];
    let typical_wake = wake[GROUPS / 2];
    let mut candidate = n - 1;
    for m in (0..n).rev() {
        let left = below[n] - below[m];
        let spun =
            Cost { cpu: left * (ns[m] - elapsed(m)) + best[m + 1].cpu, late: best[m + 1].late };
        best[m] = spun;
        // The cost of sleeping until `until_ns`.
        let slept = |until_ns: f32, best: &[Cost; MAX_POINTS + 1], until: &[f32; MAX_POINTS]| {
            let mut sum = Cost { cpu: sleep_cpu_ns * left, late: 0.0 };
            let mut k = m;
            for wake_ns in wake {
                let runs = until_ns + wake_ns;
                while k < n && ns[k] <= runs {
                    k += 1;
                }
                let late = (below[k] - below[m]) * runs - (moment[k] - moment[m]);
                let mut then = Cost { cpu: 0.0, late: late.max(0.0) };
                if k < n {
                    let cpu = (below[n] - below[k]) * (ns[k] - runs) + best[k + 1].cpu;
                    let spun = Cost { cpu, late: best[k + 1].late };
                    let again = k > m
                        && until[k] - runs > SHORTEST_SLEEP_NS
                        && best[k].at(price) < spun.at(price);
                    let after = if again { best[k] } else { spun };
                    then.cpu = after.cpu;
                    then.late += after.late;
                }
                sum.cpu += then.cpu / GROUPS as f32;
                sum.late += then.late / GROUPS as f32;
            }
            sum
        };
        let mut consider = |until_ns: f32| {
            if until_ns - elapsed(m) < SHORTEST_SLEEP_NS {
                return f32::INFINITY;
            }
            let cost = slept(until_ns, &best, &until);
            if cost.at(price) < best[m].at(price) {
                best[m] = cost;
                until[m] = until_ns;
            }
            cost.at(price)
        };
        consider(quantile[m]);
        let mut cost = consider(ns[candidate] - typical_wake);
        while candidate > m {
            let lower = consider(ns[candidate - 1] - typical_wake);
            if lower > cost {
                break;
            }
            cost = lower;
            candidate -= 1;
        }
    }

    // Forwards: collects the sleeps in order.
    let mut plan = Plan::SPIN;
    let mut m = 0;
    // Whether the earliest wake-up from the previous sleep goes to sleep again at once.
    let mut at_once = None;
    while m < n && plan.stages().len() < MAX_STAGES {
        if until[m] == f32::NEG_INFINITY {
            (m, at_once) = (m + 1, None);
            continue;
        }
        let from = match (m, at_once) {
            (_, Some(from)) => from,
            (0, _) => 0.0,
            // A point represents its neighbourhood, which extends half way to the next one, or a
            // small part of its time if that is less.
            _ => ns[m - 1] + (0.5 * (ns[m] - ns[m - 1])).min(0.015 * ns[m - 1]),
        };
        if until[m] - from >= SHORTEST_SLEEP_NS {
            plan.push(Stage { from_ns: from as u32, until_ns: until[m] as u32 });
        }
        // Continues where the sleeper usually runs again.
        let passed = |runs: f32| m + ns[m..n].iter().take_while(|ns| **ns <= runs).count();
        let (soonest, usual) = (passed(until[m] + wake[0]), passed(until[m] + typical_wake));
        let again = soonest > m && soonest < n && until[soonest] != f32::NEG_INFINITY;
        let clear = again && until[m] + wake[0] > 1.01 * ns[soonest - 1];
        at_once = clear.then_some(until[m] + wake[0]);
        m = usual.max(m + 1);
    }
    Planned { plan, late_ns: best[0].late, cpu_ns: best[0].cpu }
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

    fn stage(from_ns: u32, until_ns: u32) -> Stage {
        Stage { from_ns, until_ns }
    }

    /// Both are known: the thread wakes when the I/O ends.
    #[test]
    fn a_constant_is_met_exactly() {
        let planned = plan(&constant(10_000.0), &WAKE_2_US, 500.0, 8.0);
        assert_eq!(planned.plan.stages(), [stage(0, 8_000)]);
        assert_eq!((planned.cpu_ns, planned.late_ns), (500.0, 0.0));
    }

    /// By hand: s = 7 µs runs at 8 or 10: spins 1 µs on average, never late. s = 9 runs at 10 or
    /// 12: late by 1 µs on average. So 7 if lateness is expensive, 9 if it is cheap; the deciding
    /// quantile is 1/2, at a price of 1.
    #[test]
    fn the_price_decides_which_wake_up_is_met() {
        let at = |price| plan(&constant(10_000.0), &WAKE_1_OR_3_US, 0.0, price);
        assert_eq!(at(1.1).plan.stages(), [stage(0, 7_000)]);
        assert_eq!((at(1.1).cpu_ns, at(1.1).late_ns), (1_000.0, 0.0));
        assert_eq!(at(0.9).plan.stages(), [stage(0, 9_000)]);
        assert_eq!((at(0.9).cpu_ns, at(0.9).late_ns), (0.0, 1_000.0));
    }

    /// Sleeping 8 of 10 µs saves 10 µs of spinning.
    #[test]
    fn a_sleep_that_costs_more_than_it_saves_is_not_made() {
        assert!(!plan(&constant(10_000.0), &WAKE_2_US, 9_900.0, 8.0).plan.is_spin());
        let planned = plan(&constant(10_000.0), &WAKE_2_US, 10_100.0, 8.0);
        assert!(planned.plan.is_spin());
        assert_eq!((planned.cpu_ns, planned.late_ns), (10_000.0, 0.0));
    }

    #[test]
    fn a_device_faster_than_waking_is_spun_for() {
        assert!(plan(&constant(2_000.0), &[13_000.0; GROUPS], 1_000.0, 8.0).plan.is_spin());
    }

    /// By hand: 9 in 10 end at 10 µs, the others at 100; waking takes 13. No sleep fits before 10;
    /// after it, one of 77 µs does (until 87 µs), at a CPU cost of 2 µs for 1 in 10: 10 + 0.2 µs.
    #[test]
    fn what_missed_its_usual_time_is_slept_for() {
        let support = Support::of(&[(10_000.0, 0.9), (100_000.0, 0.1)]);
        let planned = plan(&support, &[13_000.0; GROUPS], 2_000.0, 10.0);
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
        let planned = plan(&support, &WAKE_2_US, 1_000.0, 3.0);
        assert_eq!(planned.plan.stages(), [stage(0, 18_000), stage(20_300, 38_000)]);
        assert!((planned.cpu_ns - 1_500.0).abs() < 1.0, "{planned:?}");
        // If lateness is nearly free, one sleep spans both: late by 20 for one in two.
        let planned = plan(&support, &WAKE_2_US, 1_000.0, 0.01);
        assert_eq!(planned.plan.stages(), [stage(0, 38_000)]);
        assert!((planned.late_ns - 10_000.0).abs() < 1.0);
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
            let mut points: Vec<(f32, f32)> = (0..1 + round % 12)
                .map(|_| (1_000.0 + 80_000.0 * random(), 0.01 + random()))
                .collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let sum: f32 = points.iter().map(|point| point.1).sum();
            points.iter_mut().for_each(|point| point.1 /= sum);
            let mut wake: Groups = std::array::from_fn(|_| 500.0 + 9_000.0 * random());
            wake.sort_by(f32::total_cmp);
            let (sleep_cpu_ns, price) = (4_000.0 * random(), 0.1 + 12.0 * random());
            let planned = plan(&Support::of(&points), &wake, sleep_cpu_ns, price);
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
