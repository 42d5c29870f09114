//! The answer that is being built. Each thread has one, and reuses it.

use std::sync::Arc;

use meantime_ext4::Errno;
use zerocopy::{Immutable, IntoBytes};

use super::shared_memory::gate::Gate;
use crate::fuse::wire::OutHeader;

/// The result of a request. It is answered by what was put into its answer, or with an error.
pub(super) type Served = Result<(), Errno>;

const PAGE: usize = 4096;
const HEADER: usize = size_of::<OutHeader>();

/// A buffer in which the data after a header of `header` bytes begins on a page boundary, so that
/// the kernel, and a device that is lent the buffer, gets whole pages.
#[derive(Debug)]
pub(crate) struct Room {
    bytes: Vec<u8>,
    begin: usize,
}

impl Room {
    /// Allocates room for a header of `header` bytes and `len` bytes of data.
    pub(crate) fn new(header: usize, len: usize) -> Self {
        let bytes = vec![0; 2 * PAGE + len];
        let page = bytes.as_ptr().align_offset(PAGE).min(PAGE);
        Self { bytes, begin: page + PAGE - header }
    }

    /// Returns the header and the data.
    pub(crate) fn all(&mut self) -> &mut [u8] {
        &mut self.bytes[self.begin..]
    }
}

/// An answer: a header, and the structure and data of the request's kind.
pub(crate) struct Answer {
    room: Room,
    /// The number of bytes after the header.
    len: usize,
    /// An inode whose attributes changed without the kernel's knowledge. The kernel is notified of
    /// it.
    pub(crate) stale: Option<u64>,
    /// An inode whose content the kernel has to drop before it gets this answer.
    pub(crate) outdated: Option<u64>,
    /// An inode whose content the kernel has to drop after this answer.
    pub(crate) misplaced: Option<u64>,
    /// The gate of that inode, if a program takes the file.
    pub(crate) enters: Option<Arc<Gate>>,
}

impl Answer {
    /// Allocates room for `most` bytes after the header.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            room: Room::new(HEADER, most),
            len: 0,
            stale: None,
            outdated: None,
            misplaced: None,
            enters: None,
        }
    }

    fn body(&mut self) -> &mut [u8] {
        &mut self.room.all()[HEADER..]
    }

    /// Returns the number of bytes after the header.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds `bytes`.
    ///
    /// # Errors
    /// EIO if there is no room, because the kernel asks for less.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        let at = self.len;
        let place = self.body().get_mut(at..at + bytes.len()).ok_or(Errno(libc::EIO))?;
        place.copy_from_slice(bytes);
        self.len += bytes.len();
        Ok(())
    }

    /// Adds a structure.
    ///
    /// # Errors
    /// EIO if there is no room, because the kernel asks for less.
    pub(crate) fn put_as<T: IntoBytes + Immutable>(&mut self, value: &T) -> Result<(), Errno> {
        self.put(value.as_bytes())
    }

    /// Calls `read` to fill up to `len` bytes. `read` returns how many bytes it filled.
    ///
    /// # Errors
    /// The errors of `read`; EIO if there is no room for `len` bytes.
    pub(crate) fn fill(
        &mut self,
        len: u32,
        read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    ) -> Result<(), Errno> {
        let at = self.len;
        let place = self.body().get_mut(at..at + len as usize).ok_or(Errno(libc::EIO))?;
        self.len += read(place)?.min(len as usize);
        Ok(())
    }

    /// Resets the answer for the next request.
    pub(crate) fn clear(&mut self) {
        (self.len, self.stale, self.outdated) = (0, None, None);
        (self.misplaced, self.enters) = (None, None);
    }

    /// Returns the bytes to send as the answer to request `unique`. After an error these are only
    /// the header.
    pub(crate) fn finish(&mut self, unique: u64, done: Result<(), Errno>) -> &[u8] {
        if done.is_err() {
            self.len = 0;
        }
        let len = HEADER + self.len;
        let error = done.err().map_or(0, |errno| -errno.0);
        let header = OutHeader { len: len as u32, error, unique };
        let all = &mut self.room.all()[..len];
        all[..HEADER].copy_from_slice(header.as_bytes());
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_header_and_what_was_put() {
        let mut answer = Answer::new(8);
        answer.put(b"four").unwrap();
        answer.fill(4, |place| Ok(place.len().min(2))).unwrap();
        assert_eq!(answer.put(&[0; PAGE]), Err(Errno(libc::EIO)));
        let bytes = answer.finish(9, Ok(()));
        assert_eq!((bytes.len(), &bytes[16..]), (22, &b"four\0\0"[..]));
        assert_eq!(bytes[16..].as_ptr().align_offset(PAGE), 0, "what is sent begins a page");
        assert_eq!(bytes[..4], 22_u32.to_ne_bytes());
        let bytes = answer.finish(9, Err(Errno(libc::ENOENT)));
        assert_eq!((bytes.len(), &bytes[4..8]), (16, &(-libc::ENOENT).to_ne_bytes()[..]));
    }
}
