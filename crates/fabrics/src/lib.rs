//! NVMe over TCP: controllers of other machines.
//!
//! # What it is for
//! [`TcpTransport`] is a [`Transport`](meantime_hw::Transport) to a controller of any NVMe/TCP
//! target (Linux's, SPDK's, storage arrays, `meantime ssd --tcp`), without kernel modules or root.
//! The driver above is the one for PCIe, with its retries and its ladder. [`discover`] asks a
//! target for its subsystems.
//!
//! # What it owns
//! The connections, one for each queue pair, and what is in flight on them. Memory and rings are
//! the driver's, and are reached only by the addresses that its commands name (`memory`).
//!
//! # What it promises
//! - A thread that polls never waits for a socket. The thread that waits for a queue receives for
//!   it. There is one exception: eight times in the time that an I/O command has, the driver asks
//!   whether the controller is well. That is a round trip, unless another thread asked in the last
//!   second.
//! - The data of a read goes from the socket to its buffer, copied once, by the kernel.
//! - Nothing is allocated for a command once as many have been in flight before.
//! - The target is not trusted: a violation ends the connection (`connection`).
//! - A buffer is written only while its command is in flight, inside a call of this process. So the
//!   buffers of a connection that has ended are free.
//! - After a loss no command is repeated before the target's controller has ended (`registers`).
//!
//! # Parts, in reading order
//! ```text
//!   address       //host:port/NQN; the host's own names
//!   memory        the driver's memory by address; ranges for system calls
//!   identified    block sizes, from the Identify data that pass by
//!   command       a command's data: length, direction, pieces
//!   output, input            bytes to be sent; bytes to be parsed
//!   connection    one queue: capsules out, data and completions in
//!   guess         receiving the data of reads without copying it twice
//!   credentials   keys, and how a queue is authenticated by them
//!   dial          from an address to a connected queue
//!   queue         a queue pair and its connection
//!   registers     properties, controller reset, loss
//!   transport     what the driver holds; the thread that keeps the association alive
//!   discovery     the discovery service
//! ```
//!
//! The traffic is in the clear: TLS is not here yet, nor are several paths to one namespace.

#![deny(unsafe_code)]

mod address;
mod command;
mod connection;
mod credentials;
mod dial;
mod discovery;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod guess;
mod identified;
mod input;
mod memory;
mod output;
mod queue;
mod registers;
mod transport;

pub use address::{Host, TcpAddress, parse_uuid};
pub use credentials::Credentials;
pub use discovery::{Subsystem, discover};
pub use error::{FabricsError, Result};
pub use transport::{KATO_MIN_MS, TcpOptions, TcpTransport};
