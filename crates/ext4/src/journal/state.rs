//! The journal, which all threads of a mount share.

use std::any::Any;
use std::sync::{Arc, OnceLock, PoisonError};

use super::block_writer::BlockWriter;
use super::changes::Changes;
use super::commits::Commits;
use super::held::Held;
use super::orphans::Orphans;
use super::pending::Pending;
use super::prepared_copies::Copies;
use super::sequence::Sequence;
use super::transaction::Open;
use crate::io::{DeviceSource, IoContexts};
use crate::options::CommitOverlap;
use crate::{Error, Recovered, Result};
use meantime_ext4_format::Volume;
use meantime_process::lock::{Mutex, MutexGuard};

/// An observer of each successful change, called for one change after another.
pub trait Observe: Send + Sync {
    /// The change is about to become a part of transaction `sequence`. No reader sees it yet, so a
    /// thread that later sees it and wants it durable finds the sequence recorded.
    fn coming(&self, changes: &Changes, sequence: Sequence);

    /// The change is becoming visible: readers that need one state of the metadata wait or retry.
    /// From here on, what was read of its inodes before must count as stale. The result is dropped
    /// after the change is visible, because no lock that ranks before publication may be taken
    /// here.
    fn visible(&self, changes: &Changes) -> Vec<Arc<dyn Any + Send + Sync>>;

    /// The change is visible. The next change has not begun.
    fn done(&self, changes: &Changes);
}

/// The journal of a file system that is mounted for writing.
pub struct Journal {
    pub(super) contexts: Arc<IoContexts>,
    pub(super) volume: Volume<DeviceSource>,
    pub(super) held: Held,
    /// The maximum number of blocks that a transaction may have, and the maximum that it may
    /// revoke.
    pub(super) blocks_most: usize,
    pub(super) revoked_most: usize,
    pub(super) open: Mutex<Open>,
    pub(super) commits: Commits,
    pub(super) pending: Mutex<Pending>,
    /// Held while blocks are written in place. It is locked before the lead of the log.
    pub(super) checkpointing: Mutex<BlockWriter>,
    pub(super) overlap: CommitOverlap,
    /// Whether fast commits are enabled.
    pub(super) fast: bool,
    /// The inode table block with the journal's own inode.
    pub(super) journal_table: u64,
    /// The error because of which no more changes are possible.
    pub(super) failure: OnceLock<Error>,
    pub(super) observer: OnceLock<Box<dyn Observe>>,
    /// The places of the orphans.
    pub(super) orphans: Orphans,
    pub(super) recovered: Option<Recovered>,
}

impl Journal {
    /// Sets `observer`, which is called for each successful change. Only the first call counts.
    pub fn observe(&self, observer: impl Observe + 'static) {
        let _ = self.observer.set(Box::new(observer));
    }

    /// Copies blocks for the next change, in case it resembles the last one. Runs while the device
    /// works.
    pub(super) fn prepare_copies(&self) {
        let wanted = self.opened().prepared.wanted();
        if !wanted.is_empty() {
            let copies = Copies::of(wanted, self.pending().take_replaced());
            self.opened().prepared.put(copies);
        }
    }

    /// Returns the transactions that have not committed, locked.
    pub(super) fn opened(&self) -> MutexGuard<'_, Open> {
        // A change that panics has changed nothing, and the code after it does not panic.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the blocks that have committed and are not in place, locked. This lock is taken
    /// last.
    pub(super) fn pending(&self) -> MutexGuard<'_, Pending> {
        // The state is consistent after each step, so a poisoned lock may be used.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that changes are still possible.
    ///
    /// # Errors
    /// Fails with [`Error::Aborted`] if they are not.
    pub fn usable(&self) -> Result<()> {
        if self.failure.get().is_some() { Err(Error::Aborted) } else { Ok(()) }
    }

    /// Returns why no more changes are possible.
    pub fn failure(&self) -> Option<Error> {
        self.failure.get().cloned()
    }

    /// Ends the mount, after `error` if there is one.
    pub(super) fn end(&self, error: Option<&Error>) {
        match error {
            Some(error) => self.fail(error),
            None => drop(self.failure.set(Error::Aborted)),
        }
    }

    /// Aborts the journal (rule 14), because what is in memory can never become durable, or because
    /// metadata cannot be trusted.
    pub fn fail(&self, error: &Error) {
        if self.failure.set(error.clone()).is_ok() {
            tracing::error!(%error, "the journal is aborted: the file system is read only from now on");
        }
    }
}
