//! The NVMe driver: controller, queue pairs, recovery.
//!
//! # What it is for
//! It converts a [`Command`] into a submission queue entry and a completion queue entry into an
//! [`Outcome`], and recovers when the device does not answer. It knows no request, no policy and no
//! thread.
//!
//! # What it owns
//! - The registers and doorbells of its controller, which it has claimed: a second
//!   [`Controller::enable`] on a transport is [`Error::Driven`] until the first controller and its
//!   queues are gone.
//! - The rings of each queue pair, and the slot of each command in flight. A queue pair belongs to
//!   one thread (`Send`, not `Sync`). Channels of a device share the [`Controller`]: a lock for
//!   the admin queue, and an atomic *epoch*, which a reset changes.
//!
//! # What it promises
//! - No data from the device is trusted. A completion is accepted only if queue, CID and generation
//!   are those of a command in flight (`QueuePair::accept`); all others are counted and dropped.
//!   Structures of Identify are validated (`identify`) before they are used.
//! - Every command ends exactly once, in bounded time, whatever the device does.
//! - A command that may be repeated is repeated, at most `retries` times, invisibly to the caller
//!   (`retry` has the reasons). A fused pair is never repeated: one of the two commands alone is no
//!   pair, and the compare of a repeated pair would find the data that the first try wrote.
//! - A command keeps its memory until the device is provably done with it (ARCHITECTURE.md §3).
//! - No clock is read, nothing is allocated, and no lock is taken when a command is staged or
//!   reaped.
//!
//! # Parts, in reading order
//! ```text
//!   ring        the two rings: the phase is checked here; the only loads and stores of entries
//!   prp         how a command names its data
//!   queue       QueuePair: slots with CIDs, staging, reaping that trusts nothing
//!   io_queue    IoQueue: a queue pair of a live controller, with the time-out ladder
//!   retry       which statuses are repeated, when, how often
//!   recovery    commands that are held to be staged again
//!   registers   the one place that writes registers and doorbells
//!   enable      bringing a controller up and down
//!   admin       the admin queue
//!   controller  Controller: queues, reset, giving up
//!   identify, features, logs, arbitration, shadow     what else a controller has
//! ```
//!
//! A command's tag is its slot. Slots `0..assigned` are assigned by the caller, so that the common
//! request, which is one command, needs no second free list. Further slots serve the parts of
//! requests that are split. The two commands of a compare-and-write are staged one after the other
//! with no doorbell between, also across the end of the ring. If the compare failed and the device
//! wrote nevertheless, the block layer's error is `IoErrorKind::Unfused`.
//!
//! # Deadlines of a busy queue
//! A queue that is always busy would never check its deadlines. So `Ring::wrap` closes the queue
//! every four rounds, and the next command takes the slow path, which checks. The fast path pays
//! nothing.

#![deny(unsafe_code)]

pub mod admin;
pub mod arbitration;
pub mod controller;
mod enable;
mod features;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod identify;
pub mod io_queue;
mod logs;
pub mod prp;
pub mod queue;
mod recovery;
mod registers;
pub mod retry;
mod ring;
mod shadow;

pub use arbitration::QueueClass;
pub use controller::{Controller, ControllerOptions};
pub use identify::{ControllerInfo, NamespaceInfo, PowerState};
pub use io_queue::IoQueue;
pub use logs::NamespaceIds;
pub use queue::{
    Command, CommandError, Completed, Op, Outcome, QueueCounters, QueueFull, QueuePair,
};
pub use recovery::Owner;

use meantime_hw::HwError;
use meantime_spec::status::Status;

/// Why an operation of the driver failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A failure below the protocol.
    #[error(transparent)]
    Hw(#[from] HwError),
    /// The controller did not follow CC.EN within CAP.TO.
    #[error(
        "the controller did not {what} within {timeout_ms} ms (CAP.TO); CSTS is {csts:#x}: \
         power-cycle or reset the device"
    )]
    NotReady {
        /// The expected change.
        what: &'static str,
        /// The time-out.
        timeout_ms: u64,
        /// The status register at the end.
        csts: u32,
    },
    /// CSTS.CFS is set, or RDY is not.
    #[error(
        "the controller has failed or is disabled (CSTS {csts:#x}) in the middle of {what}: reset \
         the device"
    )]
    Fatal {
        /// The status register.
        csts: u32,
        /// The operation.
        what: &'static str,
    },
    /// Another [`Controller`] has the transport.
    #[error(
        "{0} is driven by another controller of this process: share that one, or drop it and its \
         queues first"
    )]
    Driven(String),
    /// Registers read all ones, or the controller could not be brought back.
    #[error("the device is gone")]
    Gone,
    /// The controller is behind a network, and does not answer or was given up: what is known of
    /// that, and a remedy.
    #[error("{0}")]
    Connection(String),
    /// The controller lacks a required feature.
    #[error("the controller cannot be used: {0}")]
    Unsupported(String),
    /// An admin command failed.
    #[error("the controller refused {command}: {status}")]
    Admin {
        /// The command.
        command: &'static str,
        /// Its status.
        status: Status,
    },
    /// An admin command was not answered.
    #[error("the controller did not answer {command} within {timeout_ms} ms")]
    AdminTimeout {
        /// The command.
        command: &'static str,
        /// The time waited.
        timeout_ms: u64,
    },
    /// The controller's identify data is inconsistent.
    #[error("the controller's {structure} is not valid: {what}")]
    Invalid {
        /// The structure.
        structure: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// No such namespace.
    #[error("the controller has no usable namespace {nsid}; it has {have}")]
    NoNamespace {
        /// The namespace requested.
        nsid: u32,
        /// The existing ones.
        have: String,
    },
    /// All queue identifiers are in use.
    #[error(
        "all {limit} I/O queue pairs of the controller are in use; close a channel, or use fewer \
         threads"
    )]
    NoQueue {
        /// The number of pairs.
        limit: u16,
    },
    /// All interrupt vectors are in use, or there are none.
    #[error(
        "the controller has no free interrupt vector ({vectors} in all): use a polled policy, or \
         fewer threads"
    )]
    NoVector {
        /// The number of vectors.
        vectors: u16,
    },
}

/// A `Result` of this layer.
pub type Result<T> = std::result::Result<T, Error>;
