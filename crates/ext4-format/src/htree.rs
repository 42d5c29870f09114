//! Blocks of a directory's hash tree (kernel documentation: `filesystems/ext4/directory.rst`, "Hash
//! Tree Directories"; `fs/ext4/namei.c`).
//!
//! For an implementation that does not know the tree, its blocks look like directory blocks without
//! names.

use std::sync::Arc;

use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32};

use super::checksum::crc32c;
use super::dirent::{DirectoryShape, record_bytes};
use crate::error::Defect;

/// The valid bits of an entry's block number (`dx_get_block`).
pub(super) const BLOCK_MASK: u32 = 0x0fff_ffff;
/// Offset of the entries of a node: after one directory entry of the whole block.
pub(super) const NODE_START: usize = 8;
/// Offset of the entries of the root: after `.`, `..` and the root's own header.
pub(super) const ROOT_START: usize = 32;
/// Size of the reserved room and checksum after the last entry.
pub(super) const TAIL_BYTES: usize = 8;

on_disk! {
    /// The tree's properties in its root (`struct dx_root_info`).
    struct RootInfo, 8 {
        0 reserved_zero: U32,
        4 hash_version: u8,
        5 info_length: u8,
        6 indirect_levels: u8,
        7 unused_flags: u8,
    }
    /// An entry (`struct dx_entry`); the first one has a [`CountLimit`] in place of its hash.
    struct RawEntry, 8 {
        0 hash: U32,
        4 block: U32,
    }
    /// The number of entries, and the limit (`struct dx_countlimit`).
    struct CountLimit, 4 {
        0 limit: U16,
        2 count: U16,
    }
}

/// A checked node of the tree. It has at least one entry, and no more than fit.
#[derive(Debug, Clone)]
pub struct IndexNode {
    block: Arc<[u8]>,
    start: usize,
    count: usize,
}

/// The root: a node, and the tree's properties.
#[derive(Debug, Clone)]
pub struct IndexRoot {
    /// Its entries.
    pub node: IndexNode,
    /// The hash function of the tree (`DX_HASH_*`, without the sign of `char`).
    pub hash_version: u8,
    /// Levels of nodes between root and leaves.
    pub levels: usize,
}

impl IndexRoot {
    /// Parses the first block of an indexed directory.
    ///
    /// # Errors
    /// [`Defect::HashTree`].
    pub fn parse(block: Arc<[u8]>, shape: DirectoryShape) -> Result<Self, Defect> {
        let (info, _) = block
            .get(ROOT_START - 8..)
            .and_then(|rest| RootInfo::ref_from_prefix(rest).ok())
            .ok_or(Defect::HashTree)?;
        let levels = usize::from(info.indirect_levels);
        let lengths = [record_at(&block, 0, shape), record_at(&block, 12, shape)];
        if lengths != [Some(12), Some(shape.block_bytes - 12)]
            || info.reserved_zero.get() != 0
            || info.info_length != 8
            || info.unused_flags & 1 != 0
            || levels > shape.levels_max()
        {
            return Err(Defect::HashTree);
        }
        let hash_version = info.hash_version;
        let node = IndexNode::at(block, ROOT_START, shape)?;
        Ok(Self { node, hash_version, levels })
    }
}

/// Returns the length of the directory entry at `offset`, in bytes.
fn record_at(block: &[u8], offset: usize, shape: DirectoryShape) -> Option<usize> {
    let bytes = block.get(offset + 4..offset + 6)?;
    Some(record_bytes(u16::from_le_bytes(bytes.try_into().ok()?), shape.block_bytes))
}

/// Returns whether `block` of an indexed directory can be a node of the tree, because it contains
/// one unused entry of its whole length.
pub(crate) fn looks_like_node(block: &[u8], shape: DirectoryShape) -> bool {
    block.get(..4) == Some(&[0; 4]) && record_at(block, 0, shape) == Some(shape.block_bytes)
}

impl IndexNode {
    /// Parses an inner node.
    ///
    /// # Errors
    /// [`Defect::HashTree`].
    pub fn parse(block: Arc<[u8]>, shape: DirectoryShape) -> Result<Self, Defect> {
        if looks_like_node(&block, shape) {
            Self::at(block, NODE_START, shape)
        } else {
            Err(Defect::HashTree)
        }
    }

    fn at(block: Arc<[u8]>, start: usize, shape: DirectoryShape) -> Result<Self, Defect> {
        let room_bytes = shape.block_bytes - start - if shape.checksums { TAIL_BYTES } else { 0 };
        let (numbers, _) = block
            .get(start..)
            .and_then(|rest| CountLimit::ref_from_prefix(rest).ok())
            .ok_or(Defect::HashTree)?;
        let (limit, count) = (usize::from(numbers.limit.get()), usize::from(numbers.count.get()));
        if block.len() != shape.block_bytes
            || limit != room_bytes / 8
            || count == 0
            || count > limit
        {
            return Err(Defect::HashTree);
        }
        Ok(Self { block, start, count })
    }

    fn entries(&self) -> &[RawEntry] {
        // `at` has checked that they lie within the block.
        let bytes = self.block.get(self.start..self.start + self.count * 8).unwrap_or_default();
        <[RawEntry]>::ref_from_bytes(bytes).unwrap_or_default()
    }

    /// Returns the number of entries, which is at least one.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the lowest hash of entry `index`, which is 0 for the first. Its lowest bit is set if
    /// names of that hash are in the previous block, too.
    pub fn hash(&self, index: usize) -> u32 {
        if index == 0 {
            0
        } else {
            self.entries().get(index).map_or(u32::MAX, |entry| entry.hash.get())
        }
    }

    /// Returns the directory block of entry `index`.
    pub fn child(&self, index: usize) -> u32 {
        self.entries().get(index).map_or(BLOCK_MASK, |entry| entry.block.get() & BLOCK_MASK)
    }

    /// Returns whether its entries are in order. Otherwise searches fail.
    pub fn is_sorted(&self) -> bool {
        self.entries().get(1..).unwrap_or_default().is_sorted_by_key(|entry| entry.hash.get())
    }

    /// Returns the entry for names with `hash`, which is the last whose own hash is not above it.
    pub fn find(&self, hash: u32) -> usize {
        let later = self.entries().get(1..).unwrap_or_default();
        later.partition_point(|entry| entry.hash.get() <= hash)
    }
}

/// Returns whether names with `hash` are looked up between two hashes of index entries. `high` is
/// `None` after the last entry.
pub(crate) fn is_between(hash: u32, low: u32, high: Option<u32>) -> bool {
    hash >= low & !1 && high.is_none_or(|high| hash < high & !1 || hash | 1 == high)
}

/// Returns whether the checksum of a root (`is_root`) or another node is right
/// (`ext4_dx_csum_verify`). `seed` is the directory's.
pub(crate) fn index_checksum_is_right(block: &[u8], is_root: bool, seed: u32) -> bool {
    let start = if is_root { ROOT_START } else { NODE_START };
    let Some((numbers, _)) =
        block.get(start..).and_then(|rest| CountLimit::ref_from_prefix(rest).ok())
    else {
        return false;
    };
    let count_bytes = usize::from(numbers.count.get()) * 8;
    let tail = start + usize::from(numbers.limit.get()) * 8;
    let (Some(used), Some(tail)) =
        (block.get(..start + count_bytes), block.get(tail..tail + TAIL_BYTES))
    else {
        return false;
    };
    let sum = crc32c(seed, used);
    let sum = crc32c(sum, &tail[..4]);
    crc32c(sum, &[0; 4]).to_le_bytes() == tail[4..]
}

#[cfg(test)]
mod tests {
    use super::super::dirent::tests::{SHAPE, put};
    use super::*;

    fn node(hashes: &[(u32, u32)], is_root: bool) -> Vec<u8> {
        let mut block = Vec::new();
        if is_root {
            put(&mut block, 2, 12, 2, b".");
            put(&mut block, 2, 1012, 2, b"..");
            block.truncate(24);
            block.extend([0, 0, 0, 0, 1, 8, 1, 0]);
        } else {
            put(&mut block, 0, 1024, 0, b"");
            block.truncate(8);
        }
        let limit = (1024 - block.len() - 8) / 8;
        for (index, (hash, child)) in hashes.iter().enumerate() {
            let hash = if index == 0 { (limit | hashes.len() << 16) as u32 } else { *hash };
            block.extend(hash.to_le_bytes());
            block.extend(child.to_le_bytes());
        }
        let sum = crc32c(crc32c(9, &block), &[0; 8]);
        block.resize(1020, 0);
        block.extend(sum.to_le_bytes());
        block
    }

    #[test]
    fn a_root_and_a_node() {
        let bytes = node(&[(0, 1), (100, 2), (200, 0xf000_0003)], true);
        assert!(
            index_checksum_is_right(&bytes, true, 9) && !index_checksum_is_right(&bytes, true, 8)
        );
        let root = IndexRoot::parse(bytes.into(), SHAPE).unwrap();
        assert_eq!((root.levels, root.hash_version, root.node.count()), (1, 1, 3));
        let found = [0, 99, 100, 199, 200, u32::MAX].map(|hash| root.node.find(hash));
        assert_eq!(found, [0, 0, 1, 1, 2, 2]);
        assert_eq!((root.node.hash(0), root.node.hash(1), root.node.child(2)), (0, 100, 3));
        let bytes = node(&[(0, 4)], false);
        assert!(index_checksum_is_right(&bytes, false, 9));
        assert!(looks_like_node(&bytes, SHAPE));
        assert_eq!(IndexNode::parse(bytes.into(), SHAPE).unwrap().find(7), 0);
    }

    #[test]
    fn invalid_nodes_are_refused() {
        let good = node(&[(0, 1), (100, 2)], true);
        // The bytes are: reserved, the hash tree's header, levels, flags, limit, count 0, and a
        // count above the limit.
        for (at, byte) in
            [(4, 16), (16, 0), (24, 1), (29, 9), (30, 2), (31, 1), (32, 1), (34, 0), (35, 9)]
        {
            let mut block = good.clone();
            block[at] = byte;
            assert_eq!(
                IndexRoot::parse(block.into(), SHAPE).err(),
                Some(Defect::HashTree),
                "byte {at}"
            );
        }
        let large = DirectoryShape { large: true, ..SHAPE };
        let mut block = good.clone();
        block[30] = 2;
        assert_eq!(IndexRoot::parse(block.into(), large).unwrap().levels, 2);
        for bytes in [0, 8, 33, 36, 1023] {
            assert!(IndexRoot::parse(good[..bytes].into(), SHAPE).is_err());
            assert!(IndexNode::parse(good[..bytes].into(), SHAPE).is_err());
            assert!(!index_checksum_is_right(&good[..bytes], true, 9));
        }
    }
}
