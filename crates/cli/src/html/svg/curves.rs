//! Distributions: cumulative with nines, and exceedance.

use super::Ranges;
use super::axes::{Axis, Scale};
use super::frame::{ACROSS, UP, dot, line, marks, plot, polyline, text, thinned};
use crate::figures;
use crate::html::markup::Markup;
use crate::html::model::Run;
use crate::report::stats::SLOWEST_ONE_IN;

/// What the horizontal axes of latencies say.
const LATENCY_TITLE: &str = "latency, logarithmic; left is faster";

/// The share of I/Os that were at least as quick: 50 %, 90 %, 99 %, and on by nines.
pub(crate) fn cdf(out: &mut Markup, device: &str, runs: &[&Run], ranges: &Ranges) {
    let x = Axis::between(Scale::Log, ranges.latency, ACROSS);
    // The last nine that a result of this size can tell.
    let top = (1.0 - ranges.rarest).min(0.999_999_9);
    let y = Axis::between(Scale::Nines, (0.01, top), UP);
    let label = label("Cumulative distribution of latency", device, runs);
    let y_title = "share of I/Os that took no longer, %";
    plot(
        out,
        &label,
        (&x, &x.latency_ticks(), LATENCY_TITLE),
        (&y, &y.nines_ticks(), y_title),
        |out| {
            for run in runs {
                draw(out, run, |ns, slower| (x.place(ns), y.place(1.0 - slower)));
            }
        },
    );
}

/// How many I/Os were at least as slow, both logarithmic: the tail.
pub(crate) fn exceedance(out: &mut Markup, device: &str, runs: &[&Run], ranges: &Ranges) {
    let x = Axis::between(Scale::Log, ranges.latency, ACROSS);
    let y = Axis::between(Scale::Log, (ranges.rarest * 0.8, 1.0), UP);
    let label = label("How often a latency is reached or exceeded", device, runs);
    let y_title = "share of I/Os that took at least so long";
    plot(
        out,
        &label,
        (&x, &x.latency_ticks(), LATENCY_TITLE),
        (&y, &y.rarity_ticks(), y_title),
        |out| {
            let one_in = 1.0 / SLOWEST_ONE_IN as f64;
            if one_in > ranges.rarest {
                let place = y.place(one_in);
                line(out, "reference", (ACROSS.0, place), (ACROSS.1, place));
                text(out, "note halo", "start", (ACROSS.0 + 3.0, place - 4.0), "1 in 6,000");
            }
            for run in runs {
                draw(out, run, |ns, slower| (x.place(ns), y.place(slower)));
            }
        },
    );
}

fn draw(out: &mut Markup, run: &Run, place: impl Fn(f64, f64) -> (f64, f64)) {
    let curve = run.latency.curve();
    let mut places: Vec<(f64, f64)> =
        curve.iter().map(|(ns, slower)| place(*ns, *slower)).collect();
    // What lies below the axis' end is not drawn along it.
    let below = places.iter().take_while(|place| place.1 >= UP.0).count().saturating_sub(1);
    places.drain(..below);
    if places.is_empty() {
        return;
    }
    polyline(out, "curve", run.style, &thinned(&places), &in_figures(run));
    marks(out, run.style, &places);
    if run.latency.is_coarse() {
        places.iter().for_each(|place| dot(out, run.style, *place));
    }
}

/// A result in a line, for a tooltip and for those who cannot see the plot.
pub(super) fn in_figures(run: &Run) -> String {
    let mut parts = Vec::new();
    for (name, ns) in [
        ("mean", run.mean_ns()),
        ("p50", run.latency.percentile_ns(50.0)),
        ("p99", run.latency.percentile_ns(99.0)),
        ("p99.9", run.latency.percentile_ns(99.9)),
        ("slowest 1 in 6,000", run.slowest_ns),
    ] {
        parts.extend(ns.map(|ns| format!("{name} {}", figures::time(ns))));
    }
    format!(
        "{}: {}",
        run.label,
        if parts.is_empty() { "no I/Os".to_owned() } else { parts.join(", ") }
    )
}

/// What a plot shows, in words.
pub(super) fn label(what: &str, device: &str, runs: &[&Run]) -> String {
    let figures: Vec<String> = runs.iter().map(|run| in_figures(run)).collect();
    format!("{what}, {device}. {}.", figures.join("; "))
}
