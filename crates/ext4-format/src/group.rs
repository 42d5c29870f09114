//! Group descriptors (kernel documentation: `filesystems/ext4/group_descr.rst`; e2fsprogs:
//! `struct ext4_group_desc`).

use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32};

use super::checksum::{crc16, crc32c, crc32c_without};
use super::features::ro_compat;
use super::superblock::Superblock;
use crate::{Corruption, Defect};

on_disk! {
    /// The first 32 bytes of a descriptor, which are all of it without `64bit`.
    pub(super) struct RawGroup, 32, Copy {
        0x00 block_bitmap_lo: U32,
        0x04 inode_bitmap_lo: U32,
        0x08 inode_table_lo: U32,
        0x0C free_blocks_count_lo: U16,
        0x0E free_inodes_count_lo: U16,
        0x10 used_dirs_count_lo: U16,
        0x12 flags: U16,
        0x14 exclude_bitmap_lo: U32,
        0x18 block_bitmap_csum_lo: U16,
        0x1A inode_bitmap_csum_lo: U16,
        0x1C itable_unused_lo: U16,
        0x1E checksum: U16,
    }
    /// Bytes 32 to 64 of a descriptor, with `64bit`.
    pub(super) struct RawGroupHigh, 32, Copy {
        0x00 block_bitmap_hi: U32,
        0x04 inode_bitmap_hi: U32,
        0x08 inode_table_hi: U32,
        0x0C free_blocks_count_hi: U16,
        0x0E free_inodes_count_hi: U16,
        0x10 used_dirs_count_hi: U16,
        0x12 itable_unused_hi: U16,
        0x14 exclude_bitmap_hi: U32,
        0x18 block_bitmap_csum_hi: U16,
        0x1A inode_bitmap_csum_hi: U16,
        0x1C reserved: U32,
    }
}

const CHECKSUM_AT: usize = std::mem::offset_of!(RawGroup, checksum);
/// The size of descriptors with the feature `64bit`.
const USUAL_BYTES: usize = size_of::<RawGroup>() + size_of::<RawGroupHigh>();

/// `bg_flags`: the inode bitmap and table were never written.
pub(super) const INODE_UNINIT: u16 = 1;
/// `bg_flags`: the block bitmap was never written.
pub(super) const BLOCK_UNINIT: u16 = 2;

/// A sound group descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// The block of its block bitmap.
    pub block_bitmap: u64,
    /// The block of its inode bitmap.
    pub inode_bitmap: u64,
    /// The first block of its inode table.
    pub inode_table: u64,
    /// Free clusters (blocks, without `bigalloc`).
    pub free_clusters: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Directories.
    pub directories: u32,
    /// Inodes at the end of the table that were never used.
    pub unused_inodes: u32,
    /// Whether its inodes were never used, and its inode bitmap was never written.
    pub inode_uninit: bool,
    /// Whether its block bitmap was never written.
    pub block_uninit: bool,
    /// Checksum of the block bitmap, limited by [`checksum_mask`](Self::checksum_mask).
    pub block_bitmap_checksum: u32,
    /// Checksum of the inode bitmap, limited by [`checksum_mask`](Self::checksum_mask).
    pub inode_bitmap_checksum: u32,
    /// The bits of the bitmaps' checksums that the descriptor stores.
    pub checksum_mask: u32,
}

/// Returns the correct checksum of `bytes`, a descriptor, or `None` if descriptors have none.
pub(super) fn checksum(superblock: &Superblock, number: u32, bytes: &[u8]) -> Option<u16> {
    let number = number.to_le_bytes();
    if superblock.has_checksums() {
        let state = crc32c(superblock.seed(), &number);
        // Descriptors of the usual size are read in one piece, which takes half of the time.
        if let Ok(mut whole) = <[u8; USUAL_BYTES]>::try_from(bytes) {
            whole[CHECKSUM_AT..CHECKSUM_AT + 2].fill(0);
            return Some(crc32c(state, &whole) as u16);
        }
        return Some(crc32c_without(state, bytes, &[CHECKSUM_AT], 2) as u16);
    }
    let (before, after) = (&bytes[..CHECKSUM_AT], &bytes[CHECKSUM_AT + 2..]);
    let gdt_csum = superblock.features.has_ro_compat(ro_compat::GDT_CSUM);
    gdt_csum.then(|| crc16(crc16(crc16(crc16(!0, &superblock.raw.uuid), &number), before), after))
}

impl Group {
    /// Returns whether the checksum of descriptor `number`, `bytes`, is right. Returns true if
    /// there is none.
    pub fn checksum_is_right(superblock: &Superblock, number: u32, bytes: &[u8]) -> bool {
        let Ok((raw, _)) = RawGroup::read_from_prefix(bytes) else { return false };
        checksum(superblock, number, bytes).is_none_or(|checksum| checksum == raw.checksum.get())
    }

    /// Parses descriptor `number` from `bytes`, which have a descriptor's size. Does not verify its
    /// [checksum](Self::checksum_is_right).
    ///
    /// # Errors
    /// [`Defect::GroupPointer`].
    pub fn parse(superblock: &Superblock, number: u32, bytes: &[u8]) -> Result<Self, Corruption> {
        let wrong = || Corruption::new(Defect::GroupPointer).in_block(u64::from(number));
        let (raw, rest) = RawGroup::read_from_prefix(bytes).map_err(|_| wrong())?;
        let high = RawGroupHigh::read_from_prefix(rest).ok().map(|(high, _)| high);
        let checksum_mask = if high.is_some() { u32::MAX } else { 0xFFFF };
        let high = high.unwrap_or_default();
        let block = |low: U32, high: U32| u64::from(low.get()) | u64::from(high.get()) << 32;
        let count = |low: U16, high: U16| u32::from(low.get()) | u32::from(high.get()) << 16;
        // Flags and counts of unused inodes are only valid where a checksum guards them.
        let guarded =
            superblock.features.ro_compat & (ro_compat::GDT_CSUM | ro_compat::METADATA_CSUM) != 0;
        let flag = |flag| guarded && raw.flags.get() & flag != 0;
        let group = Self {
            block_bitmap: block(raw.block_bitmap_lo, high.block_bitmap_hi),
            inode_bitmap: block(raw.inode_bitmap_lo, high.inode_bitmap_hi),
            inode_table: block(raw.inode_table_lo, high.inode_table_hi),
            free_clusters: count(raw.free_blocks_count_lo, high.free_blocks_count_hi),
            free_inodes: count(raw.free_inodes_count_lo, high.free_inodes_count_hi),
            directories: count(raw.used_dirs_count_lo, high.used_dirs_count_hi),
            unused_inodes: if guarded {
                count(raw.itable_unused_lo, high.itable_unused_hi)
            } else {
                0
            },
            inode_uninit: flag(INODE_UNINIT),
            block_uninit: flag(BLOCK_UNINIT),
            block_bitmap_checksum: count(raw.block_bitmap_csum_lo, high.block_bitmap_csum_hi),
            inode_bitmap_checksum: count(raw.inode_bitmap_csum_lo, high.inode_bitmap_csum_hi),
            checksum_mask,
        };
        let inside = superblock.holds(group.block_bitmap, 1)
            && superblock.holds(group.inode_bitmap, 1)
            && superblock.holds(group.inode_table, superblock.inode_table_blocks());
        if inside { Ok(group) } else { Err(wrong()) }
    }
}
