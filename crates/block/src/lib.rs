//! The block layer: requests with preallocated slots, tickets, and a device by URI.
//!
//! # What it is for
//! [`open`] turns a URI into a [`Device`]: an SSD driven by Meantime, or the kernel's own stack. A
//! [`BlockChannel`] is one thread's access to it. [`AsyncChannel`] has requests as futures.
//!
//! # What it owns
//! - The buffer of each request, from `submit` until the device is done with it. [`Done`] returns
//!   it.
//! - One or two queue pairs per channel: one that is polled and, if a policy needs it, one with an
//!   interrupt. Whether a completion queue interrupts is fixed when it is created, so a polled I/O
//!   never pays for an interrupt. A request's policy chooses the pair.
//!
//! # What it promises
//! - Between `submit` and the end of `wait` under `poll` there is no allocation, lock, system call
//!   or dynamic dispatch. ARCHITECTURE.md §7 lists the exceptions.
//! - A ticket is redeemed once. A dropped future leaves its buffer with the device until the device
//!   is done with it.
//! - A successful flush has made every write durable that completed before it. If the device lost
//!   its cache in between, the flush fails.
//! - Overlapping requests in flight together have no order.
//! - A device that the kernel uses is never written ([`in_use`]).
//!
//! # Parts, in reading order
//! ```text
//!   error, errno     errors, and what they are as errnos
//!   request          Request, Ticket, Done
//!   device           traits BlockDevice and BlockChannel
//!   bytes            its read_at and write_at
//!   request_table    the request slots of a channel: two cache lines each
//!   channel          NvmeChannel: start_polled, the common path; start_long, all other requests
//!   channel/view       queues as the Gap (crate completion) sees them
//!   channel/queue      a queue pair and its backlog
//!   channel/wait       the first looks, and what the Waiter sees after them
//!   nvme_device      NvmeDevice: a namespace, and its channels' queues
//!   uri, options     what is said about a device to open
//!   kernel/          KernelDevice, KernelChannel: io_uring and preadv2
//!   any              Device, Channel: either kind
//!   open             opens what a URI names, and partitions of it
//!   group/           PollGroup: one thread waits on many channels
//!   futures/         AsyncChannel, Driver
//!   probe, stamps    watching a wait from within, to measure it
//!   control/         the socket of `meantime top`
//! ```
//!
//! Requests are split at MDTS and at the namespace's optimal I/O boundary. The slot's index is the
//! tag of a request's first command; 32 further tags of each queue serve the parts. A request
//! without a free tag waits in the queue's backlog, in order. A compare-and-write has the compare
//! in its own slot and the write in a further one; both are sent or neither.
//!
//! The kernel's stack is driven like a controller: memory is registered by I/O virtual address, an
//! I/O names its memory by that address, and the buffer stays with the request until the
//! completion.
//!
//! # Examples
//!
//! ```
//! use meantime::block::{BlockChannel, BlockDevice, ChannelOptions, OpenOptions, Request};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = meantime::block::open("mem:64M", &OpenOptions::default())?;
//! let mut channel = device.channel(&ChannelOptions::default())?;
//!
//! // Synchronous.
//! let mut buf = channel.alloc(4096)?;
//! buf.fill(7);
//! let buf = channel.write(8, buf)?;
//!
//! // Several at once, waited for later. The buffers belong to the device until then.
//! let more = channel.alloc(4096)?;
//! let first = channel.submit(Request::read(8, buf))?;
//! let second = channel.submit(Request::read(16, more))?;
//! assert_eq!(channel.wait(first).into_buf()?[0], 7);
//! channel.wait(second).result?;
//! # Ok(())
//! # }
//! ```
//!
//! While the device works there is time for other work. Between `submit` and `wait`, work in pieces
//! that each take less than [`BlockChannel::gap_left_ns`] seldom delays the completion. Here the
//! checksum of each buffer is computed in the gap of the next read, in pieces of 1 KiB, which take
//! less than a microsecond each:
//!
//! ```
//! use meantime::block::{BlockChannel, BlockDevice, ChannelOptions, OpenOptions, Request};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = meantime::block::open("mem:64M?model=zssd", &OpenOptions::default())?;
//! let mut channel = device.channel(&ChannelOptions::default())?;
//! let mut last = channel.alloc(4096)?;
//! # for n in 0..100 { last.fill(n as u8); last = channel.write(n * 8, last)?; }
//! # last.fill(0);
//! let mut spare = channel.alloc(4096)?;
//! let (mut sums, mut in_gaps) = (Vec::new(), 0);
//! for n in 0..100 {
//!     let ticket = channel.submit(Request::read(n * 8, spare))?;
//!     let mut sum = 0u64;
//!     for piece in last.chunks(1024) {
//!         // What does not fit is done in any case, a little late.
//!         in_gaps += u32::from(channel.gap_left_ns().is_some_and(|left_ns| left_ns > 1_000));
//!         sum += piece.iter().map(|byte| u64::from(*byte)).sum::<u64>();
//!     }
//!     sums.push(sum);
//!     spare = std::mem::replace(&mut last, channel.wait(ticket).into_buf()?);
//! }
//! assert!(sums[1..].iter().copied().eq((0..99).map(|n| n * 4096)));
//! println!("{in_gaps} of 400 pieces fitted");
//! # Ok(())
//! # }
//! ```

#![deny(unsafe_code)]

mod any;
mod bytes;
mod channel;
#[cfg(feature = "control")]
pub mod control;
mod device;
mod errno;
mod error;
pub mod futures;
mod group;
mod kernel;
mod nvme_device;
mod open;
mod options;
mod probe;
mod request;
mod request_table;
mod stamps;
mod uri;

pub use any::{Channel, Device};
pub use channel::{ChannelCounters, NvmeChannel};
pub use device::{BlockChannel, BlockDevice, BlockInfo, ChannelOptions};
pub use errno::Errno;
pub use error::{ChannelError, IoError, IoErrorKind, OpenError, RequestError, SubmitError};
pub use futures::{
    AsyncChannel, Driver, DriverTaken, Io, Local, Plain, Shared, SharedChannel, Sharing, Transfer,
};
pub use group::{
    ChannelKey, DescriptorKey, GroupChannel, GroupWaker, NoWatch, PollGroup, Ready, Watch, WatchKey,
};
pub use kernel::{KernelChannel, KernelDevice};
pub use meantime_fabrics::{Host, Subsystem};
pub use meantime_nvme_spec::fabrics::SubsystemType;
pub use meantime_partitions::{Partition, Selector, Signature, Table};
pub use nvme_device::NvmeDevice;
pub use open::{
    Queried, discover, discover_as, open, open_nvme, open_partition, open_queried, partitions,
    signature, signatures,
};
#[cfg(feature = "ssd")]
pub use open::{make_ssd, start_ssd};
pub use options::{Access, OpenOptions, in_use};
pub use probe::{Probe, WaitTimes};
pub use request::{Done, Rejected, Request, Ticket};
pub use stamps::{DeviceStamp, StampSource};
pub use uri::{
    Coalescing, CommonUri, KernelEngine, KernelUri, NvmeUri, SoftUri, TcpUri, Uri, UriError,
    UriParameter, parse_bytes,
};
