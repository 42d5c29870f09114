//! The plots of a sweep: heat maps of latency over both axes, and curves over each.

use itertools::Itertools as _;

use super::model::Run;
use super::plots::{in_figures, label};
use super::sweep::Sweep;
use crate::figures;
use crate::plot::{ACROSS, Axis, Chart, Scale, Style, Tick, UP, line, text, text_width};
use crate::view::{Figure, Kind, Legend, Panel};

/// The number of colours of a heat map, without the first.
const HEATS: f64 = 8.0;

/// Distance between the markers of two ways to wait at one value.
const DODGE: f64 = 5.0;

/// A figure that is drawn.
#[derive(Clone, Copy)]
struct Metric {
    name: &'static str,
    /// The title of its axis.
    title: &'static str,
    of: fn(&Run) -> Option<f64>,
    /// The standard deviation of the turns', in percent.
    percent: fn(&Run) -> Option<f64>,
    text: fn(f64) -> String,
}

const MEAN: Metric = Metric {
    name: "Mean latency",
    title: "mean latency, logarithmic; lower is faster",
    of: Run::mean_ns,
    percent: |run| run.spread.mean,
    text: figures::us,
};
const P99: Metric = Metric {
    name: "99th percentile",
    title: "99th percentile of latency",
    of: |run| run.latency.known_percentile_ns(99.0),
    percent: |run| run.spread.p99,
    text: figures::us,
};
const IOPS: Metric = Metric {
    name: "I/Os per second",
    title: "I/Os per second, logarithmic; higher is more",
    of: |run| Some(run.iops).filter(|iops| *iops > 0.0),
    percent: |run| run.spread.iops,
    text: figures::iops,
};

/// Returns the heat maps, and the curves over the first axis.
pub(super) fn figures(sweep: &Sweep<'_>) -> Vec<Figure> {
    let maps = [MEAN, P99].into_iter().filter(|_| sweep.axes.len() > 1);
    let maps = maps.filter_map(|metric| heat_maps(sweep, metric));
    maps.chain(curves(sweep, 0)).collect()
}

/// Returns the curves over the second axis, if there is one.
pub(super) fn more_figures(sweep: &Sweep<'_>) -> Vec<Figure> {
    if sweep.axes.len() > 1 { curves(sweep, 1) } else { Vec::new() }
}

/// Returns an axis with a place for each value.
fn places(values: &[&str], title: &str, ends: (f64, f64)) -> Axis {
    let tick =
        |(at, value): (usize, &&str)| Tick { at: at as f64 + 0.5, label: (*value).to_owned() };
    let ticks = |_: &Axis| values.iter().enumerate().map(tick).collect();
    Axis::between(Scale::Linear, (0.0, values.len() as f64), ends).with(ticks, title)
}

/// Returns a heat map for each way to wait. All have the same colours.
fn heat_maps(sweep: &Sweep<'_>, metric: Metric) -> Option<Figure> {
    let all = sweep.cells.iter().flat_map(|cell| cell.runs).filter_map(metric.of);
    let (low, high) = all.minmax_by(f64::total_cmp).into_option()?;
    let heat = |value: f64| match (value / low).ln() / (high / low).ln() {
        share if share.is_finite() => (share * HEATS).round(),
        _ => 0.0,
    };
    let (across, up) = (sweep.values(0), sweep.values(1));
    let ways = sweep.ways();
    let map = |(way, style): &(&str, Style)| {
        let run = |x: &str, y: &str| sweep.run(way, &[x, y]);
        let runs: Vec<&Run> =
            up.iter().flat_map(|y| across.iter().filter_map(|x| run(x, y))).collect();
        let mut chart = Chart::new(
            label(metric.name, sweep.device, runs.iter().copied()),
            places(&across, sweep.axes[0], ACROSS),
            places(&up, sweep.axes[1], UP),
        );
        let wide = (ACROSS.1 - ACROSS.0) / across.len() as f64 - 4.0;
        for ((row, y), (column, x)) in
            itertools::iproduct!(up.iter().enumerate(), across.iter().enumerate())
        {
            let from = (column as f64, row as f64);
            let to = (from.0 + 1.0, from.1 + 1.0);
            let Some((run, value)) = run(x, y).and_then(|run| Some((run, (metric.of)(run)?)))
            else {
                chart.block("heat", from, to, "not measured");
                continue;
            };
            let tip = format!("{}={x} {}={y}: {}", sweep.axes[0], sweep.axes[1], in_figures(run));
            chart.block("heat", from, to, &tip);
            chart.block(&format!("heat h{}", heat(value)), from, to, &tip);
            let others = ways.iter().filter_map(|(way, _)| (metric.of)(sweep.run(way, &[x, y])?));
            let is_best = ways.len() > 1 && others.reduce(f64::min) == Some(value);
            let words = (metric.text)(value);
            if text_width(&words) <= wide {
                let (x, y) = chart.place((from.0 + 0.5, from.1 + 0.5));
                let class = if is_best { "figure best" } else { "figure" };
                chart.add([text(class, "middle", (x, y + 4.0), &words)]);
            }
        }
        let legend = Legend { entries: vec![(style.sample(true), (*way).to_owned())] };
        Panel { name: String::new(), legend, plot: chart }
    };
    let panels = ways.iter().map(map).collect();
    let title = format!("{}, µs", metric.name);
    Some(Figure { kind: Kind::Map, title, wide: ways.len() > 1, is_coarse: false, panels })
}

/// Returns latency and I/Os per second over an axis, with a panel for each value of the other.
fn curves(sweep: &Sweep<'_>, axis: usize) -> Vec<Figure> {
    let other = (sweep.axes.len() > 1).then_some(1 - axis);
    let others =
        other.map_or(vec![None], |other| sweep.values(other).into_iter().map(Some).collect());
    let figure = |metric: Metric| {
        let panels = others.iter().map(|fixed| {
            let named = other.zip(*fixed);
            Panel {
                name: named.map_or(String::new(), |(of, is)| format!("{}={is}", sweep.axes[of])),
                legend: legend(sweep),
                plot: curve(sweep, axis, *fixed, metric),
            }
        });
        Figure {
            kind: Kind::Over,
            title: format!("{} over {}", metric.name, sweep.axes[axis]),
            wide: others.len() > 1,
            is_coarse: false,
            panels: panels.collect(),
        }
    };
    [MEAN, IOPS].map(figure).into()
}

fn legend(sweep: &Sweep<'_>) -> Legend {
    let ways = sweep.ways().into_iter();
    Legend { entries: ways.map(|(way, style)| (style.sample(true), way.to_owned())).collect() }
}

/// Draws a curve for each way to wait, with the standard deviation of its turns.
fn curve(sweep: &Sweep<'_>, axis: usize, fixed: Option<&str>, metric: Metric) -> Chart {
    let ends = |run: &Run| {
        let value = (metric.of)(run)?;
        let part = (metric.percent)(run).unwrap_or(0.0) / 100.0;
        Some((value, value * (1.0 - part), value * (1.0 + part)))
    };
    let all = sweep.cells.iter().flat_map(|cell| cell.runs).filter_map(ends);
    // A spread of more than the figure itself would need a logarithm of less than 0.
    let all = all.flat_map(|(value, low, high)| [value, low, high]).filter(|of| *of > 0.0);
    let ticks = |axis: &Axis| match metric.name == IOPS.name {
        true => axis.log_ticks(|iops| figures::iops(iops).replace(".00", "").replace(".0", "")),
        false => axis.latency_ticks(),
    };
    let y = Axis::over(Scale::Log, all, UP).with(ticks, metric.title);
    let (values, ways) = (sweep.values(axis), sweep.ways());
    let run = |way: &str, value: &str| match (axis, fixed) {
        (_, None) => sweep.run(way, &[value]),
        (0, Some(fixed)) => sweep.run(way, &[value, fixed]),
        (_, Some(fixed)) => sweep.run(way, &[fixed, value]),
    };
    let runs: Vec<&Run> =
        ways.iter().flat_map(|(way, _)| values.iter().filter_map(|of| run(way, of))).collect();
    let what = format!("{} over {}", metric.name, sweep.axes[axis]);
    let x = places(&values, sweep.axes[axis], ACROSS);
    let mut chart = Chart::new(label(&what, sweep.device, runs.iter().copied()), x, y);
    for (nth, (way, style)) in ways.iter().enumerate() {
        let dodge = (nth as f64 - (ways.len() - 1) as f64 / 2.0) * DODGE;
        let (mut places, mut marks) = (Vec::new(), Vec::new());
        for (at, value) in values.iter().enumerate() {
            let Some(run) = run(way, value) else { continue };
            let Some((value, low, high)) = ends(run) else { continue };
            let [(x, y), (_, low), (_, high)] =
                [value, low, high].map(|of| chart.place((at as f64 + 0.5, of)));
            let x = x + dodge;
            let whisker = format!("whisker {}", style.colour());
            let cap = |y| line(&whisker, (x - 3.0, y), (x + 3.0, y));
            if (metric.percent)(run).is_some() {
                marks.extend([line(&whisker, (x, low), (x, high)), cap(low), cap(high)]);
            }
            let spread = (metric.percent)(run).map(|percent| format!(" ± {percent:.1} %"));
            let value =
                format!("{} {}{}", metric.name, (metric.text)(value), spread.unwrap_or_default());
            marks.push(style.marker((x, y)).tip(&format!("{}; {value}", in_figures(run))));
            places.push((x, y));
        }
        if places.len() > 1 {
            chart.add([style.curve("curve", &places)]);
        }
        chart.add(marks);
    }
    chart
}
