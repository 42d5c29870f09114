//! `adaptive` in the simulator where the CPU is short: in a control group with a quota, and beside
//! threads that always want the same CPU.
//!
//! A third of the cells, in which each machine, competition and device occurs;
//! `MEANTIME_SIMULATED_ALL=1` for all of them. What is printed is quoted in `adaptive/tuning.rs`.

use itertools::iproduct;
use meantime_baselines::sim::{Competition, Machine, Outcome, Shape, simulate};

/// Device times, in ns, and the number of I/Os.
const DEVICES: [(u64, usize); 3] = [(5_000, 100_000), (20_000, 60_000), (100_000, 30_000)];
const FIXED: [&str; 3] = ["interrupt", "poll", "hybrid"];

fn quota(percent: u64) -> Competition {
    Competition::Quota { quota_ns: percent * 1_000_000, period_ns: 100_000_000 }
}

fn hogs(count: u32) -> Competition {
    Competition::Hogs { count, slice_ns: 3_000_000, phase_ns: 0 }
}

fn machines() -> [Machine; 2] {
    [Machine::bare_metal(), Machine::vm()]
}

/// The cells of `competitions`: a machine with one of them, and a device.
fn cells(competitions: &[Competition]) -> impl Iterator<Item = (Machine, (u64, usize))> {
    let all = std::env::var("MEANTIME_SIMULATED_ALL").is_ok();
    iproduct!(machines().into_iter().enumerate(), competitions.iter().enumerate(), 0..DEVICES.len())
        .filter(move |((m, _), (c, _), d)| all || (m + c + d).is_multiple_of(DEVICES.len()))
        .map(|((_, machine), (_, competition), device)| {
            (Machine { competition: *competition, ..machine }, DEVICES[device])
        })
}

fn run(machine: &Machine, (device_ns, ios): (u64, usize), policy: &str) -> Outcome {
    let trace = "lognormal=0.1".parse::<Shape>().expect("a shape").trace(device_ns, ios, 1);
    simulate(&trace, machine, policy.parse().expect("a policy"), 1, 1)
}

/// The I/Os per second of `adaptive` over those of the best fixed way.
fn over_best(machine: &Machine, device: (u64, usize)) -> f64 {
    let iops = |policy| run(machine, device, policy).iops();
    iops("adaptive") / FIXED.map(iops).into_iter().fold(0.0, f64::max)
}

#[test]
fn is_near_the_best_fixed_way() {
    let mut ratios = Vec::new();
    for (machine, device) in cells(&[quota(10), quota(20), quota(50), hogs(1), hogs(2), hogs(4)]) {
        let ratio = over_best(&machine, device);
        assert!(ratio >= 0.85, "{:?}, {} ns: {ratio}", machine.competition, device.0);
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    println!("least {:.3}, median {:.3}", ratios[0], ratios[ratios.len() / 2]);
    assert!(ratios[ratios.len() / 2] >= 0.95, "{ratios:?}");
}

#[test]
fn keeps_up_where_competition_comes_and_goes() {
    let hogs = |count| Competition::Hogs { count, slice_ns: 3_000_000, phase_ns: 200_000_000 };
    let mut least = f64::INFINITY;
    for (machine, device) in cells(&[hogs(1), hogs(2), hogs(4)]) {
        let ratio = over_best(&machine, device);
        assert!(ratio >= 0.9, "{:?}, {} ns: {ratio}", machine.competition, device.0);
        least = least.min(ratio);
    }
    println!("least {least:.3}");
}
