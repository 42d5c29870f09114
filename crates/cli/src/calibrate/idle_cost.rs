//! The idle state's share of an interrupt's cost: Shaohua Li's question when polling was proposed
//! to Linux (2013).

use meantime_completion::calibrate::Times;
use serde_json::{Value, json};

use super::measure::label;
use crate::figures;

/// The cost of leaving the idle state in a wake-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IdleCost {
    /// Time for which the CPU was idle before.
    idle_us: u64,
    /// Median of a wake-up, without a limit on idling.
    free_ns: u64,
    /// Median while no CPU may enter a C-state with an exit latency.
    held_ns: u64,
}

impl IdleCost {
    /// Computes the cost from the times of wake-ups; `None` without samples.
    pub(super) fn of(idle_us: u64, free: &Times, held: &Times) -> Option<Self> {
        let cost = Self { idle_us, free_ns: free.median_ns(), held_ns: held.median_ns() };
        (free.count() > 0 && held.count() > 0 && cost.free_ns > 0).then_some(cost)
    }

    /// Returns the idle state's part; 0 if a wake-up without it is no quicker.
    fn cost_ns(&self) -> u64 {
        self.free_ns.saturating_sub(self.held_ns)
    }

    fn percent(&self) -> f64 {
        self.cost_ns() as f64 * 100.0 / self.free_ns as f64
    }

    /// Returns the JSON.
    pub(super) fn json(&self) -> Value {
        json!({
            "idle_us": self.idle_us,
            "wake_ns": self.free_ns,
            "pm_qos_wake_ns": self.held_ns,
            "idle_state_ns": self.cost_ns(),
            "idle_state_percent": (self.percent() * 10.0).round() / 10.0,
        })
    }
}

/// Returns a line of text each.
pub(super) fn lines(costs: &[IdleCost]) -> Vec<String> {
    if costs.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![
        "Of a wake-up by eventfd (an interrupt), leaving the idle state is, by the medians:"
            .to_owned(),
    ];
    for cost in costs {
        let [free, part] = [cost.free_ns, cost.cost_ns()].map(|ns| figures::time(ns as f64));
        let idle = label(cost.idle_us);
        lines.push(format!(
            "  after {idle:>6} idle: {part:>7} of {free:>7}, {:>3.0} %",
            cost.percent()
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(free_ns: u64, held_ns: u64) -> IdleCost {
        IdleCost { idle_us: 1_000, free_ns, held_ns }
    }

    /// By hand: of 24.5 µs 4.1 remain; the difference is 20.4 µs, 83.3 %.
    #[test]
    fn the_difference_is_the_idle_states() {
        let one = cost(24_500, 4_100);
        assert_eq!(one.json()["idle_state_ns"], 20_400);
        assert_eq!(one.json()["idle_state_percent"], 83.3);
        assert_eq!(lines(&[one])[1], "  after   1 ms idle: 20.4 µs of 24.5 µs,  83 %");
        assert_eq!(cost(4_000, 4_100).json()["idle_state_percent"], 0.0);
        assert!(lines(&[]).is_empty());
    }
}
