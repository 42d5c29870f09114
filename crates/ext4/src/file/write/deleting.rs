//! Deletes inodes. One that loses its last name while it has no node is deleted by the change that
//! takes the name, so it is never an orphan; any other, when its last node is dropped.

use std::sync::Arc;

use super::back::Writeback;
use crate::alloc::AllocHandle;
use crate::cache::PAGE;
use crate::error::Result;
use crate::inode::Mount;
use crate::inode::shared::Inode;
use crate::ops::{Progress, orphans};
use meantime_ext4_format::FileType;

/// Maximum pages of a file that is deleted in that change, which keeps other changes waiting.
const FEW_PAGES: u64 = 256;

/// Approximate limit of the blocks that one change edits to delete an inode.
const STEP_BLOCKS: usize = 64;

impl Mount {
    /// Marks inode `ino` gone if it has no node and is clean, while a change takes its last name.
    /// Look-ups no longer find it then. `None`: it is in use or dirty, or its deletion would take
    /// long. Never waits.
    ///
    /// The caller [ends](Self::end_deletion) the deletion, whether the change succeeds or fails.
    pub(crate) fn end_unused(&self, ino: u32) -> Option<Arc<Inode>> {
        let rw_mount = self.for_writing().ok()?;
        let inode = Inode::load(self, ino, false).ok()?;
        let writable = inode.writable.as_ref()?;
        let pages = inode.size().div_ceil(PAGE) + self.units().per_block;
        // Locked until the inode is gone: a thread that makes a page dirty has a node meanwhile.
        let clean = writable.pages();
        if pages > FEW_PAGES || !clean.are_clean() || !writable.end_unused() {
            return None;
        }
        drop(clean);
        self.nodes.remove_if(&ino, |there| Arc::ptr_eq(there, &inode));
        rw_mount.registry().begin_deletion(&inode);
        drop(rw_mount.let_go(&inode));
        self.contexts.cache().invalidate(u64::from(ino), 0..pages);
        if inode.file_type == FileType::Directory {
            // Another directory may get the number as soon as the change is visible.
            self.forget_name(ino, b".");
            self.forget_name(ino, b"..");
        }
        Some(inode)
    }

    /// Ends the deletion of `inode`, after the change that deletes it has completed or failed. From
    /// now on its number leads to what the disk has.
    pub(crate) fn end_deletion(&self, inode: &Inode) {
        if let Some(rw_mount) = &self.rw_mount {
            rw_mount.registry().end_deletion(inode);
        }
    }

    /// Deletes what [`orphans::delete`] left of `inode`, which was [marked gone](Self::end_unused).
    pub(crate) fn delete_rest(&self, inode: &Inode) {
        match self.finish_orphan(inode.ino) {
            Ok(()) => self.end_deletion(inode),
            // It stays an orphan, and is deleted at the next mount.
            Err(error) => {
                tracing::warn!(ino = inode.ino, %error, "a file without names could not be deleted");
            }
        }
    }

    /// Deletes as much of inode `ino`, which was [marked gone](Self::end_unused), as a change may.
    ///
    /// # Errors
    /// Damage, or a device error.
    pub(crate) fn delete_ended(handle: &mut AllocHandle<'_, '_>, ino: u32) -> Result<Progress> {
        orphans::delete(handle, ino, STEP_BLOCKS)
    }

    /// Deletes `inode`, to which no name leads and which has no node.
    pub(crate) fn delete(&self, inode: &Inode) {
        let Some(writable) = &inode.writable else { return };
        let Ok(rw_mount) = self.for_writing() else { return };
        let Ok(back) = Writeback::of(self) else { return };
        let _content = writable.lock_content();
        // By one thread, once: afterwards the number, and cached pages under it, are another
        // file's.
        if !writable.end() {
            return;
        }
        // From here on a look-up by number finds it only when another inode has the number.
        self.nodes.remove_if(&inode.ino, |there| std::ptr::eq(Arc::as_ptr(there), inode));
        rw_mount.registry().begin_deletion(inode);
        back.drop_pages(inode, 0..inode.size().div_ceil(PAGE) + self.units().per_block);
        let kept = rw_mount.let_go(inode);
        self.delete_rest(inode);
        drop(kept);
    }

    /// Finishes the deletions and truncations that a crash interrupted.
    ///
    /// # Errors
    /// Damage, or a failed read of the device.
    pub(crate) fn delete_orphans(&self) -> Result<()> {
        let all = self.change(|handle| {
            orphans::drop_stale(handle)?;
            orphans::list(handle)
        })?;
        all.into_iter().try_for_each(|ino| self.finish_orphan(ino))
    }

    /// Finishes orphan `ino`.
    ///
    /// # Errors
    /// Damage, or a failed read of the device.
    fn finish_orphan(&self, ino: u32) -> Result<()> {
        let step = || self.change(|handle| orphans::finish(handle, ino, STEP_BLOCKS));
        while step()? == Progress::More {}
        Ok(())
    }
}
