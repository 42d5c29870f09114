//! The JSON of one run or several, ours or fio's, as one page or as a table.
//!
//! `read` takes a file's JSON apart, `build` sorts what is in it into the `model`, and `page` shows
//! it. Both `meantime bench --html` and `meantime report` come this way.

mod build;
mod differences;
mod headline;
mod latency;
mod model;
mod page;
mod plots;
mod read;
mod tables;
mod text;
mod workload;

#[cfg(test)]
mod tests;

use serde_json::Value;

pub use model::Report;
pub use read::parse;

impl Report {
    /// The results of `files`: each a path, if it is one, and its JSON. The error has the path,
    /// unless there is only one.
    pub fn new(files: &[(Option<String>, Value)]) -> Result<Self, String> {
        build::report(files)
    }

    /// The page; `generator` is the program that makes it.
    pub fn page(&self, generator: &str) -> String {
        page::page(self, generator)
    }

    /// The table that `bench` prints, and what keeps its rows from being compared.
    pub fn text(&self, columns: usize) -> String {
        text::text(self, columns)
    }

    /// What keeps the results from being compared; for below the table.
    pub fn warnings(&self, columns: usize) -> String {
        text::warnings(self, columns)
    }
}
