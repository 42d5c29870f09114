//! The results as text.

use std::fmt::Write as _;

use itertools::Itertools as _;

use crate::figures::{iops, none, us, wrapped};
use crate::run::aligned;

use super::figures::{CellResult, Figures, Reference};
use super::summary::{AS_QUICK, Summary};

/// The figure of a policy in a cell; `None`: not known.
type Figure = fn(&CellResult, &Figures) -> Option<String>;

/// A column of a cell's table.
pub(crate) struct Column {
    /// Two lines at most.
    pub heading: &'static str,
    /// In one sentence.
    pub explained: &'static str,
    pub figure: Figure,
}

const fn column(heading: &'static str, explained: &'static str, figure: Figure) -> Column {
    Column { heading, explained, figure }
}

/// The columns of a cell's table.
const COLUMNS: [Column; 17] = [
    column("mean\nµs", "mean latency", |_, way| latency(way, way.mean_ns)),
    column("×\npoll", "the mean over that of poll", |cell, way| {
        cell.mean_over_poll(way).map(ratio)
    }),
    column("by\nturns", "the mean over that of poll, turn by turn: the median", |cell, way| {
        cell.mean_over_poll_by_turns(way).map(ratio)
    }),
    column("p50\nµs", "half of the I/Os took no longer", |_, way| {
        latency(way, way.percentiles_ns[0] as f64)
    }),
    column("p99\nµs", "99 % of the I/Os took no longer", |_, way| {
        latency(way, way.percentiles_ns[1] as f64)
    }),
    column("p99.9\nµs", "99.9 % of the I/Os took no longer", |_, way| {
        latency(way, way.percentiles_ns[2] as f64)
    }),
    column("1 in\n6,000 µs", "the slowest one in 6,000 I/Os took at least so long", |_, way| {
        way.slowest_ns.map(|ns| us(ns as f64))
    }),
    column("max\nµs", "the slowest I/O", |_, way| latency(way, way.max_ns as f64)),
    column("IOPS", "I/Os per second", |_, way| Some(iops(way.iops))),
    column("CPU\n%", "user and system time of the waiting thread over wall time", |_, way| {
        Some(format!("{:.1}", way.cpu_percent))
    }),
    column("IOPS/\nCPU-%", "I/Os per second for each percent of a CPU", |_, way| {
        way.iops_per_cpu_percent().map(iops)
    }),
    column("CPU ×\ninformed", "CPU over that of the informed policy", |cell, way| {
        cell.cpu_over_informed(way).map(ratio)
    }),
    column("CPU over\noracle %", "CPU above the oracle's, in percent of a CPU", |cell, way| {
        cell.cpu_above_oracle_percent(way).map(|percent| format!("{percent:+.1}"))
    }),
    column(
        "overslept\n% sleeps",
        "sleeps after which the completion was there already, in percent of the sleeps",
        |_, way| way.overslept_sleeps_percent().map(percent),
    ),
    column("overslept\n% I/Os", "the same in percent of the I/Os", |_, way| {
        way.overslept_ios_percent().map(percent)
    }),
    column(
        "rival\n%",
        "the share of its lone speed that a competing program on the same CPU kept",
        |_, way| way.competing.map(|competing| format!("{:.0}", competing.share_percent)),
    ),
    column("p99.9 µs\nbeside it", "p99.9 while it competes", |_, way| {
        way.competing.map(|competing| us(competing.p99_9_ns as f64))
    }),
];

/// Returns the columns with a known figure in one of `cells`.
pub(crate) fn columns(cells: &[&CellResult]) -> Vec<&'static Column> {
    let known = |column: &&Column| {
        cells.iter().any(|cell| cell.ways.iter().any(|way| (column.figure)(cell, way).is_some()))
    };
    const ALL: &[Column] = &COLUMNS;
    ALL.iter().filter(known).collect()
}

/// Returns a cell's description, and a row for each policy.
pub fn cell_table(cell: &CellResult, width: usize) -> String {
    let columns = columns(&[cell]);
    let mut text = format!("{}: {}\n", cell.cell.name(), cell.cell.shape[1]);
    let whole = rows_of(cell, &columns);
    if whole.lines().all(|line| line.chars().count() <= width) {
        text += &whole;
    } else {
        // Latencies above, their cost below.
        let first = columns.iter().position(|of| of.heading == "IOPS").unwrap_or(0);
        text += &rows_of(cell, &columns[..first]);
        text.push('\n');
        text += &rows_of(cell, &columns[first..]);
    }
    text += &below(cell);
    let errors: Vec<String> = cell
        .ways
        .iter()
        .filter(|way| way.errors > 0)
        .map(|way| format!("{} of {}", way.errors, way.completion))
        .collect();
    if !errors.is_empty() {
        let _ = writeln!(text, "I/Os that failed: {}", errors.join(", "));
    }
    text
}

fn rows_of(cell: &CellResult, columns: &[&Column]) -> String {
    let header: Vec<&str> =
        std::iter::once("completion").chain(columns.iter().map(|of| of.heading)).collect();
    let rows = cell.ways.iter().map(|way| {
        let figures = columns.iter().map(|column| (column.figure)(cell, way).unwrap_or_else(none));
        std::iter::once(way.completion.clone()).chain(figures).collect()
    });
    render(&header, rows.collect())
}

/// Returns the notes below a cell's rows.
pub(crate) fn below(cell: &CellResult) -> String {
    let mut parts = Vec::new();
    if let Some((mean, cpu)) =
        cell.poll.as_ref().and_then(|poll| poll.mean_spread.zip(poll.cpu_spread_percent))
    {
        let mean = mean * 100.0;
        parts.push(format!("poll twice differs by {mean:.1} % and {cpu:.1} % of a CPU"));
    }
    if let Some(references) = cell.references {
        let of = |name: &str, reference: &Reference| {
            format!("{name} {} µs with {:.1} % CPU", us(reference.mean_ns), reference.cpu_percent)
        };
        parts.push(of("informed", &references.informed));
        parts.push(of("oracle", &references.oracle));
    }
    let (repeated, disturbed) = cell.moved_turns;
    if repeated + disturbed > 0 {
        parts.push(format!(
            "the CPUs moved: {repeated} turns repeated, {disturbed} counted all the same"
        ));
    }
    if let Some(poll) = cell.poll.as_ref().filter(|poll| poll.is_crowded()) {
        parts.push(format!(
            "poll had {:.0} % of the CPU: other programs were running, and these figures are \
             worth little",
            poll.cpu_percent
        ));
    }
    if parts.is_empty() { String::new() } else { format!("{}\n", parts.join("; ")) }
}

/// A column of the summary: its heading in the text and on the page (if shown there), its
/// explanation, and its figure.
pub(crate) struct SummaryColumn {
    heading: &'static str,
    pub on_page: &'static str,
    pub explained: &'static str,
    pub figure: fn(&Summary) -> Option<String>,
}

const fn summarised(
    heading: &'static str,
    on_page: &'static str,
    explained: &'static str,
    figure: fn(&Summary) -> Option<String>,
) -> SummaryColumn {
    SummaryColumn { heading, on_page, explained, figure }
}

/// The columns of the summary.
const SUMMARY: [SummaryColumn; 13] = [
    summarised("cells", "", "", |of| Some(of.cells.to_string())),
    summarised("≤ 1.03\n× poll", "", "", |of| Some(of.as_quick_cells.to_string())),
    summarised(
        "",
        "at most × 1.03",
        "cells in which the mean latency is at most 1.03 times that of poll",
        |of| Some(format!("{} of {}", of.as_quick_cells, of.cells)),
    ),
    summarised(
        "× poll\nmedian",
        "mean × poll, median",
        "the mean latency over that of poll: the median of the cells",
        |of| Some(ratio(of.mean_over_poll.as_ref()?.median)),
    ),
    summarised("× poll\nworst", "worst", "its greatest value", |of| {
        Some(ratio(of.mean_over_poll.as_ref()?.worst))
    }),
    summarised("in", "in", "the cell where that is", |of| {
        Some(of.mean_over_poll.as_ref()?.worst_cell.clone())
    }),
    summarised(
        "CPU %\nmedian",
        "CPU %, median",
        "CPU of the waiting thread: the median of the cells",
        |of| of.cpu_percent.map(|percent| format!("{percent:.1}")),
    ),
    summarised(
        "× informed\nmedian",
        "CPU × informed, median",
        "CPU over that of the informed policy: the median of the cells",
        |of| Some(ratio(of.cpu_over_informed.as_ref()?.median)),
    ),
    summarised("× informed\nworst", "worst", "its greatest value", |of| {
        Some(ratio(of.cpu_over_informed.as_ref()?.worst))
    }),
    summarised(
        "overslept\n% median",
        "overslept %, median",
        "sleeps after which the completion was there already, in percent of the sleeps",
        |of| of.overslept_percent.map(percent),
    ),
    summarised(
        "rival %\nmedian",
        "rival %, median",
        "what a competing program kept of its lone speed",
        |of| of.share_percent.map(|percent| format!("{percent:.0}")),
    ),
    summarised(
        "dominates\nin cells",
        "dominates",
        "cells in which it dominates at least one other way",
        |of| Some(of.dominating_cells.to_string()),
    ),
    summarised(
        "dominated\nin cells",
        "dominated",
        "cells in which another way dominates it",
        |of| Some(of.dominated.len().to_string()),
    ),
];

/// Returns the summary's columns, without those whose figures were not measured.
pub(crate) fn summary_columns(summaries: &[Summary]) -> Vec<&'static SummaryColumn> {
    const ALL: &[SummaryColumn] = &SUMMARY;
    let known = |of: &&SummaryColumn| {
        let needs = of.heading.contains("informed") || of.heading.contains("rival");
        !needs || summaries.iter().any(|summary| (of.figure)(summary).is_some())
    };
    ALL.iter().filter(known).collect()
}

/// Returns the summary of all cells, with a verdict for each policy.
pub fn summary_table(summaries: &[Summary], cells: usize, width: usize) -> String {
    let mut columns = summary_columns(summaries);
    columns.retain(|of| !of.heading.is_empty());
    let header: Vec<&str> =
        std::iter::once("completion").chain(columns.iter().map(|of| of.heading)).collect();
    let rows = summaries.iter().map(|summary| {
        let figures = columns.iter().map(|of| (of.figure)(summary).unwrap_or_else(none));
        std::iter::once(summary.completion.clone()).chain(figures).collect()
    });
    let cells = if cells == 1 { "1 cell".to_owned() } else { format!("{cells} cells") };
    let mut text = format!("All of {cells}\n{}", render(&header, rows.collect()));
    let goal = format!(
        "Goal: a mean of at most {AS_QUICK} × poll's in every cell. A way that misses it is slower \
         in some cell: that is a finding, and no error."
    );
    let _ = writeln!(text, "{}", wrapped(&goal, width));
    for of in summaries {
        let _ = writeln!(text, "{}", verdict(of));
    }
    text
}

/// Returns the verdict on a policy, in a line.
pub(crate) fn verdict(of: &Summary) -> String {
    let word = if of.as_quick_cells == of.cells { "kept  " } else { "missed" };
    let mut line = format!(
        "{word}  {}: at most {AS_QUICK} × poll in {} of {}",
        of.completion, of.as_quick_cells, of.cells
    );
    if let Some(cells) = of.as_quick_cells_by_turns {
        let _ = write!(line, " (by the median turn: {cells})");
    }
    if !of.dominates.is_empty() {
        let list: Vec<String> =
            of.dominates.iter().map(|(other, cells)| format!("{other} in {cells}")).collect();
        let _ = write!(line, "; dominates {}", list.join(", "));
    }
    match &of.dominated[..] {
        [] => line += "; never dominated",
        dominated => {
            let all: Vec<&String> = dominated.iter().flat_map(|(_, by)| by).collect();
            let count = |name: &String| all.iter().filter(|other| ***other == *name).count();
            let list: Vec<String> =
                all.iter().unique().map(|name| format!("{name} in {}", count(name))).collect();
            let _ = write!(line, "; dominated by {}", list.join(", "));
        }
    }
    line
}

/// Returns the legend of all tables: the meaning of the columns.
pub fn legend(cells: &[&CellResult]) -> String {
    let mut text = String::from("Latencies from submission to having seen the completion. ");
    let explained = |column: &&Column| {
        ["overslept", "informed", "oracle", "rival"].iter().any(|of| column.heading.contains(of))
    };
    for column in columns(cells).into_iter().filter(explained) {
        let heading = column.heading.replace('\n', " ");
        let _ = write!(text, "{heading}: {}. ", column.explained);
    }
    text += "One way dominates another in a cell if it is not worse in mean latency and in CPU, \
             and better in one of them, by more than two runs of poll differ there (and more than \
             1 %).";
    text
}

fn latency(way: &Figures, ns: f64) -> Option<String> {
    (way.ios > 0).then(|| us(ns))
}

/// Formats a ratio with enough digits to distinguish it from 1.
pub(crate) fn ratio(ratio: f64) -> String {
    if ratio < 9.995 { format!("{ratio:.3}") } else { format!("{ratio:.1}") }
}

fn percent(percent: f64) -> String {
    if percent >= 9.95 || percent == 0.0 {
        format!("{percent:.0}")
    } else {
        format!("{percent:.2}")
    }
}

fn render(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let rows: Vec<Vec<&str>> =
        rows.iter().map(|row| row.iter().map(String::as_str).collect()).collect();
    aligned(header, &rows, 1, 1).join("\n") + "\n"
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
            "missed  pas: at most 1.03 × poll in 0 of 1; dominated by poll in 1, adaptive in 1"
        );
        assert_eq!(
            lines[2],
            "kept    adaptive: at most 1.03 × poll in 1 of 1; dominates poll in 1, pas in 1; \
             never dominated"
        );
        assert!(summary_table(&summaries(&cells), 1, 120).contains("All of 1 cell\n"));
    }
}
