//! I/O Latency Optimization with Polling.

mod estimate;
mod latency;
mod queues;
mod sleeps;
mod tails;
mod user;

use crate::experiment::Experiment;
use crate::runner::{Bench, RunError};

/// The document's device and machine.
const THERE: &str = "An NVMe SSD with DRAM as its medium (PCIe Gen2 x4), a Core i7-4790, Linux \
                     4.10. One process, bound to a CPU, reads 512 B at random, one read at a time.";
/// Why a rule with a short sleep cannot win on a virtual machine.
const WAKES_LATE: &str = "A sleep pays only if it ends in time. On a virtual machine it ends 13 to \
                          20 µs late; in the talk a switch takes 0.5 to 2 µs. The lateness is in \
                          the times that the next mean is made of, so the sleeps get longer until \
                          a read takes twice the lateness.";

/// What most experiments do: 512 B random reads, one at a time.
const READS: [&str; 4] = ["--rw", "randread", "--bs", "512"];

/// The experiments.
pub(super) fn experiments() -> Vec<Experiment> {
    [
        latency::experiments(),
        sleeps::experiments(),
        tails::experiments(),
        user::experiments(),
        queues::experiments(),
        estimate::experiments(),
    ]
    .concat()
}

/// Returns a software SSD whose reads and writes take the times of `points` (bytes, ns), with so
/// many channels, and at most `inside` commands inside at a time (0: any number).
fn made_device(
    bench: &Bench<'_>,
    name: &str,
    points: &[(u64, u64)],
    channels: u32,
    inside: u32,
) -> Result<String, RunError> {
    let points: Vec<String> = points.iter().map(|(bytes, ns)| format!("[{bytes}, {ns}]")).collect();
    let points = points.join(", ");
    let model = format!(
        "name = \"{name}\"\nsource = \"made up for an experiment\"\nchannels = {channels}\ninside \
         = {inside}\nread = [{points}]\nwrite = [{points}]\nflush_ns = 2000\ntrim_ns = 2600\n"
    );
    let path = bench.file(&format!("{name}.toml"), &model)?;
    Ok(format!("mem:256M?model={path}"))
}

/// Sizes in bytes with their shares in percent, and the times of a device that takes 4.1 µs for
/// 4 KiB, in ns.
const MIXED: [(u32, u64, u64); 5] = [
    (512, 20, 2_800),
    (4 << 10, 40, 4_100),
    (16 << 10, 20, 7_600),
    (64 << 10, 10, 18_500),
    (128 << 10, 10, 33_000),
];

/// I/Os of a simulation: a second of them, since the kernel's rule has its first mean after 100 ms.
const SIMULATED_IOS: usize = 250_000;

/// Returns I/Os for the simulator, bytes and ns: of one size, or mixed.
fn trace(mixed: bool) -> Vec<(u32, u64)> {
    let mut state = 17u64;
    let io = |_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut drawn = (state >> 33) % 100;
        let size = MIXED.iter().find(|(_, share, _)| {
            let found = drawn < *share;
            drawn = drawn.saturating_sub(*share);
            found
        });
        match size {
            Some((bytes, _, ns)) if mixed => (*bytes, *ns),
            _ => (4 << 10, 4_100),
        }
    };
    (0..SIMULATED_IOS).map(io).collect()
}

/// Adds the CPU time of an I/O, `NAME/cost_mean_ns`.
fn add_cost(bench: &mut Bench<'_>, name: &str) {
    let of = |key: &str| bench.last(&format!("{name}/{key}"));
    if let Some((rate, cpu)) =
        of("rate_iops").zip(of("cpu_percent")).filter(|(rate, _)| *rate > 0.0)
    {
        bench.add(format!("{name}/cost_mean_ns"), cpu / 100.0 * 1e9 / rate);
    }
}
