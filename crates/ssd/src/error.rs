//! Why a software SSD could not be set up.

use std::path::PathBuf;

use crate::served::SocketError;

/// A set-up error: what, where, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SsdError {
    /// A setting that no controller can be built from.
    #[error("SSD configuration, {field}: {problem}")]
    Config {
        /// The field of [`SsdConfig`](crate::SsdConfig) at fault.
        field: &'static str,
        /// What is wrong with it, and what would be right.
        problem: String,
    },
    /// No built-in service-time model has this name.
    #[error(
        "no service-time model is called {name:?}; there are {}, or give the path of a TOML file",
        known.join(", ")
    )]
    UnknownModel {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: &'static [&'static str],
    },
    /// A service-time model that does not parse or makes no sense.
    #[error("service-time model: {0}")]
    Model(String),
    /// A fault plan that does not parse or makes no sense.
    #[error("fault plan: {0}")]
    FaultPlan(String),
    /// The medium's file is in use by another SSD, here or in another process.
    #[error(
        "{}: in use by another SSD (a lock is held on it); stop that process, or use another file",
        path.display()
    )]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The control socket could not be made.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The medium's path is no regular file.
    #[error(
        "{}: is a {kind}, not a regular file; give a regular file (kernel block devices are opened \
         by their own URI)",
        path.display()
    )]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// What it is instead.
        kind: &'static str,
    },
    /// The medium's size does not fit what is to be stored on it.
    #[error("{what}: {problem}")]
    Size {
        /// The medium: a path, or "DRAM medium".
        what: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// A system call failed.
    #[error("{}: {attempted}: {source}", path.display())]
    Io {
        /// The file, or what stands for it.
        path: PathBuf,
        /// What was attempted.
        attempted: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The SSD's thread could not be started.
    #[error("starting the SSD's thread: {0}")]
    Thread(#[source] std::io::Error),
}

impl SsdError {
    pub(crate) fn config(field: &'static str, problem: impl Into<String>) -> Self {
        Self::Config { field, problem: problem.into() }
    }
}
