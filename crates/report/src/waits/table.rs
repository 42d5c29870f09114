//! The tables of a cell and of the summary, and the words around them.

use std::collections::BTreeMap;

use askama::Template;
use itertools::Itertools as _;

use super::figures::{Baseline, CellResult, Figures, Reference};
use super::summary::{AS_QUICK, Ratio, Summary};
use crate::figures::{self, wrapped};
use crate::plot::Style;
use crate::table::{self, Cell, Column, Head, Row, Table, decimals, iops, us};
use crate::view;

/// A policy in a cell.
type CellPolicy<'a> = (&'a CellResult, &'a Figures);

/// The columns of a cell's table.
fn columns<'a>() -> Vec<Column<CellPolicy<'a>>> {
    let column = table::column::<CellPolicy<'a>>;
    vec![
        column("mean", "µs", |(_, way)| latency(way, way.mean_ns)),
        column("mean", "× poll", |(cell, way)| cell.mean_over_poll(way).map(ratio)),
        column("mean", "by turns", |(cell, way)| cell.mean_over_poll_by_turns(way).map(ratio)),
        column("p50", "µs", |(_, way)| latency(way, way.p50_ns as f64)),
        column("p99", "µs", |(_, way)| latency(way, way.p99_ns as f64)),
        column("p99.9", "µs", |(_, way)| latency(way, way.p99_9_ns as f64)),
        column("1 in 6,000", "µs", |(_, way)| way.slowest_ns.map(|ns| us(ns as f64))),
        column("max", "µs", |(_, way)| latency(way, way.max_ns as f64)),
        column("IOPS", "", |(_, way)| Some(iops(way.iops))),
        column("CPU", "%", |(_, way)| Some(decimals::<1>(way.cpu_percent))),
        column("IOPS /", "CPU-%", |(_, way)| way.iops_per_cpu_percent().map(iops)),
        column("CPU", "× informed", |(cell, way)| cell.cpu_over_informed(way).map(ratio)),
        column("CPU over", "oracle %", |(cell, way)| {
            Some(format!("{:+.1}", cell.cpu_above_oracle_percent(way)?).into())
        }),
        column("overslept", "% sleeps", |(_, way)| way.overslept_sleeps_percent().map(percent)),
        column("overslept", "% I/Os", |(_, way)| way.overslept_ios_percent().map(percent)),
        column("rival", "% kept", |(_, way)| Some(decimals::<0>(way.competing?.share_percent))),
        column("p99.9 µs", "beside it", |(_, way)| Some(us(way.competing?.p99_9_ns as f64))),
    ]
}

/// The columns of the summary.
fn summary_columns<'a>() -> Vec<Column<&'a Summary>> {
    let column = table::column::<&'a Summary>;
    vec![
        column("at most", "× 1.03", |of| {
            Some(format!("{} of {}", of.as_quick_cells, of.cells).into())
        }),
        column("mean × poll,", "median", |of| Some(ratio(of.mean_over_poll.as_ref()?.median))),
        column("worst", "", |of| worst(&of.mean_over_poll)),
        column("CPU %,", "median", |of| of.cpu_percent.map(decimals::<1>)),
        column("CPU × informed,", "median", |of| {
            Some(ratio(of.cpu_over_informed.as_ref()?.median))
        }),
        column("worst", "", |of| worst(&of.cpu_over_informed)),
        column("overslept %,", "median", |of| of.overslept_percent.map(percent)),
        column("rival %,", "median", |of| of.share_percent.map(decimals::<0>)),
        column("dominates", "in cells", |of| Some(of.cells_dominating.to_string().into())),
        column("dominated", "in cells", |of| Some(of.cells_dominated.to_string().into())),
    ]
}

fn worst(of: &Option<Ratio>) -> Option<Cell> {
    let Ratio { worst, worst_cell, .. } = of.as_ref()?;
    Some(format!("{} in {worst_cell}", ratio_text(*worst)).into())
}

/// Returns a policy's row with its marker. `names` are the names of all policies.
fn row(names: &[String], name: &str) -> Row {
    let sample = Some(Style::of(names, name).sample(true));
    Row { sample, name: name.to_owned(), ..Row::default() }
}

/// Returns the table of a cell.
pub(crate) fn of_cell(cell: &CellResult, names: &[String]) -> Table {
    let rows = cell.ways.iter().map(|way| (row(names, &way.completion), (cell, way))).collect();
    Table::of(cell.cell.name.clone(), "completion", columns(), vec![(None, rows)])
}

/// Returns the table of all cells together, by policy.
pub(crate) fn of_all(summaries: &[Summary], names: &[String]) -> Table {
    let rows = summaries.iter().map(|one| (row(names, &one.completion), one)).collect();
    let label = "all cells together".to_owned();
    Table::of(label, "completion", summary_columns(), vec![(None, rows)])
}

/// Returns a cell's description, and a row for each policy.
pub fn cell_table(cell: &CellResult, width: usize) -> String {
    let table = of_cell(cell, &[]).text(width);
    format!("{}: {}\n{table}{}", cell.cell.name, cell.cell.shape[1], below(cell))
}

/// The notes below a cell's rows, a line for each.
#[derive(Template)]
#[template(path = "below.txt", escape = "none")]
struct Below<'a> {
    cell: &'a CellResult,
    spread_percent: Option<(f64, f64)>,
    crowded: Option<&'a Baseline>,
}

impl Reference {
    fn words(&self) -> String {
        let mean_us = figures::us(self.mean_ns);
        format!("{mean_us} µs with {:.1} % CPU", self.cpu_percent)
    }
}

/// Returns the notes below a cell's rows, in a line.
pub(crate) fn below(cell: &CellResult) -> String {
    let poll = cell.poll.as_ref();
    let spread = |poll: &Baseline| Some((poll.mean_spread? * 100.0, poll.cpu_spread_percent?));
    let crowded = poll.filter(|poll| poll.is_crowded());
    let notes = view::render(&Below { cell, spread_percent: poll.and_then(spread), crowded });
    if notes.is_empty() { notes } else { notes.lines().join("; ") + "\n" }
}

/// Returns the summary of all cells, with a verdict for each policy.
pub fn summary_table(summaries: &[Summary], cells: usize, width: usize) -> String {
    let (table, cells) = (of_all(summaries, &[]).text(width), counted(cells));
    let goal = format!(
        "Goal: a mean of at most {AS_QUICK} × poll's in every cell. A way that misses it is slower \
         in some cell: that is a finding, and no error."
    );
    let verdicts = summaries.iter().map(|of| verdict(of) + "\n").collect::<String>();
    format!("All of {cells}\n{table}{}\n{verdicts}", wrapped(&goal, width))
}

/// Returns a number of cells in words.
pub(crate) fn counted(cells: usize) -> String {
    if cells == 1 { "1 cell".to_owned() } else { format!("{cells} cells") }
}

/// The verdict on a policy, in a line.
#[derive(Template)]
#[template(path = "verdict.txt", escape = "none")]
struct Verdict<'a> {
    of: &'a Summary,
    /// Number of cells in which another policy dominates it, by policy.
    dominated_by: BTreeMap<String, usize>,
}

impl Verdict<'_> {
    fn list(&self, counts: &BTreeMap<String, usize>) -> String {
        counts.iter().map(|(other, cells)| format!("{other} in {cells}")).join(", ")
    }
}

/// Returns the verdict on a policy, in a line.
pub(crate) fn verdict(of: &Summary) -> String {
    let dominated_by = of.dominated_by.values().flatten().cloned().counts().into_iter().collect();
    view::render(&Verdict { of, dominated_by })
}

/// Returns the legend of all tables: the meaning of the columns.
pub fn legend(cells: &[CellResult]) -> String {
    let heads = cells.iter().flat_map(|cell| of_cell(cell, &[]).heads);
    let heads = heads.unique_by(|head| head.explained);
    let headings =
        heads.map(|Head { text, unit, explained, .. }| format!("{text} {unit}: {explained}. "));
    let is_ours = |heading: &String| {
        ["overslept", "informed", "oracle", "rival"].iter().any(|of| heading.contains(of))
    };
    let headings: String = headings.filter(is_ours).collect();
    format!(
        "Latencies from submission to having seen the completion. {headings}One way dominates \
         another in a cell if it is not worse in mean latency and in CPU, and better in one of \
         them, by more than two runs of poll differ there (and more than 1 %)."
    )
}

fn latency(way: &Figures, ns: f64) -> Option<Cell> {
    (way.ios > 0).then(|| us(ns))
}

/// Formats a ratio with enough digits to distinguish it from 1.
pub(crate) fn ratio_text(ratio: f64) -> String {
    if ratio < 9.995 { format!("{ratio:.3}") } else { format!("{ratio:.1}") }
}

fn ratio(ratio: f64) -> Cell {
    ratio_text(ratio).into()
}

fn percent(percent: f64) -> Cell {
    if percent >= 9.95 || percent == 0.0 { decimals::<0>(percent) } else { decimals::<2>(percent) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waits::figures::{Competing, References};
    use crate::waits::summary::summaries;
    use crate::waits::testing::{cell, way};

    #[test]
    fn a_cell_shows_what_is_known() {
        let mut slept = way("pas", 11.0, 40.0);
        (slept.sleeps, slept.oversleeps) = (1_000, 10);
        let mut cell = cell(&[way("poll", 10.0, 98.0), slept], (10.0, 98.0), (10.2, 97.0));
        let text = cell_table(&cell, 120);
        for expected in
            ["10us-lognormal", "11.00", "1.089", "overslept", "poll twice differs by 2.0 %", "1.00"]
        {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(!text.contains("rival") && !text.contains("informed"), "{text}");
        assert!(text.ends_with("\npoll twice differs by 2.0 % and 1.0 % of a CPU\n"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
        let reference = Reference { mean_ns: 10_100.0, cpu_percent: 32.0, reachable: true };
        cell.references = Some(References { informed: reference, oracle: reference });
        cell.ways[1].competing =
            Some(Competing { share_percent: 61.0, mean_ns: 12_000.0, p99_9_ns: 50_000 });
        cell.ways[1].means_ns = vec![11_000.0];
        let text = cell_table(&cell, 120);
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
        assert_eq!(text.matches("completion").count(), 2, "{text}");
        for expected in ["rival", "61", "1.250", "+8.0", "informed 10.10 µs with 32.0 % CPU"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        cell.ways[1].errors = 3;
        assert!(below(&cell).ends_with("with 32.0 % CPU; 3 I/Os of pas failed\n"));
    }

    #[test]
    fn a_goal_is_kept_if_it_is_kept_everywhere() {
        let cells = [cell(
            &[way("poll", 10.0, 98.0), way("pas", 11.0, 98.0), way("adaptive", 10.2, 58.0)],
            (10.0, 98.0),
            (10.4, 98.0),
        )];
        let lines: Vec<String> = summaries(&cells).iter().map(verdict).collect();
        assert_eq!(
            lines[0],
            "kept    poll: at most 1.03 × poll in 1 of 1; dominates pas in 1; \
             dominated by adaptive in 1"
        );
        assert_eq!(
            lines[1],
            "missed  pas: at most 1.03 × poll in 0 of 1; dominated by adaptive in 1, poll in 1"
        );
        assert_eq!(
            lines[2],
            "kept    adaptive: at most 1.03 × poll in 1 of 1; dominates pas in 1, poll in 1; \
             never dominated"
        );
        assert!(summary_table(&summaries(&cells), 1, 120).contains("All of 1 cell\n"));
    }
}
