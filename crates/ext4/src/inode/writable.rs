//! Inodes that may be written to: who may, and what of them is newer than the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use super::shared::Inode;
use super::times::Times;
use crate::error::Error;
use crate::journal::Sequence;
use crate::numbers::ByNumber;
use crate::space::Reservation;
use meantime_process::lock::{
    Condvar, Mutex, MutexGuard, Rank, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

/// How long somebody else's writeback is waited for between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// In [`Writable::users`]: no name leads to it, so that it is deleted with its last user.
const UNLINKED: usize = 1 << (usize::BITS - 1);

/// In [`Writable::users`]: it is no more. Its number is another inode's, perhaps, of which nothing may
/// be changed by this one.
const GONE: usize = UNLINKED >> 1;

/// What an inode has beside its state when it can be written to.
///
/// [`Rank`] has the order of its locks: the writer's, the mapping's, (a change of metadata,) that
/// of the pages.
pub(crate) struct Writable {
    /// Whoever changes the content or the size.
    writer: Mutex<()>,
    /// Held by readers of blocks, and by who takes blocks away from the file.
    mapping: RwLock<()>,
    pages: Mutex<Pages>,
    /// Whenever writeback has ended.
    written: Condvar,
    /// The last transaction that changed the inode, and the last that changed what is needed to
    /// find its data.
    last: AtomicU64,
    last_data: AtomicU64,
    /// The [FLUSH](crate::io::Flushes) that makes all data durable that were written in place;
    /// and the one up to which that was seen to.
    pub(crate) landed: AtomicU64,
    pub(crate) flushed: AtomicU64,
    failures: Mutex<Failures>,
    /// How many nodes there are of it, and [`UNLINKED`] and [`GONE`]: in one, so that nobody has it
    /// who comes when it is being deleted, and it is deleted once.
    users: AtomicUsize,
    /// Whether it never had a name.
    nameless: AtomicBool,
}

/// The pages that are newer than the disk.
#[derive(Default)]
pub(crate) struct Pages {
    /// Dirty ones: which blocks of each, the first one in bit 0. (Of blocks larger than a page: bit
    /// 0.)
    pub(crate) dirty: BTreeMap<u64, u8>,
    /// Those that somebody writes back.
    pub(crate) in_flight: BTreeSet<u64>,
    /// Blocks of the file that are to be allocated, and the promise of room for them.
    pub(crate) delayed: BTreeSet<u64>,
    pub(crate) reservation: Option<Reservation>,
    /// Those that the inode does not say yet.
    pub(crate) times: Times,
    /// When the first of the dirty pages, or else of the times, became so, in ns of the mount's
    /// clock.
    pub(crate) since_ns: u64,
}

/// Writes that failed after the call that they were of.
#[derive(Default)]
struct Failures {
    count: u64,
    last: Option<Error>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whole between any two steps.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pages {
    /// Whether the disk has everything.
    pub(crate) fn are_clean(&self) -> bool {
        self.dirty.is_empty()
            && self.in_flight.is_empty()
            && self.delayed.is_empty()
            && self.times.is_empty()
    }
}

impl Writable {
    /// Nothing is dirty; `sequence` is the last transaction that may have changed it, FLUSH
    /// `landed` makes durable what was written in place so far: in a former life of the inode,
    /// perhaps.
    pub(crate) fn new(sequence: Sequence, landed: u64) -> Self {
        Self {
            writer: Mutex::new(Rank::FileWriter, ()),
            mapping: RwLock::new(Rank::FileMapping, ()),
            pages: Mutex::new(Rank::FilePages, Pages::default()),
            written: Condvar::new(),
            last: AtomicU64::new(sequence.0),
            last_data: AtomicU64::new(sequence.0),
            landed: AtomicU64::new(landed),
            flushed: AtomicU64::new(0),
            failures: Mutex::new(Rank::Failures, Failures::default()),
            users: AtomicUsize::new(0),
            nameless: AtomicBool::new(false),
        }
    }

    /// There is a node more. False: there is not, for it is gone.
    pub(crate) fn enter(&self) -> bool {
        let more = |users: usize| (users & GONE == 0).then_some(users + 1);
        self.users.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// There is a node less. True: it was the last one, and no name leads to it.
    pub(crate) fn leave(&self) -> bool {
        self.users.fetch_sub(1, Ordering::AcqRel) == UNLINKED | 1
    }

    /// So many links lead to it. (Said while no other change is made: so that it is always what the
    /// last one made it.)
    pub(crate) fn set_links(&self, links: u16) {
        if links == 0 {
            self.users.fetch_or(UNLINKED, Ordering::AcqRel);
        } else {
            self.nameless.store(false, Ordering::Release);
            self.users.fetch_and(!UNLINKED, Ordering::AcqRel);
        }
    }

    /// It is made without a name, and can get one.
    pub(crate) fn set_nameless(&self) {
        self.nameless.store(true, Ordering::Release);
    }

    /// Whether it never had a name. One that had, and has none, does not get one any more.
    pub(crate) fn is_nameless(&self) -> bool {
        self.nameless.load(Ordering::Acquire)
    }

    /// Whether no name leads to it.
    pub(crate) fn is_unlinked(&self) -> bool {
        self.users.load(Ordering::Acquire) & UNLINKED != 0
    }

    /// From now on it is gone, if no name leads to it and nobody has it: whether it is, by this
    /// call.
    pub(crate) fn end(&self) -> bool {
        self.users
            .compare_exchange(UNLINKED, UNLINKED | GONE, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// From now on it is gone, if nobody has it: it loses its last name in a change under way.
    pub(crate) fn end_unused(&self) -> bool {
        self.users.compare_exchange(0, UNLINKED | GONE, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The same, if nobody has it but the caller, whose node is the only one.
    pub(crate) fn end_alone(&self) -> bool {
        self.users.compare_exchange(1, GONE | 1, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether it is gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.users.load(Ordering::Acquire) & GONE != 0
    }

    /// The right to change content and size.
    pub(crate) fn write(&self) -> MutexGuard<'_, ()> {
        lock(&self.writer)
    }

    /// As long as it is held, no block is taken away from the file.
    pub(crate) fn keep_blocks(&self) -> RwLockReadGuard<'_, ()> {
        self.mapping.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// As long as it is held, nobody reads the file's blocks.
    pub(crate) fn take_blocks(&self) -> RwLockWriteGuard<'_, ()> {
        self.mapping.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn pages(&self) -> MutexGuard<'_, Pages> {
        lock(&self.pages)
    }

    /// Waits until something that was in flight has ended, or for a while.
    pub(crate) fn wait<'a>(&self, pages: MutexGuard<'a, Pages>) -> MutexGuard<'a, Pages> {
        self.written.wait_timeout(pages, LOOK)
    }

    /// Something that was in flight has ended.
    pub(crate) fn wake(&self) {
        self.written.notify_all();
    }

    /// Transaction `sequence` has changed the inode; `data`: what is needed to find its content.
    pub(crate) fn touched(&self, sequence: Sequence, data: bool) {
        self.last.fetch_max(sequence.0, Ordering::AcqRel);
        if data {
            self.last_data.fetch_max(sequence.0, Ordering::AcqRel);
        }
    }

    /// Which transaction has to commit for the inode to be durable; `data`: for its content.
    pub(crate) fn sequence(&self, data: bool) -> Sequence {
        Sequence(if data { &self.last_data } else { &self.last }.load(Ordering::Acquire))
    }

    /// A write failed of which nobody can be told now.
    pub(crate) fn fail(&self, error: Error) {
        let mut failures = lock(&self.failures);
        failures.count += 1;
        failures.last = Some(error);
    }

    /// How many writes have failed so far.
    pub(crate) fn failures(&self) -> u64 {
        lock(&self.failures).count
    }

    /// The last failure, unless there was none since they were `seen`.
    pub(crate) fn failed_since(&self, seen: &AtomicU64) -> Result<(), Error> {
        let failures = lock(&self.failures);
        if seen.swap(failures.count, Ordering::Relaxed) == failures.count {
            return Ok(());
        }
        failures.last.clone().map_or(Ok(()), Err)
    }
}

/// Inodes share a counter of changes with others: so many there are.
const CHANGES: usize = 256;

/// All inodes that somebody has: so that there is one of each number.
pub(crate) struct Registry {
    numbers: Mutex<Numbers>,
    changes: [AtomicU64; CHANGES],
}

#[derive(Default)]
struct Numbers {
    all: ByNumber<u32, Weak<Inode>>,
    /// Those that are gone, and still on the disk: by whom (the address of its [`Inode`]).
    deleted: ByNumber<u32, usize>,
}

/// What there is of a number.
pub(crate) enum Entered {
    /// Its inode.
    Inode(Arc<Inode>),
    /// It was changed meanwhile.
    Changed,
    /// An inode that is being deleted: nobody gets at it any more.
    Deleted,
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            numbers: Mutex::new(Rank::Registry, Numbers::default()),
            changes: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

fn address(inode: &Inode) -> usize {
    std::ptr::from_ref(inode) as usize
}

impl Registry {
    fn counter(&self, ino: u32) -> &AtomicU64 {
        &self.changes[ino as usize % CHANGES]
    }

    /// How often inode `ino`, or another, was changed.
    pub(crate) fn changes(&self, ino: u32) -> u64 {
        self.counter(ino).load(Ordering::Acquire)
    }

    /// The one of number `ino`, if there is one.
    pub(crate) fn find(&self, ino: u32) -> Option<Arc<Inode>> {
        lock(&self.numbers).all.get(&ino).and_then(Weak::upgrade)
    }

    /// The one of number `ino`, which was changed; if there is one.
    pub(crate) fn changed(&self, ino: u32) -> Option<Arc<Inode>> {
        let numbers = lock(&self.numbers);
        self.counter(ino).fetch_add(1, Ordering::AcqRel);
        numbers.all.get(&ino).and_then(Weak::upgrade)
    }

    /// The one of number `ino`; `make` makes it, if there is none, unless it was changed since
    /// there were `changes`: what `make` would make of it is another one's, perhaps.
    pub(crate) fn enter(
        &self,
        ino: u32,
        changes: u64,
        make: impl FnOnce() -> Arc<Inode>,
    ) -> Entered {
        let mut numbers = lock(&self.numbers);
        let Numbers { all, deleted } = &mut *numbers;
        if let Some(inode) = all.get(&ino).and_then(Weak::upgrade) {
            return Entered::Inode(inode);
        }
        if deleted.contains_key(&ino) {
            return Entered::Deleted;
        }
        if self.changes(ino) != changes {
            return Entered::Changed;
        }
        let inode = make();
        if all.len() >= 1024 && all.len().is_power_of_two() {
            all.retain(|_, inode| inode.strong_count() > 0);
        }
        all.insert(ino, Arc::downgrade(&inode));
        Entered::Inode(inode)
    }

    /// `inode` is the one of its number from now on.
    pub(crate) fn replace(&self, inode: &Arc<Inode>) {
        let mut numbers = lock(&self.numbers);
        self.counter(inode.ino).fetch_add(1, Ordering::AcqRel);
        numbers.all.insert(inode.ino, Arc::downgrade(inode));
    }

    /// Number `ino` is given to a new inode: the one that had it before is forgotten.
    pub(crate) fn remove(&self, ino: u32) {
        let mut numbers = lock(&self.numbers);
        self.counter(ino).fetch_add(1, Ordering::AcqRel);
        numbers.all.remove(&ino);
        numbers.deleted.remove(&ino);
    }

    /// Forgets `inode`, if it is the one of its number.
    pub(crate) fn remove_this(&self, inode: &Inode) {
        self.take_out(&mut lock(&self.numbers), inode);
    }

    fn take_out(&self, numbers: &mut Numbers, inode: &Inode) {
        self.counter(inode.ino).fetch_add(1, Ordering::AcqRel);
        if numbers.all.get(&inode.ino).is_some_and(|there| std::ptr::eq(there.as_ptr(), inode)) {
            numbers.all.remove(&inode.ino);
        }
    }

    /// `inode`, which is gone, is being deleted: until that has [ended](Self::end_deletion), nobody
    /// gets at what the disk still has of it.
    pub(crate) fn begin_deletion(&self, inode: &Inode) {
        let mut numbers = lock(&self.numbers);
        self.take_out(&mut numbers, inode);
        numbers.deleted.insert(inode.ino, address(inode));
    }

    /// The disk has `inode` no more. (Its number may be another one's already.)
    pub(crate) fn end_deletion(&self, inode: &Inode) {
        let mut numbers = lock(&self.numbers);
        if numbers.deleted.get(&inode.ino) == Some(&address(inode)) {
            numbers.deleted.remove(&inode.ino);
        }
    }
}
