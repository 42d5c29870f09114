//! Meantime: a user-space I/O stack for SSDs that answer in microseconds.
//!
//! This crate is what a program depends on. It has three parts: [`block`] (devices by URI, channels,
//! requests, futures), [`ext4`] (files on such a device) and [`completion`] (policies, and work for
//! the time that a device takes). Start with [`block::open`].
//!
//! Each part is curated from crates of its own (`meantime-block`, `meantime-ext4`,
//! `meantime-completion`, and `meantime-hw` and `meantime-nvme` beneath them), which a program can
//! depend on if it needs what is left out here: the driver's insides, transports, the on-disk
//! format. Only what is here is meant to stay. ARCHITECTURE.md in the repository explains how it
//! all works.

#![deny(missing_docs)]

/// Devices by URI, channels, requests and futures.
pub mod block {
    #[cfg(feature = "control")]
    #[doc(inline)]
    pub use meantime_block::control;
    #[doc(inline)]
    pub use meantime_block::{
        Access, AsyncChannel, BlockChannel, BlockDevice, BlockInfo, Channel, ChannelCounters,
        ChannelError, ChannelOptions, Device, Done, Driver, DriverTaken, Executor, Io, IoError,
        JoinHandle, Local, OpenError, OpenOptions, PagePool, Plain, Rejected, Request,
        RequestError, Shared, SharedChannel, Sharing, Spawner, SubmitError, Ticket, Transfer, Uri,
        UriError, open, parse_bytes,
    };
    #[doc(inline)]
    pub use meantime_hw::{DmaBuf, DmaHeap, EventFd, HwError};
    #[doc(inline)]
    pub use meantime_nvme::{CommandError, ControllerOptions, Op, QueueClass};
}

/// Policies: how to wait for a completion; deferred work: what to do meanwhile; control.
pub mod completion {
    #[doc(inline)]
    pub use meantime_completion::{
        Bell, DEFERRED_LIMIT, DeferError, DeferRefusal, Deferred, GapCounters, Goal, PATIENCE_NS,
        ParsePolicyError, Pieces, Policy, PolledPieces, Progress, WorkCounters, steer,
    };
}

/// Files in an ext4 file system on a [`block`] device.
pub mod ext4 {
    #[doc(inline)]
    pub use meantime_ext4::cache::CacheCounters;
    #[doc(inline)]
    pub use meantime_ext4::{
        AccessTimes, Advice, Allocate, AsyncFile, AsyncFileSystem, CommitOverlap, Corruption,
        Counters, Defect, Entry, Error, File, FileChannel, FileDevice, FileDeviceOptions,
        FileSystem, FileType, JournalCounters, Metadata, Mmp, MmpState, MountError, MountOptions,
        NewNode, Node, OpenOptions, Overlap, ReadDir, ReadOptions, Recovered, RenameFlags,
        ReservedBlocks, Segment, SegmentKind, SetAttribute, Timestamp, Unsupported, Usage,
        VolumeInfo, WriteOptions,
    };

    /// Finding out whether a file system is consistent: what [`FileSystem::check`] reports.
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
