//! A queue as text: the columns of the table.

use meantime_completion::telemetry::{QueueRates, QueueState, Snapshot, rates};

use super::choice::Choice;
use super::process::plain;
use crate::facts::{Fact, facts};

/// The activity of a queue between two looks.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    /// Its state at the second look.
    pub state: QueueState,
    /// Its rates between the two.
    pub rates: QueueRates,
}

/// Returns the rows of `after`, by the queues' numbers.
pub(super) fn rows(before: &Snapshot, after: &Snapshot) -> Vec<Row> {
    let rates = rates(before, after);
    after.queues.iter().cloned().zip(rates).map(|(state, rates)| Row { state, rates }).collect()
}

impl Row {
    /// Returns whether nothing ended between the two looks.
    pub(super) fn is_idle(&self) -> bool {
        self.rates.iops <= 0.0
    }

    /// Returns the difference between the actual mean and the expected one, in percent of that.
    /// `None` if either is unknown.
    pub(super) fn miss_percent(&self) -> Option<f64> {
        let expected_ns = self.expected_ns().filter(|ns| *ns > 0.0)?;
        Some(100.0 * (self.rates.mean_ns? - expected_ns) / expected_ns)
    }

    /// Returns how the policy `adaptive` waits, if it is that.
    pub(super) fn choice(&self) -> Option<Choice> {
        Choice::of(&self.state.figures)
    }

    /// Returns the time that the policy expects, in ns.
    fn expected_ns(&self) -> Option<f64> {
        let ns = self.state.figures.expected_ns;
        (ns > 0).then_some(ns as f64)
    }

    /// Returns the facts about it. Keys contain the units; unknown values are null.
    pub(super) fn facts(&self) -> Vec<Fact> {
        let (state, rates, figures) = (&self.state, &self.rates, &self.state.figures);
        let known = |ns: u64| (ns > 0).then_some(ns);
        let unless_idle = |idle: &str, words: String| match self.is_idle() {
            true => idle.to_owned(),
            false => words,
        };
        facts! {
            "\nqueue", "queue": state.id;
            "\ndevice", "device": state.device => plain(&state.device);
            "\nthread", "thread": state.thread => plain(&state.thread);
            "", "thread_id": known(figures.thread_id);
            "\npolicy", "policy": state.policy => plain(&state.policy);
            "\nIOPS", "iops": rates.iops => unless_idle("idle", iops(rates.iops));
            "mean\nµs", "mean_ns": rates.mean_ns => micros(rates.mean_ns);
            "expected\nµs", "expected_ns": known(figures.expected_ns) => expected(self);
            "", "expected_low_ns": known(figures.expected_low_ns);
            "", "choice": self.choice().map(|choice| choice.json());
            "CPU\n%", "cpu_percent": rates.cpu_percent
                => unless_idle(NONE, one_digit(rates.cpu_percent));
            "CPU per\nI/O µs", "cpu_per_io_ns": rates.cpu_per_io_ns
                => micros(rates.cpu_per_io_ns);
            "sleeps\n% of I/Os", "sleep_percent": rates.sleep_percent
                => one_digit(rates.sleep_percent);
            "overslept\n% of sleeps", "oversleep_percent": rates.oversleep_percent
                => one_digit(rates.oversleep_percent);
            "fallbacks\nper s", "fallbacks_per_s": rates.fallbacks_per_s
                => unless_idle(NONE, iops(rates.fallbacks_per_s));
            "in\nflight", "in_flight": figures.in_flight
                => unless_idle(NONE, figures.in_flight.to_string());
            "", "ended": figures.ended;
            "", "waits": figures.waits;
            "", "sleeps": figures.sleeps;
            "", "oversleeps": figures.oversleeps;
            "", "fallbacks": figures.fallbacks;
            "", "blocks": figures.blocks;
        }
    }
}

/// Formats the expected time, or its lower limit, and the difference of the mean.
fn expected(row: &Row) -> String {
    let low_ns = row.state.figures.expected_low_ns;
    match (row.expected_ns(), low_ns) {
        (Some(ns), _) => match row.miss_percent() {
            Some(percent) => format!("{} {percent:+.0}%", micros(Some(ns))),
            None => micros(Some(ns)),
        },
        (None, 0) => NONE.to_owned(),
        (None, low_ns) => format!("≥ {}", micros(Some(low_ns as f64))),
    }
}

/// The text for an unknown value.
const NONE: &str = "–";

/// Formats a time in µs: `0.46`, `10.1`, `1234`.
pub(super) fn micros(ns: Option<f64>) -> String {
    let Some(us) = ns.map(|ns| ns / 1e3) else { return NONE.to_owned() };
    let digits = if us < 9.995 {
        2
    } else if us < 99.95 {
        1
    } else {
        0
    };
    format!("{us:.digits$}")
}

fn one_digit(percent: Option<f64>) -> String {
    percent.map_or_else(|| NONE.to_owned(), |percent| format!("{percent:.1}"))
}

/// Formats `987`, `12.3k`, `1.23M`.
pub(super) fn iops(figure: f64) -> String {
    if figure > 0.0 && figure < 9.995 {
        format!("{figure:.1}")
    } else {
        crate::figures::iops(figure)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use meantime_completion::telemetry::QueueFigures;

    use serde_json::json;

    use super::*;
    use crate::facts::object;

    /// Returns three queues: one that meets its expectation, one that polls, one that is idle.
    pub(crate) fn known() -> Vec<Row> {
        let state = |id, policy: &str, figures| QueueState {
            id,
            device: "mem:1G?model=optane".into(),
            thread: "meantime-job0".into(),
            policy: policy.into(),
            figures,
        };
        let busy = QueueFigures {
            ended: 123_456,
            in_flight: 1,
            expected_ns: 10_000,
            expected_low_ns: 9_500,
            thread_id: 7,
            ..QueueFigures::default()
        };
        let rates = QueueRates {
            id: 3,
            iops: 95_238.0,
            mean_ns: Some(10_500.0),
            cpu_percent: Some(41.26),
            cpu_per_io_ns: Some(4_330.0),
            sleep_percent: Some(99.9),
            oversleep_percent: Some(0.2),
            fallbacks_per_s: 0.0,
        };
        let polled = QueueRates {
            id: 4,
            iops: 96_000.0,
            mean_ns: Some(10_100.0),
            cpu_percent: Some(100.0),
            ..Default::default()
        };
        vec![
            Row { state: state(3, "adaptive:cpu=30", busy), rates },
            Row {
                state: state(4, "poll", QueueFigures { in_flight: 4, ..Default::default() }),
                rates: polled,
            },
            Row {
                state: state(5, "hybrid-min", QueueFigures::default()),
                rates: QueueRates { id: 5, ..Default::default() },
            },
        ]
    }

    #[test]
    fn a_queue_in_words() {
        let texts = |at: usize| {
            let shown = known()[at].facts().into_iter().filter(|fact| !fact.name.is_empty());
            shown.map(|fact| fact.words).collect::<Vec<_>>()
        };
        assert_eq!(
            texts(0)[3..],
            [
                "adaptive:cpu=30",
                "95.2k",
                "10.5",
                "10.0 +5%",
                "41.3",
                "4.33",
                "99.9",
                "0.2",
                "0",
                "1"
            ]
        );
        assert_eq!(texts(1)[3..], ["poll", "96.0k", "10.1", "–", "100.0", "–", "–", "–", "0", "4"]);
        assert_eq!(texts(2)[3..], ["hybrid-min", "idle", "–", "–", "–", "–", "–", "–", "–", "–"]);
        let mut least = known().swap_remove(0);
        least.state.figures.expected_ns = 0;
        assert_eq!(expected(&least), "≥ 9.50");
    }

    #[test]
    fn json_has_null_for_what_is_not_known() {
        let json = object(&known()[1].facts());
        assert_eq!((&json["queue"], &json["policy"]), (&json!(4), &json!("poll")));
        assert!(json["expected_ns"].is_null() && json["cpu_per_io_ns"].is_null());
        assert_eq!(object(&known()[0].facts())["expected_low_ns"], json!(9_500));
    }
}
