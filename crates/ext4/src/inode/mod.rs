//! Inodes in memory, and what all of a mount share.
//!
//! ```text
//!   mount      Mount: the volume, the I/O contexts, what is kept of inodes and names
//!   shared     Inode: one for each number at a time, and the Snapshot of it that was read last
//!   extents    where a file's bytes are
//!   writable   what an inode has on a mount for writing: its dirty pages, its locks
//!   setattr    size, owner, permissions and times, changed together
//!   times      when it was read and written
//!   writer     what a mount for writing has: journal, allocator, inodes that are newer than the disk
//!   node       Node: an inode that a program works with
//! ```

pub(crate) mod extents;
mod mount;
mod node;
pub(crate) mod setattr;
pub(crate) mod shared;
pub(crate) mod times;
pub(crate) mod writable;
mod writable_mount;

pub(crate) use mount::Mount;
pub use node::Node;
pub(crate) use writable_mount::WritableMount;
