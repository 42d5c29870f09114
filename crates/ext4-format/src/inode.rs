//! Inodes (kernel documentation: `filesystems/ext4/inodes.rst`; e2fsprogs:
//! `struct ext2_inode_large`).

use std::sync::Arc;

use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32};

use super::checksum::{crc32c, crc32c_without, inode_seed};
use super::features::{incompat, ro_compat};
use super::structures::words;
use super::superblock::Superblock;
use crate::{Corruption, Defect, FileType, Metadata, Timestamp, Unsupported};

/// `i_flags` (EXT4_*_FL).
#[expect(missing_docs, reason = "named as in e2fsprogs' ext2_fs.h")]
pub mod flags {
    pub const IMMUTABLE: u32 = 0x10;
    pub const APPEND: u32 = 0x20;
    pub const NOATIME: u32 = 0x80;
    pub const ENCRYPT: u32 = 0x800;
    pub const JOURNAL_DATA: u32 = 0x4000;
    pub const INDEX: u32 = 0x1000;
    pub const HUGE_FILE: u32 = 0x40000;
    pub const EXTENTS: u32 = 0x80000;
    pub const VERITY: u32 = 0x10_0000;
    pub const EA_INODE: u32 = 0x20_0000;
    pub const INLINE_DATA: u32 = 0x1000_0000;
    pub const PROJINHERIT: u32 = 0x2000_0000;
    pub const CASEFOLD: u32 = 0x4000_0000;
}

/// Magic number before the attributes in an inode (EXT4_XATTR_MAGIC).
pub(super) const ATTRIBUTES_MAGIC: [u8; 4] = super::xattr::MAGIC.to_le_bytes();
/// Size of `i_block`, in bytes.
pub const BLOCK_AREA_BYTES: usize = 60;

on_disk! {
    /// The 128 bytes that every inode has.
    pub(super) struct RawInode, 128 {
        0x00 mode: U16,
        0x02 uid: U16,
        0x04 size_lo: U32,
        0x08 atime: U32,
        0x0C ctime: U32,
        0x10 mtime: U32,
        0x14 dtime: U32,
        0x18 gid: U16,
        0x1A links_count: U16,
        0x1C blocks_lo: U32,
        0x20 flags: U32,
        0x24 version: U32,
        0x28 block: [u8; BLOCK_AREA_BYTES],
        0x64 generation: U32,
        0x68 file_acl_lo: U32,
        0x6C size_high: U32,
        0x70 obso_faddr: U32,
        0x74 blocks_high: U16,
        0x76 file_acl_high: U16,
        0x78 uid_high: U16,
        0x7A gid_high: U16,
        0x7C checksum_lo: U16,
        0x7E reserved: U16,
    }
    /// The optional part, as far as `i_extra_isize` extends.
    pub(super) struct RawInodeExtra, 32 {
        0x00 extra_isize: U16,
        0x02 checksum_hi: U16,
        0x04 ctime_extra: U32,
        0x08 mtime_extra: U32,
        0x0C atime_extra: U32,
        0x10 crtime: U32,
        0x14 crtime_extra: U32,
        0x18 version_hi: U32,
        0x1C projid: U32,
    }
}

const GOOD_OLD_BYTES: usize = size_of::<RawInode>();
const EXTRA_BYTES: usize = size_of::<RawInodeExtra>();
const CHECKSUM_LO_AT: usize = std::mem::offset_of!(RawInode, checksum_lo);
const CHECKSUM_HI_AT: usize = GOOD_OLD_BYTES + std::mem::offset_of!(RawInodeExtra, checksum_hi);
/// The default size of inodes of mkfs.
const USUAL_BYTES: usize = 256;

/// An inode with valid fields. It is a copy, and holds no reference to its block.
#[derive(Debug, Clone)]
pub struct Inode {
    metadata: Metadata,
    /// The file system's seed, from which the inode's is computed on demand.
    seed: u32,
    /// Whether `i_mode` has no type, as in free inodes and the list of bad blocks.
    typeless: bool,
    fast_symlink: bool,
    /// Whether encrypted names are taken as they are stored.
    stored_names: bool,
    dtime: u32,
    attribute_block: u64,
    block: [u8; BLOCK_AREA_BYTES],
    body: Arc<[u8]>,
}

/// Decodes a time from `seconds` and its `extra` word: two more bits of seconds, and nanoseconds
/// (`ext4_decode_extra_time`).
pub(crate) fn timestamp(seconds: U32, extra: U32) -> Timestamp {
    let extra = extra.get();
    Timestamp {
        seconds: i64::from(seconds.get() as i32) + (i64::from(extra & 3) << 32),
        nanoseconds: (extra >> 2).min(999_999_999),
    }
}

/// Returns the major and minor number, in the old or the new form (`i_block[0]`, `i_block[1]`).
fn device(block: &[u8; BLOCK_AREA_BYTES]) -> (u32, u32) {
    let words = words(block);
    match (words[0].get(), words[1].get()) {
        (0, new) => ((new >> 8) & 0xFFF, (new & 0xFF) | ((new >> 12) & 0xF_FF00)),
        (old, _) => ((old >> 8) & 0xFF, old & 0xFF),
    }
}

/// Returns the correct checksum of `bytes`, as `lo | hi << 16`. `has_high` says whether there is
/// room for its upper half.
fn checksum(seed: u32, bytes: &[u8], has_high: bool) -> u32 {
    let fields = [CHECKSUM_LO_AT, CHECKSUM_HI_AT];
    if !has_high {
        return crc32c_without(seed, bytes, &fields[..1], 2) & 0xFFFF;
    }
    // An inode of the usual size is read in one piece, which takes a third of the time.
    if let Ok(mut whole) = <[u8; USUAL_BYTES]>::try_from(bytes) {
        fields.into_iter().for_each(|at| whole[at..at + 2].fill(0));
        return crc32c(seed, &whole);
    }
    crc32c_without(seed, bytes, &fields, 2)
}

impl Inode {
    /// Returns the correct checksum of inode `ino`, `bytes`, its stored checksum, and whether there
    /// is room for the upper half.
    fn checksums(superblock: &Superblock, ino: u32, bytes: &[u8]) -> Option<(u32, u32, bool)> {
        let (raw, rest) = RawInode::ref_from_prefix(bytes).ok()?;
        let extra = RawInodeExtra::ref_from_prefix(rest).ok().map(|(extra, _)| extra);
        let end = CHECKSUM_HI_AT + 2 - GOOD_OLD_BYTES;
        let extra = extra.filter(|extra| usize::from(extra.extra_isize.get()) >= end);
        let high = extra.map_or(0, |extra| u32::from(extra.checksum_hi.get()) << 16);
        let seed = inode_seed(superblock.seed(), ino, raw.generation.get());
        let right = checksum(seed, bytes, extra.is_some());
        Some((right, u32::from(raw.checksum_lo.get()) | high, extra.is_some()))
    }

    /// Returns whether the checksum of inode `ino`, `bytes`, is right. Returns true if there is
    /// none. An inode of all zeroes was never used, which is right, too.
    pub fn checksum_is_right(superblock: &Superblock, ino: u32, bytes: &[u8]) -> bool {
        if !superblock.has_checksums() {
            return bytes.len() >= GOOD_OLD_BYTES;
        }
        Self::checksums(superblock, ino, bytes).is_some_and(|(right, stored, _)| {
            right == stored || bytes.iter().all(|byte| *byte == 0)
        })
    }

    /// Sets the checksum of inode `ino`, `bytes`, if enabled.
    pub(super) fn set_checksum(superblock: &Superblock, ino: u32, bytes: &mut [u8]) {
        if !superblock.has_checksums() {
            return;
        }
        let Some((right, _, has_high)) = Self::checksums(superblock, ino, bytes) else { return };
        bytes[CHECKSUM_LO_AT..CHECKSUM_LO_AT + 2].copy_from_slice(&(right as u16).to_le_bytes());
        if has_high {
            bytes[CHECKSUM_HI_AT..CHECKSUM_HI_AT + 2]
                .copy_from_slice(&((right >> 16) as u16).to_le_bytes());
        }
    }

    /// Parses inode `ino` from `bytes`, which have an inode's size. Does not verify its
    /// [checksum](Self::checksum_is_right).
    ///
    /// # Errors
    /// [`Defect::InodeField`].
    pub fn parse(superblock: &Superblock, ino: u32, bytes: &[u8]) -> Result<Self, Corruption> {
        let wrong = |field| Corruption::new(Defect::InodeField(field)).in_inode(ino);
        let checked = |ok: bool, field| if ok { Ok(()) } else { Err(wrong(field)) };
        let (raw, rest) =
            RawInode::read_from_prefix(bytes).map_err(|_| wrong("size on the disk"))?;
        let found = RawInodeExtra::read_from_prefix(rest).ok().map(|(extra, _)| extra);
        let extra_isize = found.as_ref().map_or(0, |extra| usize::from(extra.extra_isize.get()));
        checked(extra_isize <= rest.len() && extra_isize.is_multiple_of(4), "extra size")?;
        // Fields after `i_extra_isize` do not exist, unless that is 0 (an inode made by a kernel
        // without such fields). Then the kernel reads the fields as they are, which is zeroes.
        let reach = if extra_isize == 0 { EXTRA_BYTES } else { extra_isize };
        let fits = |end: usize| rest.len() >= end && reach >= end;

        let extra = found.unwrap_or_default();
        let when = |end: usize, word: U32| if fits(end) { word } else { U32::ZERO };
        let mode = raw.mode.get();
        let kind = FileType::of_mode(mode);
        checked(kind.is_some() || mode >> 12 == 0, "type")?;
        let features = superblock.features();
        let inode_flags = raw.flags.get();
        let large = kind == Some(FileType::Regular) || features.has_incompat(incompat::LARGEDIR);
        let size = u64::from(raw.size_lo.get())
            | if large { u64::from(raw.size_high.get()) << 32 } else { 0 };
        checked(size <= i64::MAX as u64, "size")?;
        let mut blocks_512 = u64::from(raw.blocks_lo.get());
        if features.has_ro_compat(ro_compat::HUGE_FILE) {
            blocks_512 |= u64::from(raw.blocks_high.get()) << 32;
            if inode_flags & flags::HUGE_FILE != 0 {
                blocks_512 <<= superblock.block_bits() - 9;
            }
        }
        let bit64 = features.has_incompat(incompat::BIT64);
        let attribute_block = u64::from(raw.file_acl_lo.get())
            | if bit64 { u64::from(raw.file_acl_high.get()) << 32 } else { 0 };
        checked(attribute_block == 0 || superblock.holds(attribute_block, 1), "attribute block")?;
        let inline = inode_flags & flags::INLINE_DATA != 0;
        let both = inline && inode_flags & flags::EXTENTS != 0;
        checked(!both, "flags (inline data and extents)")?;
        let fast_symlink = kind == Some(FileType::Symlink)
            && !inline
            && if features.has_incompat(incompat::EA_INODE) {
                size > 0 && size < BLOCK_AREA_BYTES as u64
            } else {
                // A symbolic link without blocks other than those of attributes holds its target in
                // the inode (`ext4_inode_is_fast_symlink`).
                let cluster_512 =
                    u64::from(superblock.cluster_blocks()) << (superblock.block_bits() - 9);
                blocks_512 == if attribute_block == 0 { 0 } else { cluster_512 }
            };
        let project = features.has_ro_compat(ro_compat::PROJECT)
            && rest.len() >= EXTRA_BYTES
            && extra_isize >= EXTRA_BYTES;
        let special = matches!(kind, Some(FileType::Character | FileType::Block));
        let metadata = Metadata {
            ino,
            generation: raw.generation.get(),
            file_type: kind.unwrap_or(FileType::Regular),
            mode,
            links: u32::from(raw.links_count.get()),
            uid: u32::from(raw.uid.get()) | u32::from(raw.uid_high.get()) << 16,
            gid: u32::from(raw.gid.get()) | u32::from(raw.gid_high.get()) << 16,
            size,
            blocks_512,
            block_bytes: superblock.block_bytes(),
            device: if special { device(&raw.block) } else { (0, 0) },
            accessed: timestamp(raw.atime, when(16, extra.atime_extra)),
            modified: timestamp(raw.mtime, when(12, extra.mtime_extra)),
            changed: timestamp(raw.ctime, when(8, extra.ctime_extra)),
            created: fits(20).then(|| timestamp(extra.crtime, when(24, extra.crtime_extra))),
            flags: inode_flags,
            project: if project { extra.projid.get() } else { 0 },
        };
        let body =
            if extra_isize == 0 { &[][..] } else { rest.get(extra_isize..).unwrap_or_default() };
        let body = if body.starts_with(&ATTRIBUTES_MAGIC) { body.into() } else { Arc::default() };
        Ok(Self {
            metadata,
            seed: superblock.seed(),
            typeless: kind.is_none(),
            stored_names: false,
            fast_symlink,
            dtime: raw.dtime.get(),
            attribute_block,
            block: raw.block,
            body,
        })
    }

    /// Returns its number.
    pub fn ino(&self) -> u32 {
        self.metadata.ino
    }

    /// Returns its type. An inode without a type (free, or the list of bad blocks) counts as a
    /// file.
    pub fn file_type(&self) -> FileType {
        self.metadata.file_type
    }

    /// Returns whether it is not in use, because it has no links or no type.
    pub fn is_free(&self) -> bool {
        self.metadata.links == 0 || self.typeless
    }

    /// Returns the size of the content, in bytes.
    pub fn size(&self) -> u64 {
        self.metadata.size
    }

    /// Returns `i_flags`, whose bits are in [`flags`].
    pub fn flags(&self) -> u32 {
        self.metadata.flags
    }

    /// Returns whether `flag`, of [`flags`], is set.
    pub fn has(&self, flag: u32) -> bool {
        self.metadata.flags & flag != 0
    }

    /// Returns the result of `stat`, without the size of inline data, which
    /// [`Volume::metadata`](super::Volume::metadata) adds.
    pub fn metadata(&self) -> Metadata {
        self.metadata
    }

    /// Returns the initial state of the checksums of its blocks: of extent nodes, directory blocks
    /// and htree nodes.
    pub fn checksum_seed(&self) -> u32 {
        inode_seed(self.seed, self.metadata.ino, self.metadata.generation)
    }

    /// Returns `i_dtime`: the deletion time, in seconds since 1970, or the next inode in the orphan
    /// list.
    pub fn deletion_time(&self) -> u32 {
        self.dtime
    }

    /// Returns whether it is a symbolic link whose target is in the inode.
    pub fn is_fast_symlink(&self) -> bool {
        self.fast_symlink
    }

    /// Returns whether its content is in the inode: the first 60 bytes in `i_block`, the rest in
    /// the attribute `system.data`.
    pub fn is_inline(&self) -> bool {
        self.has(flags::INLINE_DATA)
    }

    /// Returns the block of its extended attributes, or 0 if there is none.
    pub fn attribute_block(&self) -> u64 {
        self.attribute_block
    }

    /// Returns `i_block`: the root of the extent tree or block map, the target of a fast link, or
    /// inline data.
    pub fn block_area(&self) -> &[u8; BLOCK_AREA_BYTES] {
        &self.block
    }

    /// Returns the extended attributes in the inode: the part after its fields, if it begins with
    /// the magic number of attributes (which is included). Otherwise the result is empty.
    pub fn body_attributes(&self) -> &[u8] {
        &self.body
    }

    /// Returns the inode with names taken as they are stored if it is an encrypted directory. They
    /// can be walked without a key.
    pub(crate) fn with_stored_names(self) -> Self {
        Self { stored_names: true, ..self }
    }

    /// Returns whether it is an encrypted directory, whose names are taken as they are stored.
    pub(crate) fn has_encrypted_names(&self) -> bool {
        self.stored_names && self.has(flags::ENCRYPT) && self.file_type() == FileType::Directory
    }

    /// Returns whether its content is in blocks. Files, directories, and links with blocks have
    /// such content; devices, pipes and sockets do not.
    pub fn has_blocks(&self) -> bool {
        !self.is_inline()
            && match self.metadata.file_type {
                FileType::Regular | FileType::Directory => true,
                FileType::Symlink => !self.fast_symlink,
                FileType::Character | FileType::Block | FileType::Fifo | FileType::Socket => false,
            }
    }

    /// Checks that its content can be read.
    ///
    /// # Errors
    /// Fails if it is encrypted, protected by verity, or a directory that ignores the case of
    /// names.
    pub fn check_supported(&self) -> Result<(), Unsupported> {
        let refuse = |what: &str, advice| {
            Err(Unsupported { what: format!("{what} (inode {})", self.ino()), advice })
        };
        if self.has(flags::ENCRYPT) && !self.has_encrypted_names() {
            return refuse("an encrypted file", "mount the file system with Linux and add its key");
        }
        if self.has(flags::VERITY) {
            return refuse(
                "a file with verity",
                "mount the file system with Linux, which verifies it",
            );
        }
        if self.has(flags::CASEFOLD) && self.file_type() == FileType::Directory {
            return refuse("a casefold directory", "mount the file system with Linux");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_reach_from_1901_to_2446() {
        let at = |seconds: u32, extra: u32| timestamp(U32::new(seconds), U32::new(extra)).seconds;
        // These are the values of the table in the kernel's documentation (inodes.rst, "Inode
        // Timestamps").
        assert_eq!(at(0x8000_0000, 0), -0x8000_0000);
        assert_eq!(at(0x7FFF_FFFF, 0), 0x7FFF_FFFF);
        assert_eq!(at(0x8000_0000, 1), 0x8000_0000);
        assert_eq!(at(0x7FFF_FFFF, 1), 0x1_7FFF_FFFF);
        assert_eq!(at(0x7FFF_FFFF, 3), 0x3_7FFF_FFFF);
        assert_eq!(timestamp(U32::new(1), U32::new(999_999_999 << 2)).nanoseconds, 999_999_999);
        assert_eq!(timestamp(U32::new(1), U32::new(u32::MAX)).nanoseconds, 999_999_999);
    }

    #[test]
    fn device_numbers_have_two_forms() {
        let with = |old: u32, new: u32| {
            let mut block = [0; BLOCK_AREA_BYTES];
            block[..4].copy_from_slice(&old.to_le_bytes());
            block[4..8].copy_from_slice(&new.to_le_bytes());
            device(&block)
        };
        assert_eq!(with(0x0801, 0), (8, 1));
        // This is Linux's new_encode_dev of 259:4660.
        assert_eq!(with(0, 0x34 | 259 << 8 | 0x12 << 20), (259, 0x1234));
    }
}
