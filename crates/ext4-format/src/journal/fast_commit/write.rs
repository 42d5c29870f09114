//! Writes fast commits in the layout of `ext4_fc_perform_commit`. Tags follow each other, and none
//! crosses the end of a block. A pad fills a block that has no room for the next tag. A tail with
//! the checksum of all of it ends the commit, and extends to the end of its block.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{Immutable, IntoBytes};

use super::scan::{
    ADD_RANGE, AddRange, CREAT, Change, DEL_RANGE, DelRange, HEAD, Head, INODE, LINK, PAD, TAIL,
    TagHeader, Tail, UNLINK, WRITTEN_BLOCKS_MAX,
};
use crate::checksum::crc32c;

const TAG_BYTES: usize = size_of::<TagHeader>();
/// The longest name (`EXT4_NAME_LEN`), in bytes.
const NAME_BYTES_MAX: usize = 255;

/// The error for a change that does not fit in a block, or cannot be encoded. A full transaction
/// has to be committed then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotEncodable;

/// A fast commit under construction.
#[derive(Debug)]
pub struct Writer {
    block_bytes: usize,
    tid: u32,
    bytes: Vec<u8>,
    /// CRC of all tags so far.
    crc: u32,
}

impl Writer {
    /// Creates a fast commit in blocks of `block_bytes` bytes, on top of the transaction before
    /// `tid`. `first` says that it is the first one, at the beginning of the area.
    pub fn new(block_bytes: usize, tid: u32, first: bool) -> Self {
        let mut writer = Self { block_bytes, tid, bytes: Vec::with_capacity(block_bytes), crc: 0 };
        if first {
            let head = Head { features: U32::ZERO, tid: U32::new(tid) };
            writer.push(HEAD, &[head.as_bytes()]);
        }
        writer
    }

    /// Adds `change`, which is replayed after the earlier ones.
    ///
    /// # Errors
    /// [`NotEncodable`] if the change cannot be written. The commit must then not be used.
    pub fn add(&mut self, change: &Change) -> Result<(), NotEncodable> {
        match change {
            Change::AddRange { ino, first, blocks, at, unwritten } => {
                self.add_range(*ino, *first, *blocks, *at, *unwritten)
            }
            Change::DelRange { ino, first, blocks } => {
                let range = DelRange {
                    ino: U32::new(*ino),
                    first: U32::new(*first),
                    len: U32::new(*blocks),
                };
                self.tag(DEL_RANGE, &[range.as_bytes()])
            }
            Change::Create { parent, ino, name } => self.name(CREAT, *parent, *ino, name),
            Change::Link { parent, ino, name } => self.name(LINK, *parent, *ino, name),
            Change::Unlink { parent, ino, name } => self.name(UNLINK, *parent, *ino, name),
            Change::Inode { ino, raw } => self.tag(INODE, &[&ino.to_le_bytes(), raw]),
        }
    }

    /// Adds a range. An extent's length has 15 bits, and the longest unwritten extent is shorter by
    /// one block.
    fn add_range(
        &mut self,
        ino: u32,
        first: u32,
        blocks: u32,
        at: u64,
        unwritten: bool,
    ) -> Result<(), NotEncodable> {
        let (most, flag) = if unwritten {
            (WRITTEN_BLOCKS_MAX - 1, WRITTEN_BLOCKS_MAX)
        } else {
            (WRITTEN_BLOCKS_MAX, 0)
        };
        let mut done = 0;
        while done < blocks {
            let some = (blocks - done).min(u32::from(most)) as u16;
            let from = at + u64::from(done);
            let range = AddRange {
                ino: U32::new(ino),
                first: U32::new(first.checked_add(done).ok_or(NotEncodable)?),
                len: U16::new(some + flag),
                start_hi: U16::new(u16::try_from(from >> 32).map_err(|_| NotEncodable)?),
                start_lo: U32::new(from as u32),
            };
            self.tag(ADD_RANGE, &[range.as_bytes()])?;
            done += u32::from(some);
        }
        Ok(())
    }

    fn name(&mut self, tag: u16, parent: u32, ino: u32, name: &[u8]) -> Result<(), NotEncodable> {
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(NotEncodable);
        }
        self.tag(tag, &[&parent.to_le_bytes(), &ino.to_le_bytes(), name])
    }

    /// Reserves room for a tag with a value of `len` bytes, and for the pad after it.
    fn reserve(&mut self, len: usize) -> Result<(), NotEncodable> {
        let need = TAG_BYTES + len;
        if need + TAG_BYTES > self.block_bytes {
            return Err(NotEncodable);
        }
        let used = self.bytes.len() % self.block_bytes;
        // Each tag leaves room for one more, so only a pad can fill a block completely.
        let left = self.block_bytes - TAG_BYTES - used;
        if need > left {
            self.push(PAD, &[&vec![0; left]]);
        }
        Ok(())
    }

    fn tag(&mut self, tag: u16, value: &[&[u8]]) -> Result<(), NotEncodable> {
        self.reserve(value.iter().map(|part| part.len()).sum())?;
        self.push(tag, value);
        Ok(())
    }

    fn push(&mut self, tag: u16, value: &[&[u8]]) {
        let at = self.bytes.len();
        let len: usize = value.iter().map(|part| part.len()).sum();
        // The value is shorter than a block, which has at most 64 KiB, minus its header.
        self.put(&TagHeader { tag: U16::new(tag), len: U16::new(len as u16) });
        for part in value {
            self.bytes.extend_from_slice(part);
        }
        self.crc = crc32c(self.crc, &self.bytes[at..]);
    }

    fn put(&mut self, value: &(impl IntoBytes + Immutable)) {
        self.bytes.extend_from_slice(value.as_bytes());
    }

    /// Returns the blocks of the whole commit. They are written together, and the last one only
    /// after everything that the commit describes is on the disk.
    pub fn finish(mut self) -> Result<Vec<u8>, NotEncodable> {
        self.reserve(size_of::<Tail>())?;
        let at = self.bytes.len();
        let len = self.block_bytes - at % self.block_bytes - TAG_BYTES;
        self.put(&TagHeader { tag: U16::new(TAIL), len: U16::new(len as u16) });
        self.put(&U32::new(self.tid));
        let crc = crc32c(self.crc, &self.bytes[at..]);
        self.put(&U32::new(crc));
        self.bytes.resize(self.bytes.len().next_multiple_of(self.block_bytes), 0);
        Ok(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::super::scan::Scan;
    use super::*;

    fn scan(area: &[u8], block_bytes: usize, tid: u32) -> Vec<Vec<Change>> {
        let mut scan = Scan::new(tid, 256);
        for block in area.chunks(block_bytes) {
            if scan.block(block).unwrap().is_break() {
                break;
            }
        }
        scan.finish()
    }

    fn commit(block_bytes: usize, tid: u32, first: bool, changes: &[Change]) -> Vec<u8> {
        let mut writer = Writer::new(block_bytes, tid, first);
        for change in changes {
            writer.add(change).unwrap();
        }
        let bytes = writer.finish().unwrap();
        assert_eq!(bytes.len() % block_bytes, 0);
        bytes
    }

    fn example(count: u32, name_bytes: usize) -> Vec<Change> {
        let name = vec![b'n'; name_bytes];
        let mut all = Vec::new();
        for ino in 12..12 + count {
            all.push(Change::Inode { ino, raw: vec![ino as u8; 160] });
            all.push(Change::AddRange {
                ino,
                first: 5,
                blocks: 3,
                at: 7 << 32 | u64::from(ino),
                unwritten: ino % 2 == 0,
            });
            all.push(Change::Create { parent: 2, ino, name: name.clone() });
            all.push(Change::DelRange { ino, first: 9, blocks: 1 << 20 });
            all.push(Change::Link { parent: 2, ino, name: b"m".to_vec() });
            all.push(Change::Unlink { parent: 2, ino, name: name.clone() });
        }
        all
    }

    #[test]
    fn written_commits_are_read() {
        for block_bytes in [1024, 2048, 4096, 65_536] {
            // The lengths cover every remainder of a block.
            for name_bytes in 1..=255 {
                let changes = example(8, name_bytes);
                let mut area = commit(block_bytes, 7, true, &changes);
                let next = example(1, 256 - name_bytes);
                area.extend(commit(block_bytes, 7, false, &next));
                let read = scan(&area, block_bytes, 7);
                assert_eq!(read, vec![changes, next], "{block_bytes} {name_bytes}");
                assert_eq!(scan(&area, block_bytes, 8), Vec::<Vec<Change>>::new());
            }
        }
        assert_eq!(commit(4096, 7, true, &example(1, 255)).len(), 4096);
    }

    #[test]
    fn a_commit_without_one_of_its_blocks_is_ignored() {
        let changes = example(40, 100);
        let area = commit(1024, 7, true, &changes);
        let blocks = area.len() / 1024;
        assert!(blocks > 5);
        for lost in 0..blocks {
            for half in [false, true] {
                let mut torn = area.clone();
                let from = lost * 1024 + if half { 512 } else { 0 };
                // The end of the last block is zeroes anyway.
                if torn[from..(lost + 1) * 1024].iter().all(|byte| *byte == 0) {
                    continue;
                }
                torn[from..(lost + 1) * 1024].fill(0);
                assert_eq!(scan(&torn, 1024, 7), Vec::<Vec<Change>>::new(), "{lost} {half}");
            }
        }
    }

    #[test]
    fn long_extents_are_split() {
        let add = |unwritten| Change::AddRange {
            ino: 12,
            first: 0,
            blocks: 70_000,
            at: 1_000,
            unwritten,
        };
        for (unwritten, most) in [(false, 32_768), (true, 32_767)] {
            let read = scan(&commit(1024, 1, true, &[add(unwritten)]), 1024, 1).concat();
            let mut expected = Vec::new();
            for first in (0..70_000).step_by(most) {
                let blocks = (70_000 - first as u32).min(most as u32);
                let (first, at) = (first as u32, 1_000 + first as u64);
                expected.push(Change::AddRange { ino: 12, first, blocks, at, unwritten });
            }
            assert_eq!(read, expected);
        }
    }

    #[test]
    fn changes_that_cannot_be_encoded_are_refused() {
        let refuses = |change: &Change| Writer::new(1024, 1, true).add(change) == Err(NotEncodable);
        let at = 1 << 48;
        assert!(refuses(&Change::Link { parent: 2, ino: 12, name: vec![b'n'; 256] }));
        assert!(refuses(&Change::Link { parent: 2, ino: 12, name: vec![] }));
        assert!(refuses(&Change::Inode { ino: 12, raw: vec![0; 1024 - 8] }));
        assert!(refuses(&Change::AddRange { ino: 12, first: 0, blocks: 1, at, unwritten: false }));
        // This is the longest name that fits, and leaves the first block no room for a tail.
        let mut writer = Writer::new(1024, 1, false);
        writer.add(&Change::Inode { ino: 12, raw: vec![0; 1024 - 12] }).unwrap();
        assert_eq!(writer.finish().unwrap().len(), 2048);
    }
}
