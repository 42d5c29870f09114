//! What `auto` has chosen for a queue, and why.

use std::fmt;

use meantime_completion::telemetry::QueueFigures;
use serde_json::{Value, json};

use super::row::micros;

/// The names of the ways to wait, in the order of their numbers.
const WAYS: [&str; 3] = ["poll", "adaptive", "interrupt"];

/// The choice of a queue's policy `auto`.
pub(super) struct Auto {
    way: &'static str,
    since_s: f64,
    cpu_share: f64,
    /// The expected time of an I/O and CPU of its wait, in ns, by each way; 0: unknown.
    expected: [(u64, u64); 3],
}

impl Auto {
    /// The choice in `figures`; `None`: the policy is another one.
    pub(super) fn of(figures: &QueueFigures) -> Option<Self> {
        let way = WAYS.get(usize::try_from(figures.auto_way.checked_sub(1)?).ok()?)?;
        Some(Self {
            way,
            since_s: figures.published_ns.saturating_sub(figures.auto_since_ns) as f64 / 1e9,
            cpu_share: figures.auto_share_permille as f64 / 1e3,
            expected: [
                (figures.auto_poll_ns, figures.auto_poll_cpu_ns),
                (figures.auto_adaptive_ns, figures.auto_adaptive_cpu_ns),
                (figures.auto_interrupt_ns, figures.auto_interrupt_cpu_ns),
            ],
        })
    }

    /// The ways with known times.
    fn known(&self) -> impl Iterator<Item = (&'static str, u64, u64)> {
        let all = WAYS.into_iter().zip(self.expected);
        all.filter(|(_, (ns, _))| *ns > 0).map(|(way, (ns, cpu_ns))| (way, ns, cpu_ns))
    }

    /// The JSON: names contain the units.
    pub(super) fn json(&self) -> Value {
        let ways = self.known().map(|(way, ns, cpu_ns)| {
            (way.to_owned(), json!({ "expected_ns": ns, "expected_cpu_ns": cpu_ns }))
        });
        json!({
            "way": self.way,
            "since_s": self.since_s,
            "cpu_share": self.cpu_share,
            "ways": ways.collect::<serde_json::Map<_, _>>(),
        })
    }
}

impl fmt::Display for Auto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "auto: {} for {:.0} s", self.way, self.since_s)?;
        if self.cpu_share < 0.995 {
            write!(f, ", with {:.0} % of a CPU", 100.0 * self.cpu_share)?;
        }
        for (at, (way, ns, cpu_ns)) in self.known().enumerate() {
            let lead = if at == 0 { "; µs and CPU µs expected:" } else { "," };
            let (us, cpu_us) = (micros(Some(ns as f64)), micros(Some(cpu_ns as f64)));
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
            auto_way: 3,
            auto_since_ns: 2_000_000_000,
            published_ns: 14_000_000_000,
            auto_share_permille: 200,
            auto_poll_ns: 100_000,
            auto_poll_cpu_ns: 20_000,
            auto_interrupt_ns: 35_000,
            auto_interrupt_cpu_ns: 6_000,
            ..QueueFigures::default()
        };
        let auto = Auto::of(&figures).unwrap();
        assert_eq!(
            auto.to_string(),
            "auto: interrupt for 12 s, with 20 % of a CPU; µs and CPU µs expected: poll 100 20.0, \
             interrupt 35.0 6.00"
        );
        assert_eq!(auto.json()["ways"]["interrupt"]["expected_cpu_ns"], json!(6_000));
        assert!(auto.json()["ways"]["adaptive"].is_null());
        for way in [0, 4, u64::MAX] {
            figures.auto_way = way;
            assert!(Auto::of(&figures).is_none());
        }
    }
}
