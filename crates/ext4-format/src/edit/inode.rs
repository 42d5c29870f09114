//! Edits of inodes.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, IntoBytes};

use super::super::features::{incompat, ro_compat};
use super::super::inode::{BLOCK_AREA_BYTES, Inode, RawInode, RawInodeExtra, flags, timestamp};
use super::super::superblock::Superblock;
use crate::{Corruption, FileType, Timestamp};

const GOOD_OLD_BYTES: usize = size_of::<RawInode>();
/// `i_extra_isize` of new inodes, as far as it fits (`s_want_extra_isize` of mke2fs).
const EXTRA_BYTES: u16 = size_of::<RawInodeExtra>() as u16;

/// The bytes of one inode for the disk, except for its checksum.
#[derive(Debug, Clone)]
pub struct InodeEdit {
    ino: u32,
    bytes: Box<[u8]>,
}

/// Returns the two words of a time (`ext4_encode_extra_time`): seconds, and nanoseconds with two
/// more bits of the seconds.
fn words(time: Timestamp) -> (u32, u32) {
    let epoch = ((time.seconds - i64::from(time.seconds as i32)) >> 32) as u32 & 3;
    (time.seconds as u32, epoch | time.nanoseconds << 2)
}

impl InodeEdit {
    /// Wraps the checked `bytes` of inode `ino`.
    pub fn of(ino: u32, bytes: &[u8]) -> Self {
        Self { ino, bytes: bytes.into() }
    }

    /// Creates a new inode: all zeroes, except for its generation and `i_extra_isize`.
    pub fn new(superblock: &Superblock, ino: u32, generation: u32) -> Self {
        let mut edit = Self { ino, bytes: vec![0; superblock.inode_bytes() as usize].into() };
        edit.raw().generation = U32::new(generation);
        let room = edit.bytes.len() - GOOD_OLD_BYTES;
        if let Some(extra) = edit.extra() {
            extra.extra_isize = U16::new(EXTRA_BYTES.min(room as u16));
        }
        edit
    }

    /// Returns its number.
    pub fn ino(&self) -> u32 {
        self.ino
    }

    /// Parses its current content.
    ///
    /// # Errors
    /// Fails if a field has an invalid value.
    pub fn parsed(&self, superblock: &Superblock) -> Result<Inode, Corruption> {
        Inode::parse(superblock, self.ino, &self.bytes)
    }

    /// Copies it to `to`, its place on the disk, with its checksum.
    ///
    /// # Panics
    /// Panics if the place does not have the size of an inode.
    pub fn put(&self, superblock: &Superblock, to: &mut [u8]) {
        to.copy_from_slice(&self.bytes);
        Inode::set_checksum(superblock, self.ino, to);
    }

    fn raw_ref(&self) -> &RawInode {
        // The superblock check guarantees inodes of at least 128 bytes.
        RawInode::ref_from_prefix(&self.bytes).expect("128 bytes").0
    }

    fn raw(&mut self) -> &mut RawInode {
        RawInode::mut_from_prefix(&mut self.bytes).expect("128 bytes").0
    }

    fn extra(&mut self) -> Option<&mut RawInodeExtra> {
        RawInodeExtra::mut_from_prefix(&mut self.bytes[GOOD_OLD_BYTES..])
            .ok()
            .map(|(extra, _)| extra)
    }

    /// Returns `i_extra_isize`, in bytes.
    pub fn extra_bytes(&self) -> usize {
        let extra = RawInodeExtra::ref_from_prefix(&self.bytes[GOOD_OLD_BYTES..]);
        extra.map_or(0, |(extra, _)| usize::from(extra.extra_isize.get()))
    }

    /// Returns the extra part, if it extends to `end` bytes.
    fn extra_to(&mut self, end: usize) -> Option<&mut RawInodeExtra> {
        if self.extra_bytes() < end {
            return None;
        }
        self.extra()
    }

    /// Returns the part after the fields, which holds extended attributes.
    pub fn body(&mut self) -> &mut [u8] {
        let at = (GOOD_OLD_BYTES + self.extra_bytes()).min(self.bytes.len());
        &mut self.bytes[at..]
    }

    /// Returns `i_mode`, which is type and permissions.
    pub fn mode(&self) -> u16 {
        self.raw_ref().mode.get()
    }

    /// Sets `i_mode`, which is type and permissions.
    pub fn set_mode(&mut self, mode: u16) {
        self.raw().mode = U16::new(mode);
    }

    /// Returns its type according to its mode, or `None` if it has none yet.
    pub fn file_type(&self) -> Option<FileType> {
        FileType::of_mode(self.mode())
    }

    /// Returns the owner: user and group.
    pub fn owner(&self) -> (u32, u32) {
        let raw = self.raw_ref();
        let wide = |low: U16, high: U16| u32::from(low.get()) | u32::from(high.get()) << 16;
        (wide(raw.uid, raw.uid_high), wide(raw.gid, raw.gid_high))
    }

    /// Sets the owner.
    pub fn set_owner(&mut self, uid: u32, gid: u32) {
        let raw = self.raw();
        (raw.uid, raw.uid_high) = (U16::new(uid as u16), U16::new((uid >> 16) as u16));
        (raw.gid, raw.gid_high) = (U16::new(gid as u16), U16::new((gid >> 16) as u16));
    }

    /// Returns the size of the content, in bytes.
    pub fn size(&self) -> u64 {
        let raw = self.raw_ref();
        u64::from(raw.size_lo.get()) | u64::from(raw.size_high.get()) << 32
    }

    /// Sets the size of the content, in bytes. For 2 GiB or more the caller sets `large_file` in
    /// the superblock.
    pub fn set_size(&mut self, bytes: u64) {
        let raw = self.raw();
        (raw.size_lo, raw.size_high) = (U32::new(bytes as u32), U32::new((bytes >> 32) as u32));
    }

    /// Returns `i_links_count`.
    pub fn links(&self) -> u16 {
        self.raw_ref().links_count.get()
    }

    /// Sets `i_links_count`.
    pub fn set_links(&mut self, links: u16) {
        self.raw().links_count = U16::new(links);
    }

    /// Returns `i_flags`.
    pub fn flags(&self) -> u32 {
        self.raw_ref().flags.get()
    }

    /// Sets `i_flags`.
    pub fn set_flags(&mut self, flags: u32) {
        self.raw().flags = U32::new(flags);
    }

    /// Returns `i_generation`.
    pub fn generation(&self) -> u32 {
        self.raw_ref().generation.get()
    }

    /// Returns the initial state of the checksums of its blocks.
    pub fn checksum_seed(&self, superblock: &Superblock) -> u32 {
        super::super::checksum::inode_seed(superblock.seed(), self.ino, self.generation())
    }

    /// Returns `i_blocks` in blocks of the file system: those of its content, its trees and its
    /// attributes.
    pub fn blocks(&self, superblock: &Superblock) -> u64 {
        let raw = self.raw_ref();
        let mut blocks = u64::from(raw.blocks_lo.get());
        if superblock.features().has_ro_compat(ro_compat::HUGE_FILE) {
            blocks |= u64::from(raw.blocks_high.get()) << 32;
            if raw.flags.get() & flags::HUGE_FILE != 0 {
                return blocks;
            }
        }
        blocks >> (superblock.block_bits() - 9)
    }

    /// Sets `i_blocks`, in blocks of the file system.
    pub fn set_blocks(&mut self, superblock: &Superblock, blocks: u64) {
        let sectors = blocks << (superblock.block_bits() - 9);
        let huge = sectors >> 48 != 0;
        let words = if huge { blocks } else { sectors };
        let raw = self.raw();
        (raw.blocks_lo, raw.blocks_high) = (U32::new(words as u32), U16::new((words >> 32) as u16));
        let others = raw.flags.get() & !flags::HUGE_FILE;
        raw.flags = U32::new(others | if huge { flags::HUGE_FILE } else { 0 });
    }

    /// Returns `i_block`: the root of the extent tree or block map, a short link's target, or a
    /// device's numbers.
    pub fn block_area(&self) -> &[u8; BLOCK_AREA_BYTES] {
        &self.raw_ref().block
    }

    /// Returns `i_block` for changes.
    pub fn block_area_mut(&mut self) -> &mut [u8; BLOCK_AREA_BYTES] {
        &mut self.raw().block
    }

    /// Sets the numbers of a device, in the old form if they are small (`new_encode_dev`,
    /// `old_encode_dev`). Returns `false` if they do not fit.
    pub fn set_device(&mut self, (major, minor): (u32, u32)) -> bool {
        if major >= 1 << 12 || minor >= 1 << 20 {
            return false;
        }
        let small = major < 256 && minor < 256;
        let old = if small { major << 8 | minor } else { 0 };
        let new = if small { 0 } else { minor & 0xFF | major << 8 | (minor & !0xFF) << 12 };
        let area = &mut self.raw().block;
        area[..4].copy_from_slice(&old.to_le_bytes());
        area[4..8].copy_from_slice(&new.to_le_bytes());
        true
    }

    /// Returns its project, or `None` if the inode has no room for one.
    pub fn project(&self) -> Option<u32> {
        let (extra, _) = RawInodeExtra::ref_from_prefix(&self.bytes[GOOD_OLD_BYTES..]).ok()?;
        (self.extra_bytes() >= size_of::<RawInodeExtra>()).then(|| extra.projid.get())
    }

    /// Sets its project. Returns `false` if the inode has no room for one.
    pub fn set_project(&mut self, project: u32) -> bool {
        let extra = self.extra_to(size_of::<RawInodeExtra>());
        extra.map(|extra| extra.projid = U32::new(project)).is_some()
    }

    /// Returns the block of its extended attributes, or 0 if there is none.
    pub fn attribute_block(&self, superblock: &Superblock) -> u64 {
        let raw = self.raw_ref();
        let high = u64::from(raw.file_acl_high.get()) << 32;
        let bit64 = superblock.features().has_incompat(incompat::BIT64);
        u64::from(raw.file_acl_lo.get()) | if bit64 { high } else { 0 }
    }

    /// Sets the block of its extended attributes; 0 means none.
    pub fn set_attribute_block(&mut self, block: u64) {
        let raw = self.raw();
        (raw.file_acl_lo, raw.file_acl_high) =
            (U32::new(block as u32), U16::new((block >> 32) as u16));
    }

    /// Returns `i_dtime`: the deletion time, in seconds since 1970, or the next orphan.
    pub fn deletion_time(&self) -> u32 {
        self.raw_ref().dtime.get()
    }

    /// Sets `i_dtime`.
    pub fn set_deletion_time(&mut self, seconds: u32) {
        self.raw().dtime = U32::new(seconds);
    }

    /// Sets the time of the last read.
    pub fn set_accessed(&mut self, time: Timestamp) {
        let (seconds, more) = words(time);
        self.raw().atime = U32::new(seconds);
        if let Some(extra) = self.extra_to(16) {
            extra.atime_extra = U32::new(more);
        }
    }

    /// Sets the time of the last change of the content.
    pub fn set_modified(&mut self, time: Timestamp) {
        let (seconds, more) = words(time);
        self.raw().mtime = U32::new(seconds);
        if let Some(extra) = self.extra_to(12) {
            extra.mtime_extra = U32::new(more);
        }
    }

    /// Returns the time of the last change of the inode.
    pub fn changed(&self) -> Timestamp {
        let extra = RawInodeExtra::ref_from_prefix(&self.bytes[GOOD_OLD_BYTES..]);
        let extra = extra.ok().filter(|_| self.extra_bytes() >= 8);
        timestamp(self.raw_ref().ctime, extra.map_or(U32::ZERO, |(extra, _)| extra.ctime_extra))
    }

    /// Sets the time of the last change of the inode.
    pub fn set_changed(&mut self, time: Timestamp) {
        let (seconds, more) = words(time);
        self.raw().ctime = U32::new(seconds);
        if let Some(extra) = self.extra_to(8) {
            extra.ctime_extra = U32::new(more);
        }
    }

    /// Sets the creation time, if there is room for it.
    pub fn set_created(&mut self, time: Timestamp) {
        let (seconds, more) = words(time);
        if let Some(extra) = self.extra_to(24) {
            (extra.crtime, extra.crtime_extra) = (U32::new(seconds), U32::new(more));
        }
    }

    /// Returns all its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_fields_are_parsed() {
        let superblock = super::super::super::superblock::tests::example();
        let mut edit = InodeEdit::new(&superblock, 12, 77);
        let time = |seconds| Timestamp { seconds, nanoseconds: 999_999_999 };
        edit.set_mode(0x8000 | 0o644);
        edit.set_owner(70_000, 80_000);
        edit.set_size(5 << 32 | 7);
        edit.set_links(3);
        edit.set_accessed(time(-1));
        edit.set_modified(time(0x8000_0000));
        edit.set_changed(time(0x3_7FFF_FFFF));
        assert_eq!(edit.changed(), time(0x3_7FFF_FFFF));
        edit.set_created(time(0));
        edit.set_blocks(&superblock, 9);
        let inode = edit.parsed(&superblock).unwrap();
        let told = inode.metadata();
        assert_eq!((told.uid, told.gid, told.size, told.links), (70_000, 80_000, 5 << 32 | 7, 3));
        assert_eq!((told.accessed, told.modified), (time(-1), time(0x8000_0000)));
        assert_eq!((told.changed, told.created), (time(0x3_7FFF_FFFF), Some(time(0))));
        assert_eq!(told.blocks_512, 9 * u64::from(superblock.block_bytes()) / 512);
        assert_eq!((edit.blocks(&superblock), told.generation), (9, 77));
        let mut place = vec![0; edit.as_bytes().len()];
        edit.put(&superblock, &mut place);
        assert!(Inode::checksum_is_right(&superblock, 12, &place));
    }
}
