//! The plots, in the documents' own forms.

use super::{Curve, Figure, Picture, Series, Unit};
use crate::figures;
use crate::plot::{
    ACROSS, Axis, Element, Scale, Side, Style, Tick, UP, curve, line, plot, text_width,
};
use crate::view::Legend;

/// Space between groups of bars, as a share of a group.
const GAP: f64 = 0.25;

/// Draws a picture, with its legend; `None` without figures.
pub(super) fn draw(title: &str, picture: &Picture) -> Option<(Legend, Element)> {
    match picture {
        Picture::Bars(unit, series) => bars(title, *unit, series),
        Picture::Stacks(unit, series) => stacks(title, *unit, series),
        Picture::Lines(unit, axis, log, series) => lines(title, *unit, axis, *log, series),
        Picture::Curves(beyond, curves) => distributions(title, *beyond, curves),
    }
}

fn names(series: &[Series]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for figure in series.iter().flat_map(|series| &series.figures) {
        if !names.contains(&figure.name) {
            names.push(figure.name.clone());
        }
    }
    names
}

/// Returns the ends of an axis over figures with their ranges and the document's numbers.
fn all_values(series: &[Series]) -> impl Iterator<Item = f64> + Clone {
    series.iter().flat_map(|series| &series.figures).flat_map(|figure| {
        [figure.here, figure.there, figure.whisker().map(|(_, high)| high)].into_iter().flatten()
    })
}

fn vertical(unit: Unit, series: &[Series]) -> (Axis, Vec<Tick>) {
    let axis = Axis::over(Scale::Linear, all_values(series), UP);
    let ticks = ticks(unit, &axis);
    (axis, ticks)
}

fn ticks(unit: Unit, axis: &Axis) -> Vec<Tick> {
    match unit {
        Unit::Time => axis.even_ticks(6.0, |at, _| figures::short_time(at)),
        Unit::Rate | Unit::Count => axis.even_ticks(6.0, |at, step| match at {
            at if at >= 1e6 => format!("{}M", short(at / 1e6)),
            at if at >= 1e3 => format!("{}k", short(at / 1e3)),
            at if step < 1.0 => format!("{at:.1}"),
            at => format!("{at:.0}"),
        }),
        Unit::Bytes => axis.even_ticks(6.0, |at, _| figures::bytes(at as u64)),
        Unit::Percent | Unit::Ratio => axis.linear_ticks(6.0),
    }
}

fn short(value: f64) -> String {
    ((value * 100.0).round() / 100.0).to_string()
}

fn rect(class: &str, (left, right): (f64, f64), (low, high): (f64, f64), tip: &str) -> Element {
    let element = Element::new("rect").set("class", class);
    let (width, height) = ((right - left).max(0.5), (low - high).max(0.5));
    element.places([("x", left), ("y", high), ("width", width), ("height", height)]).tip(tip)
}

fn tip(unit: Unit, series: &str, figure: &Figure) -> String {
    let mut tip = format!("{series}, {}", figure.name);
    if let Some(here) = figure.here {
        tip += &format!(": {}", unit.text(here));
    }
    if let Some(there) = figure.there {
        tip += &format!("; the document: {}", unit.text(there));
    }
    tip
}

/// Describes a plot in words.
fn described(title: &str, unit: Unit, series: &[Series]) -> String {
    let tips =
        series.iter().flat_map(|one| one.figures.iter().map(|figure| tip(unit, &one.name, figure)));
    format!("{title}. {}.", tips.collect::<Vec<_>>().join(". "))
}

/// Names of groups below the axis, in two rows if they are long.
fn group_names(series: &[Series], axis: &Axis) -> Vec<Element> {
    let room = (ACROSS.1 - ACROSS.0) / series.len().max(1) as f64;
    let crowded = series.iter().any(|one| text_width(&one.name) > room);
    let name = |(at, one): (usize, &Series)| {
        let down = if crowded && at % 2 == 1 { 29.0 } else { 16.0 };
        let place = (axis.place(at as f64 + 0.5), UP.0 + down);
        crate::plot::text("tick", "middle", place, &one.name)
    };
    series.iter().enumerate().map(name).collect()
}

/// The sample of a legend for the document's own numbers.
fn mark_of_document() -> Element {
    let svg = Element::new("svg").set("class", "swatch").set("viewBox", "0 0 34 12");
    svg.places([("width", 34.0), ("height", 12.0)]).set("aria-hidden", true).with([line(
        "there",
        (6.0, 6.0),
        (28.0, 6.0),
    )])
}

fn swatch(style: Style) -> Element {
    let svg = Element::new("svg").set("class", "swatch").set("viewBox", "0 0 34 12");
    let class = format!("block {}", style.colour());
    svg.places([("width", 34.0), ("height", 12.0)]).set("aria-hidden", true).with([rect(
        &class,
        (6.0, 28.0),
        (11.0, 1.0),
        "",
    )])
}

fn legend(names: &[String], series: &[Series], sample: impl Fn(Style) -> Element) -> Legend {
    let mut entries: Vec<(Element, String)> =
        names.iter().map(|name| (sample(Style::in_picture(names, name)), name.clone())).collect();
    if series.iter().flat_map(|one| &one.figures).any(|figure| figure.there.is_some()) {
        entries.push((mark_of_document(), "the document".to_owned()));
    }
    Legend { entries }
}

fn bars(title: &str, unit: Unit, series: &[Series]) -> Option<(Legend, Element)> {
    all_values(series).next()?;
    let names = names(series);
    let x = Axis::between(Scale::Linear, (0.0, series.len() as f64), ACROSS);
    let (y, y_ticks) = vertical(unit, series);
    let mut inside = Vec::new();
    for (at, one) in series.iter().enumerate() {
        let width = (1.0 - GAP) / one.figures.len().max(1) as f64;
        for (nth, figure) in one.figures.iter().enumerate() {
            let left = at as f64 + GAP / 2.0 + width * nth as f64;
            let (left, right) = (x.place(left), x.place(left + width * 0.9));
            let style = Style::in_picture(&names, &figure.name);
            let tip = tip(unit, &one.name, figure);
            if let Some(here) = figure.here {
                let class = format!("block {}", style.colour());
                inside.push(rect(&class, (left, right), (UP.0, y.place(here)), &tip));
            }
            let middle = (left + right) / 2.0;
            if let Some((low, high)) = figure.whisker() {
                let (low, high) = (y.place(low.max(0.0)), y.place(high));
                inside.push(line("range", (middle, low), (middle, high)));
                for end in [low, high] {
                    inside.push(line("range", (middle - 3.0, end), (middle + 3.0, end)));
                }
            }
            if let Some(there) = figure.there {
                let at = y.place(there);
                inside.push(line("there", (left - 2.0, at), (right + 2.0, at)).tip(&tip));
            }
        }
    }
    inside.extend(group_names(series, &x));
    let label = described(title, unit, series);
    let (x, y) = (Side(&x, &[], ""), Side(&y, &y_ticks, unit.title()));
    Some((legend(&names, series, swatch), plot(&label, x, y, inside)))
}

fn stacks(title: &str, unit: Unit, series: &[Series]) -> Option<(Legend, Element)> {
    all_values(series).next()?;
    let names = names(series);
    let totals = series.iter().flat_map(|one| {
        let sum = |of: fn(&Figure) -> Option<f64>| -> f64 {
            one.figures.iter().filter_map(of).map(|part| part.max(0.0)).sum()
        };
        [sum(|figure| figure.here), sum(|figure| figure.there)]
    });
    let x = Axis::between(Scale::Linear, (0.0, series.len() as f64), ACROSS);
    let y = Axis::over(Scale::Linear, totals, UP);
    let y_ticks = ticks(unit, &y);
    let mut inside = Vec::new();
    for (at, one) in series.iter().enumerate() {
        let both = one.figures.iter().any(|figure| figure.there.is_some());
        let here = (at as f64 + 0.15, at as f64 + if both { 0.5 } else { 0.85 });
        let mut draw = |(left, right): (f64, f64), class: &str, of: fn(&Figure) -> Option<f64>| {
            let mut below = 0.0;
            for figure in &one.figures {
                let Some(part) = of(figure).filter(|part| *part > 0.0) else { continue };
                let style = Style::in_picture(&names, &figure.name);
                let class = format!("{class} {}", style.colour());
                let ends = (y.place(below), y.place(below + part));
                let tip = tip(unit, &one.name, figure);
                inside.push(rect(&class, (x.place(left), x.place(right)), ends, &tip));
                below += part;
            }
        };
        draw(here, "block", |figure| figure.here);
        draw((at as f64 + 0.55, at as f64 + 0.85), "block theirs", |figure| figure.there);
    }
    inside.extend(group_names(series, &x));
    let mut legend = legend(&names, &[], swatch);
    if series.iter().flat_map(|one| &one.figures).any(|figure| figure.there.is_some()) {
        let svg = Element::new("svg").set("class", "swatch").set("viewBox", "0 0 34 12");
        let sample = svg.places([("width", 34.0), ("height", 12.0)]).with([rect(
            "block theirs c5",
            (6.0, 28.0),
            (11.0, 1.0),
            "",
        )]);
        legend.entries.push((sample, "the document".to_owned()));
    }
    let label = described(title, unit, series);
    let (x, y) = (Side(&x, &[], ""), Side(&y, &y_ticks, unit.title()));
    Some((legend, plot(&label, x, y, inside)))
}

fn lines(
    title: &str,
    unit: Unit,
    axis: &str,
    log: bool,
    series: &[Series],
) -> Option<(Legend, Element)> {
    all_values(series).next()?;
    let names: Vec<String> = series.iter().map(|one| one.name.clone()).collect();
    let number = |figure: &Figure| figure.name.parse::<f64>().ok();
    let numbers: Vec<f64> =
        series.iter().flat_map(|one| one.figures.iter().filter_map(number)).collect();
    let scale = if log { Scale::Log } else { Scale::Linear };
    let x = Axis::over(scale, numbers.iter().copied(), ACROSS);
    let (y, y_ticks) = vertical(unit, series);
    let mut inside = Vec::new();
    for one in series {
        let style = Style::in_picture(&names, &one.name);
        let places = |of: fn(&Figure) -> Option<f64>| -> Vec<(f64, f64)> {
            let place = |figure: &Figure| Some((x.place(number(figure)?), y.place(of(figure)?)));
            one.figures.iter().filter_map(place).collect()
        };
        let here = places(|figure| figure.here);
        inside.push(curve(&style.curve("curve"), style.dashes(), &here, &one.name));
        for figure in &one.figures {
            let Some((at, here)) = number(figure).zip(figure.here) else { continue };
            let at = x.place(at);
            if let Some((low, high)) = figure.whisker() {
                inside.push(line("range", (at, y.place(low.max(0.0))), (at, y.place(high))));
            }
            let marker = style.marker((at, y.place(here)));
            inside.push(marker.tip(&tip(unit, &one.name, figure)));
        }
        let there = places(|figure| figure.there);
        if !there.is_empty() {
            let class = format!("curve thin {}", style.colour());
            inside.push(curve(&class, "1 3", &there, &format!("{}: the document", one.name)));
            for (at, place) in &there {
                inside.push(line("there", (at - 4.0, *place), (at + 4.0, *place)));
            }
        }
    }
    let mut at: Vec<f64> = numbers;
    at.sort_by(f64::total_cmp);
    at.dedup();
    let x_ticks: Vec<Tick> =
        at.into_iter().map(|at| Tick { at, label: plain_number(at) }).collect();
    let label = described(title, unit, series);
    let sides = (Side(&x, &x_ticks, axis), Side(&y, &y_ticks, unit.title()));
    let legend = legend(&names, series, |style| style.swatch(true));
    Some((legend, plot(&label, sides.0, sides.1, inside)))
}

fn plain_number(at: f64) -> String {
    match at {
        at if at >= 1024.0 && at % 1024.0 == 0.0 => format!("{}k", at / 1024.0),
        at => at.to_string(),
    }
}

fn distributions(title: &str, beyond: bool, curves: &[Curve]) -> Option<(Legend, Element)> {
    let points = || curves.iter().flat_map(|(_, points)| points.iter().copied());
    points().next()?;
    let names: Vec<String> = curves.iter().map(|(name, _)| name.clone()).collect();
    let x = Axis::over(Scale::Log, points().map(|(ns, _)| ns), ACROSS);
    let x_ticks = x.latency_ticks();
    let rarest = points().map(|(_, share)| share).filter(|share| *share > 0.0).fold(0.1, f64::min);
    let (y, y_ticks, y_title) = if beyond {
        let y = Axis::between(Scale::Log, (rarest, 1.0), UP);
        let ticks = y.rarity_ticks();
        (y, ticks, "share of I/Os that take longer")
    } else {
        let y = Axis::between(Scale::Linear, (0.0, 1.0), UP);
        let ticks = y.even_ticks(5.0, |at, _| format!("{:.0} %", at * 100.0));
        (y, ticks, "share of I/Os that take no longer")
    };
    let mut inside = Vec::new();
    for (name, points) in curves {
        let style = Style::in_picture(&names, name);
        let share = |share: f64| if beyond { share.max(rarest) } else { 1.0 - share };
        let places: Vec<(f64, f64)> =
            points.iter().map(|(ns, at)| (x.place(*ns), y.place(share(*at)))).collect();
        inside.push(curve(&style.curve("curve"), style.dashes(), &places, name));
    }
    let sides = (Side(&x, &x_ticks, "latency, logarithmic"), Side(&y, &y_ticks, y_title));
    let legend = legend(&names, &[], |style| style.swatch(false));
    Some((legend, plot(title, sides.0, sides.1, inside)))
}
