//! The four plots of a job, a panel for each device, with a sentence on how to read each.

use itertools::Itertools as _;

use super::model::{Job, Report, Run};
use crate::figures;
use crate::plot::{ACROSS, Axis, Chart, Distribution, Point, Scale, Share, UP, distributions};
use crate::run::{SLOWEST_ONE_IN, SeriesPoint};
use crate::view::{Figure, Kind, Legend, Panel};

/// The number of curves that can be distinguished in one panel.
const CURVES_PER_PANEL: usize = 8;

/// A gap of more than this many usual steps separates two turns. The line is broken there.
const GAP_STEPS: u64 = 3;

/// Returns all figures of a job. There are none without I/Os.
pub(super) fn figures(report: &Report, job: &Job) -> Vec<Figure> {
    let all: Vec<&Run> = job.runs().collect();
    if all.iter().all(|run| run.latency.n == 0) {
        return Vec::new();
    }
    let panels = panels(report, job);
    let has = |of: fn(&Run) -> bool| all.iter().any(|run| of(run));
    let has_curves = has(|run| !run.latency.curve().is_empty());
    let kinds: [(Kind, Draw, bool); 4] = [
        (Kind::Distribution, |of, runs, all| distribution(Share::Nines, of, runs, all), has_curves),
        (Kind::Tail, |of, runs, all| distribution(Share::Tail, of, runs, all), has_curves),
        (Kind::Cpu, cpu_against_latency, has(|run| run.cpu_percent.is_some())),
        (Kind::Time, over_time, has(|run| !run.series.is_empty())),
    ];
    let figure = |(kind, draw, _): (Kind, Draw, bool)| {
        let is_curve = matches!(kind, Kind::Distribution | Kind::Tail);
        let panel = |(name, runs): &(String, &[Run])| Panel {
            name: name.clone(),
            legend: legend(runs, kind == Kind::Cpu),
            plot: draw(name, runs, &all),
        };
        Figure {
            kind,
            title: String::new(),
            wide: panels.len() > 1,
            is_coarse: is_curve && has(|run| run.latency.is_coarse),
            panels: panels.iter().map(panel).collect(),
        }
    };
    kinds.into_iter().filter(|(_, _, is_known)| *is_known).map(figure).collect()
}

/// Draws the panel of a device with its results. All panels cover the range of all results, so that
/// they can be compared by eye.
type Draw = fn(&str, &[Run], &[&Run]) -> Chart;

/// Returns an axis over all latencies.
fn latencies(values: impl Iterator<Item = f64>, ends: (f64, f64)) -> Axis {
    Axis::over(Scale::Log, values.map(|ns| ns.max(1.0)), ends)
}

/// Returns the results of each panel, with its name.
fn panels<'a>(report: &Report, job: &'a Job) -> Vec<(String, &'a [Run])> {
    let mut panels = Vec::new();
    for block in &job.blocks {
        let machine =
            block.machine.map_or(String::new(), |at| format!(" – {}", report.sources[at].label));
        let parts = block.runs.chunks(CURVES_PER_PANEL);
        let many = parts.len();
        for (at, runs) in parts.enumerate() {
            let part = if many > 1 { format!(" ({} of {many})", at + 1) } else { String::new() };
            panels.push((format!("{}{machine}{part}", block.device), runs));
        }
    }
    panels
}

fn legend(runs: &[Run], markers: bool) -> Legend {
    let entries = runs.iter().map(|run| (run.style.sample(markers), run.label.clone()));
    Legend { entries: entries.collect() }
}

/// Draws the share of I/Os that were at least as quick, or at least as slow.
fn distribution(share: Share, device: &str, runs: &[Run], all: &[&Run]) -> Chart {
    let done = || all.iter().map(|run| &run.latency).filter(|latency| latency.n > 0);
    let x = latencies(done().flat_map(|of| [of.min_ns, of.max_ns]), ACROSS);
    // The smallest share of I/Os that any result can show.
    let most = done().map(|latency| latency.n).max().unwrap_or(1);
    let rarest = (1.0 / most as f64).clamp(1e-9, 0.01);
    let curves: Vec<_> = runs.iter().map(|run| run.latency.curve()).collect();
    let drawn = runs.iter().zip(&curves).map(|(run, points)| Distribution {
        style: run.style,
        points,
        tip: in_figures(run),
        is_coarse: run.latency.is_coarse,
    });
    let rare = Some((1.0 / SLOWEST_ONE_IN as f64, "1 in 6,000"));
    let what = match share {
        Share::Tail => "How often a latency is reached or exceeded",
        _ => "Cumulative distribution of latency",
    };
    distributions(label(what, device, runs), share, x, rarest, rare, &drawn.collect::<Vec<_>>())
}

/// Draws a point for each result at its mean latency and its CPU, with a whisker from the median to
/// the 99th percentile.
fn cpu_against_latency(device: &str, runs: &[Run], all: &[&Run]) -> Chart {
    let typical = all.iter().flat_map(|run| {
        [run.mean_ns(), run.latency.percentile_ns(50.0), run.latency.percentile_ns(99.0)]
    });
    let x = latencies(typical.flatten(), ACROSS)
        .with(Axis::latency_ticks, "mean latency, logarithmic; left is faster");
    // One busy thread is the natural limit.
    let cpu_percent = all.iter().filter_map(|run| run.cpu_percent).chain([100.0]);
    let y = Axis::over(Scale::Linear, cpu_percent, UP)
        .with(|axis| axis.linear_ticks(6.0), "CPU of the waiting threads, %; lower is cheaper");
    let mut chart = Chart::new(label("CPU against mean latency", device, runs), x, y);
    chart.points(&runs.iter().filter_map(point).collect::<Vec<_>>());
    chart
}

fn point(run: &Run) -> Option<Point<'_>> {
    let [p50, p99] = [50.0, 99.0].map(|share| run.latency.percentile_ns(share));
    Some(Point {
        at: (run.mean_ns()?, run.cpu_percent?),
        style: Some(run.style),
        whisker: p50.zip(p99),
        name: &run.label,
        tip: in_figures(run),
    })
}

/// Draws mean and 99th percentile of each interval, which a distribution cannot show.
fn over_time(device: &str, runs: &[Run], all: &[&Run]) -> Chart {
    let moments = || all.iter().flat_map(|run| &run.series);
    let seconds = |one: &SeriesPoint| one.at_ms as f64 / 1e3;
    let x = Axis::over(Scale::Linear, moments().map(seconds), ACROSS)
        .with(|axis| axis.linear_ticks(6.0), "time since the run began, s");
    let y = latencies(moments().flat_map(|one| [one.mean_ns, one.p99_ns as f64]), UP)
        .with(Axis::latency_ticks, "latency, logarithmic: mean, and p99 (thin)");
    let mut chart = Chart::new(label("Latency over time", device, runs), x, y);
    for run in runs {
        for part in parts(&run.series) {
            let p99: Vec<_> = part.iter().map(|one| (seconds(one), one.p99_ns as f64)).collect();
            let mean: Vec<_> = part.iter().map(|one| (seconds(one), one.mean_ns)).collect();
            chart.curve(run.style, "curve thin", &p99, &in_figures(run));
            chart.curve(run.style, "curve", &mean, &in_figures(run));
        }
    }
    chart
}

/// Splits the series at its gaps.
fn parts(series: &[SeriesPoint]) -> Vec<&[SeriesPoint]> {
    let steps = series.windows(2).map(|pair| pair[1].at_ms - pair[0].at_ms);
    let steps = steps.sorted().collect_vec();
    let usual = steps.get(steps.len() / 2).copied().unwrap_or(0);
    series.chunk_by(|a, b| b.at_ms - a.at_ms <= usual.saturating_mul(GAP_STEPS)).collect()
}

/// Describes a result in a line, for a tooltip and for readers who cannot see the plot.
pub(super) fn in_figures(run: &Run) -> String {
    let latency = |share| run.latency.percentile_ns(share);
    let known = [
        ("mean", run.mean_ns()),
        ("p50", latency(50.0)),
        ("p99", latency(99.0)),
        ("p99.9", latency(99.9)),
        ("slowest 1 in 6,000", run.slowest_ns),
    ];
    let time = |(name, ns): (&str, Option<f64>)| Some(format!("{name} {}", figures::time(ns?)));
    let parts = known.into_iter().filter_map(time).join(", ");
    format!("{}: {}", run.label, if parts.is_empty() { "no I/Os" } else { &parts })
}

/// Describes a plot in words.
pub(super) fn label<'a>(
    what: &str,
    device: &str,
    runs: impl IntoIterator<Item = &'a Run>,
) -> String {
    format!("{what}, {device}. {}.", runs.into_iter().map(in_figures).join("; "))
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn turns_are_told_apart() {
        let series: Vec<SeriesPoint> = [0, 10, 20, 30, 500, 510, 900]
            .map(|at_ms| SeriesPoint { at_ms, mean_ns: 5_000.0, ..SeriesPoint::default() })
            .to_vec();
        let lengths: Vec<usize> = parts(&series).iter().map(|part| part.len()).collect();
        assert_eq!(lengths, [4, 2, 1]);
        assert!(parts(&[]).is_empty());
    }
}
