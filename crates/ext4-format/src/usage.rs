//! The result of `statfs`, computed as in Linux (kernel: `fs/ext4/super.c`, `ext4_statfs`,
//! `ext4_calculate_overhead`).

use super::features::{compat, incompat, ro_compat};
use super::group::Group;
use super::source::Source;
use super::superblock::Superblock;
use super::volume::Volume;
use crate::{Result, Usage};

impl Superblock {
    /// Returns the number of clusters of the structures at the start of `group`, without
    /// `bigalloc`.
    fn overhead_blocks(&self, group: u32) -> u64 {
        let backup = u64::from(self.has_superblock(group));
        let reserved = backup * u64::from(self.raw.reserved_gdt_blocks.get());
        backup
            + u64::from(self.descriptor_blocks_in(group))
            + reserved
            + self.inode_table_blocks()
            + 2
    }

    /// Returns the number of clusters reserved for allocations that must not fail
    /// (`ext4_set_resv_clusters`): 2 %, at most 4,096.
    pub fn reserved_clusters(&self) -> u64 {
        if !self.features.has_incompat(incompat::EXTENTS) {
            return 0;
        }
        ((self.blocks >> self.cluster_bits) / 50).min(4096)
    }

    /// Returns the user and the group for whom root's blocks are reserved.
    pub fn reserved_for(&self) -> (u32, u32) {
        (u32::from(self.raw.def_resuid.get()), u32::from(self.raw.def_resgid.get()))
    }

    /// Returns the number of blocks reserved for root (`s_r_blocks_count`).
    pub fn root_blocks(&self) -> u64 {
        let high = u64::from(self.raw.r_blocks_count_hi.get()) << 32;
        let bit64 = self.features.has_incompat(incompat::BIT64);
        u64::from(self.raw.r_blocks_count_lo.get()) | if bit64 { high } else { 0 }
    }

    /// Returns `f_fsid` (`uuid_to_fsid`).
    fn fsid(&self) -> u64 {
        let (halves, _) = self.raw.uuid.as_chunks::<8>();
        halves.iter().fold(0, |all, half| all ^ u64::from_le_bytes(*half))
    }
}

/// Returns the number of clusters with structures of the file system, each counted once
/// (`count_overhead`). With `bigalloc` several structures share one.
fn overhead_clusters(superblock: &Superblock, groups: &[Group]) -> u64 {
    let bits = superblock.cluster_bits;
    let table = superblock.inode_table_blocks();
    let mut spans = Vec::with_capacity(groups.len() * 4);
    for (number, group) in (0u32..).zip(groups) {
        let start = superblock.group_start(number);
        let head = u64::from(superblock.has_superblock(number))
            + u64::from(superblock.descriptor_blocks_in(number));
        spans.extend([
            (start, head),
            (group.block_bitmap, 1),
            (group.inode_bitmap, 1),
            (group.inode_table, table),
        ]);
    }
    spans.retain(|(_, blocks)| *blocks > 0);
    spans.sort_unstable();
    let (mut clusters, mut next) = (0, 0);
    for (start, blocks) in spans {
        let first = (start >> bits).max(next);
        let end = ((start + blocks - 1) >> bits) + 1;
        clusters += end.saturating_sub(first);
        next = next.max(end);
    }
    clusters
}

impl<S: Source> Volume<S> {
    /// Returns the result of `statfs`.
    ///
    /// # Errors
    /// Fails for a group descriptor with a wrong checksum or pointer
    /// ([`Defect`](crate::Defect)), for damage of the journal's inode, whose size is not counted,
    /// and if the source fails.
    pub fn usage(&self) -> Result<Usage> {
        let superblock = self.superblock();
        let bigalloc = superblock.features.has_ro_compat(ro_compat::BIGALLOC);
        let (mut free_clusters, mut free_inodes) = (0, 0);
        let (mut overhead, mut groups) = (0, Vec::new());
        let stored = u64::from(superblock.raw.overhead_clusters.get());
        // The stored overhead is used only where computing it would take long.
        let reckoned = !bigalloc || stored == 0 || stored > superblock.blocks;
        self.visit_groups(|number, group| {
            free_clusters += u64::from(group.free_clusters);
            free_inodes += u64::from(group.free_inodes);
            if reckoned && bigalloc {
                groups.push(*group);
            } else if reckoned {
                overhead += superblock.overhead_blocks(number);
            }
        })?;
        if reckoned {
            overhead += u64::from(superblock.raw.first_data_block.get()) >> superblock.cluster_bits;
            overhead += overhead_clusters(superblock, &groups);
            let journal = superblock.features.has_compat(compat::HAS_JOURNAL)
                && superblock.journal_ino() != 0;
            if journal {
                let blocks = self.inode(superblock.journal_ino())?.size() >> superblock.block_bits;
                overhead += blocks.div_ceil(u64::from(superblock.cluster_blocks()));
            }
        } else {
            overhead = stored;
        }
        let free_blocks = free_clusters << superblock.cluster_bits;
        let root = superblock.root_blocks();
        let reserved =
            root.saturating_add(superblock.reserved_clusters() << superblock.cluster_bits);
        Ok(Usage {
            block_bytes: superblock.block_bytes(),
            blocks: superblock.blocks.saturating_sub(overhead << superblock.cluster_bits),
            free_blocks,
            available_blocks: free_blocks.saturating_sub(reserved),
            inodes: u64::from(superblock.inodes()),
            free_inodes,
            fsid: superblock.fsid(),
        })
    }
}
