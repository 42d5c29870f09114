//! What the blocks of a new file system contain.

use std::ops::Range;

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32};

use super::super::checksum::crc32c;
use super::super::group::{BLOCK_UNINIT, INODE_UNINIT, RawGroup, RawGroupHigh, checksum};
use super::super::superblock::{RawSuperblock, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET};
use super::Content;
use super::layout::{Layout, backups};

/// Extents that an inode itself can list.
pub(super) const INODE_EXTENTS_MAX: usize = 4;
/// Header and entries of a node of extents, in bytes.
const EXTENT_BYTES: usize = 12;
const EXTENT_MAGIC: u16 = 0xF30A;
/// `bg_flags`: the inode table was zeroed.
const TABLE_ZEROED: u16 = 4;
/// What other systems leave at the end of a device, in bytes: superblocks of RAIDs.
const END_BYTES: u64 = 128 << 10;

pub(super) fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

pub(super) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// Where a node of extents of so many bytes ends, and its checksum is.
pub(super) fn extent_node_end(bytes: usize) -> usize {
    (bytes - EXTENT_BYTES) / EXTENT_BYTES * EXTENT_BYTES + EXTENT_BYTES
}

fn extent_header(node: &mut [u8], entries: usize, depth: u16) {
    put_u16(node, 0, EXTENT_MAGIC);
    put_u16(node, 2, entries as u16);
    put_u16(node, 4, ((node.len() - EXTENT_BYTES) / EXTENT_BYTES) as u16);
    put_u16(node, 6, depth);
}

/// A node that lists `extents`, of a file that begins with the first and has no holes.
pub(super) fn extent_node(node: &mut [u8], extents: &[Range<u64>]) {
    extent_header(node, extents.len(), 0);
    let mut logical = 0;
    for (extent, entry) in extents.iter().zip(node[EXTENT_BYTES..].chunks_exact_mut(EXTENT_BYTES)) {
        let blocks = (extent.end - extent.start) as u32;
        put_u32(entry, 0, logical);
        put_u16(entry, 4, blocks as u16);
        put_u16(entry, 6, (extent.start >> 32) as u16);
        put_u32(entry, 8, extent.start as u32);
        logical += blocks;
    }
}

/// The root of a tree of one leaf.
pub(super) fn extent_root(node: &mut [u8], leaf: u64) {
    extent_header(node, 1, 1);
    put_u32(node, EXTENT_BYTES + 4, leaf as u32);
    put_u16(node, EXTENT_BYTES + 8, (leaf >> 32) as u16);
}

/// Sets bit `bit`, and those behind it up to `end`.
fn set_bits(bitmap: &mut [u8], bits: Range<usize>) {
    for bit in bits {
        bitmap[bit / 8] |= 1 << (bit % 8);
    }
}

impl Layout {
    fn block_bytes(&self) -> usize {
        self.superblock.block_bytes() as usize
    }

    /// The superblock for `group`, with its checksum. Copies do not claim that it was unmounted
    /// cleanly, as mke2fs has it.
    fn raw_superblock(&self, group: u32) -> RawSuperblock {
        let mut raw = (*self.superblock.raw).clone();
        raw.block_group_nr = U16::new(group as u16);
        if group != 0 {
            raw.state = U16::new(0);
        }
        let journal = self.journal_inode();
        let (words, _) = journal.block_area().as_chunks::<4>();
        for (copy, word) in raw.jnl_blocks.iter_mut().zip(words) {
            *copy = U32::new(u32::from_le_bytes(*word));
        }
        raw.jnl_blocks[15] = U32::new((journal.size() >> 32) as u32);
        raw.jnl_blocks[16] = U32::new(journal.size() as u32);
        let sum = crc32c(!0, &raw.as_bytes()[..SUPERBLOCK_BYTES - 4]);
        raw.checksum = U32::new(sum);
        raw
    }

    /// The block with the primary superblock: number and content.
    pub fn primary(&self) -> (u64, Vec<u8>) {
        let mut block = vec![0; self.block_bytes()];
        let at = (SUPERBLOCK_OFFSET % block.len() as u64) as usize;
        block[at..at + SUPERBLOCK_BYTES].copy_from_slice(self.raw_superblock(0).as_bytes());
        (self.superblock.primary_block(), block)
    }

    /// The bitmap of the blocks of `group`; `None`: nothing is in use but what everybody knows of.
    fn block_bitmap(&self, group: u32) -> Option<Vec<u8>> {
        let blocks = self.group_blocks(group);
        let known = if self.superblock.has_superblock(group) {
            1 + u64::from(self.superblock.descriptor_blocks())
                + u64::from(self.superblock.raw.reserved_gdt_blocks.get())
        } else {
            0
        };
        let is_last = group + 1 == self.superblock.groups();
        if group != 0 && !is_last && self.space.count_in(blocks.clone()) == known {
            return None;
        }
        let mut bitmap = vec![0; self.block_bytes()];
        for used in self.space.used_in(blocks.clone()) {
            set_bits(
                &mut bitmap,
                (used.start - blocks.start) as usize..(used.end - blocks.start) as usize,
            );
        }
        let bits = 8 * bitmap.len();
        set_bits(&mut bitmap, (blocks.end - blocks.start) as usize..bits);
        Some(bitmap)
    }

    /// The bitmap of the inodes of the first group: the only one with inodes in use.
    fn inode_bitmap(&self) -> Vec<u8> {
        let mut bitmap = vec![0; self.block_bytes()];
        let bits = 8 * bitmap.len();
        set_bits(&mut bitmap, 0..self.last_ino() as usize);
        set_bits(&mut bitmap, self.superblock.inodes_per_group() as usize..bits);
        bitmap
    }

    fn bitmap_checksum(&self, bitmap: &[u8], bits: u32) -> u32 {
        crc32c(self.superblock.seed(), &bitmap[..bits as usize / 8])
    }

    /// The descriptor of `group`.
    fn descriptor(&self, group: u32) -> Vec<u8> {
        let superblock = &self.superblock;
        let place = &self.groups[group as usize];
        let blocks = self.group_blocks(group);
        let free = (blocks.end - blocks.start - self.space.count_in(blocks)) as u32;
        let inodes = superblock.inodes_per_group();
        let used_inodes = if group == 0 { self.last_ino() } else { 0 };
        let mut flags = 0;
        if group != 0 {
            flags |= INODE_UNINIT;
        }
        if group == 0 || self.options.zero_inode_tables {
            flags |= TABLE_ZEROED;
        }
        let block_sum = match self.block_bitmap(group) {
            Some(bitmap) => self.bitmap_checksum(&bitmap, superblock.clusters_per_group()),
            None => {
                flags |= BLOCK_UNINIT;
                0
            }
        };
        let inode_sum =
            if group == 0 { self.bitmap_checksum(&self.inode_bitmap(), inodes) } else { 0 };
        let low32 = |value: u64| U32::new(value as u32);
        let high32 = |value: u64| U32::new((value >> 32) as u32);
        let low16 = |value: u32| U16::new(value as u16);
        let high16 = |value: u32| U16::new((value >> 16) as u16);
        let mut low = RawGroup {
            block_bitmap_lo: low32(place.block_bitmap),
            inode_bitmap_lo: low32(place.inode_bitmap),
            inode_table_lo: low32(place.inode_table),
            free_blocks_count_lo: low16(free),
            free_inodes_count_lo: low16(inodes - used_inodes),
            used_dirs_count_lo: low16(if group == 0 { 2 } else { 0 }),
            flags: U16::new(flags),
            exclude_bitmap_lo: U32::ZERO,
            block_bitmap_csum_lo: low16(block_sum),
            inode_bitmap_csum_lo: low16(inode_sum),
            itable_unused_lo: low16(inodes - used_inodes),
            checksum: U16::ZERO,
        };
        let high = RawGroupHigh {
            block_bitmap_hi: high32(place.block_bitmap),
            inode_bitmap_hi: high32(place.inode_bitmap),
            inode_table_hi: high32(place.inode_table),
            block_bitmap_csum_hi: high16(block_sum),
            inode_bitmap_csum_hi: high16(inode_sum),
            ..RawGroupHigh::default()
        };
        let descriptor = |low: &RawGroup| {
            let mut bytes = low.as_bytes().to_vec();
            bytes.extend_from_slice(high.as_bytes());
            bytes.truncate(usize::from(superblock.descriptor_bytes));
            bytes
        };
        low.checksum = U16::new(checksum(superblock, group, &descriptor(&low)).unwrap_or(0));
        descriptor(&low)
    }

    /// All descriptors: whole blocks.
    fn descriptors(&self) -> Vec<u8> {
        let mut table: Vec<u8> =
            (0..self.superblock.groups()).flat_map(|group| self.descriptor(group)).collect();
        table.resize(table.len().next_multiple_of(self.block_bytes()), 0);
        table
    }

    /// The first block of the journal: it is empty.
    fn journal_superblock(&self) -> Vec<u8> {
        let mut block = vec![0; self.block_bytes()];
        let mut put =
            |at: usize, value: u32| block[at..at + 4].copy_from_slice(&value.to_be_bytes());
        // Magic number and kind (a superblock of version 2).
        put(0x00, 0xC03B_3998);
        put(0x04, 4);
        put(0x0C, self.superblock.block_bytes());
        put(0x10, self.journal_blocks() as u32);
        // The log begins with block 1, and with transaction 1. `s_start` is 0: nothing is in it.
        put(0x14, 1);
        put(0x18, 1);
        // One file system has it.
        put(0x40, 1);
        put(0x54, self.fast_commit_blocks);
        block[0x30..0x40].copy_from_slice(&self.options.uuid);
        block
    }

    /// Says what has to be written, but for the [primary superblock](Self::primary): that comes
    /// last, when all else is durable. Until then there is no file system.
    ///
    /// Some blocks are zeroed first and written then: pieces that overlap have to be written in
    /// this order.
    ///
    /// # Errors
    /// What `put` fails with. It is given a block's number, and what is to be from there on.
    pub fn write<E>(
        &self,
        mut put: impl FnMut(u64, Content<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let superblock = &self.superblock;
        let block_bytes = superblock.block_bytes();
        let (blocks, primary) = (superblock.blocks(), superblock.primary_block());
        // What was here is no more, whatever it was.
        put(0, Content::Zeroes(primary + 1))?;
        let end_blocks = (END_BYTES / u64::from(block_bytes)).min(blocks - primary - 1);
        put(blocks - end_blocks, Content::Zeroes(end_blocks))?;

        let table = self.descriptors();
        let first = u64::from(superblock.raw.first_data_block.get());
        put(first + 1, Content::Bytes(&table))?;
        self.write_kept(&mut put)?;
        let mut copy = vec![0; block_bytes as usize];
        for group in backups(superblock) {
            let start = superblock.group_start(group);
            copy[..SUPERBLOCK_BYTES].copy_from_slice(self.raw_superblock(group).as_bytes());
            put(start, Content::Bytes(&copy))?;
            put(start + 1, Content::Bytes(&table))?;
        }

        for (group, place) in (0..).zip(&self.groups) {
            if let Some(bitmap) = self.block_bitmap(group) {
                put(place.block_bitmap, Content::Bytes(&bitmap))?;
            }
            let table_blocks = superblock.inode_table_blocks();
            if group == 0 {
                put(place.inode_bitmap, Content::Bytes(&self.inode_bitmap()))?;
                let inodes = self.first_inodes();
                let used_blocks = inodes.len() as u64 / u64::from(block_bytes);
                put(place.inode_table, Content::Bytes(&inodes))?;
                put(place.inode_table + used_blocks, Content::Zeroes(table_blocks - used_blocks))?;
            } else if self.options.zero_inode_tables {
                put(place.inode_table, Content::Zeroes(table_blocks))?;
            }
        }

        for (block, content) in self.directories() {
            put(block, Content::Bytes(&content))?;
        }
        for block in self.orphan_file.iter().cloned().flatten() {
            put(block, Content::Bytes(&self.orphan_block(block)))?;
        }
        if let Some((block, content)) = self.journal_extents() {
            put(block, Content::Bytes(&content))?;
        }
        // Whatever is in the log must not be taken for a transaction.
        for range in &self.journal {
            put(range.start, Content::Zeroes(range.end - range.start))?;
        }
        if let Some(first) = self.journal.first() {
            put(first.start, Content::Bytes(&self.journal_superblock()))?;
        }
        Ok(())
    }

    /// The blocks that are kept for more descriptors: those behind the descriptors lead to those
    /// behind each copy.
    fn write_kept<E>(
        &self,
        put: &mut impl FnMut(u64, Content<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let superblock = &self.superblock;
        let per_block = superblock.block_bytes() as usize / 4;
        let descriptor_blocks = superblock.descriptor_blocks();
        let first =
            u64::from(superblock.raw.first_data_block.get()) + 1 + u64::from(descriptor_blocks);
        let mut root = vec![0; self.block_bytes()];
        let mut leaf = vec![0; self.block_bytes()];
        for kept in 0..u32::from(superblock.raw.reserved_gdt_blocks.get()) {
            let block = first + u64::from(kept);
            put_u32(&mut root, (descriptor_blocks + kept) as usize % per_block * 4, block as u32);
            for (index, group) in backups(superblock).enumerate() {
                let copy = superblock.group_start(group) + u64::from(1 + descriptor_blocks + kept);
                put_u32(&mut leaf, index * 4, copy as u32);
            }
            put(block, Content::Bytes(&leaf))?;
        }
        put(self.resize, Content::Bytes(&root))
    }
}
