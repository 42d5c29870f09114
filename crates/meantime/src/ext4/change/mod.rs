//! What can be done to a file system, as changes of its metadata in a [`Handle`](super::journal::Handle).

pub mod directory;
pub mod names;
mod new_inode;
mod rename;

pub use rename::{Name, Renamed, rename};
