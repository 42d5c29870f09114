//! Elements of a drawing.

use std::fmt::Display;

use askama::Template;
use itertools::Itertools as _;

/// An element of a drawing. Text and values are escaped where it is written.
#[derive(Debug, Clone, Default, PartialEq, Template)]
#[template(path = "element.svg")]
pub(crate) struct Element {
    pub(super) tag: &'static str,
    pub(super) attrs: Vec<(&'static str, String)>,
    pub(super) words: String,
    pub(super) inside: Vec<Element>,
}

impl Element {
    /// Creates an empty element.
    pub(crate) fn new(tag: &'static str) -> Self {
        Self { tag, ..Self::default() }
    }

    /// Adds an attribute, unless the value is empty.
    pub(crate) fn set(mut self, name: &'static str, value: impl Display) -> Self {
        let value = value.to_string();
        if !value.is_empty() {
            self.attrs.push((name, value));
        }
        self
    }

    /// Adds coordinates.
    pub(crate) fn places<const N: usize>(self, places: [(&'static str, f64); N]) -> Self {
        places.into_iter().fold(self, |element, (name, place)| element.set(name, at(place)))
    }

    /// Sets the text.
    pub(crate) fn words(mut self, words: impl Into<String>) -> Self {
        self.words = words.into();
        self
    }

    /// Adds elements inside this one.
    pub(crate) fn with(mut self, inside: impl IntoIterator<Item = Element>) -> Self {
        self.inside.extend(inside);
        self
    }

    /// Adds a tooltip.
    pub(crate) fn tip(self, tip: &str) -> Self {
        self.with((!tip.is_empty()).then(|| Self::new("title").words(tip)))
    }

    fn is_empty(&self) -> bool {
        self.words.is_empty() && self.inside.is_empty()
    }
}

/// Formats a coordinate: a tenth of a unit is less than a pixel.
pub(crate) fn at(place: f64) -> String {
    let text = format!("{place:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Returns text at a position.
pub(crate) fn text(class: &str, anchor: &str, (x, y): (f64, f64), text: &str) -> Element {
    let element = Element::new("text").set("class", class).set("text-anchor", anchor);
    element.places([("x", x), ("y", y)]).words(text)
}

/// Returns a straight line.
pub(crate) fn line(class: &str, from: (f64, f64), to: (f64, f64)) -> Element {
    let ends = [("x1", from.0), ("y1", from.1), ("x2", to.0), ("y2", to.1)];
    Element::new("line").set("class", class).places(ends)
}

/// Returns a line through positions, with a tooltip: without those that differ by less than a pixel
/// from the one before. The first and the last stay.
pub(crate) fn curve(class: &str, dashes: &str, places: &[(f64, f64)], tip: &str) -> Element {
    let mut points = thinned(places).into_iter().map(|(x, y)| format!("{},{}", at(x), at(y)));
    let element = Element::new("polyline").set("class", class).set("points", points.join(" "));
    element.set("stroke-dasharray", dashes).tip(tip)
}

fn thinned(places: &[(f64, f64)]) -> Vec<(f64, f64)> {
    const PIXEL: f64 = 0.7;
    let mut kept: Vec<(f64, f64)> = Vec::new();
    for (nth, place) in places.iter().enumerate() {
        let last = nth + 1 == places.len();
        let far = |kept: &(f64, f64)| {
            (place.0 - kept.0).abs() >= PIXEL || (place.1 - kept.1).abs() >= PIXEL
        };
        if last || kept.last().is_none_or(far) {
            kept.push(*place);
        }
    }
    kept
}

/// Returns the view box of a drawing in its own units.
pub(super) fn view(width: f64, height: f64) -> String {
    format!("0 0 {width} {height}")
}

/// Returns the maximum width of a text, in the larger of a plot's two sizes.
pub(crate) fn text_width(text: &str) -> f64 {
    // Widths of DejaVu Sans, which is wide, and the fallback of browsers on many systems.
    let width = |c| match c {
        ' ' | '.' => 4.6,
        'm' | 'M' | 'w' | 'W' | '%' => 13.7,
        '=' => 11.8,
        _ => 8.9,
    };
    text.chars().map(width).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_are_thinned_but_keep_their_ends() {
        let dense: Vec<(f64, f64)> = (0..10_000).map(|at| (f64::from(at) / 100.0, 1.0)).collect();
        let thin = thinned(&dense);
        assert!(thin.len() < 160, "{}", thin.len());
        assert_eq!((thin.first(), thin.last()), (dense.first(), dense.last()));
        assert!(thinned(&[]).is_empty());
    }
}
