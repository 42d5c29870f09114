//! The superblock (kernel documentation: `filesystems/ext4/super.rst`; e2fsprogs:
//! `struct ext2_super_block`).

#[cfg(test)]
pub(super) mod tests;

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use super::checksum::crc32c;
use super::features::{Features, incompat, ro_compat};
use crate::{Corruption, Defect, Result, Timestamp, VolumeInfo};

/// Offset of the primary superblock on the device, in bytes.
pub const SUPERBLOCK_OFFSET: u64 = 1024;
/// Size of a superblock, in bytes.
pub const SUPERBLOCK_BYTES: usize = size_of::<RawSuperblock>();
/// `s_magic`.
pub const SUPERBLOCK_MAGIC: u16 = 0xEF53;

on_disk! {
    /// An unchecked on-disk superblock.
    #[expect(missing_docs, reason = "named as in the kernel's documentation, without s_")]
    pub struct RawSuperblock, 1024 {
        0x00 inodes_count: U32,
        0x04 blocks_count_lo: U32,
        0x08 r_blocks_count_lo: U32,
        0x0C free_blocks_count_lo: U32,
        0x10 free_inodes_count: U32,
        0x14 first_data_block: U32,
        0x18 log_block_size: U32,
        0x1C log_cluster_size: U32,
        0x20 blocks_per_group: U32,
        0x24 clusters_per_group: U32,
        0x28 inodes_per_group: U32,
        0x2C mtime: U32,
        0x30 wtime: U32,
        0x34 mnt_count: U16,
        0x36 max_mnt_count: U16,
        0x38 magic: U16,
        0x3A state: U16,
        0x3C errors: U16,
        0x3E minor_rev_level: U16,
        0x40 lastcheck: U32,
        0x44 checkinterval: U32,
        0x48 creator_os: U32,
        0x4C rev_level: U32,
        0x50 def_resuid: U16,
        0x52 def_resgid: U16,
        0x54 first_ino: U32,
        0x58 inode_size: U16,
        0x5A block_group_nr: U16,
        0x5C feature_compat: U32,
        0x60 feature_incompat: U32,
        0x64 feature_ro_compat: U32,
        0x68 uuid: [u8; 16],
        0x78 volume_name: [u8; 16],
        0x88 last_mounted: [u8; 64],
        0xC8 algorithm_usage_bitmap: U32,
        0xCC prealloc_blocks: u8,
        0xCD prealloc_dir_blocks: u8,
        0xCE reserved_gdt_blocks: U16,
        0xD0 journal_uuid: [u8; 16],
        0xE0 journal_inum: U32,
        0xE4 journal_dev: U32,
        0xE8 last_orphan: U32,
        0xEC hash_seed: [U32; 4],
        0xFC def_hash_version: u8,
        0xFD jnl_backup_type: u8,
        0xFE desc_size: U16,
        0x100 default_mount_opts: U32,
        0x104 first_meta_bg: U32,
        0x108 mkfs_time: U32,
        0x10C jnl_blocks: [U32; 17],
        0x150 blocks_count_hi: U32,
        0x154 r_blocks_count_hi: U32,
        0x158 free_blocks_count_hi: U32,
        0x15C min_extra_isize: U16,
        0x15E want_extra_isize: U16,
        0x160 flags: U32,
        0x164 raid_stride: U16,
        0x166 mmp_interval: U16,
        0x168 mmp_block: U64,
        0x170 raid_stripe_width: U32,
        0x174 log_groups_per_flex: u8,
        0x175 checksum_type: u8,
        0x176 encryption_level: u8,
        0x177 reserved_pad: u8,
        0x178 kbytes_written: U64,
        0x180 snapshot: [U32; 5],
        0x194 error_count: U32,
        0x198 error_log: [u8; 104],
        0x200 mount_opts: [u8; 64],
        0x240 usr_quota_inum: U32,
        0x244 grp_quota_inum: U32,
        0x248 overhead_clusters: U32,
        0x24C backup_bgs: [U32; 2],
        0x254 encrypt_algos: [u8; 4],
        0x258 encrypt_pw_salt: [u8; 16],
        0x268 lpf_ino: U32,
        0x26C prj_quota_inum: U32,
        0x270 checksum_seed: U32,
        0x274 wtime_hi: u8,
        0x275 mtime_hi: u8,
        0x276 mkfs_time_hi: u8,
        0x277 lastcheck_hi: u8,
        0x278 first_error_time_hi: u8,
        0x279 last_error_time_hi: u8,
        0x27A error_codes: [u8; 2],
        0x27C encoding: U16,
        0x27E encoding_flags: U16,
        0x280 orphan_file_inum: U32,
        0x284 reserved: [U32; 94],
        0x3FC checksum: U32,
    }
}

/// This bit of `s_state` says that the file system was unmounted cleanly.
pub const STATE_VALID: u16 = 1;
/// This bit of `s_state` says that errors were seen.
pub(super) const STATE_ERROR: u16 = 2;
/// The inode of the root directory.
pub const ROOT_INO: u32 = 2;
/// The resize inode, which reserves blocks for further group descriptors.
pub(super) const RESIZE_INO: u32 = 7;
/// The first unreserved inode number, in the first revision.
const GOOD_OLD_FIRST_INO: u32 = 11;

impl RawSuperblock {
    /// Returns the primary superblock in `block`, which is its whole block.
    pub(super) fn in_block(block: &[u8]) -> Option<Self> {
        let at = SUPERBLOCK_OFFSET as usize % block.len().max(1);
        Self::read_from_bytes(block.get(at..at + SUPERBLOCK_BYTES)?).ok()
    }

    /// Returns its correct checksum.
    pub(super) fn right_checksum(&self) -> u32 {
        crc32c(!0, &self.as_bytes()[..SUPERBLOCK_BYTES - 4])
    }
}

/// A superblock with consistent values.
#[derive(Debug, Clone)]
pub struct Superblock {
    pub(super) raw: Box<RawSuperblock>,
    pub(super) features: Features,
    pub(super) block_bits: u32,
    /// Blocks of a cluster, as a power of two.
    pub(super) cluster_bits: u32,
    pub(super) blocks: u64,
    pub(super) groups: u32,
    pub(super) inode_bytes: u16,
    pub(super) descriptor_bytes: u16,
    pub(super) seed: u32,
    /// Whether the checksum was wrong and was ignored.
    pub(super) wrong_checksum: bool,
}

/// Fails with the defect of field `name` unless `ok`.
fn field(ok: bool, name: &'static str) -> Result<(), Corruption> {
    if ok { Ok(()) } else { Err(Corruption::new(Defect::SuperblockField(name))) }
}

impl Superblock {
    /// Checks `raw` by itself, without the size of the device. Accepts a wrong checksum if
    /// `ignore_checksum`.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::Error::Corrupt) for an invalid field or checksum;
    /// [`Error::Unsupported`](crate::Error::Unsupported) for an unknown feature.
    pub fn parse(raw: &RawSuperblock, ignore_checksum: bool) -> Result<Self> {
        let raw = Box::new(raw.clone());
        if raw.magic.get() != SUPERBLOCK_MAGIC {
            return Err(Corruption::new(Defect::SuperblockMagic).into());
        }
        let features = Features {
            compat: raw.feature_compat.get(),
            incompat: raw.feature_incompat.get(),
            ro_compat: raw.feature_ro_compat.get(),
        };
        let metadata_csum = features.has_ro_compat(ro_compat::METADATA_CSUM);
        let wrong_checksum = metadata_csum && raw.right_checksum() != raw.checksum.get();
        if wrong_checksum && !ignore_checksum {
            return Err(Corruption::new(Defect::SuperblockChecksum).into());
        }
        features.check()?;
        // Type 1 is CRC-32C, the only one.
        field(!metadata_csum || raw.checksum_type == 1 || ignore_checksum, "checksum type")?;

        let log_block_size = raw.log_block_size.get();
        field(log_block_size <= 6, "block size")?;
        let block_bits = 10 + log_block_size;
        let block_bytes = 1u32 << block_bits;
        let log_cluster_size = raw.log_cluster_size.get();
        let bigalloc = features.has_ro_compat(ro_compat::BIGALLOC);
        // The limit is 2^29 bytes (EXT2_MAX_CLUSTER_LOG_SIZE).
        let fits = log_cluster_size >= log_block_size
            && log_cluster_size <= 19
            && (bigalloc || log_cluster_size == log_block_size);
        field(fits, "cluster size")?;
        let cluster_bits = log_cluster_size - log_block_size;

        let bit64 = features.has_incompat(incompat::BIT64);
        let wide = |low: U32, high: U32| {
            u64::from(low.get()) | if bit64 { u64::from(high.get()) << 32 } else { 0 }
        };
        let blocks = wide(raw.blocks_count_lo, raw.blocks_count_hi);
        let bytes = blocks.checked_mul(u64::from(block_bytes));
        let fits = bytes.is_some_and(|bytes| bytes <= i64::MAX as u64);
        field(blocks > 0 && fits, "block count")?;
        // The superblock is in block 1 if blocks are no larger than its offset.
        let first = u64::from(raw.first_data_block.get());
        let right_first = u64::from(log_block_size == 0 && cluster_bits == 0);
        field(first == right_first && first < blocks, "first data block")?;
        let reserved = wide(raw.r_blocks_count_lo, raw.r_blocks_count_hi);
        field(reserved <= blocks, "reserved block count")?;

        let clusters_per_group =
            if bigalloc { raw.clusters_per_group.get() } else { raw.blocks_per_group.get() };
        let bits = 8 * block_bytes;
        field((1..=bits).contains(&clusters_per_group), "clusters per group")?;
        let blocks_per_group = u64::from(clusters_per_group) << cluster_bits;
        field(u64::from(raw.blocks_per_group.get()) == blocks_per_group, "blocks per group")?;
        let groups = u32::try_from((blocks - first).div_ceil(blocks_per_group)).unwrap_or(0);
        field(groups > 0, "group count")?;

        let good_old = raw.rev_level.get() == 0;
        let inode_bytes = if good_old { 128 } else { raw.inode_size.get() };
        let fits = inode_bytes >= 128 && u32::from(inode_bytes) <= block_bytes;
        field(inode_bytes.is_power_of_two() && fits, "inode size")?;
        let inodes_per_group = raw.inodes_per_group.get();
        let inodes_per_block = block_bytes / u32::from(inode_bytes);
        field((inodes_per_block..=bits).contains(&inodes_per_group), "inodes per group")?;
        let inodes = raw.inodes_count.get();
        let in_groups = u64::from(groups) * u64::from(inodes_per_group);
        field(in_groups == u64::from(inodes), "inode count")?;
        let first_ino = if good_old { GOOD_OLD_FIRST_INO } else { raw.first_ino.get() };
        field((GOOD_OLD_FIRST_INO..=inodes).contains(&first_ino), "first inode")?;

        let descriptor_bytes = if bit64 { raw.desc_size.get() } else { 32 };
        let fits = descriptor_bytes.is_power_of_two() && (64..=1024).contains(&descriptor_bytes);
        field(!bit64 || fits, "group descriptor size")?;
        let reserved = u32::from(raw.reserved_gdt_blocks.get());
        field(reserved <= block_bytes / 4, "reserved descriptor blocks")?;

        let seed = if features.has_incompat(incompat::CSUM_SEED) {
            raw.checksum_seed.get()
        } else {
            crc32c(!0, &raw.uuid)
        };
        let found = Self {
            raw,
            features,
            block_bits,
            cluster_bits,
            blocks,
            groups,
            inode_bytes,
            descriptor_bytes,
            seed,
            wrong_checksum,
        };
        let meta = !features.has_incompat(incompat::META_BG)
            || found.raw.first_meta_bg.get() <= found.descriptor_blocks();
        field(meta, "first meta block group")?;
        // The descriptors follow the superblock, in its group.
        let table = u64::from(found.plain_descriptor_blocks()) + u64::from(reserved);
        field(table < blocks_per_group.min(blocks), "group descriptor table")?;
        Ok(found)
    }

    /// Returns the on-disk form.
    pub fn raw(&self) -> &RawSuperblock {
        &self.raw
    }

    /// Returns its features.
    pub fn features(&self) -> Features {
        self.features
    }

    /// Returns the size of a block, in bytes: 1 to 64 KiB.
    pub fn block_bytes(&self) -> u32 {
        1 << self.block_bits
    }

    /// Returns the size of a block, as a power of two.
    pub fn block_bits(&self) -> u32 {
        self.block_bits
    }

    /// Returns the number of blocks of the file system.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Returns the size of the file system, in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks << self.block_bits
    }

    /// Returns the number of blocks per allocation unit, which is 1 without `bigalloc`.
    pub fn cluster_blocks(&self) -> u32 {
        1 << self.cluster_bits
    }

    /// Returns the number of block groups.
    pub fn groups(&self) -> u32 {
        self.groups
    }

    /// Returns the size of an inode, in bytes.
    pub fn inode_bytes(&self) -> u32 {
        u32::from(self.inode_bytes)
    }

    /// Returns whether inodes have room for the nanoseconds of times (Linux: `s_time_gran`).
    pub fn has_nanoseconds(&self) -> bool {
        self.inode_bytes() as usize > size_of::<crate::inode::RawInode>()
    }

    /// Returns the number of inodes.
    pub fn inodes(&self) -> u32 {
        self.raw.inodes_count.get()
    }

    /// Returns the number of inodes of a group.
    pub fn inodes_per_group(&self) -> u32 {
        self.raw.inodes_per_group.get()
    }

    /// Returns the first unreserved inode number.
    pub fn first_ino(&self) -> u32 {
        if self.raw.rev_level.get() == 0 { GOOD_OLD_FIRST_INO } else { self.raw.first_ino.get() }
    }

    /// Returns whether `ino` belongs to the file system itself, without a name in a directory. The
    /// root directory does not count.
    pub fn is_reserved(&self, ino: u32) -> bool {
        let raw = &self.raw;
        let own = [
            raw.usr_quota_inum,
            raw.grp_quota_inum,
            raw.prj_quota_inum,
            raw.orphan_file_inum,
            raw.journal_inum,
        ];
        (ino < self.first_ino() && ino != ROOT_INO)
            || own.iter().any(|own| own.get() == ino && ino != 0)
    }

    /// Returns the initial state of metadata checksums.
    pub fn seed(&self) -> u32 {
        self.seed
    }

    /// Returns whether metadata has checksums.
    pub fn has_checksums(&self) -> bool {
        self.features.has_ro_compat(ro_compat::METADATA_CSUM)
    }

    /// Returns whether the journal has to be replayed before anything else is read.
    pub fn needs_recovery(&self) -> bool {
        self.features.has_incompat(incompat::RECOVER)
    }

    /// Returns the journal's inode, or 0 if it is on another device or there is none.
    pub fn journal_ino(&self) -> u32 {
        self.raw.journal_inum.get()
    }

    /// Returns the journal's UUID, if it is on another device.
    pub fn external_journal(&self) -> Option<[u8; 16]> {
        let journal = self.features.has_compat(super::features::compat::HAS_JOURNAL);
        (journal && self.journal_ino() == 0).then_some(self.raw.journal_uuid)
    }

    /// Returns `s_hash_seed`, for directory hashes. All zeroes select the default.
    pub fn hash_seed(&self) -> [u32; 4] {
        self.raw.hash_seed.map(U32::get)
    }

    /// Returns `s_def_hash_version`: the hash function of new indices (`DX_HASH_*`, without the
    /// sign of `char`).
    pub fn default_hash_version(&self) -> u8 {
        self.raw.def_hash_version
    }

    /// Returns `s_flags`: bit 0 for signed, bit 1 for unsigned characters in directory hashes.
    pub fn flags(&self) -> u32 {
        self.raw.flags.get()
    }

    /// Returns information for display.
    pub fn info(&self) -> VolumeInfo {
        let until_zero =
            |bytes: &[u8]| bytes.iter().copied().take_while(|byte| *byte != 0).collect::<Vec<_>>();
        let raw = &self.raw;
        let time = |low: U32, high: u8| Timestamp {
            seconds: i64::from(low.get()) | i64::from(high) << 32,
            nanoseconds: 0,
        };
        VolumeInfo {
            uuid: raw.uuid,
            label: until_zero(&raw.volume_name),
            last_mounted: until_zero(&raw.last_mounted),
            features: self.features.names(),
            block_bytes: self.block_bytes(),
            inode_bytes: self.inode_bytes(),
            blocks: self.blocks,
            inodes: self.inodes(),
            groups: self.groups,
            errors: raw.state.get() & STATE_ERROR != 0,
            clean: raw.state.get() & STATE_VALID != 0 && !self.needs_recovery(),
            recovered: None,
            created: time(raw.mkfs_time, raw.mkfs_time_hi),
            written: time(raw.wtime, raw.wtime_hi),
        }
    }
}
