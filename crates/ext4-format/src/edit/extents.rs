//! Edits of extent tree nodes.

use std::ops::{Deref, DerefMut, Range};

use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, IntoBytes};

use super::super::checksum::crc32c;
use super::super::extent_map::MappedExtent;
use super::super::extents::{
    ENTRY_BYTES, MAGIC, MAX_WRITTEN_BLOCKS, RawExtent, RawHeader, RawIndex, TAIL_BYTES,
};
use crate::Defect;

type Entry = [u8; ENTRY_BYTES];

/// The bytes of a node: those of a block, or `i_block` of an inode. The node was checked, and slots
/// that the caller names must exist; otherwise the caller has a bug.
#[derive(Debug)]
pub struct NodeEdit<B>(B);

/// Returns the maximum number of blocks of one extent.
pub const fn max_blocks(unwritten: bool) -> u32 {
    MAX_WRITTEN_BLOCKS as u32 - if unwritten { 1 } else { 0 }
}

/// Returns both merged, if `second` continues `first` in the file and on the disk, and one extent
/// can be that long.
pub fn joined(first: &MappedExtent, second: &MappedExtent) -> Option<MappedExtent> {
    first.joined(second).filter(|both| both.blocks <= max_blocks(both.unwritten))
}

impl<B: Deref<Target = [u8]>> NodeEdit<B> {
    /// Wraps the node in `bytes`, which was checked.
    ///
    /// # Errors
    /// [`Defect::ExtentHeader`] if it is not valid.
    pub fn of(bytes: B) -> Result<Self, Defect> {
        let (header, rest) =
            RawHeader::ref_from_prefix(&bytes).map_err(|_| Defect::ExtentHeader)?;
        let (entries, max) = (header.entries.get(), usize::from(header.max.get()));
        let sound = header.magic.get() == MAGIC
            && usize::from(entries) <= max
            && max * ENTRY_BYTES <= rest.len();
        if sound { Ok(Self(bytes)) } else { Err(Defect::ExtentHeader) }
    }

    fn header(&self) -> &RawHeader {
        RawHeader::ref_from_prefix(&self.0).expect("it was there").0
    }

    fn entries(&self) -> &[Entry] {
        &self.0[ENTRY_BYTES..].as_chunks().0[..self.len()]
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        usize::from(self.header().entries.get())
    }

    /// Returns whether the node has no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the node has no room for another entry.
    pub fn is_full(&self) -> bool {
        self.len() >= self.capacity()
    }

    /// Returns the maximum number of entries.
    pub fn capacity(&self) -> usize {
        usize::from(self.header().max.get())
    }

    /// Returns the node's depth, which is 0 for a leaf.
    pub fn depth(&self) -> u16 {
        self.header().depth.get()
    }

    /// Returns the first logical block of entry `at`.
    pub fn first(&self, at: usize) -> u32 {
        let [a, b, c, d, ..] = self.entries()[at];
        u32::from_le_bytes([a, b, c, d])
    }

    /// Returns the first entry that begins after `logical`.
    pub fn slot_after(&self, logical: u64) -> usize {
        self.entries().partition_point(|[a, b, c, d, ..]| {
            u64::from(u32::from_le_bytes([*a, *b, *c, *d])) <= logical
        })
    }

    /// Returns extent `at` of a leaf.
    pub fn extent(&self, at: usize) -> MappedExtent {
        RawExtent::ref_from_bytes(&self.entries()[at]).expect("12 bytes").mapped()
    }

    /// Returns the block of the node below entry `at` of an index.
    pub fn child(&self, at: usize) -> u64 {
        RawIndex::ref_from_bytes(&self.entries()[at]).expect("12 bytes").child()
    }

    /// Returns all bytes of the node.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl<B: DerefMut<Target = [u8]>> NodeEdit<B> {
    /// Formats all of `bytes` as an empty node. They are a block, with room for a checksum, or
    /// `i_block`.
    pub fn format(mut bytes: B, depth: u16) -> Self {
        // e2fsprogs and the kernel expect room for the checksum, which fits anyway, because no
        // block size is a multiple of 12.
        let max = (bytes.len() - ENTRY_BYTES) / ENTRY_BYTES;
        bytes.fill(0);
        let header = RawHeader {
            magic: U16::new(MAGIC),
            max: U16::new(max as u16),
            depth: U16::new(depth),
            ..RawHeader::default()
        };
        bytes[..ENTRY_BYTES].copy_from_slice(header.as_bytes());
        Self(bytes)
    }

    fn header_mut(&mut self) -> &mut RawHeader {
        RawHeader::mut_from_prefix(&mut self.0).expect("it was there").0
    }

    fn room_mut(&mut self) -> &mut [Entry] {
        let capacity = self.capacity();
        &mut self.0[ENTRY_BYTES..].as_chunks_mut().0[..capacity]
    }

    fn set(&mut self, at: usize, entry: &[u8]) {
        let len = self.len();
        self.room_mut()[..len][at].copy_from_slice(entry);
    }

    /// Opens a slot before entry `at`. The node must not be full.
    fn open(&mut self, at: usize) {
        let len = self.len();
        self.room_mut()[..=len].copy_within(at..len, at + 1);
        self.header_mut().entries = U16::new(len as u16 + 1);
    }

    /// Replaces extent `at` of a leaf.
    pub fn set_extent(&mut self, at: usize, extent: &MappedExtent) {
        self.set(at, RawExtent::new(extent).as_bytes());
    }

    /// Inserts `extent` before entry `at` of a leaf that is not full.
    pub fn insert_extent(&mut self, at: usize, extent: &MappedExtent) {
        self.open(at);
        self.set_extent(at, extent);
    }

    /// Inserts an entry for the node in `child`, which begins with logical block `first`, before
    /// entry `at` of an index that is not full.
    pub fn insert_child(&mut self, at: usize, first: u32, child: u64) {
        self.open(at);
        self.set(at, RawIndex::new(first, child).as_bytes());
    }

    /// Sets the first logical block of entry `at` of an index.
    pub fn set_first(&mut self, at: usize, first: u32) {
        let child = self.child(at);
        self.set(at, RawIndex::new(first, child).as_bytes());
    }

    /// Removes entries.
    pub fn remove(&mut self, slots: Range<usize>) {
        let (len, removed) = (self.len(), slots.len());
        let room = self.room_mut();
        room[..len].copy_within(slots.end..len, slots.start);
        room[len - removed..len].fill([0; ENTRY_BYTES]);
        self.header_mut().entries = U16::new((len - removed) as u16);
    }

    /// Inserts `extent` into a leaf before entry `at`, or merges it with its neighbours. Returns
    /// `false` if the leaf is full.
    pub fn put(&mut self, at: usize, extent: &MappedExtent) -> bool {
        let left = at.checked_sub(1).map(|left| self.extent(left));
        let left = left.and_then(|left| joined(&left, extent));
        let right = (at < self.len()).then(|| self.extent(at));
        match (left, right.and_then(|right| joined(left.as_ref().unwrap_or(extent), &right))) {
            (Some(_), Some(all)) => {
                self.set_extent(at - 1, &all);
                self.remove(at..at + 1);
            }
            (Some(both), None) => self.set_extent(at - 1, &both),
            (None, Some(both)) => self.set_extent(at, &both),
            (None, None) if self.is_full() => return false,
            (None, None) => self.insert_extent(at, extent),
        }
        true
    }

    /// Moves all entries from `at` on to the end of `other`, which has room for them.
    pub fn move_from<C: DerefMut<Target = [u8]>>(&mut self, at: usize, other: &mut NodeEdit<C>) {
        let (len, there) = (self.len(), other.len());
        let moved = &self.entries()[at..];
        other.room_mut()[there..there + moved.len()].copy_from_slice(moved);
        other.header_mut().entries = U16::new((there + moved.len()) as u16);
        self.remove(at..len);
    }

    /// Copies the bytes of `other`, which has the same length.
    pub fn copy_from(&mut self, other: &NodeEdit<&[u8]>) {
        self.0.copy_from_slice(other.0);
    }

    /// Sets the depth, which is the number of levels above the leaves.
    pub fn set_depth(&mut self, depth: u16) {
        self.header_mut().depth = U16::new(depth);
    }

    /// Sets the checksum of a node in a block. `seed` is its initial state.
    pub fn seal(&mut self, seed: u32) {
        let at = ENTRY_BYTES * (1 + self.capacity());
        let right = crc32c(seed, &self.0[..at]).to_le_bytes();
        // Without room for a checksum the node would not have passed the check.
        if let Some(tail) = self.0.get_mut(at..at + TAIL_BYTES) {
            tail.copy_from_slice(&right);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::extents::checksum_is_right;
    use super::*;

    fn extent(logical: u32, blocks: u32, physical: u64, unwritten: bool) -> MappedExtent {
        MappedExtent { logical, blocks, physical, unwritten }
    }

    fn all<B: Deref<Target = [u8]>>(node: &NodeEdit<B>) -> Vec<MappedExtent> {
        (0..node.len()).map(|at| node.extent(at)).collect()
    }

    #[test]
    fn adjacent_extents_are_joined() {
        let mut bytes = [0xEE; 1024];
        let mut node = NodeEdit::format(&mut bytes[..], 0);
        assert_eq!((node.capacity(), node.len(), node.depth()), (84, 0, 0));
        assert!(node.put(0, &extent(10, 5, 100, false)));
        assert!(node.put(1, &extent(20, 5, 110, false)));
        assert!(node.put(1, &extent(15, 4, 105, false)));
        assert_eq!(all(&node), [extent(10, 9, 100, false), extent(20, 5, 110, false)]);
        assert!(node.put(1, &extent(19, 1, 109, false)));
        assert_eq!(all(&node), [extent(10, 15, 100, false)]);
        // They are not merged if they are elsewhere on the disk, of another kind, or too long.
        assert!(node.put(1, &extent(25, 1, 116, false)));
        assert!(node.put(2, &extent(26, 1, 117, true)));
        assert!(node.put(3, &extent(27, 0x7FFE, 118, true)));
        assert!(node.put(3, &extent(27 + 0x7FFE, 1, 118 + 0x7FFE, true)));
        assert!(node.put(0, &extent(9, 1, 99, false)));
        let now = [
            extent(9, 16, 99, false),
            extent(25, 1, 116, false),
            extent(26, 0x7FFF, 117, true),
            extent(27 + 0x7FFE, 1, 118 + 0x7FFE, true),
        ];
        assert_eq!(all(&node), now);
        assert_eq!((node.slot_after(8), node.slot_after(9), node.slot_after(26)), (0, 1, 3));
        node.remove(1..3);
        assert_eq!(all(&node), [now[0], now[3]]);
        node.seal(7);
        assert_eq!(checksum_is_right(7, &bytes), Some(true));
    }

    #[test]
    fn extents_of_maximal_length() {
        let mut bytes = [0; 60];
        let mut node = NodeEdit::format(&mut bytes[..], 0);
        assert!(node.put(0, &extent(0, 0x7FFF, 1000, false)));
        assert!(node.put(1, &extent(0x7FFF, 1, 1000 + 0x7FFF, false)));
        assert_eq!(all(&node), [extent(0, 0x8000, 1000, false)]);
        assert!(node.put(1, &extent(0x8000, 1, 1000 + 0x8000, false)));
        assert!(node.put(2, &extent(0x1_0000, 0x7FFF, 1 << 40, true)));
        assert_eq!((node.len(), node.capacity()), (3, 4));
        assert_eq!(node.extent(2), extent(0x1_0000, 0x7FFF, 1 << 40, true));
        assert!(node.put(3, &extent(0x2_0000, 1, 1, false)));
        assert!(!node.put(4, &extent(0x2_0001, 1, 5, false)));
        // An extent that continues its neighbour still fits.
        assert!(node.put(4, &extent(0x2_0001, 1, 2, false)));
    }

    #[test]
    fn index_entries_hold_their_children() {
        let (mut bytes, mut more) = ([0; 1024], [0; 1024]);
        let mut node = NodeEdit::format(&mut bytes[..], 2);
        node.insert_child(0, 50, 1 << 33);
        node.insert_child(0, 5, 7);
        node.insert_child(2, 90, 9);
        node.set_first(1, 49);
        let mut other = NodeEdit::format(&mut more[..], 2);
        node.move_from(1, &mut other);
        assert_eq!((node.len(), node.first(0), node.child(0)), (1, 5, 7));
        assert_eq!((other.len(), other.first(0), other.child(0)), (2, 49, 1 << 33));
        assert_eq!((other.first(1), other.child(1)), (90, 9));
        assert!(NodeEdit::of(&[0u8; 60][..]).is_err());
    }
}
