//! State of inodes that can be written to: their locks, and what is newer than the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::times::Times;
use crate::error::{Error, Result};
use crate::journal::Sequence;
use crate::space::Reservation;
use meantime_process::lock::{
    Condvar, Mutex, MutexGuard, Rank, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

/// Interval of the checks while waiting for another thread's writeback.
const LOOK: Duration = Duration::from_millis(100);

/// This bit of [`Writable::users`] says that no name leads to the inode, which is deleted with its
/// last user.
const UNLINKED: usize = 1 << (usize::BITS - 1);

/// This bit of [`Writable::users`] says that the inode is gone. Its number may be another inode's,
/// which must not be changed through this one.
const GONE: usize = UNLINKED >> 1;

/// Additional state of an inode that can be written to.
///
/// [`Rank`] has the order of its locks: that of the content, that of the mapping, the lock of a
/// change of metadata, that of the pages.
pub(crate) struct Writable {
    /// Held by the thread that changes the content or the size.
    content: Mutex<()>,
    /// Read-locked by readers of blocks, write-locked to take blocks away from the file.
    mapping: RwLock<()>,
    pages: Mutex<Pages>,
    /// Notified when writeback has ended.
    written: Condvar,
    /// The last transaction that changed the inode, and the last that changed what is needed to
    /// find its data.
    last: AtomicU64,
    last_data: AtomicU64,
    /// Number of the [FLUSH](crate::io::Flushes) that makes all data durable that were written in
    /// place, and the number up to which `fsync` has dealt with that.
    pub(crate) flush_needed: AtomicU64,
    pub(crate) flushed: AtomicU64,
    failures: Mutex<Failures>,
    /// Number of nodes, with [`UNLINKED`] and [`GONE`]. They are one word so that an inode that is
    /// being deleted gets no new node, and is deleted once.
    users: AtomicUsize,
    /// Whether the inode never had a name.
    nameless: AtomicBool,
}

/// When a page became dirty: the number of writebacks of the mount that had begun before. A
/// writeback writes the pages with a stamp up to its own, so that it ends although other threads go
/// on writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp(pub(crate) u64);

/// The parts of a page that are newer than the disk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dirty {
    /// Mask of the dirty blocks, with the first one in bit 0. If blocks are larger than pages, only
    /// bit 0 is used.
    pub(crate) mask: u8,
    /// When the first of them was written.
    pub(crate) since: Stamp,
}

/// Pages that a writeback has to write and wait for.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) range: Range<u64>,
    pub(crate) upto: Stamp,
}

/// Pages of an inode that are newer than the disk.
#[derive(Default)]
pub(crate) struct Pages {
    pub(crate) dirty: BTreeMap<u64, Dirty>,
    /// Pages in writeback, and when they became dirty before that.
    pub(crate) in_flight: BTreeMap<u64, Stamp>,
    /// Blocks of the file that are to be allocated, and the promise of space for them.
    pub(crate) delayed: BTreeSet<u64>,
    pub(crate) reservation: Option<Reservation>,
    /// Times that the inode does not have yet.
    pub(crate) times: Times,
    /// When the first of the dirty pages, or else of the times, was noted, in ns of the mount's
    /// clock.
    pub(crate) since_ns: u64,
}

/// Writes that failed after the call that they belong to.
#[derive(Default)]
struct Failures {
    count: u64,
    last: Option<Error>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each step leaves the contents valid, so a panic does no harm.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pages {
    /// Makes the blocks `mask` of page `index` dirty since `since`, or since the page became dirty.
    pub(crate) fn make_dirty(&mut self, index: u64, mask: u8, since: Stamp) {
        let dirty = self.dirty.entry(index).or_insert(Dirty { mask, since });
        dirty.mask |= mask;
        dirty.since = dirty.since.min(since);
    }

    /// Returns the pages of `range` that are to be written or waited for now: those that are dirty
    /// or in flight, with stamps up to `upto`. They end where the last such page ends. Returns
    /// `None` if there are none.
    pub(crate) fn wanted(&self, range: Range<u64>, upto: Stamp) -> Option<Wanted> {
        let dirty = self.dirty.range(range.clone()).next_back().map(|(index, _)| *index);
        let in_flight = self.in_flight.range(range.clone()).next_back().map(|(index, _)| *index);
        let last = dirty.max(in_flight)?;
        Some(Wanted { range: range.start..last + 1, upto })
    }

    /// Returns whether pages of `wanted` are dirty.
    pub(crate) fn are_dirty(&self, wanted: &Wanted) -> bool {
        let mut dirty =
            self.dirty.range(wanted.range.start..wanted.range.end.max(wanted.range.start));
        dirty.any(|(_, dirty)| dirty.since <= wanted.upto)
    }

    /// Returns whether pages of `wanted` are in flight.
    pub(crate) fn are_in_flight(&self, wanted: &Wanted) -> bool {
        self.in_flight.range(wanted.range.clone()).any(|(_, since)| *since <= wanted.upto)
    }

    /// Returns whether the disk has all pages and times.
    pub(crate) fn are_clean(&self) -> bool {
        self.dirty.is_empty()
            && self.in_flight.is_empty()
            && self.delayed.is_empty()
            && self.times.is_empty()
    }
}

impl Writable {
    /// Returns the state of a clean inode. `sequence` is the last transaction that may have changed
    /// it. FLUSH `flush_needed` makes durable what was written in place so far, perhaps before the
    /// inode was dropped from memory and loaded again.
    pub(crate) fn new(sequence: Sequence, flush_needed: u64) -> Self {
        Self {
            content: Mutex::new(Rank::FileContent, ()),
            mapping: RwLock::new(Rank::FileMapping, ()),
            pages: Mutex::new(Rank::FilePages, Pages::default()),
            written: Condvar::new(),
            last: AtomicU64::new(sequence.0),
            last_data: AtomicU64::new(sequence.0),
            flush_needed: AtomicU64::new(flush_needed),
            flushed: AtomicU64::new(0),
            failures: Mutex::new(Rank::Failures, Failures::default()),
            users: AtomicUsize::new(0),
            nameless: AtomicBool::new(false),
        }
    }

    /// Adds a node. Returns false if the inode is gone.
    pub(crate) fn enter(&self) -> bool {
        let more = |users: usize| (users & GONE == 0).then_some(users + 1);
        self.users.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// Removes a node. Returns true if it was the last one, and no name leads to the inode.
    pub(crate) fn leave(&self) -> bool {
        self.users.fetch_sub(1, Ordering::AcqRel) == UNLINKED | 1
    }

    /// Sets whether names lead to the inode, which has `links` links. This is called within the
    /// change, so the last change determines the value.
    pub(crate) fn set_links(&self, links: u16) {
        if links == 0 {
            self.users.fetch_or(UNLINKED, Ordering::AcqRel);
        } else {
            self.nameless.store(false, Ordering::Release);
            self.users.fetch_and(!UNLINKED, Ordering::AcqRel);
        }
    }

    /// Notes that the inode is made without a name. It can get one later.
    pub(crate) fn set_nameless(&self) {
        self.nameless.store(true, Ordering::Release);
    }

    /// Returns whether the inode never had a name. One that lost its last name cannot get another.
    pub(crate) fn is_nameless(&self) -> bool {
        self.nameless.load(Ordering::Acquire)
    }

    /// Returns whether no name leads to the inode.
    pub(crate) fn is_unlinked(&self) -> bool {
        self.users.load(Ordering::Acquire) & UNLINKED != 0
    }

    /// Marks the inode gone if it has no name and no node. Returns whether this call marked it.
    pub(crate) fn end(&self) -> bool {
        self.users
            .compare_exchange(UNLINKED, UNLINKED | GONE, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// Marks the inode gone if it has no node, while a change takes its last name. Returns whether
    /// this call marked it.
    pub(crate) fn end_unused(&self) -> bool {
        self.users.compare_exchange(0, UNLINKED | GONE, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Marks the inode gone if the caller has the only node, while a change takes its last name.
    /// Returns whether this call marked it.
    pub(crate) fn end_alone(&self) -> bool {
        self.users.compare_exchange(1, GONE | 1, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Returns whether the inode is gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.users.load(Ordering::Acquire) & GONE != 0
    }

    /// Locks content and size for a change.
    pub(crate) fn lock_content(&self) -> MutexGuard<'_, ()> {
        lock(&self.content)
    }

    /// Locks the file's blocks for reading: no block is taken away while it is held.
    pub(crate) fn keep_blocks(&self) -> RwLockReadGuard<'_, ()> {
        self.mapping.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the file's blocks for taking some away: no reader uses them while it is held.
    pub(crate) fn take_blocks(&self) -> RwLockWriteGuard<'_, ()> {
        self.mapping.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn pages(&self) -> MutexGuard<'_, Pages> {
        lock(&self.pages)
    }

    /// Waits until something that was in flight has ended, or for [`LOOK`].
    pub(crate) fn wait<'a>(&self, pages: MutexGuard<'a, Pages>) -> MutexGuard<'a, Pages> {
        self.written.wait_timeout(pages, LOOK)
    }

    /// Wakes the waiters, because something that was in flight has ended.
    pub(crate) fn wake(&self) {
        self.written.notify_all();
    }

    /// Notes that transaction `sequence` changed the inode. `data` says whether it also changed
    /// what is needed to find the content.
    pub(crate) fn touched(&self, sequence: Sequence, data: bool) {
        self.last.fetch_max(sequence.0, Ordering::AcqRel);
        if data {
            self.last_data.fetch_max(sequence.0, Ordering::AcqRel);
        }
    }

    /// Returns the transaction that has to commit for the inode to be durable. If `data`, only its
    /// content and what is needed to find it have to be.
    pub(crate) fn sequence(&self, data: bool) -> Sequence {
        Sequence(if data { &self.last_data } else { &self.last }.load(Ordering::Acquire))
    }

    /// Notes a failed write, for later calls to report.
    pub(crate) fn fail(&self, error: Error) {
        let mut failures = lock(&self.failures);
        failures.count += 1;
        failures.last = Some(error);
    }

    /// Returns the number of failed writes so far.
    pub(crate) fn failures(&self) -> u64 {
        lock(&self.failures).count
    }

    /// Returns the last failure, if there was one since `seen`, and updates `seen`.
    pub(crate) fn failed_since(&self, seen: &AtomicU64) -> Result<()> {
        let failures = lock(&self.failures);
        if seen.swap(failures.count, Ordering::Relaxed) == failures.count {
            return Ok(());
        }
        failures.last.clone().map_or(Ok(()), Err)
    }
}
