//! What a change does.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use super::orphans::OrphanPlace;
use crate::space::SpaceChanges;
use meantime_ext4_format::journal::fast_commit::Change;

/// How an inode was changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Changed {
    /// Whether `fdatasync` has to write the change, because it is not only of times, owner or mode
    /// but of size or blocks.
    pub data: bool,
    /// Its link count now.
    pub links: u16,
}

/// What a handle has changed.
#[derive(Debug, Default)]
pub struct Changes {
    /// The new contents of metadata blocks.
    pub blocks: BTreeMap<u64, Arc<[u8]>>,
    /// Freed metadata blocks, whose copies in the journal must not be replayed any more.
    pub forgotten: BTreeSet<u64>,
    /// Freed blocks of data or metadata, which must not be reused before the change has committed.
    pub freed: Vec<Range<u64>>,
    /// The inodes that were changed.
    pub inodes: BTreeMap<u32, Changed>,
    /// Inodes that became orphans, moved in the list or file of orphans, or left it (`None`).
    pub orphans: BTreeMap<u32, Option<OrphanPlace>>,
    /// The description for fast commits, if one is possible.
    pub fast: FastChanges,
    /// The effect on the totals, for [`Allocator::completed`](crate::alloc::Allocator::completed).
    pub space: SpaceChanges,
}

/// The description of one change for fast commits.
#[derive(Debug, Default)]
pub struct FastChanges {
    pub(super) operations: Vec<Change>,
    /// The inodes that the change changed: the block of the inode table, and the offset in it.
    pub(super) places: BTreeMap<u32, (u64, usize)>,
    /// Whether the operations and the inodes are all that the change did.
    pub(super) complete: bool,
    /// Whether the change did something that is never described.
    pub(super) barred: bool,
}

impl FastChanges {
    pub(super) fn record(&mut self, operation: Change) {
        if !self.barred {
            self.operations.push(operation);
        }
    }

    /// Returns whether the change cannot be described, whatever else it does.
    pub(super) fn is_barred(&self) -> bool {
        self.barred
    }

    /// Records that inode `ino` was stored at this place.
    pub(super) fn store(&mut self, ino: u32, block: u64, at: usize) {
        if !self.barred {
            self.places.insert(ino, (block, at));
        }
    }

    pub(super) fn complete(&mut self) {
        self.complete = true;
    }

    pub(super) fn bar(&mut self) {
        self.barred = true;
    }

    /// Returns what the change did besides changing inodes, or `None` if that cannot be described.
    pub fn operations(&self) -> Option<&[Change]> {
        (self.complete && !self.barred).then_some(&self.operations)
    }
}
