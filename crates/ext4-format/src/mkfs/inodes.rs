//! The inodes of a new file system, and what they lead to.

use std::ops::Range;

use super::super::checksum::{crc32c, inode_seed};
use super::super::edit::InodeEdit;
use super::super::inode::{BLOCK_AREA_BYTES, flags};
use super::super::superblock::ROOT_INO;
use super::content::{extent_node, put_u16, put_u32};
use super::layout::{LOST_FOUND_INO, Layout, ORPHAN_FILE_INO, backups};

/// The inode that keeps blocks for more descriptors.
const RESIZE_INO: u32 = 7;
/// The inode of the journal.
pub(super) const JOURNAL_INO: u32 = 8;
/// In `i_block`: the block that leads to blocks that lead to blocks.
const DOUBLY_INDIRECT: usize = 13;
/// Blocks that an inode with a block map leads to itself.
const DIRECT_BLOCKS: u64 = 12;

const DIRECTORY: u16 = 0o040_000;
const REGULAR: u16 = 0o100_000;
/// File type of a directory, in entries.
const DIRECTORY_TYPE: u8 = 2;
/// Header of an entry, in bytes.
const ENTRY_BYTES: usize = 8;
/// The end of a directory's block: an entry without a name, with a checksum.
const DIRECTORY_TAIL_BYTES: usize = 12;
/// What the end of each block of an orphan file begins with (`EXT4_ORPHAN_BLOCK_MAGIC`).
const ORPHAN_MAGIC: u32 = 0x0b10_ca04;
/// The end of each block of an orphan file: the magic number, a checksum.
const ORPHAN_TAIL_BYTES: usize = 8;
/// Generation of all of them.
const GENERATION: u32 = 0;

fn count(extents: &[Range<u64>]) -> u64 {
    extents.iter().map(|range| range.end - range.start).sum()
}

impl Layout {
    fn new_inode(&self, ino: u32, mode: u16, links: u16) -> InodeEdit {
        let mut inode = InodeEdit::new(&self.superblock, ino, GENERATION);
        let now = self.options.now;
        inode.set_mode(mode);
        inode.set_links(links);
        inode.set_accessed(now);
        inode.set_modified(now);
        inode.set_changed(now);
        inode.set_created(now);
        inode
    }

    /// An inode whose content is in `extents`; `leaf`: they are listed in that block.
    fn with_extents(
        &self,
        mut inode: InodeEdit,
        extents: &[Range<u64>],
        leaf: Option<u64>,
    ) -> InodeEdit {
        inode.set_flags(flags::EXTENTS);
        inode.set_size(count(extents) << self.superblock.block_bits());
        inode.set_blocks(&self.superblock, count(extents) + u64::from(leaf.is_some()));
        let root: &mut [u8; BLOCK_AREA_BYTES] = inode.block_area_mut();
        match leaf {
            None => extent_node(root, extents),
            Some(leaf) => super::content::extent_root(root, leaf),
        }
        inode
    }

    pub(super) fn journal_inode(&self) -> InodeEdit {
        let inode = self.new_inode(JOURNAL_INO, REGULAR | 0o600, 1);
        self.with_extents(inode, &self.journal, self.journal_leaf)
    }

    /// Keeps the blocks behind the descriptors, and behind each copy of them.
    fn resize_inode(&self) -> InodeEdit {
        let superblock = &self.superblock;
        let mut inode = self.new_inode(RESIZE_INO, REGULAR | 0o600, 1);
        let per_block = u64::from(superblock.block_bytes() / 4);
        let last = per_block * per_block + per_block + DIRECT_BLOCKS;
        inode.set_size(last << superblock.block_bits());
        let kept = u64::from(superblock.raw.reserved_gdt_blocks.get());
        inode.set_blocks(superblock, 1 + kept * (1 + backups(superblock).count() as u64));
        put_u32(inode.block_area_mut(), 4 * DOUBLY_INDIRECT, self.resize as u32);
        inode
    }

    /// The first blocks of the first inode table: all inodes that are in use.
    pub(super) fn first_inodes(&self) -> Vec<u8> {
        let superblock = &self.superblock;
        let inode_bytes = superblock.inode_bytes() as usize;
        let bytes = self.last_ino() as usize * inode_bytes;
        let mut table = vec![0; bytes.next_multiple_of(superblock.block_bytes() as usize)];
        let root = Range { start: self.root, end: self.root + 1 };
        let mut inodes = vec![
            self.with_extents(self.new_inode(ROOT_INO, DIRECTORY | 0o755, 3), &[root], None),
            self.resize_inode(),
            self.journal_inode(),
            self.with_extents(
                self.new_inode(LOST_FOUND_INO, DIRECTORY | 0o700, 2),
                &self.lost_found,
                None,
            ),
        ];
        if self.options.orphan_file {
            let inode = self.new_inode(ORPHAN_FILE_INO, REGULAR | 0o600, 1);
            inodes.push(self.with_extents(inode, &self.orphan_file, None));
        }
        for inode in inodes {
            let at = (inode.ino() as usize - 1) * inode_bytes;
            table[at..at + inode_bytes].copy_from_slice(&inode.sealed(superblock));
        }
        table
    }

    fn seed_of(&self, ino: u32) -> u32 {
        inode_seed(self.superblock.seed(), ino, GENERATION)
    }

    /// A block of directory `ino` with `entries`: inode and name of directories.
    pub(super) fn directory_block(&self, ino: u32, entries: &[(u32, &[u8])]) -> Vec<u8> {
        let bytes = self.superblock.block_bytes() as usize;
        let mut block = vec![0; bytes];
        let end = bytes - DIRECTORY_TAIL_BYTES;
        let mut at = 0;
        for (index, (ino, name)) in entries.iter().enumerate() {
            let needed = (ENTRY_BYTES + name.len()).next_multiple_of(4);
            let length = if index + 1 == entries.len() { end - at } else { needed };
            put_u32(&mut block, at, *ino);
            put_u16(&mut block, at + 4, length as u16);
            (block[at + 6], block[at + 7]) = (name.len() as u8, DIRECTORY_TYPE);
            block[at + ENTRY_BYTES..at + ENTRY_BYTES + name.len()].copy_from_slice(name);
            at += length;
        }
        if entries.is_empty() {
            put_u16(&mut block, 4, end as u16);
        }
        put_u16(&mut block, end + 4, DIRECTORY_TAIL_BYTES as u16);
        block[end + 7] = 0xDE;
        let sum = crc32c(self.seed_of(ino), &block[..end]);
        put_u32(&mut block, end + 8, sum);
        block
    }

    /// The blocks of the directories.
    pub(super) fn directories(&self) -> Vec<(u64, Vec<u8>)> {
        let root: [(u32, &[u8]); 3] =
            [(ROOT_INO, b"."), (ROOT_INO, b".."), (LOST_FOUND_INO, b"lost+found")];
        let mut blocks = vec![(self.root, self.directory_block(ROOT_INO, &root))];
        let dots: [(u32, &[u8]); 2] = [(LOST_FOUND_INO, b"."), (ROOT_INO, b"..")];
        for block in self.lost_found.iter().cloned().flatten() {
            let entries: &[_] = if block == self.lost_found[0].start { &dots } else { &[] };
            blocks.push((block, self.directory_block(LOST_FOUND_INO, entries)));
        }
        blocks
    }

    /// Block `block` of the orphan file.
    pub(super) fn orphan_block(&self, block: u64) -> Vec<u8> {
        let mut bytes = vec![0; self.superblock.block_bytes() as usize];
        let end = bytes.len() - ORPHAN_TAIL_BYTES;
        put_u32(&mut bytes, end, ORPHAN_MAGIC);
        let sum =
            crc32c(crc32c(self.seed_of(ORPHAN_FILE_INO), &block.to_le_bytes()), &bytes[..end]);
        put_u32(&mut bytes, end + 4, sum);
        bytes
    }

    /// The block that lists the journal's extents, if its inode does not.
    pub(super) fn journal_extents(&self) -> Option<(u64, Vec<u8>)> {
        let leaf = self.journal_leaf?;
        let mut block = vec![0; self.superblock.block_bytes() as usize];
        extent_node(&mut block, &self.journal);
        let end = super::content::extent_node_end(block.len());
        let sum = crc32c(self.seed_of(JOURNAL_INO), &block[..end]);
        put_u32(&mut block, end, sum);
        Some((leaf, block))
    }
}
