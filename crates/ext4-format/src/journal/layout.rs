//! Blocks of the journal (kernel documentation: `filesystems/ext4/journal.rst`; `linux/jbd2.h`,
//! e2fsprogs: `kernel-jbd.h`). All of it is big-endian.

use zerocopy::FromBytes;
use zerocopy::big_endian::{U16, U32, U64};

use super::super::checksum::{crc32c, crc32c_without};
use crate::error::{Corruption, Defect, Error, Result, Unsupported};

/// Advice for unsupported cases.
pub(super) const ADVICE: &str = "run e2fsck -p, or mount it once with the kernel";

/// The magic number at the start of every journal block that is not a copy (`JBD2_MAGIC_NUMBER`).
pub(super) const MAGIC: u32 = 0xc03b_3998;

/// Kinds of block (`JBD2_*_BLOCK`).
pub(super) const DESCRIPTOR: u32 = 1;
pub(super) const COMMIT: u32 = 2;
const SUPERBLOCK_V1: u32 = 3;
pub(super) const SUPERBLOCK_V2: u32 = 4;
pub(super) const REVOKE: u32 = 5;

pub(super) const COMPAT_CHECKSUM: u32 = 0x1;
pub(super) const INCOMPAT_REVOKE: u32 = 0x1;
pub(super) const INCOMPAT_64BIT: u32 = 0x2;
pub(super) const INCOMPAT_ASYNC_COMMIT: u32 = 0x4;
pub(super) const INCOMPAT_CSUM_V2: u32 = 0x8;
pub(super) const INCOMPAT_CSUM_V3: u32 = 0x10;
pub(super) const INCOMPAT_FAST_COMMIT: u32 = 0x20;
/// The features above, and REVOKE.
const INCOMPAT_KNOWN: u32 = 0x3f;

/// This tag flag says that the copy began with the journal's magic number, which is replaced by
/// zeroes.
pub(super) const TAG_ESCAPED: u32 = 0x1;
pub(super) const TAG_SAME_UUID: u32 = 0x2;
pub(super) const TAG_LAST: u32 = 0x8;

/// `JBD2_CRC32C_CHKSUM`
pub(super) const CHECKSUM_CRC32C: u8 = 4;
/// `JBD2_CRC32_CHKSUM`
const CHECKSUM_CRC32: u8 = 1;
/// The default number of fast commit blocks (`JBD2_DEFAULT_FAST_COMMIT_BLOCKS`).
const FAST_COMMIT_BLOCKS: u32 = 256;
/// The minimum number of blocks of a log, without those of fast commits
/// (`JBD2_MIN_JOURNAL_BLOCKS`).
const LOG_BLOCKS_MIN: u32 = 1024;
/// The checksum at the end of descriptor and revoke blocks (`struct jbd2_journal_block_tail`).
pub(super) const TAIL_BYTES: usize = 4;

on_disk! {
    /// `struct journal_header_s`
    pub(super) struct Header, 12, Copy {
        0 magic: U32,
        4 blocktype: U32,
        8 sequence: U32,
    }
    /// `struct journal_superblock_s`; version 1 ends with `errno`.
    pub(super) struct RawSuperblock, 1024 {
        0 header: Header,
        12 blocksize: U32,
        16 maxlen: U32,
        20 first: U32,
        24 sequence: U32,
        28 start: U32,
        32 errno: U32,
        36 feature_compat: U32,
        40 feature_incompat: U32,
        44 feature_ro_compat: U32,
        48 uuid: [u8; 16],
        64 nr_users: U32,
        68 dynsuper: U32,
        72 max_transaction: U32,
        76 max_trans_data: U32,
        80 checksum_type: u8,
        81 padding2: [u8; 3],
        84 num_fc_blks: U32,
        88 head: U32,
        92 padding: [U32; 40],
        252 checksum: U32,
        256 users: [u8; 16 * 48],
    }
}

pub(super) const SUPERBLOCK_BYTES: usize = size_of::<RawSuperblock>();
const CHECKSUM_OFFSET: usize = std::mem::offset_of!(RawSuperblock, checksum);

on_disk! {
    /// `struct commit_header`
    pub(super) struct RawCommit, 60 {
        0 header: Header,
        12 chksum_type: u8,
        13 chksum_size: u8,
        14 padding: [u8; 2],
        16 chksum: [U32; 8],
        48 commit_sec: U64,
        56 commit_nsec: U32,
    }
    /// `struct journal_block_tag3_s`
    pub(super) struct Tag3, 16 {
        0 blocknr: U32,
        4 flags: U32,
        8 blocknr_high: U32,
        12 checksum: U32,
    }
    /// `struct journal_block_tag_s`, without `blocknr_high`, which only 64-bit journals have.
    pub(super) struct Tag, 8 {
        0 blocknr: U32,
        4 checksum: U16,
        6 flags: U16,
    }
}

/// A checked superblock of a journal: the log lies within the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Superblock {
    /// Block size, in bytes.
    pub block_bytes: usize,
    /// The first block of the log.
    pub first: u32,
    /// The block after the log's last. The blocks of fast commits follow.
    pub last: u32,
    /// All blocks, including those of fast commits.
    pub blocks: u32,
    /// The first transaction in the log.
    pub sequence: u32,
    /// Its first block, or 0 if the log is empty.
    pub start: u32,
    /// The errno with which the file system failed, if any.
    pub errno: i32,
    /// Whether there may be fast commits.
    pub fast_commits: bool,
    /// Whether commit blocks may have been written without waiting for the blocks that they commit.
    pub async_commit: bool,
    /// Whether commit blocks have a CRC-32 of the whole transaction (`COMPAT_CHECKSUM`).
    pub whole_checksums: bool,
    /// The kind of checksums of the journal's blocks.
    pub checksums: Checksums,
    /// Whether block numbers have 64 bits.
    pub is_64bit: bool,
    /// The initial state of checksums.
    pub seed: u32,
}

/// The kind of block checksums (`CSUM_V2`, `CSUM_V3`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Checksums {
    None,
    /// Tags have the lower half.
    V2,
    V3,
}

impl Superblock {
    /// Parses the first block of a journal of `journal_blocks` blocks of `block_bytes` bytes. If
    /// `believe`, accepts a wrong checksum.
    pub(super) fn parse(
        block: &[u8],
        block_bytes: usize,
        journal_blocks: u32,
        believe: bool,
    ) -> Result<Self> {
        let bad = || Error::from(Corruption::new(Defect::JournalSuperblock));
        let (raw, _) = RawSuperblock::ref_from_prefix(block).map_err(|_| bad())?;
        if raw.header.magic.get() != MAGIC {
            return Err(bad());
        }
        let unsupported = |what| Error::from(Unsupported { what, advice: ADVICE });
        let (compat, incompat) = match raw.header.blocktype.get() {
            // The bytes after the fields of version 1 need not be zeroes.
            SUPERBLOCK_V1 => (0, 0),
            SUPERBLOCK_V2 => (raw.feature_compat.get(), raw.feature_incompat.get()),
            _ => return Err(bad()),
        };
        let is_v2 = raw.header.blocktype.get() == SUPERBLOCK_V2;
        let unknown = match incompat & !INCOMPAT_KNOWN {
            0 if is_v2 => raw.feature_ro_compat.get(),
            bits => bits,
        };
        if unknown != 0 {
            return Err(unsupported(format!("a journal with unknown features {unknown:#x}")));
        }
        if is_v2 && raw.nr_users.get() > 1 {
            return Err(unsupported(format!(
                "a journal that {} file systems share",
                raw.nr_users.get()
            )));
        }
        let has = |bit| incompat & bit != 0;
        let checksums = match (has(INCOMPAT_CSUM_V2), has(INCOMPAT_CSUM_V3)) {
            (false, false) => Checksums::None,
            (true, false) => Checksums::V2,
            (false, true) => Checksums::V3,
            (true, true) => return Err(bad()),
        };
        if checksums != Checksums::None {
            if raw.checksum_type != CHECKSUM_CRC32C || compat & COMPAT_CHECKSUM != 0 {
                return Err(bad());
            }
            if !believe
                && crc32c_without(!0, &block[..SUPERBLOCK_BYTES], &[CHECKSUM_OFFSET], 4)
                    != raw.checksum.get()
            {
                return Err(Corruption::new(Defect::JournalChecksum).into());
            }
        }
        let blocks = raw.maxlen.get();
        let fast_commits = has(INCOMPAT_FAST_COMMIT);
        let fast_commit_blocks = match raw.num_fc_blks.get() {
            0 => FAST_COMMIT_BLOCKS,
            count => count,
        };
        let left = blocks.checked_sub(fast_commit_blocks);
        let last = left.filter(|left| fast_commits && *left >= LOG_BLOCKS_MIN).unwrap_or(blocks);
        let (first, start) = (raw.first.get(), raw.start.get());
        let is_sound = raw.blocksize.get() as usize == block_bytes
            && block.len() == block_bytes
            && blocks <= journal_blocks
            && first > 0
            && first < last
            && (start == 0 || (first..last).contains(&start));
        if !is_sound {
            return Err(bad());
        }
        Ok(Self {
            block_bytes,
            first,
            last,
            blocks,
            sequence: raw.sequence.get(),
            start,
            errno: raw.errno.get().cast_signed(),
            fast_commits,
            async_commit: has(INCOMPAT_ASYNC_COMMIT),
            whole_checksums: compat & COMPAT_CHECKSUM != 0,
            checksums,
            is_64bit: has(INCOMPAT_64BIT),
            seed: crc32c(!0, &raw.uuid),
        })
    }

    /// Returns whether the checksum of a descriptor or revoke block is right, if checksums are
    /// enabled.
    pub(super) fn tail_is_right(&self, block: &[u8]) -> bool {
        let Some((content, tail)) = block.split_last_chunk::<TAIL_BYTES>() else { return false };
        self.checksums == Checksums::None
            || crc32c(crc32c(self.seed, content), &[0; TAIL_BYTES]) == u32::from_be_bytes(*tail)
    }

    /// Returns whether the checksum of a commit block is right, if checksums are enabled
    /// (`jbd2_commit_block_csum_verify`). In a torn block, of which only the first sector is new,
    /// the rest counts as zeroes (`jbd2_commit_block_csum_verify_partial`).
    pub(super) fn commit_is_right(&self, block: &[u8]) -> bool {
        if self.checksums == Checksums::None {
            return true;
        }
        let Ok((raw, rest)) = RawCommit::ref_from_prefix(block) else { return false };
        let stored = raw.chksum[0].get();
        let torn = || {
            let mut whole = vec![0; block.len()];
            let fields = block.len() - rest.len();
            whole[..fields].copy_from_slice(&block[..fields]);
            crc32c_without(self.seed, &whole, &[16], 4) == stored
        };
        crc32c_without(self.seed, block, &[16], 4) == stored || torn()
    }

    /// Returns whether a tag's checksum matches `block`, its copy in transaction `sequence`
    /// (`jbd2_block_tag_csum_verify`).
    pub(super) fn copy_is_right(&self, tag: &BlockTag, sequence: u32, block: &[u8]) -> bool {
        let sum = || crc32c(crc32c(self.seed, &sequence.to_be_bytes()), block);
        match self.checksums {
            Checksums::None => true,
            Checksums::V2 => sum() & 0xffff == tag.checksum,
            Checksums::V3 => sum() == tag.checksum,
        }
    }

    /// Returns the length of a tag without a UUID (`journal_tag_bytes`), in bytes.
    pub(super) fn tag_bytes(&self) -> usize {
        let high_bytes = if self.is_64bit { 4 } else { 0 };
        match self.checksums {
            Checksums::None => 8 + high_bytes,
            // Two bytes are unused, because the checksum was meant to be longer.
            Checksums::V2 => 10 + high_bytes,
            Checksums::V3 => 16,
        }
    }

    /// Returns the size of the checksum at the end of descriptor and revoke blocks.
    pub(super) fn tail_bytes(&self) -> usize {
        if self.checksums == Checksums::None { 0 } else { TAIL_BYTES }
    }

    /// Returns the size of a block's number in a revoke block.
    pub(super) fn record_bytes(&self) -> usize {
        if self.is_64bit { 8 } else { 4 }
    }

    /// Returns the tags of descriptor block `block`.
    pub(super) fn tags<'a>(&self, block: &'a [u8]) -> Tags<'a> {
        let end = block.len().saturating_sub(self.tail_bytes());
        Tags {
            rest: block.get(size_of::<Header>()..end).unwrap_or_default(),
            bytes: self.tag_bytes(),
            is_v3: self.checksums == Checksums::V3,
            is_64bit: self.is_64bit,
        }
    }

    /// Returns the blocks named by revoke block `block`, or `None` if its count exceeds the block.
    pub(super) fn revoked<'a>(
        &self,
        block: &'a [u8],
    ) -> Option<impl Iterator<Item = u64> + use<'a>> {
        let end = u32::from_be_bytes(block.get(12..16)?.try_into().ok()?) as usize;
        let fits = end <= block.len().checked_sub(self.tail_bytes())?;
        let records =
            block.get(16..end.max(16)).filter(|_| fits)?.chunks_exact(self.record_bytes());
        let number = |record: &[u8]| record.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
        Some(records.map(number))
    }
}

/// The tag of a copy that follows a descriptor block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockTag {
    /// Its block in the file system.
    pub block: u64,
    /// `TAG_*`
    pub flags: u32,
    /// 16 or 32 bits of the checksum, or 0.
    pub checksum: u32,
}

/// The tags of a descriptor block.
pub(super) struct Tags<'a> {
    rest: &'a [u8],
    bytes: usize,
    is_v3: bool,
    is_64bit: bool,
}

impl Iterator for Tags<'_> {
    type Item = BlockTag;

    fn next(&mut self) -> Option<BlockTag> {
        let (raw, after) = self.rest.split_at_checked(self.bytes)?;
        let (low, flags, high, checksum) = if self.is_v3 {
            let (tag, _) = Tag3::ref_from_prefix(raw).ok()?;
            (tag.blocknr, tag.flags.get(), tag.blocknr_high.get(), tag.checksum.get())
        } else {
            let (tag, rest) = Tag::ref_from_prefix(raw).ok()?;
            let high = U32::ref_from_prefix(rest).map_or(0, |(high, _)| high.get());
            (tag.blocknr, u32::from(tag.flags.get()), high, u32::from(tag.checksum.get()))
        };
        let high = if self.is_64bit { u64::from(high) << 32 } else { 0 };
        let uuid_bytes = if flags & TAG_SAME_UUID == 0 { 16 } else { 0 };
        self.rest =
            if flags & TAG_LAST == 0 { after.get(uuid_bytes..).unwrap_or_default() } else { &[] };
        Some(BlockTag { block: high | u64::from(low.get()), flags, checksum })
    }
}

/// Returns the time of a commit block, in seconds since 1970.
pub(super) fn commit_seconds(block: &[u8]) -> u64 {
    RawCommit::ref_from_prefix(block).map_or(0, |(raw, _)| raw.commit_sec.get())
}

/// Returns whether a commit block's CRC-32 of its whole transaction is `sum`, or is absent, as in
/// one from an older kernel.
pub(super) fn whole_checksum_is_right(block: &[u8], sum: u32) -> bool {
    let Ok((raw, _)) = RawCommit::ref_from_prefix(block) else { return false };
    let found = (raw.chksum_type, raw.chksum_size, raw.chksum[0].get());
    found == (CHECKSUM_CRC32, 4, sum) || found == (0, 0, 0)
}
