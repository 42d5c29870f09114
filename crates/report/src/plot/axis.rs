//! Axes: from values to positions, and the positions of their ticks.

use itertools::Itertools as _;

use super::chart::WIDTH;
use super::mark::text_width;
use crate::figures::short_time;

/// A tick's value and label.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tick {
    /// The value.
    pub at: f64,
    /// The label. It is empty for a line without one.
    pub label: String,
}

impl Tick {
    /// Returns the class of its line.
    pub(super) fn class(&self) -> &'static str {
        if self.label.is_empty() { "minor" } else { "major" }
    }
}

/// The scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Evenly, from 0.
    Linear,
    /// Positions are proportional to the logarithm.
    Log,
    /// Shares below 1: each further nine takes as much room as a decade, and likewise below one
    /// half.
    Nines,
}

/// An axis between two values and two positions.
#[derive(Debug, Clone)]
pub(crate) struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    pub(super) ticks: Vec<Tick>,
    pub(super) title: String,
}

/// Limit of every axis.
const FAR: f64 = 1e21;

impl Axis {
    /// Returns an axis over `values`, with room at the ends. The low end is less than the high end
    /// for any values.
    pub(crate) fn over(
        scale: Scale,
        values: impl Iterator<Item = f64>,
        (from, to): (f64, f64),
    ) -> Self {
        let usable = |value: &f64| {
            value.is_finite() && (*value > 0.0 || (*value == 0.0 && scale == Scale::Linear))
        };
        let ends = values.filter(usable).minmax_by(f64::total_cmp).into_option();
        let (low, high) = ends.unwrap_or((1.0, 10.0));
        // The limit is beyond any latency or share; it keeps the number of ticks bounded.
        let (mut low, mut high) = (low.clamp(0.0, FAR), high.clamp(0.0, FAR));
        match scale {
            Scale::Linear => (low, high) = (0.0, if high > 0.0 { high * 1.05 } else { 1.0 }),
            Scale::Log => {
                (low, high) = (low.max(1.0 / FAR), high.max(1.0 / FAR));
                let room = (high / low).powf(0.04).max(1.08);
                (low, high) = (low / room, high * room);
                if high / low < 1.5 {
                    (low, high) = (low / 1.3, high * 1.3);
                }
            }
            Scale::Nines => {}
        }
        Self::between(scale, (low, high), (from, to))
    }

    /// Returns an axis with these ends.
    pub(crate) fn between(scale: Scale, (low, high): (f64, f64), (from, to): (f64, f64)) -> Self {
        Self { scale, low, high, from, to, ticks: Vec::new(), title: String::new() }
    }

    /// Adds ticks and a title.
    pub(crate) fn with(self, ticks: impl Fn(&Self) -> Vec<Tick>, title: impl Into<String>) -> Self {
        Self { ticks: ticks(&self), title: title.into(), ..self }
    }

    /// Returns the ticks' labels, without those that would touch the one before or leave the
    /// drawing, each with its position.
    pub(super) fn labels(&self) -> Vec<(f64, &str)> {
        const GAP: f64 = 6.0;
        let (mut kept, mut before) = (Vec::new(), None);
        for Tick { at, label } in self.ticks.iter().filter(|tick| !tick.label.is_empty()) {
            let place = self.place(*at);
            let half = if self.from < self.to { text_width(label) / 2.0 } else { 4.5 };
            let touches = |(last, its): (f64, f64)| (place - last).abs() < its + half + GAP;
            if place + half <= WIDTH && !before.is_some_and(touches) {
                kept.push((place, label.as_str()));
                before = Some((place, half));
            }
        }
        kept
    }

    /// Returns the position of `value`, within the axis.
    pub(crate) fn place(&self, value: f64) -> f64 {
        let (low, high) = (self.position(self.low), self.position(self.high));
        let part = (self.position(value.clamp(self.low, self.high)) - low) / (high - low);
        self.from + (self.to - self.from) * if part.is_finite() { part } else { 0.0 }
    }

    fn position(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => value,
            Scale::Log => value.max(f64::MIN_POSITIVE).log10(),
            Scale::Nines if value < 0.5 => (2.0 * value.max(1e-12)).log10(),
            Scale::Nines => -(2.0 * (1.0 - value).max(1e-12)).log10(),
        }
    }

    /// Returns ticks for latencies in ns.
    pub(crate) fn latency_ticks(&self) -> Vec<Tick> {
        self.log_ticks(short_time)
    }

    /// Returns ticks of a logarithmic axis: even ones over less than a factor of three, else at
    /// round figures of each decade.
    pub(crate) fn log_ticks(&self, label: impl Fn(f64) -> String) -> Vec<Tick> {
        let (low, high) = (self.low.max(1.0 / FAR).log10(), self.high.log10());
        let decades = high - low;
        // The steps of a decade that get a label: few enough that labels do not touch.
        let labelled: &[u32] = match decades {
            decades if decades < 0.5 => return self.even_ticks(6.0, |at, _| label(at)),
            decades if decades < 1.3 => &[1, 2, 3, 5, 7],
            decades if decades < 2.2 => &[1, 2, 5],
            decades if decades < 3.2 => &[1, 3],
            _ => &[1],
        };
        let every = (decades / 6.0).ceil().max(1.0) as i32;
        let steps = (low.floor() as i32..=high.ceil() as i32)
            .flat_map(|decade| (1..10u32).map(move |step| (decade, step)));
        let tick = |(decade, step): (i32, u32)| {
            let at = f64::from(step) * 10f64.powi(decade);
            let shown = labelled.contains(&step) && (step > 1 || decade.rem_euclid(every) == 0);
            let drawn = shown || decades < 3.2 || step == 1;
            (drawn && (self.low..=self.high).contains(&at))
                .then(|| Tick { at, label: if shown { label(at) } else { String::new() } })
        };
        steps.filter_map(tick).collect()
    }

    /// Returns about `count` ticks of a linear axis.
    pub(crate) fn linear_ticks(&self, count: f64) -> Vec<Tick> {
        self.even_ticks(count, |at, step| {
            let digits = (-step.log10().floor()).clamp(0.0, 6.0) as usize;
            format!("{at:.digits$}")
        })
    }

    /// Returns evenly spaced ticks at round figures, with labels made of the value and the step.
    pub(crate) fn even_ticks(&self, count: f64, label: impl Fn(f64, f64) -> String) -> Vec<Tick> {
        let rough = (self.high - self.low) / count;
        let power = 10f64.powf(rough.log10().floor());
        let step =
            [1.0, 2.0, 5.0, 10.0].map(|step| step * power).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(rough).max(f64::MIN_POSITIVE);
        let first = (self.low / step - 1e-9).ceil();
        let values = (0..=100u32).map(|at| (first + f64::from(at)) * step);
        let within = values.take_while(|at| *at <= self.high * (1.0 + 1e-9));
        within.map(|at| Tick { at, label: label(at, step) }).collect()
    }

    /// Returns ticks for shares in percent: 1, 10, 50, 90, 99, and the nines.
    pub(crate) fn nines_ticks(&self) -> Vec<Tick> {
        let known = [0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999_999];
        let within = known.into_iter().filter(|at| (self.low..=self.high).contains(at));
        within.map(|at| Tick { at, label: short(at * 100.0) }).collect()
    }

    /// Returns ticks for the rarity of an I/O: 1 in 10, 1 in 100, …
    pub(crate) fn rarity_ticks(&self) -> Vec<Tick> {
        let label = |of: f64| match of {
            of if of < 1.5 => "all".to_owned(),
            of if of >= 1e6 => format!("1 in {}M", short(of / 1e6)),
            of if of >= 1e3 => format!("1 in {}k", short(of / 1e3)),
            of => format!("1 in {}", short(of)),
        };
        let decades = (-12..=0i32).map(|power| (10f64.powi(power), 10f64.powi(-power)));
        let within = decades.filter(|(at, _)| (self.low * 0.999..=self.high * 1.001).contains(at));
        within.map(|(at, of)| Tick { at, label: label(of) }).collect()
    }
}

/// Formats a figure without trailing zeros: `1`, `20`, `0.5`.
pub(crate) fn short(figure: f64) -> String {
    ((figure * 1e4).round() / 1e4).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: &[Tick]) -> Vec<&str> {
        ticks.iter().map(|tick| tick.label.as_str()).filter(|label| !label.is_empty()).collect()
    }

    fn log(low: f64, high: f64) -> Axis {
        Axis::between(Scale::Log, (low, high), (0.0, 100.0))
    }

    #[test]
    fn latencies() {
        assert_eq!(
            labels(&log(900.0, 2e7).latency_ticks()),
            ["1 µs", "10 µs", "100 µs", "1 ms", "10 ms"]
        );
        assert_eq!(
            labels(&log(4e3, 40e3).latency_ticks()),
            ["5 µs", "7 µs", "10 µs", "20 µs", "30 µs"]
        );
        assert_eq!(labels(&log(4.1e3, 7.2e3).latency_ticks()), ["5 µs", "6 µs", "7 µs"]);
        assert_eq!(labels(&log(0.5, 3e11).latency_ticks()).len(), 6);
        assert!((log(1.0, 100.0).place(10.0) - 50.0).abs() < 1e-9);
    }

    #[test]
    fn shares() {
        let nines = Axis::between(Scale::Nines, (0.01, 0.99999), (100.0, 0.0));
        assert_eq!(
            labels(&nines.nines_ticks()),
            ["1", "10", "50", "90", "99", "99.9", "99.99", "99.999"]
        );
        let step = nines.place(0.99) - nines.place(0.999);
        assert!((nines.place(0.999) - nines.place(0.9999) - step).abs() < 1e-6, "a nine is a nine");
        assert!(
            (nines.place(1.0) - nines.place(0.99999)).abs() < 1e-9,
            "beyond the end is at the end"
        );
        assert_eq!(
            labels(&log(1e-4, 1.0).rarity_ticks()),
            ["1 in 10k", "1 in 1k", "1 in 100", "1 in 10", "all"]
        );
    }

    #[test]
    fn linear_axes_begin_at_0() {
        let axis = Axis::over(Scale::Linear, [23.0, 99.5].into_iter(), (0.0, 1.0));
        assert_eq!(labels(&axis.linear_ticks(5.0)), ["0", "50", "100"]);
        let axis = Axis::over(Scale::Linear, [0.012].into_iter(), (0.0, 1.0));
        assert_eq!(labels(&axis.linear_ticks(4.0)), ["0.000", "0.005", "0.010"]);
    }

    #[test]
    fn degenerate_values_have_an_axis() {
        for values in
            [&[][..], &[0.0], &[7.0], &[7.0, 7.0], &[f64::NAN, f64::INFINITY], &[1e-300, 1e300]]
        {
            for scale in [Scale::Linear, Scale::Log] {
                let axis = Axis::over(scale, values.iter().copied(), (10.0, 90.0));
                assert!(axis.low < axis.high, "{values:?}: {axis:?}");
                for at in [0.0, 7.0, 1e300, -1.0] {
                    assert!(
                        (10.0..=90.0).contains(&axis.place(at)),
                        "{values:?} {scale:?} {at}: {}",
                        axis.place(at)
                    );
                }
                assert!(
                    axis.latency_ticks().len() < 700 && axis.linear_ticks(5.0).len() < 12,
                    "{values:?}"
                );
            }
        }
    }

    #[test]
    fn scales_and_their_ticks() {
        let values = |ticks: Vec<Tick>| -> Vec<i64> {
            let labelled = ticks.iter().filter(|tick| !tick.label.is_empty());
            labelled.map(|tick| tick.at.round() as i64).collect()
        };
        let linear = Axis::between(Scale::Linear, (0.0, 20_000.0), (100.0, 300.0));
        let places = [0.0, 5_000.0, 1e9].map(|value| linear.place(value));
        assert_eq!(places, [100.0, 150.0, 300.0]);
        let ticks = linear.even_ticks(8.0, |ns, _| short_time(ns));
        assert_eq!(values(ticks), [0, 5_000, 10_000, 15_000, 20_000]);
        let logarithmic = Axis::between(Scale::Log, (100.0, 10_000.0), (0.0, 200.0));
        assert_eq!((logarithmic.place(1_000.0), logarithmic.place(1.0)), (100.0, 0.0));
        let ticks = logarithmic.latency_ticks();
        assert_eq!(values(ticks), [100, 200, 500, 1_000, 2_000, 5_000, 10_000]);
        assert_eq!([0.0, 500.0, 1_500.0, 2e6].map(short_time), ["0", "500 ns", "1.5 µs", "2 ms"]);
    }
}
