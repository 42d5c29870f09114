//! A comparison as a table, as JSON, and as Markdown.

use serde_json::{Map, Value, json};

use super::{Cell, Comparison, Figure};
use crate::figures::{none, wrapped};
use crate::table::{self, Row, Table, Title};

impl Comparison {
    /// Returns what else differed, then the table, and the method.
    pub fn text(&self, width: usize) -> String {
        let before = self.before().into_iter().map(|line| wrapped(&line, width) + "\n\n");
        let method = wrapped(&self.method(), width);
        before.collect::<String>() + &self.table().text(width) + "\n" + &method + "\n"
    }

    /// Returns the same as Markdown.
    pub fn markdown(&self) -> String {
        let before = self.before().into_iter().map(|line| line + "\n\n");
        before.collect::<String>() + &self.table().markdown() + &self.method() + "\n"
    }

    /// Returns the same for programs.
    pub fn json(&self) -> Value {
        json!({
            "pairs": self.are_pairs,
            "method": self.method(),
            "differences": self.report.differences(),
            "only_before": self.alone[0],
            "only_after": self.alone[1],
            "cells": self.cells.iter().map(Cell::json).collect::<Vec<_>>(),
        })
    }

    /// Returns what a reader has to know first: what else differed, and what is not compared.
    fn before(&self) -> Vec<String> {
        let alone = ["before", "after"].into_iter().zip(&self.alone);
        let alone = alone.filter(|(_, cells)| !cells.is_empty());
        let alone = alone.map(|(side, cells)| format!("Only {side}: {}.", cells.join("; ")));
        self.report.differences().into_iter().chain(alone).collect()
    }

    fn table(&self) -> Table {
        let column = table::column::<&Figure>;
        let columns = vec![
            column("before", "", |figure| Some(figure.shown(0).into())),
            column("after", "", |figure| Some(figure.shown(1).into())),
            column("change", "", |figure| Some(figure.changed().into())),
            column("95 % interval", "", |figure| Some(figure.interval().into())),
            column("verdict", "", |figure| Some(figure.verdict().to_owned().into())),
            column("notes", "", |figure| {
                (!figure.notes.is_empty()).then(|| figure.notes.join(", ").into())
            }),
        ];
        let row = |name: &str| Row { name: name.to_owned(), ..Row::default() };
        let groups = self.cells.iter().map(|cell| {
            let (name, asides) = (cell.name.clone(), vec![cell.verdict()]);
            let rows = cell.figures.iter().map(|figure| (row(figure.metric.name), figure));
            (Some(Title { name, asides, is_another: false }), rows.collect())
        });
        Table::of(String::new(), "", columns, groups.collect())
    }

    fn method(&self) -> String {
        let figures = self.cells.iter().flat_map(|cell| &cell.figures);
        let tests = figures.filter(|figure| figure.p.is_some()).count();
        if tests == 0 {
            return "Runs differ by themselves: these are too few to tell by how much.".to_owned();
        }
        let what = match self.are_pairs {
            true => "runs in pairs: Student's t on the logarithms of the pairs' ratios",
            false => "separate runs: Welch's t on logarithms",
        };
        format!(
            "Before and after are geometric means of {what}. Each interval holds at 95 % by \
             itself. Verdicts hold at 5 % for all {tests} tests together (Holm), so a change \
             whose interval is without 0 may be not clear."
        )
    }
}

impl Cell {
    fn json(&self) -> Value {
        let figures = self.figures.iter().map(|of| (of.metric.key.to_owned(), of.json()));
        json!({
            "jobname": self.job,
            "device": self.device,
            "completion": self.way,
            "verdict": self.verdict(),
            "figures": figures.collect::<Map<_, _>>(),
        })
    }
}

impl Figure {
    fn json(&self) -> Value {
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        let (change, test) = (self.change, self.test());
        json!({
            "before": change.map(|_| self.means[0]),
            "after": change.map(|_| self.means[1]),
            "values": self.values,
            "change_percent": change.map(|change| percent(change.ratio)),
            "interval_percent": test.map(|test| [test.low, test.high].map(percent)),
            "p": test.map(|test| test.p),
            "p_corrected": self.p,
            "verdict": self.verdict(),
            "notes": self.notes,
        })
    }

    fn shown(&self, side: usize) -> String {
        if self.values[side] > 0 { (self.metric.shown)(self.means[side]) } else { none() }
    }

    pub(super) fn changed(&self) -> String {
        self.change.map_or_else(none, |change| percent(change.ratio))
    }

    pub(super) fn interval(&self) -> String {
        let test = self.test().map(|test| [test.low, test.high].map(percent));
        test.map_or_else(none, |ends| ends.join(" to "))
    }
}

/// Formats a ratio as a change in percent, with a true minus sign.
fn percent(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0).replace('-', "−")
}
