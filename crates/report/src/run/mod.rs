//! The result of a run, and fio's forms of it: JSON ([`report_json`]), text ([`run_text`]), logs
//! ([`write_log`]).

mod json;
mod logs;
mod stats;
mod text;

#[cfg(test)]
mod tests;

pub use json::{ctime_utc, report_json};
pub use logs::{LogEntry, LogKind, LogRows, LogStyle, LogWindow, write_log};
pub use stats::{
    DirStats, LatencyStats, Rates, RunResult, SLOWEST_ONE_IN, SeriesPoint, Settings, Turn,
    batch_level, depth_level,
};
pub use text::run_text;

#[cfg(test)]
pub(crate) use stats::PERCENTILES;
pub(crate) use stats::is_known;
