//! Locks on files that are never written: read locks are granted, since no lock can conflict with
//! them.

use std::ffi::c_int;

use super::{Description, Errno, Kind};

/// The kind of a record lock (`l_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// F_RDLCK.
    Read,
    /// F_WRLCK.
    Write,
    /// F_UNLCK.
    None,
}

impl Lock {
    /// Converts from `l_type`.
    ///
    /// # Errors
    /// EINVAL.
    pub fn new(l_type: c_int) -> Result<Self, Errno> {
        match l_type {
            libc::F_RDLCK => Ok(Self::Read),
            libc::F_WRLCK => Ok(Self::Write),
            libc::F_UNLCK => Ok(Self::None),
            _ => Err(Errno(libc::EINVAL)),
        }
    }
}

impl Description {
    /// Sets or releases a record lock (F_SETLK, F_SETLKW and similar commands).
    ///
    /// # Errors
    /// EBADF for a write lock, since the file is open for reading.
    pub fn lock(&self, lock: Lock) -> Result<(), Errno> {
        match (self.kind(), lock) {
            (Kind::Path, _) | (_, Lock::Write) => Err(Errno(libc::EBADF)),
            (_, Lock::Read | Lock::None) => Ok(()),
        }
    }
}
