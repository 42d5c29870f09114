//! Results for tests.

use super::figures::{Baseline, Cell, CellResult, Figures};

/// Returns a policy with this mean and CPU.
pub(crate) fn way(completion: &str, mean_us: f64, cpu_percent: f64) -> Figures {
    let mean_ns = mean_us * 1e3;
    Figures {
        completion: completion.to_owned(),
        ios: 10_000,
        mean_ns,
        p50_ns: mean_ns as u64,
        p99_ns: mean_ns as u64 * 2,
        p99_9_ns: mean_ns as u64 * 3,
        slowest_ns: Some(mean_ns as u64 * 4),
        max_ns: mean_ns as u64 * 5,
        iops: 1e9 / mean_ns,
        cpu_percent,
        ended: 11_000,
        ..Figures::default()
    }
}

/// Returns a cell with these policies, and `poll` twice: mean in µs and CPU in percent.
pub(crate) fn cell(ways: &[Figures], poll: (f64, f64), again: (f64, f64)) -> CellResult {
    let [poll, again] =
        [poll, again].map(|(mean_us, cpu_percent)| way("poll", mean_us, cpu_percent));
    CellResult {
        cell: Cell {
            name: "10us-lognormal".to_owned(),
            device_ns: 10_000,
            shape: ["lognormal", ""].map(str::to_owned),
            model: String::new(),
        },
        ways: ways.to_vec(),
        poll: Some(Baseline::of(&poll, Some(&again))),
        references: None,
        moved_turns: (0, 0),
        cacheline_rtt_ns: Some(110.0),
    }
}
