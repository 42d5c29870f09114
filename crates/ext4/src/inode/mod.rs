//! Inodes in memory, and what all of a mount share.
//!
//! ```text
//!   mount      Mount: the volume, the I/O contexts, what is kept of inodes and names
//!   known      an inode, as it was read: one for each number at a time
//!   extents    where a file's bytes are
//!   live       what an inode has on a mount for writing: its dirty pages, its locks
//!   setattr    size, owner, permissions and times, changed together
//!   times      when it was read and written
//!   writer     what a mount for writing has: journal, allocator, inodes that are newer than the disk
//!   node       Node: an inode that a program works with
//! ```

pub(crate) mod extents;
pub(crate) mod known;
pub(crate) mod live;
mod mount;
mod node;
pub(crate) mod setattr;
pub(crate) mod times;
mod writer;

pub(crate) use mount::Mount;
pub use node::Node;
pub(crate) use writer::Writer;
