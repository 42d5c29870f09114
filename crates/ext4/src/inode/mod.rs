//! Inodes in memory, and what a mount consists of.
//!
//! ```text
//!   mount           Mount: the volume, the I/O contexts, cached inodes and names
//!   shared          Inode: one for each number at a time, and its Snapshot, read last
//!   extents         maps a file's blocks to the device
//!   writable        state of an inode on a mount for writing: dirty pages, locks
//!   setattr         size, owner, permissions and times, changed together
//!   times           times of reads and writes
//!   writable_mount  WritableMount: journal, allocator, inodes that are newer than the disk
//!   node            Node: an inode that a program works with
//! ```

pub(crate) mod extents;
mod mount;
mod node;
pub(crate) mod setattr;
pub(crate) mod shared;
pub(crate) mod times;
pub(crate) mod writable;
mod writable_mount;

pub(crate) use mount::{Mount, NameKey};
pub use node::Node;
pub(crate) use writable_mount::WritableMount;
