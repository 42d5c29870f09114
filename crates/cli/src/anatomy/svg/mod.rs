//! The report as one picture: stacked bars, what a second program got, and two distributions.

mod canvas;
mod curves;

use super::fast12::Fast12;
use super::tally::Typical;
use super::timeline::{PARTS, Part};
use super::{Anatomy, Bar, scale_end_ns};
use crate::figures;
use canvas::{Anchor, Canvas, Scale};
use curves::{Axis, Curve};

use crate::report::look::{COLOURS, PALETTE, looks};

/// Where bars and axes begin; labels are left of it.
const LEFT: f64 = 190.0;
const RIGHT: f64 = 930.0;
const WIDTH: f64 = 1000.0;
const BAR_HEIGHT: f64 = 20.0;
const ROW: f64 = 28.0;
const CURVES_HEIGHT: f64 = 260.0;

/// What a colour is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ink {
    /// Text and axes.
    Text,
    /// What is less important.
    Faint,
    /// Lines through a plot.
    Grid,
    /// The picture's ground.
    Ground,
    /// Behind a label.
    Label,
    /// A part of an I/O.
    Part(Part),
    /// What an I/O costs the CPU.
    Cost,
    /// What another program got.
    Rival,
    /// A way to wait, by the number of its colour.
    Way(usize),
}

impl Ink {
    /// The colour on white and on black. Those of the parts colour-blind readers tell apart (Okabe
    /// and Ito).
    fn colours(self) -> [&'static str; 2] {
        match self {
            Self::Text => ["#222222", "#e6eaee"],
            Self::Faint => ["#6e7781", "#a5afb9"],
            Self::Grid => ["#00000018", "#ffffff20"],
            Self::Ground => ["#ffffff", "#14181d"],
            Self::Label => ["#ffffffcc", "#14181dcc"],
            Self::Part(Part::Submit) => ["#0072B2", "#3E9BD6"],
            Self::Part(Part::Doorbell) => ["#56B4E9", "#9AD4F5"],
            Self::Part(Part::Queue) => ["#CC79A7", "#D990B7"],
            Self::Part(Part::Service) => ["#B5B5B5", "#767D85"],
            Self::Cost | Self::Part(Part::Wake) => ["#D55E00", "#E8742A"],
            Self::Part(Part::Notice) => ["#E69F00", "#E6AC35"],
            Self::Rival | Self::Part(Part::Complete) => ["#009E73", "#1FB98C"],
            Self::Way(at) => PALETTE.map(|colours| colours[at % COLOURS]),
        }
    }

    /// Its class in the picture.
    fn class(self) -> String {
        match self {
            Self::Text => "text".to_owned(),
            Self::Faint => "faint".to_owned(),
            Self::Grid => "grid".to_owned(),
            Self::Ground => "ground".to_owned(),
            Self::Label => "label".to_owned(),
            Self::Part(part) => format!("p{}", part as usize),
            Self::Cost => "cost".to_owned(),
            Self::Rival => "rival".to_owned(),
            Self::Way(at) => format!("w{}", at % COLOURS),
        }
    }

    fn all() -> impl Iterator<Item = Self> {
        use Ink::{Cost, Faint, Grid, Ground, Label, Rival, Text};
        let fixed = [Text, Faint, Grid, Ground, Label, Cost, Rival];
        fixed.into_iter().chain(PARTS.map(Self::Part)).chain((0..COLOURS).map(Self::Way))
    }
}

/// The picture's style sheet, with dark colours for readers who prefer them. (Each shape also has
/// its colour on white as an attribute, since some programs read no style sheets.)
fn style() -> String {
    let rule = |ink: Ink| {
        let (class, [_, dark]) = (ink.class(), ink.colours());
        format!(
            "text.{class},rect.{class}{{fill:{dark}}}line.{class},polyline.{class}{{stroke:{dark}}}"
        )
    };
    format!("@media(prefers-color-scheme:dark){{{}}}", Ink::all().map(rule).collect::<String>())
}

/// By device and size.
const DASHES: [&str; 4] = ["", "7 3", "2 3", "9 3 2 3"];

/// The picture.
pub(super) fn draw(anatomy: &Anatomy) -> String {
    let mut canvas = Canvas::new(WIDTH);
    canvas.title(
        &format!("Anatomy of one {}", anatomy.what()),
        &anatomy.machine.line().replace('\n', " · "),
    );
    typical_bars(&mut canvas, anatomy);
    competing_bars(&mut canvas, anatomy);
    submission(&mut canvas, anatomy);
    host_and_device(&mut canvas, anatomy);
    canvas.finish(&style())
}

/// A name of each device line and each bar below it; calls `row` with the bar and its middle.
fn rows<'a>(canvas: &mut Canvas, bars: &[&'a Bar], mut row: impl FnMut(&mut Canvas, &'a Bar, f64)) {
    let mut device = None;
    for bar in bars {
        if device.replace(&bar.device) != Some(&bar.device) {
            canvas.skip(ROW * 0.85);
            let y = canvas.y() - 7.0;
            canvas.text(20.0, y, 13.0, Ink::Text, Anchor::Start, &bar.device);
        }
        let middle = canvas.y() + ROW / 2.0;
        canvas.text(LEFT - 10.0, middle + 4.0, 12.0, Ink::Text, Anchor::End, &bar.way());
        row(canvas, bar, middle);
        canvas.skip(ROW);
    }
}

fn typical_bars(canvas: &mut Canvas, anatomy: &Anatomy) {
    canvas.heading(
        "Typical I/O, part by part",
        "mean of the middle half of I/Os; whiskers: p10 to p90 of the whole",
    );
    let bars: Vec<&Bar> = anatomy.bars.iter().collect();
    let typical: Vec<Typical> = bars.iter().map(|bar| bar.alone.typical()).collect();
    let totals_ns: Vec<f64> = typical.iter().map(Typical::total_ns).collect();
    let scale = Scale::linear(0.0, scale_end_ns(&totals_ns) * 1.12, LEFT, RIGHT);
    let top = canvas.y();
    let mut typical = typical.iter();
    rows(canvas, &bars, |canvas, bar, middle| {
        let Some(typical) = typical.next() else { return };
        let mut at_ns = 0.0;
        for (part, ns) in PARTS.iter().zip(typical.parts_ns) {
            let tip = format!("{}: {}", part.name(bar.stamped), figures::time(ns));
            let (from, to) = (scale.at(at_ns), scale.at(at_ns + ns));
            canvas.bar(from, to, middle, BAR_HEIGHT, Ink::Part(*part), &tip);
            at_ns += ns;
        }
        let ends = [10.0, 90.0].map(|at| bar.alone.total.percentile_ns(at) as f64);
        canvas.whisker(scale.at(ends[0]), scale.at(ends[1]), middle);
        let label = format!("{} µs", micros(at_ns));
        let end = scale.at(at_ns).max(scale.at(ends[1]));
        bar_label(canvas, end, middle, &label, scale.is_beyond(at_ns));
    });
    canvas.time_axis(&scale, top + 6.0);
    let stamped = anatomy.bars.iter().any(|bar| bar.stamped);
    let legend = PARTS.iter().filter(|part| anatomy.shows(**part));
    canvas.legend(LEFT, RIGHT, legend.map(|part| (Ink::Part(*part), part.name(stamped))));
}

/// What a bar comes to, behind it; one that reaches the end of the scale, perhaps cut there, has it
/// inside.
fn bar_label(canvas: &mut Canvas, end: f64, middle: f64, label: &str, cut: bool) {
    if end < RIGHT - 60.0 {
        canvas.text(end + 8.0, middle + 4.0, 12.0, Ink::Text, Anchor::Start, label);
    } else {
        let width = label.chars().count() as f64 * 7.0 + 20.0;
        canvas.bar(RIGHT - width - 6.0, RIGHT - 6.0, middle, 15.0, Ink::Label, label);
        let mark = if cut { " »" } else { "" };
        canvas.text(
            RIGHT - 12.0,
            middle + 4.0,
            12.0,
            Ink::Text,
            Anchor::End,
            &format!("{label}{mark}"),
        );
    }
}

fn competing_bars(canvas: &mut Canvas, anatomy: &Anatomy) {
    let Some((kind, alone)) = &anatomy.competitor else { return };
    let bars: Vec<(&Bar, Fast12)> =
        anatomy.bars.iter().filter_map(|bar| Some((bar, Fast12::new(bar, alone)?))).collect();
    if bars.is_empty() {
        return;
    }
    let what = format!("Typical I/O with a second program ({kind}) on the same CPU");
    canvas.heading(&what, "what the I/O costs the CPU, Ta + Tb, and what the other program got, Tu; line: the device at work, Td");
    let totals_ns: Vec<f64> = bars.iter().map(|(_, times)| times.total_ns()).collect();
    let scale = Scale::linear(0.0, scale_end_ns(&totals_ns) * 1.12, LEFT, RIGHT);
    let top = canvas.y();
    let mut times = bars.iter().map(|(_, times)| times);
    let rows_of: Vec<&Bar> = bars.iter().map(|(bar, _)| *bar).collect();
    rows(canvas, &rows_of, |canvas, bar, middle| {
        let Some(times) = times.next() else { return };
        let (cost, end) = (scale.at(times.cost_ns()), scale.at(times.total_ns()));
        canvas.bar(
            scale.at(0.0),
            cost,
            middle,
            BAR_HEIGHT,
            Ink::Cost,
            &format!("Ta + Tb {} µs", micros(times.cost_ns())),
        );
        canvas.bar(
            cost,
            end,
            middle,
            BAR_HEIGHT,
            Ink::Rival,
            &format!("Tu {} µs", micros(times.tu_ns)),
        );
        if bar.stamped {
            let device = (scale.at(times.ta_before_ns), scale.at(times.ta_before_ns + times.td_ns));
            canvas.line(
                device.0,
                middle - BAR_HEIGHT / 2.0 - 2.5,
                device.1,
                middle - BAR_HEIGHT / 2.0 - 2.5,
                Ink::Text,
                2.0,
            );
        }
        let label = format!("{} + {} µs", micros(times.cost_ns()), micros(times.tu_ns));
        bar_label(canvas, end, middle, &label, scale.is_beyond(times.total_ns()));
    });
    canvas.time_axis(&scale, top + 6.0);
    let legend = [
        (Ink::Cost, "the I/O's: Ta + Tb"),
        (Ink::Rival, "the other program's: Tu"),
        (Ink::Text, "the device at work: Td"),
    ];
    canvas.legend(LEFT, RIGHT, legend.into_iter());
}

fn submission(canvas: &mut Canvas, anatomy: &Anatomy) {
    canvas.heading(
        "Submission latency",
        "part of I/Os submitted within so long, from the call to the doorbell",
    );
    let curves = curves(anatomy, |bar| vec![(&bar.alone.parts[0], "")]);
    curves::draw(canvas, &curves, Axis::Cumulative, LEFT, RIGHT, CURVES_HEIGHT);
}

fn host_and_device(canvas: &mut Canvas, anatomy: &Anatomy) {
    canvas.heading(
        "Host against device",
        "part of I/Os whose host part (thick), device part (thin) takes longer",
    );
    let curves =
        curves(anatomy, |bar| vec![(&bar.alone.host, "host"), (&bar.alone.device, "device")]);
    curves::draw(canvas, &curves, Axis::Exceedance, LEFT, RIGHT, CURVES_HEIGHT);
}

/// A curve or two for each bar: a colour for each policy, as on every page (relatives share one),
/// and dashes by device and size.
fn curves<'a>(
    anatomy: &'a Anatomy,
    of: impl Fn(&'a Bar) -> Vec<(&'a crate::report::stats::LatencyStats, &'static str)>,
) -> Vec<Curve<'a>> {
    let mut ways: Vec<String> = Vec::new();
    let mut kinds: Vec<(&str, u64)> = Vec::new();
    for bar in &anatomy.bars {
        place(&mut ways, bar.policy.to_string());
    }
    let looks = looks(&ways);
    let mut curves = Vec::new();
    for bar in &anatomy.bars {
        let kind = place(&mut kinds, (bar.device.as_str(), bar.bytes));
        let look = looks[place(&mut ways, bar.policy.to_string())];
        for (nth, (stats, what)) in of(bar).into_iter().enumerate() {
            let label = if anatomy.bars.iter().all(|other| other.device == bar.device) {
                bar.way()
            } else {
                format!("{}, {}", bar.way(), bar.device)
            };
            curves.push(Curve {
                stats,
                label: if nth == 0 { label } else { String::new() },
                tip: format!("{} {} {what}", bar.device, bar.way()),
                ink: Ink::Way(look),
                dash: DASHES[(kind + look / COLOURS) % DASHES.len()],
                width: if what == "device" { 1.0 } else { 2.0 },
            });
        }
    }
    curves
}

fn place<T: PartialEq>(seen: &mut Vec<T>, item: T) -> usize {
    seen.iter().position(|other| *other == item).unwrap_or_else(|| {
        seen.push(item);
        seen.len() - 1
    })
}

fn micros(ns: f64) -> String {
    format!("{:.2}", ns / 1e3)
}

#[cfg(test)]
mod tests {
    use super::super::testing::anatomy;
    use super::*;

    /// Well-formed: every element that is opened is closed, names are escaped, no coordinate is not
    /// a number.
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

    /// Everything drawn has a second colour for readers who prefer a dark background.
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
        assert!(Ink::all().all(|ink| ink.colours()[0] != ink.colours()[1]));
    }

    /// A part's length is its time on one scale for all.
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
