//! The block layer: requests with preallocated slots, tickets, and a device by URI.
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
//! let done = channel.wait(first);
//! done.result?;
//! assert_eq!(done.buf.map(|buf| buf[0]), Some(7));
//! channel.wait(second).result?;
//! # Ok(())
//! # }
//! ```

mod any;
mod channel;
#[cfg(feature = "control")]
pub mod control;
mod device;
mod executor;
pub mod futures;
mod kernel;
mod lbio;
mod open;
mod pool;
mod probe;
mod request;
mod stamps;
mod uri;

pub use any::{Channel, Device};
pub use channel::{ChannelCounters, NvmeChannel};
pub use device::{BlockDevice, BlockInfo, ChannelError, ChannelOptions, NvmeDevice};
pub use executor::{Executor, JoinHandle, Spawner};
pub use futures::{
    AsyncChannel, Driver, DriverTaken, Io, Local, Plain, Shared, SharedChannel, Sharing, Transfer,
};
pub use kernel::{KernelChannel, KernelDevice};
pub use open::{OpenError, OpenOptions, open, open_nvme};
pub use pool::PagePool;
pub use probe::{Probe, WaitTimes};
pub use request::{BlockChannel, Done, IoError, Rejected, Request, RequestError, SubmitError, Ticket};
pub use stamps::{DeviceStamp, StampSource};
pub use uri::{KernelEngine, KernelUri, SoftUri, Uri, UriError, parse_bytes};
