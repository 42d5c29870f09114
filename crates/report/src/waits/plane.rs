//! The latency/CPU plane of a cell: a point for each policy.

use itertools::Itertools as _;

use crate::plot::{ACROSS, Axis, Chart, Point, Scale, Style, UP, short};

use super::figures::{CellResult, Figures, Reference};
use super::summary::AS_QUICK;
use super::table::ratio_text;

/// Returns the range of the means over poll's. All planes of a row share it, so that they can be
/// compared by eye.
pub(super) fn range(cells: &[CellResult]) -> (f64, f64) {
    let ratios = |cell: &CellResult| -> Vec<f64> {
        let ways = cell.ways.iter().filter_map(|way| cell.mean_over_poll(way));
        ways.chain(references(cell).into_iter().map(|(_, at)| at.0)).collect()
    };
    let all: Vec<f64> = cells.iter().flat_map(ratios).collect();
    let most = all.iter().copied().fold(1.0, f64::max);
    let least = all.iter().copied().fold(1.0, f64::min);
    // 1 and 1.03 are distinguishable, and there is some room.
    let room = (most / least).powf(0.06).max(1.01);
    (least / room, (most * room).max(1.1))
}

/// Returns both references, each with its mean over that of poll, and its CPU.
fn references(cell: &CellResult) -> Vec<(&'static str, (f64, f64))> {
    let poll_ns = cell.poll.as_ref().map_or(0.0, |poll| poll.mean_ns);
    let Some(references) = cell.references.filter(|_| poll_ns > 0.0) else { return Vec::new() };
    let at = |of: &Reference| (of.mean_ns / poll_ns, of.cpu_percent);
    vec![("informed", at(&references.informed)), ("oracle", at(&references.oracle))]
}

/// Draws the plane of `cell`. `names` are the names of all policies, which decide their looks.
pub(super) fn plane<'a>(cell: &'a CellResult, names: &[String], range: (f64, f64)) -> Chart {
    let x = Axis::over(Scale::Linear, std::iter::once(100.0), ACROSS)
        .with(|axis| axis.linear_ticks(6.0), "CPU of the waiting thread, %; left is cheaper");
    let ticks = |y: &Axis| y.log_ticks(|at| format!("× {}", short(at)));
    let y = Axis::between(Scale::Log, range, UP)
        .with(ticks, "mean latency over that of poll; lower is quicker");
    let way = |way: &'a Figures| {
        Some(Point {
            at: (way.cpu_percent, cell.mean_over_poll(way)?),
            style: Some(Style::of(names, &way.completion)),
            whisker: None,
            name: &way.completion,
            tip: in_figures(cell, way),
        })
    };
    let ways: Vec<_> = cell.ways.iter().filter_map(way).collect();
    let told = ways.iter().map(|point| &point.tip).join("; ");
    let label = format!("Mean latency over that of poll against CPU, {}. {told}.", cell.cell.name);
    let references = references(cell).into_iter().map(|(name, (ratio, cpu_percent))| {
        let at = (cpu_percent, ratio);
        Point { at, style: None, whisker: None, name, tip: name.to_owned() }
    });
    let mut chart = Chart::new(label, x, y);
    [1.0, AS_QUICK].into_iter().for_each(|ratio| chart.reference(ratio));
    chart.points(&references.chain(ways).collect::<Vec<_>>());
    chart
}

/// Describes a policy in a line.
fn in_figures(cell: &CellResult, way: &Figures) -> String {
    let over = cell
        .mean_over_poll(way)
        .map_or_else(String::new, |over| format!(", × {} poll", ratio_text(over)));
    let mean = crate::figures::time(way.mean_ns);
    format!("{}: mean {mean}{over}, CPU {:.1} %", way.completion, way.cpu_percent)
}
