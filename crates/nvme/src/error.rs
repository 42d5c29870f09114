//! Why an operation of the driver failed.

use meantime_hw::HwError;
use meantime_nvme_spec::status::Status;

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
    /// Another [`Controller`](super::Controller) has the transport.
    #[error(
        "{0} is driven by another controller of this process: share that one, or drop it and its \
         queues first"
    )]
    Driven(String),
    /// Registers read all ones, or the controller could not be brought back.
    #[error("the device is gone")]
    Gone,
    /// The controller is behind a network, and does not answer or was given up. The text has what
    /// is known of that, and a remedy.
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
