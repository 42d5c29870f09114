//! Helpers shared by the tests of several crates.
//!
//! # What it is for
//! Rigs, images and helpers, written once. Unit tests of the crates that it uses cannot use it
//! with their own crate's types, of which they would have two copies.
//!
//! # What it promises
//! - Each seed reproduces one run.
//! - Everything that a test starts ends with it: processes, mounts, temporary files.
//!
//! # Parts, in reading order
//! ```text
//!   rig, port    the stepped SSD with a driver on it, and a port that misbehaves on order
//!   host         a host of raw rings and doorbells
//!   by_hand      a vfio-user client written by hand
//!   power_cut    the states that a power cut may leave
//!   disk         partition tables, and what holds of those that are read
//!   e2fs, image  e2fsprogs, images of file systems
//!   process      a test in a process of its own
//!   proxy        a TCP proxy that is slow, stalls and cuts
//! ```

#![allow(missing_docs, reason = "what the tests call says what it does by its name")]

pub mod alloc;
pub mod by_hand;
pub mod damage;
pub mod disk;
mod driver;
pub mod e2fs;
pub mod faults;
pub mod filled;
pub mod host;
pub mod image;
pub mod lab;
pub mod port;
pub mod power_cut;
pub mod process;
pub mod proxy;
pub mod rig;
mod rng;
pub mod served;

pub use driver::{device, quick, quick_once, stepped};
pub use rng::{Rng, setting};
