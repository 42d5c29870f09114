//! The names in a directory, and extended attributes.

use std::os::unix::ffi::OsStringExt as _;
use std::sync::PoisonError;

use super::walk::Found;
use super::{Description, Errno, Kind, Posix};
use meantime_ext4::{FileType, ReadDir};
use meantime_process::lock::{Mutex, MutexGuard};

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// Its inode.
    pub ino: u64,
    /// The position of the next name (`d_off`, `telldir`).
    pub next: i64,
    /// Its type: `d_type`.
    pub d_type: u8,
    /// The name, at most 255 bytes.
    pub name: Vec<u8>,
}

pub(super) fn locked(entries: &Mutex<ReadDir>) -> MutexGuard<'_, ReadDir> {
    entries.lock().unwrap_or_else(PoisonError::into_inner)
}

fn d_type(file_type: Option<FileType>) -> u8 {
    match file_type {
        None => libc::DT_UNKNOWN,
        Some(FileType::Regular) => libc::DT_REG,
        Some(FileType::Directory) => libc::DT_DIR,
        Some(FileType::Symlink) => libc::DT_LNK,
        Some(FileType::Character) => libc::DT_CHR,
        Some(FileType::Block) => libc::DT_BLK,
        Some(FileType::Fifo) => libc::DT_FIFO,
        Some(FileType::Socket) => libc::DT_SOCK,
    }
}

impl Description {
    /// The next name (`readdir`); `None` at the end.
    ///
    /// # Errors
    /// ENOTDIR, EBADF, or the errno of a damaged directory.
    pub fn next_entry(&self) -> Result<Option<DirEntry>, Errno> {
        let entries = match self.kind() {
            Kind::Directory(entries) => entries,
            Kind::File(_) => return Err(Errno(libc::ENOTDIR)),
            Kind::Path => return Err(Errno(libc::EBADF)),
        };
        let mut entries = locked(entries);
        let Some(entry) = entries.next() else { return Ok(None) };
        let entry = entry?;
        self.set_position(entry.cookie);
        Ok(Some(DirEntry {
            ino: entry.ino.into(),
            next: entry.cookie as i64,
            d_type: d_type(entry.file_type),
            name: entry.name.into_vec(),
        }))
    }
}

/// Returns `value` if it fits in `room` bytes; with `room` 0, only its size is wanted.
fn fitting(value: Vec<u8>, room: usize) -> Result<Vec<u8>, Errno> {
    if room != 0 && value.len() > room { Err(Errno(libc::ERANGE)) } else { Ok(value) }
}

impl Posix {
    /// The target of a symbolic link.
    ///
    /// # Errors
    /// EINVAL if it is not a symbolic link.
    pub fn read_link(&self, found: &Found) -> Result<Vec<u8>, Errno> {
        Ok(self.fs()?.read_link_at(found.node())?.into_os_string().into_vec())
    }

    /// The value of an extended attribute (`getxattr`), for a buffer of `room` bytes; 0: only the
    /// size is wanted.
    ///
    /// # Errors
    /// As getxattr(2).
    pub fn attribute(&self, found: &Found, name: &[u8], room: usize) -> Result<Vec<u8>, Errno> {
        if name.is_empty() || name.len() > 255 {
            return Err(Errno(libc::ERANGE));
        }
        // Names without a known prefix have no namespace.
        let known = [&b"user."[..], b"trusted.", b"security.", b"system."];
        if !known.iter().any(|class| name.starts_with(class)) {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        fitting(self.fs()?.attribute(found.node(), name)?, room)
    }

    /// The names of the extended attributes, each followed by a NUL (`listxattr`), for a buffer of
    /// `room` bytes; 0: only the size is wanted.
    ///
    /// # Errors
    /// As listxattr(2).
    pub fn attribute_names(&self, found: &Found, room: usize) -> Result<Vec<u8>, Errno> {
        let mut names = Vec::new();
        for (name, _) in self.fs()?.attributes(found.node())? {
            names.extend_from_slice(&name);
            names.push(0);
        }
        fitting(names, room)
    }
}
