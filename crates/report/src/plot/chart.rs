//! Plots on pages: two axes, and what lies between them.

use askama::Template;

use super::axis::{Axis, Scale};
use super::look::Style;
use super::mark::{Mark, block, line, text};

/// A plot's size on a page in its own units. Text is 12 units high (14 on a phone, see the style
/// sheet).
pub(crate) const WIDTH: f64 = 440.0;
pub(crate) const HEIGHT: f64 = 300.0;
/// The plot's left and right end.
pub(crate) const ACROSS: (f64, f64) = (70.0, WIDTH - 14.0);
/// The plot's lower and upper end.
pub(crate) const UP: (f64, f64) = (HEIGHT - 46.0, 30.0);

/// A plot.
#[derive(Debug, Template)]
#[template(path = "chart.svg")]
pub(crate) struct Chart {
    /// Describes it in words.
    label: String,
    x: Axis,
    y: Axis,
    marks: Vec<Mark>,
}

impl Chart {
    /// Creates a plot without marks; `label` describes it in words.
    pub(crate) fn new(label: String, x: Axis, y: Axis) -> Self {
        Self { label, x, y, marks: Vec::new() }
    }

    /// Returns the position of values.
    pub(crate) fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (self.x.place(x), self.y.place(y))
    }

    /// Adds marks.
    pub(crate) fn add(&mut self, marks: impl IntoIterator<Item = Mark>) {
        self.marks.extend(marks);
    }

    /// Adds a dotted line across the plot.
    pub(crate) fn reference(&mut self, y: f64) {
        let at = self.y.place(y);
        self.add([line("reference", (ACROSS.0, at), (ACROSS.1, at))]);
    }

    /// Adds a curve through points. A single point is drawn as a dash.
    pub(crate) fn curve(&mut self, style: Style, class: &str, points: &[(f64, f64)], tip: &str) {
        let mut places: Vec<_> = points.iter().map(|point| self.place(*point)).collect();
        if let [(x, y)] = places[..] {
            places = vec![(x - 1.5, y), (x + 1.5, y)];
        }
        if !places.is_empty() {
            self.add([style.curve(class, &places).tip(tip)]);
        }
    }

    /// Adds a filled rectangle between two corners.
    pub(crate) fn block(&mut self, class: &str, from: (f64, f64), to: (f64, f64), tip: &str) {
        let ((left, low), (right, high)) = (self.place(from), self.place(to));
        self.add([block(class, (left, high), (right - left, low - high)).tip(tip)]);
    }
}

/// The form in which a distribution shows the share of I/Os by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    /// The share of I/Os that take no longer, on a linear axis from 0 to 1.
    Even,
    /// The share of I/Os that take no longer, on an axis of nines: 50 %, 90 %, 99 %, 99.9 %, ….
    Nines,
    /// The share of I/Os that take longer, on a logarithmic axis: the tail.
    Tail,
}

/// A distribution.
#[derive(Debug)]
pub(crate) struct Distribution<'a> {
    pub style: Style,
    /// Latencies in ns, each with the share of I/Os that take longer.
    pub points: &'a [(f64, f64)],
    pub tip: String,
    /// Whether nothing is known between the points.
    pub is_coarse: bool,
}

/// Draws distributions over an axis of latencies, down to the rarest share; `rare` is marked.
pub(crate) fn distributions(
    label: String,
    share: Share,
    x: Axis,
    rarest: f64,
    rare: Option<(f64, &str)>,
    all: &[Distribution<'_>],
) -> Chart {
    const NO_LONGER: &str = "share of I/Os that took no longer, %";
    let between = |scale, low, high| Axis::between(scale, (low, high), UP);
    let percents = |axis: &Axis| axis.even_ticks(5.0, |at, _| format!("{:.0}", at * 100.0));
    let y = match share {
        Share::Even => between(Scale::Linear, 0.0, 1.0).with(percents, NO_LONGER),
        // The axis ends at the last nine that a result with this number of I/Os can show.
        Share::Nines => between(Scale::Nines, 0.01, (1.0 - rarest).min(0.999_999_9))
            .with(Axis::nines_ticks, NO_LONGER),
        Share::Tail => between(Scale::Log, rarest * 0.8, 1.0)
            .with(Axis::rarity_ticks, "share of I/Os that took at least so long"),
    };
    let x = x.with(Axis::latency_ticks, "latency, logarithmic; left is faster");
    let mut chart = Chart::new(label, x, y);
    if let Some((at, name)) = rare.filter(|(at, _)| share == Share::Tail && *at > rarest) {
        chart.reference(at);
        let place = (ACROSS.0 + 3.0, chart.place((0.0, at)).1 - 4.0);
        chart.add([text("note halo", "start", place, name)]);
    }
    for Distribution { style, points, tip, is_coarse } in all {
        let value = |(ns, longer): &(f64, f64)| match share {
            Share::Tail => (*ns, *longer),
            Share::Even | Share::Nines => (*ns, 1.0 - longer),
        };
        let mut points: Vec<_> = points.iter().map(value).collect();
        // Of points below the axis' end only the last counts: the others would be drawn along it.
        let below = points.iter().take_while(|point| chart.place(**point).1 >= UP.0).count();
        points.drain(..below.saturating_sub(1));
        chart.curve(*style, "curve", &points, tip);
        let dots = points.iter().filter(|_| *is_coarse).map(|point| chart.place(*point));
        let dots: Vec<_> = dots.map(|place| style.dot(place)).collect();
        chart.add(dots);
    }
    chart
}
