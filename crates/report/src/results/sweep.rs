//! Sweeps: results of jobs that differ in one or two swept keys only, as a grid.

#[cfg(test)]
mod tests;

use itertools::Itertools as _;

use super::model::{Block, Job, Report, Run, device_name};
use super::tables;
use super::workload::size_bytes;
use crate::plot::Style;
use crate::table::{Table, Title};

/// The keys that are axes, in the order of preference. Other keys, and those beyond two, divide
/// sweeps.
const AXES: [&str; 4] = ["bs", "iodepth", "numjobs", "rwmixread"];

/// Cells of one job on one device.
pub(super) struct Sweep<'a> {
    /// The job's name, with the swept values that all cells have in common.
    pub name: String,
    pub device: &'a str,
    /// The source that identifies the machine, or `None` if all results are of one machine.
    pub machine: Option<usize>,
    /// The swept keys.
    pub axes: Vec<&'static str>,
    pub cells: Vec<Cell<'a>>,
}

/// The results with one value for each axis.
pub(super) struct Cell<'a> {
    pub values: Vec<&'a str>,
    job: &'a Job,
    pub runs: &'a [Run],
}

impl Job {
    /// Returns whether it is a cell of a sweep with axes.
    pub(super) fn is_swept(&self) -> bool {
        self.runs().next().is_some_and(|run| !axes(run).is_empty())
    }
}

fn axes(run: &Run) -> Vec<&'static str> {
    AXES.into_iter().filter(|axis| run.sweep.contains_key(*axis)).take(2).collect()
}

/// Returns all sweeps of a report.
pub(super) fn sweeps(report: &Report) -> Vec<Sweep<'_>> {
    let mut sweeps: Vec<Sweep<'_>> = Vec::new();
    let blocks = report.jobs.iter().flat_map(|job| job.blocks.iter().map(move |of| (job, of)));
    for (job, Block { device, machine, runs, .. }) in blocks {
        let Some(first) = runs.first() else { continue };
        let axes = axes(first);
        if axes.is_empty() {
            continue;
        }
        let word = |axis: &&str| format!("{axis}={}", first.sweep[*axis]);
        let words: Vec<String> = axes.iter().map(word).collect();
        let name = first.job.split(' ').filter(|word| !words.iter().any(|of| of == word)).join(" ");
        let values = axes.iter().map(|axis| first.sweep[*axis].as_str()).collect();
        let cell = Cell { values, job, runs };
        let same = |sweep: &&mut Sweep<'_>| {
            (&sweep.name, sweep.device, sweep.machine, &sweep.axes)
                == (&name, device.as_str(), *machine, &axes)
        };
        match sweeps.iter_mut().find(same) {
            Some(sweep) => sweep.cells.push(cell),
            None => {
                let machine = *machine;
                sweeps.push(Sweep { name, device, machine, axes, cells: vec![cell] });
            }
        }
    }
    sweeps
}

impl Sweep<'_> {
    /// Returns the values of an axis, ascending.
    pub(super) fn values(&self, axis: usize) -> Vec<&str> {
        let values = self.cells.iter().map(|cell| cell.values[axis]).unique();
        values.sorted_by_key(|value| (size_bytes(value).unwrap_or(u64::MAX), *value)).collect()
    }

    /// Returns the ways to wait, each with its style.
    pub(super) fn ways(&self) -> Vec<(&str, Style)> {
        let runs = self.cells.iter().flat_map(|cell| cell.runs);
        runs.map(|run| (run.label.as_str(), run.style)).unique_by(|(label, _)| *label).collect()
    }

    /// Returns the result of a way to wait at a place, if it was measured and did I/O.
    pub(super) fn run(&self, way: &str, values: &[&str]) -> Option<&Run> {
        let cell = self.cells.iter().find(|cell| cell.values == values)?;
        cell.runs.iter().find(|run| run.label == way && run.latency.n > 0)
    }

    /// Returns the device, with the label of its machine where there are several.
    pub(super) fn place(&self, report: &Report) -> String {
        let machine = self.machine.map(|at| format!(", {}", report.sources[at].label));
        device_name(self.device) + &machine.unwrap_or_default()
    }

    /// Returns its axes with the numbers of values.
    pub(super) fn setting(&self) -> String {
        let axis = |(at, axis)| format!("{} values of {axis}", self.values(at).len());
        self.axes.iter().enumerate().map(axis).join(" × ")
    }

    /// Returns its table, with a group of rows for each cell.
    pub(super) fn table(&self) -> Table {
        let cell = |Cell { values, job, .. }: &Cell<'_>| {
            let mut name = self.axes.iter().zip(values).map(|(axis, of)| format!("{axis}={of}"));
            let asides = vec![job.workload.words.clone(), job.workload.setting.clone()];
            Title { name: name.join(" "), asides, is_another: false }
        };
        let cells = self.cells.iter().map(|of| (Some(cell(of)), tables::rows(of.runs)));
        tables::of(format!("{} – all cells", self.name), cells.collect())
    }

    /// Describes how often each way to wait was the quickest.
    pub(super) fn finding(&self) -> String {
        let done = |cell: &Cell<'_>| {
            let ways = self.ways().into_iter();
            let means = ways.filter_map(|(way, _)| {
                Some((way.to_owned(), self.run(way, &cell.values)?.mean_ns()?))
            });
            means.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(way, _)| way)
        };
        let quickest: Vec<String> = self.cells.iter().filter_map(done).collect();
        let counts = quickest.iter().counts().into_iter();
        let counts = counts.sorted_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        let of = self.cells.len();
        let mut words = counts.enumerate().map(|(at, (way, count))| match at {
            0 => format!("{way} has the lowest mean in {count} of {of} cells"),
            _ => format!("{way} in {count}"),
        });
        if quickest.is_empty() { "no I/O was done.".to_owned() } else { words.join(", ") + "." }
    }
}
