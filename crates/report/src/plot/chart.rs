//! Plots on pages: two axes, and what lies between them.

use super::axis::{Axis, Scale, Tick};
use super::element::{Element, line, text, text_width, view};
use super::look::Style;

/// A plot's size on a page in its own units. Text is 12 units high (14 on a phone, see the style
/// sheet).
pub(crate) const WIDTH: f64 = 440.0;
pub(crate) const HEIGHT: f64 = 300.0;
/// The plot's left and right end.
pub(crate) const ACROSS: (f64, f64) = (70.0, WIDTH - 14.0);
/// The plot's lower and upper end.
pub(crate) const UP: (f64, f64) = (HEIGHT - 46.0, 30.0);

/// A plot that is being drawn.
#[derive(Debug)]
pub(crate) struct Chart<'a> {
    x: (Axis, Vec<Tick>, &'a str),
    y: (Axis, Vec<Tick>, &'a str),
    inside: Vec<Element>,
}

impl<'a> Chart<'a> {
    /// Creates a plot; each axis has its ticks and its title.
    pub(crate) fn new(x: (Axis, Vec<Tick>, &'a str), y: (Axis, Vec<Tick>, &'a str)) -> Self {
        Self { x, y, inside: Vec::new() }
    }

    /// Returns the position of values.
    pub(crate) fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (self.x.0.place(x), self.y.0.place(y))
    }

    /// Adds elements.
    pub(crate) fn add(&mut self, elements: impl IntoIterator<Item = Element>) {
        self.inside.extend(elements);
    }

    /// Adds a line between two points.
    pub(crate) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64), tip: &str) {
        let (from, to) = (self.place(from), self.place(to));
        self.add([line(class, from, to).tip(tip)]);
    }

    /// Adds a dotted line across the plot.
    pub(crate) fn reference(&mut self, y: f64) {
        let at = self.y.0.place(y);
        self.add([line("reference", (ACROSS.0, at), (ACROSS.1, at))]);
    }

    /// Adds a curve through points. A single point is drawn as a dash.
    pub(crate) fn curve(&mut self, style: Style, class: &str, points: &[(f64, f64)], tip: &str) {
        let mut places: Vec<_> = points.iter().map(|point| self.place(*point)).collect();
        if let [(x, y)] = places[..] {
            places = vec![(x - 1.5, y), (x + 1.5, y)];
        }
        if !places.is_empty() {
            self.add([style.curve(class, &places, tip)]);
        }
    }

    /// Adds a filled rectangle between two corners.
    pub(crate) fn block(&mut self, class: &str, from: (f64, f64), to: (f64, f64), tip: &str) {
        let ((left, low), (right, high)) = (self.place(from), self.place(to));
        self.add([block(class, (left, high), (right - left, low - high)).tip(tip)]);
    }

    /// Returns lines at the ticks of both axes, and a stronger one along the lower end.
    fn grid(&self) -> Vec<Element> {
        let class = |tick: &Tick| if tick.label.is_empty() { "minor" } else { "major" };
        let upright = self.x.1.iter().map(|tick| {
            let at = self.x.0.place(tick.at);
            line(class(tick), (at, UP.0), (at, UP.1))
        });
        let level = self.y.1.iter().map(|tick| {
            let at = self.y.0.place(tick.at);
            line(class(tick), (ACROSS.0, at), (ACROSS.1, at))
        });
        let axis = line("axis", (ACROSS.0, UP.0), (ACROSS.1, UP.0));
        upright.chain(level).chain([axis]).collect()
    }

    /// Returns the ticks' labels, without those that would touch each other or leave the drawing.
    fn labels(&self) -> Vec<Element> {
        let mut labels = Vec::new();
        let mut free_from = 0.0;
        for tick in self.x.1.iter().filter(|tick| !tick.label.is_empty()) {
            let (half, place) = (text_width(&tick.label) / 2.0, self.x.0.place(tick.at));
            if place - half >= free_from && place + half <= WIDTH {
                labels.push(text("tick", "middle", (place, UP.0 + 17.0), &tick.label));
                free_from = place + half + 6.0;
            }
        }
        let mut free_below = f64::MAX;
        for tick in self.y.1.iter().filter(|tick| !tick.label.is_empty()) {
            let place = self.y.0.place(tick.at);
            if place <= free_below {
                labels.push(text("tick", "end", (ACROSS.0 - 6.0, place + 4.0), &tick.label));
                free_below = place - 15.0;
            }
        }
        labels
    }

    /// Returns the plot; `label` describes it in words.
    pub(crate) fn draw(self, label: &str) -> Element {
        let svg = Element::new("svg").set("class", "plot").set("viewBox", view(WIDTH, HEIGHT));
        svg.set("role", "img")
            .set("aria-label", label)
            .with([Element::new("g").set("class", "grid").with(self.grid())])
            .with(self.labels())
            .with([text("title", "start", (2.0, 13.0), self.y.2)])
            .with([text("title", "end", (ACROSS.1, HEIGHT - 8.0), self.x.2)])
            .with(self.inside)
    }
}

/// Returns a rectangle that can be seen.
pub(crate) fn block(class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) -> Element {
    let size = [("x", x), ("y", y), ("width", width.max(0.5)), ("height", height.max(0.5))];
    Element::new("rect").set("class", class).places(size)
}

/// How the share of I/Os is shown that take no longer than a time, or longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    /// No longer, from 0 to 1.
    Even,
    /// No longer: 50 %, 90 %, 99 %, and on by nines.
    Nines,
    /// Longer, by its logarithm: the tail.
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
    label: &str,
    share: Share,
    x: Axis,
    rarest: f64,
    rare: Option<(f64, &str)>,
    all: &[Distribution<'_>],
) -> Element {
    let y = match share {
        Share::Even => Axis::between(Scale::Linear, (0.0, 1.0), UP),
        // The last nine that a result with so many I/Os can show.
        Share::Nines => Axis::between(Scale::Nines, (0.01, (1.0 - rarest).min(0.999_999_9)), UP),
        Share::Tail => Axis::between(Scale::Log, (rarest * 0.8, 1.0), UP),
    };
    let (ticks, title) = match share {
        Share::Even => {
            let ticks = y.even_ticks(5.0, |at, _| format!("{:.0}", at * 100.0));
            (ticks, "share of I/Os that took no longer, %")
        }
        Share::Nines => (y.nines_ticks(), "share of I/Os that took no longer, %"),
        Share::Tail => (y.rarity_ticks(), "share of I/Os that took at least so long"),
    };
    let x_ticks = x.latency_ticks();
    let mut chart =
        Chart::new((x, x_ticks, "latency, logarithmic; left is faster"), (y, ticks, title));
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
    chart.draw(label)
}
