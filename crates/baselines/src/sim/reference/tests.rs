use super::*;
use crate::sim::{Distribution, Shape};

/// A machine on which only sleeping has a cost; looks cost too little to count.
fn machine(timer_wake: Distribution) -> Machine {
    Machine {
        timer_wake,
        look_ns: 1,
        clock_ns: 1,
        submit_ns: 0,
        doorbell_ns: 0,
        reap_ns: 0,
        ..Machine::bare_metal()
    }
}

fn percent(percent: u16) -> Goal {
    Goal::Latency(10 * percent)
}

fn close(a: f64, b: f64, within: f64) -> bool {
    (a - b).abs() <= within
}

/// Device time always 10 µs, wake cost always 2 µs, 1.2 µs CPU a sleep. A sleep that ends with the
/// completion costs 1.2 µs instead of 10. Sleeping longer saves nothing.
#[test]
fn constant_times_are_slept_through() {
    let machine = machine(Distribution::constant(2_000));
    let trace = Trace::of_reads([10_000; 1_000]);
    for reference in
        [informed(&trace, &machine, percent(3), 1), oracle(&trace, &machine, percent(3), 1)]
    {
        assert!(reference.reachable);
        assert!(close(reference.expected_cpu_ns, 1_200.0, 60.0), "{}", reference.expected_cpu_ns);
        assert!(close(reference.outcome.cpu_ns_per_io(), 1_200.0, 60.0));
        assert!(reference.outcome.mean_ns() <= 10_300.0);
    }
}

/// The same with 1 µs: a sleep would cost more than the spinning that it saves.
#[test]
fn what_is_too_short_is_spun_for() {
    let machine = machine(Distribution::constant(100));
    let trace = Trace::of_reads([1_000; 1_000]);
    let reference = informed(&trace, &machine, percent(3), 1);
    assert_eq!(reference.outcome.counters().sleeps, 0);
    assert!(close(reference.outcome.cpu_ns_per_io(), 1_000.0, 10.0));
}

/// The wake cost is 1 or 3 µs, equally often. The timer goes off 3 µs before the completion, 1 µs
/// before, or in between: with x from 0 to 2 µs later than the first, half of the sleepers spin for
/// 2 µs - x, half are late by x. 3 % of 10 µs are 300 ns of lateness on average: x = 600, and the
/// CPU is 1,200 + (2,000 - 600) / 2.
#[test]
fn two_wake_costs_by_hand() {
    let machine = machine(Distribution::of_samples(vec![1_000, 3_000]));
    let trace = Trace::of_reads([10_000; 4_000]);
    let reference = informed(&trace, &machine, percent(3), 1);
    assert!(close(reference.expected_mean_ns, 10_300.0, 5.0), "{reference:?}");
    assert!(close(reference.expected_cpu_ns, 1_900.0, 40.0), "{}", reference.expected_cpu_ns);
    // A ns of lateness saves one ns of spinning.
    assert!(close(reference.price, 1.0, 0.05), "{}", reference.price);
    let oracle = oracle(&trace, &machine, percent(3), 1);
    assert!(close(oracle.expected_cpu_ns, 1_900.0, 40.0), "{}", oracle.expected_cpu_ns);
}

/// Device times are 4 or 20 µs, equally often; the wake cost is 2 µs. Without lateness: sleep until
/// 2 µs, awake at 4, where half are done; the others have 16 µs to go: sleep until 18 µs. 1.5
/// sleeps on average.
#[test]
fn two_sleeps_where_two_pay() {
    let machine = machine(Distribution::constant(2_000));
    let trace = Trace::of_reads([4_000, 20_000].repeat(1_000));
    let reference = informed(&trace, &machine, Goal::Latency(5), 1);
    assert!(close(reference.expected_cpu_ns, 1_800.0, 80.0), "{}", reference.expected_cpu_ns);
    let sleeps = reference.outcome.counters().sleeps;
    assert!((2_900..3_100).contains(&sleeps), "{sleeps}");
}

/// Device time 10 µs, wake cost 2 µs or, one time in ten, 12 µs. 5 µs more are allowed, exceeded by
/// at most 1 %. So at most one I/O in ten can sleep with the risk of the long wake cost; the
/// others' timer goes off by 3 µs, which leaves 5 µs to spin nine times out of ten.
#[test]
fn a_percentile_by_hand() {
    let wake = [vec![2_000; 9], vec![12_000]].concat();
    let machine = machine(Distribution::of_samples(wake));
    let trace = Trace::of_reads([10_000; 5_000]);
    let reference = informed(&trace, &machine, Goal::P99(15_000), 1);
    assert!(reference.reachable);
    // Of ten I/Os, nine sleep until 3 µs, 1,200 + 0.9 × 5,000 = 5,700, and one until the end,
    // 1,200. No plan is cheaper.
    let by_hand = 0.9 * 5_700.0 + 0.1 * 1_200.0;
    assert!(
        close(reference.expected_cpu_ns, by_hand, 100.0),
        "{} {by_hand}",
        reference.expected_cpu_ns
    );
    assert!(reference.outcome.share_above(15_000) < 0.016);
}

#[test]
fn what_cannot_be_reached_says_so() {
    let machine = machine(Distribution::constant(2_000));
    let trace = Trace::of_reads([10_000; 100]);
    for reference in [
        informed(&trace, &machine, Goal::P99(9_000), 1),
        oracle(&trace, &machine, Goal::P99(9_000), 1),
    ] {
        assert!(!reference.reachable);
    }
    // 1.2 of 10 µs is the minimum.
    assert!(!informed(&trace, &machine, Goal::Cpu(5), 1).reachable);
    assert!(informed(&trace, &machine, Goal::Cpu(20), 1).reachable);
}

#[test]
fn nothing_to_wait_for() {
    let reference = informed(&Trace::default(), &Machine::bare_metal(), Goal::default(), 1);
    assert_eq!(reference.outcome.ios(), 0);
    assert_eq!(
        oracle(&Trace::default(), &Machine::bare_metal(), Goal::P99(1_000), 1).outcome.ios(),
        0
    );
}

fn cells() -> Vec<(Trace, Machine)> {
    let mut cells = Vec::new();
    for machine in [Machine::bare_metal(), Machine::vm()] {
        for (shape, base_ns) in
            Shape::GRID.iter().zip([4_100, 20_000, 10_000, 50_000, 10_000, 20_000, 10_000])
        {
            cells.push((shape.trace(base_ns, 4_000, 9), machine.clone()));
        }
    }
    cells
}

/// A replay gives what was expected of its plan, and the goal is met.
#[test]
fn replays_agree_with_what_was_expected() {
    for (trace, machine) in cells() {
        let poll = simulate(&trace, &machine, Policy::Poll, 1, 0);
        let both =
            [informed(&trace, &machine, percent(3), 1), oracle(&trace, &machine, percent(3), 1)];
        for reference in &both {
            let outcome = &reference.outcome;
            let cpu = outcome.cpu_ns_per_io() / reference.expected_cpu_ns;
            assert!(close(cpu, 1.0, 0.03), "{cpu}");
            assert!(close(outcome.mean_ns() / reference.expected_mean_ns, 1.0, 0.005));
            assert!(
                close(outcome.mean_ns() / poll.mean_ns(), 1.03, 0.005)
                    || outcome.mean_ns() < 1.03 * poll.mean_ns()
            );
        }
        assert!(both[1].expected_cpu_ns <= both[0].expected_cpu_ns * 1.001);
    }
}

/// No fixed sleep that meets the goal takes less CPU than the informed policy; neither does
/// polling.
#[test]
fn informed_is_no_worse_than_any_fixed_sleep() {
    for (trace, machine) in cells() {
        let goal = percent(3);
        let reference = informed(&trace, &machine, goal, 1);
        let most_ns = 1.03 * simulate(&trace, &machine, Policy::Poll, 1, 0).mean_ns();
        for sleep_ns in (0..30).map(|step| 1 + step * 1_700) {
            let fixed = simulate(&trace, &machine, Policy::HybridFixed(sleep_ns), 1, 1);
            if fixed.mean_ns() <= most_ns {
                assert!(
                    reference.outcome.cpu_ns_per_io() <= 1.02 * fixed.cpu_ns_per_io(),
                    "{sleep_ns}"
                );
            }
        }
    }
}

/// The budget is kept, and no fixed sleep within it is faster.
#[test]
fn a_budget_is_kept() {
    for (trace, machine) in cells() {
        let reference = informed(&trace, &machine, Goal::Cpu(40), 1);
        if reference.reachable {
            assert!(reference.outcome.cpu_percent() < 41.0, "{}", reference.outcome.cpu_percent());
        }
        for sleep_ns in (0..30).map(|step| 1 + step * 1_700) {
            let fixed = simulate(&trace, &machine, Policy::HybridFixed(sleep_ns), 1, 1);
            if reference.reachable && fixed.cpu_percent() <= 40.0 {
                assert!(reference.outcome.mean_ns() <= 1.01 * fixed.mean_ns(), "{sleep_ns}");
            }
        }
    }
}

/// 99 % of I/Os are within the limit, with less CPU than any fixed sleep that holds it; the oracle
/// uses no more.
#[test]
fn a_percentile_is_held() {
    for (trace, machine) in cells() {
        let limit_ns = simulate(&trace, &machine, Policy::Poll, 1, 0).quantile_ns(0.99) * 21 / 20;
        let goal = Goal::P99(limit_ns as u32);
        let reference = informed(&trace, &machine, goal, 1);
        assert!(reference.reachable);
        let beyond = reference.outcome.share_above(limit_ns);
        assert!(beyond < 0.0135, "{beyond}");
        for sleep_ns in (0..30).map(|step| 1 + step * 1_700) {
            let fixed = simulate(&trace, &machine, Policy::HybridFixed(sleep_ns), 1, 1);
            if fixed.share_above(limit_ns) <= 0.01 {
                assert!(
                    reference.outcome.cpu_ns_per_io() <= 1.02 * fixed.cpu_ns_per_io(),
                    "{sleep_ns}"
                );
            }
        }
        let oracle = oracle(&trace, &machine, goal, 1);
        assert!(oracle.expected_cpu_ns <= 1.001 * reference.expected_cpu_ns);
    }
}
