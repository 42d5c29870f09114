//! The SSD served to a driver in another process, over vfio-user (specification version 0.0): a PCI
//! function behind a Unix socket.
//!
//! [`Server`] owns the socket and a thread; [`Function`] is what one client has in its hands, from
//! message to reply, and knows of no socket. A client sees a PCI Express function of class NVM
//! Express: BAR0 with registers by message and doorbells that it can map, MSI-X by eventfd, DMA
//! memory by descriptor, which may come and go while the controller runs.
//!
//! - **One client at a time.** The next waits until the former has gone. A silent client delays no
//!   other: the function goes to the first that has sent its VERSION.
//! - **Clients are isolated from each other.** When one goes, however it goes, the controller is
//!   reset as by a power cycle that loses no data, its memory is unmapped, its eventfds are closed,
//!   and the next one gets doorbells in memory of their own.
//! - **No client is trusted.** An invalid message is answered with an errno and reported as
//!   [`Event::Refused`]; bytes that are no message end the connection.
//! - **Doorbells are polled** in shared memory, without system calls. A client that says
//!   `"meantime_parking": true` among its capabilities looks at the word that
//!   [`ParkingCapability`](meantime_spec::pci::ParkingCapability) names, and wakes the SSD's thread
//!   by writing the doorbell once more by message. For any other the thread does not park while
//!   there are queues: it naps, for 50 µs at first and 1 ms at most.
//!
//! What a hostile client can still do to the next: fill the eventfd that the SSD's thread is about
//! to write to, again and again, from a process that outlives it; or lend a file on a file system
//! that answers page faults late (those that programs serve, FUSE, are refused).
//!
//! This is no feature of the crate: it needs one more dependency, which the workspace has anyway,
//! and what is not used is not linked.

mod bars;
mod config_space;
mod connection;
mod dma;
mod function;
mod handshake;
mod irqs;
mod mapping;
mod message;
mod server;
mod socket;

use meantime_spec::seam::{Doorbells, SeamError, SoftPort};

pub use config_space::{DEVICE_ID, VENDOR_ID};
pub use function::Function;
pub use mapping::replace_faulted;
pub use message::{Message, Reply};
pub use server::{Event, Server};
pub use socket::{Socket, SocketError, SocketOptions};

/// A page, of memory and of what can be mapped, in bytes.
const PAGE_BYTES: u64 = 4096;

/// Descriptors with one message: what QEMU accepts as a limit, and what Cloud Hypervisor sends.
pub(crate) const MAX_MSG_FDS: usize = 16;
/// Most data of a message that reads or writes a region, in bytes.
pub(crate) const MAX_DATA_XFER_BYTES: u32 = 1 << 20;
/// Most DMA mappings of a client.
pub(crate) const MAX_DMA_MAPS: usize = 1024;

/// A software SSD as its server sees it: the seam, and the power switch.
pub trait FunctionPort: SoftPort {
    /// Function level reset: everything but mappings and interrupt vectors as after power-on. No
    /// data is lost.
    ///
    /// # Errors
    /// [`SeamError::Gone`] or [`SeamError::Unresponsive`]; in the latter case it is done later.
    fn reset_function(&self) -> Result<(), SeamError>;

    /// The same, and the host is forgotten: no memory is mapped, no vector has an eventfd, nothing
    /// of either is touched any more. The next host rings `doorbells`.
    ///
    /// # Errors
    /// As [`reset_function`](Self::reset_function).
    fn power_cycle(&self, doorbells: Doorbells) -> Result<(), SeamError>;

    /// Whether the SSD's thread naps instead of parking while there are queues, since the host may
    /// ring without waking the thread. Until the next power cycle.
    fn set_napping(&self, naps: bool);
}
