//! The index of the orphans. The disk has the same information, but finding an orphan there means
//! walking past the others.

use std::collections::{BTreeMap, HashMap};
use std::sync::PoisonError;

use meantime_process::lock::{Mutex, MutexGuard, Rank};

/// Where an orphan is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrphanPlace {
    /// The orphan is in the list of orphans.
    List {
        /// The inode that points to it, or 0 if the superblock does.
        before: u32,
    },
    /// The orphan is in the orphan file.
    File {
        /// The block's number in the orphan file.
        logical: u64,
    },
}

/// All orphans as of the completed changes. Each mount has one index.
#[derive(Debug)]
pub struct Orphans {
    /// The places, or `None` if they have not been read from the disk yet.
    places: Mutex<Option<HashMap<u32, OrphanPlace>>>,
    /// The first block of the orphan file that may have room, as far as is known.
    room: Mutex<u64>,
}

impl Default for Orphans {
    fn default() -> Self {
        Self { places: Mutex::new(Rank::Orphans, None), room: Mutex::new(Rank::OrphansRoom, 0) }
    }
}

impl Orphans {
    fn places(&self) -> MutexGuard<'_, Option<HashMap<u32, OrphanPlace>>> {
        // The state is consistent after each step, so a poisoned lock may be used.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn room_mut(&self) -> MutexGuard<'_, u64> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the places are known.
    pub fn is_known(&self) -> bool {
        self.places().is_some()
    }

    /// Sets the places, as they were found on the disk.
    pub fn learn(&self, found: HashMap<u32, OrphanPlace>) {
        *self.places() = Some(found);
    }

    /// Returns the place of orphan `ino`, or `None` if it is no orphan.
    pub fn place(&self, ino: u32) -> Option<OrphanPlace> {
        self.places().as_ref().and_then(|places| places.get(&ino)).copied()
    }

    /// Returns the first block of the orphan file in which to look for room. This is a hint: blocks
    /// before it are not searched.
    pub fn room(&self) -> u64 {
        *self.room_mut()
    }

    /// Records that no block before `logical` has room.
    pub fn no_room_before(&self, logical: u64) {
        *self.room_mut() = logical;
    }

    /// Applies the [`orphans`](super::Changes::orphans) of a complete handle. The caller does so
    /// once for each handle, before the next handle begins.
    pub fn completed(&self, changes: &BTreeMap<u32, Option<OrphanPlace>>) {
        if changes.is_empty() {
            return;
        }
        let mut places = self.places();
        let Some(places) = places.as_mut() else { return };
        for (ino, place) in changes {
            let before = match place {
                Some(place) => places.insert(*ino, *place),
                None => places.remove(ino),
            };
            if let Some(OrphanPlace::File { logical }) = before {
                let mut room = self.room_mut();
                *room = (*room).min(logical);
            }
        }
    }
}
