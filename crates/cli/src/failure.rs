//! How a command fails: a line on stderr for each error, and an exit code.

use std::fmt::Display;
use std::process::ExitCode;

use meantime_bench::run::RunError;

use crate::job::{JobError, JobErrors, Origin};

/// An operation failed, or a check found an error.
pub(crate) const FAILED: u8 = 1;
/// The command line is invalid.
pub(crate) const USAGE: u8 = 2;

/// A change is one that `--fail-if` forbids.
pub(crate) const FORBIDDEN: u8 = 3;

/// Why a command ends without having done its work.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The messages of one line each. Usually there is one.
    messages: Vec<String>,
    code: u8,
}

impl Failure {
    /// Creates a failure: `message` says what failed, where, and the remedy.
    pub(crate) fn new(message: impl Display) -> Self {
        Self { messages: vec![one_line(&message.to_string())], code: FAILED }
    }

    /// Creates a failure for an invalid command line.
    pub(crate) fn usage(message: impl Display) -> Self {
        Self { messages: vec![one_line(&message.to_string())], code: USAGE }
    }

    /// Creates the failure of a command that a signal ended, with a note.
    pub(crate) fn ended(note: Option<&str>, code: u8) -> Self {
        Self { messages: note.map(str::to_owned).into_iter().collect(), code }
    }

    /// Replaces the exit code by the command's own for failures. A usage error keeps its code.
    pub(crate) fn with_code(self, code: u8) -> Self {
        let code = if self.code == USAGE { USAGE } else { code };
        Self { code, ..self }
    }

    /// Whether it is the command line that cannot be obeyed.
    pub(crate) fn is_usage(&self) -> bool {
        self.code == USAGE
    }

    /// Prints the lines to stderr.
    pub(crate) fn show(&self) {
        for message in &self.messages {
            eprintln!("meantime: {message}");
        }
    }

    /// Returns the exit code for the shell.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl From<JobError> for Failure {
    fn from(error: JobError) -> Self {
        match error.origin {
            Origin::CommandLine => Self::usage(error),
            Origin::File { .. } => Self::new(error),
        }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Job(error) => error.into(),
            RunError::Uri(message) => Self::usage(message),
            RunError::Failed(message) => Self::new(message),
        }
    }
}

impl From<JobErrors> for Failure {
    fn from(JobErrors(errors): JobErrors) -> Self {
        let usage = errors.iter().all(|error| error.origin == Origin::CommandLine);
        let mut messages: Vec<String> = Vec::new();
        for message in errors.iter().map(|error| one_line(&error.to_string())) {
            // An error of the command line occurs for each job.
            if !messages.contains(&message) {
                messages.push(message);
            }
        }
        Self { messages, code: if usage { USAGE } else { FAILED } }
    }
}

/// Says in front of an error what has failed.
pub(crate) trait Context<T> {
    /// Makes an error the failure `WHAT: ERROR`.
    fn context(self, what: impl Display) -> Result<T, Failure>;
}

impl<T, E: Display> Context<T> for Result<T, E> {
    fn context(self, what: impl Display) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(format_args!("{what}: {error}")))
    }
}

/// Returns the error of a device with the device's name, unless the text already contains it. A
/// wrong URI is a usage error.
pub(crate) fn named(uri: &str, error: &(dyn std::error::Error + 'static)) -> Failure {
    RunError::of_device(uri, error).into()
}

/// Prints a warning to stderr. The command goes on.
pub(crate) fn warn(message: impl Display) {
    eprintln!("meantime: warning: {}", one_line(&message.to_string()));
}

/// Makes a message one line, for any file name or device's answer in it.
fn one_line(text: &str) -> String {
    let parts = text.split(['\n', '\r']).map(str::trim).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_stay_one_line() {
        assert_eq!(one_line("a\nb\r\n  c\n"), "a b c");
    }
}
