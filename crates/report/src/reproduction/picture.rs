//! Plots as a picture: a file of its own, with the pages' style sheet, for browsers.

use askama::Template;

use super::{Picture, drawing};
use crate::plot::{Element, HEIGHT, WIDTH, text, text_width};
use crate::view;

/// Space around plots.
const GAP: f64 = 20.0;
/// The height of a line of text.
const LINE: f64 = 18.0;

#[derive(Template)]
#[template(path = "picture.svg")]
struct Svg {
    width: f64,
    height: f64,
    inside: Vec<Element>,
}

/// Returns the SVG of rows of plots, each plot with its title and its legend.
pub fn picture(title: &str, about: &str, rows: &[Vec<(String, Picture)>]) -> String {
    let mut inside = vec![text("label", "start", (GAP, GAP), title)];
    inside.push(text("note", "start", (GAP, GAP + LINE), about));
    let (mut right, mut below) = (GAP + text_width(about), GAP + 2.0 * LINE);
    for row in rows {
        let top = below;
        let mut left = GAP;
        for (title, picture) in row {
            let Some((legend, plot)) = drawing::draw(title, picture) else { continue };
            inside.push(text("label", "start", (left, top + LINE), title));
            let (mut x, mut y) = (left, top + 2.0 * LINE);
            for (sample, name) in legend.entries {
                let width = 50.0 + text_width(&name);
                if x > left && x + width > left + WIDTH {
                    (x, y) = (left, y + LINE);
                }
                inside.push(sample.places([("x", x), ("y", y - 10.0)]));
                inside.push(text("", "start", (x + 38.0, y), &name));
                x += width;
            }
            let place = [("x", left), ("y", y + LINE / 2.0), ("width", WIDTH), ("height", HEIGHT)];
            // Some browsers go by the style sheet, which has plots as wide as what they are in.
            let size = format!("width:{WIDTH}px;height:{HEIGHT}px");
            inside.push(plot.places(place).set("style", size));
            left += WIDTH + GAP;
            below = below.max(y + LINE / 2.0 + HEIGHT + GAP);
        }
        right = f64::max(right, left);
    }
    view::page(&Svg { width: right.ceil(), height: below.ceil(), inside })
}

#[cfg(test)]
mod tests {
    use super::super::{Figure, Form, Series};
    use super::*;

    /// Every open element is closed, names are escaped, no coordinate is NaN.
    #[test]
    fn a_picture_is_sound() {
        let figure =
            |name: &str, ns| Figure { name: name.to_owned(), here: Some(ns), ..Figure::default() };
        let figures = vec![figure("host & CPU", 1_000.0), figure("device", 4_000.0)];
        let series = vec![Series { name: "poll".to_owned(), figures }];
        let stack = Picture { form: Form::Stacks, series, ..Picture::default() };
        let rows = [vec![("mem:1M?a=1&b=<2>".to_owned(), stack)], Vec::new()];
        let svg = picture("One read", "here", &rows);
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
        assert!(svg.contains("host &amp; CPU") && !svg.contains("<2>"), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        assert!(svg.contains(">5.00 µs</text>"), "the sum of a stack");
        let (_, drawn) = svg.split_once("</style>").unwrap();
        let mut open = vec!["svg"];
        for tag in drawn.split('<').skip(1) {
            let (inside, _) = tag.split_once('>').expect("every tag ends");
            match inside.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name)),
                None if inside.ends_with('/') => {}
                None => open.push(inside.split_whitespace().next().unwrap()),
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }
}
