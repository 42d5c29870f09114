//! Requests as futures.
//!
//! An [`AsyncChannel`] is a [`BlockChannel`](super::BlockChannel) whose requests are futures. A
//! future owns its buffer and returns it when it is ready:
//!
//! ```
//! use meantime::block::{AsyncChannel, BlockDevice, ChannelOptions, OpenOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = meantime::block::open("mem:64M", &OpenOptions::default())?;
//! let channel = AsyncChannel::new(device.channel(&ChannelOptions::default())?);
//!
//! pollster::block_on(async {
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
//! The futures only require that the executor polls a woken task again. [`AsyncChannel::new`] makes
//! a channel for tasks of one thread; [`AsyncChannel::shared`] one whose handles and futures are
//! `Send`:
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
//! # Looking at the queue
//! A device that is polled wakes no thread: some thread has to look. There are three arrangements.
//!
//! - **No driver.** Each future that is polled looks at the queue and reaps all completions. If its
//!   own request is not among them it wakes itself, so that it is polled again after other tasks
//!   have run. This suits low latency on any executor, but the thread never sleeps meanwhile. If
//!   more such threads than CPUs run, they delay each other and the device: give a shared channel a
//!   driver.
//! - **A [`Driver`] beside the tasks of one thread.** While it exists, futures do not look;
//!   [`Driver::process`] or [`Driver::wait`] wakes them. Between rounds of tasks the thread looks
//!   once, or waits by the channel's policy. For many tasks this is the fastest, and the requests
//!   of a round are sent with one doorbell. Such a wait ends when a request does; a waker that
//!   another thread calls does not end it.
//!
//! ```
//! use async_executor::LocalExecutor;
//! # use meantime::block::{AsyncChannel, BlockDevice, ChannelOptions, OpenOptions};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let device = meantime::block::open("mem:64M", &OpenOptions::default())?;
//! # let channel = AsyncChannel::new(device.channel(&ChannelOptions::default())?);
//! let tasks = LocalExecutor::new();
//! for task in 0..100 {
//!     let channel = channel.clone();
//!     let reads = async move {
//!         let mut buf = channel.alloc(4096).expect("memory");
//!         for n in 0..10 {
//!             buf = channel.read(8 * (10 * task + n), buf).await.expect("read");
//!         }
//!     };
//!     tasks.spawn(reads).detach();
//! }
//! let driver = channel.driver()?;
//! while !tasks.is_empty() {
//!     driver.plug();
//!     while tasks.try_tick() {}
//!     driver.unplug();
//!     driver.wait();
//! }
//! # Ok(())
//! # }
//! ```
//!
//! - **A [`Driver`] elsewhere**: on a thread of its own, or in the executor's event loop on the
//!   device's interrupt:
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
//! let options = ChannelOptions { policy: Some(Policy::Interrupt), ..ChannelOptions::default() };
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
//! No wake-up is lost: the device writes the completion first and signals afterwards. The driver
//! *takes the signal, looks, and only then waits for a signal again*. A completion that the look
//! missed is signalled after the look, hence after the signal was taken, so the wait finds it.
//! Taking the signal after the look could lose that one. On the other side a future checks its slot
//! and stores its waker in one step, while it holds the channel, and results are stored in slots in
//! the same way: the second of the two sees the first. When a driver is dropped, it first hands its
//! duty back and then wakes every future that stored a waker, so each looks for itself.
//!
//! # Dropping a future
//! A future that was never polled, or waits for room, has not sent its request: its buffer returns
//! to the heap at once. Once sent, request and buffer stay in the channel until the device is done
//! with them by the rules of ARCHITECTURE.md §3, even if the future is dropped. Then the buffer
//! returns to its heap, or goes into quarantine if the device is gone and cannot be cut off. That
//! happens at a look at the queue: by the driver, another future, or the channel's drop, which
//! waits. The channel's depth bounds the number of such buffers.
//!
//! # Room
//! A future has one of `depth` slots from its first poll until it is ready or dropped; without a
//! free one it waits in order. So a future that was polled and is then neither polled nor dropped
//! keeps a slot from others, like any holder of a semaphore's permit: join such futures, or spawn
//! them, instead of awaiting one while another is half done.

mod channel;
mod driver;
mod io;
mod sharing;
mod slots;

pub use channel::{AsyncChannel, SharedChannel};
pub use driver::{Driver, DriverTaken};
pub use io::{Io, Plain, Transfer};
pub use sharing::{Local, Shared, Sharing};
