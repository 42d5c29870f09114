//! Errors below the NVMe protocol.

use std::io;

use super::{PciAddress, UserError, VfioError};

/// An error below the NVMe protocol.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HwError {
    /// The kernel could not allocate memory.
    #[error("cannot map {bytes} bytes of memory for DMA: {source}; free memory, or ask for less")]
    Map {
        /// The size requested.
        bytes: usize,
        /// The error of `mmap`.
        source: io::Error,
    },
    /// The kernel refused to lock memory.
    #[error(
        "cannot lock {bytes} bytes of DMA memory: {source}; RLIMIT_MEMLOCK is {limit}: raise it \
         with `ulimit -l unlimited` (or LimitMEMLOCK= in the unit, or memlock in limits.conf), or \
         grant CAP_IPC_LOCK"
    )]
    Lock {
        /// The size to lock.
        bytes: usize,
        /// The soft limit in force, for display.
        limit: String,
        /// The error of `mlock`.
        source: io::Error,
    },
    /// An allocation larger than the heap supports.
    #[error("a DMA buffer of {bytes} bytes exceeds the limit of {limit} bytes")]
    TooLarge {
        /// The size requested.
        bytes: usize,
        /// The largest possible.
        limit: usize,
    },
    /// The transport refused a DMA mapping.
    #[error("the transport cannot map DMA memory at IOVA {iova:#x}, {bytes} bytes: {what}")]
    DmaMap {
        /// The I/O virtual address.
        iova: u64,
        /// Length of the mapping.
        bytes: usize,
        /// The transport's message.
        what: String,
    },
    /// There is no such doorbell or vector.
    #[error("the controller has no {what}")]
    Missing {
        /// The missing object.
        what: String,
    },
    /// A controller behind vfio-user cannot be reached or used.
    #[error(transparent)]
    VfioUser(#[from] UserError),
    /// A system call failed.
    #[error("{what}: {source}")]
    Os {
        /// What was attempted.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// A software SSD did not answer a call; its medium may be stuck.
    #[error("the software SSD did not answer in time (is the disk under its file stuck?)")]
    Unresponsive,
    /// A PCIe SSD cannot be reached through VFIO.
    #[error("{address}: {why}")]
    Vfio {
        /// The device.
        address: PciAddress,
        /// The obstacle, and a remedy.
        why: Box<VfioError>,
    },
    /// The device is no longer there.
    #[error("the device is gone")]
    Gone,
}

/// A `Result` of this layer.
pub type Result<T> = std::result::Result<T, HwError>;
