//! Free blocks as numbers: what is free in all, what of it is promised to whom, and what a change
//! of metadata adds or takes. The allocator, which knows which blocks those are, comes later; the
//! journal has what a change did with the rest of the change.

mod changes;
mod pool;

pub(crate) use changes::Promised;
pub(crate) use changes::SpaceChanges;
pub use pool::Reservation;
pub(crate) use pool::{Pool, Totals, Who};
