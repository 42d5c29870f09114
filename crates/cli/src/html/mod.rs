//! The HTML report: one self-contained page from the JSON of one run or several, ours or fio's.
//!
//! [`read`] takes a file's JSON apart, [`build`] sorts what is in it into the [`model`], and
//! [`page`] writes it down. Both `meantime bench --html` and `meantime report` come this way.

mod build;
mod command;
mod differences;
mod figures;
mod headline;
mod latency;
pub(crate) mod markup;
pub(crate) mod model;
pub(crate) mod page;
mod read;
pub(crate) mod svg;
mod tables;
mod text;
mod workload;

#[cfg(test)]
mod tests;

use serde_json::Value;

pub(crate) use command::run;

use crate::failure::Failure;

/// The page of one run, from its JSON.
pub(crate) fn page_of_run(report: &Value) -> Result<String, Failure> {
    Ok(page::page(&of_run(report)?))
}

/// What keeps the results of one run, from its JSON, from being compared; for below the table.
pub(crate) fn warnings_of_run(report: &Value) -> Result<String, Failure> {
    Ok(text::warnings(&of_run(report)?))
}

fn of_run(report: &Value) -> Result<model::Report, Failure> {
    build::report(&[(None, report.clone())])
        .map_err(|error| Failure::new(format_args!("cannot make the report: {error}")))
}
