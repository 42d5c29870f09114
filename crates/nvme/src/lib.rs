//! The NVMe driver: controller, queue pairs, commands, errors, recovery.

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
    /// A failure beneath the protocol.
    #[error(transparent)]
    Hw(#[from] HwError),
    /// The controller did not follow CC.EN within CAP.TO.
    #[error(
        "the controller did not {what} within {timeout_ms} ms (CAP.TO); CSTS is {csts:#x}: power-cycle or reset the device"
    )]
    NotReady {
        /// What was waited for.
        what: &'static str,
        /// How long.
        timeout_ms: u64,
        /// The status register at the end.
        csts: u32,
    },
    /// CSTS.CFS is set, or RDY is not.
    #[error(
        "the controller has failed or is disabled (CSTS {csts:#x}) in the middle of {what}: reset the device"
    )]
    Fatal {
        /// The status register.
        csts: u32,
        /// What was being done.
        what: &'static str,
    },
    /// Another [`Controller`] has the transport.
    #[error(
        "{0} is driven by another controller of this process: share that one, or drop it and its queues first"
    )]
    Driven(String),
    /// Registers read all ones, or the controller could not be brought back.
    #[error("the device is gone")]
    Gone,
    /// The controller lacks something that is needed.
    #[error("the controller cannot be used: {0}")]
    Unsupported(String),
    /// An admin command failed.
    #[error("the controller refused {command}: {status}")]
    Admin {
        /// Which.
        command: &'static str,
        /// With which status.
        status: Status,
    },
    /// An admin command was not answered.
    #[error("the controller did not answer {command} within {timeout_ms} ms")]
    AdminTimeout {
        /// Which.
        command: &'static str,
        /// How long was waited.
        timeout_ms: u64,
    },
    /// The controller's identify data contradict themselves.
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
        /// The one asked for.
        nsid: u32,
        /// Those that there are.
        have: String,
    },
    /// All queue identifiers are in use.
    #[error(
        "all {limit} I/O queue pairs of the controller are in use; close a channel, or use fewer threads"
    )]
    NoQueue {
        /// How many there are.
        limit: u16,
    },
    /// All interrupt vectors are in use, or there are none.
    #[error(
        "the controller has no free interrupt vector ({vectors} in all): use a polled policy, or fewer threads"
    )]
    NoVector {
        /// How many there are.
        vectors: u16,
    },
}

/// A `Result` of this layer.
pub type Result<T> = std::result::Result<T, Error>;
