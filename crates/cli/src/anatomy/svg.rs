//! The report as one picture: stacked bars, and the time of a second program.

use meantime_report::figures::short_time;
use meantime_report::plot::{
    Axis, Element, Frame, Ink, Scale, Side, line, standalone, text, text_width,
};

use super::fast12::Fast12;
use super::tally::Typical;
use super::timeline::{PARTS, Part};
use super::{Anatomy, Bar, scale_end_ns};
use crate::figures;

/// The left end of bars and axes; labels are left of it.
const LEFT: f64 = 190.0;
const RIGHT: f64 = 930.0;
const WIDTH: f64 = 1000.0;
const MARGIN: f64 = 20.0;
const BAR_HEIGHT: f64 = 20.0;
const ROW: f64 = 28.0;

/// Classes with their colours on white and on black (the same as on the pages), and their text size
/// or line thickness.
const INKS: [(&str, [&str; 2], f64); 16] = [
    ("title", TEXT, 20.0),
    ("heading", TEXT, 15.0),
    ("device", TEXT, 13.0),
    ("name", TEXT, 12.0),
    ("note", FAINT, 11.0),
    ("tick", FAINT, 11.0),
    ("major", GRID, 1.0),
    ("minor", GRID, 1.0),
    ("axis", ["#8c959f", "#6d7781"], 1.0),
    ("whisker", TEXT, 1.0),
    ("busy", TEXT, 2.0),
    ("ground", ["#ffffff", "#14181d"], 0.0),
    ("behind", ["#ffffffcc", "#14181dcc"], 0.0),
    ("cost", COST, 0.0),
    ("rival", RIVAL, 0.0),
    ("sample", TEXT, 0.0),
];

const TEXT: [&str; 2] = ["#1b1f24", "#e6eaee"];
const FAINT: [&str; 2] = ["#57606a", "#a5afb9"];
const GRID: [&str; 2] = ["#e3e7eb", "#2a3138"];
const COST: [&str; 2] = ["#D55E00", "#E8742A"];
const RIVAL: [&str; 2] = ["#009E73", "#1FB98C"];

fn class(part: &Part) -> String {
    format!("p{}", part.at)
}

/// Returns all classes: those above, and the parts.
fn inks() -> Vec<Ink> {
    let fixed = INKS.into_iter().map(|(class, colours, size)| Ink::new(class, colours, size));
    let parts = PARTS.iter().map(|part| Ink::new(class(part), part.colours, 0.0));
    fixed.chain(parts).collect()
}

/// Draws the picture.
pub(super) fn draw(anatomy: &Anatomy) -> String {
    let mut picture = Picture { y: 62.0, drawn: Vec::new() };
    let title = format!("Anatomy of one {}", anatomy.what());
    picture.text("title", "start", (MARGIN, 34.0), &title);
    let machine = anatomy.machine.line().replace('\n', " ");
    picture.text("note", "start", (MARGIN, 54.0), &machine);
    picture.typical_bars(anatomy);
    picture.competing_bars(anatomy);
    standalone((WIDTH, picture.y + 24.0), "ground", &inks(), picture.drawn)
}

/// The picture so far, and its height.
struct Picture {
    y: f64,
    drawn: Vec<Element>,
}

impl Picture {
    fn text(&mut self, class: &str, anchor: &str, place: (f64, f64), words: &str) {
        self.drawn.push(text(class, anchor, place, words));
    }

    /// Draws the heading of a part.
    fn heading(&mut self, title: &str, below: &str) {
        self.y += 38.0;
        self.text("heading", "start", (MARGIN, self.y), title);
        self.text("note", "start", (MARGIN, self.y + 17.0), below);
        self.y += 26.0;
    }

    /// Draws a piece of a bar with the tooltip `tip`.
    fn piece(&mut self, class: &str, (from, to): (f64, f64), (y, height): (f64, f64), tip: &str) {
        if to - from >= 0.05 {
            let rect = Element::new("rect").set("class", class);
            let places =
                [("x", from), ("y", y - height / 2.0), ("width", to - from), ("height", height)];
            self.drawn.push(rect.places(places).tip(tip));
        }
    }

    /// Draws each of `bars` with its name, and a line with the device's name where that begins;
    /// `row` draws a bar on the axis around a height. Adds an axis of times and a legend.
    fn bars(
        &mut self,
        bars: &[&Bar],
        totals_ns: &[f64],
        mut row: impl FnMut(&mut Self, usize, &Axis, f64),
        legend: &[(String, &str)],
    ) {
        let ends_ns = (0.0, scale_end_ns(totals_ns) * 1.12);
        let axis = Axis::between(Scale::Linear, ends_ns, (LEFT, RIGHT));
        let (top, begin) = (self.y + 6.0, self.drawn.len());
        let mut device = None;
        for (nth, bar) in bars.iter().enumerate() {
            if device.replace(&bar.device) != Some(&bar.device) {
                self.y += ROW * 0.85;
                self.text("device", "start", (MARGIN, self.y - 7.0), &bar.device);
            }
            let middle = self.y + ROW / 2.0;
            self.text("name", "end", (LEFT - 10.0, middle + 4.0), &bar.way());
            row(self, nth, &axis, middle);
            self.y += ROW;
        }
        let frame = Frame { across: (LEFT, RIGHT), up: (self.y + 4.0, top) };
        let ticks = axis.even_ticks(8.0, |ns, _| short_time(ns));
        let side = Side(&axis, &ticks, "");
        // Behind the bars.
        self.drawn.splice(begin..begin, frame.grid(side, None));
        self.drawn.extend(frame.labels(side, None, WIDTH));
        self.y += 24.0;
        self.legend(legend);
    }

    /// Draws a bar's total behind it. A bar that reaches the end of the axis, or is cut off there,
    /// has it inside.
    fn bar_label(&mut self, end: f64, middle: f64, label: &str, cut: bool) {
        // The bars' text is smaller than that of the plots, for which the width is.
        let width = |text: &str| text_width(text) * 0.86;
        if end < RIGHT - 60.0 && end + 8.0 + width(label) < WIDTH {
            return self.text("name", "start", (end + 8.0, middle + 4.0), label);
        }
        let label = format!("{label}{}", if cut { " »" } else { "" });
        let width = width(&label) + 12.0;
        self.piece("behind", (RIGHT - width - 6.0, RIGHT - 6.0), (middle, 15.0), &label);
        self.text("name", "end", (RIGHT - 12.0, middle + 4.0), &label);
    }

    fn typical_bars(&mut self, anatomy: &Anatomy) {
        self.heading(
            "Typical I/O, part by part",
            "mean of the middle half of I/Os; whiskers: p10 to p90 of the whole",
        );
        let bars: Vec<&Bar> = anatomy.bars.iter().collect();
        let typical: Vec<Typical> = bars.iter().map(|bar| bar.alone.typical()).collect();
        let totals_ns: Vec<f64> = typical.iter().map(Typical::total_ns).collect();
        let row = |picture: &mut Self, nth: usize, axis: &Axis, middle: f64| {
            let mut at_ns = 0.0;
            for (part, ns) in PARTS.iter().zip(typical[nth].parts_ns) {
                let tip = format!("{}: {}", part.name(bars[nth].stamped), figures::time(ns));
                let ends = (axis.place(at_ns), axis.place(at_ns + ns));
                picture.piece(&class(part), ends, (middle, BAR_HEIGHT), &tip);
                at_ns += ns;
            }
            let ends = [10.0, 90.0].map(|at| bars[nth].alone.total.percentile_ns(at) as f64);
            let [from, to] = ends.map(|ns| axis.place(ns));
            picture.drawn.push(line("whisker", (from, middle), (to, middle)));
            let end = |x| line("whisker", (x, middle - 4.0), (x, middle + 4.0));
            picture.drawn.extend([from, to].map(end));
            let label = format!("{} µs", micros(at_ns));
            picture.bar_label(axis.place(at_ns).max(to), middle, &label, axis.is_beyond(at_ns));
        };
        let stamped = anatomy.bars.iter().any(|bar| bar.stamped);
        let legend = PARTS.iter().filter(|part| anatomy.shows(part));
        let legend: Vec<_> = legend.map(|part| (class(part), part.name(stamped))).collect();
        self.bars(&bars, &totals_ns, row, &legend);
    }

    fn competing_bars(&mut self, anatomy: &Anatomy) {
        let Some((kind, alone)) = &anatomy.competitor else { return };
        let (bars, times): (Vec<&Bar>, Vec<Fast12>) =
            anatomy.bars.iter().filter_map(|bar| Some((bar, Fast12::new(bar, alone)?))).unzip();
        if bars.is_empty() {
            return;
        }
        self.heading(
            &format!("Typical I/O with a second program ({kind}) on the same CPU"),
            "what the I/O costs the CPU, Ta + Tb, and what the other program got, Tu; line: the \
             device at work, Td",
        );
        let totals_ns: Vec<f64> = times.iter().map(Fast12::total_ns).collect();
        let row = |picture: &mut Self, nth: usize, axis: &Axis, middle: f64| {
            let of = &times[nth];
            let (cost, end) = (axis.place(of.cost_ns()), axis.place(of.total_ns()));
            let [cost_us, tu_us] = [of.cost_ns(), of.tu_ns].map(micros);
            let place = (middle, BAR_HEIGHT);
            let tip = format!("Ta + Tb {cost_us} µs");
            picture.piece("cost", (axis.place(0.0), cost), place, &tip);
            picture.piece("rival", (cost, end), place, &format!("Tu {tu_us} µs"));
            if bars[nth].stamped {
                let above = middle - BAR_HEIGHT / 2.0 - 2.5;
                let ends = [of.ta_before_ns, of.ta_before_ns + of.td_ns];
                let [from, to] = ends.map(|ns| (axis.place(ns), above));
                picture.drawn.push(line("busy", from, to));
            }
            let label = format!("{cost_us} + {tu_us} µs");
            picture.bar_label(end, middle, &label, axis.is_beyond(of.total_ns()));
        };
        let legend = [
            ("cost", "the I/O's: Ta + Tb"),
            ("rival", "the other program's: Tu"),
            ("sample", "the device at work: Td"),
        ];
        let legend = legend.map(|(class, name)| (class.to_owned(), name));
        self.bars(&bars, &totals_ns, row, &legend);
    }

    /// Draws the legend of the colours, in lines.
    fn legend(&mut self, entries: &[(String, &str)]) {
        let mut x = LEFT;
        self.y += 14.0;
        for (class, name) in entries {
            let width = 34.0 + name.chars().count() as f64 * 6.4;
            if x + width > RIGHT && x > LEFT {
                x = LEFT;
                self.y += 18.0;
            }
            self.piece(class, (x, x + 12.0), (self.y - 4.0, 12.0), name);
            self.text("name", "start", (x + 17.0, self.y), name);
            x += width;
        }
        self.y += 6.0;
    }
}

fn micros(ns: f64) -> String {
    format!("{:.2}", ns / 1e3)
}

#[cfg(test)]
mod tests {
    use super::super::testing::anatomy;
    use super::*;

    /// The picture is well-formed: every open element is closed, names are escaped, no coordinate
    /// is NaN.
    #[test]
    fn the_picture_is_sound() {
        let svg = draw(&anatomy(true));
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
        assert!(
            svg.contains("a=1&amp;b=&lt;2&gt;") && !svg.contains("NaN") && !svg.contains("inf")
        );
        let mut open = Vec::new();
        for tag in svg.split('<').skip(1) {
            let (inside, _) = tag.split_once('>').expect("every tag ends");
            match inside.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name)),
                None if inside.ends_with('/') => {}
                None => open.push(inside.split_whitespace().next().unwrap()),
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }

    /// Every class has a second colour for readers who prefer a dark background.
    #[test]
    fn there_is_a_dark_one() {
        let svg = draw(&anatomy(true));
        let (_, dark) = svg.split_once("@media(prefers-color-scheme:dark)").unwrap();
        let (dark, drawn) = dark.split_once("</style>").unwrap();
        let classes = drawn.split("class=\"").skip(1).filter_map(|rest| rest.split('"').next());
        let classes: std::collections::BTreeSet<&str> = classes.collect();
        assert!(classes.len() > 5, "{classes:?}");
        for class in classes {
            assert!(dark.contains(&format!("rect.{class}{{fill:#")), "{class}");
        }
        assert!(inks().iter().all(|ink| ink.colours[0] != ink.colours[1]));
    }

    /// The length of a part is its time, on one scale for all.
    #[test]
    fn bars_are_to_scale() {
        let svg = draw(&anatomy(true));
        let width = |tip: &str| -> f64 {
            let at =
                svg.find(&format!("<title>{tip}</title>")).unwrap_or_else(|| panic!("no {tip}"));
            let rect = &svg[svg[..at].rfind("<rect").unwrap()..at];
            let (_, value) = rect.split_once("width=\"").unwrap();
            value.split('"').next().unwrap().parse().unwrap()
        };
        let ratio = width("wake: 4.00 µs") / width("service: 2.90 µs");
        assert!((ratio - 4_000.0 / 2_900.0).abs() < 0.01, "{ratio}");
    }
}
