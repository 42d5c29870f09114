//! What a library does to a process that is not its own: as little as can be noticed.
//!
//! # What it is for
//! Meantime runs inside other people's programs: as a library, and under `meantime run`. Driver
//! and software SSD both start threads and open descriptors there. This crate knows of neither.
//!
//! # What it promises
//! - Threads that come from [`thread`] block all signals but those that a thread causes itself, so
//!   a program's handlers, `sigwait` and `signalfd` see no difference.
//! - Where [`descriptor`] is switched on (`meantime run`), our descriptors have numbers out of the
//!   program's way.
//! - [`fork`] says whether this is the process that threads and devices belong to. It also
//!   notices a child that was made past the C library's `fork`, by a word that the kernel empties
//!   (MADV_WIPEONFORK).
//! - [`lock`] lists all locks of the project in the order in which they are taken. A thread waits
//!   for a lock only if all that it holds come before it. Waits for something that is no lock
//!   (pages in flight, a transaction's data, the commit's leader) have their place in the order.
//!   Builds with debug assertions check each one; others have the standard library's locks.
//!
//! # Parts, in reading order
//! ```text
//!   lock         Rank (the list), Mutex, RwLock
//!   thread       spawn
//!   descriptor   moving ours to the top of the program's limit
//!   fork         whether this is still the same process
//! ```

#![deny(unsafe_code)]
#![deny(missing_docs)]

pub mod descriptor;
pub mod fork;
pub mod lock;
pub mod thread;
