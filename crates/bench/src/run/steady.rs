//! `steadystate`: whether a job's speed has been the same for long enough, as fio judges it.

use std::time::Duration;

use meantime_report::run::SteadyResult;

use super::schedule::nanos;
use crate::job::{Job, Steady};

/// The speed of a turn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Speed {
    /// Its length.
    pub wall_ns: u64,
    /// I/Os of all threads.
    pub ios: u64,
    /// Bytes of all threads.
    pub bytes: u64,
}

/// The verdict on the last turns that fill the window.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Measured {
    /// Whether the limit is kept.
    pub attained: bool,
    /// The value that must be below the limit: a deviation or a slope, absolute or in percent of
    /// the mean.
    pub criterion: f64,
    /// The greatest deviation from the mean; 0 if the slope is the criterion.
    pub max_deviation: f64,
    /// The slope per second; 0 if the deviation is the criterion.
    pub slope: f64,
    /// By turn: I/Os per second.
    pub iops: Vec<f64>,
    /// By turn: bytes per second.
    pub bandwidth: Vec<f64>,
}

impl Measured {
    /// Returns the result for the report.
    pub(super) fn result(self, job: &Job) -> Option<SteadyResult> {
        let steady = job.steady?;
        let kind = if steady.bandwidth { "bw" } else { "iops" };
        let slope = if steady.slope { "_slope" } else { "" };
        let percent = if steady.percent { "%" } else { "" };
        Some(SteadyResult {
            limit: format!("{kind}{slope}:{:.6}{percent}", steady.limit_ppm as f64 / 1e6),
            duration_s: job.steady_window.as_secs(),
            attained: self.attained,
            criterion: format!("{:.6}{percent}", self.criterion),
            max_deviation: self.max_deviation,
            slope: self.slope,
            iops: self.iops,
            bandwidth: self.bandwidth,
        })
    }
}

/// Judges the turns of `job` so far, if `steadystate` is set.
pub(super) fn of(job: &Job, speeds: &[Speed]) -> Option<Measured> {
    measure(speeds, &job.steady?, job.steady_window, job.steady_ramp)
}

/// Judges the turns of a job; turns within `ramp` do not count. `None` until they fill `window`.
pub(super) fn measure(
    speeds: &[Speed],
    steady: &Steady,
    window: Duration,
    ramp: Duration,
) -> Option<Measured> {
    let mut before_ns = 0;
    let begun = speeds.iter().position(|speed| {
        before_ns += speed.wall_ns;
        before_ns > nanos(ramp)
    })?;
    // The first of them may have begun within the ramp.
    let speeds = &speeds[(begun + usize::from(!ramp.is_zero())).min(speeds.len())..];
    let mut filled_ns = 0;
    let first = speeds.iter().rposition(|speed| {
        filled_ns += speed.wall_ns;
        filled_ns >= nanos(window)
    })?;
    let speeds = &speeds[first..];
    // A single turn has no deviation.
    if speeds.len() < 2 {
        return None;
    }
    let per_second = |count: fn(&Speed) -> u64| -> Vec<f64> {
        speeds.iter().map(|speed| count(speed) as f64 * 1e9 / speed.wall_ns.max(1) as f64).collect()
    };
    let (iops, bandwidth) = (per_second(|speed| speed.ios), per_second(|speed| speed.bytes));
    let values = if steady.bandwidth { &bandwidth } else { &iops };
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let deviation = values.iter().map(|value| (value - mean).abs()).fold(0.0, f64::max);
    let slope = slope(speeds, values);
    let plain = if steady.slope { slope } else { deviation };
    let criterion = if steady.percent { 100.0 * plain / mean } else { plain };
    Some(Measured {
        attained: criterion.abs() < steady.limit_ppm as f64 / 1e6,
        criterion,
        max_deviation: if steady.slope { 0.0 } else { deviation },
        slope: if steady.slope { slope } else { 0.0 },
        iops,
        bandwidth,
    })
}

/// Returns the slope per second of the line through `values`, by least squares; each is at the
/// middle of its turn.
fn slope(speeds: &[Speed], values: &[f64]) -> f64 {
    let mut end_s = 0.0;
    let times: Vec<f64> = speeds
        .iter()
        .map(|speed| {
            let wall_s = speed.wall_ns as f64 / 1e9;
            end_s += wall_s;
            end_s - wall_s / 2.0
        })
        .collect();
    let count = values.len() as f64;
    let (mean_time, mean) = (times.iter().sum::<f64>() / count, values.iter().sum::<f64>() / count);
    let covariance: f64 =
        times.iter().zip(values).map(|(time, value)| (time - mean_time) * (value - mean)).sum();
    let variance: f64 = times.iter().map(|time| (time - mean_time).powi(2)).sum();
    if variance > 0.0 { covariance / variance } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speeds(iops: &[u64]) -> Vec<Speed> {
        let speed =
            |ios: &u64| Speed { wall_ns: 500_000_000, ios: *ios / 2, bytes: *ios / 2 * 4096 };
        iops.iter().map(speed).collect()
    }

    fn steady(slope: bool, percent: u64) -> Steady {
        Steady { bandwidth: false, slope, limit_ppm: percent * 1_000_000, percent: true }
    }

    #[test]
    fn a_window_must_be_filled_and_be_level() {
        let measured = |iops: &[u64], steady: &Steady, window_ms, ramp_ms| {
            let [window, ramp] = [window_ms, ramp_ms].map(Duration::from_millis);
            measure(&speeds(iops), steady, window, ramp)
        };
        let level = steady(false, 10);
        assert!(measured(&[1000, 1000, 1000], &level, 2000, 0).is_none(), "not filled");
        assert!(measured(&[1000], &level, 500, 0).is_none(), "one turn");
        let found = measured(&[1000, 1100, 1000, 900], &level, 2000, 0).unwrap();
        assert!(!found.attained && (found.criterion - 10.0).abs() < 1e-9, "{found:?}");
        let found = measured(&[9000, 1000, 1090, 1000, 910], &level, 2000, 0).unwrap();
        assert!(found.attained && (found.max_deviation - 90.0).abs() < 1e-9, "{found:?}");
        assert_eq!(found.iops, [1000.0, 1090.0, 1000.0, 910.0]);
        // Turns within the ramp do not count.
        assert!(measured(&[1000; 4], &level, 2000, 500).is_none());
        assert!(measured(&[1000; 6], &level, 2000, 500).unwrap().attained);
    }

    #[test]
    fn a_slope_is_per_second() {
        let window = Duration::from_secs(2);
        let found =
            measure(&speeds(&[1000, 1010, 1020, 1030]), &steady(true, 1), window, Duration::ZERO);
        let found = found.unwrap();
        assert!((found.slope - 20.0).abs() < 1e-6 && !found.attained, "{found:?}");
        assert!((found.criterion - 2000.0 / 1015.0).abs() < 1e-6, "{found:?}");
        let falling =
            measure(&speeds(&[1010, 1005, 1003, 1000]), &steady(true, 1), window, Duration::ZERO);
        assert!(falling.unwrap().attained);
    }
}
