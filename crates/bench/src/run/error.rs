//! Errors of jobs that cannot run, or not to their end.

use std::error::Error;
use std::fmt::Display;

use meantime_block::OpenError;

use crate::job::JobError;

/// `fail!("{uri}: {why}")` returns a [`RunError`] with that message.
macro_rules! fail {
    ($($message:tt)+) => {
        return Err($crate::run::error::RunError::new(format_args!($($message)+)))
    };
}
pub(super) use fail;

/// `refuse!(job, "{key} does not fit")` returns a [`RunError`] that names the job.
macro_rules! refuse {
    ($job:expr, $($why:tt)+) => {
        return Err($crate::run::error::RunError::of_job(&$job.name, format_args!($($why)+)))
    };
}
pub(super) use refuse;

/// Why jobs cannot run, or not to their end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A job's key has an invalid value.
    #[error(transparent)]
    Job(#[from] JobError),
    /// A URI is malformed.
    #[error("{0}")]
    Uri(String),
    /// An operation failed, or a check found an error.
    #[error("{0}")]
    Failed(String),
}

impl RunError {
    /// Creates an error. `message` says what failed, where, and the remedy.
    pub(crate) fn new(message: impl Display) -> Self {
        Self::Failed(message.to_string())
    }

    /// Creates the error that the job named `name` cannot run. `message` says why.
    pub(crate) fn of_job(name: &str, message: impl Display) -> Self {
        Self::new(format_args!("job {name}: {message}"))
    }

    /// Returns the error of a device with the device's name, unless the text already contains it.
    pub fn of_device(uri: &str, error: &(dyn Error + 'static)) -> Self {
        let text = error.to_string();
        let text = if text.contains(uri) { text } else { format!("{uri}: {text}") };
        match error.downcast_ref() {
            Some(OpenError::Uri(_)) => Self::Uri(text),
            _ => Self::Failed(text),
        }
    }
}
