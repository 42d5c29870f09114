//! The tables: a row for each result, grouped by device.

use itertools::Itertools as _;

use super::latency::Latency;
use super::model::{Block, Job, Report, Run, device_name};
use super::read::CAVEAT_CLAT;
use crate::figures::{change, grouped, iops, none};
use crate::run::SLOWEST_ONE_IN;
use crate::view::{Cell, Device, Group, Head, Row, Table};

/// A column of figures.
struct Column {
    heading: &'static str,
    unit: &'static str,
    explained: &'static str,
    figure: Figure,
    shown: fn(f64) -> String,
    best: Best,
}

const fn column(
    heading: &'static str,
    unit: &'static str,
    explained: &'static str,
    figure: Figure,
    shown: fn(f64) -> String,
    best: Best,
) -> Column {
    Column { heading, unit, explained, figure, shown, best }
}

type Figure = fn(&Run) -> Option<f64>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Best {
    Least,
    Most,
    Neither,
}

use Best::{Least, Most, Neither};

/// Heading, explanation and figure of each column in µs.
const LATENCIES: [(&str, &str, Figure); 7] = [
    ("mean", "mean latency", Run::mean_ns),
    ("p50", "half of the I/Os took no longer", |run| run.latency.known_percentile_ns(50.0)),
    ("p99", "99 % of the I/Os took no longer", |run| run.latency.known_percentile_ns(99.0)),
    ("p99.9", "99.9 % of the I/Os took no longer", |run| run.latency.known_percentile_ns(99.9)),
    ("1 in 6,000", "the slowest one in 6,000 I/Os took at least so long", |run| run.slowest_ns),
    ("p99.99", "99.99 % of the I/Os took no longer", |run| run.latency.known_percentile_ns(99.99)),
    ("max", "the slowest I/O", |run| (run.latency.n > 0).then_some(run.latency.max_ns)),
];

/// The other columns. Those after the third are shown if a result has a figure for them.
const OTHERS: [Column; 8] = [
    column("IOPS", "", "I/Os per second", |run| Some(run.iops), iops, Most),
    column(
        "CPU",
        "%",
        "user and system time of the waiting threads over wall time",
        |run| run.cpu_percent,
        |figure| format!("{figure:.1}"),
        Least,
    ),
    column(
        "IOPS /",
        "CPU-%",
        "I/Os per second for each percent of a CPU",
        Run::iops_per_cpu_percent,
        iops,
        Most,
    ),
    column(
        "energy",
        "µJ/I/O",
        "energy of the processors, with everything that ran meanwhile, for each I/O",
        |run| run.energy_uj_per_io,
        |figure| format!("{figure:.2}"),
        Least,
    ),
    column(
        "competitor",
        "% kept",
        "what a program that competes for the same core kept of its lone speed",
        |run| run.competitor_percent,
        whole,
        Most,
    ),
    column(
        "floor",
        "ns",
        "what no protocol between two cores can beat, measured in the same run",
        |run| run.floor_ns,
        whole,
        Neither,
    ),
    column(
        "to floor",
        "×",
        "median, over all turns, of a turn's median latency to the floor around it",
        |run| run.floor_ratio,
        |figure| format!("{figure:.2}"),
        Least,
    ),
    column(
        "errors",
        "",
        "I/Os that failed, and blocks that were not what had been written",
        |run| (run.errors > 0).then_some(run.errors as f64),
        whole,
        Neither,
    ),
];

fn whole(figure: f64) -> String {
    format!("{figure:.0}")
}

fn columns(job: &Job) -> Vec<Column> {
    let latencies = LATENCIES
        .into_iter()
        .map(|(heading, explained, figure)| column(heading, "µs", explained, figure, us, Least));
    let known = |column: &Column| job.runs().any(|run| (column.figure)(run).is_some());
    let (always, sometimes) = (OTHERS.into_iter().take(3), OTHERS.into_iter().skip(3));
    latencies.chain(always).chain(sometimes.filter(known)).collect()
}

/// Returns the table of a job.
pub(super) fn table(report: &Report, job: &Job) -> Table {
    let columns = columns(job);
    let head = |text: &str, unit, explained| Head { text: text.to_owned(), unit, explained };
    let mut heads: Vec<Head> =
        columns.iter().map(|of| head(of.heading, of.unit, of.explained)).collect();
    heads.push(head("mean", "vs first", "change of the mean against the device's first row"));
    if report.sources.len() > 1 {
        let explained =
            "change of the mean against the same way to wait in the first file that has it";
        heads.push(head("mean", "vs file", explained));
    }
    let groups = job.blocks.iter().map(|block| Group {
        device: Some(device(report, block, &job.blocks[0])),
        rows: rows(block, &columns, heads.len()),
    });
    Table {
        label: format!("{} – {}", job.name, job.workload.words()),
        first: "way to wait",
        groups: groups.collect(),
        heads,
    }
}

/// Formats µs with only the useful digits: `7.61`, `182.4`, `34,392`.
fn us(ns: f64) -> String {
    match ns / 1e3 {
        us if us < 99.995 => format!("{us:.2}"),
        us if us < 999.95 => format!("{us:.1}"),
        us => grouped(us),
    }
}

fn device(report: &Report, block: &Block, first: &Block) -> Device {
    let name = device_name(&block.device);
    let uri = if name == block.device { "" } else { &block.device };
    let machine = block.machine.map(|at| &report.sources[at].label);
    let machine = machine.map_or(String::new(), |label| format!("on the machine of {label}"));
    let asides = [uri.to_owned(), block.medium.clone(), machine];
    let asides = asides.into_iter().filter(|aside| !aside.is_empty()).collect();
    Device { name, asides, is_another: block.is_other_device_than(first) }
}

/// Returns a row for each result, and one for each direction of a mixed one.
fn rows(block: &Block, columns: &[Column], width: usize) -> Vec<Row> {
    let first_ns = block.runs.first().and_then(Run::mean_ns);
    let best: Vec<Option<f64>> = columns.iter().map(|column| best(column, &block.runs)).collect();
    let most = |column: &Column| block.runs.iter().filter_map(column.figure).fold(0.0, f64::max);
    let most: Vec<f64> = columns.iter().map(most).collect();
    let mut rows = Vec::new();
    for (nth, run) in block.runs.iter().enumerate() {
        let mut cells: Vec<Cell> = Vec::with_capacity(width);
        for (at, Column { heading, figure, shown, .. }) in columns.iter().enumerate() {
            let figure = figure(run);
            let is_best = figure.is_some() && figure == best[at];
            let bar = figure.filter(|_| ["mean", "CPU"].contains(heading) && most[at] > 0.0);
            let class = match (bar.is_some(), is_best) {
                (true, true) => "bar best",
                (true, false) => "bar",
                (false, true) => "best",
                (false, false) => "",
            };
            let bar = bar.map(|figure| format!("{:.1}", figure / most[at] * 100.0));
            let none = if *heading == "errors" { whole(0.0) } else { none() };
            let text = figure.map_or(none, shown);
            cells.push(Cell { class, bar, text, ..Cell::default() });
        }
        let against = |other: Option<f64>| match (run.mean_ns(), other) {
            (Some(ours), Some(other)) => change(ours, other).into(),
            _ => none().into(),
        };
        cells.push(against(first_ns.filter(|_| nth > 0)));
        if cells.len() < width {
            let same = block.runs.iter().find(|other| other.way == run.way);
            cells.push(against(same.filter(|of| of.source != run.source).and_then(Run::mean_ns)));
        }
        let notes = run.caveats.iter().map(|caveat| (mark(caveat), *caveat)).collect();
        let (swatch, name) = (Some(run.style.swatch(false)), run.label.clone());
        rows.push(Row { swatch, name, notes, cells, ..Row::default() });
        let directions = run.directions.iter();
        rows.extend(directions.map(|(name, of, rate)| direction(name, of, *rate, width)));
    }
    rows
}

/// Returns the row of reads or writes of a mixed job: their latencies and IOPS.
fn direction(name: &str, latency: &Latency, rate: f64, width: usize) -> Row {
    let slowest_ns = latency.slowest_1_in(SLOWEST_ONE_IN);
    let part = Run { latency: latency.clone(), slowest_ns, ..Run::default() };
    let figures = LATENCIES.iter().map(|(_, _, figure)| figure(&part).map_or_else(none, us));
    let mut cells: Vec<Cell> = figures.chain([iops(rate)]).map(Cell::from).collect();
    cells.resize_with(width, Cell::default);
    Row { class: "direction", name: format!("{name}s of these"), cells, ..Row::default() }
}

/// Returns the best figure, if there is more than one and they differ.
fn best(column: &Column, runs: &[Run]) -> Option<f64> {
    let figures = runs.iter().filter(|run| run.latency.n > 0).filter_map(column.figure);
    let (least, most) = figures.minmax_by(f64::total_cmp).into_option()?;
    match column.best {
        Least if least < most => Some(least),
        Most if least < most => Some(most),
        _ => None,
    }
}

fn mark(caveat: &str) -> &'static str {
    if caveat == CAVEAT_CLAT { "‡" } else { "§" }
}

/// Returns notes that a reader needs for the table, each with whether it is important.
pub(super) fn notes(report: &Report, job: &Job) -> Vec<(bool, String)> {
    let mut units = "Latencies in µs, reads and writes together, from submission to having seen \
                     the completion. "
        .to_owned();
    if job.blocks.iter().any(|block| block.runs.len() > 1) {
        units += "Bold: the best of its device. The bars begin at 0. ";
    }
    let mut notes = vec![(false, units)];
    let note = |text: &str| (false, text.to_owned());
    if job.runs().any(|run| run.competitor_percent.is_some()) {
        notes.push(note(
            "Competitor: the share of its lone speed that a program on the same core kept while \
             the I/O was done.",
        ));
    }
    if job.blocks.iter().any(|block| block.is_other_device_than(&job.blocks[0])) {
        let text = "† This is another device than the table's first, not another way to wait for \
                    the same one: its latencies contain another device's time, and are not a \
                    like-for-like comparison.";
        notes.push((true, text.to_owned()));
    } else if job.blocks.len() > 1 {
        notes.push(note(
            "Compare rows of one device; different devices take different times by themselves.",
        ));
    }
    let beside = |run: &&Run| job.runs().any(|ours| ours.ran_beside(run));
    let beside = report.jobs.iter().flat_map(Job::runs).filter(beside);
    let beside = beside.map(|run| &run.job).unique().join(", ");
    if !beside.is_empty() {
        let what = "what they did is in these figures.";
        notes.push((false, format!("Ran at the same time as {beside}: {what}")));
    }
    for caveat in job.runs().flat_map(|run| &run.caveats).unique() {
        notes.push((false, format!("{} This result: {caveat}.", mark(caveat))));
    }
    notes
}

#[cfg(test)]
mod unit_tests {
    use super::*;

    #[test]
    fn latencies_in_us() {
        let shown = [0.0, 7_614.0, 182_400.0, 999_949.0, 999_950.0, 34_392_000.0, 1.5e12].map(us);
        assert_eq!(shown, ["0.00", "7.61", "182.4", "999.9", "1,000", "34,392", "1,500,000,000"]);
    }
}
