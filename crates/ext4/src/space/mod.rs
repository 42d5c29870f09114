//! Free space as numbers: how much is free, how much of it is promised, what a change of metadata
//! adds or takes, and who may have the last of it. The allocator, which knows the blocks, ranks
//! later. The journal keeps a change's numbers with the rest of the change.

mod caller;
mod changes;
mod pool;

pub use caller::{Acting, Caller};
pub(crate) use changes::Promised;
pub(crate) use changes::SpaceChanges;
pub use pool::Reservation;
pub(crate) use pool::{Pool, Totals, Who};
