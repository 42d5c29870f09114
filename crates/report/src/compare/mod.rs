//! Runs before a change beside runs after it: what became faster, what slower, and what is not
//! clear.
//!
//! Only the same job on the same device with the same policy is compared. `method` has the
//! statistics, `show` the table, the JSON and Markdown.

mod condition;
mod method;
mod show;

#[cfg(test)]
mod tests;

pub use condition::Condition;

use itertools::Itertools as _;
use serde_json::Value;

use crate::figures;
use crate::results::{Job, Report, Run, Source, printable};
use method::{ALPHA, Change, Test, VALUES_MIN};

/// A comparison of two groups of runs.
#[derive(Debug)]
pub struct Comparison {
    /// All files, those from before first.
    report: Report,
    are_pairs: bool,
    cells: Vec<Cell>,
    /// Cells of one side only: those before, and those after.
    alone: [Vec<String>; 2],
}

/// A job on a device with a policy.
#[derive(Debug)]
struct Cell {
    name: String,
    job: String,
    device: String,
    way: String,
    figures: Vec<Figure>,
}

/// A figure before and after.
#[derive(Debug)]
struct Figure {
    metric: &'static Metric,
    /// The numbers of values.
    values: [usize; 2],
    /// The geometric means.
    means: [f64; 2],
    /// `None` if a side has no value.
    change: Option<Change>,
    /// The probability of such a change by chance, corrected for all tests of the comparison.
    p: Option<f64>,
    /// What its verdict leaves out, and why there is none.
    notes: Vec<String>,
}

/// A figure that is compared.
#[derive(Debug)]
struct Metric {
    name: &'static str,
    key: &'static str,
    of: fn(&Run) -> Option<f64>,
    shown: fn(f64) -> String,
    /// What a run is whose figure is less, and one whose figure is more.
    words: [&'static str; 2],
}

const TIMES: Metric =
    Metric { name: "mean", key: "mean_ns", of: Run::mean_ns, shown: figures::time, words: QUICK };
const QUICK: [&str; 2] = ["faster", "slower"];
const SLOW: [&str; 2] = ["slower", "faster"];

static METRICS: [Metric; 5] = [
    TIMES,
    Metric { name: "p50", key: "p50_ns", of: |run| run.latency.known_percentile_ns(50.0), ..TIMES },
    Metric { name: "p99", key: "p99_ns", of: |run| run.latency.known_percentile_ns(99.0), ..TIMES },
    Metric {
        name: "IOPS",
        key: "iops",
        of: |run| Some(run.iops),
        shown: figures::iops,
        words: SLOW,
    },
    Metric {
        name: "CPU",
        key: "cpu_percent",
        of: |run| run.cpu_percent,
        shown: |percent| format!("{percent:.1} %"),
        words: ["less", "more"],
    },
];

/// Files of results, each with its path.
pub type Files = [(Option<String>, Value)];

impl Comparison {
    /// Compares `before` with `after`. With `are_pairs`, the files at the same place in both were
    /// made one after the other. An error of a file begins with its path.
    pub fn new(before: &Files, after: &Files, are_pairs: bool) -> Result<Self, String> {
        let mut report = Report::new(&[before, after].concat())?;
        report.before = Some(before.len());
        let files = report.sources.len();
        // The first run of each cell, and its runs by file.
        let mut found: Vec<(&Run, Vec<Option<&Run>>)> = Vec::new();
        for run in report.jobs.iter().flat_map(Job::runs) {
            // A file may have a cell several times: fio reports threads apart.
            let is_free = |(first, by_file): &(&Run, Vec<Option<&Run>>)| {
                first.is_cell_of(run) && by_file[run.source].is_none()
            };
            let at = found.iter().position(is_free).unwrap_or_else(|| {
                found.push((run, vec![None; files]));
                found.len() - 1
            });
            found[at].1[run.source] = Some(run);
        }
        let step = if report.sources.iter().any(Source::is_fio) { FIOS_STEP } else { STEP };
        let (mut cells, mut alone) = (Vec::<Cell>::new(), [Vec::new(), Vec::new()]);
        for (run, by_file) in found {
            let sides: [_; 2] = by_file.split_at(before.len()).into();
            let Run { job, workload, device, way, .. } = run;
            let name = format!("{job}, {}, {}, {device}, {way}", workload.words, workload.setting);
            let name = printable(&name);
            if let Some(side) = sides.iter().position(|side| side.iter().all(Option::is_none)) {
                alone[1 - side].push(name);
                continue;
            }
            let figure = |metric| Figure::new(metric, sides, are_pairs, step);
            let figures = METRICS.iter().map(figure).collect();
            let [job, device, way] = [job, device, way].map(String::clone);
            cells.push(Cell { name, job, device, way, figures });
        }
        if cells.is_empty() {
            let [before, after] = alone.map(|cells| cells.join("; "));
            return Err(format!("nothing is on both sides; before: {before}; after: {after}"));
        }
        let figures = cells.iter_mut().flat_map(|cell| &mut cell.figures);
        let mut tested: Vec<_> = figures.filter(|figure| figure.test().is_some()).collect();
        let ps: Vec<f64> = tested.iter().filter_map(|figure| Some(figure.test()?.p)).collect();
        tested.iter_mut().zip(method::holm(&ps)).for_each(|(figure, p)| figure.p = Some(p));
        Ok(Self { report, are_pairs, cells, alone })
    }

    /// Judges the changes by `conditions`.
    pub fn judge(&self, conditions: &[Condition]) -> Judged {
        let mut judged = Judged::default();
        for (condition, cell) in conditions.iter().cartesian_product(&self.cells) {
            for figure in cell.figures.iter().filter(|figure| condition.is_about(figure.metric)) {
                let is_beyond =
                    figure.change.as_ref().is_some_and(|change| condition.is_beyond(change.ratio));
                let into = match figure.test() {
                    Some(test) if condition.holds(&test) => &mut judged.met,
                    Some(_) if is_beyond => &mut judged.unclear,
                    Some(_) => continue,
                    None => &mut judged.unknown,
                };
                let [changed, interval] = [figure.changed(), figure.interval()];
                let text = format!("{condition}: {}: {changed} ({interval})", cell.name);
                into.push(std::iter::once(&text).chain(&figure.notes).join(", "));
            }
        }
        judged
    }
}

/// What `--fail-if` comes to: a line for each change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Judged {
    /// Those beyond a limit.
    pub met: Vec<String>,
    /// Those beyond a limit whose interval is not, as a whole: nothing is proved.
    pub unclear: Vec<String>,
    /// Those that cannot be judged.
    pub unknown: Vec<String>,
}

/// The relative width of a histogram's steps, ours and fio's.
const STEP: f64 = 1.0 / 1_000.0;
const FIOS_STEP: f64 = 1.0 / 64.0;

impl Figure {
    /// Compares `metric` in the runs of both sides, by file.
    fn new(
        metric: &'static Metric,
        sides: [&[Option<&Run>]; 2],
        are_pairs: bool,
        step: f64,
    ) -> Self {
        let value = |run: &Option<&Run>| run.and_then(metric.of).filter(|value| *value > 0.0);
        let [before, after] = sides.map(|side| side.iter().map(value));
        let (before, after): (Vec<f64>, Vec<f64>) = match are_pairs {
            true => before.zip(after).filter_map(|(before, after)| before.zip(after)).unzip(),
            false => (before.flatten().collect(), after.flatten().collect()),
        };
        let least_ns = before.iter().chain(&after).copied().fold(f64::INFINITY, f64::min);
        // Only percentiles have steps, of 1 ns at least.
        let step = if metric.name.starts_with('p') { step.max(1.0 / least_ns) } else { 0.0 };
        let compare = if are_pairs { method::paired } else { method::separate };
        let (values, means) = ([before.len(), after.len()], [&before, &after]);
        let means = means.map(|side| method::geometric_mean(side));
        let change = (!values.contains(&0)).then(|| compare(&before, &after, step));
        let mut notes = Vec::new();
        if change.is_none_or(|change| change.test.is_none()) {
            notes.push(match (values.iter().any(|count| *count < VALUES_MIN), are_pairs) {
                (true, true) => format!("fewer than {VALUES_MIN} pairs"),
                (true, false) => format!("fewer than {VALUES_MIN} values a side"),
                (false, _) => "the values do not scatter".to_owned(),
            });
        }
        let left_out = sides.concat().len() - values[0] - values[1];
        notes.extend((left_out > 0).then(|| format!("{left_out} missing or 0")));
        Self { metric, values, means, change, p: None, notes }
    }

    fn test(&self) -> Option<Test> {
        self.change?.test
    }

    /// Returns the verdict in words.
    fn verdict(&self) -> &'static str {
        match (self.change, self.p) {
            (Some(change), Some(p)) if p <= ALPHA => {
                self.metric.words[usize::from(change.ratio > 1.0)]
            }
            (_, Some(_)) => "not clear",
            _ => "no verdict",
        }
    }
}

impl Cell {
    /// Returns the verdict in words, such as `slower: mean, p50; not clear: p99, IOPS, CPU`.
    fn verdict(&self) -> String {
        let of = |word| {
            let figures = self.figures.iter().filter(|figure| figure.verdict() == word);
            format!("{word}: {}", figures.map(|figure| figure.metric.name).join(", "))
        };
        self.figures.iter().map(Figure::verdict).unique().map(of).join("; ")
    }
}
