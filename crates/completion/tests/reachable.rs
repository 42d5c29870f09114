//! `adaptive` in the simulator, on bare metal: how close it comes to the optimum, and how soon
//! after the device changes.

use meantime_baselines::sim::{
    Distribution, Io, Machine, Outcome, Shape, Trace, informed, simulate,
};
use meantime_completion::{Goal, Kind, Policy};

const IOS: usize = 20_000;

fn trace(shape: &str, base_ns: u64) -> Trace {
    shape.parse::<Shape>().expect("a shape").trace(base_ns, IOS, 1)
}

fn run(trace: &Trace, policy: &str) -> Outcome {
    meantime_baselines::register().expect("no other rules");
    simulate(trace, &Machine::bare_metal(), policy.parse().expect("a policy"), 1, 1)
}

#[test]
fn within_its_goal_and_near_the_least_cpu() {
    for (shape, base_ns) in [
        ("constant", 4_100),
        ("constant", 20_000),
        ("lognormal=0.2", 10_000),
        ("bimodal=0.1x5", 7_300),
        ("sizes", 10_000),
    ] {
        let trace = trace(shape, base_ns);
        let (poll, adaptive) = (run(&trace, "poll"), run(&trace, "adaptive"));
        let best = informed(&trace, &Machine::bare_metal(), Goal::default(), 1);
        let (mean, cpu) = (
            adaptive.mean_ns() / poll.mean_ns(),
            adaptive.cpu_ns_per_io() / best.outcome.cpu_ns_per_io(),
        );
        println!("{shape} {base_ns}: mean {mean:.4}, CPU {cpu:.3}");
        assert!(mean <= 1.03, "{shape} {base_ns}: {mean} times polling's mean");
        assert!(cpu <= 1.25, "{shape} {base_ns}: {cpu} times the informed policy's CPU");
    }
}

#[test]
fn costs_nothing_where_no_sleep_pays() {
    for shape in ["constant", "lognormal=0.2", "mix"] {
        let trace = trace(shape, 1_000);
        let more_ns = run(&trace, "adaptive").mean_ns() - run(&trace, "poll").mean_ns();
        assert!(more_ns <= 30.0, "{shape}: {more_ns} ns more");
    }
}

#[test]
fn a_share_of_the_cpu_is_held() {
    for (shape, base_ns) in [("lognormal=0.2", 20_000), ("lognormal=0.2", 100_000), ("mix", 50_000)]
    {
        let percent = run(&trace(shape, base_ns), "adaptive:cpu=30").cpu_percent();
        println!("{shape} {base_ns}: {percent:.2} %");
        assert!((27.0..=33.0).contains(&percent), "{shape} {base_ns}: {percent} %");
    }
}

#[test]
fn a_percentile_is_held_for_little_cpu() {
    for (shape, base_ns, policy, bound_ns) in [
        ("lognormal=0.2", 10_000, "adaptive:p99=20us", 20_000),
        ("mix", 20_000, "adaptive:p99=30us", 30_000),
        ("constant", 20_000, "adaptive:p99.9=30us", 30_000),
    ] {
        let trace = trace(shape, base_ns);
        let outcome = run(&trace, policy);
        let percentile_ns = outcome.quantile_ns(if policy.contains("99.9") { 0.999 } else { 0.99 });
        println!("{policy}, {shape}: {percentile_ns} ns");
        assert!(percentile_ns <= bound_ns, "{policy}, {shape}: {percentile_ns}");
        let spent = outcome.cpu_ns_per_io() / run(&trace, "poll").cpu_ns_per_io();
        println!("{spent:.3} of polling's CPU");
        assert!(spent < 0.3, "{policy}, {shape}: {spent} of polling's CPU");
    }
}

/// 10 µs, then 60, then 10 again: from the 200th I/O after a change on, as in the steady state.
#[test]
fn a_change_is_over_within_200_ios() {
    let trace = trace("regime", 10_000);
    // So late that only sleeps pay.
    let interrupt_wake = Distribution::constant(100_000);
    let machine = Machine { interrupt_wake, ..Machine::bare_metal() };
    let outcome = simulate(&trace, &machine, Policy::ADAPTIVE, 1, 1);
    let of = |from: usize, count: usize| {
        let part = &outcome.series()[from..from + count];
        let mean = |of: fn(&meantime_baselines::sim::Seen) -> u64| {
            part.iter().map(of).sum::<u64>() as f64 / count as f64
        };
        (mean(|seen| seen.latency_ns), mean(|seen| seen.latency_ns.saturating_sub(seen.slept_ns)))
    };
    for (change, end) in [(IOS / 3, 2 * IOS / 3), (2 * IOS / 3, IOS)] {
        let (soon, steady) = (of(change + 200, 300), of(end - 2_500, 2_400));
        assert!(
            (soon.0 / steady.0 - 1.0).abs() < 0.1,
            "latency after {change}: {soon:?}, {steady:?}"
        );
        // 12 of them may be polled for, to see what sleeping does to the device.
        let polled_ns = 12.0 * soon.0 / 300.0;
        let most_ns = 1.1 * steady.1 + polled_ns;
        assert!(soon.1 < most_ns, "awake after {change}: {soon:?}, {steady:?}");
    }
}

/// `pas`, the best published rule, is nowhere better both in latency and in CPU.
#[test]
fn is_not_dominated_by_pas() {
    for shape in Shape::GRID {
        for base_ns in [4_100, 20_000, 100_000] {
            let trace = shape.trace(base_ns, IOS, 1);
            let (adaptive, pas) = (run(&trace, "adaptive"), run(&trace, "pas"));
            let dominated = pas.mean_ns() < 0.999 * adaptive.mean_ns()
                && pas.cpu_ns_per_io() < 0.999 * adaptive.cpu_ns_per_io();
            assert!(!dominated, "{shape} {base_ns}");
        }
    }
}

#[test]
fn one_seed_one_outcome() {
    let trace = trace("bimodal=0.1x5", 20_000);
    for policy in [Policy::ADAPTIVE, "adaptive:cpu=30".parse().expect("a policy")] {
        let [a, b] = [(); 2].map(|()| simulate(&trace, &Machine::bare_metal(), policy, 1, 7));
        assert_eq!(a.series(), b.series(), "{policy}");
    }
}

/// Fast reads and slow writes at the same time: an empty poll has a different meaning for each.
#[test]
fn several_kinds_in_flight_are_not_taken_for_each_other() {
    let slow = |n: usize| n % 4 == 3;
    let io = |n| match slow(n) {
        true => Io { kind: Kind::Write, bytes: 4096, device_ns: 100_000 + n as u64 % 7 * 400 },
        false => Io { kind: Kind::Read, bytes: 4096, device_ns: 10_000 + n as u64 % 5 * 60 },
    };
    let trace = Trace { ios: (0..IOS).map(io).collect() };
    let machine = Machine::bare_metal();
    for depth in [4, 8] {
        let mean_ns = |policy| simulate(&trace, &machine, policy, depth, 1).mean_ns();
        let ratio = mean_ns(Policy::ADAPTIVE) / mean_ns(Policy::Poll);
        assert!(ratio <= 1.04, "depth {depth}: {ratio}");
    }
}

/// A slow device whose interrupt is hardly later than polling: the interrupt is chosen, and
/// kept.
#[test]
fn it_finds_the_interrupt_and_keeps_it() {
    let trace = "lognormal=0.5".parse::<Shape>().expect("a shape").trace(1_000_000, 8_000, 1);
    for depth in [1, 4] {
        let run = |policy: &str| {
            let policy = policy.parse().expect("a policy");
            simulate(&trace, &Machine::bare_metal(), policy, depth, 1)
        };
        let (adaptive, interrupt, poll) = (run("adaptive"), run("interrupt"), run("poll"));
        assert!(
            adaptive.mean_ns() <= 1.03 * poll.mean_ns(),
            "depth {depth}: {} against {}",
            adaptive.mean_ns(),
            poll.mean_ns()
        );
        let spent = (adaptive.cpu_percent(), interrupt.cpu_percent(), poll.cpu_percent());
        assert!(spent.0 < 0.1 * spent.2, "depth {depth}: {spent:?}");
    }
}
