//! The on-disk format of ext4 (kernel documentation: `filesystems/ext4`; e2fsprogs: `lib/ext2fs`),
//! without a device.
//!
//! Nothing read is believed: what has not been checked is another type than what has. [`Volume`] is
//! the one who reads, from a [`Source`], and checks; what it gives away can be.

#![forbid(unsafe_code)]

mod attributes;
pub mod block_map;
pub mod check;
mod check_directory;
pub mod checksum;
pub mod directory;
pub mod dirent;
pub mod edit;
mod error;
pub mod extents;
pub mod features;
mod geometry;
mod group;
pub(crate) mod hash;
pub(crate) mod htree;
mod inline;
pub mod inode;
pub mod journal;
mod list;
mod mapping;
mod metadata;
pub mod mkfs;
pub mod mmp;
mod open;
pub mod path;
mod source;
mod superblock;
mod usage;
mod volume;
pub mod xattr;

pub use attributes::Attribute;
pub use directory::DirectoryEntry;
pub use error::{Corruption, Defect, Error, Unsupported};
pub use group::Group;
pub use inode::Inode;
pub use mapping::{ExtentMap, MappedExtent, Run, RunState};
pub use metadata::{FileType, Metadata, Recovered, Timestamp, Usage, VolumeInfo};
pub use mmp::{Mmp, MmpState};
pub use open::OpenFailure;
pub use source::{IoFailure, Source, SourceError};
pub use superblock::STATE_VALID;
pub use superblock::{
    ROOT_INO, RawSuperblock, Refusal, SUPERBLOCK_BYTES, SUPERBLOCK_MAGIC, SUPERBLOCK_OFFSET,
    Superblock,
};
pub use volume::{Volume, VolumeOptions};
pub use xattr::acl_from_disk;
