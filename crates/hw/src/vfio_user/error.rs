//! Errors of a server, and of the connection to it.

use std::io;
use std::path::PathBuf;

use meantime_nvme_spec::vfio_user::{Command, VERSION_MAJOR, VERSION_MINOR};

/// Why a controller behind vfio-user cannot be used (any more).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UserError {
    /// The socket cannot be connected to.
    #[error("cannot connect to the socket {}: {source}; {advice}", path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
        /// A remedy.
        advice: &'static str,
    },
    /// It uses another version of the protocol.
    #[error(
        "{server}: it answered with version {major}.{minor} of vfio-user, and {VERSION_MAJOR}.0 to \
         {VERSION_MAJOR}.{VERSION_MINOR} are spoken here: use a server of the same major version"
    )]
    Version {
        /// The server.
        server: String,
        /// The version's first number.
        major: u16,
        /// The version's second number.
        minor: u16,
    },
    /// It answered with an error; the connection stays open.
    #[error("{server}: the server refused {command}: {source}; its log may say why")]
    Refused {
        /// The server.
        server: String,
        /// The command.
        command: Command,
        /// Its errno.
        source: io::Error,
    },
    /// It did not answer; the connection was closed.
    #[error(
        "{server}: no answer to {command} within {timeout_ms} ms: the server hangs, or serves \
         another client (one at a time)"
    )]
    Late {
        /// The server.
        server: String,
        /// The command.
        command: Command,
        /// The time waited.
        timeout_ms: u128,
    },
    /// It has closed the connection.
    #[error(
        "{server}: the server closed the connection: it has ended, or did not like what it was \
         asked"
    )]
    Closed {
        /// The server.
        server: String,
    },
    /// The socket failed.
    #[error("{server}: {source}: the connection was given up")]
    Socket {
        /// The server.
        server: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// It sent an invalid message; the connection was closed.
    #[error("{server}: the server does not keep to vfio-user: {what}")]
    Protocol {
        /// The server.
        server: String,
        /// What was invalid.
        what: String,
    },
    /// Its device cannot be used.
    #[error("{server}: this controller cannot be used: {what}")]
    Unusable {
        /// The server.
        server: String,
        /// The reason.
        what: String,
    },
    /// The connection was closed earlier.
    #[error("{server}: the connection was given up: {why}")]
    Gone {
        /// The server.
        server: String,
        /// The reason.
        why: String,
    },
}

/// A `Result` of this transport's own.
pub(super) type Result<T> = std::result::Result<T, UserError>;
