//! Requests as futures.
//!
//! An [`AsyncChannel`] is a [`BlockChannel`](super::BlockChannel) whose requests are futures. A
//! future owns its buffer and gives it back when it is ready:
//!
//! ```
//! use meantime::block::{AsyncChannel, BlockDevice, ChannelOptions, Executor, OpenOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = meantime::block::open("mem:64M", &OpenOptions::default())?;
//! let channel = AsyncChannel::new(device.channel(&ChannelOptions::default())?);
//! let executor = Executor::new(&channel)?;
//!
//! executor.block_on(async {
//!     let mut buf = channel.alloc(4096)?;
//!     buf.fill(7);
//!     let buf = channel.write(8, buf).await?;
//!     channel.flush().await?;
//!     let buf = channel.read(8, buf).await?;
//!     assert!(buf.iter().all(|&byte| byte == 7));
//!     Ok(())
//! })
//! # }
//! ```
//!
//! # Any executor
//! The futures need nothing of the executor but that it polls a woken task again.
//! [`AsyncChannel::new`] makes a channel for tasks of one thread; [`AsyncChannel::shared`] one
//! whose handles and futures are `Send`:
//!
//! ```
//! # use meantime::block::{AsyncChannel, BlockDevice, ChannelOptions, OpenOptions};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let device = meantime::block::open("mem:64M", &OpenOptions::default())?;
//! let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
//! let channel = AsyncChannel::shared(device.channel(&ChannelOptions::default())?);
//! let task = runtime.spawn(async move {
//!     let buf = channel.alloc(4096)?;
//!     let buf = channel.read(0, buf).await?;
//!     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(buf.len())
//! });
//! assert_eq!(runtime.block_on(task)?.map_err(|error| error.to_string())?, 4096);
//! # Ok(())
//! # }
//! ```
//!
//! # Who looks at the queue
//! A device that is polled wakes no thread: some thread has to look. There are three arrangements.
//!
//! - **No driver.** Each future that is polled looks at the queue, takes in whatever has
//!   completed, and if its own request is not among it wakes itself, so that it is polled again
//!   after other tasks have run. Right for low latency on any executor; the thread never sleeps
//!   meanwhile. With more such threads than CPUs they take the device's and each other's time: give
//!   a shared channel a driver.
//! - **Our [`Executor`](super::Executor)** looks between rounds of tasks and waits by the channel's
//!   policy. The fast one.
//! - **A [`Driver`]** of your own: while it exists, futures do not look and are woken by
//!   [`Driver::process`] or [`Driver::wait`]. On a thread of its own, or driven by the device's
//!   interrupt in the executor's event loop:
//!
//! ```
//! use std::time::Duration;
//! use meantime::block::{
//!     AsyncChannel, BlockDevice, Channel, ChannelOptions, Driver, OpenOptions, Shared,
//! };
//! use meantime::completion::Policy;
//! use tokio::io::{Interest, unix::AsyncFd};
//!
//! async fn drive(driver: Driver<Channel, Shared>) -> std::io::Result<()> {
//!     let event = driver.event().expect("a channel with an interrupt");
//!     // SAFETY: an `EventFd` has one descriptor, which is open as long as it is there.
//!     // (Older tokio: `with_interest`.)
//!     let event = unsafe { AsyncFd::register_with_interest(event, Interest::READABLE) }?;
//!     loop {
//!         // A request that was lost raises no interrupt: look at deadlines as well, now and then.
//!         let patience = Duration::from_millis(100);
//!         if let Ok(ready) = tokio::time::timeout(patience, event.readable()).await {
//!             ready?.clear_ready();
//!         }
//!         event.get_ref().take(); // First take the signal…
//!         driver.process(); // …then look.
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = meantime::block::open("mem:64M?model=optane", &OpenOptions::default())?;
//! let options = ChannelOptions { policy: Policy::Interrupt, ..ChannelOptions::default() };
//! let channel = AsyncChannel::shared(device.channel(&options)?);
//! let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! runtime.block_on(async {
//!     let driving = tokio::spawn(drive(channel.driver()?));
//!     let buf = channel.read(0, channel.alloc(4096)?).await?;
//!     assert_eq!(buf.len(), 4096);
//!     driving.abort();
//!     Ok(())
//! })
//! # }
//! ```
//!
//! No wake-up is lost: the device writes the completion first and signals after. The driver *takes
//! the signal, looks, and only then waits for a signal again*. A completion that the look did not
//! see is signalled after the look, hence after the signal was taken, so that the wait finds it.
//! (Taking the signal after the look could take that one.) On the other side a future looks at its
//! slot and leaves its waker there in one step, with the channel taken, and results are put into
//! slots likewise: the second of the two sees the first. When a driver is dropped, it first gives
//! the duty back and then wakes every future that left a waker, so that each looks for itself.
//!
//! # Dropping a future
//! A future that was never polled, or waits for room, has not sent its request: its buffer goes
//! back to the heap at once. Once sent, request and buffer stay in the channel until the device is
//! done with them by the rules of ARCHITECTURE.md §3, whatever becomes of the future; then the
//! buffer goes back to its heap, or, if the device is gone and cannot be cut off, into quarantine.
//! That happens when the queue is looked at: the driver, another future, or the channel's end,
//! which waits. What is held so is bounded by the channel's depth.
//!
//! # Room
//! A future has one of `depth` slots from its first poll until it is ready or dropped; with none
//! free it waits, first come, first served. So one that was polled and is then neither polled nor
//! dropped keeps others out, as the holder of any semaphore's permit does: join such futures, or
//! spawn them, rather than await one while holding another half done.

mod channel;
mod driver;
mod io;
mod sharing;
mod slots;

pub use channel::{AsyncChannel, SharedChannel};
pub use driver::{Driver, DriverTaken};
pub use io::{Io, Plain, Transfer};
pub use sharing::{Local, Shared, Sharing};
