//! Compares generated journals in memory, replayed by the implementation, with a model of the
//! definition: for each block the last copy, unless it was revoked in the same transaction or a
//! later one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::super::checksum::{crc32_be, crc32c};
use super::fast_commit;
use super::layout::{COMMIT, Checksums, DESCRIPTOR, MAGIC, REVOKE, Superblock};
use super::log::Log;
use super::replay::replay;
use crate::error::{Corruption, Defect, Error, Result};

const BLOCK_BYTES: usize = 1024;
const FS_BLOCKS: u64 = 4096;
const UUID: [u8; 16] = *b"a journal's uuid";

/// The blocks, and whether wrong checksums are ignored.
struct MemoryLog {
    blocks: Vec<Vec<u8>>,
    lenient: bool,
    ignored: AtomicU32,
}

impl Log for MemoryLog {
    fn block(&self, index: u32) -> Result<Arc<[u8]>> {
        Ok(self.blocks[index as usize].as_slice().into())
    }

    fn wrong_checksum(&self, index: u32) -> Result<()> {
        self.ignored.fetch_add(1, Relaxed);
        let corruption = Corruption::new(Defect::JournalChecksum).in_block(u64::from(index));
        if self.lenient { Ok(()) } else { Err(corruption.into()) }
    }

    fn malformed(&self, index: u32) -> Error {
        Corruption::new(Defect::JournalBlock).in_block(u64::from(index)).into()
    }
}

/// A xorshift64* generator with a fixed seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

#[derive(Clone, Copy, Debug)]
struct Kind {
    checksums: Checksums,
    whole_checksums: bool,
    is_64bit: bool,
    async_commit: bool,
}

impl Kind {
    fn incompat(self) -> u32 {
        let checksums = match self.checksums {
            Checksums::None => 0,
            Checksums::V2 => 0x8,
            Checksums::V3 => 0x10,
        };
        0x1 | if self.is_64bit { 0x2 } else { 0 }
            | if self.async_commit { 0x4 } else { 0 }
            | checksums
    }
}

fn kinds() -> Vec<Kind> {
    let mut kinds = Vec::new();
    for is_64bit in [false, true] {
        for async_commit in [false, true] {
            for checksums in [Checksums::None, Checksums::V2, Checksums::V3] {
                kinds.push(Kind { checksums, whole_checksums: false, is_64bit, async_commit });
            }
            kinds.push(Kind {
                checksums: Checksums::None,
                whole_checksums: true,
                is_64bit,
                async_commit,
            });
        }
    }
    kinds
}

/// Writes a log as jbd2 would, and records its meaning.
struct Writer {
    kind: Kind,
    blocks: Vec<Vec<u8>>,
    at: usize,
    first: usize,
    seed: u32,
    sequence: u32,
    whole: u32,
    seconds: u64,
    /// Copies (transaction, block, content) and revocations (transaction, block), in order.
    /// Transactions count from 0.
    copies: Vec<(u32, u64, Vec<u8>)>,
    revoked: Vec<(u32, u64)>,
    committed: u32,
    /// Positions of commit blocks.
    commits: Vec<usize>,
    /// Positions of copies.
    copied: Vec<usize>,
}

impl Writer {
    fn new(kind: Kind, log_blocks: usize, start: usize, sequence: u32) -> Self {
        let mut superblock = vec![0; BLOCK_BYTES];
        let mut put =
            |at: usize, value: u32| superblock[at..at + 4].copy_from_slice(&value.to_be_bytes());
        put(0, MAGIC);
        put(4, 4);
        put(0xc, BLOCK_BYTES as u32);
        put(0x10, log_blocks as u32);
        put(0x14, 1);
        put(0x18, sequence);
        put(0x1c, start as u32);
        put(0x24, u32::from(kind.whole_checksums));
        put(0x28, kind.incompat());
        superblock[0x30..0x40].copy_from_slice(&UUID);
        if kind.checksums != Checksums::None {
            superblock[0x50] = 4;
            let sum = crc32c(!0, &superblock);
            superblock[0xfc..0x100].copy_from_slice(&sum.to_be_bytes());
        }
        let mut blocks = vec![vec![0; BLOCK_BYTES]; log_blocks];
        blocks[0] = superblock;
        Self {
            kind,
            blocks,
            at: start,
            first: start,
            seed: crc32c(!0, &UUID),
            sequence,
            whole: !0,
            seconds: 1_000_000,
            copies: Vec::new(),
            revoked: Vec::new(),
            committed: 0,
            commits: Vec::new(),
            copied: Vec::new(),
        }
    }

    fn push(&mut self, block: Vec<u8>) -> usize {
        let at = self.at;
        self.blocks[at] = block;
        self.at = if at + 1 == self.blocks.len() { 1 } else { at + 1 };
        assert_ne!(self.at, self.first, "the log is too small for the test");
        at
    }

    fn header(&self, kind: u32) -> Vec<u8> {
        [MAGIC, kind, self.sequence].iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    fn finish(&self, mut block: Vec<u8>) -> Vec<u8> {
        block.resize(BLOCK_BYTES, 0);
        if self.kind.checksums != Checksums::None {
            let sum = crc32c(self.seed, &block);
            block[BLOCK_BYTES - 4..].copy_from_slice(&sum.to_be_bytes());
        }
        block
    }

    fn revoke(&mut self, numbers: &[u64]) {
        let mut block = self.header(REVOKE);
        let bytes = if self.kind.is_64bit { 8 } else { 4 };
        block.extend((16 + numbers.len() as u32 * bytes).to_be_bytes());
        for number in numbers {
            block.extend(&number.to_be_bytes()[8 - bytes as usize..]);
            self.revoked.push((self.committed, *number));
        }
        let block = self.finish(block);
        self.push(block);
    }

    fn describe(&mut self, random: &mut Random, copies: &[(u64, Vec<u8>)]) {
        let mut block = self.header(DESCRIPTOR);
        let mut stored = Vec::new();
        for (index, (number, content)) in copies.iter().enumerate() {
            let mut content = content.clone();
            let mut flags = 0;
            if content.starts_with(&MAGIC.to_be_bytes()) {
                content[..4].fill(0);
                flags |= 0x1;
            }
            let has_uuid = index == 0 || random.chance(20);
            flags |= if has_uuid { 0 } else { 0x2 };
            flags |= if index + 1 == copies.len() { 0x8 } else { 0 };
            let sum = crc32c(crc32c(self.seed, &self.sequence.to_be_bytes()), &content);
            let (low, high) = (*number as u32, (*number >> 32) as u32);
            block.extend(low.to_be_bytes());
            if self.kind.checksums == Checksums::V3 {
                block.extend([flags, high, sum].iter().flat_map(|word| word.to_be_bytes()));
            } else {
                let sum = if self.kind.checksums == Checksums::V2 { sum as u16 } else { 0 };
                block.extend(sum.to_be_bytes());
                block.extend((flags as u16).to_be_bytes());
                if self.kind.is_64bit {
                    block.extend(high.to_be_bytes());
                }
                if self.kind.checksums == Checksums::V2 {
                    block.extend([0; 2]);
                }
            }
            if has_uuid {
                block.extend(UUID);
            }
            stored.push(content);
        }
        let block = self.finish(block);
        self.whole = crc32_be(self.whole, &block);
        self.push(block);
        for ((number, content), stored) in copies.iter().zip(stored) {
            self.whole = crc32_be(self.whole, &stored);
            let at = self.push(stored);
            self.copied.push(at);
            self.copies.push((self.committed, *number, content.clone()));
        }
    }

    fn commit(&mut self) {
        let mut block = self.header(COMMIT);
        block.resize(BLOCK_BYTES, 0);
        self.seconds += 5;
        block[48..56].copy_from_slice(&self.seconds.to_be_bytes());
        if self.kind.whole_checksums {
            block[12..14].copy_from_slice(&[1, 4]);
            block[16..20].copy_from_slice(&self.whole.to_be_bytes());
        } else if self.kind.checksums != Checksums::None {
            let sum = crc32c(self.seed, &block);
            block[16..20].copy_from_slice(&sum.to_be_bytes());
        }
        let at = self.push(block);
        self.commits.push(at);
        self.whole = !0;
        self.sequence = self.sequence.wrapping_add(1);
        self.committed += 1;
    }

    /// Returns the expected result of the first `transactions`.
    fn model(&self, transactions: u32) -> BTreeMap<u64, Arc<[u8]>> {
        let mut overlay = BTreeMap::new();
        for (transaction, number, content) in
            self.copies.iter().filter(|copy| copy.0 < transactions)
        {
            let is_revoked = |(revoker, revoked): &(u32, u64)| {
                revoked == number && revoker >= transaction && *revoker < transactions
            };
            if !self.revoked.iter().any(is_revoked) {
                overlay.insert(*number, content.as_slice().into());
            }
        }
        overlay
    }

    fn log(&self, lenient: bool) -> (MemoryLog, Superblock) {
        let superblock =
            Superblock::parse(&self.blocks[0], BLOCK_BYTES, self.blocks.len() as u32, false)
                .unwrap();
        (MemoryLog { blocks: self.blocks.clone(), lenient, ignored: AtomicU32::new(0) }, superblock)
    }
}

fn content(random: &mut Random) -> Vec<u8> {
    let mut block = vec![random.below(256) as u8; BLOCK_BYTES];
    block[500..508].copy_from_slice(&random.0.to_le_bytes());
    if random.chance(10) {
        block[..4].copy_from_slice(&MAGIC.to_be_bytes());
    }
    block
}

/// Returns a log of `transactions`, and the start of one more.
fn written(kind: Kind, seed: u64, transactions: u32) -> Writer {
    let mut random = Random(seed * 2 + 1);
    let log_blocks = 400;
    let start = 1 + random.below(log_blocks - 1) as usize;
    // The first number is often close to the wrap-around of the numbers.
    let sequence =
        if random.chance(50) { u32::MAX - random.below(4) as u32 } else { random.0 as u32 };
    let mut writer = Writer::new(kind, log_blocks as usize, start, sequence);
    let fill = |writer: &mut Writer, random: &mut Random| {
        for _ in 0..random.below(3) {
            if random.chance(40) {
                let numbers: Vec<_> = (0..random.below(6)).map(|_| random.below(40)).collect();
                writer.revoke(&numbers);
            }
            let copies: Vec<_> =
                (0..1 + random.below(10)).map(|_| (random.below(40), content(random))).collect();
            writer.describe(random, &copies);
        }
    };
    for _ in 0..transactions {
        fill(&mut writer, &mut random);
        writer.commit();
    }
    fill(&mut writer, &mut random);
    writer
}

#[test]
fn replay_matches_the_model() {
    for kind in kinds() {
        for seed in 0..24 {
            let writer = written(kind, seed, 1 + seed as u32 % 8);
            let (log, superblock) = writer.log(false);
            let replayed = replay(&log, &superblock, FS_BLOCKS).unwrap();
            assert_eq!(replayed.transactions, writer.committed, "{kind:?} {seed}");
            assert_eq!(replayed.overlay, writer.model(writer.committed), "{kind:?} {seed}");
            assert_eq!((replayed.lost, replayed.end), (None, Some(writer.sequence)));
        }
    }
}

#[test]
fn a_commit_with_a_wrong_checksum_ends_the_log() {
    for kind in kinds().into_iter().filter(|kind| kind.checksums != Checksums::None) {
        let mut writer = written(kind, 5, 6);
        let corrupted = writer.commits[3];
        writer.blocks[corrupted][17] ^= 1;
        let (log, superblock) = writer.log(false);
        let replayed = replay(&log, &superblock, FS_BLOCKS).unwrap();
        assert_eq!(replayed.transactions, 3, "{kind:?}");
        assert_eq!(replayed.overlay, writer.model(3), "{kind:?}");
        assert_eq!(replayed.lost, Some(superblock.sequence.wrapping_add(3)), "{kind:?}");
        // With asynchronous commits it is unknown whether the last one was interrupted.
        let mut writer = written(kind, 5, 4);
        let corrupted = writer.commits[3];
        writer.blocks[corrupted][17] ^= 1;
        let (log, superblock) = writer.log(false);
        let replayed = replay(&log, &superblock, FS_BLOCKS).unwrap();
        assert_eq!(replayed.transactions, 3, "{kind:?}");
        assert_eq!(replayed.lost.is_none(), kind.async_commit, "{kind:?}");
        // A commit older than the previous transaction is left from an earlier round.
        writer.blocks[corrupted][48..56].fill(0);
        let (log, superblock) = writer.log(false);
        assert_eq!(replay(&log, &superblock, FS_BLOCKS).unwrap().lost, None, "{kind:?}");
        // A commit block torn after its first sector is complete.
        writer = written(kind, 5, 4);
        let torn = writer.commits[3];
        writer.blocks[torn][512..].fill(0x77);
        let (log, superblock) = writer.log(false);
        assert_eq!(replay(&log, &superblock, FS_BLOCKS).unwrap().transactions, 4, "{kind:?}");
    }
}

#[test]
fn whole_checksums_end_the_log_where_a_copy_is_not_whole() {
    for kind in kinds().into_iter().filter(|kind| kind.whole_checksums) {
        let mut writer = Writer::new(kind, 100, 90, 7);
        let mut random = Random(3);
        for _ in 0..3 {
            let copies = [(5, content(&mut random)), (6, content(&mut random))];
            writer.describe(&mut random, &copies);
            writer.commit();
        }
        let copy = writer.copied[3];
        writer.blocks[copy][900] ^= 1;
        let (log, superblock) = writer.log(false);
        let replayed = replay(&log, &superblock, FS_BLOCKS).unwrap();
        assert_eq!((replayed.transactions, replayed.lost), (1, Some(8)), "{kind:?}");
        assert_eq!(replayed.overlay, writer.model(1));
        // A commit block without a checksum comes from an older kernel.
        let commit = writer.commits[1];
        writer.blocks[commit][12..20].fill(0);
        let (log, superblock) = writer.log(false);
        assert_eq!(replay(&log, &superblock, FS_BLOCKS).unwrap().transactions, 3);
    }
}

#[test]
fn a_copy_with_a_wrong_checksum_is_refused_or_left_out() {
    for kind in kinds().into_iter().filter(|kind| kind.checksums != Checksums::None) {
        let mut writer = Writer::new(kind, 100, 1, 7);
        let mut random = Random(3);
        let copies = [(5, content(&mut random)), (6, content(&mut random))];
        writer.describe(&mut random, &copies);
        writer.commit();
        let copy = writer.copied[0];
        writer.blocks[copy][900] ^= 1;
        let (log, superblock) = writer.log(false);
        let error = replay(&log, &superblock, FS_BLOCKS).unwrap_err();
        let corruption = Corruption::new(Defect::JournalChecksum).in_block(copy as u64);
        assert_eq!(error, Error::Corrupt(corruption), "{kind:?}");
        let (log, superblock) = writer.log(true);
        let replayed = replay(&log, &superblock, FS_BLOCKS).unwrap();
        assert_eq!(replayed.overlay.keys().copied().collect::<Vec<_>>(), [6]);
        assert_eq!(log.ignored.load(Relaxed), 1);
    }
}

#[test]
fn a_block_beyond_the_file_system_is_refused() {
    let kind = Kind {
        checksums: Checksums::V3,
        whole_checksums: false,
        is_64bit: true,
        async_commit: false,
    };
    let mut writer = Writer::new(kind, 100, 1, 7);
    let mut random = Random(3);
    let copies = [(FS_BLOCKS, content(&mut random))];
    writer.describe(&mut random, &copies);
    writer.commit();
    let (log, superblock) = writer.log(true);
    let corruption = Corruption::new(Defect::JournalBlock).in_block(1);
    assert_eq!(replay(&log, &superblock, FS_BLOCKS), Err(Error::Corrupt(corruption)));
    // If the block were revoked, it would not have been written.
    writer.revoke(&[FS_BLOCKS]);
    writer.commit();
    let (log, superblock) = writer.log(false);
    assert_eq!(replay(&log, &superblock, FS_BLOCKS).unwrap().overlay, BTreeMap::new());
}

#[test]
fn any_bytes_are_replayed_or_refused() {
    for kind in kinds() {
        let writer = written(kind, 11, 5);
        let mut random = Random(17);
        for _ in 0..300 {
            let (mut log, superblock) = writer.log(random.chance(50));
            for _ in 0..1 + random.below(4) {
                let block = random.below(log.blocks.len() as u64) as usize;
                let at = if random.chance(70) {
                    random.below(64)
                } else {
                    random.below(BLOCK_BYTES as u64)
                };
                log.blocks[block][at as usize] = random.below(256) as u8;
            }
            if let Ok(replayed) = replay(&log, &superblock, FS_BLOCKS) {
                assert!(replayed.overlay.len() <= log.blocks.len());
            }
            let _ = Superblock::parse(&log.blocks[0], BLOCK_BYTES, 400, true);
        }
        // This is a log of circular descriptors.
        let (mut log, superblock) = writer.log(true);
        let descriptor = [
            &MAGIC.to_be_bytes()[..],
            &DESCRIPTOR.to_be_bytes(),
            &superblock.sequence.to_be_bytes(),
        ];
        for block in &mut log.blocks[1..] {
            block[..12].copy_from_slice(&descriptor.concat());
            block[12..].fill(0);
        }
        assert_eq!(replay(&log, &superblock, FS_BLOCKS).unwrap().transactions, 0, "{kind:?}");
    }
}

#[test]
fn invalid_superblocks_are_refused() {
    let kind = Kind {
        checksums: Checksums::V3,
        whole_checksums: false,
        is_64bit: true,
        async_commit: false,
    };
    let good = Writer::new(kind, 100, 1, 7).blocks.swap_remove(0);
    let parse = |block: &[u8]| Superblock::parse(block, BLOCK_BYTES, 100, true);
    assert_eq!(parse(&good).unwrap().last, 100);
    let changes: [(usize, u32); 9] = [
        (0, 0),
        (4, 2),
        (0xc, 2048),
        (0x10, 101),
        (0x14, 0),
        (0x14, 100),
        (0x1c, 100),
        (0x24, 1),
        (0x28, 0x18),
    ];
    for (at, value) in changes {
        let mut block = good.clone();
        block[at..at + 4].copy_from_slice(&value.to_be_bytes());
        let bad = Corruption::new(Defect::JournalSuperblock);
        assert_eq!(parse(&block), Err(Error::Corrupt(bad)), "{at:#x} {value:#x}");
    }
    let mut block = good.clone();
    block[0x2b] |= 0x40;
    assert!(matches!(parse(&block), Err(Error::Unsupported(_))));
    block = good.clone();
    block[0x60] = 1;
    let wrong = Superblock::parse(&block, BLOCK_BYTES, 100, false);
    assert_eq!(wrong, Err(Corruption::new(Defect::JournalChecksum).into()));
    assert!(Superblock::parse(&good[..1000], BLOCK_BYTES, 100, true).is_err());
    // Version 1 has no features, whatever follows its fields.
    block = good;
    block[7] = 3;
    assert_eq!(parse(&block).unwrap().checksums, Checksums::None);
}

#[test]
fn whole_fast_commits_are_counted() {
    let kind = Kind {
        checksums: Checksums::V3,
        whole_checksums: false,
        is_64bit: true,
        async_commit: false,
    };
    let mut writer = Writer::new(kind, 2000, 1, 7);
    let superblock = &mut writer.blocks[0];
    superblock[0x2b] |= 0x20;
    superblock[0x54..0x58].copy_from_slice(&64_u32.to_be_bytes());
    superblock[0xfc..0x100].fill(0);
    let sum = crc32c(!0, superblock);
    superblock[0xfc..0x100].copy_from_slice(&sum.to_be_bytes());
    let piece = |tag: u16, value: &[u8]| {
        [&tag.to_le_bytes(), &(value.len() as u16).to_le_bytes(), value].concat()
    };
    let whole = |expected: u32| {
        let mut block = piece(9, &[[0; 4], expected.to_le_bytes()].concat());
        block.extend(piece(2, &[0; 12]));
        let tail_bytes = BLOCK_BYTES - block.len() - 4;
        let mut tail = piece(8, &vec![0; tail_bytes]);
        tail[4..8].copy_from_slice(&expected.to_le_bytes());
        block.extend(tail);
        let at = BLOCK_BYTES - tail_bytes + 4;
        let sum = crc32c(0, &block[..at]);
        block[at..at + 4].copy_from_slice(&sum.to_le_bytes());
        block
    };
    let count = |log: &_, superblock: &Superblock, expected| {
        fast_commit::read(log, superblock, expected, 256).unwrap().count()
    };
    let (log, superblock) = writer.log(false);
    assert_eq!((superblock.last, superblock.blocks), (1936, 2000));
    assert_eq!(count(&log, &superblock, 7), 0);
    writer.blocks[1937] = whole(7);
    let (log, superblock) = writer.log(false);
    assert_eq!(count(&log, &superblock, 7), 1);
    assert_eq!(count(&log, &superblock, 8), 0);
    writer.blocks[1937][9] ^= 1;
    let (log, superblock) = writer.log(false);
    assert_eq!(count(&log, &superblock, 7), 0);
}
