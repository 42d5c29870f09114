//! How metadata are changed: [handles](Handle), transactions of many of them, and the journal (JBD2) that makes each transaction happen
//! altogether or not at all.

mod handle;
mod held;
#[cfg(test)]
pub(in crate::ext4) mod testing;

pub use handle::{Changes, Handle};
pub use held::Held;

/// The number of a transaction of this mount, from 1 on. (In the journal it has another, of 32 bits.)
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sequence(pub u64);
