//! The layout of a new file system.

use std::ops::Range;

use zerocopy::little_endian::{U16, U32};

use super::super::checksum::crc32c;
use super::super::features::{compat, incompat, ro_compat};
use super::super::superblock::{RawSuperblock, SUPERBLOCK_MAGIC, Superblock};
use super::options::{MakeOptions, MakeRefusal};
use super::space::Space;

/// Groups with adjacent bitmaps and tables, as a power of two.
const FLEX_BITS: u8 = 4;
/// The maximum number of blocks of a group, and the maximum number of inodes including those in the
/// table's last block (`EXT2_MAX_BLOCKS_PER_GROUP`). Both counts have 16 bits.
const PER_GROUP_MAX: u32 = (1 << 16) - 8;
/// The minimum number of data blocks of the last group.
const LAST_GROUP_DATA_BLOCKS: u64 = 50;
/// The maximum number of extents listed in an inode.
const INODE_EXTENTS_MAX: usize = 4;
/// The longest extent, in blocks.
const EXTENT_BLOCKS_MAX: u64 = 1 << 15;
/// The minimum number of blocks of a journal (`JBD2_MIN_JOURNAL_BLOCKS`).
const JOURNAL_BLOCKS_MIN: u64 = 1024;
/// Ratio of journal blocks to fast commit blocks (`EXT2_JOURNAL_TO_FC_BLKS_RATIO`).
const FAST_COMMIT_RATIO: u64 = 64;
/// The maximum number of blocks of a journal.
const JOURNAL_BLOCKS_MAX: u64 = 10_240_000;
/// The size below which blocks and inodes are smaller.
const SMALL_BYTES: u64 = 512 << 20;
/// The size from which there are fewer inodes.
const BIG_BYTES: u64 = 4 << 40;
/// The factor by which the file system can grow without moving its descriptors.
const GROWTH: u64 = 1024;
/// The inode of the journal.
pub(super) const JOURNAL_INO: u32 = 8;
/// The last inode in use without an orphan file. It is `lost+found`, after the reserved ones.
pub(super) const LOST_FOUND_INO: u32 = 11;
/// The inode of the orphan file, if there is one.
pub(super) const ORPHAN_FILE_INO: u32 = 12;

/// The places of a group's bitmaps and table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GroupPlace {
    pub block_bitmap: u64,
    pub inode_bitmap: u64,
    pub inode_table: u64,
}

/// The layout of a new file system, computed without writing.
#[derive(Debug, Clone)]
pub struct Layout {
    pub(super) options: MakeOptions,
    pub(super) superblock: Superblock,
    pub(super) space: Space,
    pub(super) groups: Vec<GroupPlace>,
    pub(super) root: u64,
    pub(super) lost_found: Vec<Range<u64>>,
    /// The double indirect block of the reserved descriptor blocks.
    pub(super) resize: u64,
    pub(super) journal: Vec<Range<u64>>,
    /// The block of the journal's extents, if they do not fit in its inode.
    pub(super) journal_leaf: Option<u64>,
    pub(super) fast_commit_blocks: u32,
    pub(super) orphan_file: Vec<Range<u64>>,
}

fn refuse<T>(why: impl Into<String>) -> Result<T, MakeRefusal> {
    Err(MakeRefusal(why.into()))
}

/// Returns the size of the journal for a file system of `blocks` blocks, in blocks
/// (`ext2fs_default_journal_size`).
fn usual_journal_blocks(blocks: u64) -> u64 {
    match blocks {
        0..0x8000 => 1024,
        0x8000..0x4_0000 => 4096,
        0x4_0000..0x8_0000 => 8192,
        0x8_0000..0x40_0000 => 16_384,
        0x40_0000..0x80_0000 => 32_768,
        0x80_0000..0x100_0000 => 65_536,
        0x100_0000..0x200_0000 => 131_072,
        _ => 262_144,
    }
}

/// Returns the size of the orphan file for a file system of `blocks` blocks, in blocks
/// (`ext2fs_default_orphan_file_blocks`).
fn usual_orphan_file_blocks(blocks: u64) -> u64 {
    (blocks / 4096).clamp(32, 512)
}

/// Returns the groups after the first that have a copy of the superblock.
pub(super) fn backups(superblock: &Superblock) -> impl Iterator<Item = u32> {
    (1..superblock.groups()).filter(|group| superblock.has_superblock(*group))
}

impl Layout {
    /// Computes the layout of a file system of at most `bytes` bytes, on a device with logical
    /// blocks of `device_block_bytes` bytes.
    ///
    /// # Errors
    /// Fails if such a file system is not possible.
    pub fn new(
        options: &MakeOptions,
        bytes: u64,
        device_block_bytes: u32,
    ) -> Result<Self, MakeRefusal> {
        let usual = if bytes < SMALL_BYTES { 1024 } else { 4096 };
        let block_bytes = options.block_bytes.unwrap_or_else(|| device_block_bytes.max(usual));
        if !block_bytes.is_power_of_two() || !(1024..=65_536).contains(&block_bytes) {
            return refuse("a block has 1, 2, 4, 8, 16, 32 or 64 KiB");
        }
        if block_bytes < device_block_bytes {
            return refuse(format!(
                "blocks of {block_bytes} bytes: the device's have {device_block_bytes}"
            ));
        }
        let inode_bytes = options.inode_bytes;
        if !inode_bytes.is_power_of_two() || inode_bytes < 128 || inode_bytes > block_bytes {
            return refuse("an inode has a power of two of bytes, from 128 to a block");
        }
        if options.label.len() > 16 {
            return refuse("a label has 16 bytes at most");
        }
        if options.reserved_percent > 50 {
            return refuse("no more than 50 % of the blocks can be reserved");
        }
        let blocks = bytes / u64::from(block_bytes);
        if blocks > u64::from(u32::MAX) {
            return refuse(format!(
                "more than 2^32 - 1 blocks of {block_bytes} bytes: use larger ones"
            ));
        }
        let superblock = Self::superblock(options, block_bytes, blocks)?;
        Self::place(options.clone(), superblock)
    }

    /// Returns the superblock for `blocks` blocks, or fewer: a last group with too little room is
    /// omitted.
    fn superblock(
        options: &MakeOptions,
        block_bytes: u32,
        mut blocks: u64,
    ) -> Result<Superblock, MakeRefusal> {
        let bytes = blocks * u64::from(block_bytes);
        let ratio = options.bytes_per_inode.unwrap_or(match bytes {
            0..SMALL_BYTES => 4096,
            SMALL_BYTES..BIG_BYTES => 16_384,
            _ => 32_768,
        });
        if ratio < 1024 {
            return refuse("there is an inode for every 1024 bytes at most");
        }
        let first = u64::from(block_bytes == 1024);
        let per_group = u64::from((8 * block_bytes).min(PER_GROUP_MAX));
        let inodes_per_block = block_bytes / options.inode_bytes;
        let descriptor_bytes: u32 = if options.bit64 { 64 } else { 32 };
        let per_block = u64::from(block_bytes / descriptor_bytes);
        loop {
            if blocks <= first + LAST_GROUP_DATA_BLOCKS {
                return refuse("too small for a file system");
            }
            let groups = (blocks - first).div_ceil(per_group);
            let inodes =
                (blocks * u64::from(block_bytes) / ratio).max(u64::from(ORPHAN_FILE_INO) + 1);
            let unit = u64::from(inodes_per_block.max(8));
            let most = u64::from((8 * block_bytes).min(PER_GROUP_MAX)) / unit * unit;
            let mut in_group = inodes.div_ceil(groups).next_multiple_of(unit);
            if options.bytes_per_inode.is_none() {
                in_group = in_group.min(most);
            }
            if in_group > most || in_group * groups > u64::from(u32::MAX) {
                return refuse("too many inodes: have more bytes for each");
            }
            let table_blocks =
                (in_group * u64::from(options.inode_bytes)).div_ceil(u64::from(block_bytes));
            let descriptor_blocks = groups.div_ceil(per_block);
            let grown = blocks.saturating_mul(GROWTH).min(u64::from(u32::MAX));
            let grown_blocks = (grown - first).div_ceil(per_group).div_ceil(per_block);
            let kept = (grown_blocks - descriptor_blocks.min(grown_blocks))
                .min(u64::from(block_bytes / 4));

            let mut raw = RawSuperblock::default();
            fill(&mut raw, options, block_bytes, blocks);
            raw.blocks_per_group = U32::new(per_group as u32);
            raw.clusters_per_group = U32::new(per_group as u32);
            raw.inodes_per_group = U32::new(in_group as u32);
            raw.inodes_count = U32::new((in_group * groups) as u32);
            raw.reserved_gdt_blocks = U16::new(kept as u16);
            raw.checksum = U32::new(raw.right_checksum());
            let superblock = Superblock::parse(&raw, false).map_err(|error| {
                MakeRefusal(format!("no file system can be like that: {error:?}"))
            })?;

            let last_blocks = blocks - superblock.group_start(groups as u32 - 1);
            let backup = superblock.has_superblock(groups as u32 - 1);
            let own = 2 + table_blocks + if backup { 1 + descriptor_blocks + kept } else { 0 };
            if 1 + 2 + descriptor_blocks + kept + table_blocks > per_group {
                return refuse("too many inodes: have more bytes for each");
            }
            if last_blocks >= own + LAST_GROUP_DATA_BLOCKS {
                return Ok(superblock);
            }
            if groups == 1 {
                return refuse("too small for a file system");
            }
            blocks -= last_blocks;
        }
    }

    /// Allocates everything.
    fn place(options: MakeOptions, superblock: Superblock) -> Result<Self, MakeRefusal> {
        let full =
            || MakeRefusal("there is no room for inodes and journal: have fewer inodes".to_owned());
        let (blocks, groups) = (superblock.blocks(), superblock.groups());
        let mut space = Space::default();
        let kept = u64::from(superblock.raw.reserved_gdt_blocks.get());
        for group in std::iter::once(0).chain(backups(&superblock)) {
            let start = superblock.group_start(group);
            space.mark(start..start + 1 + u64::from(superblock.descriptor_blocks()) + kept);
        }
        let mut places = Vec::with_capacity(groups as usize);
        let flex = 1_u32 << FLEX_BITS;
        for first in (0..groups).step_by(flex as usize) {
            let last = (first + flex).min(groups);
            let end = if last == groups { blocks } else { superblock.group_start(last) };
            let within = superblock.group_start(first)..end;
            let mut each = |blocks| {
                let taken = (first..last).map(|_| space.take(within.clone(), blocks));
                taken.collect::<Option<Vec<_>>>().ok_or_else(full)
            };
            let (block_bitmaps, inode_bitmaps) = (each(1)?, each(1)?);
            let tables = each(superblock.inode_table_blocks())?;
            let all = block_bitmaps.into_iter().zip(inode_bitmaps).zip(tables);
            places.extend(all.map(|((block_bitmap, inode_bitmap), inode_table)| GroupPlace {
                block_bitmap,
                inode_bitmap,
                inode_table,
            }));
        }

        let first = u64::from(superblock.raw.first_data_block.get());
        let everywhere = first..blocks;
        let everywhere = std::slice::from_ref(&everywhere);
        // The inodes of these files list the extents themselves.
        let listed = |taken: Option<Vec<Range<u64>>>| {
            taken.filter(|extents| extents.len() <= INODE_EXTENTS_MAX).ok_or_else(full)
        };
        let mut one = || space.take(first..blocks, 1).ok_or_else(full);
        let (root, resize) = (one()?, one()?);
        let block_bytes = u64::from(superblock.block_bytes());
        // The room lets e2fsck link lost files without allocating blocks.
        let lost_found_blocks = (16_384 / block_bytes).clamp(2, 12);
        let lost_found = listed(take_many(&mut space, everywhere, lost_found_blocks))?;

        let wanted = options.journal_bytes.map(|bytes| bytes / block_bytes);
        let mut journal_blocks = wanted.unwrap_or_else(|| usual_journal_blocks(blocks));
        let mut fast_commit_blocks = 0;
        if options.fast_commit {
            fast_commit_blocks = journal_blocks / FAST_COMMIT_RATIO;
            journal_blocks += fast_commit_blocks;
        }
        if journal_blocks - fast_commit_blocks < JOURNAL_BLOCKS_MIN {
            return refuse(format!(
                "a journal has {} KiB at least here",
                (JOURNAL_BLOCKS_MIN * block_bytes) >> 10
            ));
        }
        if journal_blocks > JOURNAL_BLOCKS_MAX || journal_blocks > blocks / 2 {
            return refuse(
                "the journal would be larger than half the file system; too small for one",
            );
        }
        // The journal is in the middle of the disk, to keep seeks short.
        let middle = superblock.group_start(groups / 2 / flex * flex);
        let journal = take_many(&mut space, &[middle..blocks, first..middle], journal_blocks);
        let journal = journal.ok_or_else(full)?;
        let mut journal_leaf = None;
        if journal.len() > INODE_EXTENTS_MAX {
            let near = space.take(journal[0].start..blocks, 1);
            journal_leaf = Some(near.or_else(|| space.take(first..blocks, 1)).ok_or_else(full)?);
        }
        let orphan_file = if options.orphan_file {
            let wanted = usual_orphan_file_blocks(blocks);
            listed(take_many(&mut space, everywhere, wanted))?
        } else {
            Vec::new()
        };
        let mut layout = Self {
            options,
            superblock,
            space,
            groups: places,
            root,
            lost_found,
            resize,
            journal,
            journal_leaf,
            fast_commit_blocks: fast_commit_blocks as u32,
            orphan_file,
        };
        layout.complete_superblock();
        Ok(layout)
    }

    /// Returns the size of the file system, in bytes.
    pub fn bytes(&self) -> u64 {
        self.superblock.bytes()
    }

    /// Returns the superblock. Its checksum is computed when it is written.
    pub fn superblock_of(&self) -> &Superblock {
        &self.superblock
    }

    /// Returns the size of the journal, in bytes.
    pub fn journal_bytes(&self) -> u64 {
        self.journal_blocks() << self.superblock.block_bits()
    }

    pub(super) fn journal_blocks(&self) -> u64 {
        self.journal.iter().map(|range| range.end - range.start).sum()
    }

    /// Returns the blocks of `group`.
    pub(super) fn group_blocks(&self, group: u32) -> Range<u64> {
        let start = self.superblock.group_start(group);
        start..(start + self.superblock.blocks_per_group()).min(self.superblock.blocks())
    }

    /// Returns the last inode that is in use.
    pub(super) fn last_ino(&self) -> u32 {
        if self.options.orphan_file { ORPHAN_FILE_INO } else { LOST_FOUND_INO }
    }

    /// Fills in the counts that depend on the allocation.
    fn complete_superblock(&mut self) {
        let blocks = self.superblock.blocks();
        let first = u64::from(self.superblock.raw.first_data_block.get());
        let free = blocks - first - self.space.count_in(first..blocks);
        let kept = u64::from(self.superblock.raw.reserved_gdt_blocks.get());
        let copies = 1 + backups(&self.superblock).count() as u64;
        let of_groups =
            u64::from(self.superblock.groups()) * (2 + self.superblock.inode_table_blocks());
        let overhead = first
            + copies * (1 + u64::from(self.superblock.descriptor_blocks()) + kept)
            + of_groups
            + self.journal_blocks();
        let last_ino = self.last_ino();
        let raw = &mut self.superblock.raw;
        raw.free_blocks_count_lo = U32::new(free as u32);
        raw.free_blocks_count_hi = U32::new((free >> 32) as u32);
        raw.free_inodes_count = U32::new(raw.inodes_count.get() - last_ino);
        raw.overhead_clusters = U32::new(overhead as u32);
    }
}

/// Allocates `blocks` blocks, from the first of `places` on, in as few extents as possible.
fn take_many(space: &mut Space, places: &[Range<u64>], blocks: u64) -> Option<Vec<Range<u64>>> {
    let mut taken: Vec<Range<u64>> = Vec::new();
    let mut left = blocks;
    for place in places {
        while left > 0 {
            let some = left.min(EXTENT_BLOCKS_MAX);
            let Some(range) = space.take_some(place.clone(), some) else { break };
            left -= range.end - range.start;
            taken.push(range);
        }
    }
    (left == 0).then_some(taken)
}

/// The fields of a superblock that do not depend on the layout.
fn fill(raw: &mut RawSuperblock, options: &MakeOptions, block_bytes: u32, blocks: u64) {
    let bit = |set: bool, bits: u32| if set { bits } else { 0 };
    raw.blocks_count_lo = U32::new(blocks as u32);
    raw.blocks_count_hi = U32::new((blocks >> 32) as u32);
    let reserved = blocks * u64::from(options.reserved_percent) / 100;
    raw.r_blocks_count_lo = U32::new(reserved as u32);
    raw.r_blocks_count_hi = U32::new((reserved >> 32) as u32);
    raw.first_data_block = U32::new(u32::from(block_bytes == 1024));
    raw.log_block_size = U32::new(block_bytes.trailing_zeros() - 10);
    raw.log_cluster_size = raw.log_block_size;
    let seconds = options.now.seconds;
    let (low, high) = (U32::new(seconds as u32), (seconds >> 32) as u8);
    (raw.wtime, raw.wtime_hi) = (low, high);
    (raw.mkfs_time, raw.mkfs_time_hi) = (low, high);
    (raw.lastcheck, raw.lastcheck_hi) = (low, high);
    raw.max_mnt_count = U16::new(u16::MAX);
    raw.magic = U16::new(SUPERBLOCK_MAGIC);
    // The values mean: unmounted cleanly, continue after errors, and the revision with all
    // features.
    raw.state = U16::new(1);
    raw.errors = U16::new(1);
    raw.rev_level = U32::new(1);
    raw.first_ino = U32::new(LOST_FOUND_INO);
    raw.inode_size = U16::new(options.inode_bytes as u16);
    raw.feature_compat = U32::new(
        compat::HAS_JOURNAL
            | compat::EXT_ATTR
            | compat::RESIZE_INODE
            | compat::DIR_INDEX
            | bit(options.orphan_file, compat::ORPHAN_FILE)
            | bit(options.fast_commit, compat::FAST_COMMIT),
    );
    raw.feature_incompat = U32::new(
        incompat::FILETYPE
            | incompat::EXTENTS
            | incompat::FLEX_BG
            | bit(options.bit64, incompat::BIT64)
            | bit(options.checksum_seed, incompat::CSUM_SEED),
    );
    let extra = bit(options.inode_bytes > 128, ro_compat::EXTRA_ISIZE);
    raw.feature_ro_compat = U32::new(
        ro_compat::SPARSE_SUPER
            | ro_compat::LARGE_FILE
            | ro_compat::HUGE_FILE
            | ro_compat::DIR_NLINK
            | ro_compat::METADATA_CSUM
            | extra,
    );
    raw.uuid = options.uuid;
    raw.volume_name[..options.label.len()].copy_from_slice(&options.label);
    raw.journal_inum = U32::new(JOURNAL_INO);
    let (words, _) = options.hash_seed.as_chunks::<4>();
    raw.hash_seed =
        [words[0], words[1], words[2], words[3]].map(|word| U32::new(u32::from_le_bytes(word)));
    // The hash is half MD4 with signed characters, as on most machines.
    raw.def_hash_version = 1;
    raw.flags = U32::new(1);
    // The superblock has a copy of the journal's inode.
    raw.jnl_backup_type = 1;
    raw.desc_size = U16::new(if options.bit64 { 64 } else { 0 });
    // The options are user_xattr and acl.
    raw.default_mount_opts = U32::new(0xC);
    if options.inode_bytes > 128 {
        raw.min_extra_isize = U16::new(32);
        raw.want_extra_isize = U16::new(32);
    }
    raw.log_groups_per_flex = FLEX_BITS;
    raw.checksum_type = 1;
    if options.checksum_seed {
        raw.checksum_seed = U32::new(crc32c(!0, &options.uuid));
    }
    if options.orphan_file {
        raw.orphan_file_inum = U32::new(ORPHAN_FILE_INO);
    }
}
