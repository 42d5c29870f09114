//! Running as a library in another program's process, with as few visible effects as possible.
//!
//! # What it is for
//! Meantime runs inside other programs: as a library, and under `meantime run`. Driver and software
//! SSD both start threads and open descriptors there. This crate knows neither of them.
//!
//! # What it promises
//! - Threads from [`thread`] block all signals except those that a thread causes itself, so a
//!   program's handlers, `sigwait` and `signalfd` see no difference.
//! - [`descriptor`] gives a library that is loaded into a program (`meantime run`) numbers out of
//!   the program's way.
//! - [`fork`] says whether this process owns the threads and devices. It also detects a child that
//!   was made without the C library's `fork`, by a word that the kernel zeroes (MADV_WIPEONFORK).
//! - [`lock`] lists all locks of the project in the order in which they are taken. A thread waits
//!   only for a lock that comes after all that it holds. Waits for something other than a lock
//!   (pages in flight, a transaction's data, the commit's leader) have their place in the order.
//!   Builds with debug assertions check each one; others use the standard library's locks.
//! - [`cpu`] measures whether others want the CPU of a thread that spins.
//!
//! # Parts, in reading order
//! ```text
//!   lock         Rank (the list), Mutex, RwLock
//!   thread       spawn
//!   descriptor   moving ours to the top of the program's limit
//!   fork         whether this is still the same process
//!   locks        who holds a lock on a file
//!   cpu          whether others want a thread's CPU
//! ```

#![deny(unsafe_code)]
#![deny(missing_docs)]

pub mod cpu;
pub mod descriptor;
pub mod fork;
pub mod lock;
pub mod locks;
pub mod thread;
