//! What a run measured, and how it is shown: fio's JSON ([`json`]), fio's text and a comparison table ([`text`], [`table`]).

pub mod json;
pub mod logs;
pub mod look;
pub mod stats;
pub mod table;
pub mod text;

#[cfg(test)]
mod tests;

pub use json::report_json;
pub use logs::{HIST_BINS, LogEntry, LogKind, LogRows, LogStyle, LogWindow, hist_bin, write_log};
pub use stats::{DirStats, RunResult, SeriesPoint, Settings, batch_level};
pub use table::comparison_table;
pub use text::{iops, run_text};
