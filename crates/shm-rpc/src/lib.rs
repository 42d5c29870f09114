//! Calls from one process to another by shared memory.
//!
//! # What it is for
//! The process that owns a file system ([`owner`]) executes reads, writes and fsyncs of other
//! processes ([`client`]) without a system call on either side, as long as both are awake.
//!
//! # What it promises
//! - A *line* belongs to one thread of a client, and carries one call at a time: a request, up to
//!   [`DATA_BYTES`] of data, and a reply.
//! - The owner makes all memory and seals its size, so no client can take pages away.
//! - **Copy, check, use.** Each side loads a field of the other once, by an atomic load, and uses
//!   its own copy. Data are copied out before they are used. A client that breaks the protocol
//!   loses its line, and nothing else happens.
//! - A side that sleeps is woken (`park`, modelled by loom). A client that ends, or is stopped,
//!   makes the owner wait for that line alone. If the owner ends, its clients' calls fail with
//!   [`Ended`].
//! - After a descriptor was closed, a client that checks its [`closings`] word sees the close.
//! - Without an error, a call allocates nothing and takes no lock.
//!
//! # Fault model
//! A client may store anything anywhere in a line at any time, and may be stopped or killed at any
//! instruction. The owner may be killed. Other processes do not have the memory: descriptors are
//! passed over a socket, to processes of the owner's user only.
//!
//! # Parts, in reading order
//! ```text
//!   message    what a call carries; what is said over the socket, and by ioctl
//!   layout     a line, as bytes
//!   park       sleeping until a word changes; patience: how long to spin before that
//!   line       what the two sides do with its words; loom_model: of it, by loom
//!   memory     memory that two processes share
//!   client     Caller: one thread's line
//!   owner      Answerer: the other end
//!   closings   how often each open file was closed
//!   socket     how the two meet
//! ```

#![deny(missing_docs, unsafe_code)]

// The models are of `line`. Loom does not model memory from the kernel.
#[cfg(not(loom))]
pub mod client;
#[cfg(not(loom))]
pub mod closings;
mod layout;
mod line;
#[cfg(all(test, loom))]
#[expect(unsafe_code, reason = "the data that two threads share")]
mod loom_model;
#[cfg(not(loom))]
mod memory;
pub mod message;
#[cfg(not(loom))]
pub mod owner;
mod park;
#[cfg(not(loom))]
mod patience;
#[cfg(not(loom))]
pub mod socket;
mod sync;

#[cfg(not(loom))]
pub use layout::DATA_AT;
pub use layout::DATA_BYTES;

/// The variable that tells a program of the shared-memory path. It holds the mount's `st_dev`, in
/// decimal, a colon, and the name of the owner's socket.
pub const VARIABLE: &str = "MEANTIME_SHARED_MEMORY";

/// The error that the other side has ended the line, or that its process has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended;
