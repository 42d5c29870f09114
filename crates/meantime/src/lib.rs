//! Meantime: a user-space I/O stack for SSDs that answer in microseconds.
//!
//! This crate is what a program depends on; each module is a crate of its own, which uses only
//! those beneath it: [`hw`] (memory, doorbells, clock, transports), [`nvme`] (controller, queue
//! pairs, recovery), [`completion`] (how to spend the time a device takes), [`block`] (requests,
//! tickets, devices by URI), [`ext4`] (files), [`posix`] (descriptors and errno, for programs that
//! know nothing of all this). Start with [`block::open`]. ARCHITECTURE.md in the repository tells
//! what holds and why.

#![deny(missing_docs)]

pub use meantime_block as block;
pub use meantime_completion as completion;
pub use meantime_ext4 as ext4;
pub use meantime_hw as hw;
pub use meantime_nvme as nvme;
pub use meantime_posix as posix;
