//! The places of groups, backups and descriptors (kernel: `fs/ext4/balloc.c`; e2fsprogs:
//! `lib/ext2fs/closefs.c`, `openfs.c`).

use super::features::{compat, incompat, ro_compat};
use super::superblock::Superblock;

/// Returns whether `n` is a power of `base`.
fn is_power_of(mut n: u32, base: u32) -> bool {
    while n > 1 && n.is_multiple_of(base) {
        n /= base;
    }
    n == 1
}

impl Superblock {
    /// Returns the number of blocks of a group (the last one may have fewer).
    pub fn blocks_per_group(&self) -> u64 {
        u64::from(self.clusters_per_group()) << self.cluster_bits
    }

    /// Returns the number of clusters of a group, which is the number of bits of its block bitmap.
    pub fn clusters_per_group(&self) -> u32 {
        if self.features.has_ro_compat(ro_compat::BIGALLOC) {
            self.raw.clusters_per_group.get()
        } else {
            self.raw.blocks_per_group.get()
        }
    }

    /// Returns the first block of `group`.
    pub fn group_start(&self, group: u32) -> u64 {
        u64::from(self.raw.first_data_block.get()) + u64::from(group) * self.blocks_per_group()
    }

    /// Returns the group of block `block`, which must exist.
    pub fn group_of(&self, block: u64) -> u32 {
        let first = u64::from(self.raw.first_data_block.get());
        // The number of groups was checked, and is at most 2^32.
        (block.saturating_sub(first) / self.blocks_per_group()) as u32
    }

    /// Returns the number of blocks reserved after the descriptors for further ones
    /// (`s_reserved_gdt_blocks`).
    pub fn reserved_descriptor_blocks(&self) -> u64 {
        let kept = self.features.has_compat(compat::RESIZE_INODE);
        if kept { u64::from(self.raw.reserved_gdt_blocks.get()) } else { 0 }
    }

    /// Returns the number of groups that keep their bitmaps and inode tables together (`flex_bg`),
    /// which is 1 if each has its own.
    pub fn flex_groups(&self) -> u32 {
        let flex = self.features.has_incompat(incompat::FLEX_BG);
        let bits = if flex { u32::from(self.raw.log_groups_per_flex) } else { 0 };
        // The kernel accepts at most 2^31 groups, too.
        1u32.checked_shl(bits).unwrap_or(1)
    }

    /// Returns the size of a group's descriptor, in bytes.
    pub fn descriptor_bytes(&self) -> usize {
        usize::from(self.descriptor_bytes)
    }

    /// Returns the number of blocks of a group's inode table.
    pub fn inode_table_blocks(&self) -> u64 {
        (u64::from(self.inodes_per_group()) * u64::from(self.inode_bytes))
            .div_ceil(u64::from(self.block_bytes()))
    }

    /// Returns whether `blocks` blocks from `start` on may hold a file's data or metadata, because
    /// they are inside the file system, after its first block.
    pub fn holds(&self, start: u64, blocks: u64) -> bool {
        start > u64::from(self.raw.first_data_block.get())
            && start.checked_add(blocks).is_some_and(|end| end <= self.blocks)
    }

    /// Returns whether `group` begins with a superblock or a backup of it (`ext4_bg_has_super`).
    pub fn has_superblock(&self, group: u32) -> bool {
        if group == 0 {
            return true;
        }
        if self.features.has_compat(compat::SPARSE_SUPER2) {
            return self.raw.backup_bgs.iter().any(|backup| backup.get() == group);
        }
        if group == 1 || !self.features.has_ro_compat(ro_compat::SPARSE_SUPER) {
            return true;
        }
        [3, 5, 7].into_iter().any(|base| is_power_of(group, base))
    }

    /// Returns the number of descriptors in a block.
    pub(super) fn descriptors_per_block(&self) -> u32 {
        self.block_bytes() / u32::from(self.descriptor_bytes)
    }

    /// Returns the number of blocks of all descriptors.
    pub fn descriptor_blocks(&self) -> u32 {
        self.groups.div_ceil(self.descriptors_per_block())
    }

    /// Returns the number of descriptor blocks that follow the superblock. With `meta_bg` the
    /// others are spread (`s_first_meta_bg`).
    pub(super) fn plain_descriptor_blocks(&self) -> u32 {
        if self.features.has_incompat(incompat::META_BG) {
            self.raw.first_meta_bg.get().min(self.descriptor_blocks())
        } else {
            self.descriptor_blocks()
        }
    }

    /// Returns the number of descriptor blocks in `group` (`ext4_bg_num_gdb`).
    pub fn descriptor_blocks_in(&self, group: u32) -> u32 {
        let per_block = self.descriptors_per_block();
        if group / per_block < self.plain_descriptor_blocks()
            || !self.features.has_incompat(incompat::META_BG)
        {
            return if self.has_superblock(group) { self.plain_descriptor_blocks() } else { 0 };
        }
        // The first, second and last group of a meta block group have its descriptors.
        let place = group % per_block;
        u32::from(place == 0 || place == 1 || place == per_block - 1)
    }

    /// Returns the block of descriptor block `index`, relative to the superblock in block
    /// `superblock` (`ext2fs_descriptor_block_loc2`).
    pub(super) fn descriptor_block(&self, index: u32, superblock: u64) -> u64 {
        let primary = superblock == self.primary_block();
        if index < self.plain_descriptor_blocks() {
            return superblock + 1 + u64::from(index);
        }
        let mut group = index * self.descriptors_per_block();
        // For a backup the second group's copy is used, as by e2fsck.
        if !primary && group + 1 < self.groups {
            group += 1;
        }
        let start = if group == 0 { self.primary_block() } else { self.group_start(group) };
        start + u64::from(self.has_superblock(group))
    }

    /// Returns the block of the primary superblock, which is the second one with blocks of 1 KiB.
    pub fn primary_block(&self) -> u64 {
        super::superblock::SUPERBLOCK_OFFSET >> self.block_bits
    }
}

#[cfg(test)]
mod tests {
    use super::is_power_of;

    #[test]
    fn powers() {
        let found = |base| (1..1000).filter(|n| is_power_of(*n, base)).collect::<Vec<_>>();
        assert_eq!(found(3), [1, 3, 9, 27, 81, 243, 729]);
        assert_eq!(found(5), [1, 5, 25, 125, 625]);
        assert_eq!(found(7), [1, 7, 49, 343]);
        assert!(!is_power_of(0, 3));
    }
}
