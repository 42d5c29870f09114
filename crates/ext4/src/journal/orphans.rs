//! Where the orphans are: what the disk says of them too, but there each is found only by a walk
//! past all others.

use std::collections::{BTreeMap, HashMap};
use std::sync::PoisonError;

use super::Changes;
use meantime_process::lock::{Mutex, MutexGuard, Rank};

/// Where an orphan is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrphanPlace {
    /// In the list: which inode leads to it; 0: the superblock does.
    List {
        /// That inode.
        before: u32,
    },
    /// In this block of the file of orphans.
    File {
        /// The block's number in the file.
        logical: u64,
    },
}

/// All orphans, by the changes that are complete: one a mount.
#[derive(Debug)]
pub struct Orphans {
    /// `None`: nobody has looked yet.
    places: Mutex<Option<HashMap<u32, OrphanPlace>>>,
    /// No block of the file of orphans before this one has room, as far as is known.
    room: Mutex<u64>,
}

impl Default for Orphans {
    fn default() -> Self {
        Self { places: Mutex::new(Rank::Orphans, None), room: Mutex::new(Rank::OrphansRoom, 0) }
    }
}

impl Orphans {
    fn places(&self) -> MutexGuard<'_, Option<HashMap<u32, OrphanPlace>>> {
        // Whole after each step.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn room_mut(&self) -> MutexGuard<'_, u64> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is known where they are.
    pub fn is_known(&self) -> bool {
        self.places().is_some()
    }

    /// Says where they are, as they were found.
    pub fn learn(&self, found: HashMap<u32, OrphanPlace>) {
        *self.places() = Some(found);
    }

    /// Where orphan `ino` is; `None`: it is none.
    pub fn place(&self, ino: u32) -> Option<OrphanPlace> {
        self.places().as_ref().and_then(|places| places.get(&ino)).copied()
    }

    /// The first block of the file of orphans in which to look for room. (A hint: who finds none
    /// there looks no further.)
    pub fn room(&self) -> u64 {
        *self.room_mut()
    }

    /// There is none before block `logical`.
    pub fn no_room_before(&self, logical: u64) {
        *self.room_mut() = logical;
    }

    /// A handle is complete: each once, before the next one begins.
    pub fn completed(&self, changes: &Changes) {
        self.apply(&changes.orphans);
    }

    fn apply(&self, changes: &BTreeMap<u32, Option<OrphanPlace>>) {
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
