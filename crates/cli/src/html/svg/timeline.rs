//! Latency over time: what a distribution cannot show.

use super::Ranges;
use super::axes::{Axis, Scale};
use super::curves::{in_figures, label};
use super::frame::{ACROSS, UP, marks, plot, polyline, thinned};
use crate::html::markup::Markup;
use crate::html::model::{Moment, Run};

/// A gap of so many usual steps is another turn: the line is broken there.
const GAP_STEPS: f64 = 3.0;

/// Mean and 99th percentile of each stretch of time.
pub(crate) fn over_time(
    out: &mut Markup,
    device: &str,
    runs: &[&Run],
    ranges: &Ranges,
    last_ms: f64,
) {
    let x = Axis::over(Scale::Linear, std::iter::once(last_ms / 1e3), ACROSS);
    let y = Axis::between(Scale::Log, ranges.timeline, UP);
    let label = label("Latency over time", device, runs);
    let x_axis = (&x, &x.linear_ticks(6.0)[..], "time since the run began, s");
    let y_title = "latency, logarithmic: mean, and p99 (thin)";
    plot(out, &label, x_axis, (&y, &y.latency_ticks(), y_title), |out| {
        for run in runs {
            for part in parts(&run.series) {
                let place = |moment: &Moment, ns: f64| (x.place(moment.at_ms / 1e3), y.place(ns));
                let p99: Vec<_> =
                    part.iter().filter_map(|one| Some(place(one, one.p99_ns?))).collect();
                draw(out, "curve thin", run, &p99);
                let mean: Vec<_> = part.iter().map(|one| place(one, one.mean_ns)).collect();
                draw(out, "curve", run, &mean);
                marks(out, run.style, &mean);
            }
        }
    });
}

fn draw(out: &mut Markup, class: &str, run: &Run, places: &[(f64, f64)]) {
    match places {
        [] => {}
        // A line of one point is seen as a dash.
        [(x, y)] => {
            polyline(out, class, run.style, &[(x - 1.5, *y), (x + 1.5, *y)], &in_figures(run))
        }
        places => polyline(out, class, run.style, &thinned(places), &in_figures(run)),
    }
}

/// The stretches between gaps.
fn parts(series: &[Moment]) -> Vec<&[Moment]> {
    let mut steps: Vec<f64> = series.windows(2).map(|pair| pair[1].at_ms - pair[0].at_ms).collect();
    steps.sort_by(f64::total_cmp);
    let usual = steps.get(steps.len() / 2).copied().unwrap_or(0.0);
    series.chunk_by(|a, b| b.at_ms - a.at_ms <= usual * GAP_STEPS).collect()
}

#[cfg(test)]
mod tests {
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
