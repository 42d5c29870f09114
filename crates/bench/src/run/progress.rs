//! How a run reports its progress.

use std::fmt::Display;

use meantime_completion::Policy;
use meantime_report::run::Turn;

/// Receives the progress of a run, between turns only.
pub trait Progress {
    /// Is called when the next jobs begin, which run at the same time or have turns.
    fn job(&mut self);
    /// A medium is being filled.
    fn filling(&self, uri: &str);
    /// A job's device and policy have the next turn.
    fn cell(&self, job: &str, uri: &str, policy: Policy);
    /// A job's turn counts. `name` has the job, the device, the policy and the settings.
    fn turned(&self, name: &str, turn: &Turn);
    /// The share of the current jobs that is done, from 0 to 1.
    fn done(&self, share: f64);
    /// An error occurred, which the run counts.
    fn error(&self, message: impl Display);
    /// Is called when the figures are less than requested. The run continues.
    fn warning(&self, message: impl Display);
}
