//! An open file description: the result of `open`, shared by all duplicates of its descriptor.

use std::ffi::c_int;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use super::walk::Found;
use super::{Errno, Posix};
use meantime_ext4::{File, ReadDir};
use meantime_process::lock::{Mutex, MutexGuard, Rank};

/// The kind of an open file description.
pub enum Kind {
    /// A file.
    File(File),
    /// A directory.
    Directory(Mutex<ReadDir>),
    /// A name only (O_PATH).
    Path,
}

/// An open file description.
pub struct Description {
    found: Found,
    kind: Kind,
    /// The flags returned by F_GETFL.
    flags: AtomicI32,
    /// The offset, in bytes; for a directory the cookie of the next name.
    position: AtomicU64,
    /// Held while the offset is used and changed.
    turn: Mutex<()>,
}

/// The flags that F_SETFL may change.
const SETTABLE: c_int =
    libc::O_APPEND | libc::O_ASYNC | libc::O_DIRECT | libc::O_NOATIME | libc::O_NONBLOCK;

impl Description {
    pub(super) fn new(found: Found, kind: Kind, flags: c_int) -> Self {
        let (flags, position) = (AtomicI32::new(flags), AtomicU64::new(0));
        Self { found, kind, flags, position, turn: Mutex::new(Rank::Descriptor, ()) }
    }

    /// The opened inode, and its path.
    pub fn found(&self) -> &Found {
        &self.found
    }

    /// Its kind.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Access mode and status flags (F_GETFL).
    #[inline]
    pub fn flags(&self) -> c_int {
        self.flags.load(Ordering::Relaxed)
    }

    /// Changes the status flags (F_SETFL); other flags are ignored.
    pub fn set_flags(&self, flags: c_int) {
        let kept = self.flags() & !SETTABLE;
        self.flags.store(kept | (flags & SETTABLE), Ordering::Relaxed);
    }

    /// The offset.
    pub fn position(&self) -> u64 {
        self.position.load(Ordering::Acquire)
    }

    pub(super) fn set_position(&self, position: u64) {
        self.position.store(position, Ordering::Release);
    }

    /// Keeps other threads from changing the offset.
    pub(super) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file, for reading.
    ///
    /// # Errors
    /// EISDIR for a directory, EBADF for one opened with O_PATH.
    #[inline]
    pub(super) fn file(&self) -> Result<&File, Errno> {
        match &self.kind {
            Kind::File(file) => Ok(file),
            Kind::Directory(_) => Err(Errno(libc::EISDIR)),
            Kind::Path => Err(Errno(libc::EBADF)),
        }
    }
}

impl Posix {
    /// Opens `before`, a description of this process before the fork, again.
    pub(super) fn reopen(
        &self,
        before: &Description,
    ) -> Result<std::sync::Arc<Description>, Errno> {
        let is_path = matches!(before.kind, Kind::Path);
        let found = self.find_from_root(before.found.path(), false)?.found()?;
        let kind = match before.kind {
            Kind::File(_) => Kind::File(self.fs()?.open_node(found.node())?),
            Kind::Directory(_) => {
                let mut entries = self.fs()?.entries(found.node())?;
                entries.seek(before.position());
                Kind::Directory(Mutex::new(Rank::DirectoryPosition, entries))
            }
            Kind::Path => Kind::Path,
        };
        let description = Description::new(found, kind, before.flags());
        if !is_path {
            description.set_position(before.position());
        }
        Ok(description.into())
    }
}
