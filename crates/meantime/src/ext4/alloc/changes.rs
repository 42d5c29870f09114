//! What a change of metadata means for the totals.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::pool::Reserved;

/// What one handle did to one group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct GroupChange {
    /// Blocks that were taken.
    pub(super) taken: u32,
    /// Blocks that were freed.
    pub(super) freed: u32,
    /// What was added to the free inodes.
    pub(super) inodes: i32,
    /// What was added to the directories.
    pub(super) directories: i32,
}

/// What one handle did to blocks and inodes.
#[derive(Debug, Default)]
pub struct SpaceChanges {
    groups: Vec<(u32, GroupChange)>,
    spent: Vec<Spent>,
    taken: u64,
}

impl SpaceChanges {
    /// What was done to group `number`, to be added to.
    pub(super) fn group(&mut self, number: u32) -> &mut GroupChange {
        let at = self.groups.iter().position(|(group, _)| *group == number).unwrap_or_else(|| {
            self.groups.push((number, GroupChange::default()));
            self.groups.len() - 1
        });
        &mut self.groups[at].1
    }

    /// All groups something was done to.
    pub(super) fn groups(&self) -> &[(u32, GroupChange)] {
        &self.groups
    }

    /// `blocks` were taken, those of `reserved` if there is one.
    pub(super) fn take(&mut self, blocks: u64, reserved: Option<&Arc<Reserved>>) {
        self.taken += blocks;
        self.spent.extend(reserved.map(|reserved| Spent::of(reserved, blocks)));
    }

    /// Blocks that were taken.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Those of them that had been reserved.
    pub(super) fn spent(&self) -> u64 {
        self.spent.iter().map(Spent::blocks).sum()
    }

    /// The change is complete: what was reserved is spent for good.
    pub(super) fn settle(&self) {
        for spent in &self.spent {
            spent.settle();
        }
    }
}

/// Reserved blocks that a change has used; they are reserved again if it never becomes complete.
#[derive(Debug)]
struct Spent {
    from: Arc<Reserved>,
    blocks: AtomicU64,
}

impl Spent {
    fn of(reserved: &Arc<Reserved>, blocks: u64) -> Self {
        reserved.take(blocks);
        Self { from: Arc::clone(reserved), blocks: AtomicU64::new(blocks) }
    }

    fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    fn settle(&self) {
        self.from.pool().settle(self.blocks.swap(0, Ordering::Relaxed));
    }
}

impl Drop for Spent {
    fn drop(&mut self) {
        self.from.put_back(*self.blocks.get_mut());
    }
}
