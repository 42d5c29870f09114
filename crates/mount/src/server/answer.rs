//! An answer as it is made: one for each thread, used again and again.

use meantime_posix::Errno;
use zerocopy::{Immutable, IntoBytes};

use crate::fuse::wire::OutHeader;

const PAGE: usize = 4096;
const HEADER: usize = size_of::<OutHeader>();

/// Bytes of which those behind a header of `header` bytes begin a page: so the kernel, and a device
/// that is lent them, finds whole pages.
#[derive(Debug)]
pub(crate) struct Room {
    bytes: Vec<u8>,
    begin: usize,
}

impl Room {
    /// For a header and `len` bytes.
    pub(crate) fn new(header: usize, len: usize) -> Self {
        let bytes = vec![0; 2 * PAGE + len];
        let page = bytes.as_ptr().align_offset(PAGE).min(PAGE);
        Self { bytes, begin: page + PAGE - header }
    }

    /// Header and the rest.
    pub(crate) fn all(&mut self) -> &mut [u8] {
        &mut self.bytes[self.begin..]
    }
}

/// An answer: a header, and what the request's kind has behind it.
#[derive(Debug)]
pub(crate) struct Answer {
    room: Room,
    /// How much is behind the header.
    len: usize,
    /// An inode of which the kernel does not know that its attributes have changed.
    pub(crate) stale: Option<u64>,
    /// An inode whose content the kernel has to give up before it has this answer.
    pub(crate) outdated: Option<u64>,
}

impl Answer {
    /// With room for `most` bytes behind the header.
    pub(crate) fn new(most: usize) -> Self {
        Self { room: Room::new(HEADER, most), len: 0, stale: None, outdated: None }
    }

    fn body(&mut self) -> &mut [u8] {
        &mut self.room.all()[HEADER..]
    }

    /// How much is behind the header.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds `bytes`.
    ///
    /// # Errors
    /// EIO if they have no room: the kernel asks for less than that.
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
    /// As [`put`](Self::put).
    pub(crate) fn put_as<T: IntoBytes + Immutable>(&mut self, value: &T) -> Result<(), Errno> {
        self.put(value.as_bytes())
    }

    /// Has `read` fill `len` bytes, or fewer, as it says.
    ///
    /// # Errors
    /// Its own; EIO if there is no room for as many.
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

    /// Begins anew.
    pub(crate) fn clear(&mut self) {
        (self.len, self.stale, self.outdated) = (0, None, None);
    }

    /// The answer to request `unique`, to be sent; of one that failed nothing but why.
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
