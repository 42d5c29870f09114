//! Parts that all plots share: size, grid, tick labels and titles.

use super::axis::{Axis, Tick};
use super::element::{Element, line, text};

/// An axis with its ticks and its title.
#[derive(Debug, Clone, Copy)]
pub struct Side<'a>(pub &'a Axis, pub &'a [Tick], pub &'a str);

/// The area that values lie in.
#[derive(Debug, Clone, Copy)]
pub struct Frame {
    /// Left and right end.
    pub across: (f64, f64),
    /// Lower and upper end.
    pub up: (f64, f64),
}

impl Frame {
    /// Returns lines at the ticks of both axes, and a stronger one along the lower end.
    pub fn grid(&self, x: Side<'_>, y: Option<Side<'_>>) -> Vec<Element> {
        let Self { across, up } = *self;
        let class = |tick: &Tick| if tick.label.is_empty() { "minor" } else { "major" };
        let upright = x.1.iter().map(|tick| {
            let at = x.0.place(tick.at);
            line(class(tick), (at, up.0), (at, up.1))
        });
        let level = y.iter().flat_map(|y| {
            y.1.iter().map(|tick| {
                let at = y.0.place(tick.at);
                line(class(tick), (across.0, at), (across.1, at))
            })
        });
        let axis = line("axis", (across.0, up.0), (across.1, up.0));
        upright.chain(level).chain([axis]).collect()
    }

    /// Returns the ticks' labels, without those that would touch each other or leave the drawing.
    pub fn labels(&self, x: Side<'_>, y: Option<Side<'_>>, width: f64) -> Vec<Element> {
        let Self { across, up } = *self;
        let mut labels = Vec::new();
        let mut free_from = 0.0;
        for tick in x.1.iter().filter(|tick| !tick.label.is_empty()) {
            let (half, place) = (text_width(&tick.label) / 2.0, x.0.place(tick.at));
            if place - half >= free_from && place + half <= width {
                labels.push(text("tick", "middle", (place, up.0 + 17.0), &tick.label));
                free_from = place + half + 6.0;
            }
        }
        let mut free_below = f64::MAX;
        let ticks = y.iter().flat_map(|y| y.1.iter().map(|tick| (y.0.place(tick.at), &tick.label)));
        for (place, label) in ticks.filter(|(_, label)| !label.is_empty()) {
            if place <= free_below {
                labels.push(text("tick", "end", (across.0 - 6.0, place + 4.0), label));
                free_below = place - 15.0;
            }
        }
        labels
    }
}

/// Returns the view box of a drawing in its own units.
pub(super) fn view(width: f64, height: f64) -> String {
    format!("0 0 {width} {height}")
}

/// Returns the maximum width of a text, in the larger of a plot's two sizes.
pub fn text_width(text: &str) -> f64 {
    // Widths of DejaVu Sans, which is wide, and the fallback of browsers on many systems.
    let width = |c| match c {
        ' ' | '.' => 4.6,
        'm' | 'M' | 'w' | 'W' | '%' => 13.7,
        '=' => 11.8,
        _ => 8.9,
    };
    text.chars().map(width).sum()
}
