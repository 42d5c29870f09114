//! Fault injection.
//!
//! A [`FaultPlan`] consists of rules. Each rule is a [`Fault`], with a [`When`] that says to which
//! commands it happens. A plan is written in Rust, as a TOML text ([`FaultPlan::parse`];
//! docs/faults.md lists every key), or rule by rule while the SSD runs
//! ([`FaultControl`](crate::FaultControl)).

mod engine;
mod names;
mod parse;
mod plan;
mod rule;

pub(crate) use engine::{Corruption, CqeFaults, Faults, Seen, Verdict};
pub(crate) use names::parse_ns;
pub use plan::{FAULT_RULES_MAX, FaultPlan, FaultRules, TooManyRules};
pub use rule::{Fault, FaultHits, FaultRule, OpcodeSet, When};
