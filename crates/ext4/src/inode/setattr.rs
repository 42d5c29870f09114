//! Sets size, owner, permissions and times of an inode together (kernel: `ext4_setattr`).
//!
//! All attributes become visible at once, and survive a crash together or not at all. This includes
//! a size that frees many blocks: they are freed in later steps, and the inode is an orphan until
//! then.

use crate::alloc::AllocHandle;
use crate::error::Result;
use crate::ops::metadata;
use meantime_ext4_format::edit::InodeEdit;
use meantime_ext4_format::{FileType, Timestamp};

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The time of the change (`UTIME_NOW`).
    Now,
    /// A given time.
    To(Timestamp),
}

/// Attributes that [`set_metadata`](crate::FileSystem::set_metadata) changes; `None` keeps the old
/// value.
///
/// The caller checks permissions. It also decides whether [privileges](Self::drop_privileges) are
/// dropped, and whether `mode` may have `S_ISGID` for a group that the user is not in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetMetadata {
    /// Size of a file's content in bytes (`truncate`). As in Linux, this drops its capabilities,
    /// also for root.
    pub size: Option<u64>,
    /// Permissions: the lowest twelve bits of a mode (`chmod`).
    pub mode: Option<u16>,
    /// Owner (`chown`). As in Linux, also for root, a new owner or group drops the privileges of
    /// anything but a directory. A `mode` set together with it is applied afterwards.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Time of the last read (`utimensat`).
    pub accessed: Option<SetTime>,
    /// Time of the last change of the content.
    pub modified: Option<SetTime>,
    /// Whether set-user and set-group bits and capabilities of a file are dropped, as for a change
    /// without `CAP_FSETID` (`FATTR_KILL_SUIDGID`).
    pub drop_privileges: bool,
}

impl SetMetadata {
    /// Returns whether only both times are set, to now: an append-only inode allows this.
    pub(crate) fn only_touches(&self) -> bool {
        let now = Some(SetTime::Now);
        *self == Self { accessed: now, modified: now, ..Self::default() }
    }

    /// Changes all attributes but the size. The caller stores `inode`.
    pub(super) fn apply(
        &self,
        handle: &mut AllocHandle<'_, '_>,
        inode: &mut InodeEdit,
    ) -> Result<()> {
        let now = handle.now();
        if self.uid.is_some() || self.gid.is_some() {
            metadata::set_owner(handle, inode, self.uid, self.gid)?;
        }
        if self.drop_privileges
            && inode.file_type() != Some(FileType::Directory)
            && metadata::drop_privileges(handle, inode)?
        {
            inode.set_changed(now);
        }
        if self.size.is_some() {
            metadata::drop_capabilities(handle, inode)?;
        }
        if let Some(mode) = self.mode {
            metadata::set_mode(handle, inode, mode)?;
        }
        let time = |set: SetTime| match set {
            SetTime::Now => now,
            SetTime::To(time) => time,
        };
        if self.accessed.is_some() || self.modified.is_some() {
            let (accessed, modified) = (self.accessed.map(time), self.modified.map(time));
            metadata::set_times(handle, inode, accessed, modified);
        }
        Ok(())
    }
}
