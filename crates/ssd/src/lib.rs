//! A software NVMe SSD at register level.
//!
//! It is a controller of NVMe Base Specification 1.4 with the NVM command set: registers, admin
//! commands, I/O queues, MSI-X-like interrupts, a DRAM or file [`Medium`], a volatile write cache
//! whose unflushed data a power cut really takes, and a service-time [`Model`]. It is strict: what
//! a real controller refuses, or is undefined on, gets the proper status or a fatal one, and is
//! counted.
//!
//! It runs in one of two ways, on the same controller: [`Ssd`] has a thread of its own and real
//! time; [`SteppedSsd`] has none and moves only when its clock does, so that one seed reproduces a
//! run. A driver reaches either through [`SoftPort`](meantime_spec::seam::SoftPort).
//!
//! [`served`] offers it to a driver in another process, over vfio-user.
//!
//! `unsafe` is confined to `hostmem` (memory shared with the host), `medium` (memory mapped for the
//! data), `sys` (prefetches) and `served::mapping` (memory shared with another process); the rest
//! of the crate is safe code over their bounds-checked interfaces.

#![deny(unsafe_code)]
// Under loom the seam's atomics are loom's, which this crate's shared-memory code cannot use; only
// the parking protocol itself is modelled, in `tests/loom_parking.rs`.
#![cfg(not(loom))]
#![deny(missing_docs)]

mod clock;
mod config;
pub mod control;
mod controller;
mod counters;
mod error;
mod faults;
mod hostmem;
mod mailbox;
mod medium;
mod model;
pub mod record;
pub mod served;
mod service;
mod stamps;
mod stepped;
mod store;
mod sys;
mod threaded;
mod uncorrectable;
mod vwc;

pub use meantime_random::Rng;

pub use clock::{Clock, MonotonicClock};
pub use config::{NamespaceConfig, PowerState, SsdConfig};
pub use control::{AddFaultError, FaultControl};
pub use controller::Refusal;
pub use counters::Counters;
pub use error::SsdError;
pub use faults::{
    FAULT_RULES_MAX, Fault, FaultHits, FaultPlan, FaultRule, FaultRules, OpcodeSet, TooManyRules,
    When,
};
pub use medium::{MEDIUM_ALIGN_BYTES, Medium};
pub use model::{Jitter, Model, Nand, Select, Slow};
pub use stamps::{STAMP_RING_LEN, Stamp, StampRing};
pub use stepped::SteppedSsd;
pub use threaded::{Ssd, SsdHandle};
