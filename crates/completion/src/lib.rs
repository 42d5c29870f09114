//! Completion: how to spend the gap between the doorbell and the completion entry.
//!
//! # What it is for
//! A device needs time. This crate decides whether a thread polls, sleeps or blocks until it is
//! done, and what else is done meanwhile. It knows neither NVMe nor the kernel's I/O: a queue is a
//! [`Source`]. docs/policies.md describes the policies, docs/waiting.md derives `adaptive`.
//!
//! # What it owns
//! What was learned of a queue ([`Learning`]), one thread's; and work that waits for a gap
//! ([`Backlog`]). Measured costs of sleeping belong to the process.
//!
//! # What it promises
//! - [`Gap::wait`] is the only place that waits for I/O, for every policy. It looks, then blocks,
//!   then looks again, so no wake-up is lost (loom: `gap/model.rs`). Every block has a deadline.
//! - No figure of a machine is built in: `calibrate` measures them.
//! - What a sleep hid is never counted as device time.
//! - Published rules behave as published. What a publication leaves open is said in the rule's
//!   type.
//! - A channel without deferred work pays nothing for it. Telemetry is published off the fast path.
//!
//! # Parts, in reading order
//! ```text
//!   policy        Policy: the names
//!   gap, plan     Gap::wait: spin, sleep, block; Way and Plan say how
//!   class         what predicts a device time: direction, size, depth
//!   learning      Learning::way: from a policy and what was seen to a Way. Decides to sleep
//!   adaptive/     times (distributions seen), wake (what a sleep costs), planner (the sleeps of
//!                   least cost), control (holds the goal)
//!   auto          chooses between interrupt, adaptive and poll
//!   published/    one file for each published rule, behind the trait Rule
//!   work, backlog, soonest    deferred work: pieces, their order, how long a gap is
//!   steer/        what a channel shows of itself, and a change of its policy from outside
//!   calibrate/    measuring sleeps and wake-ups
//!   sim/          the same Gap and Learning in virtual time; the best that can be reached
//! ```
//!
//! A [`Rule`]'s `choose` says how an I/O is waited for, and may be asked twice. `record` does all
//! counting. Costs that a rule needs ([`WakeCosts`]) are measured once a process.

#![forbid(unsafe_code)]

pub mod adaptive;
mod auto;
mod backlog;
pub mod calibrate;
mod class;
mod gap;
mod learning;
mod mean;
mod plan;
mod policy;
pub mod rule;
mod soonest;
pub mod steer;
pub mod waiter;
mod work;

pub use backlog::LIMIT as DEFERRED_LIMIT;
pub use class::{Class, Kind};
pub use gap::{Gap, GapCounters, SPINS_PER_CLOCK, Source, Waited, Wake, Way};
pub use learning::Flight;
pub use plan::{MAX_STAGES, Plan, Stage};
pub use policy::{Goal, ParsePolicyError, Policy};
pub use work::{
    Bell, DeferError, DeferRefusal, Deferred, PATIENCE_NS, Pieces, PolledPieces, Progress,
    WorkCounters,
};
