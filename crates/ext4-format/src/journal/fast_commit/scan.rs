//! Reads the fast commit area, and finds the committed changes (`ext4_fc_replay_scan`).

use std::ops::{ControlFlow, Range};

use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32};

use super::super::layout::ADVICE;
use crate::Unsupported;
use crate::checksum::crc32c;

on_disk! {
    /// A tag and the length of its value (`struct ext4_fc_tl`).
    pub(super) struct TagHeader, 4 {
        0 tag: U16,
        2 len: U16,
    }
    /// `struct ext4_fc_head`.
    pub(super) struct Head, 8 {
        0 features: U32,
        4 tid: U32,
    }
    /// `struct ext4_fc_tail`.
    pub(super) struct Tail, 8 {
        0 tid: U32,
        4 crc: U32,
    }
    /// `struct ext4_fc_add_range`, with its `struct ext4_extent`.
    pub(super) struct AddRange, 16 {
        0 ino: U32,
        4 first: U32,
        8 len: U16,
        10 start_hi: U16,
        12 start_lo: U32,
    }
    /// `struct ext4_fc_del_range`.
    pub(super) struct DelRange, 12 {
        0 ino: U32,
        4 first: U32,
        8 len: U32,
    }
}

pub(super) const ADD_RANGE: u16 = 1;
pub(super) const DEL_RANGE: u16 = 2;
pub(super) const CREAT: u16 = 3;
pub(super) const LINK: u16 = 4;
pub(super) const UNLINK: u16 = 5;
pub(super) const INODE: u16 = 6;
pub(super) const PAD: u16 = 7;
pub(super) const TAIL: u16 = 8;
pub(super) const HEAD: u16 = 9;

/// The maximum number of blocks of a written extent. A greater length marks an unwritten one
/// (`EXT_INIT_MAX_LEN`).
pub(super) const WRITTEN_BLOCKS_MAX: u16 = 1 << 15;

/// A change in a fast commit, which is not yet checked against the file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Blocks of a file are now at these places.
    AddRange {
        /// The file.
        ino: u32,
        /// First logical block.
        first: u32,
        /// Number of blocks.
        blocks: u32,
        /// First block in the file system.
        at: u64,
        /// Whether they are unwritten.
        unwritten: bool,
    },
    /// Blocks were removed from a file.
    DelRange {
        /// The file.
        ino: u32,
        /// First logical block.
        first: u32,
        /// Number of blocks.
        blocks: u32,
    },
    /// A new inode got a name.
    Create {
        /// The directory.
        parent: u32,
        /// The inode.
        ino: u32,
        /// The name.
        name: Vec<u8>,
    },
    /// An inode got another name.
    Link {
        /// The directory.
        parent: u32,
        /// The inode.
        ino: u32,
        /// The name.
        name: Vec<u8>,
    },
    /// An inode lost a name.
    Unlink {
        /// The directory.
        parent: u32,
        /// The inode.
        ino: u32,
        /// The name.
        name: Vec<u8>,
    },
    /// An inode without its block map, in its on-disk form.
    Inode {
        /// Its number.
        ino: u32,
        /// Its bytes, without those after its fields (`i_extra_isize`).
        raw: Vec<u8>,
    },
}

/// Collects the changes of complete fast commits, block by block.
pub(super) struct Scan {
    expected_tid: u32,
    inode_bytes: usize,
    crc: u32,
    begun: bool,
    /// The changes of complete commits.
    commits: Vec<Vec<Change>>,
    /// The changes of the incomplete commit.
    open: Vec<Change>,
}

impl Scan {
    /// Creates a scan for fast commits on top of the transaction before `expected_tid`.
    pub(super) fn new(expected_tid: u32, inode_bytes: usize) -> Self {
        let (commits, open) = (Vec::new(), Vec::new());
        Self { expected_tid, inode_bytes, crc: 0, begun: false, commits, open }
    }

    /// Returns the changes of each commit.
    pub(super) fn finish(self) -> Vec<Vec<Change>> {
        self.commits
    }

    /// Scans the next block of the area. Anything but a complete commit of this transaction ends
    /// the area, because it was not committed, or is old. The error is returned if a fast commit
    /// has unknown features, so that nothing after it can be parsed.
    pub(super) fn block(&mut self, block: &[u8]) -> Result<ControlFlow<()>, Unsupported> {
        if !self.begun
            && TagHeader::read_from_prefix(block).is_ok_and(|(tl, _)| tl.tag.get() != HEAD)
        {
            return Ok(ControlFlow::Break(()));
        }
        self.begun = true;
        let mut at = 0;
        while let Some(Ok((tl, rest))) = block.get(at..).map(TagHeader::read_from_prefix) {
            let (tag, len) = (tl.tag.get(), usize::from(tl.len.get()));
            let Some(value) = rest.get(..len).filter(|_| self.length_is_valid(tag, len)) else {
                return Ok(ControlFlow::Break(()));
            };
            let whole = at..at + size_of::<TagHeader>() + len;
            if self.tag(tag, value, block, whole.clone())?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            at = whole.end;
        }
        Ok(ControlFlow::Continue(()))
    }

    fn length_is_valid(&self, tag: u16, len: usize) -> bool {
        match tag {
            ADD_RANGE => len == size_of::<AddRange>(),
            DEL_RANGE => len == size_of::<DelRange>(),
            CREAT | LINK | UNLINK => (9..=8 + 255).contains(&len),
            INODE => (4 + 128..=4 + self.inode_bytes).contains(&len),
            PAD => true,
            TAIL => len >= size_of::<Tail>(),
            HEAD => len == size_of::<Head>(),
            _ => false,
        }
    }

    fn tag(
        &mut self,
        tag: u16,
        value: &[u8],
        block: &[u8],
        whole: Range<usize>,
    ) -> Result<ControlFlow<()>, Unsupported> {
        if tag == TAIL {
            // The checksum covers neither itself nor the rest of the block after it.
            let covered = whole.start + size_of::<TagHeader>() + size_of::<U32>();
            let crc = crc32c(self.crc, &block[whole.start..covered]);
            self.crc = 0;
            let Ok((tail, _)) = Tail::read_from_prefix(value) else {
                return Ok(ControlFlow::Break(()));
            };
            if tail.tid.get() != self.expected_tid || tail.crc.get() != crc {
                return Ok(ControlFlow::Break(()));
            }
            self.commits.push(std::mem::take(&mut self.open));
            return Ok(ControlFlow::Continue(()));
        }
        if tag == HEAD {
            let Ok((head, _)) = Head::read_from_prefix(value) else {
                return Ok(ControlFlow::Break(()));
            };
            if head.tid.get() != self.expected_tid {
                return Ok(ControlFlow::Break(()));
            }
            if head.features.get() != 0 {
                let what = format!("a fast commit with features {:#x}", head.features.get());
                return Err(Unsupported { what, advice: ADVICE });
            }
        } else if let Some(change) = change(tag, value) {
            self.open.push(change);
        }
        self.crc = crc32c(self.crc, &block[whole]);
        Ok(ControlFlow::Continue(()))
    }
}

/// Returns the change of a tag, if it has one. Its length has been checked.
fn change(tag: u16, value: &[u8]) -> Option<Change> {
    let word = |at: usize| U32::read_from_prefix(value.get(at..)?).ok().map(|(word, _)| word.get());
    let name = || value.get(8..).map(<[u8]>::to_vec);
    Some(match tag {
        ADD_RANGE => {
            let (range, _) = AddRange::read_from_prefix(value).ok()?;
            let unwritten = range.len.get() > WRITTEN_BLOCKS_MAX;
            let blocks = range.len.get() - if unwritten { WRITTEN_BLOCKS_MAX } else { 0 };
            let at = u64::from(range.start_hi.get()) << 32 | u64::from(range.start_lo.get());
            let (ino, first) = (range.ino.get(), range.first.get());
            Change::AddRange { ino, first, blocks: u32::from(blocks), at, unwritten }
        }
        DEL_RANGE => {
            let (range, _) = DelRange::read_from_prefix(value).ok()?;
            Change::DelRange {
                ino: range.ino.get(),
                first: range.first.get(),
                blocks: range.len.get(),
            }
        }
        CREAT => Change::Create { parent: word(0)?, ino: word(4)?, name: name()? },
        LINK => Change::Link { parent: word(0)?, ino: word(4)?, name: name()? },
        UNLINK => Change::Unlink { parent: word(0)?, ino: word(4)?, name: name()? },
        INODE => Change::Inode { ino: word(0)?, raw: value.get(4..)?.to_vec() },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 1024;

    /// Writes tags as `ext4_fc_perform_commit` does.
    struct Writer {
        bytes: Vec<u8>,
        from: usize,
        crc: u32,
    }

    impl Writer {
        fn new() -> Self {
            Self { bytes: Vec::new(), from: 0, crc: 0 }
        }

        fn tag(&mut self, tag: u16, value: &[u8]) -> &mut Self {
            let room = BLOCK - self.bytes.len() % BLOCK;
            if room < 4 + value.len() + 4 {
                let pad = vec![0; room - 4];
                self.push(PAD, &pad);
            }
            self.push(tag, value);
            self
        }

        fn push(&mut self, tag: u16, value: &[u8]) {
            let at = self.bytes.len();
            self.bytes.extend(tag.to_le_bytes());
            self.bytes.extend(u16::try_from(value.len()).unwrap().to_le_bytes());
            self.bytes.extend(value);
            self.crc = crc32c(self.crc, &self.bytes[at..]);
        }

        fn commit(&mut self, tid: u32) -> &mut Self {
            let room = BLOCK - self.bytes.len() % BLOCK;
            if room < 12 {
                let pad = vec![0; room - 4];
                self.push(PAD, &pad);
            }
            let len = BLOCK - self.bytes.len() % BLOCK - 4;
            let mut tail = TAIL.to_le_bytes().to_vec();
            tail.extend(u16::try_from(len).unwrap().to_le_bytes());
            tail.extend(tid.to_le_bytes());
            let crc = crc32c(self.crc, &tail);
            tail.extend(crc.to_le_bytes());
            self.bytes.extend(tail);
            self.bytes.resize(self.bytes.len().next_multiple_of(BLOCK), 0);
            self.crc = 0;
            self.from = self.bytes.len();
            self
        }

        fn head(&mut self, tid: u32) -> &mut Self {
            let mut value = 0u32.to_le_bytes().to_vec();
            value.extend(tid.to_le_bytes());
            self.tag(HEAD, &value)
        }

        fn unlink(&mut self, name: &str) -> &mut Self {
            let mut value = 2u32.to_le_bytes().to_vec();
            value.extend(13u32.to_le_bytes());
            value.extend(name.as_bytes());
            self.tag(UNLINK, &value)
        }

        fn scan(&self, tid: u32) -> Result<Vec<Vec<Change>>, Unsupported> {
            let mut scan = Scan::new(tid, 256);
            for block in self.bytes.chunks(BLOCK) {
                if scan.block(block)?.is_break() {
                    break;
                }
            }
            Ok(scan.finish())
        }
    }

    fn unlinked(name: &str) -> Change {
        Change::Unlink { parent: 2, ino: 13, name: name.into() }
    }

    #[test]
    fn commits_count_only_when_whole() {
        let mut area = Writer::new();
        area.head(7).unlink("a").commit(7).unlink("b").unlink("c").commit(7);
        let (first, second) = (vec![unlinked("a")], vec![unlinked("b"), unlinked("c")]);
        assert_eq!(area.scan(7), Ok(vec![first.clone(), second]));
        // Commits of another transaction are old, not an error.
        assert_eq!(area.scan(8), Ok(vec![]));
        // The second commit is torn.
        let last = area.bytes.len() - BLOCK;
        area.bytes[last + 12] ^= 1;
        assert_eq!(area.scan(7), Ok(vec![first]));
        // The first commit is torn as well.
        area.bytes[20] ^= 1;
        assert_eq!(area.scan(7), Ok(vec![]));
    }

    #[test]
    fn a_commit_spans_blocks() {
        let mut area = Writer::new();
        area.head(3);
        let names: Vec<String> = (0..100).map(|n| format!("{n:050}")).collect();
        for name in &names {
            area.unlink(name);
        }
        area.commit(3);
        let expected: Vec<_> = names.iter().map(|name| unlinked(name)).collect();
        assert_eq!(area.scan(3), Ok(vec![expected]));
    }

    #[test]
    fn ranges_and_inodes_are_read() {
        let mut area = Writer::new();
        let mut range = 12u32.to_le_bytes().to_vec();
        range.extend(5u32.to_le_bytes());
        range.extend((WRITTEN_BLOCKS_MAX + 3).to_le_bytes());
        range.extend(1u16.to_le_bytes());
        range.extend(9u32.to_le_bytes());
        let mut inode = 12u32.to_le_bytes().to_vec();
        inode.extend([7; 160]);
        area.head(1).tag(ADD_RANGE, &range).tag(INODE, &inode).commit(1);
        let at = (1 << 32) + 9;
        let expected = vec![
            Change::AddRange { ino: 12, first: 5, blocks: 3, at, unwritten: true },
            Change::Inode { ino: 12, raw: vec![7; 160] },
        ];
        assert_eq!(area.scan(1), Ok(vec![expected]));
    }

    #[test]
    fn any_bytes_are_read_or_refused() {
        // Every single byte of a good area is changed to a few values.
        let mut area = Writer::new();
        area.head(7).unlink("a").commit(7).unlink("b").commit(7);
        for at in 0..area.bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let before = std::mem::replace(&mut area.bytes[at], value);
                if let Ok(commits) = area.scan(7) {
                    assert!(commits.len() <= 2 && commits.concat().len() <= 2);
                }
                area.bytes[at] = before;
            }
        }
    }
}
