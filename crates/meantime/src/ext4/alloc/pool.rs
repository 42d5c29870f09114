//! The totals: what is free, what of it is promised, and who may have the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::ext4::Error;

/// Who wants blocks: how much has to be left for others (kernel: `fs/ext4/balloc.c`, `ext4_has_free_clusters`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    /// Anybody: root's blocks and the last reserve stay.
    Anybody,
    /// Root: the last reserve stays.
    Root,
    /// Metadata without which what was promised could not be kept: nothing has to stay but what is promised.
    Need,
}

/// The totals of a mount. They are those of complete changes: a change under way is on top of them.
#[derive(Debug)]
pub(super) struct Pool {
    /// Free blocks, those included that were freed by what has not committed.
    free: AtomicU64,
    free_inodes: AtomicU64,
    directories: AtomicU64,
    /// Promised, to data that have no blocks yet.
    reserved: AtomicU64,
    /// Blocks that only root gets (`s_r_blocks_count`).
    root: u64,
    /// Blocks that only [`Who::Need`] gets (`ext4_set_resv_clusters`).
    last: u64,
    /// Whoever uses the file system counts as root.
    privileged: AtomicBool,
}

impl Pool {
    pub(super) fn new(free: u64, free_inodes: u64, directories: u64, root: u64, last: u64) -> Self {
        Self {
            free: AtomicU64::new(free),
            free_inodes: AtomicU64::new(free_inodes),
            directories: AtomicU64::new(directories),
            reserved: AtomicU64::new(0),
            root,
            last,
            privileged: AtomicBool::new(false),
        }
    }

    pub(super) fn free(&self) -> u64 {
        self.free.load(Ordering::Relaxed)
    }

    pub(super) fn free_inodes(&self) -> u64 {
        self.free_inodes.load(Ordering::Relaxed)
    }

    pub(super) fn reserved(&self) -> u64 {
        self.reserved.load(Ordering::Relaxed)
    }

    /// What `statfs` takes off for those who are not root.
    pub(super) fn kept_back(&self) -> u64 {
        self.root.saturating_add(self.last)
    }

    pub(super) fn set_privileged(&self, privileged: bool) {
        self.privileged.store(privileged, Ordering::Relaxed);
    }

    pub(super) fn user(&self) -> Who {
        if self.privileged.load(Ordering::Relaxed) { Who::Root } else { Who::Anybody }
    }

    /// Blocks that `who` can have, with `reserved` promised to others.
    fn left(&self, who: Who, free: u64, reserved: u64) -> u64 {
        let stays = match who {
            Who::Anybody => self.kept_back(),
            Who::Root => self.last,
            Who::Need => 0,
        };
        free.saturating_sub(reserved).saturating_sub(stays)
    }

    /// Blocks that `who` can have beyond those that were promised, where a change under way has `taken` some, `spent` of them promised ones.
    pub(super) fn available(&self, who: Who, taken: u64, spent: u64) -> u64 {
        let reserved = self.reserved().saturating_sub(spent);
        self.left(who, self.free().saturating_sub(taken), reserved)
    }

    /// Promises `blocks` blocks.
    pub(super) fn reserve(self: &Arc<Self>, blocks: u64) -> Result<Reservation, Error> {
        // `free` may shrink at the same time only by blocks that had been promised, or that a change took that was there before.
        let who = self.user();
        let fits = |reserved| (self.left(who, self.free(), reserved) >= blocks).then(|| reserved + blocks);
        self.reserved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).map_err(|_| Error::NoSpace)?;
        Ok(Reservation(Arc::new(Reserved { pool: Arc::clone(self), blocks: AtomicU64::new(blocks) })))
    }

    /// Promised blocks were taken for good. (That they are not free any more is said elsewhere.)
    pub(super) fn settle(&self, blocks: u64) {
        self.reserved.fetch_sub(blocks, Ordering::Relaxed);
    }

    /// A change is complete.
    pub(super) fn add(&self, blocks: i64, inodes: i64, directories: i64) {
        // Wraps to what is meant.
        self.free.fetch_add(blocks as u64, Ordering::Relaxed);
        self.free_inodes.fetch_add(inodes as u64, Ordering::Relaxed);
        self.directories.fetch_add(directories as u64, Ordering::Relaxed);
    }
}

/// Blocks that are promised to somebody.
#[derive(Debug)]
pub(super) struct Reserved {
    pool: Arc<Pool>,
    blocks: AtomicU64,
}

impl Reserved {
    pub(super) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(super) fn take(&self, blocks: u64) {
        self.blocks.fetch_sub(blocks, Ordering::Relaxed);
    }

    pub(super) fn put_back(&self, blocks: u64) {
        self.blocks.fetch_add(blocks, Ordering::Relaxed);
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.pool.settle(*self.blocks.get_mut());
    }
}

/// A promise of blocks to data that have none yet (delayed allocation). What was not used is given back when it is dropped.
///
/// A handle that takes blocks of it and then fails has taken nothing.
#[derive(Debug)]
pub struct Reservation(Arc<Reserved>);

impl Reservation {
    /// How many blocks are promised and not taken.
    pub fn blocks(&self) -> u64 {
        self.0.blocks.load(Ordering::Relaxed)
    }

    pub(super) fn shared(&self) -> &Arc<Reserved> {
        &self.0
    }

    /// Takes up to `blocks` of its blocks out, as another promise.
    #[must_use]
    pub fn split(&mut self, blocks: u64) -> Self {
        let blocks = blocks.min(self.blocks());
        self.0.take(blocks);
        Self(Arc::new(Reserved { pool: Arc::clone(&self.0.pool), blocks: AtomicU64::new(blocks) }))
    }

    /// Adds another promise of the same mount to it.
    pub fn merge(&mut self, other: Self) {
        let blocks = other.blocks();
        other.0.take(blocks);
        self.0.put_back(blocks);
    }

    /// Gives `blocks` of its blocks back.
    pub fn give_back(&mut self, blocks: u64) {
        drop(self.split(blocks));
    }
}
