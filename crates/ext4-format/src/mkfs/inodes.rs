//! The inodes of a new file system, and their blocks.

use std::ops::Range;

use super::super::block_map::{DIRECT, TWICE_INDIRECT};
use super::super::checksum::{crc32c, inode_seed};
use super::super::dirent::DirectoryShape;
use super::super::edit::dirent::{self, NewEntry};
use super::super::edit::{InodeEdit, NodeEdit};
use super::super::inode::flags;
use super::super::structures::ORPHAN_MAGIC;
use super::super::superblock::{RESIZE_INO, ROOT_INO};
use super::layout::{JOURNAL_INO, LOST_FOUND_INO, Layout, ORPHAN_FILE_INO, backups};
use crate::{FileType, MappedExtent};

const DIRECTORY: u16 = 0o040_000;
const REGULAR: u16 = 0o100_000;
/// Size of the tail of each block of an orphan file: the magic number and a checksum.
const ORPHAN_TAIL_BYTES: usize = 8;
/// The generation of all inodes.
const GENERATION: u32 = 0;

pub(super) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// Makes an extent node with `extents`, for a file without holes.
fn extent_node<'a>(bytes: &'a mut [u8], extents: &[Range<u64>]) -> NodeEdit<&'a mut [u8]> {
    let mut node = NodeEdit::format(bytes, 0);
    let mut logical = 0;
    for extent in extents {
        let (physical, blocks) = (extent.start, (extent.end - extent.start) as u32);
        node.insert_extent(
            node.len(),
            &MappedExtent { logical, blocks, physical, unwritten: false },
        );
        logical += blocks;
    }
    node
}

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

    /// Returns an inode with its content in `extents`. `leaf` is the block that lists them.
    fn with_extents(
        &self,
        mut inode: InodeEdit,
        extents: &[Range<u64>],
        leaf: Option<u64>,
    ) -> InodeEdit {
        inode.set_flags(flags::EXTENTS);
        inode.set_size(count(extents) << self.superblock.block_bits());
        inode.set_blocks(&self.superblock, count(extents) + u64::from(leaf.is_some()));
        let root = &mut inode.block_area_mut()[..];
        if let Some(leaf) = leaf {
            NodeEdit::format(root, 1).insert_child(0, 0, leaf);
        } else {
            extent_node(root, extents);
        }
        inode
    }

    pub(super) fn journal_inode(&self) -> InodeEdit {
        let inode = self.new_inode(JOURNAL_INO, REGULAR | 0o600, 1);
        self.with_extents(inode, &self.journal, self.journal_leaf)
    }

    /// Returns the resize inode, which reserves the blocks after the descriptors, and after each
    /// copy.
    fn resize_inode(&self) -> InodeEdit {
        let superblock = &self.superblock;
        let mut inode = self.new_inode(RESIZE_INO, REGULAR | 0o600, 1);
        let per_block = u64::from(superblock.block_bytes() / 4);
        let last = per_block * per_block + per_block + DIRECT as u64;
        inode.set_size(last << superblock.block_bits());
        let kept = u64::from(superblock.raw.reserved_gdt_blocks.get());
        inode.set_blocks(superblock, 1 + kept * (1 + backups(superblock).count() as u64));
        put_u32(inode.block_area_mut(), 4 * TWICE_INDIRECT, self.resize as u32);
        inode
    }

    /// Returns the first blocks of the first inode table, with all inodes in use.
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
            inode.put(superblock, &mut table[at..at + inode_bytes]);
        }
        table
    }

    fn seed_of(&self, ino: u32) -> u32 {
        inode_seed(self.superblock.seed(), ino, GENERATION)
    }

    /// Returns a block of directory `ino` with `entries`: inodes and names of directories.
    fn directory_block(&self, ino: u32, entries: &[(u32, &[u8])]) -> Vec<u8> {
        let shape = DirectoryShape::of(&self.superblock);
        let mut block = vec![0; shape.block_bytes];
        let file_type = Some(FileType::Directory);
        let entries: Vec<_> =
            entries.iter().map(|&(ino, name)| NewEntry { ino, file_type, name }).collect();
        dirent::fill(&mut block, shape, &entries).expect("a block has room for three entries");
        dirent::seal(&mut block, shape, self.seed_of(ino));
        block
    }

    /// Returns the blocks of the directories.
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

    /// Returns block `block` of the orphan file.
    pub(super) fn orphan_block(&self, block: u64) -> Vec<u8> {
        let mut bytes = vec![0; self.superblock.block_bytes() as usize];
        let end = bytes.len() - ORPHAN_TAIL_BYTES;
        put_u32(&mut bytes, end, ORPHAN_MAGIC);
        let sum =
            crc32c(crc32c(self.seed_of(ORPHAN_FILE_INO), &block.to_le_bytes()), &bytes[..end]);
        put_u32(&mut bytes, end + 4, sum);
        bytes
    }

    /// Returns the block that lists the journal's extents, if its inode does not.
    pub(super) fn journal_extents(&self) -> Option<(u64, Vec<u8>)> {
        let leaf = self.journal_leaf?;
        let mut block = vec![0; self.superblock.block_bytes() as usize];
        extent_node(&mut block[..], &self.journal).seal(self.seed_of(JOURNAL_INO));
        Some((leaf, block))
    }
}
