//! Block groups: checks the places of their structures, and compares their bitmaps and counts with
//! the findings.

use std::ops::Range;
use std::sync::Arc;

use zerocopy::FromBytes;

use super::inodes::bit;
use super::{Checker, Step};
use crate::group::{BLOCK_UNINIT, INODE_UNINIT, RawGroup};
use crate::{Corruption, Defect};
use crate::{Group, Mmp, Source, features};

impl<S: Source> Checker<'_, S> {
    /// Claims the blocks of superblocks, descriptors, bitmaps and inode tables.
    pub(super) fn own_blocks(&mut self) -> Step {
        let volume = self.volume;
        let superblock = volume.superblock();
        for number in 0..superblock.groups() {
            self.tick()?;
            let start = superblock.group_start(number);
            // With blocks of 1 KiB and clusters, the superblock is not in the first block of group
            // 0, but in its cluster.
            let start = if number == 0 {
                start.max(1024 / u64::from(superblock.block_bytes()))
            } else {
                start
            };
            let mut blocks = u64::from(superblock.descriptor_blocks_in(number));
            if superblock.has_superblock(number) {
                blocks += 1;
                let plain = !superblock.features().has_incompat(features::incompat::META_BG);
                blocks += if plain { superblock.reserved_descriptor_blocks() } else { 0 };
            }
            let blocks = blocks.min(superblock.blocks().saturating_sub(start));
            self.claim(start, blocks, None, None)?;
            let Some(group) = self.sound(volume.group(number), None, None)? else { continue };
            self.group_flags(number)?;
            self.claim(group.block_bitmap, 1, None, None)?;
            self.claim(group.inode_bitmap, 1, None, None)?;
            self.claim(group.inode_table, superblock.inode_table_blocks(), None, None)?;
        }
        let has_mmp = superblock.features().has_incompat(features::incompat::MMP);
        match self.raw.mmp_block.get() {
            0 => Ok(()),
            _ if !has_mmp => Ok(()),
            block if superblock.holds(block, 1) => {
                self.claim(block, 1, None, None)?;
                if !volume.ignores_checksums() {
                    let parse = |bytes: Arc<[u8]>| Mmp::parse(superblock, block, &bytes);
                    let parsed = volume.block(block).and_then(|bytes| Ok(parse(bytes)?));
                    self.sound(parsed, None, None)?;
                }
                Ok(())
            }
            block => {
                let wrong = Corruption::new(Defect::SuperblockField("s_mmp_block"));
                self.found(wrong.in_block(block), None)
            }
        }
    }

    /// Checks that uninitialised parts are only marked as such where a checksum guards the mark.
    fn group_flags(&mut self, number: u32) -> Step {
        let volume = self.volume;
        let (block, at) = volume.descriptor_place(number);
        let guards = features::ro_compat::GDT_CSUM | features::ro_compat::METADATA_CSUM;
        if volume.superblock().features().ro_compat & guards != 0 {
            return Ok(());
        }
        let Some(bytes) = self.block(block, None, None)? else { return Ok(()) };
        let Ok((raw, _)) = RawGroup::ref_from_prefix(&bytes[at..]) else { return Ok(()) };
        let uninit = raw.flags.get() & (INODE_UNINIT | BLOCK_UNINIT) != 0;
        if uninit || raw.itable_unused_lo.get() != 0 {
            let wrong =
                Corruption::new(Defect::GroupField("flags or unused inodes (without a checksum)"));
            return self.found(wrong.in_block(u64::from(number)), None);
        }
        Ok(())
    }

    /// Compares the bitmaps and counts of every group.
    pub(super) fn bitmaps(&mut self) -> Step {
        let volume = self.volume;
        let superblock = volume.superblock();
        let (mut free_clusters, mut free_inodes) = (0, 0_u64);
        for number in 0..superblock.groups() {
            self.tick()?;
            // A defect of the descriptor was reported before.
            let Ok(group) = volume.group(number) else { continue };
            free_clusters += u64::from(group.free_clusters);
            free_inodes += u64::from(group.free_inodes);
            self.blocks_of_group(number, &group)?;
            self.inodes_of_group(number, &group)?;
            let directories = self.directories.get(&number).copied().unwrap_or(0);
            if directories != group.directories {
                self.count(number, "directories in use")?;
            }
        }
        let high = u64::from(self.raw.free_blocks_count_hi.get()) << 32;
        let total = u64::from(self.raw.free_blocks_count_lo.get()) | high;
        let total = total >> superblock.cluster_blocks().trailing_zeros();
        self.summary.stale_totals =
            total != free_clusters || u64::from(self.raw.free_inodes_count.get()) != free_inodes;
        if total > superblock.blocks() {
            self.found(Corruption::new(Defect::FreeCount("free blocks in all")), None)?;
        }
        Ok(())
    }

    /// Reports that a count in the descriptor of group `number` is wrong.
    fn count(&mut self, number: u32, of: &'static str) -> Step {
        self.found(Corruption::new(Defect::FreeCount(of)).in_block(u64::from(number)), None)
    }

    /// Checks that the bits of `bitmap`, in block `block`, after the last block or inode are set.
    fn padding(&mut self, bitmap: Option<&[u8]>, mut past_end: Range<u32>, block: u64) -> Step {
        if bitmap.is_some_and(|bytes| past_end.any(|at| !bit(bytes, at))) {
            return self.found(Corruption::new(Defect::BitmapPadding).in_block(block), None);
        }
        Ok(())
    }

    /// Compares the block bitmap of a group, and its count of free clusters.
    fn blocks_of_group(&mut self, number: u32, group: &Group) -> Step {
        let volume = self.volume;
        let superblock = volume.superblock();
        let per_group = superblock.clusters_per_group();
        let first = u64::from(number) * u64::from(per_group);
        let clusters = self.cluster(superblock.blocks().saturating_sub(1)) + 1;
        let here = clusters.saturating_sub(first).min(u64::from(per_group)) as u32;
        let Some(bitmap) = self.sound(volume.block_bitmap(number), None, None)? else {
            return Ok(());
        };
        self.padding(bitmap.as_deref(), here..per_group, group.block_bitmap)?;
        let mut free = 0;
        let mut last = None;
        for at in 0..here {
            if at % 4096 == 0 {
                self.tick()?;
            }
            let used = self.used.contains(first + u64::from(at));
            let replayed = self.replayed.contains(first + u64::from(at));
            // An uninitialised bitmap has only the file system's own blocks in use.
            let own = self.own.contains(first + u64::from(at));
            let marked = bitmap.as_ref().map_or(own, |bitmap| bit(bitmap, at));
            free += u32::from(!marked);
            let defect = match (used, marked) {
                _ if replayed => None,
                (true, false) => Some(Defect::BlockUnmarked),
                (false, true) => Some(Defect::BlockLeaked),
                _ => None,
            };
            if defect.is_some() && defect != last {
                let block = superblock.group_start(0)
                    + (first + u64::from(at)) * u64::from(superblock.cluster_blocks());
                // The defect is reported once per run.
                let defect = defect.unwrap_or(Defect::BlockLeaked);
                self.found(Corruption::new(defect).in_block(block), None)?;
            }
            last = defect;
        }
        if free != group.free_clusters {
            self.count(number, "free blocks")?;
        }
        Ok(())
    }

    /// Compares the inode bitmap of a group, and its counts.
    fn inodes_of_group(&mut self, number: u32, group: &Group) -> Step {
        let volume = self.volume;
        let superblock = volume.superblock();
        let per_group = superblock.inodes_per_group();
        let Some(bitmap) = self.sound(volume.inode_bitmap(number), None, None)? else {
            return Ok(());
        };
        let bits = superblock.block_bytes().saturating_mul(8);
        self.padding(bitmap.as_deref(), per_group..bits, group.inode_bitmap)?;
        let (mut free, mut last_used) = (0, None);
        for at in 0..per_group {
            let ino = u64::from(number) * u64::from(per_group) + u64::from(at) + 1;
            let marked = bitmap.as_ref().is_some_and(|bitmap| bit(bitmap, at));
            free += u32::from(!marked);
            let replayed =
                u32::try_from(ino).is_ok_and(|ino| volume.replayed().before().contains_key(&ino));
            if self.seen.contains(ino) && !replayed {
                last_used = Some(at);
                if !marked {
                    // The number fits in 32 bits, because it was seen.
                    let ino = u32::try_from(ino).unwrap_or(u32::MAX);
                    self.wrong(Defect::InodeUnmarked, ino, None)?;
                }
            }
        }
        if free != group.free_inodes {
            self.count(number, "free inodes")?;
        }
        if last_used.is_some_and(|last| last >= per_group.saturating_sub(group.unused_inodes)) {
            self.count(number, "unused inodes")?;
        }
        Ok(())
    }
}
