//! The NVMe driver: controller, queue pairs, recovery.
//!
//! # What it is for
//! It converts a [`Command`] into a submission queue entry and a completion queue entry into an
//! [`Outcome`], and recovers when the device does not answer. It knows no request, no policy and no
//! thread.
//!
//! # What it owns
//! - The registers and doorbells of its controller, which it has claimed: a second
//!   [`Controller::enable`] on a transport is [`Error::Driven`] until the first controller and its
//!   queues are gone.
//! - The rings of each queue pair, and the slot of each command in flight. A queue pair belongs to
//!   one thread (`Send`, not `Sync`). Channels of a device share the [`Controller`]: a lock for
//!   the admin queue, and an atomic *epoch*, which a reset changes.
//!
//! # What it promises
//! - No data from the device is trusted. A completion is accepted only if queue, CID and generation
//!   are those of a command in flight (`QueuePair::accept`); all others are counted and dropped.
//!   Structures of Identify are validated (`identify`) before they are used.
//! - Every command ends exactly once, in bounded time, whatever the device does.
//! - A command that may be repeated is repeated, at most `retries` times, invisibly to the caller
//!   (`retry` has the reasons). A fused pair is never repeated: one of the two commands alone is no
//!   pair, and the compare of a repeated pair would find the data that the first try wrote.
//! - A command keeps its memory until the device is provably done with it (ARCHITECTURE.md §3).
//! - No clock is read, nothing is allocated, and no lock is taken when a command is staged, or when
//!   one that succeeded is reaped.
//!
//! # Parts, in reading order
//! ```text
//!   ring        the two rings: the phase is checked here; the only loads and stores of entries
//!   prp         how a command names its data
//!   queue       QueuePair: slots with CIDs, staging, reaping that trusts nothing
//!   retry       which statuses are repeated, when, how often
//!   recovery    commands that are held to be staged again
//!   registers   the one place that writes registers, and that hands out doorbells
//!   admin       the admin queue
//!   enable      bringing a controller up and down
//!   features    what the driver sets on it, and sets again after a reset
//!   controller  Controller: queues, reset, giving up
//!   io_queue    IoQueue: a queue pair of a live controller, with the time-out ladder
//!   admin_commands    what callers ask of a controller: features, log pages
//!   error, identify, identified, arbitration, shadow    what else a controller has
//! ```
//!
//! A command's tag is its slot. Slots `0..assigned` are assigned by the caller, so that the common
//! request, which is one command, needs no second free list. Further slots serve the parts of
//! requests that are split. The two commands of a compare-and-write are staged one after the other
//! with no doorbell between, also across the end of the ring. If the compare failed and the device
//! wrote nevertheless, the block layer's error is `IoErrorKind::Unfused`.
//!
//! # Deadlines of a busy queue
//! A queue that is always busy would never check its deadlines. So `Ring::wrap` closes the queue
//! every four rounds, and the next command takes the slow path, which checks. The fast path pays
//! nothing.

#![deny(unsafe_code)]

pub mod admin;
mod admin_commands;
pub mod arbitration;
pub mod controller;
mod enable;
mod error;
mod features;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod identified;
pub mod identify;
pub mod io_queue;
pub mod prp;
pub mod queue;
mod recovery;
mod registers;
pub mod retry;
mod ring;
mod shadow;

pub use admin_commands::{AdminQueries, NamespaceIds};
pub use arbitration::QueueClass;
pub use controller::{Controller, ControllerOptions};
pub use error::{Error, Result};
pub use identified::{Identified, ReadPage};
pub use identify::{ControllerInfo, NamespaceInfo, PowerState};
pub use io_queue::IoQueue;
pub use queue::{Command, CommandError, Op, Outcome, QueueCounters, QueueFull, QueuePair};
pub use recovery::Requester;
