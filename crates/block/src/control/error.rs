//! Why a control socket cannot be served or used.

use std::path::{Path, PathBuf};

/// Why a control socket cannot be served or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The directory may be used by other users.
    #[error("the directory {path} for control sockets is not safe: {why}")]
    Unsafe {
        /// The directory.
        path: PathBuf,
        /// The reason, and a remedy.
        why: String,
    },
    /// Another process serves there.
    #[error("{path}: there is a process that serves this control socket already")]
    Taken {
        /// The socket.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("{what} {path}: {source}")]
    Io {
        /// What was attempted.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The process answered with an error.
    #[error("{0}")]
    Answered(String),
    /// The answer is not one of this version's protocol.
    #[error("the process's answer is not understood ({0}); is it of another version of Meantime?")]
    Protocol(String),
}

impl ControlError {
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }
}
