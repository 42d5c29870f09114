//! The source of a copy: data between holes, extended attributes.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::Result;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{OFlags, SeekFrom, lgetxattr, llistxattr, seek};
use rustix::io::Errno;

/// A file's stretches of data, in order.
pub(super) struct Stretches {
    file: File,
    next: u64,
    /// Whether the file system reports its holes.
    has_holes: bool,
}

impl Stretches {
    /// Opens the file `path`, which is not a link.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::NOFOLLOW.bits() as i32;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
        // The user's own path may be a link.
        let file = file.or_else(|_| File::open(path))?;
        Ok(Self { file, next: 0, has_holes: true })
    }

    /// Returns the size of the file, in bytes.
    pub(super) fn bytes(&self) -> Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Returns the next stretch as its first byte and the byte after its last, or `None` at the
    /// end.
    pub(super) fn next(&mut self) -> Result<Option<(u64, u64)>> {
        let size = self.bytes()?;
        if self.next >= size {
            return Ok(None);
        }
        if !self.has_holes {
            return Ok(Some((std::mem::replace(&mut self.next, size), size)));
        }
        let start = match seek(&self.file, SeekFrom::Data(self.next)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                self.has_holes = false;
                return self.next();
            }
            Err(errno) => return Err(errno.into()),
        };
        let end = seek(&self.file, SeekFrom::Hole(start))?;
        self.next = end;
        Ok(Some((start, end)))
    }

    /// Reads from byte `offset` on.
    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.file.read_at(buf, offset)
    }
}

/// Returns the extended attributes of `path`. A link is not followed. The list is empty where the
/// file system has none.
pub(super) fn attributes(path: &Path) -> Result<Vec<(OsString, Vec<u8>)>> {
    let mut names = vec![0; 64 << 10];
    let bytes = match llistxattr(path, &mut names[..]) {
        Ok(bytes) => bytes,
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        Err(errno) => return Err(errno.into()),
    };
    let mut value = vec![0; 64 << 10];
    let mut all = Vec::new();
    for name in names[..bytes].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name = OsStr::from_bytes(name);
        match lgetxattr(path, name, &mut value[..]) {
            Ok(bytes) => all.push((name.to_owned(), value[..bytes].to_vec())),
            // The attribute was removed meanwhile.
            Err(Errno::NODATA) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(all)
}
