//! Nodes of extent trees (kernel documentation: `filesystems/ext4/ifork.rst`; e2fsprogs:
//! `ext3_extents.h`).

use std::ops::Range;

use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32};

use super::checksum::crc32c;
use super::extent_map::{MappedExtent, Run};
use super::superblock::Superblock;
use crate::Defect;

/// `eh_magic`.
pub(super) const MAGIC: u16 = 0xF30A;
/// The greatest depth of a tree (EXT4_MAX_EXTENT_DEPTH).
pub const MAX_DEPTH: u16 = 5;
/// The header of an inode's extent root without extents: magic number, 0 of 4 entries, depth 0.
pub const EMPTY_ROOT: [u8; 8] = [0x0A, 0xF3, 0, 0, 4, 0, 0, 0];
/// The maximum number of logical blocks of a file.
pub const LOGICAL_BLOCKS: u64 = 1 << 32;
/// The longest written extent, in blocks (EXT_INIT_MAX_LEN). A greater length marks an unwritten
/// extent, which is this much shorter.
pub(super) const MAX_WRITTEN_BLOCKS: u16 = 0x8000;

on_disk! {
    pub(super) struct RawHeader, 12, Copy {
        0 magic: U16,
        2 entries: U16,
        4 max: U16,
        6 depth: U16,
        8 generation: U32,
    }
    /// `struct ext3_extent_idx`.
    pub(super) struct RawIndex, 12, Copy {
        0 block: U32,
        4 leaf_lo: U32,
        8 leaf_hi: U16,
        10 unused: U16,
    }
    /// `struct ext3_extent`.
    pub(super) struct RawExtent, 12, Copy {
        0 block: U32,
        4 len: U16,
        6 start_hi: U16,
        8 start_lo: U32,
    }
}

pub(super) const ENTRY_BYTES: usize = size_of::<RawExtent>();
pub(super) const TAIL_BYTES: usize = 4;

impl RawIndex {
    /// Returns an entry for the node in `child`, whose first logical block is `first`.
    pub(super) fn new(first: u32, child: u64) -> Self {
        Self {
            block: U32::new(first),
            leaf_lo: U32::new(child as u32),
            leaf_hi: U16::new((child >> 32) as u16),
            unused: U16::ZERO,
        }
    }

    fn first(&self) -> u64 {
        u64::from(self.block.get())
    }

    pub(super) fn child(&self) -> u64 {
        u64::from(self.leaf_lo.get()) | u64::from(self.leaf_hi.get()) << 32
    }
}

impl RawExtent {
    fn first(&self) -> u64 {
        u64::from(self.block.get())
    }

    fn blocks(&self) -> u16 {
        let len = self.len.get();
        if len > MAX_WRITTEN_BLOCKS { len - MAX_WRITTEN_BLOCKS } else { len }
    }

    fn end(&self) -> u64 {
        self.first() + u64::from(self.blocks())
    }

    /// Returns the entry for `extent`, whose length must be valid.
    pub(super) fn new(extent: &MappedExtent) -> Self {
        let unwritten = if extent.unwritten { MAX_WRITTEN_BLOCKS } else { 0 };
        Self {
            block: U32::new(extent.logical),
            len: U16::new(extent.blocks as u16 + unwritten),
            start_hi: U16::new((extent.physical >> 32) as u16),
            start_lo: U32::new(extent.physical as u32),
        }
    }

    pub(super) fn mapped(&self) -> MappedExtent {
        MappedExtent {
            logical: self.block.get(),
            blocks: u32::from(self.blocks()),
            physical: u64::from(self.start_lo.get()) | u64::from(self.start_hi.get()) << 32,
            unwritten: self.len.get() > MAX_WRITTEN_BLOCKS,
        }
    }
}

/// A node's place in its tree, according to its parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePlace {
    /// Its depth, which is 0 for a leaf. It is `None` for the root, which stores its depth.
    pub depth: Option<u16>,
    /// The logical blocks that it covers.
    pub range: Range<u64>,
}

impl NodePlace {
    /// Returns the place of the root.
    pub fn root() -> Self {
        Self { depth: None, range: 0..LOGICAL_BLOCKS }
    }
}

/// The result of a search in a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// The block is in this run.
    Run(Run),
    /// The search continues in the node in this block.
    Child(u64, NodePlace),
}

/// A sound node: its entries are in order, within its range, and point into the file system.
#[derive(Debug)]
pub struct Node<'a> {
    range: Range<u64>,
    entries: Entries<'a>,
}

#[derive(Debug)]
enum Entries<'a> {
    Index(u16, &'a [RawIndex]),
    Leaf(&'a [RawExtent]),
}

/// Returns whether the checksum at the end of the node `bytes` is right, or `None` if its header is
/// too damaged to locate it.
pub fn checksum_is_right(seed: u32, bytes: &[u8]) -> Option<bool> {
    let (header, _) = RawHeader::read_from_prefix(bytes).ok()?;
    let at = ENTRY_BYTES * (1 + usize::from(header.max.get()));
    let tail = bytes.get(at..at + TAIL_BYTES)?;
    Some(crc32c(seed, &bytes[..at]).to_le_bytes() == *tail)
}

impl<'a> Node<'a> {
    /// Reads the node in `bytes`: a block, or an inode's `i_block`.
    ///
    /// # Errors
    /// [`Defect::ExtentHeader`], [`Defect::ExtentOrder`] or [`Defect::BlockPointer`].
    pub fn parse(
        superblock: &Superblock,
        bytes: &'a [u8],
        place: NodePlace,
    ) -> Result<Self, Defect> {
        let (header, rest) =
            RawHeader::read_from_prefix(bytes).map_err(|_| Defect::ExtentHeader)?;
        let (count, depth) = (usize::from(header.entries.get()), header.depth.get());
        let max = usize::from(header.max.get());
        let sound = header.magic.get() == MAGIC
            && depth <= MAX_DEPTH
            && place.depth.is_none_or(|expected| expected == depth)
            && max > 0
            && max <= rest.len() / ENTRY_BYTES
            && count <= max
            // Only an empty file has an empty node.
            && (count > 0 || (place.depth.is_none() && depth == 0));
        if !sound {
            return Err(Defect::ExtentHeader);
        }
        let rest = bytes.get(ENTRY_BYTES..).unwrap_or_default();
        let entries = if depth == 0 {
            let (extents, _) = <[RawExtent]>::ref_from_prefix_with_elems(rest, count)
                .map_err(|_| Defect::ExtentHeader)?;
            Entries::Leaf(extents)
        } else {
            let (indexes, _) = <[RawIndex]>::ref_from_prefix_with_elems(rest, count)
                .map_err(|_| Defect::ExtentHeader)?;
            Entries::Index(depth, indexes)
        };
        let node = Self { range: place.range, entries };
        // A parent stores the first block of its child.
        let first = match &node.entries {
            Entries::Leaf(extents) => extents.first().map(RawExtent::first),
            Entries::Index(_, indexes) => indexes.first().map(RawIndex::first),
        };
        if place.depth.is_some() && first != Some(node.range.start) {
            return Err(Defect::ExtentOrder);
        }
        node.check(superblock)?;
        Ok(node)
    }

    fn check(&self, superblock: &Superblock) -> Result<(), Defect> {
        let mut from = self.range.start;
        match self.entries {
            Entries::Leaf(extents) => {
                for extent in extents {
                    if extent.blocks() == 0
                        || extent.first() < from
                        || extent.end() > self.range.end
                    {
                        return Err(Defect::ExtentOrder);
                    }
                    if !superblock.holds(extent.mapped().physical, u64::from(extent.blocks())) {
                        return Err(Defect::BlockPointer);
                    }
                    from = extent.end();
                }
            }
            Entries::Index(_, indexes) => {
                for index in indexes {
                    if index.first() < from || index.first() >= self.range.end {
                        return Err(Defect::ExtentOrder);
                    }
                    if !superblock.holds(index.child(), 1) {
                        return Err(Defect::BlockPointer);
                    }
                    from = index.first() + 1;
                }
            }
        }
        Ok(())
    }

    /// Looks up logical block `logical`, which is in the node's range.
    pub fn find(&self, logical: u64) -> Found {
        match self.entries {
            Entries::Leaf(extents) => {
                let after = extents.partition_point(|extent| extent.first() <= logical);
                let end = extents.get(after).map_or(self.range.end, RawExtent::first);
                let before = after.checked_sub(1).and_then(|before| extents.get(before));
                let run = before.and_then(|extent| extent.mapped().run_at(logical));
                Found::Run(run.unwrap_or_else(|| Run::hole(end.saturating_sub(logical))))
            }
            Entries::Index(_, indexes) => {
                let after = indexes.partition_point(|index| index.first() <= logical);
                match after.checked_sub(1).and_then(|before| self.children().nth(before)) {
                    Some((block, place)) => Found::Child(block, place),
                    // The block is before the first entry, so it is in a hole.
                    None => {
                        let first = indexes.first().map_or(self.range.end, RawIndex::first);
                        Found::Run(Run::hole(first.saturating_sub(logical)))
                    }
                }
            }
        }
    }

    /// Returns the index entry nearest to logical block `logical`, which may precede all of them:
    /// its slot, and the block and place of its node. Returns `None` in a leaf.
    pub fn child_near(&self, logical: u64) -> Option<(usize, u64, NodePlace)> {
        let Entries::Index(_, indexes) = self.entries else { return None };
        let slot = indexes.partition_point(|index| index.first() <= logical).saturating_sub(1);
        self.children().nth(slot).map(|(block, place)| (slot, block, place))
    }

    /// Returns the extents of a leaf, in order.
    pub fn extents(&self) -> impl Iterator<Item = MappedExtent> + '_ {
        let extents = match self.entries {
            Entries::Leaf(extents) => extents,
            Entries::Index(..) => &[],
        };
        extents.iter().map(RawExtent::mapped)
    }

    /// Returns the blocks of the child nodes, in order, and their places.
    pub fn children(&self) -> impl Iterator<Item = (u64, NodePlace)> + '_ {
        let (depth, indexes): (u16, &[RawIndex]) = match self.entries {
            Entries::Leaf(_) => (1, &[]),
            Entries::Index(depth, indexes) => (depth, indexes),
        };
        indexes.iter().enumerate().map(move |(at, index)| {
            let end = indexes.get(at + 1).map_or(self.range.end, RawIndex::first);
            (index.child(), NodePlace { depth: Some(depth - 1), range: index.first()..end })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::superblock::tests::example;

    fn header(entries: u16, max: u16, depth: u16) -> Vec<u8> {
        let fields = [MAGIC, entries, max, depth, 0, 0];
        fields.iter().flat_map(|field| field.to_le_bytes()).collect()
    }

    /// Returns a leaf in a block of 1 KiB.
    fn leaf(extents: &[(u32, u16, u32)]) -> Vec<u8> {
        let mut bytes = header(extents.len() as u16, 84, 0);
        for (logical, len, physical) in extents {
            bytes.extend(logical.to_le_bytes());
            bytes.extend(len.to_le_bytes());
            bytes.extend([0; 2]);
            bytes.extend(physical.to_le_bytes());
        }
        bytes.resize(1024, 0);
        bytes
    }

    fn index(depth: u16, children: &[(u32, u32)]) -> Vec<u8> {
        let mut bytes = header(children.len() as u16, 84, depth);
        for (logical, child) in children {
            bytes.extend(logical.to_le_bytes());
            bytes.extend(child.to_le_bytes());
            bytes.extend([0; 4]);
        }
        bytes.resize(1024, 0);
        bytes
    }

    fn defect(bytes: &[u8], place: NodePlace) -> Option<Defect> {
        Node::parse(&example(), bytes, place).err()
    }

    #[test]
    fn a_leaf_maps_blocks() {
        let (superblock, bytes) =
            (example(), leaf(&[(10, 5, 100), (20, 0x8000 + 3, 200), (23, 1, 300)]));
        let node = Node::parse(&superblock, &bytes, NodePlace::root()).unwrap();
        let at = |logical| match node.find(logical) {
            Found::Run(run) => (run.physical, run.blocks, run.state),
            Found::Child(..) => panic!("a leaf has no children"),
        };
        use super::super::extent_map::RunState::{Hole, Unwritten, Written};
        assert_eq!(at(0), (0, 10, Hole));
        assert_eq!(at(10), (100, 5, Written));
        assert_eq!(at(14), (104, 1, Written));
        assert_eq!(at(15), (0, 5, Hole));
        assert_eq!(at(21), (201, 2, Unwritten));
        assert_eq!(at(23), (300, 1, Written));
        assert_eq!(at(24), (0, LOGICAL_BLOCKS - 24, Hole));
        // These are the longest written extent, and the shortest unwritten one.
        let lengths = leaf(&[(0, 0x8000, 100), (0x8000, 0x8001, 200)]);
        let node = Node::parse(&superblock, &lengths, NodePlace::root()).unwrap();
        let found: Vec<_> =
            node.extents().map(|extent| (extent.blocks, extent.unwritten)).collect();
        assert_eq!(found, [(0x8000, false), (1, true)]);
    }

    #[test]
    fn an_index_gives_its_children_ranges() {
        let (superblock, bytes) = (example(), index(2, &[(5, 100), (50, 101)]));
        let node = Node::parse(&superblock, &bytes, NodePlace::root()).unwrap();
        assert_eq!(node.find(4), Found::Run(Run::hole(1)));
        let first = NodePlace { depth: Some(1), range: 5..50 };
        assert_eq!(node.find(5), Found::Child(100, first.clone()));
        assert_eq!(node.find(49), Found::Child(100, first.clone()));
        assert_eq!(
            node.find(50),
            Found::Child(101, NodePlace { depth: Some(1), range: 50..LOGICAL_BLOCKS })
        );
        // This checks the range of a child.
        assert_eq!(defect(&index(1, &[(5, 7), (49, 8)]), first.clone()), None);
        assert_eq!(defect(&index(1, &[(6, 7)]), first.clone()), Some(Defect::ExtentOrder));
        assert_eq!(defect(&index(1, &[(5, 7), (50, 8)]), first.clone()), Some(Defect::ExtentOrder));
        assert_eq!(defect(&index(2, &[(5, 7)]), first.clone()), Some(Defect::ExtentHeader));
        assert_eq!(defect(&leaf(&[(5, 7, 7)]), first), Some(Defect::ExtentHeader));
        let below = || NodePlace { depth: Some(0), range: 5..50 };
        assert_eq!(defect(&leaf(&[(5, 45, 7)]), below()), None);
        assert_eq!(defect(&leaf(&[(5, 46, 7)]), below()), Some(Defect::ExtentOrder));
        assert_eq!(defect(&leaf(&[]), below()), Some(Defect::ExtentHeader));
    }

    #[test]
    fn invalid_nodes_are_refused() {
        let root = NodePlace::root;
        assert_eq!(defect(&leaf(&[]), root()), None);
        assert_eq!(defect(&index(1, &[]), root()), Some(Defect::ExtentHeader));
        assert_eq!(defect(&index(6, &[(0, 5)]), root()), Some(Defect::ExtentHeader));
        let mut wrong = leaf(&[(0, 1, 5)]);
        wrong[0] = 0;
        assert_eq!(defect(&wrong, root()), Some(Defect::ExtentHeader));
        assert_eq!(defect(&leaf(&[(0, 1, 5)])[..20], root()), Some(Defect::ExtentHeader));
        assert_eq!(defect(&[], root()), Some(Defect::ExtentHeader));
        for (entries, max) in [(85, 85), (2, 1), (0, 0)] {
            let mut bytes = header(entries, max, 0);
            bytes.resize(1024, 0);
            assert_eq!(defect(&bytes, root()), Some(Defect::ExtentHeader));
        }
        assert_eq!(defect(&leaf(&[(0, 0, 5)]), root()), Some(Defect::ExtentOrder));
        assert_eq!(defect(&leaf(&[(9, 1, 5), (8, 1, 9)]), root()), Some(Defect::ExtentOrder));
        assert_eq!(defect(&leaf(&[(8, 2, 5), (9, 1, 9)]), root()), Some(Defect::ExtentOrder));
        assert_eq!(defect(&leaf(&[(u32::MAX, 1, 5)]), root()), None);
        assert_eq!(defect(&leaf(&[(u32::MAX, 2, 5)]), root()), Some(Defect::ExtentOrder));
        // The example has 65,536 blocks, and its first one belongs to no file.
        assert_eq!(defect(&leaf(&[(0, 1, 65_535)]), root()), None);
        assert_eq!(defect(&leaf(&[(0, 2, 65_535)]), root()), Some(Defect::BlockPointer));
        assert_eq!(defect(&leaf(&[(0, 1, 1)]), root()), Some(Defect::BlockPointer));
        assert_eq!(defect(&index(1, &[(0, 1)]), root()), Some(Defect::BlockPointer));
        assert_eq!(defect(&index(1, &[(0, 65_536)]), root()), Some(Defect::BlockPointer));
    }

    #[test]
    fn the_checksum_lies_after_the_last_possible_entry() {
        let mut bytes = leaf(&[(0, 1, 5)]);
        let at = 12 * 85;
        let right = crc32c(7, &bytes[..at]).to_le_bytes();
        bytes[at..at + 4].copy_from_slice(&right);
        assert_eq!(checksum_is_right(7, &bytes), Some(true));
        assert_eq!(checksum_is_right(8, &bytes), Some(false));
        bytes[4] = 85;
        assert_eq!(checksum_is_right(7, &bytes), None);
        assert_eq!(checksum_is_right(7, &[]), None);
    }
}
