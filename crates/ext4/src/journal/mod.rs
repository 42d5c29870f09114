//! Changes of metadata: [handles](Handle), transactions of many handles, and the journal (JBD2)
//! that makes each transaction durable as a whole or not at all. `docs/ordering.md` describes the
//! faults, what is promised for each, and why each wait is where it is.
//!
//! ```text
//!   change      a Handle, in memory, one at a time; then newer blocks and running transaction
//!   close       the running transaction becomes the next to commit; a new one runs
//!   commit      its blocks go to the log; they and the data complete; then the commit block
//!   checkpoint  committed blocks are written in place and flushed; then the log's tail moves past
//!               them
//! ```
//!
//! Files, from a change to the log's tail:
//!
//! ```text
//!   changes       what a change does; orphans: where these are kept
//!   handle        a change in progress; prepared_copies: copies of blocks for the next one
//!   transaction   its blocks; ordered: data that it waits for; held: blocks that it freed
//!   state         Journal: what all threads share
//!   running       the running transaction, which a change joins
//!   committer     writes the log (block_writer, log) and the commit block
//!   lead          the commit leader, and the threads that wait for it (commits)
//!   commit        the steps of a commit, and their order (reach)
//!   fast_commit   describes changes (fast) after the log (fast_area) instead
//!   pending       what is committed and not in place
//!   checkpoint    writes it in place, and moves the tail
//!   ordered_io    the operations of these that a rule governs and a test can break (outside of
//!                 the journal `journal::flush` and the like)
//!   failure       what is noted of a failure
//!   mount         begins and ends; recover
//! ```
//!
//! The journal has no thread of its own (`thread` exists for measurements). A caller that needs
//! something durable commits for all callers that wait at that time.

mod block_writer;
mod changes;
mod checkpoint;
mod commit;
mod commits;
mod committer;
mod counters;
mod failure;
pub mod fast;
mod fast_area;
mod fast_commit;
#[cfg(all(test, not(loom)))]
mod fast_tests;
mod handle;
mod held;
mod lead;
mod log;
mod mount;
mod ordered;
mod ordered_io;
mod orphans;
mod pending;
mod prepared_copies;
mod recover;
mod running;
mod sequence;
mod state;
#[cfg(all(test, not(loom)))]
pub(crate) mod tests;
mod thread;
mod transaction;

pub use crate::io::{Blocks, NewerBlocks};
pub(crate) use block_writer::BlockWriter;
pub use changes::{Changed, Changes};
pub(crate) use commit::OwnData;
pub use committer::log_piece_blocks;
pub use counters::JournalCounters;
pub use handle::Handle;
pub(crate) use handle::time_now;
pub use held::Held;
pub(crate) use mount::{Recovery, check};
pub use ordered::OrderedToken;
pub(crate) use ordered_io::{Before, first_not_reusable, flush, may_record_blocks};
#[cfg(feature = "broken-rules")]
pub use ordered_io::{Rule, break_rule};
pub use orphans::{OrphanPlace, Orphans};
pub use sequence::Sequence;
pub use state::{Journal, Observe};
pub(crate) use thread::JournalThread;
