//! The running transaction, and how changes are added to it.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::block_writer::BlockWriter;
use super::changes::Changes;
use super::device;
use super::handle::Handle;
use super::held::Held;
use super::lead::Commits;
use super::ordered::OrderedToken;
use super::orphans::Orphans;
use super::pending::Pending;
use super::sequence::Sequence;
use super::spares::{Copies, Spares};
use super::transaction::Transaction;
use crate::io::{DeviceSource, IoContexts};
use crate::options::CommitOverlap;
use crate::{Error, Recovered, Timestamp};
use meantime_ext4_format::{Source, Volume};
use meantime_process::lock::{Mutex, MutexGuard};

/// How often the metadata that a change needs are read without the lock. A change that needs more
/// is made with it, since each reading repeats the work before it.
const READS_OUTSIDE: u32 = 16;

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

/// The transactions that have not committed.
pub(super) struct Open {
    /// Closed ones, oldest first.
    pub(super) closed: VecDeque<Transaction>,
    /// The one that changes are added to.
    pub(super) running: Transaction,
    /// The number of changes so far.
    pub(super) changes: u64,
    /// Copies for the next change.
    spares: Spares,
}

/// The journal of a file system that is mounted for writing.
pub struct Journal {
    pub(super) contexts: Arc<IoContexts>,
    pub(super) volume: Volume<DeviceSource>,
    pub(super) held: Held,
    /// The most blocks that a transaction may have, and the most that it may revoke.
    pub(super) blocks_most: usize,
    pub(super) revoked_most: usize,
    pub(super) open: Mutex<Open>,
    pub(super) commits: Commits,
    pub(super) pending: Mutex<Pending>,
    /// Held while blocks are written home; locked before the lead of the log.
    pub(super) checkpointing: Mutex<BlockWriter>,
    pub(super) overlap: CommitOverlap,
    /// Whether fast commits are enabled.
    pub(super) fast: bool,
    /// The inode table block with the journal's own inode.
    pub(super) journal_table: u64,
    /// Whether the device has a volatile cache.
    pub(super) volatile: bool,
    /// Why no more changes are possible.
    pub(super) failure: OnceLock<Error>,
    pub(super) observer: OnceLock<Box<dyn Observe>>,
    /// Where the orphans are.
    pub(super) orphans: Orphans,
    pub(super) recovered: Option<Recovered>,
}

impl Journal {
    /// Sets `observer`, which is called for each successful change. Only the first call counts.
    pub fn observe(&self, observer: impl Observe + 'static) {
        let _ = self.observer.set(Box::new(observer));
    }

    /// Changes metadata by `work`: as a whole if that succeeds, not at all if it fails. Returns the
    /// transaction that has the change; `commit` of that makes it durable. ([`Sequence`] 0: nothing
    /// was changed.)
    ///
    /// Changes are made one at a time. The caller has no channel of this mount and no page of a
    /// cache locked, and `work` waits for nothing but the device. It is called again if it needs
    /// metadata that are not in memory: they are read while others change something.
    ///
    /// # Errors
    /// Fails as `work` does, if the change does not fit the journal, or if the journal has failed
    /// earlier.
    pub fn change<T>(
        &self,
        work: impl FnMut(&mut Handle<'_>) -> Result<T, Error>,
    ) -> Result<(T, Sequence), Error> {
        let (result, sequence, _) = self.change_by(work, false)?;
        Ok((result, sequence))
    }

    /// Makes a change that makes blocks reachable whose data are yet to be written: its transaction
    /// does not commit before the token has [ended](OrderedToken::end).
    ///
    /// # Errors
    /// Fails as [`change`](Self::change) does.
    pub fn change_with_data<T>(
        &self,
        work: impl FnMut(&mut Handle<'_>) -> Result<T, Error>,
    ) -> Result<(T, Sequence, OrderedToken), Error> {
        let (result, sequence, token) = self.change_by(work, true)?;
        Ok((result, sequence, token.ok_or(Error::Invalid("there is no token"))?))
    }

    fn change_by<T>(
        &self,
        mut work: impl FnMut(&mut Handle<'_>) -> Result<T, Error>,
        with_data: bool,
    ) -> Result<(T, Sequence, Option<OrderedToken>), Error> {
        self.usable()?;
        let mut reads_left = READS_OUTSIDE;
        let (mut open, result, (changes, left)) = loop {
            let mut open = self.opened();
            let memory = self.volume.source().in_memory();
            let base: &(dyn Source + Sync) =
                if reads_left > 0 { &memory } else { self.volume.source() };
            let volume = self.volume.with_source(());
            let mut handle = Handle::new(volume, base, &self.held, &self.orphans, time_now())
                .with_copies(open.spares.take());
            if !self.fast {
                handle.fast_ineligible();
            }
            let result = work(&mut handle);
            let parts = handle.into_parts();
            if !memory.is_missing() {
                break (open, result?, parts);
            }
            // Whatever came of it, it has not seen all that there is.
            open.spares.give_back(parts.1, Vec::new());
            drop(open);
            // An error of the device is the change's if it still needs what could not be read.
            reads_left = if memory.read_missing() { reads_left - 1 } else { 0 };
        };
        let untouched =
            changes.blocks.is_empty() && changes.forgotten.is_empty() && changes.freed.is_empty();
        if untouched && !with_data {
            open.spares.give_back(left, Vec::new());
            return Ok((result, Sequence(0), None));
        }
        if changes.blocks.len() > self.blocks_most || changes.forgotten.len() > self.revoked_most {
            return Err(Error::Resources("the journal is too small for the change".to_owned()));
        }
        let running = &open.running;
        if running.blocks_with(&changes) > self.blocks_most
            || running.revoked_with(&changes) > self.revoked_most
        {
            open.close();
        }
        let sequence = open.running.sequence;
        let replaced = open.running.merge(&changes);
        open.changes += 1;
        let observer = self.observer.get();
        if let Some(observer) = observer {
            observer.coming(&changes, sequence);
        }
        let newest = self.volume.source().newest();
        drop(newest.publish(&changes.blocks, &changes.forgotten, || {
            observer.map(|observer| observer.visible(&changes))
        }));
        for freed in &changes.freed {
            device::hold(&self.held, freed.clone(), sequence);
        }
        self.orphans.completed(&changes.orphans);
        if let Some(observer) = observer {
            observer.done(&changes);
        }
        open.spares.changed(changes.blocks);
        open.spares.give_back(left, replaced);
        // Rule 2: before the lock is released, so no transaction closes in between.
        let token = with_data.then(|| open.running.ordered.token());
        let closed = !open.closed.is_empty();
        drop(open);
        if closed {
            self.relieve();
        }
        Ok((result, sequence, token))
    }

    /// Copies blocks for the next change, in case it resembles the last one. Runs while the device
    /// works.
    pub(super) fn make_spares(&self) {
        let wanted = self.opened().spares.wanted();
        if !wanted.is_empty() {
            let copies = Copies::of(wanted, self.pending().take_replaced());
            self.opened().spares.put(copies);
        }
    }

    /// Returns the transactions that have not committed, locked.
    pub(super) fn opened(&self) -> MutexGuard<'_, Open> {
        // A change that panics has changed nothing; the code after it does not panic.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that changes are still possible.
    ///
    /// # Errors
    /// Fails with [`Error::Aborted`] if they are not.
    pub fn usable(&self) -> Result<(), Error> {
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

    /// Aborts the journal (rule 14): what is in memory can never become durable, or metadata cannot
    /// be trusted.
    pub fn fail(&self, error: &Error) {
        if self.failure.set(error.clone()).is_ok() {
            tracing::error!(%error, "the journal is aborted: the file system is read only from now on");
        }
    }
}

impl Open {
    /// Returns the state before the first commit.
    pub(super) fn new() -> Self {
        Self {
            closed: VecDeque::new(),
            running: Transaction::new(Sequence(1)),
            changes: 0,
            spares: Spares::default(),
        }
    }

    /// Closes the running transaction and begins the next.
    pub(super) fn close(&mut self) {
        let next = Transaction::new(Sequence(self.running.sequence.0 + 1));
        self.closed.push_back(std::mem::replace(&mut self.running, next));
    }
}

/// Returns the time of day.
pub(crate) fn time_now() -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: now.as_secs() as i64, nanoseconds: now.subsec_nanos() }
}
