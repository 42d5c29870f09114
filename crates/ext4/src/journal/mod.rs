//! How metadata are changed: [handles](Handle), transactions of many of them, and the journal
//! (JBD2) that makes each transaction happen altogether or not at all. What can go wrong, what is
//! promised then, and why each wait is where it is: `docs/ordering.md`.
//!
//! ```text
//!   change     a Handle, all in memory, one at a time; then in the newest blocks, and in the running transaction
//!   close      the running transaction becomes the next to be committed; a new one runs
//!   commit     its blocks into the log, in the places behind the last; its data and they are on the device; then its commit block
//!   checkpoint committed blocks into their places, flushed; then the log's beginning moves behind them
//! ```
//!
//! Nothing here has a thread of its own (`thread` is there to be measured): who wants something
//! durable commits, and one for all who want it at a time.

mod block_writer;
#[cfg(feature = "broken-rules")]
mod broken;
mod checkpoint;
mod commit;
mod committer;
mod counters;
mod failure;
pub mod fast;
mod fast_commit;
#[cfg(all(test, not(loom)))]
mod fast_tests;
mod handle;
mod held;
mod lead;
mod log;
mod log_device;
mod mount;
mod ordered;
mod orphans;
mod pending;
mod recover;
mod running;
mod spares;
#[cfg(all(test, not(loom)))]
pub(crate) mod testing;
#[cfg(all(test, not(loom)))]
mod tests;
mod thread;
mod transaction;

pub use crate::io::{Blocks, Newest};
pub(crate) use block_writer::BlockWriter;
#[cfg(feature = "broken-rules")]
use broken as device;
#[cfg(feature = "broken-rules")]
pub use broken::{Rule, break_rule};
pub(crate) use commit::Begun;
pub use committer::log_piece_blocks;
pub use counters::JournalCounters;
pub(crate) use device::{Before, finish_data, first_not_reusable, flush, may_say_blocks};
pub(crate) use fast_commit::Fast;
pub use handle::{Changed, Changes, Handle};
pub use held::Held;
pub(crate) use lead::Turn;
#[cfg(not(feature = "broken-rules"))]
use log_device as device;
pub(crate) use mount::{Recovery, check};
pub use ordered::OrderedToken;
pub use orphans::{OrphanPlace, Orphans};
pub(crate) use running::time_now;
pub use running::{Journal, Observe};
pub(crate) use thread::JournalThread;

/// The number of a transaction of this mount, from 1 on; 0 is before all of them. (In the journal
/// it has another, of 32 bits.)
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sequence(pub u64);
