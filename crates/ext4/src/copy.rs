//! Copies inside the file system (`copy_file_range`).

use super::error::{Error, Result};
use super::file::File;

/// The bytes copied at a time.
const PIECE_BYTES: usize = 256 << 10;

impl File {
    /// Copies up to `bytes` bytes from byte `offset` to byte `to_offset` of `to`. Returns the
    /// number of bytes copied. The copy goes through the page cache on both sides, so it includes
    /// dirty pages. A hole stays a hole where `to` has no data yet.
    ///
    /// Other calls may change both files between the single reads and writes.
    ///
    /// # Errors
    /// The errors of `copy_file_range(2)`: [`Error::Invalid`] if both ranges are of one file and
    /// overlap. If a part was copied before a failure, its size is returned instead.
    pub fn copy_range(&self, offset: u64, to: &Self, to_offset: u64, bytes: u64) -> Result<u64> {
        to.check_writable()?;
        if to.options.append {
            return Err(Error::Invalid("a copy to a file that is open for appending"));
        }
        if !self.is_in_blocks() && !self.is_inline() {
            return Err(Error::IsDirectory);
        }
        let bytes = bytes.min(self.size().saturating_sub(offset));
        if bytes == 0 {
            return Ok(0);
        }
        let end = to_offset.checked_add(bytes).filter(|end| *end <= to.most_bytes());
        let to_end = end.ok_or(Error::FileTooBig)?;
        let is_same = self.node().ino() == to.node().ino();
        if is_same && offset < to_end && to_offset < offset + bytes {
            return Err(Error::Invalid("the ranges overlap"));
        }
        let mut room = vec![0; PIECE_BYTES.min(usize::try_from(bytes).unwrap_or(PIECE_BYTES))];
        let mut done = 0;
        while done < bytes {
            match self.copy_piece(offset + done, to, to_offset + done, bytes - done, &mut room) {
                // The file was truncated.
                Ok(0) => break,
                Ok(copied) => done += copied,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Copies some of `bytes` bytes through the buffer `room`. Returns how many.
    fn copy_piece(
        &self,
        offset: u64,
        to: &Self,
        to_offset: u64,
        bytes: u64,
        room: &mut [u8],
    ) -> Result<u64> {
        let mut most = room.len().min(usize::try_from(bytes).unwrap_or(usize::MAX));
        if to_offset >= to.size() {
            let data = match self.seek_data(offset) {
                Ok(data) => data.min(offset + bytes),
                Err(Error::NotFound) => (offset + bytes).min(self.size()),
                Err(error) => return Err(error),
            };
            let hole = data.saturating_sub(offset);
            if hole > 0 {
                to.grow_to(to_offset + hole)?;
                return Ok(hole);
            }
            // Copy up to the next hole. The file may have been truncated before it.
            if let Ok(end) = self.seek_hole(offset)
                && end > offset
            {
                most = most.min(usize::try_from(end - offset).unwrap_or(usize::MAX));
            }
        }
        let read = self.read_at(&mut room[..most], offset)?;
        // After a short read, `write_at` still writes what was read.
        if read == 0 { Ok(0) } else { Ok(to.write_at(&room[..read], to_offset)? as u64) }
    }
}
