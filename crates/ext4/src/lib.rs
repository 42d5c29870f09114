//! The ext4 file layer: reads and writes existing ext2, ext3 and ext4 file systems through
//! Meantime's own driver.
//!
//! # What it is for
//! [`FileSystem::mount`] opens a file system on any [`Device`](meantime_block::Device). A [`File`]
//! reads and writes like a `std::fs::File`; [`File::read_at_with`] sets how each read waits. The
//! on-disk format is in [`mod@format`], which accesses no device. docs/ext4.md is the design,
//! docs/ordering.md the order of writes.
//!
//! # What it owns
//! A mount owns its channels (one per I/O context, which one thread uses at a time), its page cache
//! in DMA memory, and, if it writes, the journal and the running transaction.
//!
//! # What it promises
//! - A mount for reading writes nothing.
//! - A metadata change takes effect as a whole or not at all, also across a power cut. What
//!   `sync_all` returned for survives. No reachable block holds another file's old data.
//! - What cannot be kept consistent is refused by name before the first write.
//! - One reader reads a page from the device at a time; a hit takes no lock and, but for a page's
//!   first three visits, writes nothing shared.
//! - This crate does its own work while the device works.
//!
//! # Parts
//! In ranks: each uses only those above it, which a test checks
//! (`crates/meantime/tests/layers.rs`).
//! ```text
//!   cache/      table (the protocol), queues (S3-FIFO), parking (waits for another reader's page)
//!   space/      free space, and what is reserved of it for changes
//!   io/         context, requests (everything in flight), contexts (their owners), fill (pages of
//!                 the cache), direct (past it), buffers, source (metadata), flushes, group_commit
//!   journal/    changes, handle; transaction, ordered (data before a commit), held (freed blocks);
//!                 state (what threads share), running; lead, commit, committer, log, ordered_io,
//!                 block_writer; pending, checkpoint; fast_commit; recover and mount
//!   mmp         keeps other hosts off (multiple mount protection)
//!   alloc/      free blocks and inodes
//!   ops/        operations on metadata: names, directories, extents, attributes
//!   inode/      shared (an inode in memory), writable (its writable state), extents (block
//!                 mapping), mount (shared state), load, node (for programs), access (times),
//!                 attributes
//!   file/       read/: cached and blocking (through the cache), ahead and window (read-ahead)
//!               write/: buffered (to the cache), back, sending and many (writeback), fsync,
//!                 direct, resize, deleting
//!   fs, by_name, walk    FileSystem: the interface for programs; by_inode, by_path, path_content
//!   setattr, flags       attributes of an inode; fiemap, copy: ranges of a file; trim: free blocks
//!   background  the mount's own thread
//!   block, asynchronous           a file as a block device; files with futures
//!   mkfs        a new file system on a device
//! ```
//!
//! ARCHITECTURE.md §8 follows a cached read and an fsync through these files.

#![forbid(unsafe_code)]

pub mod alloc;
mod asynchronous;
mod background;
mod block;
mod bounded;
mod by_inode;
mod by_name;
mod by_path;
pub mod cache;
mod copy;
mod counters;
mod errno;
mod error;
mod fiemap;
mod file;
mod flags;
mod fs;
mod inode;
mod io;
pub mod journal;
pub mod mkfs;
mod mmp;
mod numbers;
pub mod ops;
mod options;
mod path_content;
mod setattr;
mod space;
#[cfg(all(test, not(loom)))]
mod tests;
mod trim;
mod walk;
mod worker;

pub use asynchronous::{AsyncFile, AsyncFileSystem};
pub use block::{FileChannel, FileDevice, FileDeviceOptions};
pub use by_inode::{Lookups, NodeId};
pub use counters::Counters;
pub(crate) use error::Result;
pub use error::{Corruption, Defect, Error, MountError, Unsupported};
pub use fiemap::{Extent, extent_flags};
pub use file::{File, Segment, SegmentKind};
pub use fs::{Entry, FileSystem, ReadDir};
pub use inode::Node;
pub use inode::setattr::{SetMetadata, SetTime};
pub use io::{Call, DeviceSource};
pub use journal::{JournalCounters, log_piece_blocks};
pub use meantime_block::Errno;
pub use meantime_ext4_format::{self as format, check};
pub use meantime_ext4_format::{FileType, Metadata, Recovered, Timestamp, Usage, VolumeInfo};
pub use meantime_ext4_format::{Mmp, MmpState};
pub use options::{
    AccessTimes, Advice, Allocate, CommitOverlap, MountOptions, NewNode, OpenOptions, Overlap,
    ReadOptions, RenameFlags, ReservedBlocks, SetAttribute, WriteOptions,
};
pub use space::{Acting, Caller};
