//! Why jobs cannot be run, or not to their end.

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

/// Why jobs cannot be run, or not to their end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A job's key has a value that it cannot have.
    #[error(transparent)]
    Job(#[from] JobError),
    /// A URI is wrong as it is written.
    #[error("{0}")]
    Uri(String),
    /// Something failed, or was found to be wrong.
    #[error("{0}")]
    Failed(String),
}

impl RunError {
    /// Something failed: `message` says what, where, and what to do.
    pub(crate) fn new(message: impl Display) -> Self {
        Self::Failed(message.to_string())
    }

    /// The job named `name` cannot be run: `message` says why.
    pub(crate) fn of_job(name: &str, message: impl Display) -> Self {
        Self::new(format_args!("job {name}: {message}"))
    }

    /// The error of a device with the device's name, unless it has it already.
    pub fn of_device(uri: &str, error: &(dyn Error + 'static)) -> Self {
        let text = error.to_string();
        let text = if text.contains(uri) { text } else { format!("{uri}: {text}") };
        match error.downcast_ref() {
            Some(OpenError::Uri(_)) => Self::Uri(text),
            _ => Self::Failed(text),
        }
    }
}
