//! The contents of a new file system's blocks.

use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32};

use super::super::edit::{GroupEdit, bitmap, superblock_place};
use super::super::group::{BLOCK_UNINIT, INODE_UNINIT};
use super::super::superblock::{RawSuperblock, SUPERBLOCK_BYTES};
use super::inodes::put_u32;
use super::layout::{Layout, backups};

/// `bg_flags`: the inode table was zeroed.
const TABLE_ZEROED: u16 = 4;
/// Size of the area at the end of a device where other systems keep RAID superblocks.
const END_BYTES: u64 = 128 << 10;

/// A piece of a new file system's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content<'a> {
    /// Bytes of whole blocks.
    Bytes(&'a [u8]),
    /// This many blocks of zeroes.
    Zeroes(u64),
}

impl Layout {
    fn block_bytes(&self) -> usize {
        self.superblock.block_bytes() as usize
    }

    /// Returns the superblock for `group`, with its checksum. As with mke2fs, backups are not
    /// marked as cleanly unmounted.
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
        raw.checksum = U32::new(raw.right_checksum());
        raw
    }

    /// Returns the number and content of the primary superblock's block.
    pub fn primary(&self) -> (u64, Vec<u8>) {
        let mut block = vec![0; self.block_bytes()];
        let (number, at) = superblock_place(&self.superblock);
        block[at..at + SUPERBLOCK_BYTES].copy_from_slice(self.raw_superblock(0).as_bytes());
        (number, block)
    }

    /// Returns the block bitmap of `group`, or `None` if only the blocks used in every such group
    /// are in use.
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
        let mut bits = vec![0; self.block_bytes()];
        let bit = |block| (block - blocks.start) as u32;
        for used in self.space.used_in(blocks.clone()) {
            bitmap::set(&mut bits, bit(used.start)..bit(used.end));
        }
        let end = 8 * bits.len() as u32;
        bitmap::set(&mut bits, bit(blocks.end)..end);
        Some(bits)
    }

    /// Returns the inode bitmap of the first group, which is the only one with inodes in use.
    fn inode_bitmap(&self) -> Vec<u8> {
        let mut bits = vec![0; self.block_bytes()];
        let end = 8 * bits.len() as u32;
        bitmap::set(&mut bits, 0..self.last_ino());
        bitmap::set(&mut bits, self.superblock.inodes_per_group()..end);
        bits
    }

    /// Returns the descriptor of `group`.
    fn descriptor(&self, group: u32) -> Vec<u8> {
        let superblock = &self.superblock;
        let place = &self.groups[group as usize];
        let blocks = self.group_blocks(group);
        let inodes = superblock.inodes_per_group();
        let unused_inodes = inodes - if group == 0 { self.last_ino() } else { 0 };
        let is_zeroed = group == 0 || self.options.zero_inode_tables;
        let checksum = |bits: &[u8], count| bitmap::checksum(superblock.seed(), bits, count);
        let mut bytes = vec![0; usize::from(superblock.descriptor_bytes)];
        let mut edit = GroupEdit::of(superblock, group, &mut bytes);
        edit.set_flags(INODE_UNINIT | BLOCK_UNINIT | if is_zeroed { TABLE_ZEROED } else { 0 });
        edit.set_block_bitmap_block(place.block_bitmap);
        edit.set_inode_bitmap_block(place.inode_bitmap);
        edit.set_inode_table(place.inode_table);
        edit.set_free_clusters((blocks.end - blocks.start - self.space.count_in(blocks)) as u32);
        edit.set_free_inodes(unused_inodes);
        edit.set_unused_inodes(unused_inodes);
        if let Some(bits) = self.block_bitmap(group) {
            edit.set_block_bitmap(checksum(&bits, superblock.clusters_per_group()));
        }
        if group == 0 {
            edit.set_directories(2);
            edit.set_inode_bitmap(checksum(&self.inode_bitmap(), inodes));
        }
        edit.seal();
        bytes
    }

    /// Returns all descriptors, as whole blocks.
    fn descriptors(&self) -> Vec<u8> {
        let mut table: Vec<u8> =
            (0..self.superblock.groups()).flat_map(|group| self.descriptor(group)).collect();
        table.resize(table.len().next_multiple_of(self.block_bytes()), 0);
        table
    }

    /// Returns the first block of the empty journal.
    fn journal_superblock(&self) -> Vec<u8> {
        let mut block = vec![0; self.block_bytes()];
        let mut put =
            |at: usize, value: u32| block[at..at + 4].copy_from_slice(&value.to_be_bytes());
        // These are the magic number and the kind (a superblock of version 2).
        put(0x00, 0xC03B_3998);
        put(0x04, 4);
        put(0x0C, self.superblock.block_bytes());
        put(0x10, self.journal_blocks() as u32);
        // The log begins with block 1 and transaction 1. `s_start` is 0, so it is empty.
        put(0x14, 1);
        put(0x18, 1);
        // The number of users is one file system.
        put(0x40, 1);
        put(0x54, self.fast_commit_blocks);
        block[0x30..0x40].copy_from_slice(&self.options.uuid);
        block
    }

    /// Passes all content to write to `put`, except the [primary superblock](Self::primary), which
    /// is written last, when everything else is durable. There is no file system before that.
    ///
    /// Some blocks are zeroed first and written later, so overlapping pieces have to be written in
    /// this order.
    ///
    /// # Errors
    /// The error of `put`, which gets a block number and the content from there on.
    pub fn write<E>(
        &self,
        mut put: impl FnMut(u64, Content<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let superblock = &self.superblock;
        let block_bytes = superblock.block_bytes();
        let (blocks, primary) = (superblock.blocks(), superblock.primary_block());
        // This erases the former content.
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
        // Old content of the log must not be taken for a transaction.
        for range in &self.journal {
            put(range.start, Content::Zeroes(range.end - range.start))?;
        }
        if let Some(first) = self.journal.first() {
            put(first.start, Content::Bytes(&self.journal_superblock()))?;
        }
        Ok(())
    }

    /// Writes the reserved blocks for further descriptors. Those after the descriptors point to
    /// those after each copy.
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
