//! Shapes of a picture that grows downwards.

use std::fmt::Write as _;

use super::Ink;

/// Where a text's place is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Anchor {
    /// At its beginning.
    Start,
    /// In its middle.
    Middle,
    /// At its end.
    End,
}

/// From values to places.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    logarithmic: bool,
}

impl Scale {
    /// Values from `low` to `high` lie between `from` and `to`.
    pub(super) fn linear(low: f64, high: f64, from: f64, to: f64) -> Self {
        Self { low, high, from, to, logarithmic: false }
    }

    /// The same by powers of ten; both values are above 0.
    pub(super) fn logarithmic(low: f64, high: f64, from: f64, to: f64) -> Self {
        Self { low: low.log10(), high: high.log10(), from, to, logarithmic: true }
    }

    /// The place of `value`; that of the nearest end, if it is beyond.
    pub(super) fn at(&self, value: f64) -> f64 {
        let value = if self.logarithmic { value.max(1e-12).log10() } else { value };
        let share = (value - self.low) / (self.high - self.low).max(1e-12);
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Whether `value` is beyond the scale's end. (Of a linear one.)
    pub(super) fn is_beyond(&self, value: f64) -> bool {
        value > self.high
    }

    /// Round values to mark: five to ten of a linear scale, the powers of ten of the other with
    /// their halves and doubles.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let decades = self.low.floor() as i32..=self.high.ceil() as i32;
            let wide = self.high - self.low > 3.0;
            let factors: &[f64] = if wide { &[1.0] } else { &[1.0, 2.0, 5.0] };
            let all = decades
                .flat_map(|decade| factors.iter().map(move |factor| factor * 10f64.powi(decade)));
            let within = |value: &f64| {
                let exponent = value.log10();
                exponent >= self.low - 1e-9 && exponent <= self.high + 1e-9
            };
            return all.filter(within).collect();
        }
        let rough = (self.high - self.low) / 8.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|factor| factor * power)
            .into_iter()
            .find(|step| *step >= rough);
        let step = step.unwrap_or(power * 10.0);
        let count = ((self.high - self.low) / step).floor() as usize;
        (0..=count).map(|nth| self.low + nth as f64 * step).collect()
    }
}

/// The picture so far.
pub(super) struct Canvas {
    width: f64,
    y: f64,
    body: String,
}

impl Canvas {
    /// An empty one.
    pub(super) fn new(width: f64) -> Self {
        Self { width, y: 0.0, body: String::new() }
    }

    /// How far down it goes.
    pub(super) fn y(&self) -> f64 {
        self.y
    }

    /// Goes down.
    pub(super) fn skip(&mut self, height: f64) {
        self.y += height;
    }

    /// A line of text.
    pub(super) fn text(
        &mut self,
        x: f64,
        y: f64,
        size: f64,
        fill: Ink,
        anchor: Anchor,
        text: &str,
    ) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" class=\"{}\" fill=\"{}\" text-anchor=\"{anchor}\">{}</text>",
            fill.class(),
            fill.colours()[0],
            escaped(text)
        );
    }

    /// The head of the picture.
    pub(super) fn title(&mut self, title: &str, below: &str) {
        self.text(20.0, 34.0, 20.0, Ink::Text, Anchor::Start, title);
        self.text(20.0, 54.0, 11.0, Ink::Faint, Anchor::Start, below);
        self.y = 62.0;
    }

    /// The head of a part of it.
    pub(super) fn heading(&mut self, title: &str, below: &str) {
        self.y += 38.0;
        self.text(20.0, self.y, 15.0, Ink::Text, Anchor::Start, title);
        self.text(20.0, self.y + 17.0, 11.0, Ink::Faint, Anchor::Start, below);
        self.y += 26.0;
    }

    /// A piece of a bar; `tip` shows when a mouse points at it.
    pub(super) fn bar(
        &mut self,
        from: f64,
        to: f64,
        middle: f64,
        height: f64,
        fill: Ink,
        tip: &str,
    ) {
        if to - from < 0.05 {
            return;
        }
        let _ = writeln!(
            self.body,
            "<rect x=\"{from:.2}\" y=\"{:.1}\" width=\"{:.2}\" height=\"{height}\" class=\"{}\" fill=\"{}\"><title>{}</title></rect>",
            middle - height / 2.0,
            to - from,
            fill.class(),
            fill.colours()[0],
            escaped(tip)
        );
    }

    /// A straight line.
    pub(super) fn line(&mut self, x1: f64, y1: f64, x2: f64, y2: f64, stroke: Ink, width: f64) {
        let _ = writeln!(
            self.body,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{}\" stroke=\"{}\" stroke-width=\"{width}\"/>",
            stroke.class(),
            stroke.colours()[0],
        );
    }

    /// From here to there, with ends.
    pub(super) fn whisker(&mut self, from: f64, to: f64, middle: f64) {
        self.line(from, middle, to, middle, Ink::Text, 1.0);
        for x in [from, to] {
            self.line(x, middle - 4.0, x, middle + 4.0, Ink::Text, 1.0);
        }
    }

    /// A line through many points.
    pub(super) fn polyline(
        &mut self,
        points: &str,
        stroke: Ink,
        dash: &str,
        width: f64,
        tip: &str,
    ) {
        let dash =
            if dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dash}\"") };
        let _ = writeln!(
            self.body,
            "<polyline points=\"{points}\" class=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\"{dash}><title>{}</title></polyline>",
            stroke.class(),
            stroke.colours()[0],
            escaped(tip)
        );
    }

    /// An axis of times below what was drawn from `top` on, with faint lines through it.
    pub(super) fn time_axis(&mut self, scale: &Scale, top: f64) {
        let bottom = self.y + 4.0;
        for ns in scale.ticks() {
            let x = scale.at(ns);
            self.line(x, top, x, bottom, Ink::Grid, 1.0);
            self.text(x, bottom + 14.0, 11.0, Ink::Faint, Anchor::Middle, &short_time(ns));
        }
        self.y = bottom + 20.0;
    }

    /// What colours mean, in lines between `left` and `right`.
    pub(super) fn legend<'a>(
        &mut self,
        left: f64,
        right: f64,
        entries: impl Iterator<Item = (Ink, &'a str)>,
    ) {
        let mut x = left;
        self.y += 14.0;
        for (colour, name) in entries {
            let width = 26.0 + name.chars().count() as f64 * 6.4;
            if x + width > right && x > left {
                x = left;
                self.y += 18.0;
            }
            self.bar(x, x + 12.0, self.y - 4.0, 12.0, colour, name);
            self.text(x + 17.0, self.y, 12.0, Ink::Text, Anchor::Start, name);
            x += width + 8.0;
        }
        self.y += 6.0;
    }

    /// The whole, with its style sheet.
    pub(super) fn finish(self, style: &str) -> String {
        let (width, height) = (self.width, self.y + 24.0);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height:.0}\" viewBox=\"0 0 {width} {height:.0}\" \
             font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\">\n<style>{style}</style>\n\
             <rect class=\"{}\" fill=\"{}\" x=\"0\" y=\"0\" width=\"{width}\" height=\"{height:.0}\"/>\n{}</svg>\n",
            Ink::Ground.class(),
            Ink::Ground.colours()[0],
            self.body
        )
    }
}

/// `500 ns`, `2 µs`, `1.5 ms`.
pub(super) fn short_time(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns >= 1e9 => (ns / 1e9, "s"),
        ns if ns >= 1e6 => (ns / 1e6, "ms"),
        ns if ns >= 1e3 => (ns / 1e3, "µs"),
        ns => (ns, "ns"),
    };
    if ns == 0.0 { "0".to_owned() } else { format!("{} {unit}", (value * 100.0).round() / 100.0) }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_and_their_ticks() {
        let linear = Scale::linear(0.0, 20_000.0, 100.0, 300.0);
        assert_eq!((linear.at(0.0), linear.at(5_000.0), linear.at(1e9)), (100.0, 150.0, 300.0));
        assert_eq!(linear.ticks(), [0.0, 5_000.0, 10_000.0, 15_000.0, 20_000.0]);
        let logarithmic = Scale::logarithmic(100.0, 10_000.0, 0.0, 200.0);
        assert_eq!((logarithmic.at(1_000.0), logarithmic.at(1.0)), (100.0, 0.0));
        let ticks: Vec<i64> = logarithmic.ticks().iter().map(|ns| ns.round() as i64).collect();
        assert_eq!(ticks, [100, 200, 500, 1_000, 2_000, 5_000, 10_000]);
        assert_eq!([0.0, 500.0, 1_500.0, 2e6].map(short_time), ["0", "500 ns", "1.5 µs", "2 ms"]);
    }
}
