use meantime::completion::Goal;
use meantime::completion::adaptive::*;
use meantime::completion::sim::*;
fn main() {
    let shape: Shape = std::env::args().nth(1).unwrap().parse().unwrap();
    let base: u64 = std::env::args().nth(2).unwrap().parse().unwrap();
    let trace = shape.trace(base, 30_000, 1);
    let m = Machine::bare_metal();
    let mut t: Vec<u64> = trace.ios.iter().map(|io| io.device_ns).collect();
    t.sort();
    let wake: Groups = std::array::from_fn(|g| 1500.0 + 1500.0 * (g as f32 + 0.5) / 8.0);
    let n = 60;
    let pts: Vec<(f32, f32)> = (0..n)
        .map(|k| {
            let r = &t[k * t.len() / n..(k + 1) * t.len() / n];
            (r.iter().sum::<u64>() as f32 / r.len() as f32, 1.0 / n as f32)
        })
        .collect();
    let s = Support::of(&pts);
    for p in -6..4 {
        let price = (p as f32).exp2();
        let pl = plan(&s, &wake, 1200.0, price);
        println!(
            "price {price:.3} late {:.0} cpu {:.0} stages {}: {:?}",
            pl.late_ns,
            pl.cpu_ns,
            pl.plan.stages().len(),
            &pl.plan.stages()[..pl.plan.stages().len().min(6)]
        );
    }
    for g in [10u16, 20, 26, 30] {
        let inf = informed(&trace, &m, Goal::Latency(g), 1);
        println!(
            "informed {g}: mean {:.0} cpu {:.0} price {:?}",
            inf.expected_mean_ns, inf.expected_cpu_ns, inf.price
        );
    }
    println!("mean {}", trace.mean_ns());
}
