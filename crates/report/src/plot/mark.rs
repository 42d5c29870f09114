//! Marks of a drawing: paths and texts.

use askama::Template;
use itertools::Itertools as _;

/// A path, or a text. What it says is escaped where it is written.
#[derive(Debug, Clone, Default, PartialEq, Template)]
#[template(path = "mark.svg")]
pub(crate) struct Mark {
    class: String,
    path: String,
    dashes: &'static str,
    tip: String,
    /// The text, its anchor and its position, if this is a text instead of a path.
    text: Option<(String, &'static str, (f64, f64))>,
}

impl Mark {
    /// Creates a path.
    pub(crate) fn new(class: impl Into<String>, path: impl Into<String>) -> Self {
        Self { class: class.into(), path: path.into(), ..Self::default() }
    }

    /// Adds a tooltip to a path.
    pub(crate) fn tip(self, tip: &str) -> Self {
        Self { tip: tip.to_owned(), ..self }
    }
}

/// Formats a coordinate with one decimal: a tenth of a unit is less than a pixel.
pub(super) fn at(place: f64) -> String {
    let text = format!("{place:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Returns text at a position.
pub(crate) fn text(class: &str, anchor: &'static str, place: (f64, f64), text: &str) -> Mark {
    Mark { text: Some((text.to_owned(), anchor, place)), ..Mark::new(class, "") }
}

/// Returns a straight line.
pub(crate) fn line(class: &str, from: (f64, f64), to: (f64, f64)) -> Mark {
    Mark::new(class, through(&[from, to]))
}

/// Returns a rectangle that can be seen.
pub(crate) fn block(class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) -> Mark {
    let (width, height) = (at(width.max(0.5)), at(height.max(0.5)));
    Mark::new(class, format!("M{},{}h{width}v{height}h-{width}z", at(x), at(y)))
}

/// Returns a line through `places`. It leaves out positions that differ by less than a pixel from
/// the one before, except the first and the last.
pub(super) fn curve(class: &str, dashes: &'static str, places: &[(f64, f64)]) -> Mark {
    Mark { dashes, ..Mark::new(class, through(&thinned(places))) }
}

fn through(places: &[(f64, f64)]) -> String {
    "M".to_owned() + &places.iter().map(|(x, y)| format!("{},{}", at(*x), at(*y))).join(" ")
}

fn thinned(places: &[(f64, f64)]) -> Vec<(f64, f64)> {
    const PIXEL: f64 = 0.7;
    let near = |one: &(f64, f64), other: &(f64, f64)| {
        (one.0 - other.0).abs() < PIXEL && (one.1 - other.1).abs() < PIXEL
    };
    let mut kept = places.iter().copied().dedup_by(near).collect_vec();
    let last = places.last().filter(|last| kept.last() != Some(last));
    kept.extend(last);
    kept
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
