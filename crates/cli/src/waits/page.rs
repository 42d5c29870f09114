//! The results as one HTML page: a summary, an overview, and a section a device time with the plane
//! of each shape.

use serde_json::{Map, Value};

use crate::html::markup::{Attr, Markup};
use crate::html::page;
use crate::html::svg::swatch;
use crate::report::table::none;

use super::figures::CellResult;
use super::grid::time_name;
use super::json::Setting;
use super::plane;
use super::summary::{AS_QUICK, Summary};
use super::table::{self, ratio};

const TITLE: &str = "Ways to wait";

/// The page.
pub(super) fn page(cells: &[CellResult], summaries: &[Summary], setting: &Setting) -> String {
    let names: Vec<String> = summaries.iter().map(|summary| summary.completion.clone()).collect();
    let mut out = Markup::default();
    out.with("html", &[("lang", &"en")], |out| {
        out.newline();
        page::head(out, TITLE, &[include_str!("../html/style.css"), include_str!("style.css")]);
        out.newline();
        out.with("body", &[], |out| {
            out.with("main", &[], |out| {
                header(out, cells, setting);
                findings(out, cells, summaries, &names);
                overview(out, cells, &names);
                for device_ns in device_times(cells) {
                    let row: Vec<&CellResult> =
                        cells.iter().filter(|cell| cell.cell.device_ns == device_ns).collect();
                    section(out, device_ns, &row, &names);
                }
                method(out, cells, setting);
            });
        });
    });
    out.into_page()
}

/// Each once, in the order they were measured.
fn device_times(cells: &[CellResult]) -> Vec<u64> {
    let mut times_ns: Vec<u64> = cells.iter().map(|cell| cell.cell.device_ns).collect();
    times_ns.dedup();
    times_ns
}

fn header(out: &mut Markup, cells: &[CellResult], setting: &Setting) {
    out.with("header", &[], |out| {
        out.element("h1", &[], TITLE);
        let fact = |name: &str| fact(&setting.facts, name);
        let mut parts = vec![counted(cells.len(), "cell")];
        parts.push(match &setting.simulated {
            Some(whose) => format!("simulated, {}", whose.replace('-', " ")),
            None => format!("{} each", crate::figures::time(setting.runtime_ms as f64 * 1e6)),
        });
        parts.extend(fact("cpu").map(|cpu| match fact("cpus") {
            Some(cpus) => format!("{cpu}, {cpus} CPUs"),
            None => cpu,
        }));
        parts.extend(fact("kernel").map(|kernel| format!("Linux {kernel}")));
        parts.extend(
            fact("virtual_machine").filter(|is| is == "true").map(|_| "virtual machine".to_owned()),
        );
        parts.push(format!("meantime {}", env!("MEANTIME_VERSION")));
        parts.extend(
            fact("interrupted").filter(|is| is == "true").map(|_| "ended early".to_owned()),
        );
        out.element("p", &[("class", &"source")], &parts.join(" · "));
    });
    out.newline();
}

fn fact(facts: &Map<String, Value>, name: &str) -> Option<String> {
    match facts.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Null => None,
        other => Some(other.to_string()),
    }
}

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// A row a way to wait, over all cells.
fn findings(out: &mut Markup, cells: &[CellResult], summaries: &[Summary], names: &[String]) {
    out.with("section", &[], |out| {
        out.element("h2", &[], &format!("What {} come to", counted(cells.len(), "cell")));
        let informed = summaries.iter().any(|of| of.cpu_over_informed.is_some());
        let rival = summaries.iter().any(|of| of.share_percent.is_some());
        let mut heads = vec![
            (
                "at most × 1.03",
                "cells in which the mean latency is at most 1.03 times that of poll",
            ),
            ("mean × poll, median", "the mean latency over that of poll: the median of the cells"),
            ("worst", "its greatest value"),
            ("in", "the cell where that is"),
            ("CPU %, median", "CPU of the waiting thread: the median of the cells"),
        ];
        if informed {
            heads.push((
                "CPU × informed, median",
                "CPU over that of the informed policy: the median of the cells",
            ));
            heads.push(("worst", "its greatest value"));
        }
        heads.push((
            "overslept %, median",
            "sleeps after which the completion was there already, in percent of the sleeps",
        ));
        if rival {
            heads.push(("rival %, median", "what a competing program kept of its lone speed"));
        }
        heads.push(("dominates", "cells in which it dominates at least one other way"));
        heads.push(("dominated", "cells in which another way dominates it"));
        scroll(out, "all cells together", |out| {
            head(out, &heads);
            out.with("tbody", &[], |out| {
                for of in summaries {
                    let over = of.mean_over_poll.as_ref();
                    let quick = format!("{} of {}", of.as_quick_cells, of.cells);
                    let mut row = vec![quick];
                    row.push(over.map_or_else(none, |over| ratio(over.median)));
                    row.push(over.map_or_else(none, |over| ratio(over.worst)));
                    row.push(over.map_or_else(none, |over| over.worst_cell.clone()));
                    row.push(of.cpu_percent.map_or_else(none, |percent| format!("{percent:.1}")));
                    if informed {
                        let over = of.cpu_over_informed.as_ref();
                        row.push(over.map_or_else(none, |over| ratio(over.median)));
                        row.push(over.map_or_else(none, |over| ratio(over.worst)));
                    }
                    row.push(
                        of.overslept_percent.map_or_else(none, |percent| format!("{percent:.1}")),
                    );
                    if rival {
                        row.push(
                            of.share_percent.map_or_else(none, |percent| format!("{percent:.0}")),
                        );
                    }
                    row.push(of.dominating_cells.to_string());
                    row.push(of.dominated.len().to_string());
                    way_row(out, names, &of.completion, &row);
                }
            });
        });
        out.with("details", &[], |out| {
            out.element(
                "summary",
                &[],
                "In words: which ways are as quick as poll, and who dominates whom",
            );
            out.with("ul", &[], |out| {
                for of in summaries {
                    out.element("li", &[], &table::verdict(of));
                }
            });
        });
        let all: Vec<&CellResult> = cells.iter().collect();
        out.element("p", &[("class", &"notes")], &table::legend(&all));
    });
    out.newline();
}

/// All cells at a glance: a row a cell, a column a way.
fn overview(out: &mut Markup, cells: &[CellResult], names: &[String]) {
    if cells.len() < 2 {
        return;
    }
    out.with("section", &[], |out| {
        out.element("h2", &[], "Mean latency over that of poll, and CPU in percent");
        scroll(out, "mean latency over that of poll, and CPU, by cell", |out| {
            out.with("thead", &[], |out| {
                out.with("tr", &[], |out| {
                    out.element("th", &[("scope", &"col"), ("class", &"way")], "cell");
                    for name in names {
                        out.element("th", &[("scope", &"col")], name);
                    }
                });
            });
            out.with("tbody", &[], |out| {
                for cell in cells {
                    out.with("tr", &[], |out| {
                        out.element(
                            "th",
                            &[("scope", &"row"), ("class", &"way")],
                            &cell.cell.name(),
                        );
                        for name in names {
                            let way = cell.ways.iter().find(|way| way.completion == *name);
                            let over = way.and_then(|way| Some((way, cell.mean_over_poll(way)?)));
                            let Some((way, over)) = over else {
                                out.element("td", &[], &none());
                                continue;
                            };
                            let class = if over <= AS_QUICK { "quick" } else { "late" };
                            out.with("td", &[("class", &class)], |out| {
                                out.text(&format!("{over:.2} "));
                                let cpu = format!("{:.0} %", way.cpu_percent);
                                out.element("span", &[("class", &"unit")], &cpu);
                            });
                        }
                    });
                }
            });
        });
        let note = "Bold: at most 1.03 times the mean latency of poll.";
        out.element("p", &[("class", &"notes")], note);
    });
    out.newline();
}

/// A device time: the planes of its shapes, and their tables.
fn section(out: &mut Markup, device_ns: u64, row: &[&CellResult], names: &[String]) {
    out.with("section", &[("class", &"job")], |out| {
        out.element("h2", &[], &format!("Device time {}", time_name(device_ns).replace("us", " µs")));
        out.with("ul", &[("class", &"legend")], |out| {
            for name in names {
                out.with("li", &[], |out| {
                    swatch(out, plane::style(names, name), true);
                    out.text(name);
                });
            }
        });
        let range = plane::range(row);
        out.with("figure", &[("class", &"wide")], |out| {
            out.with("div", &[("class", &"panels")], |out| {
                for cell in row {
                    out.with("div", &[("class", &"panel")], |out| {
                        out.element("h4", &[], cell.cell.shape.name());
                        plane::plane(out, cell, names, range);
                    });
                }
            });
            let how = "Each point is one way to wait: further left it needs less CPU, further down it answers sooner; the best place is \
                       bottom left. The dotted lines are the mean of poll and 1.03 times that.";
            out.element("figcaption", &[], how);
        });
        for cell in row {
            cell_table(out, cell, names);
        }
    });
    out.newline();
}

fn cell_table(out: &mut Markup, cell: &CellResult, names: &[String]) {
    out.with("details", &[], |out| {
        out.with("summary", &[], |out| {
            out.element("b", &[], &cell.cell.name());
            out.text(&format!(": {}", cell.cell.shape.words()));
        });
        let columns = table::columns(&[cell]);
        let headings: Vec<String> =
            columns.iter().map(|of| of.heading.replace('\n', " ")).collect();
        let heads: Vec<(&str, &str)> = headings
            .iter()
            .zip(&columns)
            .map(|(heading, of)| (heading.as_str(), of.explained))
            .collect();
        scroll(out, &cell.cell.name(), |out| {
            head(out, &heads);
            out.with("tbody", &[], |out| {
                for way in &cell.ways {
                    let row: Vec<String> = columns
                        .iter()
                        .map(|of| (of.figure)(cell, way).unwrap_or_else(none))
                        .collect();
                    way_row(out, names, &way.completion, &row);
                }
            });
        });
        let below = table::below(cell);
        if !below.is_empty() {
            out.element("p", &[("class", &"notes")], &below);
        }
    });
}

fn scroll(out: &mut Markup, label: &str, inside: impl FnOnce(&mut Markup)) {
    let attrs: [Attr<'_>; 4] =
        [("class", &"scroll"), ("tabindex", &"0"), ("role", &"region"), ("aria-label", &label)];
    out.with("div", &attrs, |out| out.with("table", &[], inside));
}

fn head(out: &mut Markup, columns: &[(&str, &str)]) {
    out.with("thead", &[], |out| {
        out.with("tr", &[], |out| {
            out.element("th", &[("scope", &"col"), ("class", &"way")], "completion");
            for (heading, explained) in columns {
                out.element("th", &[("scope", &"col"), ("title", explained)], heading);
            }
        });
    });
}

fn way_row(out: &mut Markup, names: &[String], name: &str, figures: &[String]) {
    out.with("tr", &[], |out| {
        out.with("th", &[("scope", &"row"), ("class", &"way")], |out| {
            swatch(out, plane::style(names, name), true);
            out.text(name);
        });
        for figure in figures {
            out.element("td", &[], figure);
        }
    });
}

fn method(out: &mut Markup, cells: &[CellResult], setting: &Setting) {
    out.with("section", &[], |out| {
        out.element("h2", &[], "How it was measured");
        out.with("ul", &[], |out| {
            let mut say = |what: &str, text: &str| {
                out.with("li", &[], |out| {
                    out.element("b", &[], what);
                    out.text(text);
                });
            };
            say(
                "Cells. ",
                "Each is a software SSD with a service-time model of its own (the JSON has it) and a job. Times of no particular device: \
                 the grid is even.",
            );
            if setting.simulated.is_none() {
                say(
                    "Turns. ",
                    "In a cell, the ways to wait have short turns one after the other, so that whatever drifts on the machine hits all of \
                     them alike. poll takes part twice: by how much the two differ is what a difference is worth.",
                );
                let (repeated, disturbed) = cells.iter().fold((0, 0), |(repeated, disturbed), cell| {
                    (repeated + cell.moved_turns.0, disturbed + cell.moved_turns.1)
                });
                say(
                    "The CPUs ",
                    &format!(
                        "of a virtual machine move. Of the turns around which the cache-line time changed by more than half, {repeated} were \
                         repeated and {disturbed} counted all the same."
                    ),
                );
            }
            say(
                "CPU ",
                "is user and system time of the waiting thread over wall time. Sleeping is not fully charged: what another program on the \
                 same core can do with the rest is less than 100 % minus this.",
            );
        });
        if let Some(Value::Array(words)) = setting.facts.get("command") {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            out.with("pre", &[("tabindex", &"0")], |out| out.element("code", &[], &words.join(" ")));
        }
    });
    out.newline();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waits::figures::{Reference, References};
    use crate::waits::summary::summaries;
    use crate::waits::testing::{cell, way};

    /// Tags that end themselves have no end; all others nest.
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
        let page = page(&cells, &summaries(&cells), &setting);
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
