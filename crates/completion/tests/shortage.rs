//! `auto` in the simulator where the CPU is short: in a control group with a quota, and beside
//! threads that always want the same CPU.

use meantime_lab::sim::{Competition, Machine, Outcome, Shape, simulate};

/// Device times, in ns, and the number of I/Os.
const DEVICES: [(u64, usize); 3] = [(5_000, 100_000), (20_000, 60_000), (100_000, 30_000)];
const FIXED: [&str; 3] = ["interrupt", "poll", "adaptive"];

fn quota(percent: u64) -> Competition {
    Competition::Quota { quota_ns: percent * 1_000_000, period_ns: 100_000_000 }
}

fn hogs(count: u32) -> Competition {
    Competition::Hogs { count, slice_ns: 3_000_000, phase_ns: 0 }
}

fn machines() -> [Machine; 2] {
    [Machine::bare_metal(), Machine::vm()]
}

fn run(machine: &Machine, (device_ns, ios): (u64, usize), policy: &str) -> Outcome {
    let trace = "lognormal=0.1".parse::<Shape>().expect("a shape").trace(device_ns, ios, 1);
    simulate(&trace, machine, policy.parse().expect("a policy"), 1, 1)
}

/// The I/Os per second of `auto` over those of the best fixed way.
fn over_best(machine: &Machine, device: (u64, usize)) -> f64 {
    let iops = |policy| run(machine, device, policy).iops();
    iops("auto") / FIXED.map(iops).into_iter().fold(0.0, f64::max)
}

#[test]
fn is_near_the_best_fixed_way() {
    let mut ratios = Vec::new();
    for machine in machines() {
        for competition in [quota(10), quota(20), quota(50), hogs(1), hogs(2), hogs(4)] {
            let machine = Machine { competition, ..machine.clone() };
            for device in DEVICES {
                let ratio = over_best(&machine, device);
                assert!(ratio >= 0.85, "{competition:?}, {} ns: {ratio}", device.0);
                ratios.push(ratio);
            }
        }
    }
    ratios.sort_by(f64::total_cmp);
    assert!(ratios[ratios.len() / 2] >= 0.95, "{ratios:?}");
}

#[test]
fn keeps_up_where_competition_comes_and_goes() {
    for machine in machines() {
        for count in [1, 2, 4] {
            let competition =
                Competition::Hogs { count, slice_ns: 3_000_000, phase_ns: 200_000_000 };
            let machine = Machine { competition, ..machine.clone() };
            for device in DEVICES {
                let ratio = over_best(&machine, device);
                assert!(ratio >= 0.9, "{competition:?}, {} ns: {ratio}", device.0);
            }
        }
    }
}
