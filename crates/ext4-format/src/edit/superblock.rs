//! The superblock that is being changed.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, IntoBytes};

use super::super::checksum::crc32c;
use super::super::features::{incompat, ro_compat};
use super::super::superblock::{
    RawSuperblock, STATE_ERROR, STATE_VALID, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock,
};
use crate::{Corruption, Defect, Timestamp};

/// In the log of errors, the first one (time, inode, block, function, line) and the last one (time,
/// inode, line, block, function).
const ERROR_FIRST: usize = 0;
const ERROR_LAST: usize = 52;
const ERROR_NAME_BYTES: usize = 32;

/// The superblock's bytes, as they are to be on the disk, but for their checksum.
#[derive(Debug, Clone)]
pub struct SuperblockEdit {
    raw: Box<RawSuperblock>,
}

/// The place of the primary superblock: its block, and the byte in it.
pub fn superblock_place(superblock: &Superblock) -> (u64, usize) {
    let offset = SUPERBLOCK_OFFSET;
    (superblock.primary_block(), (offset % u64::from(superblock.block_bytes())) as usize)
}

impl SuperblockEdit {
    /// The superblock in `block`, the content of the block that [is its place](superblock_place);
    /// it is checked.
    ///
    /// # Errors
    /// [`Defect::SuperblockMagic`], [`Defect::SuperblockChecksum`].
    pub fn of(superblock: &Superblock, block: &[u8]) -> Result<Self, Corruption> {
        let (number, at) = superblock_place(superblock);
        let wrong = |defect| Corruption::new(defect).in_block(number);
        let bytes = block.get(at..at + SUPERBLOCK_BYTES);
        let raw = bytes.and_then(|bytes| RawSuperblock::read_from_bytes(bytes).ok());
        let raw = Box::new(raw.ok_or_else(|| wrong(Defect::SuperblockMagic))?);
        if raw.magic.get() != super::super::superblock::SUPERBLOCK_MAGIC {
            return Err(wrong(Defect::SuperblockMagic));
        }
        let edit = Self { raw };
        if edit.has_checksum() && edit.reckoned() != edit.raw.checksum.get() {
            return Err(wrong(Defect::SuperblockChecksum));
        }
        Ok(edit)
    }

    fn has_checksum(&self) -> bool {
        self.raw.feature_ro_compat.get() & ro_compat::METADATA_CSUM != 0
    }

    fn reckoned(&self) -> u32 {
        crc32c(!0, &self.raw.as_bytes()[..SUPERBLOCK_BYTES - 4])
    }

    /// All fields.
    pub fn raw(&self) -> &RawSuperblock {
        &self.raw
    }

    /// All fields, to be changed.
    pub fn raw_mut(&mut self) -> &mut RawSuperblock {
        &mut self.raw
    }

    /// Its bytes for the disk, with their checksum.
    pub fn sealed(&self) -> Box<RawSuperblock> {
        let mut raw = self.raw.clone();
        if self.has_checksum() {
            raw.checksum = U32::new(self.reckoned());
        }
        raw
    }

    /// An error was seen at `now`, in inode `ino` and block `block` (0: in none), by the part of
    /// the program that `by` names; `code`: what it was, as Linux numbers that (`EXT4_ERR_*`). The
    /// first error is kept, and the last one; whoever checks the file system takes them away.
    pub fn note_error(&mut self, now: Timestamp, code: u8, by: &str, ino: u32, block: u64) {
        let seconds = (now.seconds as u32).to_le_bytes();
        let hi = (now.seconds >> 32) as u8;
        let raw = &mut self.raw;
        raw.state = U16::new(raw.state.get() | STATE_ERROR);
        raw.error_count = U32::new(raw.error_count.get().saturating_add(1));
        let name = &by.as_bytes()[..by.len().min(ERROR_NAME_BYTES - 1)];
        let is_first =
            raw.error_log[ERROR_FIRST..ERROR_FIRST + 4] == [0; 4] && raw.first_error_time_hi == 0;
        let log = &mut raw.error_log;
        let mut put = |at: usize, bytes: &[u8]| log[at..at + bytes.len()].copy_from_slice(bytes);
        if is_first {
            put(ERROR_FIRST, &seconds);
            put(ERROR_FIRST + 4, &ino.to_le_bytes());
            put(ERROR_FIRST + 8, &block.to_le_bytes());
            put(ERROR_FIRST + 16, &[0; ERROR_NAME_BYTES]);
            put(ERROR_FIRST + 16, name);
            put(ERROR_FIRST + 48, &[0; 4]);
            (raw.first_error_time_hi, raw.error_codes[0]) = (hi, code);
        }
        let log = &mut raw.error_log;
        let mut put = |at: usize, bytes: &[u8]| log[at..at + bytes.len()].copy_from_slice(bytes);
        put(ERROR_LAST, &seconds);
        put(ERROR_LAST + 4, &ino.to_le_bytes());
        put(ERROR_LAST + 8, &[0; 4]);
        put(ERROR_LAST + 12, &block.to_le_bytes());
        put(ERROR_LAST + 20, &[0; ERROR_NAME_BYTES]);
        put(ERROR_LAST + 20, name);
        (raw.last_error_time_hi, raw.error_codes[1]) = (hi, code);
    }

    /// `s_last_orphan`: the first inode of the list of those that are being deleted or truncated;
    /// 0: none.
    pub fn last_orphan(&self) -> u32 {
        self.raw.last_orphan.get()
    }

    /// Sets `s_last_orphan`; 0: none.
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

    /// The total of free blocks, as it says.
    pub fn free_blocks(&self) -> u64 {
        let bit64 = self.raw.feature_incompat.get() & incompat::BIT64 != 0;
        let high = u64::from(self.raw.free_blocks_count_hi.get()) << 32;
        u64::from(self.raw.free_blocks_count_lo.get()) | if bit64 { high } else { 0 }
    }

    /// Sets the total of free inodes.
    pub fn set_free_inodes(&mut self, inodes: u32) {
        self.raw.free_inodes_count = U32::new(inodes);
    }

    /// Whether it was unmounted cleanly (`s_state`).
    pub fn is_valid(&self) -> bool {
        self.raw.state.get() & STATE_VALID != 0
    }

    /// Says whether it is unmounted cleanly (`s_state`). That errors were seen stays.
    pub fn set_valid(&mut self, valid: bool) {
        let others = self.raw.state.get() & !STATE_VALID;
        self.raw.state = U16::new(others | if valid { STATE_VALID } else { 0 });
    }

    /// Whether errors were seen that nobody has repaired (`s_state`).
    pub fn has_errors(&self) -> bool {
        self.raw.state.get() & STATE_ERROR != 0
    }

    /// Errors were seen: `e2fsck` will look at everything.
    pub fn set_errors(&mut self) {
        self.raw.state = U16::new(self.raw.state.get() | STATE_ERROR);
    }

    /// Whether the journal has to be replayed (`needs_recovery`).
    pub fn needs_recovery(&self) -> bool {
        self.raw.feature_incompat.get() & incompat::RECOVER != 0
    }

    /// Says whether the journal has to be replayed (`needs_recovery`).
    pub fn set_needs_recovery(&mut self, needed: bool) {
        let others = self.raw.feature_incompat.get() & !incompat::RECOVER;
        self.raw.feature_incompat = U32::new(others | if needed { incompat::RECOVER } else { 0 });
    }

    /// Whether all `bits` of [`ro_compat`] are set.
    pub fn has_ro_compat(&self, bits: u32) -> bool {
        self.raw.feature_ro_compat.get() & bits == bits
    }

    /// Sets `bits` of [`ro_compat`]: `large_file` for the first file of 2 GiB, `orphan_present`.
    pub fn set_ro_compat(&mut self, bits: u32) {
        self.raw.feature_ro_compat = U32::new(self.raw.feature_ro_compat.get() | bits);
    }

    /// Takes `bits` of [`ro_compat`] away.
    pub fn clear_ro_compat(&mut self, bits: u32) {
        self.raw.feature_ro_compat = U32::new(self.raw.feature_ro_compat.get() & !bits);
    }

    /// Sets `bits` of [`compat`](super::super::features::compat).
    pub fn set_compat(&mut self, bits: u32) {
        self.raw.feature_compat = U32::new(self.raw.feature_compat.get() | bits);
    }

    /// Sets when it was mounted last.
    pub fn set_mounted(&mut self, time: Timestamp) {
        (self.raw.mtime, self.raw.mtime_hi) =
            (U32::new(time.seconds as u32), (time.seconds >> 32) as u8);
    }

    /// Sets when something was written to it last.
    pub fn set_written(&mut self, time: Timestamp) {
        (self.raw.wtime, self.raw.wtime_hi) =
            (U32::new(time.seconds as u32), (time.seconds >> 32) as u8);
    }

    /// Counts a mount (`s_mnt_count`).
    pub fn count_mount(&mut self) {
        self.raw.mnt_count = U16::new(self.raw.mnt_count.get().saturating_add(1));
    }

    /// Adds to how much was ever written to it, in bytes (kept in KiB).
    pub fn add_written_bytes(&mut self, bytes: u64) {
        self.raw.kbytes_written =
            U64::new(self.raw.kbytes_written.get().saturating_add(bytes >> 10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_there_with_its_checksum() {
        let superblock = super::super::super::superblock::tests::checksummed();
        let (number, at) = superblock_place(&superblock);
        let mut block = vec![0; superblock.block_bytes() as usize];
        block[at..at + SUPERBLOCK_BYTES].copy_from_slice(superblock.raw.as_bytes());
        let mut edit = SuperblockEdit::of(&superblock, &block).unwrap();
        edit.set_valid(true);
        edit.set_errors();
        edit.set_needs_recovery(true);
        edit.set_last_orphan(77);
        edit.set_ro_compat(ro_compat::LARGE_FILE | ro_compat::ORPHAN_PRESENT);
        edit.clear_ro_compat(ro_compat::ORPHAN_PRESENT);
        edit.set_free_blocks(123);
        edit.set_written(Timestamp { seconds: 0x2_0000_0001, nanoseconds: 0 });
        block[at..at + SUPERBLOCK_BYTES].copy_from_slice(edit.sealed().as_bytes());
        let again = SuperblockEdit::of(&superblock, &block).unwrap();
        assert!(again.is_valid() && again.has_errors() && again.needs_recovery());
        assert!(
            again.has_ro_compat(ro_compat::LARGE_FILE)
                && !again.has_ro_compat(ro_compat::ORPHAN_PRESENT)
        );
        assert_eq!((again.last_orphan(), again.free_blocks()), (77, 123));
        assert_eq!((again.raw().wtime.get(), again.raw().wtime_hi), (1, 2));
        Superblock::parse(again.raw(), false).unwrap();
        block[at + 5] ^= 1;
        let wrong = SuperblockEdit::of(&superblock, &block).unwrap_err();
        assert_eq!((wrong.defect, wrong.block), (Defect::SuperblockChecksum, Some(number)));
    }
}
