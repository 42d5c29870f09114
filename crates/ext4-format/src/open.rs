//! Finds the file system: its superblock, a backup, or a foreign format.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use zerocopy::FromBytes;

use super::replayed::Replayed;
use super::source::Source;
use super::superblock::{RawSuperblock, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock};
use super::volume::{InodeTables, Shared, Volume, VolumeOptions};
use crate::{Corruption, Defect, Error, OpenFailure, Result, Unsupported};

/// Magic numbers of other formats: offset, bytes, and name.
const OTHERS: &[(u64, &[u8], &str)] = &[
    (0, b"XFSB", "an XFS file system"),
    (65_536 + 64, b"_BHRfS_M", "a btrfs file system"),
    (1024, &[0x10, 0x20, 0xF5, 0xF2], "an F2FS file system"),
    (0, b"hsqs", "a squashfs image"),
    (1024, &[0xE2, 0xE1, 0xF5, 0xE0], "an EROFS image"),
    (32_769, b"CD001", "an ISO 9660 image"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (82, b"FAT32", "a FAT file system"),
    (54, b"FAT1", "a FAT file system"),
    (4086, b"SWAPSPACE2", "swap space"),
    (65_526, b"SWAPSPACE2", "swap space"),
    (0, b"LUKS\xBA\xBE", "a LUKS container: open it first"),
    (512, b"LABELONE", "a physical volume of LVM: name the logical volume"),
    (4096, &[0xFC, 0x4E, 0x2B, 0xA9], "a member of a software RAID: name the array"),
    (0, b"QFI\xFB", "a qcow2 image: convert it to a raw one first"),
    (0, b"KDMV", "a VMDK image: convert it to a raw one first"),
    (0, &[0x1F, 0x8B], "compressed data (gzip)"),
    (0, &[0xFD, b'7', b'z', b'X', b'Z', 0], "compressed data (xz)"),
    (0, &[0x28, 0xB5, 0x2F, 0xFD], "compressed data (zstd)"),
    (512, b"EFI PART", "a partition table (GPT): name the partition"),
    (4096, b"EFI PART", "a partition table (GPT): name the partition"),
    (510, &[0x55, 0xAA], "a partition table or boot sector: name the partition"),
];

/// A device that may hold a file system.
struct Disk<'a, S> {
    source: &'a S,
    bytes: u64,
}

impl<S: Source> Disk<'_, S> {
    /// Returns the name of a recognised foreign format.
    fn looks_like(&self) -> Option<&'static str> {
        OTHERS.iter().find_map(|(at, magic, what)| {
            let fits = at.checked_add(magic.len() as u64).is_some_and(|end| end <= self.bytes);
            let found = fits.then(|| self.source.read(*at, magic.len()).ok()).flatten()?;
            (found[..] == **magic).then_some(*what)
        })
    }

    /// Returns a description of a device without a known magic number.
    fn looks_like_nothing(&self) -> String {
        let head = usize::try_from(self.bytes.min(65_536)).unwrap_or(0);
        match self.source.read(0, head) {
            Ok(bytes) if bytes.iter().all(|byte| *byte == 0) => {
                "it begins with nothing but zeroes".into()
            }
            _ => "there is no superblock".into(),
        }
    }

    fn read_superblock(&self, offset: u64) -> Result<Option<RawSuperblock>> {
        if offset.checked_add(SUPERBLOCK_BYTES as u64).is_none_or(|end| end > self.bytes) {
            return Ok(None);
        }
        let bytes = self.source.read(offset, SUPERBLOCK_BYTES)?;
        Ok(RawSuperblock::read_from_bytes(&bytes).ok())
    }

    /// Reads the superblock in block `block` of a file system with blocks of `1 << block_bits`
    /// bytes.
    fn superblock_in(
        &self,
        block: u64,
        block_bits: u32,
        ignore_checksum: bool,
    ) -> Result<Option<Result<Superblock>>> {
        let offset = block.saturating_mul(1 << block_bits).max(SUPERBLOCK_OFFSET);
        let Some(raw) = self.read_superblock(offset)? else { return Ok(None) };
        let parsed = Superblock::parse(&raw, ignore_checksum);
        Ok(match parsed {
            Ok(superblock) => (superblock.block_bits() == block_bits).then_some(Ok(superblock)),
            Err(Error::Corrupt(corruption)) if corruption.defect == Defect::SuperblockMagic => None,
            Err(error) => Some(Err(error)),
        })
    }

    /// Searches for the first intact backup at the places of mke2fs, which `s_block_group_nr` has
    /// to confirm. `hint` is the number of blocks per group according to the damaged superblock.
    fn find_backup(&self, hint: u64) -> Result<Option<u64>> {
        for group in [1, 3, 5, 7, 9, 25, 27, 49] {
            for block_bits in 10..=16u32 {
                let per_group = (8u64 << block_bits).min(65_528);
                // Clusters of `bigalloc` have 16 blocks by default.
                let mut candidates = vec![
                    8u64 << block_bits,
                    per_group,
                    16 * per_group,
                    16 * (8u64 << block_bits),
                    hint,
                ];
                candidates.dedup();
                for per_group in candidates.into_iter().filter(|per_group| *per_group > 0) {
                    for first in [u64::from(block_bits == 10), 0] {
                        let block = group * per_group + first;
                        let found = self.superblock_in(block, block_bits, false)?;
                        let matches = |found: &Superblock| {
                            u64::from(found.raw.block_group_nr.get()) == group
                                && found.group_start(group as u32) == block
                                && found.bytes() <= self.bytes
                        };
                        if found.is_some_and(|found| found.is_ok_and(|found| matches(&found))) {
                            return Ok(Some(block));
                        }
                        if first == 0 {
                            break;
                        }
                    }
                }
            }
        }
        Ok(None)
    }

    /// Opens the primary superblock.
    fn open_primary(&self, ignore: bool) -> Result<(Superblock, u64), OpenFailure> {
        let Some(raw) = self.read_superblock(SUPERBLOCK_OFFSET)? else {
            return Err(OpenFailure::NotExt4(format!("it has only {} bytes", self.bytes)));
        };
        match Superblock::parse(&raw, ignore) {
            Ok(superblock) => {
                let block = superblock.primary_block();
                Ok((superblock, block))
            }
            Err(Error::Corrupt(corruption)) => {
                // The superblock follows the boot sector, and is in block 1 if blocks are that
                // small.
                let corruption = corruption.in_block(u64::from(raw.log_block_size.get() == 0));
                let no_magic = corruption.defect == Defect::SuperblockMagic;
                if no_magic && let Some(what) = self.looks_like() {
                    return Err(OpenFailure::NotExt4(format!("it looks like {what}")));
                }
                let hint = if no_magic { 0 } else { u64::from(raw.blocks_per_group.get()) };
                match self.find_backup(hint)? {
                    Some(block) => Err(OpenFailure::Backup { corruption, block }),
                    None if no_magic => Err(OpenFailure::NotExt4(self.looks_like_nothing())),
                    None => Err(corruption.into()),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Opens the superblock in block `block`, for each possible block size.
    fn open_backup(&self, block: u64, ignore: bool) -> Result<(Superblock, u64), OpenFailure> {
        let mut why: OpenFailure = Corruption::new(Defect::SuperblockMagic).in_block(block).into();
        for block_bits in 10..=16 {
            match self.superblock_in(block, block_bits, ignore)? {
                Some(Ok(superblock)) => {
                    let block = block.max(superblock.primary_block());
                    return Ok((superblock, block));
                }
                Some(Err(Error::Corrupt(corruption))) => why = corruption.in_block(block).into(),
                Some(Err(error)) => why = error.into(),
                None => {}
            }
        }
        Err(why)
    }
}

impl<S: Source> Volume<S> {
    /// Opens the file system on `source`, a device of `device_bytes` bytes.
    ///
    /// # Errors
    /// [`OpenFailure`].
    pub fn open(source: S, device_bytes: u64, options: VolumeOptions) -> Result<Self, OpenFailure> {
        let ignore = options.ignore_checksums;
        let disk = Disk { source: &source, bytes: device_bytes };
        let (superblock, superblock_block) = match options.superblock {
            None => disk.open_primary(ignore)?,
            Some(block) => disk.open_backup(block, ignore)?,
        };
        if superblock.bytes() > device_bytes {
            return Err(OpenFailure::TooSmall { fs_bytes: superblock.bytes() });
        }
        if superblock.needs_recovery() && superblock.external_journal().is_some() {
            return Err(OpenFailure::Unsupported(Unsupported {
                what: "recovery from an external journal".into(),
                advice: "run e2fsck on it, which finds the journal's device",
            }));
        }
        let ignored = AtomicU64::new(u64::from(superblock.wrong_checksum));
        let inode_tables = InodeTables::new(superblock.groups());
        let shared = Shared {
            inode_tables,
            superblock,
            superblock_block,
            device_bytes,
            ignore_checksums: ignore,
            ignored,
            overlay: BTreeMap::new(),
            replayed: Replayed::default(),
        };
        Ok(Self::from_parts(source, shared))
    }
}
