//! The latency/CPU plane of a cell: a point for each policy.

use crate::plot::{
    ACROSS, Axis, Element, Point, Scale, Side, Style, Tick, UP, at, line, plot, points,
};

use super::figures::{CellResult, Figures, Reference};
use super::summary::AS_QUICK;
use super::table::ratio;

/// Returns the range of means over poll's that the planes of a row share, so that they can be
/// compared by eye.
pub(super) fn range(cells: &[&CellResult]) -> (f64, f64) {
    let ratios = |cell: &&CellResult| -> Vec<f64> {
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

/// Draws the plane of `cell`; `names` are those of all policies, which decide their looks.
pub(super) fn plane(cell: &CellResult, names: &[String], range: (f64, f64)) -> Element {
    let x = Axis::over(Scale::Linear, std::iter::once(100.0), ACROSS);
    let y = Axis::between(Scale::Log, range, UP);
    let mut inside = [1.0, AS_QUICK]
        .map(|reference| y.place(reference))
        .map(|at| line("reference", (ACROSS.0, at), (ACROSS.1, at)))
        .to_vec();
    let references = references(cell).into_iter().map(|(name, (ratio, cpu_percent))| {
        let at = (x.place(cpu_percent), y.place(ratio));
        let label = (name, "note halo".to_owned());
        Point { at, marks: vec![target(at)], whisker: None, tip: name.to_owned(), label }
    });
    let ways = cell.ways.iter().filter_map(|way| {
        let at = (x.place(way.cpu_percent), y.place(cell.mean_over_poll(way)?));
        let style = Style::of(names, &way.completion);
        let label = (way.completion.as_str(), format!("label halo {}", style.colour()));
        let tip = in_figures(cell, way);
        Some(Point { at, marks: vec![style.marker(at)], whisker: None, tip, label })
    });
    let told: Vec<String> = ways.clone().map(|point| point.tip).collect();
    let label = format!(
        "Mean latency over that of poll against CPU, {}. {}.",
        cell.cell.name(),
        told.join("; ")
    );
    inside.extend(points(references.chain(ways).collect()));
    let (x_ticks, y_ticks) = (x.linear_ticks(6.0), ticks(range));
    let x = Side(&x, &x_ticks, "CPU of the waiting thread, %; left is cheaper");
    plot(&label, x, Side(&y, &y_ticks, "mean latency over that of poll; lower is quicker"), inside)
}

/// Draws a reference's mark: a ring with a cross in it.
fn target((x, y): (f64, f64)) -> Element {
    let ring = format!("M{} {}a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z", at(x - 5.0), at(y));
    Element::new("path").set("class", "target").set("d", ring + "m-3 0h16m-8 -8v16")
}

/// Returns the ticks of ratios that lie in the range, and no more than are readable.
fn ticks((low, high): (f64, f64)) -> Vec<Tick> {
    const STEPS: [&[f64]; 4] = [
        &[0.9, 0.95, 0.97, 0.98, 0.99, 1.0, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 1.08, 1.1],
        &[0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
        &[0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0],
        &[
            0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0,
            500.0, 1_000.0,
        ],
    ];
    let steps = match high / low {
        span if span < 1.16 => STEPS[0],
        span if span < 1.9 => STEPS[1],
        span if span < 6.0 => STEPS[2],
        _ => STEPS[3],
    };
    let within = steps.iter().filter(|at| (low..=high).contains(*at));
    within.map(|at| Tick { at: *at, label: format!("× {at}") }).collect()
}

/// Describes a policy in a line.
fn in_figures(cell: &CellResult, way: &Figures) -> String {
    let over = cell
        .mean_over_poll(way)
        .map_or_else(String::new, |over| format!(", × {} poll", ratio(over)));
    let mean = crate::figures::time(way.mean_ns);
    format!("{}: mean {mean}{over}, CPU {:.1} %", way.completion, way.cpu_percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_ticks_in_every_range() {
        for (low, high) in [(0.99, 1.1), (0.97, 1.4), (0.9, 3.0), (0.9, 15.0), (0.9, 400.0)] {
            let ticks = ticks((low, high));
            assert!((3..=14).contains(&ticks.len()), "{low} to {high}: {ticks:?}");
            assert!(ticks.iter().any(|tick| tick.at == 1.0));
            assert!(ticks.is_sorted_by(|one, other| one.at < other.at));
        }
    }
}
