//! Zones: the blocks of the file system's own structures, which are neither allocated nor freed.

use std::ops::Range;

use crate::Result;
use meantime_ext4_format::edit::bitmap;
use meantime_ext4_format::features::incompat;
use meantime_ext4_format::{Source, Superblock, Volume};

/// Superblocks, descriptors, bitmaps and inode tables of all groups, and the MMP block.
#[derive(Debug)]
pub(super) struct Zones(Vec<Range<u64>>);

/// Returns how many blocks superblock, descriptors and the room for them to grow take at the
/// beginning of group `number` (e2fsprogs: `lib/ext2fs/alloc_tables.c`,
/// `ext2fs_super_and_bgd_loc2`).
fn head_blocks(superblock: &Superblock, number: u32) -> u64 {
    let descriptors = u64::from(superblock.descriptor_blocks_in(number));
    if !superblock.has_superblock(number) {
        return descriptors;
    }
    let plain = !superblock.features().has_incompat(incompat::META_BG);
    1 + descriptors + if plain { superblock.reserved_descriptor_blocks() } else { 0 }
}

/// Returns `ranges` in order, those that touch or overlap as one.
pub(crate) fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, last| {
        let touches = next.start <= last.end;
        if touches {
            last.end = last.end.max(next.end);
        }
        touches
    });
    ranges
}

impl Zones {
    /// Returns the zones of `volume`.
    pub(super) fn of<S: Source>(volume: &Volume<S>) -> Result<Self> {
        let superblock = volume.superblock();
        let table = superblock.inode_table_blocks();
        let mut ranges: Vec<Range<u64>> = Vec::new();
        volume.visit_groups(|number, group| {
            let start = superblock.group_start(number);
            let own = [
                start..start + head_blocks(superblock, number),
                group.block_bitmap..group.block_bitmap + 1,
                group.inode_bitmap..group.inode_bitmap + 1,
                group.inode_table..group.inode_table + table,
            ];
            for range in own.into_iter().filter(|range| !range.is_empty()) {
                // Structures usually follow each other without a gap.
                match ranges.last_mut().filter(|last| last.end == range.start) {
                    Some(last) => last.end = range.end,
                    None => ranges.push(range),
                }
            }
        })?;
        let mmp = superblock.mmp_block().filter(|block| superblock.holds(*block, 1));
        ranges.extend(mmp.map(|block| block..block + 1));
        Ok(Self(merged(ranges)))
    }

    /// Returns the parts of `blocks` that are the file system's own.
    pub(super) fn within(&self, blocks: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = self.0.partition_point(|range| range.end <= blocks.start);
        let inside = self.0[first..].iter().take_while({
            let end = blocks.end;
            move |range| range.start < end
        });
        inside.map(move |range| range.start.max(blocks.start)..range.end.min(blocks.end))
    }

    /// Returns the block bitmap of group `number` with only the file system's own blocks in use.
    pub(super) fn initial_bitmap(&self, superblock: &Superblock, number: u32) -> Vec<u8> {
        let mut bits = vec![0; superblock.block_bytes() as usize];
        let start = superblock.group_start(number);
        let count = blocks_in(superblock, number);
        for own in self.within(start..start + u64::from(count)) {
            bitmap::set(&mut bits, (own.start - start) as u32..(own.end - start) as u32);
        }
        // Padding bits after the last block count as in use.
        bitmap::set(&mut bits, count..superblock.block_bytes() * 8);
        bits
    }
}

/// Returns the number of blocks of group `number`: the last group may be shorter.
pub(super) fn blocks_in(superblock: &Superblock, number: u32) -> u32 {
    let left = superblock.blocks().saturating_sub(superblock.group_start(number));
    // Fits: at most 8 × 64 Ki.
    left.min(superblock.blocks_per_group()) as u32
}
