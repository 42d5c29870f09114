//! The effect of a change of metadata on the totals.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::pool::{Pool, Reserved};

/// What one handle did to one group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct GroupChange {
    /// Blocks taken.
    pub(crate) taken: u32,
    /// Blocks freed.
    pub(crate) freed: u32,
    /// The change in free inodes.
    pub(crate) inodes: i32,
    /// The change in directories.
    pub(crate) directories: i32,
    /// The blocks of the changed bitmaps; 0 if a bitmap was not changed.
    pub(crate) block_bitmap: u64,
    pub(crate) inode_bitmap: u64,
}

/// What one handle did to blocks and inodes.
///
/// The blocks that it took stay promised to it until it is complete, so that they are promised to
/// no other. If it fails, they return to their origin.
#[derive(Debug, Default)]
pub struct SpaceChanges {
    groups: Vec<(u32, GroupChange)>,
    taken: Vec<TakenBlocks>,
}

impl SpaceChanges {
    /// Returns the changes of group `number`, to be added to.
    pub(crate) fn group(&mut self, number: u32) -> &mut GroupChange {
        let at = self.groups.iter().position(|(group, _)| *group == number).unwrap_or_else(|| {
            self.groups.push((number, GroupChange::default()));
            self.groups.len() - 1
        });
        &mut self.groups[at].1
    }

    /// Returns the changed groups.
    pub(crate) fn groups(&self) -> &[(u32, GroupChange)] {
        &self.groups
    }

    /// Records `blocks` blocks taken out of the promise `from`.
    pub(crate) fn take(&mut self, from: Promised, blocks: u64) {
        self.taken.push(TakenBlocks { from, blocks: AtomicU64::new(blocks) });
    }

    /// Completes the change. Returns how many promised blocks are in use now, and no longer
    /// promised.
    pub(crate) fn finish(&self) -> u64 {
        self.taken.iter().map(|taken| taken.blocks.swap(0, Ordering::Relaxed)).sum()
    }
}

/// The origin of promised blocks.
#[derive(Debug)]
pub(crate) enum Promised {
    /// The blocks were promised to the change itself, when it wanted them.
    Change(Arc<Pool>),
    /// The blocks were promised to data, earlier.
    Data(Arc<Reserved>),
}

impl Promised {
    /// Returns `blocks` that were not taken. Those of a change are no longer promised, and those of
    /// data are promised to them again.
    pub(crate) fn put(&self, blocks: u64) {
        match self {
            Self::Change(pool) => pool.release(blocks),
            Self::Data(reserved) => reserved.put(blocks),
        }
    }
}

/// Promised blocks that a change has taken.
#[derive(Debug)]
struct TakenBlocks {
    from: Promised,
    blocks: AtomicU64,
}

impl Drop for TakenBlocks {
    fn drop(&mut self) {
        self.from.put(*self.blocks.get_mut());
    }
}
