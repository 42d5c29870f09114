//! fio job files: the content of a `[job]` section, as typed values.
//!
//! [`parse()`] reads a whole file and finds all errors in it. [`Job::set`] is the only place that
//! looks keys up (the command line's `--bs 4k` uses it, too). [`Job::validate`] finds keys that
//! contradict each other once everything is set. Nothing here does I/O and nothing here panics, for
//! any text.

pub mod error;
mod keys;
mod lists;
mod parse;
mod payload;
mod section;
mod settings;
mod sweep;
mod trace;
mod validate;
mod value;
mod variables;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use error::{JobError, JobErrors, Origin};
pub use keys::{Ignored, KeyOption, Note, known_key, may_stand_alone, options, subjects};
pub use parse::{JobFile, parse};
pub use payload::Payload;
pub use section::Job;
pub use settings::{
    BS_MAX_BYTES, Batch, CPU_MAX, Extent, FileKeys, HOGS_MAX, Hint, IODEPTH_MAX, JOBS_MAX, LogKeys,
    LogName, NUMJOBS_MAX, PM_QOS_MAX_US, Pace, Randomness, Rw, SECTOR_BYTES, SETTINGS_MAX, Sizes,
    Syncing, Verify, VerifyKeys,
};
pub use sweep::{SWEEP_MAX, SWEPT, Sweep};
pub(crate) use trace::Action;
pub use trace::{ReplayKeys, Trace};
