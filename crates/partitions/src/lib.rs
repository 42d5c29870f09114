//! What lies on a disk: its partition table (GPT or MBR), and the signatures of file systems and
//! of other formats, without a device.
//!
//! # What it is for
//! [`Table::read`] lists the partitions of a disk, [`Table::select`] finds the one that a user has
//! named, and [`signature`] says what a disk or a partition contains. It does no I/O: bytes come
//! from a [`ReadAt`].
//!
//! # What it owns
//! It owns only what it has parsed. It has no cache, no lock and no thread.
//!
//! # What it promises
//! - No data from the disk is trusted. A GPT counts only with all of its checksums. Each number is
//!   checked before it is used, and what is odd but usable is said in [`Table::remarks`].
//! - Reads lie within the disk. A table takes at most [`READS_MAX`] of them, of at most 1 MiB
//!   each, and a signature takes one of 72 KiB. Memory is bounded by that: it is some MiB for the
//!   largest table that is accepted, with 8192 entries.
//! - Partitions have the numbers, starts, sizes and types that `sfdisk` lists. [`Table::select`]
//!   refuses those that cannot be used safely.
//! - Safe Rust only, and no panic on any input: `tests/it/mutations.rs` and the fuzzer `disk` check
//!   this.
//!
//! # Parts, in reading order
//! ```text
//!   disk        where bytes come from, and the bounds of reads
//!   text        GUIDs, UTF-16 and other texts on a disk
//!   types       names of partition types
//!   partition   a partition, and a table of them
//!   mbr, gpt    the two kinds of tables
//!   table       which of them a disk has
//!   selector    which partition a user wants
//!   signature   file systems and other formats
//! ```

#![forbid(unsafe_code)]

#[macro_use]
mod structures;

mod disk;
mod gpt;
mod mbr;
mod partition;
mod selector;
mod signature;
mod table;
mod text;
mod types;

pub use disk::{ReadAt, Size};
pub use partition::{Partition, Table, TableKind};
pub use selector::{Selector, SelectorError};
pub use signature::{Signature, signature};
pub use table::{READS_MAX, TableError};
