//! The superblock (kernel documentation: `filesystems/ext4/super.rst`; e2fsprogs:
//! `struct ext2_super_block`).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::checksum::crc32c;
use super::features::{Features, incompat, ro_compat};
use crate::{Corruption, Defect, Timestamp, Unsupported, VolumeInfo};

/// Where the primary superblock is, in bytes from the beginning of the device.
pub const SUPERBLOCK_OFFSET: u64 = 1024;
/// Size of a superblock, in bytes.
pub const SUPERBLOCK_BYTES: usize = 1024;
/// `s_magic`.
pub const SUPERBLOCK_MAGIC: u16 = 0xEF53;

/// A superblock as it is on the disk, unchecked.
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "named as in the kernel's documentation, without s_")]
pub struct RawSuperblock {
    pub inodes_count: U32,
    pub blocks_count_lo: U32,
    pub r_blocks_count_lo: U32,
    pub free_blocks_count_lo: U32,
    pub free_inodes_count: U32,
    pub first_data_block: U32,
    pub log_block_size: U32,
    pub log_cluster_size: U32,
    pub blocks_per_group: U32,
    pub clusters_per_group: U32,
    pub inodes_per_group: U32,
    pub mtime: U32,
    pub wtime: U32,
    pub mnt_count: U16,
    pub max_mnt_count: U16,
    pub magic: U16,
    pub state: U16,
    pub errors: U16,
    pub minor_rev_level: U16,
    pub lastcheck: U32,
    pub checkinterval: U32,
    pub creator_os: U32,
    pub rev_level: U32,
    pub def_resuid: U16,
    pub def_resgid: U16,
    pub first_ino: U32,
    pub inode_size: U16,
    pub block_group_nr: U16,
    pub feature_compat: U32,
    pub feature_incompat: U32,
    pub feature_ro_compat: U32,
    pub uuid: [u8; 16],
    pub volume_name: [u8; 16],
    pub last_mounted: [u8; 64],
    pub algorithm_usage_bitmap: U32,
    pub prealloc_blocks: u8,
    pub prealloc_dir_blocks: u8,
    pub reserved_gdt_blocks: U16,
    pub journal_uuid: [u8; 16],
    pub journal_inum: U32,
    pub journal_dev: U32,
    pub last_orphan: U32,
    pub hash_seed: [U32; 4],
    pub def_hash_version: u8,
    pub jnl_backup_type: u8,
    pub desc_size: U16,
    pub default_mount_opts: U32,
    pub first_meta_bg: U32,
    pub mkfs_time: U32,
    pub jnl_blocks: [U32; 17],
    pub blocks_count_hi: U32,
    pub r_blocks_count_hi: U32,
    pub free_blocks_count_hi: U32,
    pub min_extra_isize: U16,
    pub want_extra_isize: U16,
    pub flags: U32,
    pub raid_stride: U16,
    pub mmp_interval: U16,
    pub mmp_block: U64,
    pub raid_stripe_width: U32,
    pub log_groups_per_flex: u8,
    pub checksum_type: u8,
    pub encryption_level: u8,
    pub reserved_pad: u8,
    pub kbytes_written: U64,
    pub snapshot: [U32; 5],
    pub error_count: U32,
    pub error_log: [u8; 104],
    pub mount_opts: [u8; 64],
    pub usr_quota_inum: U32,
    pub grp_quota_inum: U32,
    pub overhead_clusters: U32,
    pub backup_bgs: [U32; 2],
    pub encrypt_algos: [u8; 4],
    pub encrypt_pw_salt: [u8; 16],
    pub lpf_ino: U32,
    pub prj_quota_inum: U32,
    pub checksum_seed: U32,
    pub wtime_hi: u8,
    pub mtime_hi: u8,
    pub mkfs_time_hi: u8,
    pub lastcheck_hi: u8,
    pub first_error_time_hi: u8,
    pub last_error_time_hi: u8,
    pub error_codes: [u8; 2],
    pub encoding: U16,
    pub encoding_flags: U16,
    pub orphan_file_inum: U32,
    pub reserved: [U32; 94],
    pub checksum: U32,
}

const _: () = {
    assert!(size_of::<RawSuperblock>() == SUPERBLOCK_BYTES);
    assert!(std::mem::offset_of!(RawSuperblock, magic) == 0x38);
    assert!(std::mem::offset_of!(RawSuperblock, journal_uuid) == 0xD0);
    assert!(std::mem::offset_of!(RawSuperblock, jnl_blocks) == 0x10C);
    assert!(std::mem::offset_of!(RawSuperblock, error_count) == 0x194);
    assert!(std::mem::offset_of!(RawSuperblock, usr_quota_inum) == 0x240);
    assert!(std::mem::offset_of!(RawSuperblock, orphan_file_inum) == 0x280);
    assert!(std::mem::offset_of!(RawSuperblock, checksum) == 0x3FC);
};

/// `s_state`: unmounted cleanly.
pub const STATE_VALID: u16 = 1;
/// `s_state`: errors were seen.
pub(super) const STATE_ERROR: u16 = 2;
/// The inode of the root directory.
pub const ROOT_INO: u32 = 2;
/// The first inode number that is nobody's, in the first revision.
const GOOD_OLD_FIRST_INO: u32 = 11;

/// Why a superblock is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// It is damaged, or none.
    Corrupt(Corruption),
    /// It has a feature that is not known.
    Unsupported(Unsupported),
}

impl From<Defect> for Refusal {
    fn from(defect: Defect) -> Self {
        Self::Corrupt(Corruption::new(defect))
    }
}

/// A superblock whose values fit together.
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
    /// The checksum was wrong, and whoever opened it wanted it all the same.
    pub(super) wrong_checksum: bool,
}

fn field<T>(ok: bool, name: &'static str, value: T) -> Result<T, Refusal> {
    if ok { Ok(value) } else { Err(Defect::SuperblockField(name).into()) }
}

impl Superblock {
    /// Checks `raw` for itself: whether the device is large enough is not known here.
    ///
    /// # Errors
    /// [`Refusal`]: what cannot be, or is not known. A wrong checksum is one unless
    ///              `ignore_checksum`.
    pub fn parse(raw: &RawSuperblock, ignore_checksum: bool) -> Result<Self, Refusal> {
        let raw = Box::new(raw.clone());
        if raw.magic.get() != SUPERBLOCK_MAGIC {
            return Err(Defect::SuperblockMagic.into());
        }
        let features = Features {
            compat: raw.feature_compat.get(),
            incompat: raw.feature_incompat.get(),
            ro_compat: raw.feature_ro_compat.get(),
        };
        let metadata_csum = features.has_ro_compat(ro_compat::METADATA_CSUM);
        let covered = &raw.as_bytes()[..SUPERBLOCK_BYTES - 4];
        let wrong_checksum = metadata_csum && crc32c(!0, covered) != raw.checksum.get();
        if wrong_checksum && !ignore_checksum {
            return Err(Defect::SuperblockChecksum.into());
        }
        features.check().map_err(Refusal::Unsupported)?;
        // 1: CRC-32C, the only one there is.
        field(!metadata_csum || raw.checksum_type == 1 || ignore_checksum, "checksum type", ())?;

        let log_block_size = raw.log_block_size.get();
        let block_bits =
            field(log_block_size <= 6, "block size", 10u32.saturating_add(log_block_size))?;
        let block_bytes = 1u32 << block_bits;
        let log_cluster_size = raw.log_cluster_size.get();
        let bigalloc = features.has_ro_compat(ro_compat::BIGALLOC);
        // 2^29 bytes: EXT2_MAX_CLUSTER_LOG_SIZE.
        let fits = log_cluster_size >= log_block_size
            && log_cluster_size <= 19
            && (bigalloc || log_cluster_size == log_block_size);
        let cluster_bits =
            field(fits, "cluster size", log_cluster_size.wrapping_sub(log_block_size))?;

        let bit64 = features.has_incompat(incompat::BIT64);
        let wide = |low: U32, high: U32| {
            u64::from(low.get()) | if bit64 { u64::from(high.get()) << 32 } else { 0 }
        };
        let blocks = wide(raw.blocks_count_lo, raw.blocks_count_hi);
        let bytes = blocks.checked_mul(u64::from(block_bytes));
        field(
            blocks > 0 && bytes.is_some_and(|bytes| bytes <= i64::MAX as u64),
            "block count",
            (),
        )?;
        // The superblock is in block 1 if a block is no larger than what is before it.
        let first = u64::from(raw.first_data_block.get());
        let right_first = u64::from(log_block_size == 0 && cluster_bits == 0);
        field(first == right_first && first < blocks, "first data block", ())?;
        field(
            wide(raw.r_blocks_count_lo, raw.r_blocks_count_hi) <= blocks,
            "reserved block count",
            (),
        )?;

        let clusters_per_group =
            if bigalloc { raw.clusters_per_group.get() } else { raw.blocks_per_group.get() };
        field(
            clusters_per_group > 0 && clusters_per_group <= 8 * block_bytes,
            "clusters per group",
            (),
        )?;
        let blocks_per_group = u64::from(clusters_per_group) << cluster_bits;
        field(u64::from(raw.blocks_per_group.get()) == blocks_per_group, "blocks per group", ())?;
        let groups = u32::try_from((blocks - first).div_ceil(blocks_per_group)).unwrap_or(0);
        field(groups > 0, "group count", ())?;

        let good_old = raw.rev_level.get() == 0;
        let inode_bytes = if good_old { 128 } else { raw.inode_size.get() };
        let power = inode_bytes.is_power_of_two();
        field(
            power && inode_bytes >= 128 && u32::from(inode_bytes) <= block_bytes,
            "inode size",
            (),
        )?;
        let inodes_per_group = raw.inodes_per_group.get();
        let inodes_per_block = block_bytes / u32::from(inode_bytes);
        field(
            inodes_per_group >= inodes_per_block && inodes_per_group <= 8 * block_bytes,
            "inodes per group",
            (),
        )?;
        let inodes = raw.inodes_count.get();
        field(
            u64::from(groups) * u64::from(inodes_per_group) == u64::from(inodes),
            "inode count",
            (),
        )?;
        let first_ino = if good_old { GOOD_OLD_FIRST_INO } else { raw.first_ino.get() };
        field(first_ino >= GOOD_OLD_FIRST_INO && first_ino <= inodes, "first inode", ())?;

        let descriptor_bytes = if bit64 { raw.desc_size.get() } else { 32 };
        let power = descriptor_bytes.is_power_of_two();
        field(
            !bit64 || (power && (64..=1024).contains(&descriptor_bytes)),
            "group descriptor size",
            (),
        )?;
        field(
            u32::from(raw.reserved_gdt_blocks.get()) <= block_bytes / 4,
            "reserved descriptor blocks",
            (),
        )?;

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
        field(meta, "first meta block group", ())?;
        // The descriptors lie behind the superblock, in its group.
        let table = u64::from(found.plain_descriptor_blocks())
            + u64::from(found.raw.reserved_gdt_blocks.get());
        field(table < blocks_per_group.min(blocks), "group descriptor table", ())?;
        Ok(found)
    }

    /// As it is on the disk.
    pub fn raw(&self) -> &RawSuperblock {
        &self.raw
    }

    /// Its features.
    pub fn features(&self) -> Features {
        self.features
    }

    /// Size of a block, in bytes: 1 to 64 KiB.
    pub fn block_bytes(&self) -> u32 {
        1 << self.block_bits
    }

    /// Size of a block, as a power of two.
    pub fn block_bits(&self) -> u32 {
        self.block_bits
    }

    /// Blocks of the file system.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Size of the file system, in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks << self.block_bits
    }

    /// Blocks that are given or taken at once: 1 without `bigalloc`.
    pub fn cluster_blocks(&self) -> u32 {
        1 << self.cluster_bits
    }

    /// Block groups.
    pub fn groups(&self) -> u32 {
        self.groups
    }

    /// Size of an inode, in bytes.
    pub fn inode_bytes(&self) -> u32 {
        u32::from(self.inode_bytes)
    }

    /// Inodes.
    pub fn inodes(&self) -> u32 {
        self.raw.inodes_count.get()
    }

    /// Inodes of a group.
    pub fn inodes_per_group(&self) -> u32 {
        self.raw.inodes_per_group.get()
    }

    /// The first inode number that is not reserved.
    pub fn first_ino(&self) -> u32 {
        if self.raw.rev_level.get() == 0 { GOOD_OLD_FIRST_INO } else { self.raw.first_ino.get() }
    }

    /// Whether `ino` belongs to the file system itself: no directory leads to it. (The root
    /// directory is no such one.)
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

    /// What the checksums of metadata start from.
    pub fn seed(&self) -> u32 {
        self.seed
    }

    /// Whether metadata have checksums.
    pub fn has_checksums(&self) -> bool {
        self.features.has_ro_compat(ro_compat::METADATA_CSUM)
    }

    /// Whether the journal has to be replayed before anything is believed.
    pub fn needs_recovery(&self) -> bool {
        self.features.has_incompat(incompat::RECOVER)
    }

    /// The journal's inode; 0: it is elsewhere, or there is none.
    pub fn journal_ino(&self) -> u32 {
        self.raw.journal_inum.get()
    }

    /// The journal's UUID, if it is on a device of its own.
    pub fn external_journal(&self) -> Option<[u8; 16]> {
        let journal = self.features.has_compat(super::features::compat::HAS_JOURNAL);
        (journal && self.journal_ino() == 0).then_some(self.raw.journal_uuid)
    }

    /// `s_hash_seed`, of directories' hashes; all zeroes: the default one.
    pub fn hash_seed(&self) -> [u32; 4] {
        self.raw.hash_seed.map(U32::get)
    }

    /// `s_def_hash_version`: which hash new indices are sorted by (`DX_HASH_*`, without the sign of
    /// `char`).
    pub fn default_hash_version(&self) -> u8 {
        self.raw.def_hash_version
    }

    /// `s_flags`: bit 0 for signed, bit 1 for unsigned characters in directories' hashes.
    pub fn flags(&self) -> u32 {
        self.raw.flags.get()
    }

    /// What it says of the file system, for people.
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

#[cfg(test)]
pub(super) mod tests {
    use zerocopy::FromZeros;

    use super::*;

    fn raw() -> RawSuperblock {
        let mut raw = RawSuperblock::new_zeroed();
        raw.magic = SUPERBLOCK_MAGIC.into();
        raw.blocks_count_lo = 65_536.into();
        raw.first_data_block = 1.into();
        raw.blocks_per_group = 8192.into();
        raw.clusters_per_group = 8192.into();
        raw.inodes_per_group = 1024.into();
        raw.inodes_count = 8192.into();
        raw.inode_size = 256.into();
        raw.first_ino = 11.into();
        raw.rev_level = 1.into();
        raw.feature_incompat = (incompat::EXTENTS | incompat::FILETYPE).into();
        raw
    }

    /// One of 65,536 blocks of 1 KiB, with extents and without checksums.
    pub(crate) fn example() -> Superblock {
        Superblock::parse(&raw(), false).unwrap()
    }

    /// The same with checksums.
    pub(crate) fn checksummed() -> Superblock {
        let mut raw = raw();
        raw.feature_ro_compat = ro_compat::METADATA_CSUM.into();
        raw.checksum_type = 1;
        raw.checksum = crc32c(!0, &raw.as_bytes()[..SUPERBLOCK_BYTES - 4]).into();
        Superblock::parse(&raw, false).unwrap()
    }

    /// What is said of the example after `change`.
    fn refusal(change: impl FnOnce(&mut RawSuperblock)) -> Option<Refusal> {
        let mut raw = raw();
        change(&mut raw);
        Superblock::parse(&raw, false).err()
    }

    #[test]
    fn fields_that_do_not_fit_together_are_named() {
        assert_eq!(example().groups(), 8);
        let field = |name| Some(Refusal::from(Defect::SuperblockField(name)));
        assert_eq!(refusal(|raw| raw.magic = 0.into()), Some(Defect::SuperblockMagic.into()));
        assert_eq!(refusal(|raw| raw.log_block_size = 7.into()), field("block size"));
        assert_eq!(refusal(|raw| raw.log_cluster_size = 1.into()), field("cluster size"));
        assert_eq!(refusal(|raw| raw.blocks_count_lo = 0.into()), field("block count"));
        assert_eq!(refusal(|raw| raw.first_data_block = 0.into()), field("first data block"));
        assert_eq!(
            refusal(|raw| raw.r_blocks_count_lo = 65_537.into()),
            field("reserved block count")
        );
        assert_eq!(refusal(|raw| raw.blocks_per_group = 0.into()), field("clusters per group"));
        assert_eq!(refusal(|raw| raw.blocks_per_group = 8193.into()), field("clusters per group"));
        assert_eq!(refusal(|raw| raw.inode_size = 192.into()), field("inode size"));
        assert_eq!(refusal(|raw| raw.inode_size = 2048.into()), field("inode size"));
        assert_eq!(refusal(|raw| raw.inodes_per_group = 0.into()), field("inodes per group"));
        assert_eq!(refusal(|raw| raw.inodes_count = 2047.into()), field("inode count"));
        assert_eq!(refusal(|raw| raw.first_ino = 9000.into()), field("first inode"));
        assert_eq!(
            refusal(|raw| raw.reserved_gdt_blocks = 257.into()),
            field("reserved descriptor blocks")
        );
        let wide = |raw: &mut RawSuperblock| {
            raw.feature_incompat = (incompat::BIT64 | incompat::EXTENTS).into()
        };
        assert_eq!(refusal(wide), field("group descriptor size"));
        let huge = |raw: &mut RawSuperblock| {
            wide(raw);
            raw.desc_size = 64.into();
            raw.blocks_count_hi = u32::MAX.into();
        };
        assert_eq!(refusal(huge), field("block count"));
        let many = |raw: &mut RawSuperblock| {
            wide(raw);
            raw.desc_size = 64.into();
            raw.blocks_count_hi = 0xF_FFFF.into();
        };
        assert_eq!(refusal(many), field("group count"));
        let checksums =
            |raw: &mut RawSuperblock| raw.feature_ro_compat = ro_compat::METADATA_CSUM.into();
        assert_eq!(refusal(checksums), Some(Defect::SuperblockChecksum.into()));
        let unknown = refusal(|raw| raw.feature_incompat = 0x8000_0000.into());
        assert!(matches!(unknown, Some(Refusal::Unsupported(_))));
    }

    #[test]
    fn bits_of_any_kind_do_no_harm() {
        let bytes = raw();
        for at in 0..SUPERBLOCK_BYTES {
            for value in [0, 1, 0x7F, 0x80, 0xFF] {
                let mut bytes = bytes.clone();
                bytes.as_mut_bytes()[at] = value;
                let Ok(superblock) = Superblock::parse(&bytes, true) else { continue };
                let groups = superblock.groups();
                for group in [0, 1, groups / 2, groups - 1] {
                    assert!(superblock.group_start(group) < superblock.blocks());
                    superblock.descriptor_blocks_in(group);
                }
                for index in [0, superblock.descriptor_blocks() - 1] {
                    superblock.descriptor_block(index, superblock.primary_block());
                    superblock.descriptor_block(index, superblock.group_start(groups - 1));
                }
            }
        }
    }

    #[test]
    fn backups_are_where_mke2fs_puts_them() {
        let mut sparse = raw();
        sparse.feature_ro_compat = ro_compat::SPARSE_SUPER.into();
        let sparse = Superblock::parse(&sparse, false).unwrap();
        let found: Vec<_> = (0..100).filter(|group| sparse.has_superblock(*group)).collect();
        assert_eq!(found, [0, 1, 3, 5, 7, 9, 25, 27, 49, 81]);
        assert!((0..100).all(|group| example().has_superblock(group)));
        let mut two = raw();
        two.feature_compat = super::super::features::compat::SPARSE_SUPER2.into();
        two.backup_bgs = [1.into(), 17.into()];
        let two = Superblock::parse(&two, false).unwrap();
        assert_eq!(
            (0..100).filter(|group| two.has_superblock(*group)).collect::<Vec<_>>(),
            [0, 1, 17]
        );
    }
}
