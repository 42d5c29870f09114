use zerocopy::FromZeros;

use super::*;
use crate::Error;

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

/// Returns a superblock for 65,536 blocks of 1 KiB, with extents and without checksums.
pub(crate) fn example() -> Superblock {
    Superblock::parse(&raw(), false).unwrap()
}

/// Returns the example with checksums.
pub(crate) fn checksummed() -> Superblock {
    let mut raw = raw();
    raw.feature_ro_compat = ro_compat::METADATA_CSUM.into();
    raw.checksum_type = 1;
    raw.checksum = raw.right_checksum().into();
    Superblock::parse(&raw, false).unwrap()
}

/// Returns the error for the example after `change`.
fn refusal(change: impl FnOnce(&mut RawSuperblock)) -> Option<Error> {
    let mut raw = raw();
    change(&mut raw);
    Superblock::parse(&raw, false).err()
}

#[test]
fn invalid_fields_are_named() {
    assert_eq!(example().groups(), 8);
    let corrupt = |defect| Some(Error::Corrupt(Corruption::new(defect)));
    let field = |name| corrupt(Defect::SuperblockField(name));
    assert_eq!(refusal(|raw| raw.magic = 0.into()), corrupt(Defect::SuperblockMagic));
    assert_eq!(refusal(|raw| raw.log_block_size = 7.into()), field("block size"));
    assert_eq!(refusal(|raw| raw.log_cluster_size = 1.into()), field("cluster size"));
    assert_eq!(refusal(|raw| raw.blocks_count_lo = 0.into()), field("block count"));
    assert_eq!(refusal(|raw| raw.first_data_block = 0.into()), field("first data block"));
    assert_eq!(refusal(|raw| raw.r_blocks_count_lo = 65_537.into()), field("reserved block count"));
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
    assert_eq!(refusal(checksums), corrupt(Defect::SuperblockChecksum));
    let unknown = refusal(|raw| raw.feature_incompat = 0x8000_0000.into());
    assert!(matches!(unknown, Some(Error::Unsupported(_))));
}

#[test]
fn any_byte_is_parsed_or_refused() {
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
    assert_eq!((0..100).filter(|group| two.has_superblock(*group)).collect::<Vec<_>>(), [0, 1, 17]);
}
