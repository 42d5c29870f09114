//! The four plots of a job, a panel for each device, with a sentence on how to read each.

use super::model::{Job, Moment, Report, Run};
use crate::figures;
use crate::plot::{ACROSS, Axis, Element, Point, Scale, Side, UP, curve, line, plot, points, text};
use crate::run::SLOWEST_ONE_IN;
use crate::view::{Figure, Legend, Panel};

/// The number of curves that can be distinguished in one panel.
const CURVES_PER_PANEL: usize = 8;

/// A gap of more than this many usual steps is another turn: the line is broken there.
const GAP_STEPS: f64 = 3.0;

/// The title of the horizontal axes of latencies.
const LATENCY_TITLE: &str = "latency, logarithmic; left is faster";

/// The ranges that panels of one figure share, so that they can be compared by eye.
#[derive(Debug)]
struct Ranges {
    /// Latencies of all I/Os, in ns.
    latency: (f64, f64),
    /// From the median to the 99th percentile of all results, their means included.
    typical: (f64, f64),
    /// Latencies over time.
    timeline: (f64, f64),
    /// CPU in percent.
    cpu_percent: f64,
    /// The smallest share of I/Os that any result can show.
    rarest: f64,
    /// The end of the last series.
    last_ms: f64,
}

impl Ranges {
    fn of(runs: &[&Run]) -> Self {
        let ends = |values: Vec<f64>| Axis::over(Scale::Log, values.into_iter(), (0.0, 1.0)).ends();
        let done = || runs.iter().filter(|run| run.latency.n > 0);
        let all = done().flat_map(|run| [run.latency.min_ns, run.latency.max_ns]);
        let typical = done().flat_map(|run| {
            [run.mean_ns(), run.latency.percentile_ns(50.0), run.latency.percentile_ns(99.0)]
        });
        let moments = || runs.iter().flat_map(|run| &run.series);
        let timeline = moments().flat_map(|moment| [Some(moment.mean_ns), moment.p99_ns]);
        let cpu = runs.iter().filter_map(|run| run.cpu_percent).fold(0.0, f64::max);
        let most = done().map(|run| run.latency.n).max().unwrap_or(1);
        Self {
            latency: ends(all.map(|ns| ns.max(1.0)).collect()),
            typical: ends(typical.flatten().collect()),
            timeline: ends(timeline.flatten().collect()),
            // One busy thread is the natural limit.
            cpu_percent: cpu.max(100.0),
            rarest: (1.0 / most as f64).clamp(1e-9, 0.01),
            last_ms: moments().map(|moment| moment.at_ms).fold(0.0, f64::max),
        }
    }
}

/// Returns all figures of a job; none without I/Os.
pub(super) fn figures(report: &Report, job: &Job) -> Vec<Figure> {
    let all: Vec<&Run> = job.runs().collect();
    if all.iter().all(|run| run.latency.n == 0) {
        return Vec::new();
    }
    let ranges = Ranges::of(&all);
    let panels = panels(report, job);
    let figure = |title, how: &str, markers: bool, draw: fn(&str, &[Run], &Ranges) -> Element| {
        let panels = panels.iter().map(|(name, runs)| Panel {
            name: name.clone(),
            legend: legend(runs, markers),
            plot: draw(name, runs, &ranges),
        });
        Figure { wide: panels.len() > 1, title, how: how.to_owned(), panels: panels.collect() }
    };
    let mut figures = Vec::new();
    if all.iter().any(|run| !run.latency.curve().is_empty()) {
        let coarse = match all.iter().any(|run| run.latency.is_coarse()) {
            true => {
                " Curves with dots join the percentiles that the file has; between the dots they \
                 are a guess."
            }
            false => "",
        };
        let how = "Find a latency below and go up to a curve: the height is the share of I/Os \
                   that took no longer. Further left is faster; a steep curve means that I/Os \
                   take alike. Each step up at the top is another nine: at 99.9, one I/O in 1,000 \
                   takes longer.";
        figures.push(figure("Latency distribution", &format!("{how}{coarse}"), false, cdf));
        let how = "The same I/Os, seen from the slow end: the height is the share that took at \
                   least so long. The curve that reaches less far to the right has the shorter \
                   tail; where curves cross, the way that is faster on average is slower in the \
                   tail.";
        let title = "Slow I/Os: how often, and how slow";
        figures.push(figure(title, &format!("{how}{coarse}"), false, exceedance));
    }
    if all.iter().any(|run| run.cpu_percent.is_some()) {
        let how = "Each point is one way to wait: to the left it answers faster, further down it \
                   needs less CPU; the best place is bottom left. The line begins at the median; \
                   its mark is the 99th percentile. At 100 % a thread does nothing but wait.";
        figures.push(figure("CPU against latency", how, true, cpu_against_latency));
    }
    if all.iter().any(|run| !run.series.is_empty()) {
        let how = "Thick lines are the mean of each stretch of time, thin ones its 99th \
                   percentile. Level lines mean that the figures above stand for the whole run; \
                   steps and spikes mean that something else happened on the machine, or that the \
                   device changed its behaviour.";
        figures.push(figure("Latency over time", how, false, over_time));
    }
    figures
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
    let entries = runs.iter().map(|run| (run.style.swatch(markers), run.label.clone()));
    Legend { entries: entries.collect() }
}

/// Draws the share of I/Os that were at least as quick: 50 %, 90 %, 99 %, and on by nines.
fn cdf(device: &str, runs: &[Run], ranges: &Ranges) -> Element {
    let x = Axis::between(Scale::Log, ranges.latency, ACROSS);
    // The last nine that a result with so many I/Os can show.
    let top = (1.0 - ranges.rarest).min(0.999_999_9);
    let y = Axis::between(Scale::Nines, (0.01, top), UP);
    let label = label("Cumulative distribution of latency", device, runs);
    let curves = runs
        .iter()
        .flat_map(|run| distribution(run, |ns, slower| (x.place(ns), y.place(1.0 - slower))));
    let y_title = "share of I/Os that took no longer, %";
    let (x_ticks, y_ticks) = (x.latency_ticks(), y.nines_ticks());
    let curves = curves.collect();
    plot(&label, Side(&x, &x_ticks, LATENCY_TITLE), Side(&y, &y_ticks, y_title), curves)
}

/// Draws the share of I/Os that were at least as slow, both axes logarithmic: the tail.
fn exceedance(device: &str, runs: &[Run], ranges: &Ranges) -> Element {
    let x = Axis::between(Scale::Log, ranges.latency, ACROSS);
    let y = Axis::between(Scale::Log, (ranges.rarest * 0.8, 1.0), UP);
    let label = label("How often a latency is reached or exceeded", device, runs);
    let mut inside = Vec::new();
    let one_in = 1.0 / SLOWEST_ONE_IN as f64;
    if one_in > ranges.rarest {
        let place = y.place(one_in);
        inside.push(line("reference", (ACROSS.0, place), (ACROSS.1, place)));
        inside.push(text("note halo", "start", (ACROSS.0 + 3.0, place - 4.0), "1 in 6,000"));
    }
    for run in runs {
        inside.extend(distribution(run, |ns, slower| (x.place(ns), y.place(slower))));
    }
    let y_title = "share of I/Os that took at least so long";
    let (x_ticks, y_ticks) = (x.latency_ticks(), y.rarity_ticks());
    plot(&label, Side(&x, &x_ticks, LATENCY_TITLE), Side(&y, &y_ticks, y_title), inside)
}

fn distribution(run: &Run, place: impl Fn(f64, f64) -> (f64, f64)) -> Vec<Element> {
    let points = run.latency.curve();
    let mut places: Vec<(f64, f64)> =
        points.iter().map(|(ns, slower)| place(*ns, *slower)).collect();
    // Removes points below the axis' end, which would be drawn along it.
    let below = places.iter().take_while(|place| place.1 >= UP.0).count().saturating_sub(1);
    places.drain(..below);
    if places.is_empty() {
        return Vec::new();
    }
    let style = run.style;
    let mut drawn = vec![curve(&style.curve("curve"), style.dashes(), &places, &in_figures(run))];
    drawn.extend(style.marks(&places));
    if run.latency.is_coarse() {
        drawn.extend(places.iter().map(|place| style.dot(*place)));
    }
    drawn
}

/// Draws a point for each result at its mean latency and its CPU, with a whisker from the median to
/// the 99th percentile.
fn cpu_against_latency(device: &str, runs: &[Run], ranges: &Ranges) -> Element {
    let x = Axis::between(Scale::Log, ranges.typical, ACROSS);
    let y = Axis::over(Scale::Linear, std::iter::once(ranges.cpu_percent), UP);
    let label = label("CPU against mean latency", device, runs);
    let inside = points(runs.iter().filter_map(|run| point(run, &x, &y)).collect());
    let (x_ticks, y_ticks) = (x.latency_ticks(), y.linear_ticks(6.0));
    let x = Side(&x, &x_ticks, "mean latency, logarithmic; left is faster");
    plot(&label, x, Side(&y, &y_ticks, "CPU of the waiting threads, %; lower is cheaper"), inside)
}

fn point<'a>(run: &'a Run, x: &Axis, y: &Axis) -> Option<Point<'a>> {
    let at = (x.place(run.mean_ns()?), y.place(run.cpu_percent?));
    // From the median to the 99th percentile, extended to the mean if that lies outside.
    let ends = [50.0, 99.0].map(|share| run.latency.percentile_ns(share));
    let ends = ends[0].zip(ends[1]).map(|(p50, p99)| (x.place(p50), x.place(p99)));
    let class = format!("whisker {}", run.style.colour());
    let mut marks = Vec::new();
    let whisker = ends.map(|(p50, p99)| (p50.min(at.0), p99.max(at.0)));
    if let Some(((_, p99), (from, to))) = ends.zip(whisker) {
        marks.push(line(&class, (from, at.1), (to, at.1)));
        marks.push(line(&class, (p99, at.1 - 4.0), (p99, at.1 + 4.0)));
    }
    marks.push(run.style.marker(at));
    let name = (run.label.as_str(), format!("label halo {}", run.style.colour()));
    Some(Point { at, marks, whisker, tip: in_figures(run), label: name })
}

/// Draws mean and 99th percentile of each interval, which a distribution cannot show.
fn over_time(device: &str, runs: &[Run], ranges: &Ranges) -> Element {
    let x = Axis::over(Scale::Linear, std::iter::once(ranges.last_ms / 1e3), ACROSS);
    let y = Axis::between(Scale::Log, ranges.timeline, UP);
    let label = label("Latency over time", device, runs);
    let mut inside = Vec::new();
    for run in runs {
        for part in parts(&run.series) {
            let place = |moment: &Moment, ns: f64| (x.place(moment.at_ms / 1e3), y.place(ns));
            let p99 = part.iter().filter_map(|one| Some(place(one, one.p99_ns?))).collect();
            let mean: Vec<_> = part.iter().map(|one| place(one, one.mean_ns)).collect();
            inside.extend(stretch(run, "curve thin", p99));
            inside.extend(stretch(run, "curve", mean.clone()));
            inside.extend(run.style.marks(&mean));
        }
    }
    let (x_ticks, y_ticks) = (x.linear_ticks(6.0), y.latency_ticks());
    let y = Side(&y, &y_ticks, "latency, logarithmic: mean, and p99 (thin)");
    plot(&label, Side(&x, &x_ticks, "time since the run began, s"), y, inside)
}

fn stretch(run: &Run, class: &str, mut places: Vec<(f64, f64)>) -> Option<Element> {
    // A line of one point is drawn as a dash.
    if let [(x, y)] = places[..] {
        places = vec![(x - 1.5, y), (x + 1.5, y)];
    }
    let drawn = || curve(&run.style.curve(class), run.style.dashes(), &places, &in_figures(run));
    (!places.is_empty()).then(drawn)
}

/// Splits the series at its gaps.
fn parts(series: &[Moment]) -> Vec<&[Moment]> {
    let mut steps: Vec<f64> = series.windows(2).map(|pair| pair[1].at_ms - pair[0].at_ms).collect();
    steps.sort_by(f64::total_cmp);
    let usual = steps.get(steps.len() / 2).copied().unwrap_or(0.0);
    series.chunk_by(|a, b| b.at_ms - a.at_ms <= usual * GAP_STEPS).collect()
}

/// Describes a result in a line, for a tooltip and for readers who cannot see the plot.
fn in_figures(run: &Run) -> String {
    let latency = |share| run.latency.percentile_ns(share);
    let known = [
        ("mean", run.mean_ns()),
        ("p50", latency(50.0)),
        ("p99", latency(99.0)),
        ("p99.9", latency(99.9)),
        ("slowest 1 in 6,000", run.slowest_ns),
    ];
    let known = known.into_iter().filter_map(|(name, ns)| Some((name, ns?)));
    let parts: Vec<String> =
        known.map(|(name, ns)| format!("{name} {}", figures::time(ns))).collect();
    let parts = if parts.is_empty() { "no I/Os".to_owned() } else { parts.join(", ") };
    format!("{}: {parts}", run.label)
}

/// Describes a plot in words.
fn label(what: &str, device: &str, runs: &[Run]) -> String {
    let figures: Vec<String> = runs.iter().map(in_figures).collect();
    format!("{what}, {device}. {}.", figures.join("; "))
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn turns_are_told_apart() {
        let series: Vec<Moment> = [0.0, 10.0, 20.0, 30.0, 500.0, 510.0, 900.0]
            .map(|at_ms| Moment { at_ms, mean_ns: 5_000.0, p99_ns: None })
            .to_vec();
        let lengths: Vec<usize> = parts(&series).iter().map(|part| part.len()).collect();
        assert_eq!(lengths, [4, 2, 1]);
        assert!(parts(&[]).is_empty());
    }
}
