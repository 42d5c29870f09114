//! Locks that are taken in one order.
//!
//! Each lock has a [`Rank`]. A thread waits for a lock only if all that it holds have lower ranks:
//! so none waits for itself, and no circle of threads that wait for each other can be. With debug
//! assertions that is checked whenever a lock is taken, and a wrong order panics with both names,
//! so that every test checks it; without, these are the standard library's locks and nothing else.
//!
//! Who only tries waits for nobody, and may hold anything. What is waited for and is no lock has a
//! rank, too: [`wait_for`].
//!
//! What still has the standard library's own locks is outside of this order: the lists of open
//! devices and of address spaces, before it; transports, the list of channels, wakers and what
//! `loom` goes through, behind it, which take nothing of it.

#[cfg(debug_assertions)]
use std::cell::Cell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};
use std::time::Duration;

macro_rules! ranks {
    ($($(#[$what:meta])* $rank:ident,)*) => {
        /// What a lock is for; the first are taken first.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Rank {
            $($(#[$what])* $rank,)*
        }

        /// All of them, in order.
        #[cfg(debug_assertions)]
        const RANKS: &[Rank] = &[$(Rank::$rank),*];
    };
}

ranks! {
    /// A descriptor's turn: its position is one call's at a time.
    Descriptor,
    /// Where a descriptor is in its directory.
    DirectoryPosition,
    /// The right to change a file's content and size.
    FileWriter,
    /// Taken for reading by who reads a file's blocks, once; for writing by who takes some away.
    FileMapping,
    /// (No lock.) Pages that somebody reads into the cache.
    PagesFilling,
    /// (No lock.) Pages on their way to the device.
    PagesInFlight,
    /// The threads of a mount for writing.
    Threads,
    /// The extents of a file in many pieces, while they are read.
    NodeExtents,
    /// Multiple mount protection: its thread.
    ProtectionThread,
    /// What was said to other hosts.
    ProtectionSaid,
    /// A channel with what belongs to it.
    Lane,
    /// Checkpoints: one at a time.
    Checkpoint,
    /// The lead of the journal.
    Committer,
    /// (No lock.) Data that a transaction waits for. Who writes them changes metadata, and takes
    /// the spare lane.
    OrderedData,
    /// Changes of metadata: one at a time.
    JournalOpen,
    /// Which of a file's pages are newer than the disk.
    FilePages,
    /// What is known of an inode.
    NodeState,
    /// Names that are looked for, against names that change.
    Names,
    /// Where growing files continue.
    AllocWindows,
    /// What is known of groups.
    AllocGroups,
    /// Where groups have room.
    AllocHints,
    /// How much is free, and promised.
    AllocTotals,
    /// Blocks that wait for a commit.
    JournalHeld,
    /// Where orphans are on the disk.
    Orphans,
    /// How much room there is for orphans.
    OrphansRoom,
    /// Publication of a change.
    Publishing,
    /// The spare channel: who has it waits for the device only.
    SpareLane,
    /// Blocks that are newer than on the device.
    NewestBlocks,
    /// Committed blocks that are not home.
    JournalPending,
    /// How the data of a transaction ended.
    OrderedFailure,
    /// All inodes that somebody has.
    Registry,
    /// Inodes that are newer than the disk.
    DirtyNodes,
    /// Failed writes of a file.
    Failures,
    /// Metadata, inodes, names that are kept.
    Kept,
    /// Whom protection watches for.
    ProtectionWatch,
    /// How a thread is told to end.
    Stopping,
    /// Lists of pages for reads of many.
    PageLists,
    /// The cache's queues.
    CacheUpkeep,
    /// What came into the cache lately.
    CacheArrivals,
    /// The cache's free slots.
    CacheSlots,
    /// The cache's free pages.
    CachePages,
    /// A controller's admin queue.
    Admin,
    /// The return of a controller to whoever gave it.
    Releasing,
    /// DMA memory.
    Heap,
}

// A bit each.
#[cfg(debug_assertions)]
const _: () = assert!(RANKS.len() <= 64);

#[cfg(debug_assertions)]
thread_local! {
    /// The ranks of what the thread holds, a bit each.
    static HELD: Cell<u64> = const { Cell::new(0) };
}

/// A lock's rank, where it is checked.
#[derive(Clone, Copy)]
struct Place(#[cfg(debug_assertions)] Rank);

/// That the thread holds a lock, where it is checked.
struct Held(
    /// The bit that goes with it.
    #[cfg(debug_assertions)]
    u64,
);

#[cfg(debug_assertions)]
impl Place {
    /// # Panics
    /// The thread holds something that is taken after this.
    #[track_caller]
    fn check(self) {
        let held = HELD.get() >> self.0 as u8;
        if held != 0 && !std::thread::panicking() {
            let highest = RANKS[63 - HELD.get().leading_zeros() as usize];
            panic!("lock order: who holds {highest:?} waits for {:?}", self.0);
        }
    }

    fn taken(self) -> Held {
        let bit = 1 << self.0 as u8;
        let before = HELD.replace(HELD.get() | bit);
        // One that was tried for, beside another of its rank: with that one the bit goes.
        Held(bit & !before)
    }
}

#[cfg(debug_assertions)]
impl Drop for Held {
    fn drop(&mut self) {
        HELD.set(HELD.get() & !self.0);
    }
}

#[cfg(not(debug_assertions))]
impl Place {
    #[inline(always)]
    fn check(self) {}

    #[inline(always)]
    fn taken(self) -> Held {
        Held()
    }
}

impl Place {
    #[inline(always)]
    const fn new(rank: Rank) -> Self {
        #[cfg(not(debug_assertions))]
        let _ = rank;
        Self(
            #[cfg(debug_assertions)]
            rank,
        )
    }
}

/// The caller is about to wait for what is no lock: checked as a lock of that rank is.
#[inline(always)]
#[track_caller]
pub fn wait_for(rank: Rank) {
    Place::new(rank).check();
}

/// The guard of a lock, and that it is held.
#[inline(always)]
fn guard<G, H>(locked: LockResult<G>, make: impl FnOnce(G) -> H) -> LockResult<H> {
    match locked {
        Ok(inner) => Ok(make(inner)),
        Err(poisoned) => Err(PoisonError::new(make(poisoned.into_inner()))),
    }
}

/// The same for who tried.
#[inline(always)]
fn try_guard<G, H>(locked: TryLockResult<G>, make: impl FnOnce(G) -> H) -> TryLockResult<H> {
    match locked {
        Ok(inner) => Ok(make(inner)),
        Err(TryLockError::Poisoned(poisoned)) => {
            Err(TryLockError::Poisoned(PoisonError::new(make(poisoned.into_inner()))))
        }
        Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
    }
}

/// [`std::sync::Mutex`], with a rank.
pub struct Mutex<T> {
    place: Place,
    inner: std::sync::Mutex<T>,
}

/// [`std::sync::MutexGuard`].
pub struct MutexGuard<'a, T> {
    inner: std::sync::MutexGuard<'a, T>,
    held: Held,
}

impl<T> Mutex<T> {
    /// A lock of `rank` around `value`.
    pub const fn new(rank: Rank, value: T) -> Self {
        Self { place: Place::new(rank), inner: std::sync::Mutex::new(value) }
    }

    /// As [`std::sync::Mutex::lock`].
    #[inline(always)]
    #[track_caller]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        self.place.check();
        guard(self.inner.lock(), |inner| MutexGuard { inner, held: self.place.taken() })
    }

    /// As [`std::sync::Mutex::try_lock`].
    #[inline(always)]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        try_guard(self.inner.try_lock(), |inner| MutexGuard { inner, held: self.place.taken() })
    }

    /// As [`std::sync::Mutex::is_poisoned`].
    pub fn is_poisoned(&self) -> bool {
        self.inner.is_poisoned()
    }

    /// As [`std::sync::Mutex::get_mut`].
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.inner.get_mut()
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// [`std::sync::RwLock`], with a rank. A thread that has it for reading does not take it again: one
/// that wants it for writing in between would be waited for by the second, and wait for the first.
pub struct RwLock<T> {
    place: Place,
    inner: std::sync::RwLock<T>,
}

/// [`std::sync::RwLockReadGuard`].
pub struct RwLockReadGuard<'a, T> {
    inner: std::sync::RwLockReadGuard<'a, T>,
    _held: Held,
}

/// [`std::sync::RwLockWriteGuard`].
pub struct RwLockWriteGuard<'a, T> {
    inner: std::sync::RwLockWriteGuard<'a, T>,
    _held: Held,
}

impl<T> RwLock<T> {
    /// A lock of `rank` around `value`.
    pub const fn new(rank: Rank, value: T) -> Self {
        Self { place: Place::new(rank), inner: std::sync::RwLock::new(value) }
    }

    /// As [`std::sync::RwLock::read`].
    #[inline(always)]
    #[track_caller]
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        self.place.check();
        guard(self.inner.read(), |inner| RwLockReadGuard { inner, _held: self.place.taken() })
    }

    /// As [`std::sync::RwLock::write`].
    #[inline(always)]
    #[track_caller]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        self.place.check();
        guard(self.inner.write(), |inner| RwLockWriteGuard { inner, _held: self.place.taken() })
    }

    /// As [`std::sync::RwLock::try_write`].
    #[inline(always)]
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        try_guard(self.inner.try_write(), |inner| RwLockWriteGuard {
            inner,
            _held: self.place.taken(),
        })
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// [`std::sync::Condvar`]. (Who sleeps on it counts as who holds the lock: he takes no other
/// meanwhile.)
#[derive(Default)]
pub struct Condvar(std::sync::Condvar);

impl Condvar {
    /// As [`std::sync::Condvar::new`].
    pub const fn new() -> Self {
        Self(std::sync::Condvar::new())
    }

    /// Sleeps until somebody calls [`notify_all`](Self::notify_all), or for `time`, or less.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        time: Duration,
    ) -> MutexGuard<'a, T> {
        let MutexGuard { inner, held } = guard;
        let inner = self.0.wait_timeout(inner, time).unwrap_or_else(PoisonError::into_inner).0;
        MutexGuard { inner, held }
    }

    /// Sleeps as long as `condition` holds, or for `time`.
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        time: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        let MutexGuard { inner, held } = guard;
        let waited = self.0.wait_timeout_while(inner, time, condition);
        MutexGuard { inner: waited.unwrap_or_else(PoisonError::into_inner).0, held }
    }

    /// As [`std::sync::Condvar::notify_all`].
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn panics(what: impl FnOnce()) -> bool {
        catch_unwind(AssertUnwindSafe(what)).is_err()
    }

    #[test]
    fn a_wrong_order_panics_whether_or_not_anybody_waits() {
        let (file, cache) = (Mutex::new(Rank::FileWriter, 1), Mutex::new(Rank::CachePages, 2));
        {
            let _file = file.lock();
            let _cache = cache.lock();
        }
        let held = cache.lock();
        assert!(panics(|| drop(file.lock())));
        assert!(panics(|| wait_for(Rank::PagesInFlight)));
        assert!(file.try_lock().is_ok(), "who tries waits for nobody");
        drop(held);
        assert!(!panics(|| drop(file.lock())));
        assert!(!panics(|| wait_for(Rank::PagesInFlight)));
    }

    #[test]
    fn who_reads_does_not_take_the_lock_again() {
        let mapping = RwLock::new(Rank::FileMapping, ());
        let other = RwLock::new(Rank::FileMapping, ());
        let held = mapping.read();
        assert!(panics(|| drop(mapping.read())));
        assert!(panics(|| drop(mapping.write())));
        assert!(panics(|| drop(other.read())), "nor another of its rank");
        drop(held);
        assert!(!panics(|| drop(mapping.write())));
    }

    #[test]
    fn locks_are_given_back_in_any_order() {
        let (first, second) = (Mutex::new(Rank::Lane, ()), Mutex::new(Rank::Committer, ()));
        let (one, two) = (first.lock(), second.lock());
        drop(one);
        assert!(panics(|| drop(first.lock())), "the second is held still");
        drop(two);
        assert!(!panics(|| drop(first.lock())));
        let beside = Mutex::new(Rank::Lane, ());
        let one = first.lock();
        drop(beside.try_lock());
        assert!(panics(|| drop(beside.lock())), "the first is held still");
        drop(one);
        assert!(!panics(|| drop(beside.lock())));
    }
}
