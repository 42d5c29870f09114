//! Reports whether `adaptive` missed its goal.

use meantime_completion::{Goal, Policy};

use crate::figures;
use meantime_report::run::RunResult;

/// A CPU goal counts as held up to this much above it, in percent of a CPU.
const CPU_SLACK_PERCENT: f64 = 3.0;
/// A percentile goal counts as held up to this factor: the latency includes the caller's own part.
const TIME_SLACK: f64 = 1.03;

/// Describes the goal that `result` missed, if any. The latency goal is relative to polling, which
/// need not have been measured.
pub(super) fn missed(result: &RunResult) -> Option<String> {
    let Ok(Policy::Adaptive(goal)) = result.completion.parse() else { return None };
    let within = |percentile: f64, goal_ns: u32| {
        let ns = result.latency().percentile_ns(percentile);
        let missed = ns as f64 > TIME_SLACK * f64::from(goal_ns);
        missed.then(|| format!("{percentile} % were done within {}", figures::time(ns as f64)))
    };
    let what = match goal {
        Goal::P99(ns) => within(99.0, ns),
        Goal::P999(ns) => within(99.9, ns),
        Goal::Cpu(percent) => {
            let used_percent = result.cpu_percent() / f64::from(result.numjobs.max(1));
            let missed = used_percent > f64::from(percent) + CPU_SLACK_PERCENT;
            missed.then(|| format!("a thread used {used_percent:.1} % of a CPU"))
        }
        _ => None,
    }?;
    let RunResult { job_name, device, completion, .. } = result;
    Some(format!("{completion} could not hold its goal ({job_name}, {device}): {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(completion: &str, latency_ns: u64, cpu_percent: f64) -> RunResult {
        let mut result =
            RunResult { completion: completion.into(), numjobs: 1, ..RunResult::default() };
        (0..1_000).for_each(|_| result.read.lat.record(latency_ns));
        result.read.ios = 1_000;
        result.usr_cpu_percent = cpu_percent;
        result
    }

    #[test]
    fn only_goals_that_were_missed_are_told_of() {
        let missed = |completion, latency_ns, cpu| missed(&result(completion, latency_ns, cpu));
        assert!(missed("adaptive:p99=20us", 20_100, 90.0).is_none());
        assert!(
            missed("adaptive:p99=20us", 30_000, 90.0).unwrap().contains("99 % were done within 30")
        );
        assert!(missed("adaptive:p99.9=20us", 30_000, 90.0).unwrap().contains("99.9 %"));
        assert!(missed("adaptive:cpu=30", 30_000, 32.0).is_none());
        assert!(missed("adaptive:cpu=30", 30_000, 40.0).unwrap().contains("40.0 %"));
        assert!(missed("adaptive", 30_000, 100.0).is_none());
        assert!(missed("poll", 30_000, 100.0).is_none());
    }
}
