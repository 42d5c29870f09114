//! The latency/CPU plane of a cell: a point a way to wait.

use crate::html::markup::Markup;
use crate::html::model::Style;
use crate::html::svg::axes::{Axis, Scale, Tick};
use crate::html::svg::frame::{ACROSS, UP, colour, line, marker, plot, text};
use crate::html::svg::scatter::{box_around, free_place};

use super::figures::{CellResult, Figures, Reference};
use super::summary::AS_QUICK;
use super::table::ratio;
use crate::report::look::looks;

/// How a way is drawn: the same in all planes, and on all pages.
pub(super) fn style(names: &[String], name: &str) -> Style {
    let at = names.iter().position(|other| other == name).unwrap_or(0);
    Style { way: looks(names).get(at).copied().unwrap_or(0), source: 0 }
}

/// The range of means over poll's that planes of a row share: they can be compared by eye.
pub(super) fn range(cells: &[&CellResult]) -> (f64, f64) {
    let ratios = |cell: &&CellResult| -> Vec<f64> {
        let ways = cell.ways.iter().filter_map(|way| cell.mean_over_poll(way));
        let references = references(cell).into_iter().map(|(_, at)| at.0);
        ways.chain(references).collect()
    };
    let all: Vec<f64> = cells.iter().flat_map(ratios).collect();
    let most = all.iter().copied().fold(1.0, f64::max);
    let least = all.iter().copied().fold(1.0, f64::min);
    // 1 and 1.03 are told apart, and there is some room.
    let room = (most / least).powf(0.06).max(1.01);
    (least / room, (most * room).max(1.1))
}

/// Both references, each with its mean over that of poll, and its CPU.
fn references(cell: &CellResult) -> Vec<(&'static str, (f64, f64))> {
    let poll_ns = cell.poll.as_ref().map_or(0.0, |poll| poll.mean_ns);
    let Some(references) = cell.references.filter(|_| poll_ns > 0.0) else { return Vec::new() };
    let at = |of: &Reference| (of.mean_ns / poll_ns, of.cpu_percent);
    vec![("informed", at(&references.informed)), ("oracle", at(&references.oracle))]
}

/// The plane of `cell`; `names` are those of all ways, by their styles.
pub(super) fn plane(out: &mut Markup, cell: &CellResult, names: &[String], range: (f64, f64)) {
    let x = Axis::over(Scale::Linear, std::iter::once(100.0), ACROSS);
    let y = Axis::between(Scale::Log, range, UP);
    let points: Vec<(&Figures, Style, (f64, f64))> = cell
        .ways
        .iter()
        .filter_map(|way| {
            let style = style(names, &way.completion);
            Some((way, style, (x.place(way.cpu_percent), y.place(cell.mean_over_poll(way)?))))
        })
        .collect();
    let label = format!(
        "Mean latency over that of poll against CPU, {}. {}.",
        cell.cell.name(),
        points.iter().map(|(way, ..)| in_figures(cell, way)).collect::<Vec<_>>().join("; ")
    );
    let x_axis = (&x, &x.linear_ticks(6.0)[..], "CPU of the waiting thread, %; left is cheaper");
    let y_axis = (&y, &ticks(range)[..], "mean latency over that of poll; lower is quicker");
    plot(out, &label, x_axis, y_axis, |out| {
        for reference in [1.0, AS_QUICK] {
            line(out, "reference", (ACROSS.0, y.place(reference)), (ACROSS.1, y.place(reference)));
        }
        let mut taken: Vec<[f64; 4]> = points.iter().map(|(_, _, at)| box_around(*at)).collect();
        let references: Vec<(&str, (f64, f64))> = references(cell)
            .into_iter()
            .map(|(name, (ratio, cpu_percent))| (name, (x.place(cpu_percent), y.place(ratio))))
            .collect();
        taken.extend(references.iter().map(|(_, at)| box_around(*at)));
        for (name, at) in &references {
            out.with("g", &[("class", &"point")], |out| {
                out.element("title", &[], name);
                target(out, *at);
            });
        }
        for (way, style, at) in &points {
            out.with("g", &[("class", &"point")], |out| {
                out.element("title", &[], &in_figures(cell, way));
                marker(out, *style, *at);
            });
        }
        for (name, at) in &references {
            if let Some((anchor, place, area)) = free_place(name, *at, &taken) {
                text(out, "note halo", anchor, place, name);
                taken.push(area);
            }
        }
        for (way, style, at) in &points {
            // Without a free place the legend has to do.
            if let Some((anchor, place, area)) = free_place(&way.completion, *at, &taken) {
                text(
                    out,
                    &format!("label halo {}", colour(*style)),
                    anchor,
                    place,
                    &way.completion,
                );
                taken.push(area);
            }
        }
    });
}

/// A reference's mark: a ring with a cross in it.
fn target(out: &mut Markup, (x, y): (f64, f64)) {
    use crate::html::svg::frame::at;
    let d = format!("M{} {}a5 5 0 1 0 10 0a5 5 0 1 0 -10 0zm-3 0h16m-8 -8v16", at(x - 5.0), at(y));
    out.empty("path", &[("class", &"target"), ("d", &d)]);
}

/// Ticks of ratios: those that lie in the range, and no more than can be read.
fn ticks((low, high): (f64, f64)) -> Vec<Tick> {
    const STEPS: [&[f64]; 4] = [
        &[1.0, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 1.08, 1.1, 0.99, 0.98, 0.97, 0.95, 0.9],
        &[1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 0.9, 0.8, 0.7],
        &[1.0, 1.5, 2.0, 3.0, 4.0, 0.5, 0.7],
        &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 0.5, 0.2],
    ];
    let steps = match high / low {
        span if span < 1.16 => STEPS[0],
        span if span < 1.9 => STEPS[1],
        span if span < 6.0 => STEPS[2],
        _ => STEPS[3],
    };
    let mut within: Vec<f64> =
        steps.iter().copied().filter(|at| (low..=high).contains(at)).collect();
    within.sort_by(f64::total_cmp);
    within.into_iter().map(|at| Tick { at, label: format!("× {at}") }).collect()
}

/// A way in a line.
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
