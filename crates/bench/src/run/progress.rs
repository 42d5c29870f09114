//! How a run reports its progress.

use std::fmt::Display;

use meantime_completion::Policy;

/// Receives the progress of a run, between turns only.
pub trait Progress {
    /// The next jobs begin, those that run at the same time.
    fn job(&mut self, name: &str);
    /// A medium is being filled.
    fn filling(&self, uri: &str);
    /// The device and policy that have the next turn.
    fn cell(&self, uri: &str, policy: Policy);
    /// How much of the current jobs is done, from 0 to 1.
    fn done(&self, share: f64);
    /// Something went wrong that the run counts.
    fn error(&self, message: impl Display);
    /// The figures are less than was asked for; the run goes on.
    fn warning(&self, message: impl Display);
}
