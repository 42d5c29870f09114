//! Distributions as curves.

use std::fmt::Write as _;

use super::Ink;
use super::canvas::{Anchor, Canvas, Scale, short_time};
use crate::report::stats::LatencyStats;

/// What the vertical axis says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Axis {
    /// The part of I/Os that took no longer, up to the slowest thousandth.
    Cumulative,
    /// The part that took longer, by powers of ten: the tail.
    Exceedance,
}

/// One distribution.
pub(super) struct Curve<'a> {
    /// What was recorded.
    pub stats: &'a LatencyStats,
    /// In the legend; empty for none.
    pub label: String,
    /// When a mouse points at it.
    pub tip: String,
    /// Its colour.
    pub ink: Ink,
    /// Its dashes, as SVG has them.
    pub dash: &'static str,
    /// Its width.
    pub width: f64,
}

/// Draws `curves` between `left` and `right`, with axes and legend.
pub(super) fn draw(
    canvas: &mut Canvas,
    curves: &[Curve<'_>],
    axis: Axis,
    left: f64,
    right: f64,
    height: f64,
) {
    let curves: Vec<&Curve<'_>> = curves.iter().filter(|curve| curve.stats.max_ns() > 0).collect();
    if curves.is_empty() {
        return;
    }
    let (top, bottom) = (canvas.y() + 8.0, canvas.y() + 8.0 + height);
    let end = |stats: &LatencyStats| match axis {
        Axis::Cumulative => stats.percentile_ns(99.9) as f64,
        Axis::Exceedance => stats.max_ns() as f64,
    };
    let low_ns =
        curves.iter().map(|curve| curve.stats.min_ns().max(1) as f64).fold(f64::MAX, f64::min);
    let high_ns = curves.iter().map(|curve| end(curve.stats)).fold(low_ns * 2.0, f64::max);
    let across = Scale::logarithmic(low_ns * 0.9, high_ns * 1.1, left, right);
    let most = curves.iter().map(|curve| curve.stats.n()).max().unwrap_or(1).max(10) as f64;
    let up = match axis {
        Axis::Cumulative => Scale::linear(0.0, 1.0, bottom, top),
        Axis::Exceedance => Scale::logarithmic(1.0 / most, 1.0, bottom, top),
    };
    for share in up.ticks() {
        let y = up.at(share);
        canvas.line(left, y, right, y, Ink::Grid, 1.0);
        canvas.text(left - 8.0, y + 4.0, 11.0, Ink::Faint, Anchor::End, &share_text(share, axis));
    }
    for ns in across.ticks() {
        let x = across.at(ns);
        canvas.line(x, top, x, bottom, Ink::Grid, 1.0);
        canvas.text(x, bottom + 16.0, 11.0, Ink::Faint, Anchor::Middle, &short_time(ns));
    }
    for curve in &curves {
        let points = points(curve.stats, axis, &across, &up);
        canvas.polyline(&points, curve.ink, curve.dash, curve.width, &curve.tip);
    }
    canvas.skip(8.0 + height + 34.0);
    let labelled: Vec<_> = curves.iter().filter(|curve| !curve.label.is_empty()).collect();
    // Two columns, each in order.
    let lines = labelled.len().div_ceil(2);
    for (nth, curve) in labelled.iter().enumerate() {
        let x = if nth < lines { left } else { (left + right) / 2.0 };
        let y = canvas.y() - 4.0 + (nth % lines) as f64 * 17.0;
        let sample = format!("{x:.1},{y:.1} {:.1},{y:.1}", x + 34.0);
        canvas.polyline(&sample, curve.ink, curve.dash, 2.0, &curve.tip);
        canvas.text(x + 42.0, y + 4.0, 12.0, Ink::Text, Anchor::Start, &curve.label);
    }
    canvas.skip(lines as f64 * 17.0);
}

fn share_text(share: f64, axis: Axis) -> String {
    match axis {
        Axis::Cumulative => format!("{:.0} %", share * 100.0),
        Axis::Exceedance if share >= 0.999 => "all".to_owned(),
        Axis::Exceedance => {
            let one_in = (1.0 / share).round() as u64;
            let digits = one_in.to_string();
            let groups: Vec<&str> = digits
                .as_bytes()
                .rchunks(3)
                .rev()
                .filter_map(|group| std::str::from_utf8(group).ok())
                .collect();
            format!("1 in {}", groups.join(","))
        }
    }
}

/// The corners of a curve; steps too near to be told apart are left out.
fn points(stats: &LatencyStats, axis: Axis, across: &Scale, up: &Scale) -> String {
    let n = stats.n().max(1) as f64;
    let (mut below, mut text) = (0u64, String::new());
    let mut last = (f64::MIN, f64::MIN);
    let mut add = |text: &mut String, ns: f64, share: f64, always: bool| {
        let point = (across.at(ns), up.at(share));
        if always || (point.0 - last.0).abs() > 0.4 || (point.1 - last.1).abs() > 0.4 {
            let _ = write!(text, "{:.1},{:.1} ", point.0, point.1);
            last = point;
        }
    };
    for (ns, count) in stats.steps() {
        let ns = ns.max(1) as f64;
        match axis {
            Axis::Cumulative => {
                below += count;
                add(&mut text, ns, below as f64 / n, below as f64 >= n);
            }
            Axis::Exceedance => {
                add(&mut text, ns, 1.0 - below as f64 / n, below == 0);
                below += count;
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_to_show_a_distribution() {
        let mut stats = LatencyStats::new();
        [100, 100, 100, 1_000].into_iter().for_each(|ns| stats.record(ns));
        let across = Scale::logarithmic(100.0, 10_000.0, 0.0, 200.0);
        let up = Scale::linear(0.0, 1.0, 100.0, 0.0);
        assert_eq!(points(&stats, Axis::Cumulative, &across, &up), "0.0,25.0 100.0,0.0 ");
        assert_eq!(points(&stats, Axis::Exceedance, &across, &up), "0.0,0.0 100.0,75.0 ");
        assert_eq!(share_text(1e-4, Axis::Exceedance), "1 in 10,000");
        assert_eq!(
            (share_text(1.0, Axis::Exceedance), share_text(0.25, Axis::Cumulative)),
            ("all".into(), "25 %".into())
        );
    }
}
