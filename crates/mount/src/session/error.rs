//! The reasons why there is no mount.

use std::io;
use std::path::PathBuf;

/// The commands that read files where nothing can be mounted, for the end of a message.
pub const UNMOUNTED: &str = "without a mount, `meantime fs get` and `meantime fs cat` read files, \
                             and so does Python's file system (fsspec)";

/// The reason why there is no mount.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The directory cannot be used.
    #[error("{dir}: {why}")]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// The reason, with advice.
        why: String,
    },
    /// The kernel's FUSE cannot be reached.
    #[error("{0}")]
    NoFuse(String),
    /// The kernel refused the mount.
    #[error("mounting at {dir}: {why}")]
    Refused {
        /// The mount's directory.
        dir: PathBuf,
        /// The reason, with advice.
        why: String,
    },
    /// Kernel and server have no version of the protocol in common.
    #[error("{0}")]
    Protocol(String),
    /// The system has no thread or descriptor left.
    #[error("starting to serve the mount: {0}")]
    Start(#[from] io::Error),
}
