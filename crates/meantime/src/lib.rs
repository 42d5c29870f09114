//! Meantime: a user-space I/O stack for SSDs that answer in microseconds.
//!
//! Layers, each using only those beneath it: [`hw`] (memory, doorbells, clock, transports), [`nvme`] (controller, queue
//! pairs, recovery), [`completion`] (how to spend the time a device takes), [`block`] (requests, tickets, devices by URI),
//! [`ext4`] (files), [`posix`] (descriptors and errno, for programs that know nothing of all this).
//! Start with [`block::open`]. ARCHITECTURE.md in the repository tells what holds and why.

#![deny(missing_docs)]

pub mod block;
pub mod completion;
pub mod ext4;
pub mod hw;
mod lock;
pub mod nvme;
pub mod posix;
