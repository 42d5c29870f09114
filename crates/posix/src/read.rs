//! Reading, and the file offset.

use std::ffi::c_int;
use std::io::IoSliceMut;

use super::{Description, Errno};
use meantime_completion::Policy;
use meantime_ext4::{Advice, Error, ReadOptions};

/// The flags of `preadv2` (RWF_*).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RwFlags {
    /// RWF_HIPRI: poll for this read.
    pub poll: bool,
    /// RWF_NOWAIT: read from the cache only.
    pub no_wait: bool,
}

impl RwFlags {
    /// Converts the call's argument.
    ///
    /// # Errors
    /// EOPNOTSUPP for a flag that reads do not support.
    pub fn new(flags: c_int) -> Result<Self, Errno> {
        // These two have no effect on a read, and Linux accepts them.
        let ignored = libc::RWF_DSYNC | libc::RWF_SYNC;
        if flags & !(libc::RWF_HIPRI | libc::RWF_NOWAIT | ignored) != 0 {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        Ok(Self { poll: flags & libc::RWF_HIPRI != 0, no_wait: flags & libc::RWF_NOWAIT != 0 })
    }
}

/// The most bytes read by one call (MAX_RW_COUNT of Linux).
pub(crate) const MAX_READ_BYTES: usize = 0x7fff_f000;

impl Description {
    #[inline]
    fn options(&self, flags: RwFlags) -> ReadOptions {
        let policy = flags.poll.then_some(Policy::Poll);
        ReadOptions { policy, direct: self.flags() & libc::O_DIRECT != 0, no_wait: flags.no_wait }
    }

    /// Reads into `buf` from byte `offset` on (`pread`).
    ///
    /// # Errors
    /// As pread(2).
    #[inline]
    pub fn read_at(&self, buf: &mut [u8], offset: i64, flags: RwFlags) -> Result<usize, Errno> {
        let file = self.file()?;
        let offset = u64::try_from(offset).map_err(|_| Errno(libc::EINVAL))?;
        let bytes = buf.len().min(MAX_READ_BYTES);
        file.read_at_with(&mut buf[..bytes], offset, &self.options(flags))
            .map_err(|error| Errno::of_data(&error))
    }

    /// Reads into `bufs`, in order, from byte `offset` on (`preadv2`).
    ///
    /// # Errors
    /// As preadv2(2).
    pub fn read_vectored_at(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        offset: i64,
        flags: RwFlags,
    ) -> Result<usize, Errno> {
        let file = self.file()?;
        let offset = u64::try_from(offset).map_err(|_| Errno(libc::EINVAL))?;
        let total = bufs.iter().try_fold(0_usize, |sum, buf| sum.checked_add(buf.len()));
        if total.is_none_or(|total| total > isize::MAX as usize) {
            return Err(Errno(libc::EINVAL));
        }
        file.read_vectored_at(bufs, offset, &self.options(flags))
            .map_err(|error| Errno::of_data(&error))
    }

    /// Reads from the offset on, and advances it (`read`).
    ///
    /// # Errors
    /// As read(2).
    pub fn read(&self, buf: &mut [u8]) -> Result<usize, Errno> {
        let _turn = self.turn();
        let at = self.position();
        let read = self.read_at(buf, at as i64, RwFlags::default())?;
        self.set_position(at + read as u64);
        Ok(read)
    }

    /// As [`read`](Self::read), into several buffers (`readv`, and `preadv2` with offset -1).
    ///
    /// # Errors
    /// As readv(2).
    pub fn read_vectored(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        flags: RwFlags,
    ) -> Result<usize, Errno> {
        let _turn = self.turn();
        let at = self.position();
        let read = self.read_vectored_at(bufs, at as i64, flags)?;
        self.set_position(at + read as u64);
        Ok(read)
    }

    /// Changes the offset (`lseek`).
    ///
    /// # Errors
    /// As lseek(2).
    pub fn seek(&self, offset: i64, whence: c_int) -> Result<i64, Errno> {
        let einval = Errno(libc::EINVAL);
        let _turn = self.turn();
        let to = match (self.kind(), whence) {
            (super::Kind::Path, _) => return Err(Errno(libc::EBADF)),
            (_, libc::SEEK_SET) => Some(offset),
            (_, libc::SEEK_CUR) => (self.position() as i64).checked_add(offset),
            (super::Kind::Directory(_), _) => return Err(einval),
            (super::Kind::File(file), libc::SEEK_END) => (file.size() as i64).checked_add(offset),
            (super::Kind::File(file), libc::SEEK_DATA | libc::SEEK_HOLE) => {
                let enxio = Errno(libc::ENXIO);
                let from = u64::try_from(offset).map_err(|_| enxio)?;
                let found = if whence == libc::SEEK_DATA {
                    file.seek_data(from)
                } else {
                    file.seek_hole(from)
                };
                let found = found.map_err(|error| match error {
                    Error::NotFound => enxio,
                    error => Errno::of_data(&error),
                })?;
                i64::try_from(found).ok()
            }
            _ => return Err(einval),
        };
        let to = to.filter(|&to| to >= 0).ok_or(einval)?;
        if let super::Kind::Directory(entries) = self.kind() {
            super::dir::locked(entries).seek(to as u64);
        }
        self.set_position(to as u64);
        Ok(to)
    }

    /// Handles advice on future reads (`posix_fadvise`). `bytes` 0: to the end.
    ///
    /// # Errors
    /// EINVAL for unknown advice. Advice on a directory is accepted, without effect.
    pub fn advise(&self, offset: i64, bytes: i64, advice: c_int) -> Result<(), Errno> {
        let advice = match advice {
            libc::POSIX_FADV_NORMAL => Advice::Normal,
            libc::POSIX_FADV_SEQUENTIAL => Advice::Sequential,
            libc::POSIX_FADV_RANDOM => Advice::Random,
            libc::POSIX_FADV_WILLNEED => Advice::WillNeed,
            libc::POSIX_FADV_DONTNEED => Advice::DontNeed,
            libc::POSIX_FADV_NOREUSE => Advice::Normal,
            _ => return Err(Errno(libc::EINVAL)),
        };
        let bytes = u64::try_from(bytes).map_err(|_| Errno(libc::EINVAL))?;
        match self.kind() {
            super::Kind::Path => Err(Errno(libc::EBADF)),
            super::Kind::Directory(_) => Ok(()),
            super::Kind::File(file) => {
                let offset = u64::try_from(offset).unwrap_or(0);
                file.advise(offset, bytes, advice).map_err(|error| Errno::of_data(&error))
            }
        }
    }
}
