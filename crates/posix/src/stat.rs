//! File metadata in the forms of `stat` and `statfs`.

use std::ffi::c_int;

use super::walk::Found;
use super::{Errno, Posix};
use meantime_ext4::{FileType, Metadata, Usage};

/// The result of `stat`: the metadata, and the device number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// The inode's metadata.
    pub metadata: Metadata,
    /// `st_dev`.
    pub device: u64,
}

/// The result of `statfs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatFs {
    /// Blocks and inodes.
    pub usage: Usage,
    /// `f_type`: EXT4_SUPER_MAGIC.
    pub magic: i64,
    /// The longest name, in bytes.
    pub name_max: u32,
}

/// The mode of `access`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access(c_int);

impl Access {
    /// Converts the call's argument.
    ///
    /// # Errors
    /// EINVAL for unknown bits.
    pub fn new(mode: c_int) -> Result<Self, Errno> {
        let known = libc::R_OK | libc::W_OK | libc::X_OK;
        if mode & !known == 0 { Ok(Self(mode)) } else { Err(Errno(libc::EINVAL)) }
    }
}

/// A device number that the kernel never assigns: for devices without a driver (major number 0) it
/// counts minor numbers from 1 on.
pub(super) fn device_number(fsid: u64) -> u64 {
    let minor = 0xf_0000 | (fsid ^ fsid >> 16 ^ fsid >> 32 ^ fsid >> 48) & 0xffff;
    libc::makedev(0, minor as u32)
}

impl Posix {
    /// `stat` of `found`.
    pub fn stat(&self, found: &Found) -> Stat {
        Stat { metadata: found.node().metadata(), device: self.device }
    }

    /// `statfs` of the file system.
    ///
    /// # Errors
    /// The device, or damage.
    pub fn stat_fs(&self) -> Result<StatFs, Errno> {
        Ok(StatFs { usage: self.fs()?.usage()?, magic: libc::EXT4_SUPER_MAGIC, name_max: 255 })
    }

    /// Whether root may do `access` with `found`.
    ///
    /// # Errors
    /// EACCES for executing a file without `x` bits, EROFS for writing anything but a device.
    pub fn access(&self, found: &Found, access: Access) -> Result<(), Errno> {
        let metadata = found.node().metadata();
        let stored = matches!(
            metadata.file_type,
            FileType::Regular | FileType::Directory | FileType::Symlink
        );
        if access.0 & libc::W_OK != 0 && stored {
            return Err(Errno(libc::EROFS));
        }
        let executable = metadata.file_type == FileType::Directory || metadata.mode & 0o111 != 0;
        if access.0 & libc::X_OK != 0 && !executable { Err(Errno(libc::EACCES)) } else { Ok(()) }
    }
}
