//! Inodes that lose their last name while nobody has them: the change that takes the name deletes
//! them, so that they are no orphans between.

use std::sync::Arc;

use crate::alloc::Allocator;
use crate::error::Error;
use crate::file::read::cached::PAGE;
use crate::inode::Mount;
use crate::inode::shared::Inode;
use crate::journal::Handle;
use crate::ops::{Progress, orphans};
use meantime_ext4_format::FileType;

/// A file of more pages than this is deleted after the change, which keeps others off.
const FEW_PAGES: u64 = 256;

/// Blocks that the change changes at most, about, to delete an inode.
const STEP_BLOCKS: usize = 64;

impl Mount {
    /// Ends inode `ino`, from which a change under way takes its last name, if nobody has it and the
    /// disk has everything of it: from now on nobody gets at it. `None`: it is not so, or would take
    /// long to see to. Nothing is waited for.
    ///
    /// The deletion is to be [ended](Self::end_deletion), whether the change succeeds or fails.
    pub(crate) fn end_unused(&self, ino: u32) -> Option<Arc<Inode>> {
        let writer = self.writer().ok()?;
        let inode = Inode::load(self, ino, false).ok()?;
        let writable = inode.writable.as_ref()?;
        let pages = inode.size().div_ceil(PAGE) + self.units().per_block;
        // Held: whoever makes a page dirty has the inode all the while.
        let clean = writable.pages();
        if pages > FEW_PAGES || !clean.are_clean() || !writable.end_unused() {
            return None;
        }
        drop(clean);
        self.nodes.remove_if(&ino, |there| Arc::ptr_eq(there, &inode));
        writer.registry().begin_deletion(&inode);
        drop(writer.let_go(&inode));
        self.contexts.cache().invalidate(u64::from(ino), 0..pages);
        if inode.file_type == FileType::Directory {
            // Another directory may have its number as soon as the change is visible.
            self.forget_name(ino, b".");
            self.forget_name(ino, b"..");
        }
        Some(inode)
    }

    /// The change that deletes `inode`, which was [ended](Self::end_unused), is complete, or has
    /// failed. Whoever looks for the number from now on reads what the disk has.
    pub(crate) fn end_deletion(&self, inode: &Inode) {
        if let Some(writer) = &self.writer {
            writer.registry().end_deletion(inode);
        }
    }

    /// Goes on with what [`orphans::delete`] left of inode `inode`, which was
    /// [ended](Self::end_unused).
    pub(crate) fn delete_rest(&self, inode: &Inode) {
        match self.finish_orphan(inode.ino) {
            Ok(()) => self.end_deletion(inode),
            // As in `delete`.
            Err(error) => {
                tracing::warn!(ino = inode.ino, %error, "a file without names could not be deleted");
            }
        }
    }

    /// As much as a change may delete at once of inode `ino`, which was
    /// [ended](Self::end_unused).
    ///
    /// # Errors
    /// As [`orphans::delete`].
    pub(crate) fn delete_ended(
        handle: &mut Handle<'_>,
        allocator: &Allocator,
        ino: u32,
    ) -> Result<Progress, Error> {
        orphans::delete(handle, allocator, ino, STEP_BLOCKS)
    }
}
