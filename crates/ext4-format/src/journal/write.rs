//! Writes journal blocks, the counterpart of `layout`. It writes either the checksums of CSUM_V3 or
//! none. Other formats of older kernels are converted while the log is empty.

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::super::checksum::crc32c;
use super::layout::{
    CHECKSUM_CRC32C, COMMIT, COMPAT_CHECKSUM, Checksums, DESCRIPTOR, Header, INCOMPAT_64BIT,
    INCOMPAT_ASYNC_COMMIT, INCOMPAT_CSUM_V2, INCOMPAT_CSUM_V3, INCOMPAT_FAST_COMMIT,
    INCOMPAT_REVOKE, MAGIC, REVOKE, RawCommit, RawSuperblock, SUPERBLOCK_BYTES, SUPERBLOCK_V2,
    Superblock, TAG_ESCAPED, TAG_LAST, TAG_SAME_UUID, TAIL_BYTES, Tag, Tag3,
};
use crate::error::{Defect, Error, Result, Unsupported};
use crate::{Corruption, Timestamp};

const UUID_BYTES: usize = 16;
/// The fields of a revoke block before its records (`struct jbd2_journal_revoke_header_s`).
const REVOKE_HEADER_BYTES: usize = 16;

/// A copy in the log, as its descriptor names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    block: u64,
    escaped: bool,
    checksum: u32,
}

/// The journal's superblock, which determines the format of all blocks.
#[derive(Debug, Clone)]
pub struct JournalFormat {
    /// Its whole block.
    block: Box<[u8]>,
    superblock: Superblock,
    uuid: [u8; UUID_BYTES],
}

impl JournalFormat {
    /// Parses the first block of a journal of `journal_blocks` blocks.
    ///
    /// # Errors
    /// Fails if the block is invalid, or has unknown features.
    pub fn parse(block: &[u8], journal_blocks: u32) -> Result<Self> {
        let superblock = Superblock::parse(block, block.len(), journal_blocks, false)?;
        let raw = raw(block)?;
        if raw.header.blocktype.get() != SUPERBLOCK_V2 {
            let what = "writing to a journal of version 1".into();
            let advice = "remove it and make a new one: tune2fs -O ^has_journal, then -j";
            return Err(Unsupported { what, advice }.into());
        }
        let uuid = raw.uuid;
        Ok(Self { block: block.into(), superblock, uuid })
    }

    /// Sets the features with which this implementation writes. `fast_commits` reserves blocks of
    /// the log for fast commits. The log has to be empty, because its content was written with the
    /// old features.
    ///
    /// # Errors
    /// Fails if the log is not empty.
    pub fn convert(&mut self, checksums: bool, is_64bit: bool, fast_commits: bool) -> Result<()> {
        if self.superblock.start != 0 {
            return Err(Error::Invalid("a journal that is not empty cannot be converted"));
        }
        let raw = raw_mut(&mut self.block)?;
        raw.feature_compat = U32::new(raw.feature_compat.get() & !COMPAT_CHECKSUM);
        let mut incompat = raw.feature_incompat.get();
        incompat &= !(INCOMPAT_64BIT | INCOMPAT_ASYNC_COMMIT | INCOMPAT_CSUM_V2 | INCOMPAT_CSUM_V3);
        // If this bit were left from a mount with fast commits, e2fsck would use another end of the
        // log.
        incompat &= !INCOMPAT_FAST_COMMIT;
        incompat |= INCOMPAT_REVOKE;
        incompat |= if fast_commits { INCOMPAT_FAST_COMMIT } else { 0 };
        incompat |= if is_64bit { INCOMPAT_64BIT } else { 0 };
        incompat |= if checksums { INCOMPAT_CSUM_V3 } else { 0 };
        raw.feature_incompat = U32::new(incompat);
        raw.checksum_type = if checksums { CHECKSUM_CRC32C } else { 0 };
        self.seal()
    }

    /// Sets the log's start to transaction `sequence` in block `start`. If `start` is 0, the log is
    /// empty, and `sequence` precedes the next transaction.
    ///
    /// # Errors
    /// Fails if there is no such block.
    pub fn set_tail(&mut self, sequence: u32, start: u32) -> Result<()> {
        let raw = raw_mut(&mut self.block)?;
        (raw.sequence, raw.start, raw.head) = (U32::new(sequence), U32::new(start), U32::new(0));
        self.seal()
    }

    /// Sets whether fast commits after the log are valid. If they are not, readers treat their
    /// blocks as part of the log, and the log must not wrap around.
    ///
    /// # Errors
    /// In practice this does not fail.
    pub fn set_fast_commits(&mut self, count: bool) -> Result<()> {
        let raw = raw_mut(&mut self.block)?;
        let others = raw.feature_incompat.get() & !INCOMPAT_FAST_COMMIT;
        raw.feature_incompat = U32::new(others | if count { INCOMPAT_FAST_COMMIT } else { 0 });
        self.seal()
    }

    /// Returns the errno of the last failure (`s_errno`), negative as in Linux, or 0 if there was
    /// none.
    pub fn errno(&self) -> i32 {
        self.superblock.errno
    }

    /// Sets the errno of a failure (`s_errno`), negative as in Linux.
    ///
    /// # Errors
    /// In practice this does not fail.
    pub fn set_errno(&mut self, errno: i32) -> Result<()> {
        raw_mut(&mut self.block)?.errno = U32::new(errno.cast_unsigned());
        self.seal()
    }

    fn seal(&mut self) -> Result<()> {
        let raw = raw_mut(&mut self.block)?;
        raw.checksum = U32::new(0);
        if raw.feature_incompat.get() & (INCOMPAT_CSUM_V2 | INCOMPAT_CSUM_V3) != 0 {
            let sum = crc32c(!0, &self.block[..SUPERBLOCK_BYTES]);
            raw_mut(&mut self.block)?.checksum = U32::new(sum);
        }
        let blocks = self.superblock.blocks;
        self.superblock = Superblock::parse(&self.block, self.block.len(), blocks, false)?;
        Ok(())
    }

    /// Returns its block, with its checksum.
    pub fn block(&self) -> &[u8] {
        &self.block
    }

    /// Returns the size of a block, in bytes.
    pub fn block_bytes(&self) -> usize {
        self.superblock.block_bytes
    }

    /// Returns the number of blocks, including those for fast commits.
    pub fn blocks(&self) -> u32 {
        self.superblock.blocks
    }

    /// Returns the blocks of the log.
    pub fn log(&self) -> std::ops::Range<u32> {
        self.superblock.first..self.superblock.last
    }

    /// Returns the blocks for fast commits, if there are any. Transactions are never stored there.
    pub fn fast_commits(&self) -> Option<std::ops::Range<u32>> {
        let all = self.superblock.last..self.superblock.blocks;
        (self.superblock.fast_commits && !all.is_empty()).then_some(all)
    }

    /// Returns the first transaction of the log, or the one before the next.
    pub fn sequence(&self) -> u32 {
        self.superblock.sequence
    }

    /// Returns the first block of the log, or 0 if it is empty.
    pub fn start(&self) -> u32 {
        self.superblock.start
    }

    /// Returns the maximum number of copies in one descriptor.
    pub fn tags_most(&self) -> usize {
        let superblock = &self.superblock;
        (self.block_bytes() - size_of::<Header>() - superblock.tail_bytes() - UUID_BYTES)
            / superblock.tag_bytes()
    }

    /// Returns the maximum number of blocks in one revoke block.
    pub fn revoked_most(&self) -> usize {
        (self.block_bytes() - REVOKE_HEADER_BYTES - self.superblock.tail_bytes())
            / self.superblock.record_bytes()
    }

    fn header(kind: u32, sequence: u32) -> Header {
        Header { magic: U32::new(MAGIC), blocktype: U32::new(kind), sequence: U32::new(sequence) }
    }

    fn seal_tail(&self, to: &mut [u8]) {
        if self.superblock.tail_bytes() > 0
            && let Some((content, tail)) = to.split_last_chunk_mut::<TAIL_BYTES>()
        {
            *tail = crc32c(crc32c(self.superblock.seed, content), &[0; TAIL_BYTES]).to_be_bytes();
        }
    }

    /// Writes to `to` the copy, in transaction `sequence`, of block `block` with `content`.
    pub fn copy(&self, to: &mut [u8], block: u64, content: &[u8], sequence: u32) -> Copied {
        to.copy_from_slice(content);
        let escaped = to.starts_with(&MAGIC.to_be_bytes());
        if escaped {
            to[..4].fill(0);
        }
        let checksum = match self.superblock.checksums {
            Checksums::None => 0,
            _ => crc32c(crc32c(self.superblock.seed, &sequence.to_be_bytes()), to),
        };
        Copied { block, escaped, checksum }
    }

    /// Writes to `to` the descriptor of `copies`, at most [`tags_most`](Self::tags_most) of them,
    /// which follow it.
    pub fn descriptor(&self, to: &mut [u8], sequence: u32, copies: &[Copied]) {
        to.fill(0);
        let header = Self::header(DESCRIPTOR, sequence);
        to[..size_of::<Header>()].copy_from_slice(header.as_bytes());
        let mut at = size_of::<Header>();
        for (index, copy) in copies.iter().enumerate() {
            let escaped = if copy.escaped { TAG_ESCAPED } else { 0 };
            let same = if index > 0 { TAG_SAME_UUID } else { 0 };
            let last = if index + 1 == copies.len() { TAG_LAST } else { 0 };
            let flags = escaped | same | last;
            let (low, high) = (copy.block as u32, (copy.block >> 32) as u32);
            if self.superblock.checksums == Checksums::None {
                let tag = Tag {
                    blocknr: U32::new(low),
                    checksum: 0.into(),
                    flags: (flags as u16).into(),
                };
                to[at..at + 8].copy_from_slice(tag.as_bytes());
                if self.superblock.is_64bit {
                    to[at + 8..at + 12].copy_from_slice(&high.to_be_bytes());
                }
            } else {
                let tag = Tag3 {
                    blocknr: U32::new(low),
                    flags: U32::new(flags),
                    blocknr_high: U32::new(high),
                    checksum: U32::new(copy.checksum),
                };
                to[at..at + size_of::<Tag3>()].copy_from_slice(tag.as_bytes());
            }
            at += self.superblock.tag_bytes();
            if index == 0 {
                to[at..at + UUID_BYTES].copy_from_slice(&self.uuid);
                at += UUID_BYTES;
            }
        }
        self.seal_tail(to);
    }

    /// Writes to `to` a block that revokes `blocks`, at most [`revoked_most`](Self::revoked_most).
    pub fn revoke(&self, to: &mut [u8], sequence: u32, blocks: &[u64]) {
        to.fill(0);
        to[..size_of::<Header>()].copy_from_slice(Self::header(REVOKE, sequence).as_bytes());
        let record = self.superblock.record_bytes();
        let mut at = REVOKE_HEADER_BYTES;
        for block in blocks {
            let bytes = block.to_be_bytes();
            to[at..at + record].copy_from_slice(&bytes[8 - record..]);
            at += record;
        }
        to[size_of::<Header>()..REVOKE_HEADER_BYTES].copy_from_slice(&(at as u32).to_be_bytes());
        self.seal_tail(to);
    }

    /// Writes to `to` the commit block of transaction `sequence`, at `time`.
    pub fn commit(&self, to: &mut [u8], sequence: u32, time: Timestamp) {
        to.fill(0);
        let mut raw = RawCommit::new_zeroed();
        raw.header = Self::header(COMMIT, sequence);
        raw.commit_sec = U64::new(time.seconds.cast_unsigned());
        raw.commit_nsec = U32::new(time.nanoseconds);
        to[..size_of::<RawCommit>()].copy_from_slice(raw.as_bytes());
        if self.superblock.checksums != Checksums::None {
            let sum = crc32c(self.superblock.seed, to);
            to[16..20].copy_from_slice(&sum.to_be_bytes());
        }
    }
}

fn raw(block: &[u8]) -> Result<&RawSuperblock> {
    let found = RawSuperblock::ref_from_prefix(block);
    found.map(|(raw, _)| raw).map_err(|_| Corruption::new(Defect::JournalSuperblock).into())
}

fn raw_mut(block: &mut [u8]) -> Result<&mut RawSuperblock> {
    let found = RawSuperblock::mut_from_prefix(block);
    found.map(|(raw, _)| raw).map_err(|_| Corruption::new(Defect::JournalSuperblock).into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::super::log::Log;
    use super::super::replay::replay;
    use super::*;

    const UUID: [u8; 16] = *b"a journal's uuid";
    const LOG_BLOCKS: u32 = 64;

    struct MemoryLog(Vec<Vec<u8>>);

    impl Log for MemoryLog {
        fn block(&self, index: u32) -> Result<Arc<[u8]>> {
            Ok(self.0[index as usize].as_slice().into())
        }

        fn wrong_checksum(&self, index: u32) -> Result<()> {
            panic!("block {index} has a wrong checksum");
        }

        fn malformed(&self, index: u32) -> Error {
            panic!("block {index} is malformed");
        }
    }

    /// Returns an empty journal of blocks of `block_bytes` bytes, as made by mke2fs.
    fn format(block_bytes: usize, checksums: bool, is_64bit: bool) -> JournalFormat {
        let mut block = vec![0; block_bytes];
        let put = |block: &mut [u8], at: usize, value: u32| {
            block[at..at + 4].copy_from_slice(&value.to_be_bytes());
        };
        put(&mut block, 0, MAGIC);
        put(&mut block, 4, SUPERBLOCK_V2);
        put(&mut block, 0xc, block_bytes as u32);
        put(&mut block, 0x10, LOG_BLOCKS);
        put(&mut block, 0x14, 1);
        put(&mut block, 0x18, 7);
        put(&mut block, 0x40, 1);
        block[0x30..0x40].copy_from_slice(&UUID);
        let mut format = JournalFormat::parse(&block, LOG_BLOCKS).unwrap();
        format.convert(checksums, is_64bit, false).unwrap();
        format
    }

    #[test]
    fn written_blocks_are_replayed() {
        for (block_bytes, checksums, is_64bit) in [
            (1024, true, true),
            (4096, true, false),
            (4096, false, true),
            (1024, false, false),
            (65_536, true, true),
        ] {
            let mut format = format(block_bytes, checksums, is_64bit);
            format.set_tail(8, 61).unwrap();
            assert!(format.convert(checksums, is_64bit, false).is_err());
            let mut log = MemoryLog(vec![vec![0; block_bytes]; LOG_BLOCKS as usize]);
            log.0[0].copy_from_slice(format.block());
            let high = if is_64bit { 1 << 33 } else { 0 };
            let mut expected = BTreeMap::new();
            // Each transaction has three blocks: a descriptor, a block that has to be escaped, and
            // another one. Then revocations follow, across the end of the log.
            let places = [61, 62, 63, 1, 2, 3];
            let contents: Vec<Vec<u8>> = (0..4u8)
                .map(|n| {
                    let mut content = vec![n + 1; block_bytes];
                    if n % 2 == 0 {
                        content[..4].copy_from_slice(&MAGIC.to_be_bytes());
                    }
                    content
                })
                .collect();
            let copies: Vec<Copied> = (0..4usize)
                .map(|n| {
                    let (block, content) = (high + 100 + n as u64, &contents[n]);
                    expected.insert(block, Arc::from(content.as_slice()));
                    let at = [62, 63, 1, 2][n];
                    format.copy(&mut log.0[at], block, content, 8)
                })
                .collect();
            format.descriptor(&mut log.0[places[0]], 8, &copies);
            let time = Timestamp { seconds: 5, nanoseconds: 6 };
            format.commit(&mut log.0[places[5]], 8, time);
            format.revoke(&mut log.0[4], 9, &[high + 101, high + 77]);
            format.commit(&mut log.0[5], 9, time);
            expected.remove(&(high + 101));
            let superblock = &format.superblock;
            let replayed = replay(&log, superblock, u64::MAX).unwrap();
            assert_eq!((replayed.transactions, replayed.revoked, replayed.end), (2, 2, Some(10)));
            assert_eq!(replayed.overlay, expected);
        }
    }

    #[test]
    fn full_blocks_are_read_back() {
        for (checksums, is_64bit, tags, revoked) in [
            (true, true, 254, 509),
            (true, false, 254, 1019),
            (false, true, 339, 510),
            (false, false, 508, 1020),
        ] {
            let format = format(4096, checksums, is_64bit);
            assert_eq!((format.tags_most(), format.revoked_most()), (tags, revoked));
            let copies: Vec<_> = (0..tags as u64)
                .map(|block| Copied { block, escaped: block % 3 == 0, checksum: block as u32 })
                .collect();
            let mut block = vec![9; 4096];
            format.descriptor(&mut block, 8, &copies);
            assert!(format.superblock.tail_is_right(&block));
            assert!(format.superblock.tags(&block).map(|tag| tag.block).eq(0..tags as u64));
            let all: Vec<u64> = (0..revoked as u64).collect();
            format.revoke(&mut block, 8, &all);
            assert!(format.superblock.tail_is_right(&block));
            assert!(format.superblock.revoked(&block).unwrap().eq(0..revoked as u64));
        }
    }
}
