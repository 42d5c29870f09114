//! The order of transactions.

/// The number of a transaction in this mount, from 1 on; 0 precedes all of them. The journal has a
/// separate 32-bit number for each transaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sequence(pub u64);
