//! The tables: a row for each result, grouped by device.

use itertools::Itertools as _;

use super::model::{Block, Job, Report, Run, device_name};
use super::read::CAVEAT_CLAT;
use crate::figures::change;
use crate::table::{self, Cell, Column, Row, Rows, Table, Title, decimals, iops, us};

/// The unit of the change against the first row of a device, where first rows differ.
const VS_FIRST: &str = "vs first";

/// Returns all columns of the tables.
fn columns<'a>() -> Vec<Column<&'a Run>> {
    let column = table::column::<&'a Run>;
    vec![
        column("mean", "µs", |run| Some(us(run.mean_ns()?).spread(run.spread.mean)))
            .best(f64::min)
            .bars(),
        column("p50", "µs", |run| Some(percentile(run, 50.0)?.spread(run.spread.p50)))
            .best(f64::min),
        column("p99", "µs", |run| Some(percentile(run, 99.0)?.spread(run.spread.p99)))
            .best(f64::min),
        column("p99.9", "µs", |run| percentile(run, 99.9)).best(f64::min),
        column("1 in 6,000", "µs", |run| run.slowest_ns.map(us)).best(f64::min),
        column("p99.99", "µs", |run| percentile(run, 99.99)).best(f64::min),
        column("max", "µs", |run| run.mean_ns().map(|_| us(run.latency.max_ns))).best(f64::min),
        column("IOPS", "", |run| Some(iops(run.iops).spread(run.spread.iops))).best(f64::max),
        column("CPU", "%", |run| Some(decimals::<1>(run.cpu_percent?).spread(run.spread.cpu)))
            .best(f64::min)
            .bars(),
        column("IOPS /", "CPU-%", |run| run.iops_per_cpu_percent().map(iops)).best(f64::max),
        column("energy", "µJ/I/O", |run| run.energy_uj_per_io.map(decimals::<2>)).best(f64::min),
        column("rival", "% kept", |run| run.competitor_percent.map(decimals::<0>)).best(f64::max),
        column("floor", "ns", |run| run.floor_ns.map(decimals::<0>)),
        column("floor ratio", "×", |run| run.floor_ratio.map(decimals::<2>)).best(f64::min),
        column("errors", "", |run| (run.errors > 0).then(|| run.errors.to_string().into())),
        column("mean", VS_FIRST, |run| against(run, run.first_ns)),
        column("mean", "vs file", |run| against(run, run.before_ns)),
    ]
}

fn percentile(run: &Run, percentile: f64) -> Option<Cell> {
    run.latency.known_percentile_ns(percentile).map(us)
}

fn against(run: &Run, other_ns: Option<f64>) -> Option<Cell> {
    Some(change(run.mean_ns()?, other_ns?).into())
}

impl Report {
    /// Returns the table that `bench` prints.
    pub fn table(&self, width: usize) -> String {
        all(self).text(width)
    }
}

/// Returns the table of all jobs.
pub(super) fn all(report: &Report) -> Table {
    let groups = report.jobs.iter().flat_map(|job| {
        let named = format!("{}, {}: ", job.name, job.workload.words);
        groups(report, job, &named)
    });
    of(String::new(), groups.collect())
}

/// Returns the table of a job.
pub(super) fn table(report: &Report, job: &Job) -> Table {
    of(format!("{} – {}", job.name, job.workload.words), groups(report, job, ""))
}

/// Returns the table of these rows.
pub(super) fn of(label: String, groups: Vec<Rows<&Run>>) -> Table {
    let first = |(_, rows): &Rows<&Run>| rows.first().map(|(row, _)| row.name.clone());
    let mut names = groups.iter().filter_map(first).unique();
    let (name, other) = (names.next(), names.next());
    let mut table = Table::of(label, "way to wait", columns(), groups);
    // With the same first row everywhere, the heading says which it is.
    if let (Some(name), None) = (name, other)
        && let Some(head) = table.heads.iter_mut().find(|head| head.unit == VS_FIRST)
    {
        head.unit = format!("vs {name}");
    }
    table
}

fn groups<'a>(report: &Report, job: &'a Job, named: &str) -> Vec<Rows<&'a Run>> {
    let group = |block: &'a Block| {
        let mut title = title(report, block, &job.blocks[0]);
        title.name.insert_str(0, named);
        (Some(title), rows(&block.runs))
    };
    job.blocks.iter().map(group).collect()
}

fn title(report: &Report, block: &Block, first: &Block) -> Title {
    let name = device_name(&block.device);
    let uri = if name == block.device { "" } else { &block.device };
    let machine = block.machine.map(|at| &report.sources[at].label);
    let machine = machine.map_or(String::new(), |label| format!("on the machine of {label}"));
    let asides = [uri.to_owned(), block.medium.clone(), machine];
    let asides = asides.into_iter().filter(|aside| !aside.is_empty()).collect();
    Title { name, asides, is_another: block.medium != first.medium }
}

/// Returns a row for each result, and one for each direction of a mixed one.
pub(super) fn rows(runs: &[Run]) -> Vec<(Row, &Run)> {
    let mut rows = Vec::new();
    for run in runs {
        let notes = run.caveats.iter().map(|caveat| (mark(caveat), *caveat)).collect();
        let (sample, name) = (Some(run.style.sample(false)), run.label.clone());
        rows.push((Row { sample, name, notes, ..Row::default() }, run));
        rows.extend(run.directions.iter().map(|part| {
            let name = format!("{}s of these", part.label);
            (Row { class: "direction", name, ..Row::default() }, part)
        }));
    }
    rows
}
/// Returns the mark of a caveat after a name.
pub(super) fn mark(caveat: &str) -> &'static str {
    if caveat == CAVEAT_CLAT { "‡" } else { "§" }
}
