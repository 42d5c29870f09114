//! All inodes in use, by number.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, Weak};

use super::shared::Inode;
use crate::numbers::ByNumber;
use meantime_process::lock::{Mutex, MutexGuard, Rank};

/// Number of counters of changes; inodes share them.
const CHANGES: usize = 256;

/// All inodes in use: it ensures that there is one for each number.
pub(crate) struct Registry {
    numbers: Mutex<Numbers>,
    changes: [AtomicU64; CHANGES],
}

#[derive(Default)]
struct Numbers {
    all: ByNumber<u32, Weak<Inode>>,
    /// Gone inodes that are still on the disk: the address of the [`Inode`] by its number.
    deleted: ByNumber<u32, usize>,
}

/// Result of [`Registry::enter`].
pub(crate) enum Entered {
    /// The inode of the number.
    Inode(Arc<Inode>),
    /// The inode was changed meanwhile.
    Changed,
    /// The inode is being deleted, and can no longer be found.
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
    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        // Each step leaves the contents valid, so a panic does no harm.
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counter(&self, ino: u32) -> &AtomicU64 {
        &self.changes[ino as usize % CHANGES]
    }

    /// Returns the number of changes of inode `ino` and of those that share its counter.
    pub(crate) fn changes(&self, ino: u32) -> u64 {
        self.counter(ino).load(Ordering::Acquire)
    }

    /// Returns the inode of number `ino`, if there is one.
    pub(crate) fn find(&self, ino: u32) -> Option<Arc<Inode>> {
        self.numbers().all.get(&ino).and_then(Weak::upgrade)
    }

    /// Counts a change of inode `ino`, and returns the inode, if there is one.
    pub(crate) fn changed(&self, ino: u32) -> Option<Arc<Inode>> {
        let numbers = self.numbers();
        self.counter(ino).fetch_add(1, Ordering::AcqRel);
        numbers.all.get(&ino).and_then(Weak::upgrade)
    }

    /// Returns the inode of number `ino`. If there is none, `make` makes it, unless the counter is
    /// no longer `changes`: `make` might then use data of another inode.
    pub(crate) fn enter(
        &self,
        ino: u32,
        changes: u64,
        make: impl FnOnce() -> Arc<Inode>,
    ) -> Entered {
        let mut numbers = self.numbers();
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

    /// Makes `inode` the one of its number.
    pub(crate) fn replace(&self, inode: &Arc<Inode>) {
        let mut numbers = self.numbers();
        self.counter(inode.ino).fetch_add(1, Ordering::AcqRel);
        numbers.all.insert(inode.ino, Arc::downgrade(inode));
    }

    /// Removes the inode of number `ino`, which is given to a new inode.
    pub(crate) fn remove(&self, ino: u32) {
        let mut numbers = self.numbers();
        self.counter(ino).fetch_add(1, Ordering::AcqRel);
        numbers.all.remove(&ino);
        numbers.deleted.remove(&ino);
    }

    /// Removes `inode`, if it is the one of its number.
    pub(crate) fn remove_this(&self, inode: &Inode) {
        self.take_out(&mut self.numbers(), inode);
    }

    fn take_out(&self, numbers: &mut Numbers, inode: &Inode) {
        self.counter(inode.ino).fetch_add(1, Ordering::AcqRel);
        if numbers.all.get(&inode.ino).is_some_and(|there| std::ptr::eq(there.as_ptr(), inode)) {
            numbers.all.remove(&inode.ino);
        }
    }

    /// Notes that `inode`, which is gone, is being deleted. Until
    /// [`end_deletion`](Self::end_deletion), what the disk still has of it cannot be found.
    pub(crate) fn begin_deletion(&self, inode: &Inode) {
        let mut numbers = self.numbers();
        self.take_out(&mut numbers, inode);
        numbers.deleted.insert(inode.ino, address(inode));
    }

    /// Notes that `inode` is no longer on the disk. Another inode may already have its number.
    pub(crate) fn end_deletion(&self, inode: &Inode) {
        let mut numbers = self.numbers();
        if numbers.deleted.get(&inode.ino) == Some(&address(inode)) {
            numbers.deleted.remove(&inode.ino);
        }
    }
}
