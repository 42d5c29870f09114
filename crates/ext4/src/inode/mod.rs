//! Inodes in memory, and what a mount consists of.
//!
//! ```text
//!   extents         maps a file's blocks to the device
//!   units           Units: blocks and pages in terms of each other
//!   writable        state of an inode on a mount for writing: dirty pages, times, locks
//!   shared          Inode: one for each number at a time (registry), and its Snapshot, read last
//!   writable_mount  WritableMount: journal, allocator, inodes that are newer than the disk; all
//!                   changes of metadata go through it
//!   mount           Mount: the volume, the I/O contexts, cached inodes and names
//!   load            reads an inode of a mount
//!   node            Node: an inode that a program works with
//!   access          Accesses: which reads note their time; notes times of reads and writes
//!   setattr         SetMetadata: size, owner, permissions and times to be changed together
//!   attributes      Attributes: changes them, and stores times that are only in memory
//! ```

mod access;
pub(crate) mod attributes;
pub(crate) mod extents;
mod load;
mod mount;
mod node;
pub(crate) mod registry;
pub(crate) mod setattr;
pub(crate) mod shared;
pub(crate) mod times;
pub(crate) mod units;
pub(crate) mod writable;
mod writable_mount;

pub(crate) use access::Accesses;
pub(crate) use mount::{Mount, NameKey};
pub use node::Node;
pub(crate) use writable_mount::WritableMount;
