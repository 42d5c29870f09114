//! The operations of the journal whose order or content a rule of `docs/ordering.md` governs, and in
//! which a test can break the rule.
//!
//! The rest of the journal knows no broken rules. Tests replace the functions of `unbroken.rs` by
//! those of `broken.rs`, which break one rule at a time (feature `broken-rules`).

#[cfg(feature = "broken-rules")]
mod broken;
mod unbroken;

#[cfg(feature = "broken-rules")]
pub(crate) use broken::*;
#[cfg(feature = "broken-rules")]
pub use broken::{Rule, break_rule};
#[cfg(not(feature = "broken-rules"))]
pub(crate) use unbroken::*;
