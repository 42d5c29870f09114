//! The JSON of one run or several, ours or fio's, as one page or as a table.
//!
//! `read` takes a file's JSON apart, `build` sorts its content into the `model`, and `page` shows
//! it. Both `meantime bench --html` and `meantime report` use this path.

mod build;
mod differences;
mod export;
mod headline;
mod latency;
mod maps;
mod model;
mod page;
mod plots;
mod read;
mod sweep;
mod tables;
mod workload;

#[cfg(test)]
mod tests;

pub use model::Report;
pub(crate) use model::{Job, Run, Source};
pub use read::parse;
pub(crate) use read::printable;
