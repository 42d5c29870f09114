//! The control socket: other processes of the same user read this process's telemetry, and change
//! its channels' policies (`meantime top`).
//!
//! A program has to ask for it: [`serve`] starts one thread, which sleeps until a process connects,
//! and ends when the [`ControlServer`] is dropped. No channel ever waits for it: see
//! [`telemetry`](meantime_completion::telemetry).
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
//! The socket (mode 0600) is named `PID.sock`, in a directory of mode 0700 that has to belong to
//! the user: `$XDG_RUNTIME_DIR/meantime`; if the variable is not set, `/run/meantime/control` for
//! root, and `/tmp/meantime-UID` for others. In addition, the user of each connection is checked
//! (SO_PEERCRED): this process's user, or root. A client checks the listener in the same way: its
//! process number is the one in the name, and its user owns the directory.
//!
//! # The protocol
//!
//! Each request is a line of JSON (at most 4,096 bytes), and each answer is one; a connection can
//! carry any number of them.
//!
//! `{"get":"queues"}` is answered by
//! `{"pid":4711,"now_ns":…,"queues":[{"id":3,"device":"mem:1G","thread":"worker","policy":"poll",`
//! and the figures of [`QueueFigures`](meantime_completion::telemetry::QueueFigures) by their names
//! `}]}`. They are counters: rates come from two answers.
//!
//! `{"get":"metrics"}` is answered by `{"pid":4711,"metrics":[…]}`: see [`metrics`].
//!
//! `{"set":{"queue":3,"policy":"hybrid"}}` is answered by `{"done":{"queue":3,"policy":"hybrid"}}`
//! once the channel's thread has made the change, which is when it next does I/O; without I/O for
//! two seconds, the request is withdrawn.
//!
//! A request that fails is answered by `{"error":"…"}`, which gives the reason and a remedy. After
//! a line that is too long the connection is closed.

mod answer;
mod client;
mod connection;
mod error;
pub mod metrics;
mod place;
mod server;

pub use client::Client;
pub use connection::{Change, LINE_BYTES_MAX};
pub use error::ControlError;
pub use place::{Served, own_path, served, served_by, served_by_all, served_names};
pub use server::{ControlServer, serve};
