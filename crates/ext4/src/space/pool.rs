//! The totals: how much is free, how much of it is promised, and who may have the rest.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use super::Caller;
use crate::{Error, Result};
use meantime_process::lock::{Mutex, MutexGuard, Rank};

/// A user of blocks, which decides how many have to be left (kernel: `fs/ext4/balloc.c`,
/// `ext4_has_free_clusters`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// The [`Caller`] for whom the thread acts. It leaves the last reserve, and root's blocks
    /// unless they are the caller's, too.
    Caller,
    /// The file system itself, for what it has accepted already. It leaves the last reserve
    /// (`EXT4_MB_USE_ROOT_BLOCKS`).
    Root,
    /// Metadata that are needed to keep a promise. They leave only what is promised.
    Need,
}

/// Sums over all groups, as of the completed changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Free blocks, including those freed by transactions that have not committed.
    pub(crate) free: u64,
    pub(crate) free_inodes: u64,
    pub(crate) directories: u64,
    /// Free blocks promised to data without blocks yet, and to the change in progress.
    pub(crate) promised: u64,
}

/// The totals of a mount.
#[derive(Debug)]
pub(crate) struct Pool {
    totals: Mutex<Totals>,
    /// Blocks that only root may use (`s_r_blocks_count`).
    root: u64,
    /// Blocks that only [`Who::Need`] may use (`ext4_set_resv_clusters`).
    last: u64,
    /// The user and the group that get root's blocks, besides root. Group 0 stands for none.
    root_for: Caller,
    /// Whether this process gets root's blocks.
    privileged: AtomicBool,
    /// Whether a thread that acts for a [`Caller`] gets what that caller has a right to. Otherwise
    /// it counts as the process.
    by_caller: AtomicBool,
}

impl Pool {
    pub(crate) fn new(totals: Totals, root: u64, root_for: Caller, last: u64) -> Self {
        Self {
            totals: Mutex::new(Rank::AllocTotals, totals),
            root,
            root_for,
            last,
            privileged: AtomicBool::new(false),
            by_caller: AtomicBool::new(true),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Totals> {
        // The state is consistent after each step, so a poisoned lock may be used.
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn totals(&self) -> Totals {
        *self.lock()
    }

    /// Returns how many blocks `statfs` subtracts for users other than root.
    pub(crate) fn kept_back(&self) -> u64 {
        self.root.saturating_add(self.last)
    }

    pub(crate) fn set_privileged(&self, privileged: bool) {
        self.privileged.store(privileged, Ordering::Relaxed);
    }

    pub(crate) fn set_by_caller(&self, by_caller: bool) {
        self.by_caller.store(by_caller, Ordering::Relaxed);
    }

    /// Returns whether the caller for whom this thread acts gets root's blocks.
    fn gets_roots(&self) -> bool {
        match Caller::current() {
            Some(Caller { uid, gid }) if self.by_caller.load(Ordering::Relaxed) => {
                let of = self.root_for;
                uid == 0 || uid == of.uid || (of.gid != 0 && gid == of.gid)
            }
            _ => self.privileged.load(Ordering::Relaxed),
        }
    }

    /// Promises between one and `most` blocks to `who`. Returns how many.
    pub(crate) fn promise(&self, who: Who, most: u64) -> Result<u64> {
        let mut totals = self.lock();
        let left = totals.free.saturating_sub(totals.promised);
        let mut blocks = most.min(left.saturating_sub(self.kept_back()));
        // The user's kind matters only when little is left.
        if blocks < most {
            let stays = match who {
                Who::Caller if self.gets_roots() => self.last,
                Who::Caller => self.kept_back(),
                Who::Root => self.last,
                Who::Need => 0,
            };
            blocks = most.min(left.saturating_sub(stays));
        }
        if blocks == 0 {
            return Err(Error::NoSpace);
        }
        totals.promised += blocks;
        Ok(blocks)
    }

    /// Ends the promise of `blocks` that were not taken.
    pub(crate) fn release(&self, blocks: u64) {
        if blocks > 0 {
            let mut totals = self.lock();
            totals.promised = totals.promised.saturating_sub(blocks);
        }
    }

    /// Adds a completed change to the totals. `kept` is the number of promised blocks that it took.
    pub(crate) fn add(&self, blocks: i64, inodes: i64, directories: i64, kept: u64) {
        let mut totals = self.lock();
        totals.free = totals.free.saturating_add_signed(blocks);
        totals.free_inodes = totals.free_inodes.saturating_add_signed(inodes);
        totals.directories = totals.directories.saturating_add_signed(directories);
        totals.promised = totals.promised.saturating_sub(kept);
    }

    /// Promises exactly `blocks` blocks to the [`Caller`] for whom this thread acts.
    pub(crate) fn reserve(self: &Arc<Self>, blocks: u64) -> Result<Reservation> {
        if blocks > 0 {
            let promised = self.promise(Who::Caller, blocks)?;
            if promised < blocks {
                self.release(promised);
                return Err(Error::NoSpace);
            }
        }
        Ok(Reservation(Arc::new(Reserved {
            pool: Arc::clone(self),
            blocks: AtomicU64::new(blocks),
        })))
    }
}

/// Promised blocks.
#[derive(Debug)]
pub(crate) struct Reserved {
    pool: Arc<Pool>,
    blocks: AtomicU64,
}

impl Reserved {
    /// Takes out `blocks` of these blocks, because another promise has them now.
    pub(crate) fn take(&self, blocks: u64) {
        self.blocks.fetch_sub(blocks, Ordering::Relaxed);
    }

    /// Adds `blocks` that are promised already.
    pub(crate) fn put(&self, blocks: u64) {
        self.blocks.fetch_add(blocks, Ordering::Relaxed);
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.pool.release(*self.blocks.get_mut());
    }
}

/// A promise of blocks to data that have none yet (delayed allocation). Dropping it returns the
/// unused blocks.
///
/// A handle that takes blocks of it and then fails has taken nothing.
#[derive(Debug)]
pub struct Reservation(Arc<Reserved>);

impl Reservation {
    /// Returns how many blocks are promised and not taken.
    pub fn blocks(&self) -> u64 {
        self.0.blocks.load(Ordering::Relaxed)
    }

    pub(crate) fn shared(&self) -> &Arc<Reserved> {
        &self.0
    }

    /// Splits off up to `blocks` of its blocks as another promise.
    #[must_use]
    pub fn split(&mut self, blocks: u64) -> Self {
        let blocks = blocks.min(self.blocks());
        self.0.take(blocks);
        Self(Arc::new(Reserved { pool: Arc::clone(&self.0.pool), blocks: AtomicU64::new(blocks) }))
    }

    /// Adds another promise of the same mount.
    pub fn merge(&mut self, other: Self) {
        let blocks = other.blocks();
        other.0.take(blocks);
        self.0.put(blocks);
    }

    /// Ends the promise of up to `blocks` of its blocks.
    pub fn release(&mut self, blocks: u64) {
        drop(self.split(blocks));
    }

    /// The former name of [`release`](Self::release).
    #[deprecated(note = "use `release`")]
    pub fn give_back(&mut self, blocks: u64) {
        self.release(blocks);
    }
}
