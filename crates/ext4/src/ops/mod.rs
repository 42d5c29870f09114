//! What can be done to a file system, as changes of its metadata in a
//! [`Handle`](super::journal::Handle).

pub mod acl;
#[cfg(all(test, not(loom)))]
mod attribute_tests;
pub mod attributes;
mod block_map;
pub mod directory;
pub mod extents;
pub mod fallocate;
pub mod fast_commits;
pub mod metadata;
pub mod names;
mod new_inode;
pub mod orphans;
pub(crate) mod recovery;
mod rename;
#[cfg(all(test, not(loom)))]
mod tests;
mod tree;
pub mod truncate;

pub use rename::{Name, Renamed, rename};

/// Whether there is more to do, in another change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Progress {
    /// There is.
    More,
    /// It is done.
    Done,
}
