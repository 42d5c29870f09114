//! The results as one HTML page: a summary, an overview, and a section for each device time with
//! the plane of each shape.

use askama::Template;
use itertools::Itertools as _;

use super::figures::{CellResult, Figures};
use super::json::Setting;
use super::plane;
use super::summary::{AS_QUICK, Summary};
use super::table;
use crate::figures::none;
use crate::machine;
use crate::plot::Style;
use crate::table::{Cell, Group, Head, Row, Table};
use crate::view::{self, Figure, Kind, Legend, Panel};

#[derive(Template)]
#[template(path = "waits.html")]
struct Page<'a> {
    generator: &'a str,
    title: &'static str,
    cells: &'a [CellResult],
    summaries: &'a [Summary],
    setting: &'a Setting,
    /// The names of all policies, which decide their looks.
    names: Vec<String>,
}

/// Returns the page; `generator` is the program that makes it.
pub fn page(
    cells: &[CellResult],
    summaries: &[Summary],
    setting: &Setting,
    generator: &str,
) -> String {
    let names = summaries.iter().map(|summary| summary.completion.clone()).collect();
    view::render(&Page { generator, title: "Ways to wait", cells, summaries, setting, names })
}

impl Page<'_> {
    /// Returns the cells by device time.
    fn sections(&self) -> impl Iterator<Item = &[CellResult]> {
        self.cells.chunk_by(|one, next| one.cell.device_ns == next.cell.device_ns)
    }

    /// Returns the samples of all policies.
    fn legend(&self) -> Legend {
        let of = |name: &String| (Style::of(&self.names, name).sample(true), name.clone());
        Legend { entries: self.names.iter().map(of).collect() }
    }

    /// Returns the planes of cells, side by side.
    fn figure(&self, cells: &[CellResult]) -> Figure {
        let range = plane::range(cells);
        let panels = cells.iter().map(|cell| Panel {
            name: cell.cell.shape[0].clone(),
            legend: Legend::default(),
            plot: plane::plane(cell, &self.names, range),
        });
        Figure {
            kind: Kind::Plane,
            title: String::new(),
            wide: true,
            is_coarse: false,
            panels: panels.collect(),
        }
    }

    /// Returns the turns repeated since the CPUs moved, and the moved turns that count nevertheless.
    fn moved_turns(&self) -> (u64, u64) {
        let turns = || self.cells.iter().map(|cell| cell.moved_turns);
        (turns().map(|(repeated, _)| repeated).sum(), turns().map(|(_, counted)| counted).sum())
    }
}

/// Describes what was measured, for how long, where, and with what.
fn about(cells: &[CellResult], setting: &Setting, generator: &str) -> String {
    let fact = |name: &str| setting.facts.get(name).and_then(machine::fact);
    let how = match &setting.simulated {
        Some(whose) => format!("simulated, {}", whose.replace('-', " ")),
        None => format!("{} each", crate::figures::time(setting.runtime_ms as f64 * 1e6)),
    };
    let ended = fact("interrupted").filter(|is| is == "yes").map(|_| "ended early".to_owned());
    let what = [table::counted(cells.len()), how].into_iter().chain(machine::described(fact));
    what.chain([generator.to_owned()]).chain(ended).join(" · ")
}

/// Returns the overview of all cells, with a row for each cell and a column for each policy.
fn overview(cells: &[CellResult], names: &[String]) -> Table {
    let figure = |cell: &CellResult, way: &Figures| {
        let over = cell.mean_over_poll(way)?;
        let class = if over <= AS_QUICK { "quick" } else { "" };
        let (text, unit) = (format!("{over:.2}"), format!("{:.0} %", way.cpu_percent));
        Some(Cell { class, text, unit, ..Cell::default() })
    };
    let rows = cells.iter().map(|cell| {
        let way = |name: &String| cell.ways.iter().find(|way| way.completion == *name);
        let cells = names.iter().map(|name| way(name).and_then(|way| figure(cell, way)));
        let cells = cells.map(|cell| cell.unwrap_or_else(|| none().into())).collect();
        Row { name: cell.cell.name.clone(), cells, ..Row::default() }
    });
    let heads = names.iter().map(|name| Head { text: name.clone(), ..Head::default() }).collect();
    let label = "mean latency over that of poll, and CPU, by cell".to_owned();
    let groups = vec![Group { title: None, rows: rows.collect() }];
    Table { label, first: "cell", heads, groups }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waits::testing::{cell, way};
    use crate::waits::{Reference, References, summaries};

    /// Returns whether tags nest. Self-closing tags have no end tag.
    fn nests(page: &str) -> bool {
        let mut open: Vec<&str> = Vec::new();
        for part in page.split('<').skip(2) {
            let Some((tag, _)) = part.split_once('>') else { return false };
            let name = tag.split([' ', '\n']).next().unwrap_or("");
            match (name.strip_prefix('/'), tag.ends_with('/')) {
                (Some(name), _) if open.pop() != Some(name) => return false,
                (None, false) => open.push(name),
                _ => {}
            }
        }
        open.is_empty()
    }

    #[test]
    fn the_page_nests_and_names_everything() {
        let ways = [
            way("poll", 10.0, 98.0),
            way("hybrid", 40.0, 41.0),
            way("adaptive:cpu=30", 10.2, 30.0),
        ];
        let mut first = cell(&ways, (10.0, 98.0), (10.2, 97.0));
        let reference = Reference { mean_ns: 10_100.0, cpu_percent: 32.0, reachable: true };
        first.references = Some(References { informed: reference, oracle: reference });
        let second = cell(&ways[..2], (10.0, 98.0), (10.2, 97.0));
        let cells = [first, second];
        let setting = Setting { runtime_ms: 250, ..Setting::default() };
        let page = page(&cells, &summaries(&cells), &setting, "meantime");
        assert!(nests(&page));
        assert_eq!(page.matches("<svg class=\"plot\"").count(), 2);
        for text in [
            "adaptive:cpu=30",
            "10us-lognormal",
            "oracle",
            "informed",
            "2 cells",
            "250 ms each",
            "Device time 10 µs",
        ] {
            assert!(page.contains(text), "{text}");
        }
        assert!(!page.contains("NaN") && !page.contains("inf\""), "a figure that is none");
    }
}
