//! The plots, in the documents' own forms.

use itertools::Itertools as _;

use super::{Curve, Figure, Form, Picture, Series, Spread, Unit};
use crate::figures;
use crate::plot::{
    ACROSS, Axis, Chart, Distribution, Mark, Scale, Share, Style, Tick, UP, block, distributions,
    line, short, text, text_width,
};
use crate::view::Legend;

/// Space between groups of bars, as a share of a group.
const GAP: f64 = 0.25;

/// Draws a picture with its legend. Returns `None` without figures.
pub(super) fn draw(title: &str, picture: &Picture) -> Option<(Legend, Chart)> {
    let Picture { form, unit, series, curves } = picture;
    match form {
        Form::Exceedance => distribution(title, Share::Tail, curves),
        Form::Distribution => distribution(title, Share::Even, curves),
        _ if values(series).is_empty() => None,
        Form::Lines(axis, log) => Some(lines(title, *unit, axis, *log, series)),
        Form::Bars => Some(bars(title, *unit, series, false)),
        Form::Stacks => Some(bars(title, *unit, series, true)),
    }
}

fn figures(series: &[Series]) -> impl Iterator<Item = &Figure> {
    series.iter().flat_map(|one| &one.figures)
}

/// Returns the vertical axis over these values.
fn vertical(unit: Unit, values: &[f64]) -> Axis {
    let ticks = |axis: &Axis| match unit {
        Unit::Time => axis.even_ticks(6.0, |at, _| figures::short_time(at)),
        Unit::Rate | Unit::Count => axis.even_ticks(6.0, |at, step| match at {
            at if at >= 1e6 => format!("{}M", short(at / 1e6)),
            at if at >= 1e3 => format!("{}k", short(at / 1e3)),
            at if step < 1.0 => format!("{at:.1}"),
            at => format!("{at:.0}"),
        }),
        Unit::Bytes => axis.even_ticks(6.0, |at, _| figures::bytes(at as u64)),
        Unit::Percent | Unit::Ratio => axis.linear_ticks(6.0),
    };
    Axis::over(Scale::Linear, values.iter().copied(), UP).with(ticks, unit.title())
}

/// Returns all figures with their ranges and the document's numbers.
fn values(series: &[Series]) -> Vec<f64> {
    let of = |one: &Figure| [one.here, one.there, one.spread.as_ref().map(|spread| spread.ends.1)];
    figures(series).flat_map(of).flatten().collect()
}

fn tip(unit: Unit, series: &str, figure: &Figure) -> String {
    let here = figure.here.map(|here| format!(": {}", unit.text(here)));
    let there = figure.there.map(|there| format!("; the document: {}", unit.text(there)));
    format!("{series}, {}{}{}", figure.name, here.unwrap_or_default(), there.unwrap_or_default())
}

/// Describes a plot in words.
fn described(title: &str, unit: Unit, series: &[Series]) -> String {
    let tips = |one: &Series| one.figures.iter().map(|of| tip(unit, &one.name, of)).join(". ");
    format!("{title}. {}.", series.iter().map(tips).join(". "))
}

/// Names of groups below the axis, in two rows if they are long.
fn group_names(series: &[Series], chart: &Chart) -> Vec<Mark> {
    let room = (ACROSS.1 - ACROSS.0) / series.len().max(1) as f64;
    let crowded = series.iter().any(|one| text_width(&one.name) > room);
    let name = |(at, one): (usize, &Series)| {
        let down = if crowded && at % 2 == 1 { 29.0 } else { 16.0 };
        let (middle, _) = chart.place((at as f64 + 0.5, 0.0));
        // The last one ends where the drawing does.
        let middle = middle.min(ACROSS.1 + 10.0 - text_width(&one.name) / 2.0);
        text("tick", "middle", (middle, UP.0 + down), &one.name)
    };
    series.iter().enumerate().map(name).collect()
}

/// Returns the sample of a bar.
fn bar(class: &str) -> Mark {
    block(class, (6.0, 1.0), (22.0, 10.0))
}

/// Returns samples of `names`, and that of the document's numbers if there are any.
fn legend(
    names: &[String],
    series: &[Series],
    sample: impl Fn(Style) -> Mark,
    theirs: Mark,
) -> Legend {
    let of = |name: &String| (sample(Style::of(names, name)), name.clone());
    let there = figures(series).any(|figure| figure.there.is_some());
    let theirs = there.then(|| (theirs, "the document".to_owned()));
    Legend { entries: names.iter().map(of).chain(theirs).collect() }
}

/// The sample of a line of the document's.
fn document_line() -> Mark {
    line("there", (6.0, 6.0), (28.0, 6.0))
}

/// Draws the figures of each series side by side, or upon each other beside the document's.
fn bars(title: &str, unit: Unit, series: &[Series], stacked: bool) -> (Legend, Chart) {
    let names: Vec<String> = figures(series).map(|figure| figure.name.clone()).unique().collect();
    let x = Axis::between(Scale::Linear, (0.0, series.len() as f64), ACROSS);
    let sum = |one: &Series, of: fn(&Figure) -> Option<f64>| -> f64 {
        one.figures.iter().filter_map(of).map(|part| part.max(0.0)).sum()
    };
    let sums = series.iter().flat_map(|one| [sum(one, |of| of.here), sum(one, |of| of.there)]);
    let y = vertical(unit, &if stacked { sums.collect() } else { values(series) });
    let mut chart = Chart::new(described(title, unit, series), x, y);
    for (at, one) in series.iter().enumerate() {
        let columns = match stacked {
            true => 1 + usize::from(one.figures.iter().any(|figure| figure.there.is_some())),
            false => one.figures.len().max(1),
        };
        let width = (1.0 - GAP) / columns as f64;
        let column = |nth: usize| {
            let left = at as f64 + GAP / 2.0 + width * nth as f64;
            (left, left + width * 0.9)
        };
        // The height of the stacks below the next part: ours, the document's.
        let mut below = [0.0, 0.0];
        for (nth, figure) in one.figures.iter().enumerate() {
            let colour = Style::of(&names, &figure.name).colour();
            let tip = tip(unit, &one.name, figure);
            let parts = [(figure.here, "block"), (figure.there, "block theirs")].into_iter();
            for (side, (part, class)) in parts.enumerate().filter(|(side, _)| stacked || *side == 0)
            {
                let Some(part) = part.filter(|part| !stacked || *part > 0.0) else { continue };
                let (left, right) = column(if stacked { side } else { nth });
                let from = if stacked { below[side] } else { 0.0 };
                chart.block(&format!("{class} {colour}"), (left, from), (right, from + part), &tip);
                below[side] += part;
            }
            if stacked {
                continue;
            }
            let (left, right) = column(nth);
            whisker(&mut chart, (left + right) / 2.0, figure);
            if let Some(there) = figure.there {
                let ends = [left - 0.02, right + 0.02].map(|x| chart.place((x, there)));
                chart.add([line("there", ends[0], ends[1]).tip(&tip)]);
            }
        }
        if stacked && !one.figures.is_empty() {
            let (left, right) = column(0);
            let (middle, top) = chart.place(((left + right) / 2.0, below[0]));
            chart.add([text("note", "middle", (middle, top - 4.0), &unit.text(below[0]))]);
        }
    }
    let names_below = group_names(series, &chart);
    chart.add(names_below);
    let theirs = if stacked { bar("block theirs c5") } else { document_line() };
    let sample = |style: Style| bar(&format!("block {}", style.colour()));
    (legend(&names, series, sample, theirs), chart)
}

/// Draws how far the figures behind one are apart.
fn whisker(chart: &mut Chart, x: f64, figure: &Figure) {
    let Some(Spread { ends: (low, high), .. }) = figure.spread else { return };
    let ends = [low.max(0.0), high].map(|end| chart.place((x, end)));
    chart.add([line("range", ends[0], ends[1])]);
    chart.add(ends.map(|(x, y)| line("range", (x - 3.0, y), (x + 3.0, y))));
}

fn lines(title: &str, unit: Unit, axis: &str, log: bool, series: &[Series]) -> (Legend, Chart) {
    let names: Vec<String> = series.iter().map(|one| one.name.clone()).collect();
    let number = |figure: &Figure| figure.name.parse::<f64>().ok();
    let numbers = figures(series).filter_map(number).sorted_by(f64::total_cmp).dedup();
    let numbers = numbers.collect_vec();
    let ticks =
        |_: &Axis| numbers.iter().map(|at| Tick { at: *at, label: plain_number(*at) }).collect();
    let scale = if log { Scale::Log } else { Scale::Linear };
    let x = Axis::over(scale, numbers.iter().copied(), ACROSS).with(ticks, axis);
    let y = vertical(unit, &values(series));
    let mut chart = Chart::new(described(title, unit, series), x, y);
    for one in series {
        let style = Style::of(&names, &one.name);
        let points = |of: fn(&Figure) -> Option<f64>| -> Vec<(f64, f64)> {
            one.figures.iter().filter_map(|figure| Some((number(figure)?, of(figure)?))).collect()
        };
        chart.curve(style, "curve", &points(|figure| figure.here), &one.name);
        for figure in &one.figures {
            let Some(place) = number(figure).zip(figure.here) else { continue };
            whisker(&mut chart, place.0, figure);
            let marker = style.marker(chart.place(place));
            chart.add([marker.tip(&tip(unit, &one.name, figure))]);
        }
        let there = points(|figure| figure.there);
        chart.curve(style, "curve thin theirs", &there, &format!("{}: the document", one.name));
        for (x, y) in there.into_iter().map(|point| chart.place(point)).collect_vec() {
            chart.add([line("there", (x - 4.0, y), (x + 4.0, y))]);
        }
    }
    (legend(&names, series, |style| style.sample(true), document_line()), chart)
}

fn plain_number(at: f64) -> String {
    if at >= 1024.0 && at % 1024.0 == 0.0 { format!("{}k", at / 1024.0) } else { at.to_string() }
}

fn distribution(title: &str, share: Share, curves: &[Curve]) -> Option<(Legend, Chart)> {
    let points = || curves.iter().flat_map(|(_, points)| points.iter().copied());
    points().next()?;
    let names: Vec<String> = curves.iter().map(|(name, _)| name.clone()).collect();
    let x = Axis::over(Scale::Log, points().map(|(ns, _)| ns), ACROSS);
    let rarest = points().map(|(_, share)| share).filter(|share| *share > 0.0).fold(0.1, f64::min);
    let all = curves.iter().map(|(name, points)| Distribution {
        style: Style::of(&names, name),
        points,
        tip: name.clone(),
        is_coarse: false,
    });
    let plot = distributions(title.to_owned(), share, x, rarest, None, &all.collect_vec());
    Some((legend(&names, &[], |style| style.sample(false), Mark::default()), plot))
}
