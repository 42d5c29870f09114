//! Where a file's blocks are: extent trees and block maps alike.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::block_map;
use super::extents::{self, Found, LOGICAL_BLOCKS, Node, NodePlace};
use super::inode::{Inode, flags};
use super::source::Source;
use super::volume::Volume;
use crate::{Corruption, Defect, Error, Result};

/// The most extents of a file that are held at once: 24 MiB.
const MAX_EXTENTS: usize = 1 << 20;
/// The most nodes that are read for one [`ExtentMap`]: more than a tree of [`MAX_EXTENTS`] extents
/// needs whose nodes are a quarter full.
const MAX_NODES: usize = 16 << 10;

/// What a stretch of a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunState {
    /// Data.
    Written,
    /// Room that was set aside: reads as zeroes.
    Unwritten,
    /// Nothing: reads as zeroes.
    Hole,
}

/// A stretch of a file's blocks that are of one kind and, if they are anywhere, one after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Where the first one is, in blocks of the file system; 0 for a hole.
    pub physical: u64,
    /// How many blocks, at least 1; it may reach beyond the file's size.
    pub blocks: u64,
    /// What they are.
    pub state: RunState,
}

impl Run {
    /// A hole of `blocks` blocks.
    pub(super) const fn hole(blocks: u64) -> Self {
        Self { physical: 0, blocks, state: RunState::Hole }
    }
}

/// An extent of a file, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappedExtent {
    /// The first block in the file.
    pub logical: u32,
    /// How many blocks, at least 1.
    pub blocks: u32,
    /// The first block in the file system.
    pub physical: u64,
    /// Room that was set aside: reads as zeroes.
    pub unwritten: bool,
}

impl MappedExtent {
    /// The first block in the file behind it.
    pub fn end(&self) -> u64 {
        u64::from(self.logical) + u64::from(self.blocks)
    }

    /// The part of it from `logical` on, if that is in it.
    pub fn run_at(&self, logical: u64) -> Option<Run> {
        let into = logical.checked_sub(u64::from(self.logical))?;
        let blocks = u64::from(self.blocks).checked_sub(into).filter(|left| *left > 0)?;
        let state = if self.unwritten { RunState::Unwritten } else { RunState::Written };
        Some(Run { physical: self.physical + into, blocks, state })
    }

    /// Both as one, if `next` goes on where this one ends, in the file and on the disk.
    pub(super) fn joined(&self, next: &Self) -> Option<Self> {
        let follows = self.end() == u64::from(next.logical)
            && self.physical + u64::from(self.blocks) == next.physical
            && self.unwritten == next.unwritten;
        let blocks = self.blocks.checked_add(next.blocks).filter(|_| follows)?;
        Some(Self { blocks, ..*self })
    }
}

/// All extents of a file, adjacent ones merged; of a file with very many, the first ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtentMap {
    extents: Vec<MappedExtent>,
    known: u64,
}

impl ExtentMap {
    /// The map of a file that has these extents, in order, and no others.
    pub(super) fn whole(extents: impl Iterator<Item = MappedExtent>) -> Self {
        Self { extents: extents.collect(), known: u64::MAX }
    }

    /// What is known of logical block `logical`; `None`: it is beyond what the map holds,
    /// [`Volume::run_at`] knows.
    pub fn run_at(&self, logical: u64) -> Option<Run> {
        let after = self.extents.partition_point(|extent| u64::from(extent.logical) <= logical);
        let before = after.checked_sub(1).and_then(|before| self.extents.get(before));
        if let Some(run) = before.and_then(|extent| extent.run_at(logical)) {
            return Some(run);
        }
        let end = self.extents.get(after).map_or(self.known, |extent| u64::from(extent.logical));
        end.checked_sub(logical).filter(|blocks| *blocks > 0).map(Run::hole)
    }

    /// The extents, in order; what is between them is a hole.
    pub fn extents(&self) -> &[MappedExtent] {
        &self.extents
    }

    /// The logical block up to which the map knows all; `u64::MAX`: up to the end.
    pub fn known(&self) -> u64 {
        self.known
    }

    /// Whether it holds the whole file.
    pub fn is_complete(&self) -> bool {
        self.known == u64::MAX
    }
}

/// An extent map that grows.
struct Builder {
    extents: Vec<MappedExtent>,
    /// Everything before this block was seen.
    seen: u64,
    nodes_left: usize,
}

impl Builder {
    fn new() -> Self {
        Self { extents: Vec::new(), seen: 0, nodes_left: MAX_NODES }
    }

    /// Whether there is room for one more extent.
    fn push(&mut self, next: &MappedExtent) -> ControlFlow<()> {
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

    fn finish(mut self, ended: ControlFlow<()>) -> ExtentMap {
        self.extents.shrink_to_fit();
        ExtentMap {
            extents: self.extents,
            known: if ended.is_continue() { u64::MAX } else { self.seen },
        }
    }
}

/// Receives blocks.
type Visit<'a> = dyn FnMut(u64) -> Result<()> + 'a;

/// The tables of pointers on the way to the block that was looked for last, by level: the next
/// one's are mostly the same.
#[derive(Default)]
struct Tables {
    held: [Option<(u64, Arc<[u8]>)>; 3],
    reads: usize,
}

impl<S: Source> Volume<S> {
    /// What the file's logical block `logical` is, and how many behind it continue in the same way,
    /// as far as the same node goes: a run may end though the next one continues it.
    ///
    /// # Errors
    /// Damage, or the source; [`Error::Unsupported`] for encrypted files and the like;
    /// [`Error::Invalid`] if the inode has no blocks (see [`Inode::has_blocks`]).
    pub fn run_at(&self, inode: &Inode, logical: u64) -> Result<Run> {
        let mapped = Mapped::of(self, inode)?;
        if logical >= LOGICAL_BLOCKS {
            return Ok(Run::hole((u64::MAX - logical).max(1)));
        }
        if let Some(run) = self.replayed().map(inode.ino()).and_then(|map| map.run_at(logical)) {
            return Ok(run);
        }
        if inode.has(flags::EXTENTS) {
            mapped.extent_run(logical)
        } else {
            mapped.block_map_run(logical, &mut Tables::default())
        }
    }

    /// The extents of the whole file; of one with more than a million of them (or nodes beyond
    /// reason) the first ones: [`ExtentMap::known`].
    ///
    /// # Errors
    /// As [`run_at`](Self::run_at).
    pub fn extent_map(&self, inode: &Inode) -> Result<ExtentMap> {
        Mapped::of(self, inode)?;
        match self.replayed().map(inode.ino()) {
            Some(map) => Ok(ExtentMap::clone(map)),
            None => self.stored_extent_map(inode),
        }
    }

    /// The same, without what fast commits made of it.
    ///
    /// # Errors
    /// As [`run_at`](Self::run_at).
    pub fn stored_extent_map(&self, inode: &Inode) -> Result<ExtentMap> {
        let mapped = Mapped::of(self, inode)?;
        let mut builder = Builder::new();
        let ended = if inode.has(flags::EXTENTS) {
            mapped.collect(&mapped.root()?, &mut builder)?
        } else {
            mapped.collect_block_map(&mut builder)?
        };
        Ok(builder.finish(ended))
    }

    /// Calls `visit` with the blocks that hold the extent tree's nodes or the block map's pointers
    /// of `inode`, in order.
    ///
    /// # Errors
    /// As [`run_at`](Self::run_at), [`Defect::BlockShared`] if it goes in circles, and what `visit`
    /// says.
    pub fn visit_mapping_blocks(&self, inode: &Inode, visit: &mut Visit<'_>) -> Result<()> {
        let mapped = Mapped::of(self, inode)?;
        // A block can occur only once: a walk that meets more blocks than there are goes in
        // circles.
        let mut left = self.block_count();
        let mut visit = |block| {
            let shared = Corruption::new(Defect::BlockShared).in_inode(inode.ino()).in_block(block);
            left = left.checked_sub(1).ok_or(shared)?;
            visit(block)
        };
        if inode.has(flags::EXTENTS) {
            return mapped.visit_nodes(&mapped.root()?, &mut visit);
        }
        for (slot, levels) in [(12, 1), (13, 2), (14, 3)] {
            let pointer = block_map::pointer(inode.block_area(), slot);
            mapped.visit_pointers(pointer, levels, None, &mut visit)?;
        }
        Ok(())
    }

    /// The node in `bytes` of the inode with this number and seed of its checksums; it came from
    /// `block` or from the inode.
    ///
    /// # Errors
    /// [`Defect::ExtentHeader`], [`Defect::ExtentChecksum`], [`Defect::ExtentOrder`],
    /// [`Defect::BlockPointer`].
    pub fn checked_node<'a>(
        &self,
        (ino, seed): (u32, u32),
        bytes: &'a [u8],
        block: Option<u64>,
        place: NodePlace,
    ) -> Result<Node<'a>> {
        let wrong = |defect| Corruption::at(defect, ino, block);
        if block.is_some() && self.superblock().has_checksums() {
            // Without a place for one the header is wrong, and says so below unless it merely
            // leaves no room.
            let right = extents::checksum_is_right(seed, bytes);
            let defect =
                if right.is_none() { Defect::ExtentHeader } else { Defect::ExtentChecksum };
            self.verify(right == Some(true), || wrong(defect))?;
        }
        Node::parse(self.superblock(), bytes, place).map_err(|defect| wrong(defect).into())
    }
}

/// An inode whose content is in blocks.
struct Mapped<'a, S> {
    volume: &'a Volume<S>,
    inode: &'a Inode,
}

impl<'a, S: Source> Mapped<'a, S> {
    /// That of `inode`, unless its blocks cannot be looked for.
    fn of(volume: &'a Volume<S>, inode: &'a Inode) -> Result<Self> {
        inode.check_supported()?;
        if inode.has_blocks() {
            Ok(Self { volume, inode })
        } else {
            Err(Error::Invalid("the inode's content is not in blocks"))
        }
    }

    /// The root of its extent tree.
    fn root(&self) -> Result<Node<'a>> {
        self.extent_node(self.inode.block_area(), None, NodePlace::root())
    }

    fn visit_nodes(&self, node: &Node<'_>, visit: &mut Visit<'_>) -> Result<()> {
        for (block, place) in node.children() {
            visit(block)?;
            let bytes = self.volume.block(block)?;
            let child = self.extent_node(&bytes, Some(block), place)?;
            self.visit_nodes(&child, visit)?;
        }
        Ok(())
    }

    fn visit_pointers(
        &self,
        pointer: u64,
        levels: u32,
        from: Option<u64>,
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        if pointer == 0 {
            return Ok(());
        }
        self.check_pointer(pointer, 1, from)?;
        visit(pointer)?;
        if levels > 1 {
            let table = self.volume.block(pointer)?;
            for slot in 0..table.len() / 4 {
                let below = block_map::pointer(&table, slot);
                self.visit_pointers(below, levels - 1, Some(pointer), visit)?;
            }
        }
        Ok(())
    }

    /// The node in `bytes`, which came from `block` or from the inode.
    fn extent_node<'b>(
        &self,
        bytes: &'b [u8],
        block: Option<u64>,
        place: NodePlace,
    ) -> Result<Node<'b>> {
        // (The root has no checksum.)
        let seed = block.map_or(0, |_| self.inode.checksum_seed());
        self.volume.checked_node((self.inode.ino(), seed), bytes, block, place)
    }

    fn extent_run(&self, logical: u64) -> Result<Run> {
        let mut held: Option<(u64, Arc<[u8]>)> = None;
        let mut place = NodePlace::root();
        // Each step is one level down, and the root is at most at level 5.
        loop {
            let (block, bytes) = match &held {
                None => (None, &self.inode.block_area()[..]),
                Some((block, bytes)) => (Some(*block), &bytes[..]),
            };
            match self.extent_node(bytes, block, place)?.find(logical) {
                Found::Run(run) => return Ok(run),
                Found::Child(block, below) => {
                    held = Some((block, self.volume.block(block)?));
                    place = below;
                }
            }
        }
    }

    /// Takes in what `node` and those below hold, in order: at most six deep.
    fn collect(&self, node: &Node<'_>, builder: &mut Builder) -> Result<ControlFlow<()>> {
        if node.extents().any(|extent| builder.push(&extent).is_break()) {
            return Ok(ControlFlow::Break(()));
        }
        for (block, place) in node.children() {
            let Some(left) = builder.nodes_left.checked_sub(1) else {
                return Ok(ControlFlow::Break(()));
            };
            builder.nodes_left = left;
            let bytes = self.volume.block(block)?;
            let child = self.extent_node(&bytes, Some(block), place)?;
            if self.collect(&child, builder)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn check_pointer(&self, start: u64, blocks: u64, from: Option<u64>) -> Result<()> {
        if self.volume.superblock().holds(start, blocks) {
            Ok(())
        } else {
            Err(Corruption::at(Defect::BlockPointer, self.inode.ino(), from).into())
        }
    }

    /// The table of pointers in `block`, on level `level` of the way.
    fn table(&self, tables: &mut Tables, level: usize, block: u64) -> Result<Arc<[u8]>> {
        if let Some((number, table)) = &tables.held[level]
            && *number == block
        {
            return Ok(Arc::clone(table));
        }
        let table = self.volume.block(block)?;
        tables.reads += 1;
        tables.held[level] = Some((block, Arc::clone(&table)));
        Ok(table)
    }

    fn block_map_run(&self, logical: u64, tables: &mut Tables) -> Result<Run> {
        let pointers = u64::from(self.volume.superblock().block_bytes()) / 4;
        let to_end = LOGICAL_BLOCKS - logical;
        let Some(path) = block_map::path(logical, pointers) else { return Ok(Run::hole(to_end)) };
        let (mut from, mut table) = (None, None::<Arc<[u8]>>);
        for (at, slot) in path.slots.iter().enumerate().take(path.depth) {
            let below = path.depth - 1 - at;
            let last = below == 0;
            let slots = match &table {
                // The first twelve pointers of the inode lead to data, the other three do not go on
                // from them, nor from one another.
                None if last => &self.inode.block_area()[..4 * block_map::DIRECT],
                None => &self.inode.block_area()[4 * *slot..][..4],
                Some(table) => &table[..],
            };
            let slot = if table.is_none() && !last { 0 } else { *slot };
            let (pointer, count) = block_map::consecutive(slots, slot, last);
            if pointer == 0 {
                let span = block_map::span(pointers, below);
                let into = (at + 1..path.depth)
                    .map(|level| {
                        path.slots[level] as u64 * block_map::span(pointers, path.depth - 1 - level)
                    })
                    .sum::<u64>();
                return Ok(Run::hole((count * span - into).min(to_end)));
            }
            if last {
                // Where the whole run does not fit, its first block may.
                let blocks = if self.volume.superblock().holds(pointer, count) { count } else { 1 };
                self.check_pointer(pointer, blocks, from)?;
                return Ok(Run {
                    physical: pointer,
                    blocks: blocks.min(to_end),
                    state: RunState::Written,
                });
            }
            self.check_pointer(pointer, 1, from)?;
            table = Some(self.table(tables, at, pointer)?);
            from = Some(pointer);
        }
        // Not reached: the last step returned.
        Ok(Run::hole(1))
    }

    /// A block map holds nothing beyond the file's size.
    fn collect_block_map(&self, builder: &mut Builder) -> Result<ControlFlow<()>> {
        let end = self
            .inode
            .size()
            .div_ceil(u64::from(self.volume.superblock().block_bytes()))
            .min(LOGICAL_BLOCKS);
        let mut tables = Tables::default();
        while builder.seen < end {
            let logical = builder.seen;
            let run = self.block_map_run(logical, &mut tables)?;
            if tables.reads > MAX_NODES {
                return Ok(ControlFlow::Break(()));
            }
            let blocks = run.blocks.clamp(1, LOGICAL_BLOCKS - logical);
            if run.state == RunState::Hole {
                builder.seen += blocks;
                continue;
            }
            let (Ok(logical), Ok(blocks)) = (u32::try_from(logical), u32::try_from(blocks)) else {
                return Ok(ControlFlow::Break(()));
            };
            let next = MappedExtent { logical, blocks, physical: run.physical, unwritten: false };
            if builder.push(&next).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
