//! The changes of fast commits beside the contents of blocks. A volume in which they were replayed
//! keeps these changes in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::dirent::Named;
use super::extent_map::ExtentMap;

/// The inode of each name, or `None` if the name is gone.
pub type Names = BTreeMap<Vec<u8>, Option<Named>>;

/// The effect of fast commits beyond the contents of blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Replayed {
    /// The extents of files.
    pub(super) maps: BTreeMap<u32, Arc<ExtentMap>>,
    /// Names in directories.
    pub(super) names: BTreeMap<u32, Names>,
    /// The former versions of inodes that fast commits changed, in their on-disk form.
    pub(super) before: BTreeMap<u32, Arc<[u8]>>,
    /// A damaged committed transaction. Neither it nor later ones were replayed.
    pub(super) lost: Option<u32>,
}

impl Replayed {
    /// Returns a replay without fast commits, before the damaged transaction `lost`.
    pub(super) fn without(lost: u32) -> Self {
        Self { lost: Some(lost), ..Self::default() }
    }

    /// Returns a damaged committed transaction of the journal. Neither it nor later ones were
    /// replayed.
    pub fn lost(&self) -> Option<u32> {
        self.lost
    }

    /// Returns the extents of inode `ino`, if a fast commit changed them.
    pub fn map(&self, ino: u32) -> Option<&Arc<ExtentMap>> {
        self.maps.get(&ino)
    }

    /// Returns the former versions of inodes that fast commits changed or read. Bitmaps and counts
    /// still describe those.
    pub fn before(&self) -> &BTreeMap<u32, Arc<[u8]>> {
        &self.before
    }

    /// Returns the changed names in directory `ino`.
    pub fn names(&self, ino: u32) -> Option<&Names> {
        self.names.get(&ino)
    }
}
