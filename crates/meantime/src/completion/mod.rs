//! Completion: how to spend the gap between the doorbell and the completion entry.
//!
//! One mechanism ([`Gap::wait`]) serves every policy: sleep for a while the policy names, spin for a budget, then stop
//! burning the CPU – by interrupt on a queue that has one, by growing sleeps on one that has not.

pub mod calibrate;
mod gap;
mod mean;
mod policy;
pub mod steer;

pub use gap::{Gap, GapCounters, Source};
pub use mean::{HalfMean, HalfMin};
pub use policy::{ParsePolicyError, Policy};
