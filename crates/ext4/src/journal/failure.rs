//! Records a failure on the disk, if that is still possible (rule 14 of `docs/ordering.md`).

use super::block_writer::BlockWriter;
use super::committer::Committer;
use super::handle::time_now;
use super::state::Journal;
use crate::io::IoContext;
use crate::{Error, Result};
use meantime_ext4_format::edit::{SuperblockEdit, superblock_place};

/// EIO, as Linux writes it to the journal's superblock.
const ERRNO: i32 = -5;

impl Journal {
    /// Notes in the journal's superblock (`s_errno`) and in the file system's (`s_state`,
    /// `s_first_error_…`, `s_last_error_…`) that `error` made the file system read only. The next
    /// mount then asks for a check, as with Linux. The tail is not moved, so the log keeps its
    /// content.
    ///
    /// Writes nothing if another host has taken the file system: the journal's superblock is that
    /// host's then, and must not be overwritten.
    ///
    /// The caller has the lead, so no other thread moves the tail past a superblock that is being
    /// written in place.
    pub(super) fn note_failure(
        &self,
        error: &Error,
        committer: &mut Committer,
        io: &mut IoContext,
    ) {
        if matches!(self.failure.get(), Some(Error::Taken(_))) {
            return;
        }
        let mut writer = BlockWriter::new(self.volume.superblock().block_bits());
        let noted = committer.format.set_errno(ERRNO);
        let written =
            noted.map_err(Error::from).and_then(|()| committer.write_superblock(&mut writer, io));
        if let Err(error) = written {
            tracing::warn!(%error, "that the journal was aborted could not be noted in it");
        }
        if let Err(error) = self.note_error(error, &mut writer, io) {
            tracing::warn!(%error, "the error could not be noted in the superblock");
        }
    }

    /// Notes `error` in the superblock as it is on the disk, not in the newest one: the disk must
    /// not get changes that have not committed.
    fn note_error(
        &self,
        error: &Error,
        writer: &mut BlockWriter,
        io: &mut IoContext,
    ) -> Result<()> {
        let superblock = self.volume.superblock();
        let (number, at) = superblock_place(superblock);
        let bytes = self.volume.block_bytes();
        let mut block = io.read(number * bytes as u64, bytes)?;
        let mut edit = SuperblockEdit::of(superblock, &block)?;
        let (ino, place) = match error {
            Error::Corrupt(corruption) => {
                (corruption.ino.unwrap_or(0), corruption.block.unwrap_or(0))
            }
            _ => (0, 0),
        };
        edit.note_error(time_now(), error.noted_code(), "meantime", ino, place);
        let sealed = edit.sealed();
        let bytes = zerocopy::IntoBytes::as_bytes(&*sealed);
        block
            .get_mut(at..at + bytes.len())
            .ok_or(Error::Invalid("no superblock"))?
            .copy_from_slice(bytes);
        writer.write_durably(io, number, &block)
    }
}
