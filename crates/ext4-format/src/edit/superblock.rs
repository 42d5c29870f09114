//! Edits of the superblock.

use zerocopy::little_endian::{U16, U32};

use super::super::features::{incompat, ro_compat};
use super::super::superblock::{
    RawSuperblock, STATE_ERROR, SUPERBLOCK_MAGIC, SUPERBLOCK_OFFSET, Superblock,
};
use crate::{Corruption, Defect, Timestamp};

/// Size of an entry in the error log: of the first one (time, inode, block, function, line) and of
/// the last one (time, inode, line, block, function).
const ERROR_BYTES: usize = 52;
const ERROR_NAME_BYTES: usize = 32;

/// The superblock's bytes for the disk, except for their checksum.
#[derive(Debug, Clone)]
pub struct SuperblockEdit {
    raw: Box<RawSuperblock>,
}

/// Returns the place of the primary superblock: its block, and the byte offset in it.
pub fn superblock_place(superblock: &Superblock) -> (u64, usize) {
    let offset = SUPERBLOCK_OFFSET;
    (superblock.primary_block(), (offset % u64::from(superblock.block_bytes())) as usize)
}

impl SuperblockEdit {
    /// Wraps the superblock in `block`, the content of [its block](superblock_place), and checks
    /// it.
    ///
    /// # Errors
    /// [`Defect::SuperblockMagic`] or [`Defect::SuperblockChecksum`].
    pub fn of(superblock: &Superblock, block: &[u8]) -> Result<Self, Corruption> {
        let wrong = |defect| Corruption::new(defect).in_block(superblock.primary_block());
        let raw = RawSuperblock::in_block(block).filter(|raw| raw.magic.get() == SUPERBLOCK_MAGIC);
        let edit = Self { raw: Box::new(raw.ok_or_else(|| wrong(Defect::SuperblockMagic))?) };
        if edit.has_checksum() && edit.raw.right_checksum() != edit.raw.checksum.get() {
            return Err(wrong(Defect::SuperblockChecksum));
        }
        Ok(edit)
    }

    fn has_checksum(&self) -> bool {
        self.raw.feature_ro_compat.get() & ro_compat::METADATA_CSUM != 0
    }

    /// Returns all fields.
    pub fn raw(&self) -> &RawSuperblock {
        &self.raw
    }

    /// Returns all fields, for changes.
    pub fn raw_mut(&mut self) -> &mut RawSuperblock {
        &mut self.raw
    }

    /// Returns its bytes for the disk, with a valid checksum.
    pub fn sealed(&self) -> Box<RawSuperblock> {
        let mut raw = self.raw.clone();
        if self.has_checksum() {
            raw.checksum = U32::new(self.raw.right_checksum());
        }
        raw
    }

    /// Logs an error at `now`, in inode `ino` and block `block` (0 for none), detected by `by`.
    /// `code` is Linux's error number (`EXT4_ERR_*`). The first and the last error are kept, and
    /// e2fsck clears them.
    pub fn note_error(&mut self, now: Timestamp, code: u8, by: &str, ino: u32, block: u64) {
        let seconds = (now.seconds as u32).to_le_bytes();
        let hi = (now.seconds >> 32) as u8;
        let raw = &mut *self.raw;
        raw.state = U16::new(raw.state.get() | STATE_ERROR);
        raw.error_count = U32::new(raw.error_count.get().saturating_add(1));
        let name = &by.as_bytes()[..by.len().min(ERROR_NAME_BYTES - 1)];
        let mut padded = [0; ERROR_NAME_BYTES];
        padded[..name.len()].copy_from_slice(name);
        let (ino, block, line) = (ino.to_le_bytes(), block.to_le_bytes(), [0; 4]);
        let (first, last) = raw.error_log.split_at_mut(ERROR_BYTES);
        if first[..4] == [0; 4] && raw.first_error_time_hi == 0 {
            first.copy_from_slice(&[&seconds[..], &ino, &block, &padded, &line].concat());
            (raw.first_error_time_hi, raw.error_codes[0]) = (hi, code);
        }
        last.copy_from_slice(&[&seconds[..], &ino, &line, &block, &padded].concat());
        (raw.last_error_time_hi, raw.error_codes[1]) = (hi, code);
    }

    /// Returns `s_last_orphan`: the first inode of the orphan list, or 0 if there is none.
    pub fn last_orphan(&self) -> u32 {
        self.raw.last_orphan.get()
    }

    /// Sets `s_last_orphan`; 0 means none.
    pub fn set_last_orphan(&mut self, ino: u32) {
        self.raw.last_orphan = U32::new(ino);
    }

    /// Sets the total of free blocks.
    pub fn set_free_blocks(&mut self, blocks: u64) {
        self.raw.free_blocks_count_lo = U32::new(blocks as u32);
        if self.raw.feature_incompat.get() & incompat::BIT64 != 0 {
            self.raw.free_blocks_count_hi = U32::new((blocks >> 32) as u32);
        }
    }

    /// Sets the total of free inodes.
    pub fn set_free_inodes(&mut self, inodes: u32) {
        self.raw.free_inodes_count = U32::new(inodes);
    }

    /// Returns whether all `bits` of [`ro_compat`] are set.
    pub fn has_ro_compat(&self, bits: u32) -> bool {
        self.raw.feature_ro_compat.get() & bits == bits
    }

    /// Sets `bits` of [`ro_compat`]: `large_file` for the first file of 2 GiB, `orphan_present`.
    pub fn set_ro_compat(&mut self, bits: u32) {
        self.raw.feature_ro_compat = U32::new(self.raw.feature_ro_compat.get() | bits);
    }

    /// Clears `bits` of [`ro_compat`].
    pub fn clear_ro_compat(&mut self, bits: u32) {
        self.raw.feature_ro_compat = U32::new(self.raw.feature_ro_compat.get() & !bits);
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes;

    use super::super::super::superblock::{STATE_VALID, SUPERBLOCK_BYTES};
    use super::*;

    #[test]
    fn set_fields_are_sealed() {
        let superblock = super::super::super::superblock::tests::checksummed();
        let (number, at) = superblock_place(&superblock);
        let mut block = vec![0; superblock.block_bytes() as usize];
        block[at..at + SUPERBLOCK_BYTES].copy_from_slice(superblock.raw.as_bytes());
        let mut edit = SuperblockEdit::of(&superblock, &block).unwrap();
        edit.raw_mut().state = STATE_VALID.into();
        edit.set_last_orphan(77);
        edit.set_ro_compat(ro_compat::LARGE_FILE | ro_compat::ORPHAN_PRESENT);
        edit.clear_ro_compat(ro_compat::ORPHAN_PRESENT);
        edit.set_free_blocks(123);
        block[at..at + SUPERBLOCK_BYTES].copy_from_slice(edit.sealed().as_bytes());
        let again = SuperblockEdit::of(&superblock, &block).unwrap();
        assert_eq!(again.raw().state, STATE_VALID);
        assert!(
            again.has_ro_compat(ro_compat::LARGE_FILE)
                && !again.has_ro_compat(ro_compat::ORPHAN_PRESENT)
        );
        assert_eq!((again.last_orphan(), again.raw().free_blocks_count_lo.get()), (77, 123));
        Superblock::parse(again.raw(), false).unwrap();
        block[at + 5] ^= 1;
        let wrong = SuperblockEdit::of(&superblock, &block).unwrap_err();
        assert_eq!((wrong.defect, wrong.block), (Defect::SuperblockChecksum, Some(number)));
    }
}
