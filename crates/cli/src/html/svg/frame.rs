//! What all plots have: size, grid, tick labels, titles, and how a result is drawn.

use super::axes::{Axis, Tick};
use crate::html::markup::{Attr, Markup};
use crate::html::model::Style;
use crate::report::look::COLOURS;

/// The drawing's size in its own units. Text is 12 of them high (14 on a phone, see the style
/// sheet).
pub(crate) const WIDTH: f64 = 440.0;
/// Its height.
pub(crate) const HEIGHT: f64 = 300.0;
/// The plot's left and right end.
pub(crate) const ACROSS: (f64, f64) = (70.0, WIDTH - 14.0);
/// Its lower and upper end.
pub(crate) const UP: (f64, f64) = (HEIGHT - 46.0, 30.0);
/// A legend's sample: width and height.
pub(crate) const SWATCH: (f64, f64) = (34.0, 12.0);

/// Dashes by style: as different as the colours, for eyes and printers that do not tell those
/// apart.
const DASHES: [&str; 5] = ["", "7 3", "2 2.5", "10 3 2 3", "4 2 1 2 1 2"];

/// The class that gives a style its colour.
pub(crate) fn colour(style: Style) -> String {
    format!("c{}", style.way % COLOURS)
}

/// The dashes of a style. (Five kinds and eight colours make forty combinations.)
pub(crate) fn dashes(style: Style) -> &'static str {
    DASHES[style.way % DASHES.len()]
}

/// A number as a coordinate: a tenth of a unit is less than a pixel.
pub(crate) fn at(place: f64) -> String {
    let text = format!("{place:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// An SVG with grid, ticks and titles; `inside` draws the results.
pub(crate) fn plot(
    out: &mut Markup,
    label: &str,
    (x, x_ticks, x_title): (&Axis, &[Tick], &str),
    (y, y_ticks, y_title): (&Axis, &[Tick], &str),
    inside: impl FnOnce(&mut Markup),
) {
    let view = format!("0 0 {WIDTH} {HEIGHT}");
    let attrs: [Attr<'_>; 4] =
        [("class", &"plot"), ("viewBox", &view), ("role", &"img"), ("aria-label", &label)];
    out.with("svg", &attrs, |out| {
        out.with("g", &[("class", &"grid")], |out| {
            for tick in x_ticks {
                let class = if tick.label.is_empty() { "minor" } else { "major" };
                line(out, class, (x.place(tick.at), UP.0), (x.place(tick.at), UP.1));
            }
            for tick in y_ticks {
                let class = if tick.label.is_empty() { "minor" } else { "major" };
                line(out, class, (ACROSS.0, y.place(tick.at)), (ACROSS.1, y.place(tick.at)));
            }
            line(out, "axis", (ACROSS.0, UP.0), (ACROSS.1, UP.0));
        });
        // Labels that would touch each other or leave the drawing are left out.
        let mut free_from = 0.0;
        for tick in x_ticks.iter().filter(|tick| !tick.label.is_empty()) {
            let half = text_width(&tick.label) / 2.0;
            let place = x.place(tick.at);
            if place - half >= free_from && place + half <= WIDTH {
                text(out, "tick", "middle", (place, UP.0 + 17.0), &tick.label);
                free_from = place + half + 6.0;
            }
        }
        let mut free_below = HEIGHT;
        for tick in y_ticks.iter().filter(|tick| !tick.label.is_empty()) {
            let place = y.place(tick.at);
            if place <= free_below {
                text(out, "tick", "end", (ACROSS.0 - 6.0, place + 4.0), &tick.label);
                free_below = place - 15.0;
            }
        }
        text(out, "title", "start", (2.0, 13.0), y_title);
        text(out, "title", "end", (ACROSS.1, HEIGHT - 8.0), x_title);
        inside(out);
    });
    out.newline();
}

/// How wide a text is at most, in the larger of its two sizes.
pub(crate) fn text_width(text: &str) -> f64 {
    // Of DejaVu Sans, which is wide, and what a browser falls back to on many systems.
    let width = |c| match c {
        ' ' | '.' => 4.6,
        'm' | 'M' | 'w' | 'W' | '%' => 13.7,
        '=' => 11.8,
        _ => 8.9,
    };
    text.chars().map(width).sum()
}

/// Text at a place.
pub(crate) fn text(out: &mut Markup, class: &str, anchor: &str, (x, y): (f64, f64), text: &str) {
    out.element(
        "text",
        &[("class", &class), ("text-anchor", &anchor), ("x", &at(x)), ("y", &at(y))],
        text,
    );
}

/// A straight line.
pub(crate) fn line(out: &mut Markup, class: &str, from: (f64, f64), to: (f64, f64)) {
    let (x1, y1, x2, y2) = (at(from.0), at(from.1), at(to.0), at(to.1));
    out.empty("line", &[("class", &class), ("x1", &x1), ("y1", &y1), ("x2", &x2), ("y2", &y2)]);
}

/// A line through places, in a style, with a tooltip.
pub(crate) fn polyline(
    out: &mut Markup,
    class: &str,
    style: Style,
    places: &[(f64, f64)],
    tooltip: &str,
) {
    let points: Vec<String> =
        places.iter().map(|(x, y)| format!("{},{}", at(*x), at(*y))).collect();
    let later = if style.source > 0 { " later" } else { "" };
    let (class, points) = (format!("{class} {}{later}", colour(style)), points.join(" "));
    let attrs: [Attr<'_>; 3] =
        [("class", &class), ("points", &points), ("stroke-dasharray", &dashes(style))];
    let attrs = if dashes(style).is_empty() { &attrs[..2] } else { &attrs[..] };
    out.with("polyline", attrs, |out| out.element("title", &[], tooltip));
}

/// A style's marker around a place: circle, square, triangle, diamond, cross; hollow for later
/// files.
pub(crate) fn marker(out: &mut Markup, style: Style, (x, y): (f64, f64)) {
    let hollow = style.source > 0 || style.way % 5 == 4;
    let class = format!("marker {}{}", colour(style), if hollow { " hollow" } else { "" });
    out.empty("path", &[("class", &class), ("d", &shape(style.way, (x, y), 1.0))]);
}

/// The outline of a marker, `size` times as large as usual.
fn shape(kind: usize, (x, y): (f64, f64), size: f64) -> String {
    let (r, half, side) = (5.0 * size, 4.4 * size, 8.8 * size);
    match kind % 5 {
        0 => format!(
            "M{} {}a{r} {r} 0 1 0 {d} 0a{r} {r} 0 1 0 -{d} 0z",
            at(x - r),
            at(y),
            d = 2.0 * r
        ),
        1 => format!("M{} {}h{side}v{side}h-{side}z", at(x - half), at(y - half)),
        2 => format!(
            "M{} {}l{s} {t}h-{w}z",
            at(x),
            at(y - 5.8 * size),
            s = 5.6 * size,
            t = 10.0 * size,
            w = 11.2 * size
        ),
        3 => {
            format!("M{} {}l{s} {s}l-{s} {s}l-{s} -{s}z", at(x), at(y - 6.0 * size), s = 6.0 * size)
        }
        _ => format!("M{} {}l{d} {d}m0 -{d}l-{d} {d}", at(x - r), at(y - r), d = 2.0 * r),
    }
}

/// Marks along the curve of a result of the second or a later file, so that it differs from the
/// first file's.
pub(crate) fn marks(out: &mut Markup, style: Style, places: &[(f64, f64)]) {
    const EVERY: f64 = 60.0;
    let Some(kind) = style.source.checked_sub(1) else { return };
    // Curves that lie on each other should not have their marks at the same places.
    let mut since = EVERY * (0.3 + 0.17 * style.way as f64).fract();
    for pair in places.windows(2) {
        let (dx, dy) = (pair[1].0 - pair[0].0, pair[1].1 - pair[0].1);
        let length = dx.hypot(dy);
        let mut along = EVERY - since;
        while along <= length && length > 0.0 {
            let place = (pair[0].0 + dx * along / length, pair[0].1 + dy * along / length);
            mark(out, style, kind, place);
            along += EVERY;
        }
        since = length - (along - EVERY);
    }
}

fn mark(out: &mut Markup, style: Style, kind: usize, place: (f64, f64)) {
    let class = format!("mark-on-curve {}", colour(style));
    out.empty("path", &[("class", &class), ("d", &shape(kind, place, 0.625))]);
}

/// A dot on a curve: something that is known.
pub(crate) fn dot(out: &mut Markup, style: Style, (x, y): (f64, f64)) {
    let class = format!("dot {}", colour(style));
    out.empty("circle", &[("class", &class), ("cx", &at(x)), ("cy", &at(y)), ("r", &"2.6")]);
}

/// A legend's sample of a style.
pub(crate) fn swatch(out: &mut Markup, style: Style, with_marker: bool) {
    let (view, middle) = (format!("0 0 {} {}", SWATCH.0, SWATCH.1), SWATCH.1 / 2.0);
    let attrs: [Attr<'_>; 5] = [
        ("class", &"swatch"),
        ("viewBox", &view),
        ("width", &SWATCH.0),
        ("height", &SWATCH.1),
        ("aria-hidden", &"true"),
    ];
    out.with("svg", &attrs, |out| {
        if with_marker {
            marker(out, style, (SWATCH.0 / 2.0, middle));
        } else {
            let class =
                format!("curve {}{}", colour(style), if style.source > 0 { " later" } else { "" });
            let points = format!("1,{middle} {},{middle}", SWATCH.0 - 1.0);
            let attrs: [Attr<'_>; 3] =
                [("class", &class), ("points", &points), ("stroke-dasharray", &dashes(style))];
            out.empty("polyline", if dashes(style).is_empty() { &attrs[..2] } else { &attrs[..] });
            if let Some(kind) = style.source.checked_sub(1) {
                mark(out, style, kind, (SWATCH.0 / 2.0, middle));
            }
        }
    });
}

/// Points that differ by less than a pixel from the one before are left out; first and last stay.
pub(crate) fn thinned(places: &[(f64, f64)]) -> Vec<(f64, f64)> {
    const PIXEL: f64 = 0.7;
    let mut kept: Vec<(f64, f64)> = Vec::new();
    for (at, place) in places.iter().enumerate() {
        let last = at + 1 == places.len();
        let far = |kept: &(f64, f64)| {
            (place.0 - kept.0).abs() >= PIXEL || (place.1 - kept.1).abs() >= PIXEL
        };
        if last || kept.last().is_none_or(far) {
            kept.push(*place);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_differ() {
        let style = |way| Style { way, source: 0 };
        let look = |way| (colour(style(way)), dashes(style(way)));
        let all: std::collections::BTreeSet<_> = (0..40).map(look).collect();
        assert_eq!(all.len(), 40);
        assert_eq!(colour(style(1000)), "c0");
    }

    #[test]
    fn later_files_have_marks_along_their_curves() {
        let places = [(0.0, 0.0), (100.0, 0.0), (100.0, 250.0), (100.0, 250.0)];
        let count = |style| {
            let mut out = Markup::default();
            marks(&mut out, style, &places);
            out.as_str().matches("<path").count()
        };
        assert_eq!(count(Style { way: 1, source: 0 }), 0);
        assert!((5..=6).contains(&count(Style { way: 1, source: 1 })));
    }

    #[test]
    fn curves_are_thinned_but_keep_their_ends() {
        let dense: Vec<(f64, f64)> = (0..10_000).map(|at| (f64::from(at) / 100.0, 1.0)).collect();
        let thin = thinned(&dense);
        assert!(thin.len() < 160, "{}", thin.len());
        assert_eq!((thin.first(), thin.last()), (dense.first(), dense.last()));
        assert!(thinned(&[]).is_empty());
    }
}
