//! What an experiment measured.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Samples by name: one value for each repetition. A name ends with its unit: `_ns`, `_iops`,
/// `_percent`, `_bytes`, `_ratio`, `_per_second`, `_count`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The samples.
    pub values: BTreeMap<String, Vec<f64>>,
    /// Curves of the last repetition: points `(x, y)`.
    pub curves: BTreeMap<String, Vec<(f64, f64)>>,
    /// Descriptions of what was not measured, and why.
    pub left_out: Vec<String>,
    /// The inputs of a simulation, or facts of the machine that the figure depends on.
    pub inputs: Vec<String>,
}

impl Measured {
    /// Adds a sample, if there is one.
    pub fn add(&mut self, name: impl Into<String>, value: impl Into<Option<f64>>) {
        if let Some(value) = value.into() {
            self.values.entry(name.into()).or_default().push(value);
        }
    }

    /// Returns a figure's samples. They are empty if it was not measured.
    pub fn samples(&self, name: &str) -> &[f64] {
        self.values.get(name).map_or(&[], Vec::as_slice)
    }

    /// Adds the samples of a further repetition, and takes its curves.
    pub fn extend(&mut self, other: Self) {
        for (name, values) in other.values {
            self.values.entry(name).or_default().extend(values);
        }
        self.curves.extend(other.curves);
        other.left_out.into_iter().for_each(|line| add_line(&mut self.left_out, line));
        other.inputs.into_iter().for_each(|line| add_line(&mut self.inputs, line));
    }

    /// Returns the names of means and rates that are the same in each of several repetitions.
    /// Values that are really measured vary.
    pub fn constants(&self) -> Vec<&str> {
        let is_measured = |name: &str| name.ends_with("mean_ns") || name.ends_with("_iops");
        let same = |values: &[f64]| values.len() > 1 && values.iter().all(|v| *v == values[0]);
        let named = self.values.iter().filter(|(name, values)| is_measured(name) && same(values));
        named.map(|(name, _)| name.as_str()).collect()
    }
}

/// Adds a line that is not there.
pub(crate) fn add_line(lines: &mut Vec<String>, line: String) {
    if !lines.contains(&line) {
        lines.push(line);
    }
}
