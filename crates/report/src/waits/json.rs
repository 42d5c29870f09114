//! The results as JSON.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use super::figures::{CellResult, Figures};
use super::summary::Summary;

/// The conditions of the whole run.
#[derive(Debug, Clone, Default)]
pub struct Setting {
    /// The machine's facts, and the command line.
    pub facts: Map<String, Value>,
    /// The measured time of each policy in each cell.
    pub runtime_ms: u64,
    /// The program that competed in a second pass.
    pub competitor: Option<String>,
    /// The source of the simulated wake costs, or `None` for a live run.
    pub simulated: Option<String>,
}

/// Returns all results.
pub fn json(cells: &[CellResult], summaries: &[Summary], setting: &Setting) -> Value {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    json!({
        "timestamp": since.as_secs(),
        "runtime_ms": setting.runtime_ms,
        "competitor": setting.competitor,
        "simulated": setting.simulated,
        "cells": cells.iter().map(cell).collect::<Vec<_>>(),
        "summary": summaries,
        "meantime": setting.facts,
    })
}

fn cell(result: &CellResult) -> Value {
    json!({
        "name": result.cell.name,
        "device_time_ns": result.cell.device_ns,
        "shape": result.cell.shape[0],
        "model": result.cell.model,
        "poll": result.poll,
        "references": result.references,
        "turns_repeated": result.moved_turns.0,
        "turns_disturbed": result.moved_turns.1,
        "cacheline_rtt_ns": result.cacheline_rtt_ns,
        "ways": result.ways.iter().map(|figures| way(result, figures)).collect::<Vec<_>>(),
    })
}

fn way(cell: &CellResult, way: &Figures) -> Value {
    let over_oracle = cell.references.map(|of| way.mean_ns - of.oracle.mean_ns);
    let mut json = json!(way);
    for (key, figure) in [
        ("iops_per_cpu_percent", way.iops_per_cpu_percent()),
        ("mean_over_poll", cell.mean_over_poll(way)),
        ("mean_over_poll_by_turns", cell.mean_over_poll_by_turns(way)),
        ("cpu_over_informed", cell.cpu_over_informed(way)),
        ("mean_above_oracle_ns", over_oracle),
        ("cpu_above_oracle_percent", cell.cpu_above_oracle_percent(way)),
        ("overslept_sleeps_percent", way.overslept_sleeps_percent()),
        ("overslept_ios_percent", way.overslept_ios_percent()),
    ] {
        json[key] = json!(figure);
    }
    json
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waits::summary::summaries;
    use crate::waits::testing::{cell, way};

    #[test]
    fn what_is_not_known_is_null() {
        let cells =
            [cell(&[way("poll", 10.0, 98.0), way("pas", 11.0, 40.0)], (10.0, 98.0), (10.2, 97.0))];
        let setting = Setting { runtime_ms: 500, ..Setting::default() };
        let json = json(&cells, &summaries(&cells), &setting);
        assert_eq!(json["simulated"], Value::Null);
        let cell = &json["cells"][0];
        assert_eq!(
            (&cell["name"], &cell["device_time_ns"]),
            (&json!("10us-lognormal"), &json!(10_000))
        );
        assert_eq!(cell["references"], Value::Null);
        assert_eq!(cell["poll"]["mean_ns"], 10_100.0);
        let pas = &cell["ways"][1];
        for key in [
            "completion",
            "ios",
            "mean_ns",
            "p50_ns",
            "p99_ns",
            "p99_9_ns",
            "slowest_1_in_6000_ns",
            "max_ns",
            "iops",
            "cpu_percent",
            "iops_per_cpu_percent",
            "mean_over_poll",
            "sleeps",
            "oversleeps",
        ] {
            assert!(!pas[key].is_null(), "{key}: {pas}");
        }
        for key in
            ["cpu_over_informed", "competing", "overslept_sleeps_percent", "mean_above_oracle_ns"]
        {
            assert!(pas.get(key).is_some_and(Value::is_null), "{key}: {pas}");
        }
        assert_eq!(json["summary"][1]["completion"], "pas");
        assert_eq!(json["summary"][1]["cells_within_1_03"], 0);
    }
}
