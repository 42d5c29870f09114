//! The ext4 file layer: the file system that people already have, read over our own driver.
//!
//! [`FileSystem::mount`] opens one on any [`Device`](meantime_block::Device); a [`File`] reads like
//! a `std::fs::File`, and with [`File::read_at_with`] each read says how it is waited for. The
//! on-disk format is in [`mod@format`], which knows no device; the page cache, and the read path
//! that does its own work while the device does, are here.

#![forbid(unsafe_code)]

pub mod alloc;
mod asynchronous;
mod background;
mod block;
mod bounded;
mod by_path;
pub mod cache;
pub mod change;
mod counters;
mod crowd;
mod error;
mod file;
mod flushes;
mod fs;
pub mod journal;
mod lanes;
mod live;
pub mod mkfs;
mod mmp;
mod node;
mod options;
mod read;
mod segments;
mod source;
mod times;
mod walk;
mod write;
mod writer;
mod writing;

pub use asynchronous::{AsyncFile, AsyncFileSystem};
pub use block::{FileChannel, FileDevice, FileDeviceOptions};
pub use counters::Counters;
pub use error::{Corruption, Defect, Error, MountError, Unsupported};
pub use file::File;
pub use fs::{Entry, FileSystem, Node, ReadDir};
pub use journal::{JournalCounters, log_piece_blocks};
pub use meantime_ext4_format::{self as format, check};
pub use meantime_ext4_format::{FileType, Metadata, Recovered, Timestamp, Usage, VolumeInfo};
pub use meantime_ext4_format::{Mmp, MmpState};
pub use options::{
    AccessTimes, Advice, Allocate, CommitOverlap, MountOptions, NewNode, OpenOptions, Overlap,
    ReadOptions, RenameFlags, ReservedBlocks, SetAttribute, WriteOptions,
};
pub use segments::{Segment, SegmentKind};
pub use source::DeviceSource;
