//! Locks with one order in which they are taken.
//!
//! Each lock has a [`Rank`]. A thread waits for a lock only if all locks that it holds have lower
//! ranks, so there is no deadlock. With debug assertions this is checked whenever a lock is taken,
//! and a wrong order panics with both names; so every test checks it. Without debug assertions
//! these are the standard library's locks and nothing else.
//!
//! A `try_lock` does not wait, so it is allowed whatever locks the thread holds. A wait for
//! something other than a lock has a rank, too: [`check_may_wait`].
//!
//! Some locks are the standard library's own, outside of this order. The lists of open devices and
//! of address spaces, and the page of metrics that is served, are taken before all ranks. The locks
//! of transports, of the lists of channels and of dropped tickets, of what a channel publishes, of
//! wakers, and of what `loom` models are taken after all ranks; while one is held, no ranked lock
//! is taken.

#[cfg(debug_assertions)]
use std::cell::Cell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};
use std::time::Duration;

macro_rules! ranks {
    ($($(#[$what:meta])* $rank:ident,)*) => {
        /// The purpose of a lock; the first ranks are taken first.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Rank {
            $($(#[$what])* $rank,)*
        }

        /// All ranks, in order.
        #[cfg(debug_assertions)]
        const RANKS: &[Rank] = &[$(Rank::$rank),*];
    };
}

ranks! {
    /// An open directory's position in it.
    DirectoryPosition,
    /// A mount's open files, and the threads that serve them.
    Served,
    /// Inodes known to a FUSE or NFS client, by number.
    Lookups,
    /// The right to change a file's content and size.
    FileContent,
    /// Taken for reading, once, to read a file's blocks; for writing to remove some.
    FileMapping,
    /// No lock: pages that a thread reads into the cache.
    PagesFilling,
    /// No lock: pages that writeback has taken, until their data are on the device.
    PagesInFlight,
    /// The threads of a mount for writing.
    Threads,
    /// The extents of a file in many pieces, while they are read.
    InodeExtents,
    /// Multiple mount protection: its thread.
    ProtectionThread,
    /// The last update, which other hosts see.
    ProtectionUpdate,
    /// A channel and its state.
    IoContext,
    /// Checkpoints: one at a time.
    Checkpoint,
    /// The journal's commit leader.
    Committer,
    /// No lock: data that a transaction waits for. Writing it changes metadata, and takes the spare
    /// channel.
    OrderedData,
    /// Changes of metadata: one at a time.
    JournalOpen,
    /// The set of a file's pages that are newer than the disk.
    FilePages,
    /// The state of an inode.
    InodeSnapshot,
    /// Look-ups of names against changes of names.
    Names,
    /// Allocation windows of growing files.
    AllocWindows,
    /// The state of groups.
    AllocGroups,
    /// Hints on groups with free blocks.
    AllocHints,
    /// Totals of free and reserved blocks.
    AllocTotals,
    /// Blocks that wait for a commit.
    JournalHeld,
    /// The orphans' places on the disk.
    Orphans,
    /// The room for orphans.
    OrphansRoom,
    /// Publication of a change.
    Publishing,
    /// The spare channel: its holder waits only for the device.
    SpareIoContext,
    /// Blocks that are newer than on the device.
    NewerBlocks,
    /// Committed blocks that are not in place.
    JournalPending,
    /// The result of writing a transaction's data.
    OrderedFailure,
    /// All inodes in use.
    Registry,
    /// Inodes that are newer than the disk.
    DirtyNodes,
    /// Failed writes of a file.
    Failures,
    /// Cached metadata, inodes and names.
    Kept,
    /// The device that multiple mount protection watches.
    ProtectionWatch,
    /// Requests for a thread to end.
    Stopping,
    /// What futures use to fill pages of the cache.
    FillMemory,
    /// The cache's queues.
    CacheUpkeep,
    /// Recent arrivals in the cache.
    CacheArrivals,
    /// The cache's free slots.
    CacheSlots,
    /// The cache's free pages.
    CachePages,
    /// A controller's admin queue.
    Admin,
    /// The return of a controller to its former driver.
    Releasing,
    /// DMA memory.
    Heap,
}

// One bit each.
#[cfg(debug_assertions)]
const _: () = assert!(RANKS.len() <= 64);

#[cfg(debug_assertions)]
thread_local! {
    /// The ranks of the locks that the thread holds, one bit each.
    static HELD: Cell<u64> = const { Cell::new(0) };
}

/// A lock's rank; empty without debug assertions.
#[derive(Clone, Copy)]
struct RankCheck(#[cfg(debug_assertions)] Rank);

/// Notes that the thread holds a lock; empty without debug assertions.
struct Held(
    /// The bit to clear on drop.
    #[cfg(debug_assertions)]
    u64,
);

#[cfg(debug_assertions)]
impl RankCheck {
    /// # Panics
    /// Panics if the thread holds a lock of this rank or a higher one.
    #[track_caller]
    fn check(self) {
        let held = HELD.get() >> self.0 as u8;
        if held != 0 && !std::thread::panicking() {
            let highest = RANKS[63 - HELD.get().leading_zeros() as usize];
            panic!("lock order: a thread that holds {highest:?} waits for {:?}", self.0);
        }
    }

    fn taken(self) -> Held {
        let bit = 1 << self.0 as u8;
        let before = HELD.replace(HELD.get() | bit);
        // For a `try_lock` beside another lock of the same rank, the other one clears the bit.
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
impl RankCheck {
    #[inline(always)]
    fn check(self) {}

    #[inline(always)]
    fn taken(self) -> Held {
        Held()
    }
}

impl RankCheck {
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

/// Checks the order before a wait for something other than a lock, as before taking a lock of
/// `rank`.
#[inline(always)]
#[track_caller]
pub fn check_may_wait(rank: Rank) {
    RankCheck::new(rank).check();
}

/// A lock of the standard library with a rank: [`Mutex`], [`RwLock`].
pub struct Ranked<L> {
    rank: RankCheck,
    inner: L,
}

/// [`std::sync::Mutex`], with a rank.
pub type Mutex<T> = Ranked<std::sync::Mutex<T>>;

/// [`std::sync::RwLock`], with a rank. A thread that holds it for reading does not take it again: a
/// waiting writer would wait for the first guard, and the second read for that writer.
pub type RwLock<T> = Ranked<std::sync::RwLock<T>>;

/// The guard of a [`Ranked`] lock.
pub struct Guard<G> {
    inner: G,
    held: Held,
}

/// [`std::sync::MutexGuard`].
pub type MutexGuard<'a, T> = Guard<std::sync::MutexGuard<'a, T>>;

/// [`std::sync::RwLockReadGuard`].
pub type RwLockReadGuard<'a, T> = Guard<std::sync::RwLockReadGuard<'a, T>>;

/// [`std::sync::RwLockWriteGuard`].
pub type RwLockWriteGuard<'a, T> = Guard<std::sync::RwLockWriteGuard<'a, T>>;

impl<L> Ranked<L> {
    #[inline(always)]
    fn guard<G>(&self, locked: LockResult<G>) -> LockResult<Guard<G>> {
        match locked {
            Ok(inner) => Ok(Guard { inner, held: self.rank.taken() }),
            Err(poisoned) => {
                let inner = poisoned.into_inner();
                Err(PoisonError::new(Guard { inner, held: self.rank.taken() }))
            }
        }
    }

    /// Wraps the result of `try_lock`; a success counts as holding the lock.
    #[inline(always)]
    fn try_guard<G>(&self, locked: TryLockResult<G>) -> TryLockResult<Guard<G>> {
        match locked {
            Ok(inner) => self.guard(Ok(inner)).map_err(TryLockError::Poisoned),
            Err(TryLockError::Poisoned(poisoned)) => {
                self.guard(Err(poisoned)).map_err(TryLockError::Poisoned)
            }
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
        }
    }
}

impl<T> Mutex<T> {
    /// A lock of `rank` around `value`.
    pub const fn new(rank: Rank, value: T) -> Self {
        Self { rank: RankCheck::new(rank), inner: std::sync::Mutex::new(value) }
    }

    /// Locks the mutex, and waits until no other thread holds it. The lock is poisoned if a thread
    /// has panicked while it held it.
    #[inline(always)]
    #[track_caller]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        self.rank.check();
        self.guard(self.inner.lock())
    }

    /// Locks the mutex if no thread holds it, without waiting.
    #[inline(always)]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        self.try_guard(self.inner.try_lock())
    }

    /// Whether a thread has panicked while it held the mutex.
    pub fn is_poisoned(&self) -> bool {
        self.inner.is_poisoned()
    }

    /// Returns the value without locking, since no other reference exists.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.inner.get_mut()
    }
}

impl<T> RwLock<T> {
    /// A lock of `rank` around `value`.
    pub const fn new(rank: Rank, value: T) -> Self {
        Self { rank: RankCheck::new(rank), inner: std::sync::RwLock::new(value) }
    }

    /// Locks for reading, and waits while a thread holds the lock for writing.
    #[inline(always)]
    #[track_caller]
    pub fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        self.rank.check();
        self.guard(self.inner.read())
    }

    /// Locks for writing, and waits until no other thread holds the lock.
    #[inline(always)]
    #[track_caller]
    pub fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        self.rank.check();
        self.guard(self.inner.write())
    }

    /// Locks for writing if no thread holds the lock, without waiting.
    #[inline(always)]
    pub fn try_write(&self) -> TryLockResult<RwLockWriteGuard<'_, T>> {
        self.try_guard(self.inner.try_write())
    }
}

impl<G: Deref> Deref for Guard<G> {
    type Target = G::Target;

    #[inline(always)]
    fn deref(&self) -> &G::Target {
        &self.inner
    }
}

impl<G: DerefMut> DerefMut for Guard<G> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.inner
    }
}

impl<L: fmt::Debug> fmt::Debug for Ranked<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// [`std::sync::Condvar`]. A thread that sleeps on it counts as holding the lock: it takes no other
/// meanwhile.
#[derive(Default)]
pub struct Condvar(std::sync::Condvar);

impl Condvar {
    /// A condition variable on which no thread sleeps.
    pub const fn new() -> Self {
        Self(std::sync::Condvar::new())
    }

    /// Sleeps until a thread calls [`notify_all`](Self::notify_all), or for `time`, or less.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        time: Duration,
    ) -> MutexGuard<'a, T> {
        let Guard { inner, held } = guard;
        let inner = self.0.wait_timeout(inner, time).unwrap_or_else(PoisonError::into_inner).0;
        Guard { inner, held }
    }

    /// Sleeps as long as `condition` holds, or for `time`.
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        time: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        let Guard { inner, held } = guard;
        let waited = self.0.wait_timeout_while(inner, time, condition);
        Guard { inner: waited.unwrap_or_else(PoisonError::into_inner).0, held }
    }

    /// Wakes all threads that sleep on this condition variable.
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
    fn a_wrong_order_panics_even_without_contention() {
        let (file, cache) = (Mutex::new(Rank::FileContent, 1), Mutex::new(Rank::CachePages, 2));
        {
            let _file = file.lock();
            let _cache = cache.lock();
        }
        let held = cache.lock();
        assert!(panics(|| drop(file.lock())));
        assert!(panics(|| check_may_wait(Rank::PagesInFlight)));
        assert!(file.try_lock().is_ok(), "try_lock does not wait");
        drop(held);
        assert!(!panics(|| drop(file.lock())));
        assert!(!panics(|| check_may_wait(Rank::PagesInFlight)));
    }

    #[test]
    fn a_reader_does_not_take_the_lock_again() {
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
    fn locks_may_be_released_in_any_order() {
        let (first, second) = (Mutex::new(Rank::IoContext, ()), Mutex::new(Rank::Committer, ()));
        let (one, two) = (first.lock(), second.lock());
        drop(one);
        assert!(panics(|| drop(first.lock())), "the second is held still");
        drop(two);
        assert!(!panics(|| drop(first.lock())));
        let beside = Mutex::new(Rank::IoContext, ());
        let one = first.lock();
        drop(beside.try_lock());
        assert!(panics(|| drop(beside.lock())), "the first is held still");
        drop(one);
        assert!(!panics(|| drop(beside.lock())));
    }
}
