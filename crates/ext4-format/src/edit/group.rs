//! Group descriptors that are being changed.

use zerocopy::FromBytes;
use zerocopy::little_endian::U16;

use super::super::group::{BLOCK_UNINIT, INODE_UNINIT, RawGroup, RawGroupHigh, checksum};
use super::super::superblock::Superblock;

/// The bytes of one descriptor, in its block.
#[derive(Debug)]
pub struct GroupEdit<'b> {
    superblock: &'b Superblock,
    number: u32,
    bytes: &'b mut [u8],
}

impl<'b> GroupEdit<'b> {
    /// Descriptor `number`, whose checked `bytes` these are.
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

    /// Sets the count of free clusters (blocks, without `bigalloc`).
    pub fn set_free_clusters(&mut self, count: u32) {
        self.change(
            |raw| raw.free_blocks_count_lo = U16::new(count as u16),
            |raw| raw.free_blocks_count_hi = U16::new((count >> 16) as u16),
        );
    }

    /// Sets the count of free inodes.
    pub fn set_free_inodes(&mut self, count: u32) {
        self.change(
            |raw| raw.free_inodes_count_lo = U16::new(count as u16),
            |raw| raw.free_inodes_count_hi = U16::new((count >> 16) as u16),
        );
    }

    /// Sets the count of directories.
    pub fn set_directories(&mut self, count: u32) {
        self.change(
            |raw| raw.used_dirs_count_lo = U16::new(count as u16),
            |raw| raw.used_dirs_count_hi = U16::new((count >> 16) as u16),
        );
    }

    /// Sets how many inodes at the end of the table were never used.
    pub fn set_unused_inodes(&mut self, count: u32) {
        self.change(
            |raw| raw.itable_unused_lo = U16::new(count as u16),
            |raw| raw.itable_unused_hi = U16::new((count >> 16) as u16),
        );
    }

    /// The block bitmap is written, with this checksum (which counts only with `metadata_csum`).
    pub fn set_block_bitmap(&mut self, checksum: u32) {
        let counts = self.superblock.has_checksums();
        self.change(
            |raw| {
                raw.flags = U16::new(raw.flags.get() & !BLOCK_UNINIT);
                raw.block_bitmap_csum_lo =
                    if counts { U16::new(checksum as u16) } else { raw.block_bitmap_csum_lo };
            },
            |raw| {
                raw.block_bitmap_csum_hi = if counts {
                    U16::new((checksum >> 16) as u16)
                } else {
                    raw.block_bitmap_csum_hi
                };
            },
        );
    }

    /// The inode bitmap is written, with this checksum (which counts only with `metadata_csum`).
    pub fn set_inode_bitmap(&mut self, checksum: u32) {
        let counts = self.superblock.has_checksums();
        self.change(
            |raw| {
                raw.flags = U16::new(raw.flags.get() & !INODE_UNINIT);
                raw.inode_bitmap_csum_lo =
                    if counts { U16::new(checksum as u16) } else { raw.inode_bitmap_csum_lo };
            },
            |raw| {
                raw.inode_bitmap_csum_hi = if counts {
                    U16::new((checksum >> 16) as u16)
                } else {
                    raw.inode_bitmap_csum_hi
                };
            },
        );
    }

    /// Gives it its checksum, if descriptors have one here.
    pub fn seal(mut self) {
        if let Some(checksum) = checksum(self.superblock, self.number, self.bytes) {
            self.change(|raw| raw.checksum = U16::new(checksum), |_| {});
        }
    }
}

const _: () = assert!(size_of::<RawGroup>() + size_of::<RawGroupHigh>() == 64);

#[cfg(test)]
mod tests {
    use super::super::super::group::Group;
    use super::*;

    #[test]
    fn what_is_set_is_parsed() {
        let superblock = super::super::super::superblock::tests::checksummed();
        let mut bytes = [0; 64];
        // Bitmaps and table anywhere inside.
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
