//! Errors in a job, with their places.

use std::fmt;
use std::sync::Arc;

use itertools::Itertools as _;

/// Why a value is not accepted.
pub(super) type Why = String;

/// The source of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A line of a job file.
    File {
        /// The file's name as the user gave it.
        source: Arc<str>,
        /// The line, from 1.
        line: usize,
    },
    /// An option of our own command line.
    CommandLine,
}

impl Origin {
    /// Returns `key` as it is written there: `bs` in a file, `--bs` on the command line.
    pub fn key(&self, key: &str) -> String {
        match self {
            Origin::File { .. } => shown(key),
            Origin::CommandLine => format!("--{}", shown(key).replace('_', "-")),
        }
    }

    /// Returns the command line by which fio runs the job with our engine (docs/fio-engine.md). The
    /// engine takes the device by a key of its own, so that the file's `filename` and `ioengine`
    /// must not reach fio.
    pub(crate) fn fio_command(&self, key: &str, value: &str) -> String {
        const ENGINE: &str = "--ioengine=external:/usr/local/lib/meantime/libmeantime-fio.so \
                              --thread=1 --device=URI";
        match self {
            Origin::File { source, .. } => {
                format!("grep -Ev '^ *(filename|ioengine) *=' {source} | fio {ENGINE} -")
            }
            Origin::CommandLine => {
                let (key, value) = (shown(key), shown(value));
                format!("fio --name=job {ENGINE} --{key}={value}, and the job's other keys")
            }
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File { source, line } => write!(f, "{source}:{line}"),
            Origin::CommandLine => f.write_str("command line"),
        }
    }
}

/// An error in a job file or on the command line, with its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {problem}")]
pub struct JobError {
    /// The place.
    pub origin: Origin,
    /// The error.
    pub problem: Problem,
}

impl JobError {
    pub(crate) fn new(origin: &Origin, problem: Problem) -> JobError {
        JobError { origin: origin.clone(), problem }
    }
}

/// All errors, in the order of their places.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().format("\n"))]
pub struct JobErrors(pub Vec<JobError>);

/// An error in a job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Nothing but blanks and comments.
    #[error("the job file is empty; it needs at least one [job] section")]
    EmptyFile,
    /// The file has only `[global]`.
    #[error("no job: [global] only sets defaults; add a section such as [job1]")]
    NoJobs,
    /// More sections than we accept.
    #[error("more than {} jobs in one file", super::JOBS_MAX)]
    TooManyJobs,
    /// A `[` without its `]`, or no name within.
    #[error("bad section header {0:?}: expected [name]")]
    Section(String),
    /// A key before the first section.
    #[error("{0} stands outside a section; put it under [global] or [job]")]
    OutsideSection(String),
    /// A line that has no key.
    #[error("{0:?} has no key; expected key=value")]
    NoKey(String),
    /// A variable that is not set, or a calculation with one that has no result.
    #[error("{0}")]
    Variable(String),
    /// A key that neither fio nor this program has.
    #[error("unknown key {key}{}", nearest.as_ref().map_or_else(String::new, |near| {
        format!("; did you mean {near}?")
    }))]
    UnknownKey {
        /// The key as written.
        key: String,
        /// The nearest known one, when one is near.
        nearest: Option<String>,
    },
    /// A key of fio's that is refused.
    #[error("fio's key {key} is not supported: {why}")]
    Unsupported {
        /// The key as written.
        key: String,
        /// The reason, or the alternative.
        why: &'static str,
    },
    /// A key of fio's that is left to fio, which runs the job with our engine.
    #[error("fio's key {key} is not supported: fio runs the job with our engine: {command}")]
    LeftToFio {
        /// The key as written.
        key: String,
        /// The command line.
        command: String,
    },
    /// A key that needs a value and has none.
    #[error("{key} needs a value: {expected}")]
    NoValue {
        /// The key.
        key: String,
        /// The values that it takes.
        expected: String,
    },
    /// A value that is not what the key takes.
    #[error("{key}={value}: {why}")]
    Value {
        /// The key.
        key: String,
        /// The value, shortened and escaped.
        value: String,
        /// The error in it.
        why: String,
    },
    /// A value that `what` already quotes.
    #[error("{key}: {what}")]
    InKey {
        /// The key.
        key: String,
        /// The error.
        what: String,
    },
    /// Keys that contradict each other.
    #[error("job {job}: {what}")]
    Contradiction {
        /// The job's name.
        job: String,
        /// The contradiction, and the remedy.
        what: String,
    },
}

/// Makes user text safe to print: escapes control characters, and cuts it to 60 characters.
pub fn shown(text: &str) -> String {
    let safe = |c: char| if c.is_control() { c.escape_default().collect() } else { vec![c] };
    let mut out: String = text.chars().take(60).flat_map(safe).collect();
    if text.chars().nth(60).is_some() {
        out.push('…');
    }
    out
}
