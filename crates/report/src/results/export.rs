//! The results for other programs: as CSV, a row for each result, and as Markdown.

use itertools::Itertools as _;

use super::model::{Report, Run};
use super::tables;

/// A column of the CSV: its name with the unit, and its figure.
type Column = (&'static str, fn(&Run) -> Option<f64>);

/// The figures, unrounded. A figure that is not known is left empty.
const COLUMNS: [Column; 20] = [
    ("ios", |run| Some(run.latency.n as f64)),
    ("mean_ns", Run::mean_ns),
    ("mean_spread_percent", |run| run.spread.mean),
    ("p50_ns", |run| run.latency.known_percentile_ns(50.0)),
    ("p50_spread_percent", |run| run.spread.p50),
    ("p99_ns", |run| run.latency.known_percentile_ns(99.0)),
    ("p99_spread_percent", |run| run.spread.p99),
    ("p99.9_ns", |run| run.latency.known_percentile_ns(99.9)),
    ("slowest_1_in_6000_ns", |run| run.slowest_ns),
    ("p99.99_ns", |run| run.latency.known_percentile_ns(99.99)),
    ("max_ns", |run| run.mean_ns().map(|_| run.latency.max_ns)),
    ("iops", |run| Some(run.iops)),
    ("iops_spread_percent", |run| run.spread.iops),
    ("cpu_percent", |run| run.cpu_percent),
    ("cpu_spread_percent", |run| run.spread.cpu),
    ("energy_uj_per_io", |run| run.energy_uj_per_io),
    ("competitor_percent", |run| run.competitor_percent),
    ("floor_ns", |run| run.floor_ns),
    ("floor_ratio", |run| run.floor_ratio),
    ("errors", |run| Some(run.errors as f64)),
];

impl Report {
    /// Returns all results as CSV (RFC 4180) with a line of names. Swept keys are columns of their
    /// own.
    pub fn csv(&self) -> String {
        let runs = || self.jobs.iter().flat_map(super::model::Job::runs);
        let swept: Vec<&String> =
            runs().flat_map(|run| run.sweep.keys()).unique().sorted().collect();
        let names = ["file", "job", "device", "completion"].into_iter();
        let names = names.chain(swept.iter().map(|key| key.as_str()));
        let names = names.chain(COLUMNS.iter().map(|(name, _)| *name)).map(str::to_owned);
        let row = |run: &Run| {
            let file = &self.sources[run.source].label;
            let words = [file, &run.job, &run.device, &run.way].map(|word| word.clone());
            let values = swept.iter().map(|key| run.sweep.get(*key).cloned().unwrap_or_default());
            let figure =
                |(_, of): &Column| of(run).map_or(String::new(), |figure| figure.to_string());
            line(words.into_iter().chain(values).chain(COLUMNS.iter().map(figure)))
        };
        line(names) + &runs().map(row).collect::<String>()
    }

    /// Returns the tables as Markdown.
    pub fn markdown(&self) -> String {
        tables::all(self).markdown()
    }
}

/// Returns a line of CSV.
fn line(fields: impl Iterator<Item = String>) -> String {
    let quoted = |field: String| match field.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field,
    };
    fields.map(quoted).join(",") + "\r\n"
}
