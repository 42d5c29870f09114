//! Plots as a picture: a file of its own, with the pages' style sheet, for browsers.

use askama::Template;

use super::{Picture, drawing};
use crate::plot::{Chart, HEIGHT, Mark, WIDTH, text, text_width};
use crate::view;

/// Space around plots.
const GAP: f64 = 20.0;
/// The height of a line of text.
const LINE: f64 = 18.0;

/// The texts, samples and plots of a picture, each with its upper left corner.
#[derive(Default, Template)]
#[template(path = "picture.svg")]
struct Svg {
    width: f64,
    height: f64,
    texts: Vec<Mark>,
    samples: Vec<(f64, f64, Mark)>,
    plots: Vec<(f64, f64, Chart)>,
}

/// Returns the SVG of rows of plots, each plot with its title and its legend.
pub fn svg(title: &str, about: &str, rows: &[Vec<(String, Picture)>]) -> String {
    let texts = vec![
        text("label", "start", (GAP, GAP), title),
        text("note", "start", (GAP, GAP + LINE), about),
    ];
    let (width, height) = (GAP + text_width(about), GAP + 2.0 * LINE);
    let mut svg = Svg { width, height, texts, ..Svg::default() };
    for row in rows {
        let top = svg.height;
        let mut left = GAP;
        for (title, picture) in row {
            let Some((legend, plot)) = drawing::draw(title, picture) else { continue };
            svg.texts.push(text("label", "start", (left, top + LINE), title));
            let (mut x, mut y) = (left, top + 2.0 * LINE);
            for (sample, name) in legend.entries {
                let width = 50.0 + text_width(&name);
                if x > left && x + width > left + WIDTH {
                    (x, y) = (left, y + LINE);
                }
                svg.samples.push((x, y - 10.0, sample));
                svg.texts.push(text("", "start", (x + 38.0, y), &name));
                x += width;
            }
            svg.plots.push((left, y + LINE / 2.0, plot));
            left += WIDTH + GAP;
            svg.height = svg.height.max(y + LINE / 2.0 + HEIGHT + GAP);
        }
        svg.width = svg.width.max(left);
    }
    view::render(&svg)
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
        let svg = svg("One read", "here", &rows);
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
