//! Edits of group descriptors.

use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32};

use super::super::group::{BLOCK_UNINIT, INODE_UNINIT, RawGroup, RawGroupHigh, checksum};
use super::super::superblock::Superblock;

/// Setters of fields that are split between the two parts of a descriptor.
macro_rules! halves {
    ($(
        $(#[doc = $doc:literal])*
        $vis:vis $set:ident: $type:ty, $half:ident $low:ident $high:ident,
    )*) => {$(
        $(#[doc = $doc])*
        $vis fn $set(&mut self, value: $type) {
            self.change(
                |raw| raw.$low = $half::new(value as _),
                |raw| raw.$high = $half::new((value >> (8 * size_of::<$half>())) as _),
            );
        }
    )*};
}

/// The bytes of one descriptor, in its block.
#[derive(Debug)]
pub struct GroupEdit<'b> {
    superblock: &'b Superblock,
    number: u32,
    bytes: &'b mut [u8],
}

impl<'b> GroupEdit<'b> {
    /// Wraps the checked `bytes` of descriptor `number`.
    pub fn of(superblock: &'b Superblock, number: u32, bytes: &'b mut [u8]) -> Self {
        Self { superblock, number, bytes }
    }

    fn change(&mut self, low: impl FnOnce(&mut RawGroup), high: impl FnOnce(&mut RawGroupHigh)) {
        let Ok((raw, rest)) = RawGroup::mut_from_prefix(self.bytes) else { return };
        low(raw);
        if let Ok((raw, _)) = RawGroupHigh::mut_from_prefix(rest) {
            high(raw);
        }
    }

    halves! {
        /// Sets the block of its block bitmap.
        pub(crate) set_block_bitmap_block: u64, U32 block_bitmap_lo block_bitmap_hi,
        /// Sets the block of its inode bitmap.
        pub(crate) set_inode_bitmap_block: u64, U32 inode_bitmap_lo inode_bitmap_hi,
        /// Sets the first block of its inode table.
        pub(crate) set_inode_table: u64, U32 inode_table_lo inode_table_hi,
        /// Sets the count of free clusters (blocks, without `bigalloc`).
        pub set_free_clusters: u32, U16 free_blocks_count_lo free_blocks_count_hi,
        /// Sets the count of free inodes.
        pub set_free_inodes: u32, U16 free_inodes_count_lo free_inodes_count_hi,
        /// Sets the count of directories.
        pub set_directories: u32, U16 used_dirs_count_lo used_dirs_count_hi,
        /// Sets the number of inodes at the end of the table that were never used.
        pub set_unused_inodes: u32, U16 itable_unused_lo itable_unused_hi,
        set_block_bitmap_checksum: u32, U16 block_bitmap_csum_lo block_bitmap_csum_hi,
        set_inode_bitmap_checksum: u32, U16 inode_bitmap_csum_lo inode_bitmap_csum_hi,
    }

    /// Sets `bg_flags`.
    pub(crate) fn set_flags(&mut self, flags: u16) {
        self.change(|raw| raw.flags = U16::new(flags), |_| {});
    }

    /// Clears `flag` of `bg_flags`.
    fn clear_flag(&mut self, flag: u16) {
        self.change(|raw| raw.flags = U16::new(raw.flags.get() & !flag), |_| {});
    }

    /// Marks the block bitmap as written, with this checksum (used only with `metadata_csum`).
    pub fn set_block_bitmap(&mut self, checksum: u32) {
        self.clear_flag(BLOCK_UNINIT);
        if self.superblock.has_checksums() {
            self.set_block_bitmap_checksum(checksum);
        }
    }

    /// Marks the inode bitmap as written, with this checksum (used only with `metadata_csum`).
    pub fn set_inode_bitmap(&mut self, checksum: u32) {
        self.clear_flag(INODE_UNINIT);
        if self.superblock.has_checksums() {
            self.set_inode_bitmap_checksum(checksum);
        }
    }

    /// Sets its checksum, if descriptors have one.
    pub fn seal(mut self) {
        if let Some(checksum) = checksum(self.superblock, self.number, self.bytes) {
            self.change(|raw| raw.checksum = U16::new(checksum), |_| {});
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::group::Group;
    use super::*;

    #[test]
    fn set_fields_are_parsed() {
        let superblock = super::super::super::superblock::tests::checksummed();
        let mut bytes = [0; 64];
        // The bitmaps and the table may be at any place inside.
        (bytes[0], bytes[4], bytes[8]) = (100, 101, 102);
        let mut edit = GroupEdit::of(&superblock, 5, &mut bytes);
        edit.set_free_clusters(0x1_0002);
        edit.set_free_inodes(0x3_0004);
        edit.set_directories(0x5_0006);
        edit.set_unused_inodes(0x7_0008);
        edit.set_block_bitmap(0x9ABC_DEF0);
        edit.set_inode_bitmap(0x1234_5678);
        edit.seal();
        assert!(Group::checksum_is_right(&superblock, 5, &bytes));
        assert!(!Group::checksum_is_right(&superblock, 4, &bytes));
        let group = Group::parse(&superblock, 5, &bytes).unwrap();
        assert_eq!((group.free_clusters, group.free_inodes), (0x1_0002, 0x3_0004));
        assert_eq!((group.directories, group.unused_inodes), (0x5_0006, 0x7_0008));
        assert_eq!(
            (group.block_bitmap_checksum, group.inode_bitmap_checksum),
            (0x9ABC_DEF0, 0x1234_5678)
        );
        assert_eq!(group.as_tuple(), (100, 101, 102));
    }

    impl Group {
        fn as_tuple(&self) -> (u64, u64, u64) {
            (self.block_bitmap, self.inode_bitmap, self.inode_table)
        }
    }
}
