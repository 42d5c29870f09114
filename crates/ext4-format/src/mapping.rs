//! The mapping of a file's blocks, by extent trees or block maps.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::block_map;
use super::extent_map::{Builder, ExtentMap, MAX_NODES, MappedExtent, Run, RunState};
use super::extents::{self, Found, LOGICAL_BLOCKS, Node, NodePlace};
use super::inode::{Inode, flags};
use super::source::Source;
use super::volume::Volume;
use crate::{Corruption, Defect, Error, Result};

/// A callback for blocks.
type Visit<'a> = dyn FnMut(u64) -> Result<()> + 'a;

/// The pointer tables on the path to the last block looked up, by level. The next path is mostly
/// the same.
#[derive(Default)]
struct Tables {
    held: [Option<(u64, Arc<[u8]>)>; 3],
    reads: usize,
}

impl<S: Source> Volume<S> {
    /// Returns the run at the file's logical block `logical`, within one node. The following run
    /// may continue it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for encrypted files and the like; [`Error::Invalid`] if the inode has
    /// no blocks (see [`Inode::has_blocks`]); damage, or an error of the source.
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

    /// Returns the extents of the whole file. If there are more than a million (or too many nodes),
    /// it returns only the first ones; see [`ExtentMap::known`].
    ///
    /// # Errors
    /// [`Error::Unsupported`] for encrypted files and the like; [`Error::Invalid`] if the inode has
    /// no blocks; damage, or an error of the source.
    pub fn extent_map(&self, inode: &Inode) -> Result<ExtentMap> {
        Mapped::of(self, inode)?;
        match self.replayed().map(inode.ino()) {
            Some(map) => Ok(ExtentMap::clone(map)),
            None => self.stored_extent_map(inode),
        }
    }

    /// Returns the extents of the whole file without the changes of fast commits.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for encrypted files and the like; [`Error::Invalid`] if the inode has
    /// no blocks; damage, or an error of the source.
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

    /// Calls `visit` with the blocks of `inode`'s extent tree nodes or block map pointers, in
    /// order.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for encrypted files and the like; [`Error::Invalid`] if the inode has
    /// no blocks; [`Defect::BlockShared`] if the map is circular; other damage, an error of the
    /// source, and the errors of `visit`.
    pub fn visit_mapping_blocks(&self, inode: &Inode, visit: &mut Visit<'_>) -> Result<()> {
        let mapped = Mapped::of(self, inode)?;
        // A block can occur only once, so a walk over more blocks than exist is circular.
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

    /// Checks the node in `bytes`, from `block` or from the inode with this number and checksum
    /// seed.
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
            // If the checksum cannot be located, the header is wrong, which is detected below, or
            // merely leaves no room for a checksum.
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
    /// Wraps `inode`, unless its blocks cannot be looked up.
    fn of(volume: &'a Volume<S>, inode: &'a Inode) -> Result<Self> {
        inode.check_supported()?;
        if inode.has_blocks() {
            Ok(Self { volume, inode })
        } else {
            Err(Error::Invalid("the inode's content is not in blocks"))
        }
    }

    /// Returns the root of its extent tree.
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

    /// Parses the node in `bytes`, which came from `block` or from the inode.
    fn extent_node<'b>(
        &self,
        bytes: &'b [u8],
        block: Option<u64>,
        place: NodePlace,
    ) -> Result<Node<'b>> {
        // The root has no checksum.
        let seed = block.map_or(0, |_| self.inode.checksum_seed());
        self.volume.checked_node((self.inode.ino(), seed), bytes, block, place)
    }

    fn extent_run(&self, logical: u64) -> Result<Run> {
        let mut held: Option<(u64, Arc<[u8]>)> = None;
        let mut place = NodePlace::root();
        // Each step goes one level down, and the root is at most at level 5.
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

    /// Collects the extents of `node` and those below, in order. There are at most six levels.
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

    /// Reads the pointer table in `block`, on level `level` of the path.
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
                // The first twelve pointers of the inode lead to data; the other three continue
                // neither them nor one another.
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
                // If the whole run is out of bounds, its first block may not be.
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
        // This is not reached, because the last step returned.
        Ok(Run::hole(1))
    }

    /// Collects the runs of a block map, which has no blocks beyond the file's size.
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
