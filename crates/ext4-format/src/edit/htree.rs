//! Edits of a directory's hash tree, and splits of leaves (kernel: `fs/ext4/namei.c`).

use super::super::checksum::crc32c;
use super::super::dirent::{DirectoryShape, Dirents};
use super::super::htree::{BLOCK_MASK, IndexNode, NODE_START, ROOT_START, TAIL_BYTES};
use super::dirent::{self, NewEntry, entry_bytes, names_bytes};
use crate::error::Defect;

/// The length of an entry.
const ENTRY_BYTES: usize = 8;

/// The kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    /// The first block, with `.` and `..`.
    Root,
    /// Any other node.
    Inner,
}

impl NodeKind {
    fn start(self) -> usize {
        match self {
            Self::Root => ROOT_START,
            Self::Inner => NODE_START,
        }
    }

    /// Returns the maximum number of entries of such a node.
    pub fn limit(self, shape: DirectoryShape) -> usize {
        let tail_bytes = if shape.checksums { TAIL_BYTES } else { 0 };
        (shape.block_bytes - self.start() - tail_bytes) / ENTRY_BYTES
    }
}

/// An index entry. Names with this hash and above are in a block of the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexEntry {
    /// The hash. Its lowest bit is set if names of this hash are in the previous block, too. It is
    /// not used in the first entry.
    pub hash: u32,
    /// A block of the directory.
    pub block: u32,
}

/// Returns the entries of `node`.
pub fn entries(node: &IndexNode) -> Vec<IndexEntry> {
    (0..node.count())
        .map(|index| IndexEntry { hash: node.hash(index), block: node.child(index) })
        .collect()
}

/// Writes `entries` to a node, and its checksum if enabled. `seed` is the directory's.
///
/// # Errors
/// [`Defect::HashTree`] if there are no entries or too many, or if the block is too short.
pub fn write_entries(
    block: &mut [u8],
    kind: NodeKind,
    shape: DirectoryShape,
    seed: u32,
    entries: &[IndexEntry],
) -> Result<(), Defect> {
    let limit = kind.limit(shape);
    if entries.is_empty() || entries.len() > limit || block.len() != shape.block_bytes {
        return Err(Defect::HashTree);
    }
    let start = kind.start();
    block[start..].fill(0);
    for (place, entry) in block[start..].chunks_exact_mut(ENTRY_BYTES).zip(entries) {
        place[..4].copy_from_slice(&entry.hash.to_le_bytes());
        place[4..].copy_from_slice(&(entry.block & BLOCK_MASK).to_le_bytes());
    }
    // These are stored instead of the first entry's hash (`struct dx_countlimit`). Both are at most
    // 8191.
    block[start..start + 2].copy_from_slice(&(limit as u16).to_le_bytes());
    block[start + 2..start + 4].copy_from_slice(&(entries.len() as u16).to_le_bytes());
    seal(block, kind, shape, seed, entries.len());
    Ok(())
}

fn seal(block: &mut [u8], kind: NodeKind, shape: DirectoryShape, seed: u32, count: usize) {
    if shape.checksums {
        let at = kind.start() + kind.limit(shape) * ENTRY_BYTES;
        // The four reserved bytes before the checksum, and the checksum itself, count as zeroes.
        let sum = crc32c(crc32c(seed, &block[..kind.start() + count * ENTRY_BYTES]), &[0; 8]);
        block[at..at + 4].fill(0);
        block[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Writes the checksum of a root whose `..` was changed.
///
/// # Errors
/// [`Defect::HashTree`] if its counts are invalid.
pub fn seal_root(block: &mut [u8], shape: DirectoryShape, seed: u32) -> Result<(), Defect> {
    let field =
        |at| block.get(at..at + 2).map(|bytes| usize::from(bytes[0]) | usize::from(bytes[1]) << 8);
    let limit = NodeKind::Root.limit(shape);
    let count = field(ROOT_START + 2).filter(|count| (1..=limit).contains(count));
    let count =
        count.filter(|_| field(ROOT_START) == Some(limit) && block.len() == shape.block_bytes);
    seal(block, NodeKind::Root, shape, seed, count.ok_or(Defect::HashTree)?);
    Ok(())
}

/// Makes `block` an inner node.
///
/// # Errors
/// [`Defect::HashTree`] if there are no entries or too many, or if the block is too short.
pub fn write_inner(
    block: &mut [u8],
    shape: DirectoryShape,
    seed: u32,
    entries: &[IndexEntry],
) -> Result<(), Defect> {
    block.fill(0);
    // Readers that do not know the tree see an unused entry of the whole block.
    dirent::put(block, 0, shape.block_bytes, None, shape);
    write_entries(block, NodeKind::Inner, shape, seed, entries)
}

/// The content of the first block of an indexed directory.
#[derive(Debug, Clone, Copy)]
pub struct RootContent<'a> {
    /// The entry `.`.
    pub dot: NewEntry<'a>,
    /// The entry `..`.
    pub dot_dot: NewEntry<'a>,
    /// The hash function of the tree (`DX_HASH_*`, without the sign of `char`).
    pub hash_version: u8,
    /// Levels of nodes between root and leaves.
    pub levels: u8,
}

/// Makes `block` the root of a tree.
///
/// # Errors
/// [`Defect::HashTree`] if there are no entries or too many, or if the block is too short.
pub fn write_root(
    block: &mut [u8],
    shape: DirectoryShape,
    seed: u32,
    root: RootContent<'_>,
    entries: &[IndexEntry],
) -> Result<(), Defect> {
    block.fill(0);
    dirent::put(block, 0, 12, Some(root.dot), shape);
    dirent::put(block, 12, shape.block_bytes - 12, Some(root.dot_dot), shape);
    // `struct dx_root_info` has four bytes of zero, the version, its own length, the levels, and
    // flags.
    block[ROOT_START - 8..ROOT_START].copy_from_slice(&[
        0,
        0,
        0,
        0,
        root.hash_version,
        8,
        root.levels,
        0,
    ]);
    write_entries(block, NodeKind::Root, shape, seed, entries)
}

/// Replaces a root's entries, and sets the levels of nodes between root and leaves.
///
/// # Errors
/// [`Defect::HashTree`] if there are no entries or too many, or if the block is too short.
pub fn deepen(
    block: &mut [u8],
    shape: DirectoryShape,
    seed: u32,
    levels: u8,
    entries: &[IndexEntry],
) -> Result<(), Defect> {
    *block.get_mut(ROOT_START - 2).ok_or(Defect::HashTree)? = levels;
    write_entries(block, NodeKind::Root, shape, seed, entries)
}

/// A split leaf.
#[derive(Debug)]
pub struct LeafSplit {
    /// The new content of the leaf.
    pub low: Vec<u8>,
    /// The content of the new leaf after it.
    pub high: Vec<u8>,
    /// The lowest hash in the new leaf. Its lowest bit is set if names of that hash remain in the
    /// old one.
    pub hash: u32,
}

/// Splits the names of a leaf by hash into halves of about equal size. There must be at least two
/// names.
///
/// # Errors
/// [`Defect::DirectoryEntry`], also if there are fewer than two names.
pub fn split_leaf(
    block: &[u8],
    shape: DirectoryShape,
    seed: u32,
    hash: impl Fn(&[u8]) -> u32,
) -> Result<LeafSplit, Defect> {
    let mut names = Vec::new();
    for entry in Dirents::new(block.get(..names_bytes(shape)).ok_or(Defect::DirectoryEntry)?, shape)
    {
        let entry = entry?;
        if entry.ino != 0 {
            let kept = NewEntry { ino: entry.ino, file_type: entry.file_type, name: entry.name };
            names.push((hash(entry.name), kept));
        }
    }
    if names.len() < 2 {
        return Err(Defect::DirectoryEntry);
    }
    names.sort_by_key(|(hash, _)| *hash);
    // This chooses the split with the least difference. Neither half exceeds half of a block plus
    // half of a name, so another name fits into either.
    let bytes = |(_, entry): &(u32, NewEntry<'_>)| entry_bytes(entry.name.len());
    let all_bytes: usize = names.iter().map(bytes).sum();
    let (mut split, mut low_bytes, mut least) = (1, 0, usize::MAX);
    for (index, name) in names[..names.len() - 1].iter().enumerate() {
        low_bytes += bytes(name);
        let difference = low_bytes.abs_diff(all_bytes - low_bytes);
        if difference < least {
            (split, least) = (index + 1, difference);
        }
    }
    let first = names[split].0;
    let goes_on = names[split - 1].0 == first;
    let packed = |part: &[(u32, NewEntry<'_>)]| {
        let mut half = vec![0; shape.block_bytes];
        let all: Vec<_> = part.iter().map(|(_, entry)| *entry).collect();
        dirent::fill(&mut half, shape, &all)?;
        dirent::seal(&mut half, shape, seed);
        Ok(half)
    };
    let (low, high) = names.split_at(split);
    Ok(LeafSplit { low: packed(low)?, high: packed(high)?, hash: first | u32::from(goes_on) })
}

#[cfg(test)]
mod tests {
    use super::super::super::dirent::tests::SHAPE;
    use super::super::super::dirent::{find, leaf_checksum_is_right};
    use super::super::super::htree::{IndexRoot, index_checksum_is_right};
    use super::*;
    use crate::FileType;

    fn entry(ino: u32, name: &[u8]) -> NewEntry<'_> {
        NewEntry { ino, file_type: Some(FileType::Directory), name }
    }

    #[test]
    fn limits_are_the_kernels() {
        let shape = |block_bytes, checksums| DirectoryShape { block_bytes, checksums, ..SHAPE };
        let limits = |shape| (NodeKind::Root.limit(shape), NodeKind::Inner.limit(shape));
        assert_eq!(limits(shape(4096, true)), (507, 510));
        assert_eq!(limits(shape(4096, false)), (508, 511));
        assert_eq!(limits(shape(1024, true)), (123, 126));
        assert_eq!(limits(shape(65_536, true)), (8187, 8190));
    }

    #[test]
    fn written_nodes_are_read() {
        for block_bytes in [1024, 4096, 65_536] {
            let shape = DirectoryShape { block_bytes, ..SHAPE };
            let most = NodeKind::Inner.limit(shape);
            let all: Vec<_> =
                (0..most as u32).map(|at| IndexEntry { hash: at * 4, block: at + 1 }).collect();
            let mut block = vec![0xAA; block_bytes];
            write_inner(&mut block, shape, 9, &all).unwrap();
            assert!(index_checksum_is_right(&block, false, 9));
            let node = IndexNode::parse(block.clone().into(), shape).unwrap();
            assert_eq!(entries(&node), all);
            let content = RootContent {
                dot: entry(11, b"."),
                dot_dot: entry(2, b".."),
                hash_version: 2,
                levels: 1,
            };
            assert_eq!(write_root(&mut block, shape, 9, content, &all), Err(Defect::HashTree));
            assert_eq!(write_root(&mut block, shape, 9, content, &[]), Err(Defect::HashTree));
            write_root(&mut block, shape, 9, content, &all[..3]).unwrap();
            assert!(index_checksum_is_right(&block, true, 9));
            let root = IndexRoot::parse(block.clone().into(), shape).unwrap();
            assert_eq!(
                (root.hash_version, root.levels, entries(&root.node)),
                (2, 1, all[..3].to_vec())
            );
            let (named, slot) = find(&block, shape, b"..").unwrap().unwrap();
            assert_eq!(named.0, 2);
            dirent::replace(&mut block, shape, slot, (77, Some(FileType::Directory)));
            assert!(!index_checksum_is_right(&block, true, 9));
            seal_root(&mut block, shape, 9).unwrap();
            assert!(index_checksum_is_right(&block, true, 9));
            assert_eq!(find(&block, shape, b"..").unwrap().unwrap().0.0, 77);
        }
    }

    #[test]
    fn a_leaf_is_split_by_bytes() {
        // The hashes are made from the first byte. There are two long names and many short ones.
        let by_first = |name: &[u8]| u32::from(name[0]) * 2;
        let long = [b'a'; 200];
        let mut block = vec![0; 1024];
        let mut all = vec![entry(1, b"zz"), entry(2, &long)];
        let short: Vec<_> = (0..20).map(|at| [b'c' + at]).collect();
        all.extend(short.iter().map(|name| entry(3, name)));
        dirent::fill(&mut block, SHAPE, &all).unwrap();
        let split = split_leaf(&block, SHAPE, 5, by_first).unwrap();
        assert!(leaf_checksum_is_right(&split.low, 5) && leaf_checksum_is_right(&split.high, 5));
        let mut seen = 0;
        for (half, is_high) in [(&split.low, false), (&split.high, true)] {
            for found in Dirents::new(&half[..1012], SHAPE) {
                let found = found.unwrap();
                assert_eq!(by_first(found.name) >= split.hash, is_high);
                seen += 1;
            }
        }
        assert_eq!(seen, all.len());
    }

    #[test]
    fn equal_hashes_continue_in_the_new_leaf() {
        let names: Vec<_> = (0..60_u8).map(|at| [at + b'A', b'x', b'y', b'z']).collect();
        let all: Vec<_> = names.iter().map(|name| entry(7, name)).collect();
        let mut block = vec![0; 1024];
        dirent::fill(&mut block, SHAPE, &all).unwrap();
        let split = split_leaf(&block, SHAPE, 5, |_| 40).unwrap();
        assert_eq!(split.hash, 41);
        assert!(Dirents::new(&split.low[..1012], SHAPE).count() > 10);
        assert!(Dirents::new(&split.high[..1012], SHAPE).count() > 10);
        let split = split_leaf(&block, SHAPE, 5, |name| u32::from(name[0]) * 2).unwrap();
        assert_eq!(split.hash & 1, 0);
        dirent::fill(&mut block, SHAPE, &all[..1]).unwrap();
        assert!(split_leaf(&block, SHAPE, 5, |_| 40).is_err());
    }
}
