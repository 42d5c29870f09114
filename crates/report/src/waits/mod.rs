//! Policies over a grid of devices: the results of each in each cell, and their presentation.

mod figures;
mod json;
mod page;
mod plane;
mod summary;
mod table;
#[cfg(test)]
mod testing;

pub use figures::{Baseline, Cell, CellResult, Competing, Figures, Reference, References};
pub use json::{Setting, json};
pub use page::page;
pub use summary::{Ratio, Summary, summaries};
pub use table::{cell_table, legend, summary_table};
