//! Completion: how to spend the gap between the doorbell and the completion entry.
//!
//! One mechanism ([`Gap::wait`]) serves every policy: sleep for a while the policy names, spin for
//! a budget, then stop burning the CPU – by interrupt on a queue that has one, by growing sleeps on
//! one that has not. A channel's [`Waiter`](waiter::Waiter) owns the gaps, what was learned of the
//! device, and deferred work. Further rules for how long to sleep are registered ([`rule`]).

#![forbid(unsafe_code)]

pub mod adaptive;
mod auto;
mod backlog;
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
mod work;

pub use backlog::LIMIT as DEFERRED_LIMIT;
pub use class::{Class, Kind};
pub use gap::{Gap, GapCounters, SPINS_PER_CLOCK, Source, WaitPlan, Waited, Wake};
pub use learning::Flight;
pub use plan::{MAX_STAGES, Plan, Stage};
pub use policy::{Goal, ParsePolicyError, Policy};
pub use work::{
    DeferError, DeferRefusal, Deferred, Notifier, PATIENCE_NS, Pieces, PolledPieces, Progress,
    WorkCounters,
};
