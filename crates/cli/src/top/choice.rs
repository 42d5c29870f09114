//! How `adaptive` waits on a queue, and why.

use std::fmt;

use meantime_completion::telemetry::QueueFigures;
use serde_json::{Value, json};

use super::row::micros;

/// The choice of a queue's policy `adaptive`.
pub(super) struct Choice {
    way: &'static str,
    since_s: f64,
    cpu_share: f64,
    /// The ways whose times are known: the expected time of an I/O and the CPU time of its wait, in
    /// ns.
    expected: Vec<(&'static str, u64, u64)>,
}

impl Choice {
    /// Returns the choice in `figures`, or `None` if the policy is another one.
    pub(super) fn of(figures: &QueueFigures) -> Option<Self> {
        // The ways are in the order of their numbers, from 1 on.
        let ways = [
            ("poll", figures.poll_ns, figures.poll_cpu_ns),
            ("planned", figures.planned_ns, figures.planned_cpu_ns),
            ("interrupt", figures.interrupt_ns, figures.interrupt_cpu_ns),
        ];
        let (way, ..) = *ways.get(usize::try_from(figures.way.checked_sub(1)?).ok()?)?;
        Some(Self {
            way,
            since_s: figures.published_ns.saturating_sub(figures.way_since_ns) as f64 / 1e9,
            cpu_share: figures.cpu_share_permille as f64 / 1e3,
            expected: ways.into_iter().filter(|(_, ns, _)| *ns > 0).collect(),
        })
    }

    /// Returns the JSON. Names contain the units.
    pub(super) fn json(&self) -> Value {
        let ways = self.expected.iter().map(|(way, ns, cpu_ns)| {
            ((*way).to_owned(), json!({ "expected_ns": ns, "expected_cpu_ns": cpu_ns }))
        });
        json!({
            "way": self.way,
            "since_s": self.since_s,
            "cpu_share": self.cpu_share,
            "ways": ways.collect::<Value>(),
        })
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "adaptive: {} for {:.0} s", self.way, self.since_s)?;
        if self.cpu_share < 0.995 {
            write!(f, ", with {:.0} % of a CPU", 100.0 * self.cpu_share)?;
        }
        for (at, (way, ns, cpu_ns)) in self.expected.iter().enumerate() {
            let lead = if at == 0 { "; µs and CPU µs expected:" } else { "," };
            let (us, cpu_us) = (micros(Some(*ns as f64)), micros(Some(*cpu_ns as f64)));
            write!(f, "{lead} {way} {us} {cpu_us}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_in_words() {
        let mut figures = QueueFigures {
            way: 3,
            way_since_ns: 2_000_000_000,
            published_ns: 14_000_000_000,
            cpu_share_permille: 200,
            poll_ns: 100_000,
            poll_cpu_ns: 20_000,
            interrupt_ns: 35_000,
            interrupt_cpu_ns: 6_000,
            ..QueueFigures::default()
        };
        let choice = Choice::of(&figures).unwrap();
        assert_eq!(
            choice.to_string(),
            "adaptive: interrupt for 12 s, with 20 % of a CPU; µs and CPU µs expected: poll 100 20.0, \
             interrupt 35.0 6.00"
        );
        assert_eq!(choice.json()["ways"]["interrupt"]["expected_cpu_ns"], json!(6_000));
        assert!(choice.json()["ways"]["planned"].is_null());
        for way in [0, 4, u64::MAX] {
            figures.way = way;
            assert!(Choice::of(&figures).is_none());
        }
    }
}
