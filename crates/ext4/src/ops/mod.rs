//! Operations on a file system, as metadata changes in a [`Handle`](super::journal::Handle).

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
mod progress;
pub(crate) mod recovery;
mod rename;
#[cfg(all(test, not(loom)))]
mod tests;
mod tree;
pub mod truncate;

pub use progress::Progress;
pub use rename::{Name, Renamed, rename};
