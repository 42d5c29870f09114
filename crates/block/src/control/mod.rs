//! The control socket: other processes of the same user look at this one's channels, and change
//! their policies (`meantime top`).
//!
//! Nothing is served unless a program says so, once: [`serve`] starts one thread, which sleeps
//! until a process connects, and ends when the [`ControlServer`] is dropped. No channel ever waits
//! for it: see [`telemetry`](meantime_completion::telemetry).
//!
//! ```no_run
//! use meantime::block::control;
//!
//! # fn main() -> Result<(), control::ControlError> {
//! let _server = control::serve(&control::own_path()?)?;
//! // … I/O, for as long as `_server` lives.
//! # Ok(())
//! # }
//! ```
//!
//! # Permissions
//!
//! The socket (mode 0600) is named `PID.sock`, in a directory of mode 0700 that has to be the
//! user's own: `$XDG_RUNTIME_DIR/meantime`, or `/tmp/meantime-UID` where there is no such variable.
//! Besides, the user of each connection is checked (SO_PEERCRED): this process's user, or root.
//!
//! # The protocol
//!
//! A line of JSON is asked (at most 4,096 bytes), a line of JSON is answered, as often as one
//! likes.
//!
//! `{"get":"queues"}` is answered by
//! `{"pid":4711,"now_ns":…,"queues":[{"id":3,"device":"mem:1G","thread":"worker","policy":"poll",`
//! and the figures of [`QueueFigures`](meantime_completion::telemetry::QueueFigures) by their names
//! `}]}`. They are counters: rates come from two answers.
//!
//! `{"set":{"queue":3,"policy":"hybrid"}}` is answered by
//! `{"done":{"queue":3,"policy":"hybrid"}}` once the channel's thread has made the change, that
//! is when it next does I/O; within two seconds, or the request is withdrawn.
//!
//! Whatever cannot be done is answered by `{"error":"…"}`, which says why and what to do. After a
//! line that is too long the connection ends.

mod answer;
mod client;
mod connection;
mod place;
mod server;

use std::path::PathBuf;

pub use client::Client;
pub use place::{Served, own_path, served, served_by};
pub use server::{Change, ControlServer, serve};

/// The longest line that is taken, in bytes.
pub const LINE_BYTES_MAX: usize = 4096;

/// Why a control socket cannot be served or asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// The directory is not one that only this user can use.
    #[error("the directory {path} for control sockets is not safe: {why}")]
    Unsafe {
        /// The directory.
        path: PathBuf,
        /// Why, and what to do.
        why: String,
    },
    /// Another process serves there.
    #[error("{path}: there is a process that serves this control socket already")]
    Taken {
        /// The socket.
        path: PathBuf,
    },
    /// The system refused something.
    #[error("{what} {path}: {source}")]
    Io {
        /// What it was.
        what: &'static str,
        /// Of which file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The process answered with an error.
    #[error("{0}")]
    Answered(String),
    /// The process did not answer as one of this version would.
    #[error("the process's answer is not understood ({0}); is it of another version of Meantime?")]
    Protocol(String),
}

impl ControlError {
    fn io(what: &'static str, path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path, source }
    }
}
