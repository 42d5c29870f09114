//! What metadata are now, where the device does not have it yet.
//!
//! A block is in here from the success of the first handle that changed it until what it is has
//! reached its place. Who reads metadata looks here first ([`DeviceSource`](crate::DeviceSource)),
//! for a word only while nothing was ever changed.

use crate::numbers::ByNumber;
use meantime_process::lock::{Mutex, MutexGuard, Rank, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, PoisonError};

/// So often a reader tries to have read between two changes, before it keeps changes off.
const TRIES: usize = 4;

thread_local! {
    /// Whether the calling thread keeps changes off.
    static KEEPS_OFF: Cell<bool> = const { Cell::new(false) };
}

/// The blocks that are newer than on the device.
#[derive(Debug)]
pub struct Newest {
    /// Whether anything is, or may come to be.
    active: AtomicBool,
    /// Odd while a change is being published; another number after it.
    epoch: AtomicU64,
    /// Taken by whoever publishes, and by readers who never had two looks between changes.
    publishing: Mutex<()>,
    blocks: RwLock<Blocks>,
}

impl Default for Newest {
    fn default() -> Self {
        Self {
            active: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            publishing: Mutex::new(Rank::Publishing, ()),
            blocks: RwLock::new(Rank::NewestBlocks, Blocks::default()),
        }
    }
}

/// The blocks themselves.
#[derive(Debug, Default)]
pub struct Blocks {
    newer: ByNumber<u64, Arc<[u8]>>,
    /// How often any have left: what a reader has from the device may be older than what left
    /// meanwhile.
    departures: u64,
}

impl Blocks {
    /// What block `block` is, if that is newer than on the device.
    pub fn get(&self, block: u64) -> Option<&Arc<[u8]>> {
        self.newer.get(&block)
    }

    /// How often blocks have left so far.
    pub fn departures(&self) -> u64 {
        self.departures
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.newer.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.newer.is_empty()
    }

    /// Takes block `block` out if it still is `content`, which is in its place by now.
    pub fn settle(&mut self, block: u64, content: &Arc<[u8]>) -> bool {
        let settled = self.newer.get(&block).is_some_and(|newest| Arc::ptr_eq(newest, content));
        if settled {
            self.newer.remove(&block);
            self.departures += 1;
        }
        settled
    }
}

impl Newest {
    /// From now on there may be newer blocks.
    pub fn activate(&self) {
        self.active.store(true, Ordering::Release);
    }

    /// Whether there may be newer blocks: never on a mount for reading.
    #[inline]
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Acquire)
    }

    /// The blocks as they are now.
    pub fn read(&self) -> RwLockReadGuard<'_, Blocks> {
        // Whole between any two changes, of which none panics.
        self.blocks.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The blocks, to take some out.
    pub fn write(&self) -> RwLockWriteGuard<'_, Blocks> {
        self.blocks.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep_off(&self) -> MutexGuard<'_, ()> {
        self.publishing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of `newer` is so from now on, and nothing is known of `forgotten` any more, for every
    /// reader at once. (One change at a time.) `meanwhile` is called once in between: what it does
    /// counts for every reader that sees the change.
    pub fn publish<'a, T>(
        &self,
        newer: impl IntoIterator<Item = (&'a u64, &'a Arc<[u8]>)>,
        forgotten: &BTreeSet<u64>,
        meanwhile: impl FnOnce() -> T,
    ) -> T {
        let _publishing = self.keep_off();
        // Relaxed: nobody else writes it. The fence: whoever sees a block of this change sees the
        // odd number, too.
        let epoch = self.epoch.load(Ordering::Relaxed);
        self.epoch.store(epoch + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        let mut blocks = self.write();
        for block in forgotten {
            // What is kept of it elsewhere is as old as it ever was: nothing reads a block that no
            // structure leads to.
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

    /// What `read` gives, all of whose reads of metadata were between two changes: it sees every
    /// change altogether or not at all. It may be called several times, the last of which counts;
    /// what it gives in the others may be nonsense, errors of damage included.
    ///
    /// Not to be called in a handle, whose reads see no others' changes in any case.
    pub fn consistent<T>(&self, mut read: impl FnMut() -> T) -> T {
        if !self.is_active() || KEEPS_OFF.get() {
            return read();
        }
        for _ in 0..TRIES {
            let before = self.epoch.load(Ordering::Acquire);
            if before % 2 == 1 {
                // As long as some blocks take to be put into a map.
                std::thread::yield_now();
                continue;
            }
            let result = read();
            // Pairs with the fence in `publish`: if a block was of a later change, its number is
            // seen.
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

/// While the calling thread keeps changes off: reads within its read need not.
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
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn content(byte: u8) -> Arc<[u8]> {
        [byte; 4].into()
    }

    #[test]
    fn readers_see_all_of_a_change_or_nothing() {
        let newest = Newest::default();
        newest.activate();
        let publish = |byte| {
            let blocks = [(1, content(byte)), (2, content(byte))];
            newest.publish(
                blocks.iter().map(|(block, content)| (block, content)),
                &BTreeSet::new(),
                || (),
            );
        };
        publish(0);
        let (halves, ended) = (AtomicUsize::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..=255).cycle().take(20_000).for_each(publish);
                ended.store(true, Ordering::Relaxed);
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    while !ended.load(Ordering::Relaxed) {
                        let half = |block| newest.read().get(block).map(|content| content[0]);
                        let (first, second) =
                            newest.consistent(|| (half(1), newest.consistent(|| half(2))));
                        if first != second {
                            halves.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(halves.into_inner(), 0);
    }

    #[test]
    fn what_was_changed_again_does_not_settle() {
        let newest = Newest::default();
        let (old, new) = (content(1), content(2));
        newest.publish([(&7, &old)], &BTreeSet::new(), || ());
        newest.publish([(&7, &new)], &BTreeSet::new(), || ());
        assert!(!newest.write().settle(7, &old));
        assert_eq!(newest.read().get(7), Some(&new));
        assert!(newest.write().settle(7, &new));
        let blocks = newest.read();
        assert_eq!((blocks.get(7), blocks.departures()), (None, 1));
        drop(blocks);
        newest.publish([(&7, &new)], &BTreeSet::new(), || ());
        newest.publish([], &BTreeSet::from([7]), || ());
        assert!(newest.read().is_empty());
    }
}
