//! How structures are changed, in bytes that were checked when they were read: pure functions, which leave a structure with its right checksum.

mod inode;

pub use inode::InodeEdit;
