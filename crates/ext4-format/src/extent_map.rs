//! The blocks of a file: runs, extents, and the map of all of them.

use std::ops::ControlFlow;

/// The maximum number of extents of a file held at once: 24 MiB.
const MAX_EXTENTS: usize = 1 << 20;
/// The maximum number of nodes read for one [`ExtentMap`]. It is more than a tree of
/// [`MAX_EXTENTS`] extents needs with nodes that are a quarter full.
pub(super) const MAX_NODES: usize = 16 << 10;

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunState {
    /// The blocks have data.
    Written,
    /// The blocks are preallocated, and read as zeroes.
    Unwritten,
    /// The run is a hole, and reads as zeroes.
    Hole,
}

/// A run of a file's blocks with the same state and, if mapped, at consecutive places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The first block in the file system; 0 for a hole.
    pub physical: u64,
    /// The number of blocks, at least 1. The run may extend beyond the file's size.
    pub blocks: u64,
    /// The blocks' state.
    pub state: RunState,
}

impl Run {
    /// Returns a hole of `blocks` blocks.
    pub(super) const fn hole(blocks: u64) -> Self {
        Self { physical: 0, blocks, state: RunState::Hole }
    }
}

/// A checked extent of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappedExtent {
    /// First logical block.
    pub logical: u32,
    /// Number of blocks, at least 1.
    pub blocks: u32,
    /// First block in the file system.
    pub physical: u64,
    /// Whether it is preallocated, so that it reads as zeroes.
    pub unwritten: bool,
}

impl MappedExtent {
    /// Returns the logical block after it.
    pub fn end(&self) -> u64 {
        u64::from(self.logical) + u64::from(self.blocks)
    }

    /// Returns the part from `logical` on, if that is inside.
    pub fn run_at(&self, logical: u64) -> Option<Run> {
        let into = logical.checked_sub(u64::from(self.logical))?;
        let blocks = u64::from(self.blocks).checked_sub(into).filter(|left| *left > 0)?;
        let state = if self.unwritten { RunState::Unwritten } else { RunState::Written };
        Some(Run { physical: self.physical + into, blocks, state })
    }

    /// Returns both merged, if `next` continues this one in the file and on the disk.
    pub(super) fn joined(&self, next: &Self) -> Option<Self> {
        let follows = self.end() == u64::from(next.logical)
            && self.physical + u64::from(self.blocks) == next.physical
            && self.unwritten == next.unwritten;
        let blocks = self.blocks.checked_add(next.blocks).filter(|_| follows)?;
        Some(Self { blocks, ..*self })
    }
}

/// All extents of a file, with adjacent ones merged. It has only the first ones if there are too
/// many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtentMap {
    extents: Vec<MappedExtent>,
    known: u64,
}

impl ExtentMap {
    /// Returns the complete map of a file with these extents, in order.
    pub(super) fn whole(extents: impl Iterator<Item = MappedExtent>) -> Self {
        Self { extents: extents.collect(), known: u64::MAX }
    }

    /// Returns the run at logical block `logical`, or `None` if it is beyond the map's content.
    /// Then [`Volume::run_at`](crate::Volume::run_at) finds it.
    pub fn run_at(&self, logical: u64) -> Option<Run> {
        let after = self.extents.partition_point(|extent| u64::from(extent.logical) <= logical);
        let before = after.checked_sub(1).and_then(|before| self.extents.get(before));
        if let Some(run) = before.and_then(|extent| extent.run_at(logical)) {
            return Some(run);
        }
        let end = self.extents.get(after).map_or(self.known, |extent| u64::from(extent.logical));
        end.checked_sub(logical).filter(|blocks| *blocks > 0).map(Run::hole)
    }

    /// Returns the extents, in order, with holes between them.
    pub fn extents(&self) -> &[MappedExtent] {
        &self.extents
    }

    /// Returns the logical block up to which the map is complete, or `u64::MAX` if it reaches to
    /// the end.
    pub fn known(&self) -> u64 {
        self.known
    }

    /// Returns whether it covers the whole file.
    pub fn is_complete(&self) -> bool {
        self.known == u64::MAX
    }
}

/// An extent map under construction.
pub(super) struct Builder {
    extents: Vec<MappedExtent>,
    /// All blocks before this one were seen.
    pub(super) seen: u64,
    pub(super) nodes_left: usize,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self { extents: Vec::new(), seen: 0, nodes_left: MAX_NODES }
    }

    /// Appends an extent. Returns `Break` if there is no room for one more.
    pub(super) fn push(&mut self, next: &MappedExtent) -> ControlFlow<()> {
        if let Some(last) = self.extents.last_mut()
            && let Some(joined) = last.joined(next)
        {
            *last = joined;
        } else if self.extents.len() == MAX_EXTENTS {
            return ControlFlow::Break(());
        } else {
            self.extents.push(*next);
        }
        self.seen = next.end();
        ControlFlow::Continue(())
    }

    pub(super) fn finish(mut self, ended: ControlFlow<()>) -> ExtentMap {
        self.extents.shrink_to_fit();
        ExtentMap {
            extents: self.extents,
            known: if ended.is_continue() { u64::MAX } else { self.seen },
        }
    }
}
