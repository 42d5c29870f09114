//! Additional state of a mount for writing.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};

use rustix::thread::CapabilitySet;

use super::registry::Registry;
use super::shared::{Inode, NODES_KEPT};
use super::writable::Stamp;
use crate::alloc::{AllocHandle, Allocator};
use crate::cache::PAGE_BYTES;
use crate::error::{Error, Result};
use crate::io::{DeviceSource, IoContexts};
use crate::journal::{Changes, Journal, JournalThread, Observe, OrderedToken, Sequence};
use crate::mmp::Protection;
use crate::options::{MountOptions, ReservedBlocks};
use crate::worker::Worker;
use meantime_ext4_format::{Superblock, Volume};
use meantime_process::lock::{Mutex, MutexGuard, Rank};

/// State through which all changes of a file system go.
pub(crate) struct WritableMount {
    pub(crate) journal: Journal,
    /// Contexts that commit.
    contexts: Arc<IoContexts>,
    pub(crate) allocator: Arc<Allocator>,
    seen: Arc<Seen>,
    /// Inodes that are kept because they have dirty pages or times newer than the disk, by number
    /// and address. An inode that is gone may be here beside the new one of its number, and
    /// removing one must not remove the other.
    dirty: Mutex<BTreeMap<(u32, usize), Arc<Inode>>>,
    /// Dirty pages of all files, and the number above which their writers write back.
    dirty_pages: AtomicUsize,
    pub(crate) dirty_most: usize,
    /// Writebacks that have begun.
    writebacks: AtomicU64,
    /// Whether the mount has ended.
    ended: AtomicBool,
    background: Mutex<Option<Worker>>,
    /// Keeps other hosts off, if the file system has the feature `mmp`.
    protection: Option<Arc<Protection>>,
    /// Thread that commits for others, if the mount has one.
    journal_thread: Mutex<Option<Arc<JournalThread>>>,
    /// When a periodic commit was last due, in ns of the mount's clock.
    committed_ns: AtomicU64,
}

/// What all threads see of changes besides the metadata themselves.
#[derive(Default)]
struct Seen {
    registry: Registry,
    /// The last transaction that anything was changed in.
    last: AtomicU64,
}

/// Updates the last transaction, and the allocator's totals, with each change.
struct Follower {
    seen: Arc<Seen>,
    allocator: Arc<Allocator>,
}

impl Observe for Follower {
    /// Is called before the change is visible: a reader that sees the change, and then syncs, waits
    /// for its transaction.
    fn coming(&self, changes: &Changes, sequence: Sequence) {
        self.seen.last.fetch_max(sequence.0, Ordering::AcqRel);
        for (ino, changed) in &changes.inodes {
            if let Some(inode) = self.seen.registry.find(*ino)
                && let Some(writable) = &inode.writable
            {
                writable.touched(sequence, changed.data);
            }
        }
    }

    fn visible(&self, changes: &Changes) -> Vec<Arc<dyn Any + Send + Sync>> {
        let mut seen: Vec<Arc<dyn Any + Send + Sync>> = Vec::with_capacity(changes.inodes.len());
        for (ino, changed) in &changes.inodes {
            let Some(inode) = self.seen.registry.changed(*ino) else { continue };
            inode.outdate();
            if let Some(writable) = &inode.writable {
                writable.set_links(changed.links);
            }
            seen.push(inode);
        }
        seen
    }

    fn done(&self, changes: &Changes) {
        self.allocator.completed(changes);
    }
}

/// Returns whether the calling process gets the reserved blocks (kernel: `ext4_has_free_clusters`).
fn may_use_reserved(superblock: &Superblock) -> bool {
    let (uid, gid) = superblock.reserved_for();
    let is_in_group = || {
        let others = rustix::process::getgroups().unwrap_or_default();
        rustix::process::getegid().as_raw() == gid
            || others.iter().any(|other| other.as_raw() == gid)
    };
    let is_capable = || {
        let sets = rustix::thread::capabilities(None);
        sets.is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_RESOURCE))
    };
    rustix::process::geteuid().as_raw() == uid || (gid != 0 && is_in_group()) || is_capable()
}

/// Returns the key of `inode` among those that are kept.
fn key(inode: &Inode) -> (u32, usize) {
    (inode.ino, std::ptr::from_ref(inode) as usize)
}

impl WritableMount {
    /// Returns the state for `volume` with its `journal`; `protection` keeps other hosts off.
    ///
    /// # Errors
    /// The errors of [`Allocator::new`]: an unsupported feature, damage, or a device error.
    pub(crate) fn new(
        journal: Journal,
        contexts: &Arc<IoContexts>,
        volume: &Volume<DeviceSource>,
        options: &MountOptions,
        protection: Option<Arc<Protection>>,
    ) -> Result<Self> {
        let MountOptions { cache_bytes, dirty_bytes, .. } = *options;
        // This is at most half of the cache, because dirty pages cannot be evicted.
        let dirty_bytes =
            if dirty_bytes == 0 { cache_bytes / 4 } else { dirty_bytes.min(cache_bytes / 2) };
        let dirty_most = (dirty_bytes / PAGE_BYTES).max(16);
        let allocator = Arc::new(Allocator::new(volume)?);
        allocator.set_privileged(match options.reserved {
            ReservedBlocks::Use => true,
            ReservedBlocks::Keep => false,
            ReservedBlocks::ByProcess => may_use_reserved(volume.superblock()),
        });
        allocator.set_by_caller(options.reserved == ReservedBlocks::ByProcess);
        let seen = Arc::new(Seen::default());
        journal.observe(Follower { seen: Arc::clone(&seen), allocator: Arc::clone(&allocator) });
        Ok(Self {
            journal,
            contexts: Arc::clone(contexts),
            allocator,
            seen,
            dirty: Mutex::new(Rank::DirtyNodes, BTreeMap::new()),
            dirty_pages: AtomicUsize::new(0),
            dirty_most,
            writebacks: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            background: Mutex::new(Rank::Threads, None),
            protection,
            journal_thread: Mutex::new(Rank::Threads, None),
            committed_ns: AtomicU64::new(0),
        })
    }

    /// Returns the multiple mount protection, if there is any.
    pub(crate) fn protection(&self) -> Option<&Protection> {
        self.protection.as_deref()
    }

    /// Returns the registry of all inodes in use.
    pub(crate) fn registry(&self) -> &Registry {
        &self.seen.registry
    }

    /// Returns the last transaction in which anything was changed.
    pub(crate) fn last_sequence(&self) -> Sequence {
        Sequence(self.seen.last.load(Ordering::Acquire))
    }

    /// Ends the mount: every later change fails.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Returns whether anything can be changed.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] after the end of the mount, and [`Error::Aborted`] after the journal has
    /// failed.
    pub(crate) fn usable(&self) -> Result<()> {
        if self.ended.load(Ordering::Acquire) {
            return Err(Error::ReadOnly);
        }
        self.journal.usable()
    }

    /// Changes metadata by `work`: as a whole, or not at all if it fails.
    ///
    /// # Errors
    /// Those of `work`, and of the journal.
    pub(crate) fn change<T>(
        &self,
        mut work: impl FnMut(&mut AllocHandle<'_, '_>) -> Result<T>,
    ) -> Result<T> {
        self.with_room(|| {
            let (result, _) = self
                .journal
                .change(|handle| work(&mut AllocHandle::new(handle, &self.allocator)))?;
            Ok(result)
        })
    }

    /// Changes metadata by `work`, which makes blocks reachable whose data are not written yet: as
    /// a whole, or not at all if it fails.
    ///
    /// # Errors
    /// Those of `work`, and of the journal.
    pub(crate) fn change_with_data<T>(
        &self,
        mut work: impl FnMut(&mut AllocHandle<'_, '_>) -> Result<T>,
    ) -> Result<(T, OrderedToken)> {
        self.with_room(|| {
            let changed = self
                .journal
                .change_with_data(|handle| work(&mut AllocHandle::new(handle, &self.allocator)));
            let (result, _, token) = changed?;
            Ok((result, token))
        })
    }

    /// Calls `change`. If there is no space, but recently freed blocks become free with a commit,
    /// commits and calls it again.
    fn with_room<T>(&self, mut change: impl FnMut() -> Result<T>) -> Result<T> {
        self.usable()?;
        match change() {
            Err(Error::NoSpace) if self.allocator.would_commit_help() => {
                self.commit_whole(self.last_sequence())?;
                change()
            }
            done => done,
        }
    }

    /// Commits the whole transactions up to `sequence`, so that the blocks that they freed, and the
    /// journal's blocks for fast commits, can be used.
    ///
    /// # Errors
    /// Those of the journal.
    pub(crate) fn commit_whole(&self, sequence: Sequence) -> Result<()> {
        self.journal.commit_whole(sequence, &mut *self.contexts.take()?)
    }

    /// Makes everything up to `sequence` durable.
    ///
    /// # Errors
    /// Those of the journal.
    pub(crate) fn commit(&self, sequence: Sequence) -> Result<()> {
        self.journal.commit(sequence, &mut *self.contexts.take()?)
    }

    /// Returns whether `interval_ns` have passed since the last call that returned true.
    pub(crate) fn commit_is_due(&self, now_ns: u64, interval_ns: u64) -> bool {
        let is_due =
            now_ns.saturating_sub(self.committed_ns.load(Ordering::Relaxed)) >= interval_ns;
        if is_due {
            self.committed_ns.store(now_ns, Ordering::Relaxed);
        }
        is_due
    }

    /// Sets the mount's background thread.
    pub(crate) fn set_background(&self, worker: Option<Worker>) {
        *self.background.lock().unwrap_or_else(PoisonError::into_inner) = worker;
    }

    /// Sets the thread that commits for others.
    pub(crate) fn set_journal_thread(&self, thread: Option<JournalThread>) {
        *self.journal_thread.lock().unwrap_or_else(PoisonError::into_inner) = thread.map(Arc::new);
    }

    /// Returns the thread that commits for others, if there is one.
    pub(crate) fn journal_thread(&self) -> Option<Arc<JournalThread>> {
        self.journal_thread.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stops both threads.
    pub(crate) fn stop_background(&self) {
        drop(self.journal_thread.lock().unwrap_or_else(PoisonError::into_inner).take());
        let background = self.background.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(background);
    }

    fn dirty(&self) -> MutexGuard<'_, BTreeMap<(u32, usize), Arc<Inode>>> {
        self.dirty.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps `inode`, which is newer than the disk.
    pub(crate) fn keep(&self, inode: &Arc<Inode>) {
        self.dirty().entry(key(inode)).or_insert_with(|| Arc::clone(inode));
    }

    /// Returns whether no further inode may be kept only for its times.
    pub(crate) fn keeps_most(&self) -> bool {
        self.dirty().len() >= NODES_KEPT
    }

    /// Removes `inode` from those that are kept.
    pub(crate) fn let_go(&self, inode: &Inode) -> Option<Arc<Inode>> {
        self.dirty().remove(&key(inode))
    }

    /// Returns the inodes that are kept because they are newer than the disk.
    pub(crate) fn kept(&self) -> Vec<Arc<Inode>> {
        self.dirty().values().cloned().collect()
    }

    /// Returns the stamp of a page that becomes dirty now.
    pub(crate) fn stamp(&self) -> Stamp {
        // Relaxed: a thread whose writeback comes after this write begins it with a stamp at least
        // as high, since both access one word.
        Stamp(self.writebacks.load(Ordering::Relaxed))
    }

    /// Returns the highest stamp of what is dirty now. What becomes dirty later has a higher one.
    pub(crate) fn advance_stamp(&self) -> Stamp {
        Stamp(self.writebacks.fetch_add(1, Ordering::Relaxed))
    }

    /// Adds `pages` to the number of dirty pages.
    pub(crate) fn more_dirty(&self, pages: usize) {
        self.dirty_pages.fetch_add(pages, Ordering::Relaxed);
    }

    /// Subtracts `pages` from the number of dirty pages.
    pub(crate) fn fewer_dirty(&self, pages: usize) {
        self.dirty_pages.fetch_sub(pages, Ordering::Relaxed);
    }

    /// Returns the number of dirty pages.
    pub(crate) fn dirty_pages(&self) -> usize {
        self.dirty_pages.load(Ordering::Relaxed)
    }
}
