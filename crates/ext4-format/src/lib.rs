//! The on-disk format of ext4 (kernel documentation: `filesystems/ext4`; e2fsprogs: `lib/ext2fs`),
//! without a device.
//!
//! # What it is for
//! It reads, checks and edits the structures of ext2, ext3 and ext4, and makes new file systems. It
//! does no I/O: bytes come from a [`Source`], and edits are made in the caller's bytes.
//!
//! # What it owns
//! It owns only what it has parsed. It has no cache, no lock and no thread.
//!
//! # What it promises
//! - No data from the disk is trusted. Unchecked structures have separate types ([`RawSuperblock`],
//!   [`Superblock`]). [`Volume`] is the only place that reads structures, and checks every
//!   checksum, range and order.
//! - Every walk ends, whatever is on the disk: depths and counts are bounded by those of a sound
//!   file system.
//! - An error names the defect, the inode and the block ([`Corruption`]).
//! - Names, hashes, orders and cookies of directories are those of the kernel.
//! - Safe Rust only, and no panic on any input: `tests/images/mutations.rs` and the fuzzer `ext4`
//!   check this.
//!
//! # Parts, in reading order
//! ```text
//!   source             where bytes come from
//!   superblock, features, geometry, group     what the file system is, and where things are
//!   inode, inline, extent_map, extents, block_map   a file and its blocks
//!   volume, open       Volume: structures, read and checked; replayed: fast commits in memory
//!   mapping            which blocks a file has
//!   directory, dirent, htree, hash, list, path      names
//!   xattr, attributes  extended attributes
//!   structures, checksum, error, metadata, usage
//!   journal/           layout, log; replay; fast_commit/; recovery; write: blocks to be written
//!   edit/              the same structures, changed
//!   mkfs/              a new file system: Layout says what to write where
//!   mmp                multiple mount protection
//!   check/             looking for damage in all of it
//! ```

#![forbid(unsafe_code)]

#[macro_use]
mod structures;

mod attributes;
pub mod block_map;
pub mod check;
mod check_directory;
pub mod checksum;
pub mod directory;
pub mod dirent;
pub mod edit;
mod error;
mod extent_map;
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
mod replayed;
mod source;
mod superblock;
mod usage;
mod volume;
pub mod xattr;

pub use attributes::Attribute;
pub use directory::DirectoryEntry;
pub(crate) use error::Result;
pub use error::{Corruption, Defect, Error, OpenFailure, Unsupported};
pub use extent_map::{ExtentMap, MappedExtent, Run, RunState};
pub use group::Group;
pub use inode::Inode;
pub use metadata::{FileType, Metadata, Recovered, Timestamp, Usage, VolumeInfo};
pub use mmp::{Mmp, MmpState};
pub use source::{Checked, IoFailure, Source, SourceError};
pub use superblock::STATE_VALID;
pub use superblock::{
    ROOT_INO, RawSuperblock, SUPERBLOCK_BYTES, SUPERBLOCK_MAGIC, SUPERBLOCK_OFFSET, Superblock,
};
pub use volume::{Volume, VolumeOptions};
pub use xattr::acl_from_disk;
