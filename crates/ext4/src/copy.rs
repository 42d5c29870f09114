//! Copies inside the file system (`copy_file_range`).

use super::error::Error;
use super::file::File;

/// So much is copied at a time, in bytes.
const PIECE_BYTES: usize = 256 << 10;

impl File {
    /// Copies up to `bytes` bytes from byte `offset` on to `to`, from its byte `to_offset` on: how
    /// many there were to be copied. It goes through the page cache at both ends, so what is not
    /// written back yet is copied too. A hole stays one where `to` has nothing yet.
    ///
    /// Both files can be changed meanwhile, as by other calls between single reads and writes.
    ///
    /// # Errors
    /// As `copy_file_range(2)`: [`Error::Invalid`] if both ranges are of one file and overlap. A
    /// part that was copied before the failure is returned instead, if there is any.
    pub fn copy_range(
        &self,
        offset: u64,
        to: &Self,
        to_offset: u64,
        bytes: u64,
    ) -> Result<u64, Error> {
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
                // It was cut off meanwhile.
                Ok(0) => break,
                Ok(copied) => done += copied,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Copies some of `bytes` bytes by way of `room`: how many.
    fn copy_piece(
        &self,
        offset: u64,
        to: &Self,
        to_offset: u64,
        bytes: u64,
        room: &mut [u8],
    ) -> Result<u64, Error> {
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
            // Up to the next one. (It was cut off before that, perhaps.)
            if let Ok(end) = self.seek_hole(offset)
                && end > offset
            {
                most = most.min(usize::try_from(end - offset).unwrap_or(usize::MAX));
            }
        }
        let read = self.read_at(&mut room[..most], offset)?;
        // (Of less than was asked for the rest is still to be written.)
        if read == 0 { Ok(0) } else { Ok(to.write_at(&room[..read], to_offset)? as u64) }
    }
}
