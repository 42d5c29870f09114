//! Completion: how to spend the gap between the doorbell and the completion entry.
//!
//! # What it is for
//! A device needs time. This crate decides whether a thread polls, sleeps or blocks until it is
//! done. It knows neither NVMe nor the kernel's I/O: a queue is
//! a [`Source`]. docs/policies.md describes the policies, docs/waiting.md derives `adaptive`.
//!
//! # What it owns
//! A channel's [`Waiter`](waiter::Waiter): its gaps, what it has learned of the device, the times
//! of requests. Measured costs of sleeping belong to the process.
//!
//! # What it promises
//! - [`Gap::wait`] is the only place that sleeps or blocks for one channel's I/O, for every policy.
//!   (A channel looks 128 times before it calls it.) It looks, then blocks, then looks again, so no wake-up is lost (loom: `gap/loom_model.rs`,
//!   `alert/loom_model.rs`). Every block for an I/O has a deadline.
//! - No figure of a machine is built in: `calibrate` measures them all.
//! - Time hidden by a sleep is never counted as device time.
//! - A registered rule is asked once per wait, and never if the policy is `poll`.
//! - Telemetry is published off the fast path.
//!
//! # Parts, in reading order
//! ```text
//!   policy        Policy: the names
//!   waiter/       Waiter: one channel's waits; owns gaps and what was learned
//!   gap, plan     Gap::wait: spin, sleep, block; WaitPlan and Plan say how
//!   watchdog      a device whose thread wants the same CPU
//!   alert         waking a thread that is about to sleep
//!   class         what predicts a device time: direction, size, depth
//!   learning      from a policy and what was seen to a WaitPlan. Decides to sleep
//!   adaptive/     observes (times, wake, share, feedback), estimates and decides: planner (the
//!                   sleeps of least cost), control (holds the goal), choice (among these sleeps,
//!                   polling and the interrupt); tuning has its constants, and what set them
//!   rule          the trait Rule: rules for how long to sleep, registered by name
//!   earliest      how long a gap is at least, for callers with work of their own
//!   telemetry/    what a channel shows of itself, and a change of its policy from outside
//!   calibrate/    measuring sleeps and wake-ups
//! ```

#![forbid(unsafe_code)]

pub mod adaptive;
pub mod alert;
pub mod calibrate;
mod class;
mod earliest;
mod gap;
mod learning;
mod mean;
mod plan;
mod policy;
pub mod rule;
pub mod telemetry;
pub mod waiter;
mod watchdog;

pub use class::{Class, Kind};
pub use gap::{Gap, GapCounters, OffQueue, SPINS_PER_CLOCK, Source, WaitPlan, Waited, Wake, Why};
pub use learning::Flight;
pub use plan::{MAX_STAGES, Plan, Stage};
pub use policy::{Goal, ParsePolicyError, Policy};

/// The former name of [`OffQueue`].
#[deprecated(note = "use `OffQueue`")]
pub type Away = OffQueue;
