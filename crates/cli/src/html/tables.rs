//! The tables: a row a result, grouped by device.

use super::latency::Latency;
use super::markup::Markup;
use super::model::{Block, Job, Report, Run, device_name};
use super::svg;
use crate::report::stats::SLOWEST_ONE_IN;
use crate::report::table::{change, none};
use crate::report::text::iops;

/// A column of figures: its heading, the figure of a run, and which is the best.
struct Column<'a> {
    heading: &'a str,
    unit: &'a str,
    explained: &'a str,
    figure: Figure,
    shown: fn(f64) -> String,
    best: Best,
    bar: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Best {
    Least,
    Most,
    Neither,
}

type Figure = fn(&Run) -> Option<f64>;

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

fn columns(job: &Job) -> Vec<Column<'static>> {
    let mut columns: Vec<Column<'static>> = LATENCIES
        .into_iter()
        .map(|(heading, explained, figure)| Column {
            heading,
            unit: "µs",
            explained,
            figure,
            shown: us,
            best: Best::Least,
            bar: heading == "mean",
        })
        .collect();
    let column = |heading, unit, explained, figure, shown, best| Column {
        heading,
        unit,
        explained,
        figure,
        shown,
        best,
        bar: unit == "%" && heading == "CPU",
    };
    columns.push(column("IOPS", "", "I/Os per second", |run| Some(run.iops), iops, Best::Most));
    let explained = "user and system time of the waiting threads over wall time";
    columns.push(column(
        "CPU",
        "%",
        explained,
        |run| run.cpu_percent,
        |figure| format!("{figure:.1}"),
        Best::Least,
    ));
    let explained = "I/Os per second for each percent of a CPU";
    columns.push(column("IOPS /", "CPU-%", explained, Run::iops_per_cpu_percent, iops, Best::Most));
    let runs = || job.blocks.iter().flat_map(|block| &block.runs);
    if runs().any(|run| run.competitor_percent.is_some()) {
        let explained = "what a program that competes for the same core kept of its lone speed";
        let figure = |figure: f64| format!("{figure:.0}");
        columns.push(column(
            "competitor",
            "% kept",
            explained,
            |run| run.competitor_percent,
            figure,
            Best::Most,
        ));
    }
    if runs().any(|run| run.floor_ns.is_some() || run.floor_ratio.is_some()) {
        let explained = "what no protocol between two cores can beat, measured in the same run";
        columns.push(column(
            "floor",
            "ns",
            explained,
            |run| run.floor_ns,
            |figure| format!("{figure:.0}"),
            Best::Neither,
        ));
        let explained = "median, over all turns, of a turn's median latency to the floor around it";
        columns.push(column(
            "to floor",
            "×",
            explained,
            |run| run.floor_ratio,
            |figure| format!("{figure:.2}"),
            Best::Least,
        ));
    }
    if runs().any(|run| run.errors > 0) {
        let explained = "I/Os that failed, and blocks that were not what had been written";
        columns.push(column(
            "errors",
            "",
            explained,
            |run| Some(run.errors as f64),
            |figure| format!("{figure:.0}"),
            Best::Neither,
        ));
    }
    columns
}

/// The table of a job.
pub(super) fn table(out: &mut Markup, report: &Report, job: &Job) {
    let columns = columns(job);
    let versus = report.sources.len() > 1;
    let caption = format!("{} – {}", job.name, job.workload.words());
    out.with("div", &[("class", &"scroll"), ("tabindex", &"0"), ("role", &"region"), ("aria-label", &caption)], |out| {
        out.with("table", &[], |out| {
            out.element("caption", &[("class", &"unseen")], &caption);
            out.with("thead", &[], |out| {
                out.with("tr", &[], |out| {
                    out.element("th", &[("scope", &"col"), ("class", &"way")], "way to wait");
                    for column in &columns {
                        heading(out, column.heading, column.unit, column.explained);
                    }
                    heading(out, "mean", "vs first", "change of the mean against the device's first row");
                    if versus {
                        let explained = "change of the mean against the same way to wait in the first file that has it";
                        heading(out, "mean", "vs file", explained);
                    }
                });
            });
            let all_columns = columns.len() + 2 + usize::from(versus);
            for (at, block) in job.blocks.iter().enumerate() {
                let foreign = block.is_other_device_than(&job.blocks[0]);
                out.with("tbody", &[], |out| {
                    device_row(out, report, block, all_columns, foreign);
                    body(out, block, &columns, versus);
                });
                if at + 1 < job.blocks.len() {
                    out.newline();
                }
            }
        });
    });
    notes(out, report, job);
}

/// µs with as many digits as say something: `7.61`, `182.4`, `34,392`.
fn us(ns: f64) -> String {
    let us = ns / 1e3;
    if us < 99.995 {
        return format!("{us:.2}");
    }
    if us < 999.95 {
        return format!("{us:.1}");
    }
    let digits = format!("{us:.0}");
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

fn heading(out: &mut Markup, text: &str, unit: &str, explained: &str) {
    out.with("th", &[("scope", &"col"), ("title", &explained)], |out| {
        out.text(text);
        if !unit.is_empty() {
            out.empty("br", &[]);
            out.element("span", &[("class", &"unit")], unit);
        }
    });
}

fn device_row(out: &mut Markup, report: &Report, block: &Block, columns: usize, foreign: bool) {
    out.with("tr", &[("class", &"device")], |out| {
        out.with("th", &[("scope", &"rowgroup"), ("colspan", &columns)], |out| {
            out.with("span", &[("class", &"pinned")], |out| {
                out.element("b", &[], &device_name(&block.device));
                let uri = if device_name(&block.device) == block.device {
                    ""
                } else {
                    block.device.as_str()
                };
                let machine = block
                    .machine
                    .map(|at| format!("on the machine of {}", report.sources[at].label));
                let parts = [uri, block.medium.as_str(), machine.as_deref().unwrap_or("")];
                for part in parts.into_iter().filter(|part| !part.is_empty()) {
                    out.element("span", &[("class", &"aside")], part);
                }
                if foreign {
                    out.element("span", &[("class", &"mark")], "† another device");
                }
            });
        });
    });
}

fn body(out: &mut Markup, block: &Block, columns: &[Column<'_>], versus: bool) {
    let first_ns = block.runs.first().and_then(Run::mean_ns);
    let best: Vec<Option<f64>> = columns.iter().map(|column| best(column, &block.runs)).collect();
    let most: Vec<f64> = columns.iter().map(|column| most(column, &block.runs)).collect();
    for (row, run) in block.runs.iter().enumerate() {
        out.with("tr", &[], |out| {
            out.with("th", &[("scope", &"row"), ("class", &"way")], |out| {
                svg::swatch(out, run.style, false);
                out.text(&run.label);
                for caveat in &run.caveats {
                    out.element("sup", &[("title", caveat)], caveat_mark(caveat));
                }
            });
            for (at, column) in columns.iter().enumerate() {
                let figure = (column.figure)(run);
                let is_best = figure.is_some() && figure == best[at];
                let text = figure.map_or_else(none, column.shown);
                if column.bar && figure.is_some() && most[at] > 0.0 {
                    let percent =
                        format!("--bar-length: {:.1}%", figure.unwrap_or(0.0) / most[at] * 100.0);
                    let class = if is_best { "bar best" } else { "bar" };
                    out.element("td", &[("class", &class), ("style", &percent)], &text);
                } else {
                    let class = if is_best { "best" } else { "" };
                    let attrs: [super::markup::Attr<'_>; 1] = [("class", &class)];
                    out.element("td", if is_best { &attrs } else { &[] }, &text);
                }
            }
            let against = |other: Option<f64>| match (run.mean_ns(), other) {
                (Some(ours), Some(other)) => change(ours, other),
                _ => none(),
            };
            out.element("td", &[], &if row == 0 { none() } else { against(first_ns) });
            if versus {
                let same = block.runs.iter().find(|other| other.way == run.way);
                let other = same.filter(|other| other.source != run.source).and_then(Run::mean_ns);
                out.element("td", &[], &against(other));
            }
        });
        let width = columns.len() + 1 + usize::from(versus);
        for (name, latency, rate) in &run.directions {
            direction_row(out, name, latency, *rate, width);
        }
        out.newline();
    }
}

/// Reads or writes of a mixed job: their latencies and IOPS.
fn direction_row(out: &mut Markup, name: &str, latency: &Latency, rate: f64, width: usize) {
    let slowest_ns = latency.slowest_1_in(SLOWEST_ONE_IN);
    let part = Run { latency: latency.clone(), slowest_ns, ..Run::default() };
    out.with("tr", &[("class", &"direction")], |out| {
        out.element("th", &[("scope", &"row"), ("class", &"way")], &format!("{name}s of these"));
        for (_, _, figure) in &LATENCIES {
            out.element("td", &[], &figure(&part).map_or_else(none, us));
        }
        out.element("td", &[], &iops(rate));
        for _ in LATENCIES.len() + 1..width {
            out.element("td", &[], "");
        }
    });
}

/// The best figure, if there is more than one and they differ.
fn best(column: &Column<'_>, runs: &[Run]) -> Option<f64> {
    let figures: Vec<f64> = runs
        .iter()
        .filter(|run| run.latency.n > 0)
        .filter_map(|run| (column.figure)(run))
        .collect();
    let least = figures.iter().copied().reduce(f64::min)?;
    let most = figures.iter().copied().reduce(f64::max)?;
    if figures.len() < 2 || least == most {
        return None;
    }
    match column.best {
        Best::Least => Some(least),
        Best::Most => Some(most),
        Best::Neither => None,
    }
}

fn most(column: &Column<'_>, runs: &[Run]) -> f64 {
    runs.iter().filter_map(|run| (column.figure)(run)).fold(0.0, f64::max)
}

fn caveat_mark(caveat: &str) -> &'static str {
    if caveat == super::read::CAVEAT_CLAT { "‡" } else { "§" }
}

/// What a reader must know of the table above.
fn notes(out: &mut Markup, report: &Report, job: &Job) {
    out.with("div", &[("class", &"notes")], |out| {
        let several = job.blocks.iter().any(|block| block.runs.len() > 1);
        out.with("p", &[], |out| {
            out.text("Latencies in µs, reads and writes together, from submission to having seen the completion. ");
            if several {
                out.text("Bold: the best of its device. The bars begin at 0. ");
            }
        });
        if job.blocks.iter().flat_map(|block| &block.runs).any(|run| run.competitor_percent.is_some()) {
            let competitor = "Competitor: the share of its lone speed that a program on the same core kept while the I/O was done.";
            out.element("p", &[], competitor);
        }
        if job.blocks.iter().any(|block| block.is_other_device_than(&job.blocks[0])) {
            out.element(
                "p",
                &[("class", &"important")],
                "† This is another device than the table's first, not another way to wait for the same one: its \
                 latencies contain another device's time, and are not a like-for-like comparison.",
            );
        } else if job.blocks.len() > 1 {
            out.element("p", &[], "Compare rows of one device; different devices take different times by themselves.");
        }
        let beside = beside(report, job);
        if !beside.is_empty() {
            let text = format!("Ran at the same time as {}: what they did is in these figures.", beside.join(", "));
            out.element("p", &[], &text);
        }
        let mut caveats: Vec<&str> = Vec::new();
        for caveat in job.blocks.iter().flat_map(|block| &block.runs).flat_map(|run| &run.caveats) {
            if !caveats.contains(caveat) {
                caveats.push(caveat);
            }
        }
        for caveat in caveats {
            out.element("p", &[], &format!("{} This result: {caveat}.", caveat_mark(caveat)));
        }
    });
    out.newline();
}

/// Names of the jobs that ran at the same time.
fn beside<'a>(report: &'a Report, job: &Job) -> Vec<&'a str> {
    let runs = |job: &'a Job| job.blocks.iter().flat_map(|block| &block.runs);
    let mut names: Vec<&str> = Vec::new();
    for other in report.jobs.iter().flat_map(runs) {
        let ours = job.blocks.iter().flat_map(|block| &block.runs);
        if !names.contains(&other.job.as_str()) && ours.into_iter().any(|run| run.ran_beside(other))
        {
            names.push(&other.job);
        }
    }
    names
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
