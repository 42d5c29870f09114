//! Plots as SVG, in the page's own colours: they follow the theme, and scale with the page.

pub(crate) mod axes;
mod curves;
pub(crate) mod frame;
pub(crate) mod scatter;
mod timeline;

pub(crate) use curves::{cdf, exceedance};
pub(crate) use frame::swatch;
pub(crate) use scatter::cpu_against_latency;
pub(crate) use timeline::over_time;

use super::model::Run;
use axes::{Axis, Scale};

/// The ranges that panels of one figure share, so that they can be compared by eye.
#[derive(Debug)]
pub(crate) struct Ranges {
    /// Latencies of all I/Os, in ns.
    pub latency: (f64, f64),
    /// From the median to the 99th percentile of all results, their means included.
    pub typical: (f64, f64),
    /// Latencies over time.
    pub timeline: (f64, f64),
    /// CPU in percent.
    pub cpu_percent: f64,
    /// The rarest share any result can tell.
    pub rarest: f64,
}

impl Ranges {
    /// Of all these results.
    pub(crate) fn of<'a>(runs: impl Iterator<Item = &'a Run> + Clone) -> Self {
        let ends = |values: Vec<f64>| Axis::over(Scale::Log, values.into_iter(), (0.0, 1.0)).ends();
        let done = runs.clone().filter(|run| run.latency.n > 0);
        let all =
            done.clone().flat_map(|run| [run.latency.min_ns.max(1.0), run.latency.max_ns.max(1.0)]);
        let typical = done.clone().flat_map(|run| {
            let known = [
                Some(run.latency.mean_ns),
                run.latency.percentile_ns(50.0),
                run.latency.percentile_ns(99.0),
            ];
            known.into_iter().flatten()
        });
        let moments = runs.clone().flat_map(|run| &run.series);
        let timeline = moments.flat_map(|moment| [Some(moment.mean_ns), moment.p99_ns]).flatten();
        let cpu = runs.filter_map(|run| run.cpu_percent).fold(0.0, f64::max);
        let most = done.map(|run| run.latency.n).max().unwrap_or(1);
        Self {
            latency: ends(all.collect()),
            typical: ends(typical.collect()),
            timeline: ends(timeline.collect()),
            // One busy thread is the natural end.
            cpu_percent: cpu.max(100.0),
            rarest: (1.0 / most as f64).clamp(1e-9, 0.01),
        }
    }
}
