//! Meantime: a user-space I/O stack for NVMe SSDs that answer in microseconds.
//!
//! A program depends on this crate. It has no code, and three parts:
//!
//! ```text
//!   block         devices by URI, channels, requests, futures                  <- begin here
//!   completion    policies: how to wait
//!   ext4          files: page cache, read and write paths, journal
//! ```
//!
//! Each part re-exports names from crates (`meantime-block`, `meantime-ext4`,
//! `meantime-completion`, with `meantime-nvme` and `meantime-hw` beneath them). A program can
//! depend on those directly for the rest: the driver's internals, transports, the on-disk format.
//! Only the names in this crate are meant to be stable, and those in
//! [`internals`](block::internals) are not.
//!
//! [`block::open`] opens a device by its URI. A channel belongs to one thread. A request owns its
//! buffer until the device is done with it; the result returns it.
//!
//! ```
//! use meantime::block::{BlockChannel, BlockDevice, ChannelOptions, OpenOptions, Request};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let device = meantime::block::open("mem:64M", &OpenOptions::default())?;
//!     let options = ChannelOptions {
//!         policy: Some("adaptive:p99=25us".parse()?), // how to wait; by default `adaptive`
//!         ..ChannelOptions::default()
//!     };
//!     let mut channel = device.channel(&options)?; // one for each thread
//!
//!     channel.write_at(&[7; 4096], 8192)?; // by bytes, which are copied
//!     channel.flush()?; // survives a power cut from here on
//!     let mut some = [0; 100];
//!     channel.read_at(&mut some, 9000)?;
//!
//!     let buf = channel.alloc(4096)?; // without a copy, in memory that the device reaches
//!     let lba = channel.info().lba_of(8192).ok_or("within a block")?; // requests count in blocks
//!     let ticket = channel.submit(Request::read(lba, buf))?; // the device has the buffer now
//!     // ... something else ...
//!     let buf = channel.wait(ticket).into_buf()?; // the buffer comes back with the result
//!     assert_eq!(buf[0], 7);
//!     Ok(())
//! }
//! ```
//!
//! [`BlockChannel::gap_left_ns`](block::BlockChannel::gap_left_ns) says how long the device is
//! likely to work still, for work that should seldom delay the completion. It is a low quantile:
//! about one I/O in twenty ends sooner. The first calls return `None`, and until more is known the
//! waits poll.
//!
//! ```
//! # use meantime::block::{BlockChannel, BlockDevice, ChannelOptions, OpenOptions, Request};
//! # fn checksum(data: &[u8]) {}
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let device = meantime::block::open("mem:64M", &OpenOptions::default())?;
//! # let mut channel = device.channel(&ChannelOptions::default())?;
//! # let previous = vec![0; 4096];
//! # let buf = channel.alloc(4096)?;
//! let ticket = channel.submit(Request::read(8, buf))?;
//! let fits = channel.gap_left_ns().is_some_and(|left_ns| left_ns > 2_000);
//! if fits {
//!     checksum(&previous); // at most 2 µs, while the device works
//! }
//! let done = channel.wait(ticket);
//! # done.result?;
//! # Ok(())
//! # }
//! ```
//!
//! [`AsyncChannel`](block::AsyncChannel) has requests as futures, for any executor:
//!
//! ```
//! use meantime::block::AsyncChannel;
//! # use meantime::block::{BlockDevice, ChannelOptions, OpenOptions};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let device = meantime::block::open("mem:64M", &OpenOptions::default())?;
//!
//! let channel = AsyncChannel::new(device.channel(&ChannelOptions::default())?);
//! pollster::block_on(async {
//!     let buf = channel.write(8, channel.alloc(4096)?).await?;
//!     let buf = channel.read(8, buf).await?;
//!     // ...
//! #   drop(buf);
//! #   Ok(())
//! })
//! # }
//! ```
//!
//! [`FileSystem`](ext4::FileSystem) reads and writes files on any device, whole disks and images:
//!
//! ```
//! use std::io::Write;
//!
//! use meantime::block;
//! use meantime::ext4::{FileSystem, MountOptions, OpenOptions};
//! # use meantime::ext4::{Timestamp, mkfs};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // One with a file system, e.g. file:disk.img or vfio:0000:01:00.0.
//! let device = block::open("mem:64M", &block::OpenOptions::default())?;
//! # mkfs::make(&device, &mkfs::MakeOptions::new([7; 32], Timestamp { seconds: 0, nanoseconds: 0 }))?;
//!
//! let fs = FileSystem::mount(device, &MountOptions { write: true, ..MountOptions::default() })?;
//! let make = OpenOptions { write: true, create: true, mode: 0o644, ..OpenOptions::default() };
//! let mut file = fs.open_with("/first", &make)?;
//! file.write_all(b"Every I/O opens a gap.\n")?;
//! file.sync_all()?; // survives a power cut from here on
//!
//! let mut head = [0; 9];
//! let bytes = fs.open("/first")?.read_at(&mut head, 0)?;
//! fs.unmount()?; // else the journal is replayed at the next mount
//! # assert_eq!(&head[..bytes], b"Every I/O");
//! # Ok(())
//! # }
//! ```
//!
//! Errors say what was attempted, why it failed, and give a remedy. ARCHITECTURE.md in the
//! repository has the fault model, the memory ordering rules and a walk through a read.

#![deny(missing_docs)]

/// Devices by URI, channels, requests and futures.
pub mod block {
    #[cfg(feature = "control")]
    #[doc(inline)]
    pub use meantime_block::control;
    #[doc(inline)]
    pub use meantime_block::{
        Access, AsyncChannel, BlockChannel, BlockDevice, BlockInfo, Channel, ChannelCounters,
        ChannelError, ChannelKey, ChannelOptions, DescriptorKey, Device, Done, Driver, DriverTaken,
        GroupChannel, GroupWaker, Io, IoError, IoErrorKind, Local, NoWatch, OpenError, OpenOptions,
        Plain, PollGroup, Ready, Rejected, Request, RequestError, Shared, SharedChannel, Sharing,
        SubmitError, Ticket, Transfer, Uri, UriError, Watch, WatchKey, futures, open, parse_bytes,
    };
    #[doc(inline)]
    pub use meantime_completion::{OffQueue, ParsePolicyError, Policy, waiter::Rest};
    #[doc(inline)]
    pub use meantime_hw::{DmaBuf, DmaHeap, EventFd, HwError};
    #[doc(inline)]
    pub use meantime_nvme::{CommandError, ControllerOptions, Op, QueueClass};

    /// What is in a [`Device`] and its [`Channel`]s, to look into them and to measure them. These
    /// names may change.
    ///
    /// ```
    /// use std::cell::Cell;
    ///
    /// use meantime::block::internals::Probe;
    /// # use meantime::block::internals::{DeviceStamp, Estimate, KernelChannel, KernelDevice};
    /// # use meantime::block::internals::{NvmeChannel, NvmeDevice, QueueCounters, StampSource};
    /// # use meantime::block::{BlockChannel, BlockDevice, Request};
    ///
    /// #[derive(Default)]
    /// struct Seen(Cell<u32>);
    ///
    /// impl Probe for Seen {
    ///     fn seen(&self) {
    ///         self.0.set(self.0.get() + 1);
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let device = meantime::block::open("mem:64M", &Default::default())?;
    /// # let mut channel = device.channel(&Default::default())?;
    /// # let buf = channel.alloc(4096)?;
    /// let ticket = channel.submit(Request::read(0, buf))?;
    /// let seen = Seen::default();
    /// channel.wait_probed(ticket, &seen).result?;
    /// # Ok(())
    /// # }
    /// ```
    pub mod internals {
        #[doc(inline)]
        pub use meantime_block::{
            DeviceStamp, KernelChannel, KernelDevice, NvmeChannel, NvmeDevice, Probe, StampSource,
            WaitTimes,
        };
        #[doc(inline)]
        pub use meantime_completion::adaptive::Estimate;
        #[doc(inline)]
        pub use meantime_nvme::QueueCounters;
    }
}

/// Policies: how to wait for a completion; rules of your own, and what channels publish of their
/// waits.
pub mod completion {
    #[doc(inline)]
    pub use meantime_completion::{
        Class, Flight, GapCounters, Goal, Kind, ParsePolicyError, Policy, rule, telemetry,
    };
}

/// Files in an ext4 file system on a [`block`] device.
pub mod ext4 {
    #[doc(inline)]
    pub use meantime_ext4::cache::CacheCounters;
    #[doc(inline)]
    pub use meantime_ext4::{
        AccessTimes, Advice, Allocate, AsyncFile, AsyncFileSystem, CommitOverlap, Corruption,
        Counters, Defect, Entry, Error, Extent, File, FileChannel, FileDevice, FileDeviceOptions,
        FileSystem, FileType, JournalCounters, Lookups, Metadata, Mmp, MmpState, MountError,
        MountOptions, NewNode, Node, NodeId, OpenOptions, Overlap, ReadDir, ReadOptions, Recovered,
        RenameFlags, ReservedBlocks, Segment, SegmentKind, SetAttribute, SetMetadata, SetTime,
        Timestamp, Unsupported, Usage, VolumeInfo, WriteOptions, extent_flags,
    };

    /// Checks whether a file system is consistent: the report of [`FileSystem::check`].
    pub mod check {
        #[doc(inline)]
        pub use meantime_ext4::check::{Event, Finding, Summary};
    }

    /// Making a file system.
    pub mod mkfs {
        #[doc(inline)]
        pub use meantime_ext4::format::mkfs::{MakeOptions, MakeRefusal};
        #[doc(inline)]
        pub use meantime_ext4::mkfs::{Made, MakeError, found_on, make};
    }
}
