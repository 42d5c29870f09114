//! The time that `adaptive` adds to an I/O: planning and recording, including renewed plans.

use meantime_baselines::sim::Shape;
use meantime_completion::adaptive::{Adaptive, SleepCosts};
use meantime_completion::rule::Sample;
use meantime_completion::{Class, Goal, Kind, Waited};
use meantime_hw::Clock;
use meantime_hw::clock::thread_cpu_ns;

const IOS: usize = 200_000;
const ROUNDS: usize = 9;

fn main() {
    let clock = Clock::real();
    println!("plan and record of one I/O, median of {ROUNDS} rounds of {IOS}:");
    for shape in ["constant", "lognormal=0.2", "bimodal=0.1x5", "programs=0.05x20"] {
        let shape: Shape = shape.parse().expect("a shape");
        let trace = shape.trace(20_000, IOS, 1);
        let mut rounds: Vec<u64> = (0..ROUNDS).map(|_| round(&clock, &trace)).collect();
        rounds.sort_unstable();
        println!("  {:<18} {:>3} ns", shape.to_string(), rounds[ROUNDS / 2]);
    }
}

/// ns an I/O.
fn round(clock: &Clock, trace: &meantime_baselines::sim::Trace) -> u64 {
    let mut adaptive = Adaptive::new(
        SleepCosts::of(&[1_500, 1_800, 2_100, 2_400, 2_700, 3_000], 1_200, 2_200),
        false,
    );
    let seen_as_it_came = Waited::exactly();
    let start_ns = clock.now_ns();
    let mut now_ns = 1_000_000_000;
    for io in &trace.ios {
        let class = Class::new(Kind::Read, io.bytes, 1);
        std::hint::black_box(adaptive.plan(Goal::default(), class, now_ns, false));
        now_ns += io.device_ns;
        let sample = Sample {
            class,
            device_ns: io.device_ns,
            slept_ns: 0,
            overslept: false,
            interrupted: false,
            in_flight: 1,
            now_ns,
        };
        adaptive.record(Goal::default(), &sample, true, Some(&seen_as_it_came), thread_cpu_ns);
    }
    (clock.now_ns() - start_ns) / trace.ios.len() as u64
}
