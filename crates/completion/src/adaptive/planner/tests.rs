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
    assert!((planned.cpu_ns - 10_200.0).abs() < 1.0 && planned.late_ns.abs() < 1.0, "{planned:?}");
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
