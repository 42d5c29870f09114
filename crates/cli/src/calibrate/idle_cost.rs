//! The idle state's share of an interrupt's cost: Shaohua Li's question when polling was proposed
//! to Linux (2013).

use meantime_completion::calibrate::Times;
use serde::Serialize;

use super::measure::label;
use crate::figures;

/// The cost of leaving the idle state in a wake-up, as it is in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct IdleCost {
    /// Time for which the CPU was idle before.
    idle_us: u64,
    /// Median of a wake-up, without a limit on idling.
    wake_ns: u64,
    /// Median while no CPU may enter a C-state with an exit latency.
    pm_qos_wake_ns: u64,
    /// The idle state's part, or 0 if a wake-up without it is no quicker.
    idle_state_ns: u64,
    /// The same, in percent with one digit.
    idle_state_percent: f64,
}

impl IdleCost {
    /// Computes the cost from the times of wake-ups. Returns `None` without samples.
    pub(super) fn of(idle_us: u64, free: &Times, held: &Times) -> Option<Self> {
        let cost = Self::new(idle_us, free.median_ns(), held.median_ns());
        (free.count() > 0 && held.count() > 0 && cost.wake_ns > 0).then_some(cost)
    }

    fn new(idle_us: u64, wake_ns: u64, pm_qos_wake_ns: u64) -> Self {
        let idle_state_ns = wake_ns.saturating_sub(pm_qos_wake_ns);
        let permille = (idle_state_ns as f64 * 1000.0 / wake_ns as f64).round();
        let idle_state_percent = permille / 10.0;
        Self { idle_us, wake_ns, pm_qos_wake_ns, idle_state_ns, idle_state_percent }
    }
}

/// Returns a line of text for each cost. The text is empty without costs.
pub(super) fn text(costs: &[IdleCost]) -> String {
    let mut text = String::new();
    if !costs.is_empty() {
        text +=
            "Of a wake-up by eventfd (an interrupt), leaving the idle state is, by the medians:\n";
    }
    for cost in costs {
        let [free, part] = [cost.wake_ns, cost.idle_state_ns].map(|ns| figures::time(ns as f64));
        let (idle, percent) = (label(cost.idle_us), cost.idle_state_percent);
        text += &format!("  after {idle:>6} idle: {part:>7} of {free:>7}, {percent:>3.0} %\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_is_the_idle_states() {
        let one = IdleCost::new(1_000, 24_500, 4_100);
        assert_eq!((one.idle_state_ns, one.idle_state_percent), (20_400, 83.3));
        let text = text(&[one]);
        assert_eq!(text.lines().nth(1), Some("  after   1 ms idle: 20.4 µs of 24.5 µs,  83 %"));
        assert_eq!(IdleCost::new(1_000, 4_000, 4_100).idle_state_percent, 0.0);
        assert!(super::text(&[]).is_empty());
    }
}
