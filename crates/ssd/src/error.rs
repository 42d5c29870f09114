//! The reasons why a software SSD could not be set up.

use std::path::PathBuf;

use crate::served::SocketError;

/// A set-up error: what failed, where, and a remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SsdError {
    /// An invalid setting.
    #[error("SSD configuration, {field}: {problem}")]
    Config {
        /// The field of [`SsdConfig`](crate::SsdConfig) at fault.
        field: &'static str,
        /// What is wrong with it, and the values allowed.
        problem: String,
    },
    /// No built-in service-time model has this name.
    #[error(
        "no service-time model is called {name:?}; there are {}, or give the path of a TOML file",
        known.join(", ")
    )]
    UnknownModel {
        /// The name that was asked for.
        name: String,
        /// The existing names.
        known: &'static [&'static str],
    },
    /// An invalid service-time model.
    #[error("service-time model: {0}")]
    Model(String),
    /// An invalid fault plan.
    #[error("fault plan: {0}")]
    FaultPlan(String),
    /// The medium's file is in use by another SSD, here or in another process.
    #[error(
        "{}: in use by another SSD ({} a lock on it); stop that process, or use another file",
        path.display(),
        by.as_ref().map_or_else(|| "somebody holds".to_owned(), |by| format!("{by} has"))
    )]
    InUse {
        /// The file.
        path: PathBuf,
        /// The process that has it, if it is found.
        by: Option<String>,
    },
    /// The control socket could not be made.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The medium's path is not a regular file.
    #[error(
        "{}: is a {kind}, not a regular file; give a regular file (kernel block devices are opened \
         by their own URI)",
        path.display()
    )]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// The type of the file.
        kind: &'static str,
    },
    /// The medium has the wrong size.
    #[error("{what}: {problem}")]
    Size {
        /// The medium: a path, or "DRAM medium".
        what: String,
        /// What is wrong, and the values allowed.
        problem: String,
    },
    /// A system call failed.
    #[error("{}: {attempted}: {source}{}", path.display(), if is_missing(source) {
        " (with `create=64M` in the URI it is made)"
    } else {
        ""
    })]
    Io {
        /// The file, or a name for it.
        path: PathBuf,
        /// What was attempted.
        attempted: &'static str,
        /// The cause.
        source: std::io::Error,
    },
    /// The SSD's thread could not be started.
    #[error("starting the SSD's thread: {0}")]
    Thread(#[source] std::io::Error),
}

fn is_missing(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::NotFound
}

impl SsdError {
    pub(crate) fn config(field: &'static str, problem: impl Into<String>) -> Self {
        Self::Config { field, problem: problem.into() }
    }
}
