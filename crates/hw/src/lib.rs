//! Hardware: memory-mapped doorbells, DMA memory, clocks, interrupts, and the transports that reach
//! a controller.
//!
//! This is the driver's lowest layer, and holds nearly all of its `unsafe` code.

#![deny(unsafe_code)]

pub mod clock;
pub mod cpu;
pub mod dma;
pub mod event;
pub mod floor;
pub mod futex;
pub mod ioprio;
pub mod mmio;
pub mod numa;
pub mod pages;
mod pause;
pub mod pci;
pub mod pm_qos;
pub mod scatter;
pub mod sched;
pub mod sigbus;
pub mod sleep;
pub mod soft;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod transport;
pub mod uring;
pub mod usage;
pub mod user_memory;
pub mod vfio;
pub mod vfio_user;
pub mod view;

pub use clock::Clock;
pub use dma::{DmaBuf, DmaHeap};
pub use event::EventFd;
pub use futex::Futex;
pub use ioprio::IoPriority;
pub use mmio::{Doorbell, Wake};
pub use numa::{MemPolicy, MemPolicyHeld};
pub(crate) use pause::UserWait;
pub use pci::PciAddress;
pub use pm_qos::PmQos;
pub use scatter::DmaPages;
pub use sched::{SchedClass, SchedError};
pub use sleep::{SleepWay, Sleeper};
pub use transport::{Claim, DeviceEvent, DmaLimits, DmaMap, EventHandler, Transport};
pub use vfio::{VfioError, VfioOptions, VfioTransport};
pub use vfio_user::{UserError, UserOptions, UserTransport};
pub use view::PageCell;

use std::io;

/// Why something below the NVMe protocol failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HwError {
    /// The kernel gave no memory.
    #[error("cannot map {bytes} bytes of memory for DMA: {source}; free memory, or ask for less")]
    Map {
        /// How much was asked for.
        bytes: usize,
        /// What `mmap` said.
        source: io::Error,
    },
    /// The kernel refused to lock memory.
    #[error(
        "cannot lock {bytes} bytes of DMA memory: {source}; RLIMIT_MEMLOCK is {limit}: raise it with \
         `ulimit -l unlimited` (or LimitMEMLOCK= in the unit, or memlock in limits.conf), or grant CAP_IPC_LOCK"
    )]
    Lock {
        /// How much was to be locked.
        bytes: usize,
        /// The soft limit in force, readable.
        limit: String,
        /// What `mlock` said.
        source: io::Error,
    },
    /// A single allocation beyond what the heap can hold.
    #[error("a DMA buffer of {bytes} bytes exceeds the limit of {limit} bytes")]
    TooLarge {
        /// How much was asked for.
        bytes: usize,
        /// The largest that is possible.
        limit: usize,
    },
    /// The transport refused a DMA mapping.
    #[error("the transport cannot map DMA memory at IOVA {iova:#x}, {bytes} bytes: {what}")]
    DmaMap {
        /// The I/O virtual address.
        iova: u64,
        /// Length of the mapping.
        bytes: usize,
        /// The transport's own words.
        what: String,
    },
    /// There is no such doorbell or vector.
    #[error("the controller has no {what}")]
    Missing {
        /// What was looked for.
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
        /// What the kernel said.
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
        /// What is in the way, and what to do.
        why: Box<VfioError>,
    },
    /// The device is no longer there.
    #[error("the device is gone")]
    Gone,
}

/// A `Result` of this layer.
pub type Result<T> = std::result::Result<T, HwError>;
