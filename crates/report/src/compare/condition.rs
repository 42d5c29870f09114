//! Conditions on changes, such as `p99>+5%`.

use std::fmt;
use std::str::FromStr;

use super::method::Test;
use super::{METRICS, Metric};

/// A change that must not be: one above a limit, or below it.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    text: String,
    metric: &'static str,
    is_above: bool,
    limit: f64,
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let at = text.find(['<', '>'])?;
            let name = text[..at].trim();
            let metric = METRICS.iter().find(|known| known.name.eq_ignore_ascii_case(name))?.name;
            let percent = text[at + 1..].trim().strip_suffix('%')?.trim_end();
            let percent: f64 = percent.starts_with(['+', '-']).then(|| percent.parse().ok())??;
            let limit = 1.0 + percent / 100.0;
            let is_above = text[at..].starts_with('>');
            let condition = Self { text: text.to_owned(), metric, is_above, limit };
            (limit.is_finite() && limit > 0.0).then_some(condition)
        };
        read().ok_or_else(|| {
            "expected mean, p50, p99, iops or cpu, then > or <, then a change in percent with its \
             sign, such as p99>+5% or iops<-5%"
                .to_owned()
        })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Condition {
    /// Returns whether it is about `metric`.
    pub(super) fn is_about(&self, metric: &Metric) -> bool {
        self.metric == metric.name
    }

    /// Returns whether a change by the factor `ratio` is beyond the limit.
    pub(super) fn is_beyond(&self, ratio: f64) -> bool {
        if self.is_above { ratio > self.limit } else { ratio < self.limit }
    }

    /// Returns whether the whole interval is beyond the limit.
    pub(super) fn holds(&self, test: &Test) -> bool {
        if self.is_above { test.low > self.limit } else { test.high < self.limit }
    }
}
