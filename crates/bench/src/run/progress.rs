//! What a run tells its caller while it goes on.

use std::fmt::Display;

use meantime_completion::Policy;

/// Hears how far a run is. It is told between turns only.
pub trait Progress {
    /// The next jobs begin, those that run at the same time.
    fn job(&mut self, name: &str);
    /// A medium is being filled.
    fn filling(&self, uri: &str);
    /// Whose turn it is.
    fn cell(&self, uri: &str, policy: Policy);
    /// How much of the current jobs is done, from 0 to 1.
    fn done(&self, share: f64);
    /// Something went wrong that the run counts.
    fn error(&self, message: impl Display);
    /// The figures are less than was asked for; the run goes on.
    fn warning(&self, message: impl Display);
}
