//! The cells' results together, by policy.

use std::collections::BTreeMap;

use itertools::Itertools as _;
use serde::Serialize;

use crate::figures::median;

use super::figures::{CellResult, Figures};

/// The largest mean over that of classic polling that counts as equally quick.
pub(crate) const AS_QUICK: f64 = 1.03;

/// A policy over all cells.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Summary {
    /// The policy.
    pub completion: String,
    /// Cells in which it completed I/Os.
    pub cells: usize,
    /// Its mean over that of `poll`.
    pub mean_over_poll: Option<Ratio>,
    /// Cells in which that ratio is at most `AS_QUICK`.
    #[serde(rename = "cells_within_1_03")]
    pub as_quick_cells: usize,
    /// Cells in which the median of the turns' ratios is at most `AS_QUICK`, or `None` without
    /// turns.
    #[serde(rename = "cells_within_1_03_by_turns")]
    pub as_quick_cells_by_turns: Option<usize>,
    /// CPU in percent: the median of the cells.
    #[serde(rename = "cpu_percent_median")]
    pub cpu_percent: Option<f64>,
    /// CPU over that of the informed policy.
    pub cpu_over_informed: Option<Ratio>,
    /// CPU above the oracle's, in percent of a CPU: the median of the cells.
    #[serde(rename = "cpu_above_oracle_percent_median")]
    pub cpu_above_oracle_percent: Option<f64>,
    /// Oversleeps in percent of the sleeps: the median of the cells in which it slept.
    #[serde(rename = "overslept_sleeps_percent_median")]
    pub overslept_percent: Option<f64>,
    /// The share that a competing program kept: the median of the cells.
    #[serde(rename = "competitor_share_percent_median")]
    pub share_percent: Option<f64>,
    /// Cells in which it dominates another policy.
    pub cells_dominating: usize,
    /// Cells in which another policy dominates it.
    pub cells_dominated: usize,
    /// Number of cells in which it dominates another policy, by policy.
    pub dominates: BTreeMap<String, usize>,
    /// The policies that dominate it, by cell.
    pub dominated_by: BTreeMap<String, Vec<String>>,
}

/// A ratio over all cells.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ratio {
    /// The median.
    pub median: f64,
    /// The maximum.
    pub worst: f64,
    /// The cell of the maximum.
    pub worst_cell: String,
}

impl Ratio {
    fn of(ratios: &[(f64, &str)]) -> Option<Self> {
        let (worst, cell) = *ratios.iter().max_by(|one, other| one.0.total_cmp(&other.0))?;
        let values: Vec<f64> = ratios.iter().map(|(ratio, _)| *ratio).collect();
        Some(Self { median: median(&values)?, worst, worst_cell: cell.to_owned() })
    }
}

/// Returns the summaries by policy, in the order of the first cell.
pub fn summaries(cells: &[CellResult]) -> Vec<Summary> {
    let ways = cells.iter().flat_map(|cell| &cell.ways);
    ways.map(|way| way.completion.as_str()).unique().map(|name| summary(name, cells)).collect()
}

/// Returns the quantity of a policy in a cell that is compared.
type Quantity = fn(&CellResult, &Figures) -> Option<f64>;

fn summary(name: &str, cells: &[CellResult]) -> Summary {
    let is_ours = |way: &&Figures| way.completion == name && way.ios > 0;
    let found = cells.iter().filter_map(|cell| Some((cell, cell.ways.iter().find(is_ours)?)));
    let found: Vec<(&CellResult, &Figures)> = found.collect();
    let known = |of: Quantity| -> Vec<(f64, &str)> {
        let known = found.iter().map(|(cell, way)| Some((of(cell, way)?, cell.cell.name.as_str())));
        known.flatten().collect()
    };
    let middle = |of: Quantity| Ratio::of(&known(of)).map(|of| of.median);
    let (over_poll, by_turns) =
        (known(CellResult::mean_over_poll), known(CellResult::mean_over_poll_by_turns));
    let quick =
        |ratios: &[(f64, &str)]| ratios.iter().filter(|(ratio, _)| *ratio <= AS_QUICK).count();
    let mut summary = Summary {
        completion: name.to_owned(),
        cells: found.len(),
        as_quick_cells: quick(&over_poll),
        as_quick_cells_by_turns: (!by_turns.is_empty()).then(|| quick(&by_turns)),
        mean_over_poll: Ratio::of(&over_poll),
        cpu_percent: middle(|_, way| Some(way.cpu_percent)),
        cpu_over_informed: Ratio::of(&known(CellResult::cpu_over_informed)),
        cpu_above_oracle_percent: middle(CellResult::cpu_above_oracle_percent),
        overslept_percent: middle(|_, way| way.overslept_sleeps_percent()),
        share_percent: middle(|_, way| Some(way.competing?.share_percent)),
        ..Summary::default()
    };
    for (cell, way) in found {
        let others = || cell.ways.iter().filter(|other| other.completion != name);
        let name = |other: &Figures| other.completion.clone();
        let beaten: Vec<_> = others().filter(|of| cell.dominates(way, of)).map(name).collect();
        let by: Vec<_> = others().filter(|of| cell.dominates(of, way)).map(name).collect();
        summary.cells_dominating += usize::from(!beaten.is_empty());
        for other in beaten {
            *summary.dominates.entry(other).or_default() += 1;
        }
        if !by.is_empty() {
            summary.cells_dominated += 1;
            summary.dominated_by.insert(cell.cell.name.clone(), by);
        }
    }
    summary
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waits::Cell;
    use crate::waits::testing::{cell, way};

    #[test]
    fn what_two_cells_come_to() {
        let ways = [way("poll", 10.0, 98.0), way("pas", 10.5, 60.0), way("adaptive", 10.2, 58.0)];
        let first = cell(&ways, (10.0, 98.0), (10.0, 98.0));
        let ways = [way("poll", 10.0, 98.0), way("pas", 10.1, 40.0), way("adaptive", 10.1, 50.0)];
        let mut second = cell(&ways, (10.0, 98.0), (10.0, 98.0));
        second.cell = Cell { name: "50us-constant".to_owned(), ..Cell::default() };
        let all = summaries(&[first, second]);
        assert_eq!(all.len(), 3);
        let (poll, pas, adaptive) = (&all[0], &all[1], &all[2]);
        assert_eq!((poll.cells, poll.as_quick_cells, poll.cells_dominating), (2, 2, 0));
        assert_eq!(
            poll.dominated_by,
            [("50us-constant".to_owned(), vec!["pas".to_owned(), "adaptive".to_owned()])].into()
        );
        assert_eq!((pas.as_quick_cells, adaptive.as_quick_cells), (1, 2));
        let ratio = pas.mean_over_poll.as_ref().unwrap();
        assert!((ratio.median - 1.03).abs() < 1e-9 && (ratio.worst - 1.05).abs() < 1e-9);
        assert_eq!(ratio.worst_cell, "10us-lognormal");
        assert_eq!(adaptive.cpu_percent, Some(54.0));
        assert_eq!(adaptive.dominates, [("pas".to_owned(), 1), ("poll".to_owned(), 1)].into());
        assert_eq!(pas.dominates, [("poll".to_owned(), 1), ("adaptive".to_owned(), 1)].into());
        assert_eq!((pas.overslept_percent, pas.share_percent), (None, None));
        assert!(pas.cpu_over_informed.is_none());
    }
}
