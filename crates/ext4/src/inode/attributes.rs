//! Changes attributes of an inode, and stores the times that were only in memory.

use super::setattr::SetMetadata;
use super::shared::Inode;
use super::times::Times;
use super::writable::Writable;
use super::writable_mount::WritableMount;
use crate::alloc::AllocHandle;
use crate::error::{Error, Result};
use meantime_ext4_format::FileType;
use meantime_ext4_format::edit::InodeEdit;
use meantime_ext4_format::inode::flags;

/// The attributes of one inode, and what changes them: of a mount, only its state for writing.
pub(crate) struct Attributes<'a> {
    pub(crate) rw_mount: &'a WritableMount,
    pub(crate) inode: &'a Inode,
    /// The state of `inode`, with the times that the disk does not have.
    pub(crate) writable: &'a Writable,
}

impl Attributes<'_> {
    /// Changes the attributes in `set`, which has no size.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] if flags of the inode forbid it. Those of the change.
    pub(crate) fn set(&self, set: &SetMetadata) -> Result<()> {
        let times = self.rw_mount.change(|handle| {
            let flags = handle.load_inode(self.inode.ino)?.flags();
            if flags & flags::IMMUTABLE != 0 || flags & flags::APPEND != 0 && !set.only_touches() {
                return Err(Error::NotPermitted);
            }
            self.set_in(handle, set)
        })?;
        self.writable.pages().times.stored(times);
        Ok(())
    }

    /// Changes the attributes in `set`, but for the size, in `handle`. It also stores the times
    /// that were only in memory, which come first, because they are of earlier writes. The caller
    /// reports the returned times as [stored](Times::stored) when the change is complete.
    pub(crate) fn set_in(
        &self,
        handle: &mut AllocHandle<'_, '_>,
        set: &SetMetadata,
    ) -> Result<Times> {
        let mut edit = handle.load_inode(self.inode.ino)?;
        let times = self.writable.pages().times;
        times.put(&mut edit);
        set.apply(handle, &mut edit)?;
        handle.store_inode(&edit, false)?;
        if self.inode.file_type == FileType::Regular {
            // (If extended attributes changed, `store_inode` has ruled fast commits out.)
            handle.fast_eligible();
        }
        Ok(times)
    }

    /// Stores the times that are only in memory, if the content was changed. Returns the inode's
    /// version before the change, and the inode after it.
    pub(crate) fn store_times(&self) -> Result<Option<(u64, InodeEdit)>> {
        if self.writable.pages().times.modified.is_none() {
            Ok(None)
        } else {
            self.store_all_times()
        }
    }

    /// Stores the times that are only in memory, also if the content was only read. Returns the
    /// inode's version before the change, and the inode after it.
    pub(crate) fn store_all_times(&self) -> Result<Option<(u64, InodeEdit)>> {
        let Self { rw_mount, inode, writable } = self;
        let mut times = writable.pages().times;
        if times.is_empty() {
            return Ok(None);
        }
        let changed = rw_mount.change(|handle| {
            // Its number may belong to another inode. (An inode is gone before it is deleted: if it
            // is not gone yet, the deletion is a later change than this one.)
            if writable.is_gone() {
                return Ok(None);
            }
            let mut edit = handle.load_inode(inode.ino)?;
            times = writable.pages().times;
            times.put(&mut edit);
            handle.store_inode(&edit, false)?;
            if inode.file_type == FileType::Regular {
                handle.fast_eligible();
            }
            Ok(Some((inode.version(), edit)))
        })?;
        writable.pages().times.stored(times);
        Ok(changed)
    }
}
