//! What a run measured, and how it is shown: fio's JSON ([`json`]), fio's text and a comparison
//! table ([`text`], [`table`]).

pub(crate) mod json;
pub(crate) mod logs;
pub(crate) mod look;
pub(crate) mod stats;
pub(crate) mod table;
pub(crate) mod text;

#[cfg(test)]
mod tests;

pub(crate) use json::report_json;
pub(crate) use logs::{
    HIST_BINS, LogEntry, LogKind, LogRows, LogStyle, LogWindow, hist_bin, write_log,
};
pub(crate) use stats::{DirStats, RunResult, SeriesPoint, Settings, batch_level};
pub(crate) use table::comparison_table;
pub(crate) use text::{iops, run_text};
