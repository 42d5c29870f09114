//! How a command fails: a line on stderr for each thing that is wrong, and an exit code.

use std::fmt::Display;
use std::process::ExitCode;

use meantime_bench::run::RunError;

use crate::job::{JobError, JobErrors, Origin};

/// Something failed, or was found to be wrong.
pub(crate) const FAILED: u8 = 1;
/// The command line cannot be obeyed as it was written.
pub(crate) const USAGE: u8 = 2;

/// Why a command ends without having done what it was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    /// A line each; most often one.
    messages: Vec<String>,
    code: u8,
}

impl Failure {
    /// A failure: `message` says what, where, and what to do.
    pub(crate) fn new(message: impl Display) -> Self {
        Self { messages: vec![one_line(&message.to_string())], code: FAILED }
    }

    /// A command line that cannot be obeyed.
    pub(crate) fn usage(message: impl Display) -> Self {
        Self { messages: vec![one_line(&message.to_string())], code: USAGE }
    }

    /// The end that a signal asked for, with what there is to note.
    pub(crate) fn ended(note: Option<&str>, code: u8) -> Self {
        Self { messages: note.map(str::to_owned).into_iter().collect(), code }
    }

    /// The same with the exit code that its command has for a failure; a usage error stays one.
    pub(crate) fn with_code(self, code: u8) -> Self {
        let code = if self.code == USAGE { USAGE } else { code };
        Self { code, ..self }
    }

    /// Whether it is the command line that cannot be obeyed.
    pub(crate) fn is_usage(&self) -> bool {
        self.code == USAGE
    }

    /// The lines to stderr.
    pub(crate) fn show(&self) {
        for message in &self.messages {
            eprintln!("meantime: {message}");
        }
    }

    /// For the shell.
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
            // What is wrong on the command line is wrong for each job.
            if !messages.contains(&message) {
                messages.push(message);
            }
        }
        Self { messages, code: if usage { USAGE } else { FAILED } }
    }
}

/// The error of a device with the device's name, unless it has it already. A wrong URI is one of
/// usage.
pub(crate) fn named(uri: &str, error: &(dyn std::error::Error + 'static)) -> Failure {
    RunError::of_device(uri, error).into()
}

/// A warning to stderr: the command goes on.
pub(crate) fn warn(message: impl Display) {
    eprintln!("meantime: warning: {}", one_line(&message.to_string()));
}

/// Whatever a file name or a device's answer contains, a message stays one line.
fn one_line(text: &str) -> String {
    text.split(['\n', '\r'])
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_stay_one_line() {
        assert_eq!(one_line("a\nb\r\n  c\n"), "a b c");
    }
}
