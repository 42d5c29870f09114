//! How structures are changed, in bytes that were checked when they were read: pure functions, which leave a structure with its right checksum.

pub(in crate::ext4) mod dirent;
pub(in crate::ext4) mod htree;
mod inode;

pub use inode::InodeEdit;
