//! Edits of structures whose bytes were checked when they were read: pure functions, which leave a
//! structure with a valid checksum.

pub mod bitmap;
pub mod dirent;
mod extents;
mod group;
pub mod htree;
mod inode;
mod superblock;
mod xattr;

pub use extents::{NodeEdit, joined, max_blocks};
pub use group::GroupEdit;
pub use inode::InodeEdit;
pub use superblock::{SuperblockEdit, superblock_place};
pub use xattr::{AttributeList, Full, set_references};
