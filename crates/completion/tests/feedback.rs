//! A device that is slower after its host has slept, in the simulator: sleeps must not make it ever
//! slower.

use meantime_baselines::sim::{Machine, Shape, simulate};

const IOS: usize = 20_000;

#[test]
fn sleeps_do_not_drag_each_other_along() {
    let mut most = 0.0f64;
    for (shape, device_ns) in [
        ("constant", 20_000),
        ("constant", 100_000),
        ("lognormal=0.1", 20_000),
        ("lognormal=0.2", 100_000),
    ] {
        let trace = shape.parse::<Shape>().expect("a shape").trace(device_ns, IOS, 1);
        let mean_ns = |policy: &str, slowed_by_sleep| {
            let machine = Machine { slowed_by_sleep, ..Machine::bare_metal() };
            simulate(&trace, &machine, policy.parse().expect("a policy"), 1, 1).mean_ns()
        };
        let polled_ns = mean_ns("poll", 1.0);
        for slowed_by_sleep in [0.1, 0.2, 0.5, 1.0] {
            // 3 % of lateness, a tenth of slower I/Os.
            let ratio = mean_ns("adaptive", slowed_by_sleep) / polled_ns;
            assert!(ratio <= 1.15, "{shape} {device_ns} {slowed_by_sleep}: {ratio}");
            most = most.max(ratio);
        }
    }
    println!("most {most:.3}");
}
