//! How a run reports its progress.

use std::fmt::Display;

use meantime_completion::Policy;

/// Receives the progress of a run, between turns only.
pub trait Progress {
    /// The next jobs begin; they run at the same time.
    fn job(&mut self, name: &str);
    /// A medium is being filled.
    fn filling(&self, uri: &str);
    /// A device and policy have the next turn.
    fn cell(&self, uri: &str, policy: Policy);
    /// The share of the current jobs that is done, from 0 to 1.
    fn done(&self, share: f64);
    /// An error occurred, which the run counts.
    fn error(&self, message: impl Display);
    /// The figures are less than requested; the run goes on.
    fn warning(&self, message: impl Display);
}
