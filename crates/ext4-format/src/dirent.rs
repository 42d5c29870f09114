//! Entries of a directory in one block (kernel documentation: `filesystems/ext4/directory.rst`;
//! `struct ext4_dir_entry_2`).

#[cfg(test)]
pub(super) mod tests;

use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32};

use super::checksum::crc32c;
use super::features::incompat;
use super::superblock::Superblock;
use crate::FileType;
use crate::error::Defect;

/// The longest name, in bytes (`EXT4_NAME_LEN`).
pub const NAME_BYTES_MAX: usize = 255;
/// Size of the checksummed tail of a block.
pub(super) const TAIL_BYTES: usize = size_of::<Tail>();
/// The smallest entry: a name of one to four bytes.
pub(super) const ENTRY_BYTES_MIN: usize = 12;
/// The file type that the tail claims to have.
pub(super) const TAIL_FILE_TYPE: u8 = 0xde;

on_disk! {
    /// The part before an entry's name (`struct ext4_dir_entry_2`).
    struct Header, 8 {
        0 inode: U32,
        4 rec_len: U16,
        6 name_len: u8,
        /// The high byte of `name_len` in file systems without the feature `filetype`.
        7 file_type: u8,
    }
    /// The end of a block with a checksum (`struct ext4_dir_entry_tail`).
    struct Tail, 12 {
        0 reserved_zero1: U32,
        4 rec_len: U16,
        6 reserved_zero2: u8,
        7 reserved_ft: u8,
        8 checksum: U32,
    }
}

/// The inode of a name, and its type if the directory stores it.
pub type Named = (u32, Option<FileType>);

/// The properties of a file system that determine its directories' layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectoryShape {
    /// Block size, in bytes.
    pub block_bytes: usize,
    /// Entries have file types (feature `filetype`).
    pub file_types: bool,
    /// Blocks end with a checksum (feature `metadata_csum`).
    pub checksums: bool,
    /// Indices may have one more level (feature `large_dir`).
    pub large: bool,
    /// Number of inodes.
    pub inodes: u32,
    /// Names are encrypted: they may have any bytes.
    pub any_names: bool,
}

impl DirectoryShape {
    /// The shape for the file system with `superblock`.
    pub fn of(superblock: &Superblock) -> Self {
        let features = superblock.features();
        Self {
            block_bytes: superblock.block_bytes() as usize,
            file_types: features.has_incompat(incompat::FILETYPE),
            checksums: superblock.has_checksums(),
            large: features.has_incompat(incompat::LARGEDIR),
            inodes: superblock.inodes(),
            any_names: false,
        }
    }

    /// Returns the maximum number of levels of nodes between root and leaves
    /// (`ext4_dir_htree_level`).
    pub fn levels_max(self) -> usize {
        if self.large { 2 } else { 1 }
    }
}

/// An entry that was checked: it lies within its block, and its name lies within the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dirent<'a> {
    /// Its offset in the block, in bytes.
    pub offset: usize,
    /// Its length including the unused part, in bytes.
    pub bytes: usize,
    /// Its inode, or 0 if the entry is unused.
    pub ino: u32,
    /// The inode's type, if the entry stores it.
    pub file_type: Option<FileType>,
    /// Its name.
    pub name: &'a [u8],
}

impl Dirent<'_> {
    #[inline]
    fn is_valid(&self, shape: DirectoryShape) -> bool {
        self.ino == 0 || is_name(self.name) || shape.any_names && !self.name.is_empty()
    }
}

/// Decodes the length of an entry, which needs one bit more than the field has in a block of 64 KiB
/// (`ext4_rec_len_from_disk`).
pub(super) fn record_bytes(rec_len: u16, block_bytes: usize) -> usize {
    let raw = usize::from(rec_len);
    if block_bytes < 1 << 16 {
        raw
    } else if raw == 0 || raw == 0xffff {
        block_bytes
    } else {
        // Lengths are multiples of four, so the two lowest bits are free to be the highest ones.
        raw & 0xfffc | (raw & 3) << 16
    }
}

/// Returns whether one of the bytes of `word` is zero.
#[inline]
fn has_zero(word: u64) -> bool {
    const ONES: u64 = u64::MAX / 0xFF;
    word.wrapping_sub(ONES) & !word & ONES << 7 != 0
}

/// Returns whether `name` is valid, so that it contains neither a slash nor a NUL. It checks eight
/// bytes at a time, since listings check all names.
#[inline]
fn is_name(name: &[u8]) -> bool {
    const SLASHES: u64 = u64::MAX / 0xFF * b'/' as u64;
    let has_bad = |word: u64| has_zero(word) || has_zero(word ^ SLASHES);
    let (Some(first), Some(last)) = (name.first_chunk::<8>(), name.last_chunk::<8>()) else {
        return !name.is_empty() && !name.iter().any(|byte| matches!(byte, 0 | b'/'));
    };
    // The last eight bytes may overlap those checked before.
    !has_bad(u64::from_ne_bytes(*first))
        && !has_bad(u64::from_ne_bytes(*last))
        && (name.len() <= 16
            || !name.as_chunks::<8>().0.iter().any(|chunk| has_bad(u64::from_ne_bytes(*chunk))))
}

/// Returns whether `name` equals `wanted`. Names of a directory often differ in their last byte,
/// not in their length.
#[inline]
fn is_same(name: &[u8], wanted: &[u8]) -> bool {
    name.len() == wanted.len() && name.last() == wanted.last() && name == wanted
}

/// The entries in `area`, used or not, in order. The iteration ends after a defect.
#[derive(Debug, Clone)]
pub struct Dirents<'a> {
    area: &'a [u8],
    offset: usize,
    shape: DirectoryShape,
}

impl<'a> Dirents<'a> {
    /// Returns the entries in a whole block, or in an inline area of an inode.
    pub fn new(area: &'a [u8], shape: DirectoryShape) -> Self {
        Self { area, offset: 0, shape }
    }

    /// Applies the conditions of `ext4_check_dir_entry`. Does not check the name.
    #[inline]
    fn parse(&self) -> Option<Dirent<'a>> {
        let rest = self.area.get(self.offset..)?;
        let (header, after) = Header::ref_from_prefix(rest).ok()?;
        let bytes = record_bytes(header.rec_len.get(), self.shape.block_bytes);
        let name_bytes = usize::from(header.name_len);
        let left_bytes = rest.len().checked_sub(bytes)?;
        let ino = header.inode.get();
        if bytes < ENTRY_BYTES_MIN
            || !bytes.is_multiple_of(4)
            || bytes < (8 + name_bytes).next_multiple_of(4)
            || left_bytes != 0 && left_bytes < ENTRY_BYTES_MIN
            || ino > self.shape.inodes
        {
            return None;
        }
        let name = after.get(..name_bytes)?;
        let file_type = FileType::of_number(header.file_type).filter(|_| self.shape.file_types);
        Some(Dirent { offset: self.offset, bytes, ino, file_type, name })
    }
}

impl<'a> Iterator for Dirents<'a> {
    type Item = Result<Dirent<'a>, Defect>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.offset >= self.area.len() {
            return None;
        }
        match self.parse().filter(|entry| entry.is_valid(self.shape)) {
            Some(entry) => {
                self.offset += entry.bytes;
                Some(Ok(entry))
            }
            None => {
                self.offset = self.area.len();
                Some(Err(Defect::DirectoryEntry))
            }
        }
    }
}

/// The place of an entry in its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Its offset, in bytes.
    pub offset: usize,
    /// Its length including the unused part, in bytes.
    pub bytes: usize,
    /// The offset of the entry before it, or `None` if it is the first.
    pub before: Option<usize>,
}

/// Finds `name` among the entries of `area`.
///
/// # Errors
/// Fails with a defect that comes before the name was found.
pub fn find(
    area: &[u8],
    shape: DirectoryShape,
    name: &[u8],
) -> Result<Option<(Named, Slot)>, Defect> {
    find_past(area, shape, name, |_| ())
}

/// Finds `name` among the entries of `area`, and calls `passed` with each entry before it, or with
/// all if it is absent. The names of these are not checked, because a search is the largest part of
/// adding and removing a name.
#[inline]
pub(super) fn find_past<'a>(
    area: &'a [u8],
    shape: DirectoryShape,
    name: &[u8],
    mut passed: impl FnMut(&Dirent<'a>),
) -> Result<Option<(Named, Slot)>, Defect> {
    let mut entries = Dirents::new(area, shape);
    let mut before = None;
    while entries.offset < area.len() {
        let entry = entries.parse().ok_or(Defect::DirectoryEntry)?;
        let Dirent { offset, bytes, ino, file_type, .. } = entry;
        if ino != 0 && is_same(entry.name, name) {
            let found = Some(((ino, file_type), Slot { offset, bytes, before }));
            return if entry.is_valid(shape) { Ok(found) } else { Err(Defect::DirectoryEntry) };
        }
        passed(&entry);
        before = Some(offset);
        entries.offset += bytes;
    }
    Ok(None)
}

/// Returns whether the checksum in the tail of `block` is right (`ext4_dirblock_csum_verify`).
/// `seed` is the directory's. Returns false for a block without a tail.
pub fn leaf_checksum_is_right(block: &[u8], seed: u32) -> bool {
    let Some(content_bytes) = block.len().checked_sub(TAIL_BYTES) else { return false };
    let (content, tail) = block.split_at(content_bytes);
    let Ok(tail) = Tail::ref_from_bytes(tail) else { return false };
    tail.reserved_zero1.get() == 0
        && usize::from(tail.rec_len.get()) == TAIL_BYTES
        && tail.reserved_zero2 == 0
        && tail.reserved_ft == TAIL_FILE_TYPE
        && tail.checksum.get() == crc32c(seed, content)
}
