//! Size, owner, permissions and times of an inode, changed together (kernel: `ext4_setattr`).
//!
//! All that is asked for becomes visible at once, and survives a crash at once or not at all. A
//! size that frees much is no exception: the blocks go in later steps, and the inode is an orphan
//! until then.

use super::mount::Mount;
use super::shared::Inode;
use super::times::Times;
use super::writable::Writable;
use crate::alloc::Allocator;
use crate::error::Error;
use crate::journal::Handle;
use crate::ops::metadata;
use meantime_ext4_format::edit::InodeEdit;
use meantime_ext4_format::{FileType, Timestamp};

/// A time to be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// When the change is made (`UTIME_NOW`).
    Now,
    /// This one.
    To(Timestamp),
}

/// What [`set_metadata`](crate::FileSystem::set_metadata) changes; what is `None` stays as it is.
///
/// Who may do it is the caller's to decide, as is what else depends on who does it: whether
/// [privileges](Self::drop_privileges) go, and whether `mode` may have `S_ISGID` for a group that
/// the caller is not in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetMetadata {
    /// Size of a file's content, in bytes (`truncate`). As in Linux, for root too, its capabilities
    /// go.
    pub size: Option<u64>,
    /// Permissions: the lowest twelve bits of a mode (`chmod`).
    pub mode: Option<u16>,
    /// Owner (`chown`). As in Linux, for root too, a new owner or group ends the privileges of
    /// anything but a directory; a `mode` that is given as well counts after that.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// When it was last read (`utimensat`).
    pub accessed: Option<SetTime>,
    /// When its content was last changed.
    pub modified: Option<SetTime>,
    /// The set-user and set-group bits and the capabilities of a file go, as for a change by
    /// somebody without `CAP_FSETID` (`FATTR_KILL_SUIDGID`).
    pub drop_privileges: bool,
}

impl SetMetadata {
    /// Whether an append-only inode may be changed so: both times become now, and nothing else.
    pub(crate) fn only_touches(&self) -> bool {
        let now = Some(SetTime::Now);
        *self == Self { accessed: now, modified: now, ..Self::default() }
    }

    /// Changes all but the size of `inode`. The caller stores it.
    fn apply(
        &self,
        handle: &mut Handle<'_>,
        allocator: &Allocator,
        inode: &mut InodeEdit,
    ) -> Result<(), Error> {
        let now = handle.now();
        if self.uid.is_some() || self.gid.is_some() {
            metadata::set_owner(handle, allocator, inode, self.uid, self.gid)?;
        }
        if self.drop_privileges
            && inode.file_type() != Some(FileType::Directory)
            && metadata::drop_privileges(handle, allocator, inode)?
        {
            inode.set_changed(now);
        }
        if self.size.is_some() {
            metadata::drop_capabilities(handle, allocator, inode)?;
        }
        if let Some(mode) = self.mode {
            metadata::set_mode(handle, allocator, inode, mode)?;
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

impl Mount {
    /// Changes what `set` says of `inode`, but for the size, in `handle`, with the times that the
    /// inode did not have yet: what was written before has its time before. These are to be said to
    /// be [stored](Times::stored) once the change is complete.
    pub(crate) fn set_in(
        &self,
        handle: &mut Handle<'_>,
        allocator: &Allocator,
        inode: &Inode,
        writable: &Writable,
        set: &SetMetadata,
    ) -> Result<Times, Error> {
        let mut edit = handle.load_inode(inode.ino)?;
        let times = writable.pages().times;
        times.put(&mut edit);
        set.apply(handle, allocator, &mut edit)?;
        handle.store_inode(&edit, false)?;
        if inode.file_type == FileType::Regular {
            // Attributes among what was changed are seen to by themselves.
            handle.fast_eligible();
        }
        Ok(times)
    }
}
