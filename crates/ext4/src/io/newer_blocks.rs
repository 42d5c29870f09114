//! The current metadata, where they are newer than the device's.
//!
//! A block is in here from the completion of the first handle that changed it until its content is
//! written in place. Readers of metadata look here first ([`DeviceSource`](crate::DeviceSource)),
//! at the cost of one load if nothing was ever changed.

use crate::numbers::ByNumber;
use meantime_process::lock::{Mutex, MutexGuard, Rank, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, PoisonError};

/// Tries of a reader to read between two changes, before it blocks changes.
const TRIES: usize = 4;

thread_local! {
    /// Whether the calling thread blocks changes.
    static KEEPS_OFF: Cell<bool> = const { Cell::new(false) };
}

/// The blocks that are newer than on the device.
#[derive(Debug)]
pub struct NewerBlocks {
    /// Whether there are any, or may be later.
    active: AtomicBool,
    /// This number is odd while a change is being published, and different after it.
    epoch: AtomicU64,
    /// This lock is taken to publish, and by readers that always met a change.
    publishing: Mutex<()>,
    blocks: RwLock<Blocks>,
}

impl Default for NewerBlocks {
    fn default() -> Self {
        Self {
            active: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            publishing: Mutex::new(Rank::Publishing, ()),
            blocks: RwLock::new(Rank::NewerBlocks, Blocks::default()),
        }
    }
}

/// The newer blocks.
#[derive(Debug, Default)]
pub struct Blocks {
    newer: ByNumber<u64, Arc<[u8]>>,
    /// How many blocks were removed because they are in place: what was read from the device before
    /// that may be older than these.
    departures: u64,
}

impl Blocks {
    /// Returns the content of `block`, if it is newer than on the device.
    pub fn get(&self, block: u64) -> Option<&Arc<[u8]>> {
        self.newer.get(&block)
    }

    /// Returns how many blocks have been removed so far because they are in place.
    pub fn departures(&self) -> u64 {
        self.departures
    }

    /// Removes `block` if it still is `content`, which has been written in place.
    pub fn written_in_place(&mut self, block: u64, content: &Arc<[u8]>) -> bool {
        let is_current = self.newer.get(&block).is_some_and(|newer| Arc::ptr_eq(newer, content));
        if is_current {
            self.newer.remove(&block);
            self.departures += 1;
        }
        is_current
    }
}

impl NewerBlocks {
    /// Declares that there may be newer blocks from now on.
    pub fn activate(&self) {
        self.active.store(true, Ordering::Release);
    }

    /// Returns whether there may be newer blocks. On a mount for reading there are none.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Acquire)
    }

    /// Returns the current blocks.
    pub fn read(&self) -> RwLockReadGuard<'_, Blocks> {
        // The blocks are consistent between any two changes, none of which panics.
        self.blocks.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the blocks, to remove some.
    pub fn write(&self) -> RwLockWriteGuard<'_, Blocks> {
        self.blocks.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep_off(&self) -> MutexGuard<'_, ()> {
        self.publishing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes `newer` and removes `forgotten`, for all readers at once. There is one change at a
    /// time. Calls `meanwhile` once in between: every reader that sees the change sees its effects.
    pub fn publish<'a, T>(
        &self,
        newer: impl IntoIterator<Item = (&'a u64, &'a Arc<[u8]>)>,
        forgotten: &BTreeSet<u64>,
        meanwhile: impl FnOnce() -> T,
    ) -> T {
        let _publishing = self.keep_off();
        // The load is relaxed, because no other thread writes the number. The fence ensures that a
        // thread that sees a block of this change also sees the odd number.
        let epoch = self.epoch.load(Ordering::Relaxed);
        self.epoch.store(epoch + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        let mut blocks = self.write();
        for block in forgotten {
            // Copies kept elsewhere may be stale, but no structure leads to the block, so they are
            // not read.
            blocks.newer.remove(block);
        }
        blocks
            .newer
            .extend(newer.into_iter().map(|(block, content)| (*block, Arc::clone(content))));
        drop(blocks);
        let done = meanwhile();
        self.epoch.store(epoch + 2, Ordering::Release);
        done
    }

    /// Returns the result of a call of `read` whose reads of metadata were all between two changes:
    /// it sees each change as a whole or not at all. `read` may be called several times, and the
    /// last call counts; the results of the others may be inconsistent, even errors of damage.
    ///
    /// Must not be called in a handle, whose reads never see others' changes.
    pub fn consistent<T>(&self, mut read: impl FnMut() -> T) -> T {
        if !self.is_active() || KEEPS_OFF.get() {
            return read();
        }
        for _ in 0..TRIES {
            let before = self.epoch.load(Ordering::Acquire);
            if before % 2 == 1 {
                // The change takes as long as it takes to insert some blocks into a map.
                std::thread::yield_now();
                continue;
            }
            let result = read();
            // This fence pairs with that in `publish`: if a block was of a later change, this
            // thread sees that change's number.
            fence(Ordering::Acquire);
            if self.epoch.load(Ordering::Relaxed) == before {
                return result;
            }
        }
        let _off = self.keep_off();
        let _mark = Mark::set();
        read()
    }
}

/// Exists while the calling thread blocks changes. Nested reads need not block them again.
struct Mark;

impl Mark {
    fn set() -> Self {
        KEEPS_OFF.set(true);
        Self
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        KEEPS_OFF.set(false);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
