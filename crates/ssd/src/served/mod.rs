//! The SSD served to a driver in another process, over vfio-user (specification version 0.0): a PCI
//! function behind a Unix socket.
//!
//! [`Server`] owns the socket and a thread. [`Function`] is the state of one client, from message
//! to reply, without a socket. A client sees a PCI Express function of class NVM Express: BAR0 with
//! registers by message and doorbells that it can map, MSI-X by eventfd, and DMA memory by
//! descriptor, which may come and go while the controller runs.
//!
//! - **There is one client at a time.** The next waits until the current one has gone. A silent
//!   client delays no other, because the function goes to the first that has sent its VERSION.
//! - **Clients are isolated from each other.** When one goes, for whatever reason, the controller
//!   is reset as by a power cycle that loses no data, the client's memory is unmapped, its eventfds
//!   are closed, and the next client gets new doorbell memory.
//! - **No client is trusted.** An invalid message is answered with an errno and reported as
//!   [`Event::Refused`]. Bytes that are no message end the connection.
//! - **Doorbells are polled** in shared memory, without system calls. A client that sends
//!   `"meantime_parking": true` among its capabilities checks the word that
//!   [`ParkingCapability`](meantime_nvme_spec::pci::ParkingCapability) names, and wakes the SSD's
//!   thread by sending the doorbell again in a message. For any other client the thread does not
//!   park while there are queues. Instead it naps, for 50 µs at first and 1 ms at most.
//!
//! A hostile client can still harm the next one in two ways. It can fill the eventfd that the SSD's
//! thread is about to write to, again and again, from a process that outlives it. Or it can lend a
//! file on a file system that answers page faults late (FUSE is refused).
//!
//! This is not a Cargo feature, because it adds one dependency, which the workspace has anyway, and
//! unused code is not linked.

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

pub use config_space::{DEVICE_ID, VENDOR_ID};
pub use function::Function;
pub use mapping::replace_faulted;
pub use message::{Message, Reply};
pub use server::{Event, Server};
pub use socket::{Socket, SocketError, SocketOptions};

pub use crate::port::FunctionPort;
