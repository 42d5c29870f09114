//! Names of the two sides.

/// Names of the two sides, which are part of what they prove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// HOSTNQN.
    pub host: String,
    /// SUBNQN.
    pub subsystem: String,
}
