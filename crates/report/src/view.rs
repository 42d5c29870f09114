//! The parts of pages other than tables: figures and legends; and the frame of pages of other
//! crates.

use askama::Template;

use crate::plot::{Chart, Mark};

/// The kind of content that plots show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The share of I/Os that took no longer.
    Distribution,
    /// The share of I/Os that took at least so long.
    Tail,
    /// CPU against latency.
    Cpu,
    /// Latency over time.
    Time,
    /// Latency against CPU, over those of poll.
    Plane,
    /// A latency over both axes of a sweep, as colours.
    Map,
    /// A figure over one axis of a sweep.
    Over,
}

/// Plots side by side, with a sentence on how to read them.
#[derive(Debug, Template)]
#[template(path = "figure.html")]
pub(crate) struct Figure {
    pub kind: Kind,
    /// The heading of the last two kinds.
    pub title: String,
    /// Whether it spans the page. Its panels then have names.
    pub wide: bool,
    /// Whether nothing is known of some curves but a few points.
    pub is_coarse: bool,
    pub panels: Vec<Panel>,
}

/// A plot with its name and its legend.
#[derive(Debug)]
pub(crate) struct Panel {
    pub name: String,
    pub legend: Legend,
    pub plot: Chart,
}

/// Samples of the curves, with their names.
#[derive(Debug, Clone, Default, Template)]
#[template(path = "legend.html")]
pub(crate) struct Legend {
    pub entries: Vec<(Mark, String)>,
}

/// A page around HTML.
#[derive(Template)]
#[template(path = "framed.html")]
struct Framed<'a> {
    generator: &'a str,
    title: &'a str,
    class: &'a str,
    main: &'a str,
}

/// Returns a page as one file with `main` inside. `main` is HTML; the rest is escaped.
pub fn framed(generator: &str, title: &str, class: &str, main: &str) -> String {
    render(&Framed { generator, title, class, main })
}

/// Renders a template. Writing to a string does not fail, unless a template does so on purpose.
pub fn render(template: &impl Template) -> String {
    template.render().unwrap_or_else(|error| format!("cannot write the page: {error}\n"))
}
