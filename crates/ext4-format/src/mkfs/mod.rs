//! Makes a new, empty file system: its layout, and its contents (e2fsprogs: `misc/mke2fs.c`,
//! `lib/ext2fs/initialize.c`, `alloc_tables.c`).
//!
//! It has the default features of Debian 12. [`Layout`] knows no device: it provides the content,
//! and the caller writes it.

mod content;
mod inodes;
mod layout;
mod options;
mod space;
#[cfg(test)]
mod tests;

pub use content::Content;
pub use layout::Layout;
pub use options::{MakeOptions, MakeRefusal};
