//! I/O to the device.
//!
//! ```text
//!   requests       RequestSet: what is in flight for one purpose, each request with a tag
//!   context        IoContext: a channel and all that is in flight on it; submit, next, flush
//!   fill_memory    requests that fill pages of the cache, and the memory that they use again
//!   fill           sends and completes them, for a reader or ahead of one
//!   target         where a read's bytes go
//!   direct         reads past the cache: by buffers, or the caller's memory lent to the device
//!   buffers        those buffers, and writeback's
//!   contexts       IoContexts: those of a mount; each thread takes one
//!   source         metadata from the device, or newer ones from completed changes (newer_blocks)
//!   group_commit   whether fsync callers overlap
//!   flushes        which FLUSH has made which writes durable
//! ```

mod buffers;
mod context;
mod contexts;
pub(crate) mod direct;
pub(crate) mod fill;
mod fill_memory;
mod flushes;
mod group_commit;
mod newer_blocks;
mod requests;
mod source;
pub(crate) mod target;

pub(crate) use buffers::CHUNK_BYTES;
pub(crate) use context::{IoContext, cache_lost};
pub use contexts::Call;
pub(crate) use contexts::{IoContexts, OwnedContext};
pub(crate) use flushes::Durability;
pub(crate) use group_commit::GroupCommit;
pub use newer_blocks::{Blocks, NewerBlocks};
pub(crate) use requests::{commit_set, log_set, write_set};
pub use source::DeviceSource;
