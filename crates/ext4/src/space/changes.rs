//! What a change of metadata means for the totals.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::pool::{Pool, Reserved};

/// What one handle did to one group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct GroupChange {
    /// Blocks that were taken.
    pub(crate) taken: u32,
    /// Blocks that were freed.
    pub(crate) freed: u32,
    /// What was added to the free inodes.
    pub(crate) inodes: i32,
    /// What was added to the directories.
    pub(crate) directories: i32,
    /// Where the bitmaps that were changed are; 0: not changed.
    pub(crate) block_bitmap: u64,
    pub(crate) inode_bitmap: u64,
}

/// What one handle did to blocks and inodes.
///
/// The blocks that it took are promised to it until it is complete, so that nobody is promised them
/// meanwhile; if it never is, they are where they were.
#[derive(Debug, Default)]
pub struct SpaceChanges {
    groups: Vec<(u32, GroupChange)>,
    taken: Vec<TakenBlocks>,
}

impl SpaceChanges {
    /// What was done to group `number`, to be added to.
    pub(crate) fn group(&mut self, number: u32) -> &mut GroupChange {
        let at = self.groups.iter().position(|(group, _)| *group == number).unwrap_or_else(|| {
            self.groups.push((number, GroupChange::default()));
            self.groups.len() - 1
        });
        &mut self.groups[at].1
    }

    /// All groups something was done to.
    pub(crate) fn groups(&self) -> &[(u32, GroupChange)] {
        &self.groups
    }

    /// `blocks` blocks were taken that were promised to `from`.
    pub(crate) fn take(&mut self, from: Promised, blocks: u64) {
        self.taken.push(TakenBlocks { from, blocks: AtomicU64::new(blocks) });
    }

    /// The change is complete: how many promised blocks are promised no more, since they are in
    /// use.
    pub(crate) fn settle(&self) -> u64 {
        self.taken.iter().map(|taken| taken.blocks.swap(0, Ordering::Relaxed)).sum()
    }
}

/// Who had been promised blocks.
#[derive(Debug)]
pub(crate) enum Promised {
    /// The change itself, when it wanted them.
    Change(Arc<Pool>),
    /// Data, earlier.
    Data(Arc<Reserved>),
}

impl Promised {
    /// Promises `blocks` that were not taken again.
    pub(crate) fn put(&self, blocks: u64) {
        match self {
            Self::Change(pool) => pool.give_back(blocks),
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
