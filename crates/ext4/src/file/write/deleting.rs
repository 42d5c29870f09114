//! Inodes that lose their last name while nobody has them: the change that takes the name deletes
//! them, so that they are no orphans between.

use std::sync::Arc;

use crate::alloc::Allocator;
use crate::error::Error;
use crate::file::read::cached::PAGE;
use crate::inode::Mount;
use crate::inode::known::Known;
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
    pub(crate) fn end_unused(&self, ino: u32) -> Option<Arc<Known>> {
        let writer = self.writer().ok()?;
        let known = Known::load(self, ino, false).ok()?;
        let live = known.live.as_ref()?;
        let pages = known.size().div_ceil(PAGE) + self.units().per_block;
        // Held: whoever makes a page dirty has the inode all the while.
        let clean = live.pages();
        if pages > FEW_PAGES || !clean.are_clean() || !live.end_unused() {
            return None;
        }
        drop(clean);
        self.nodes.remove_if(&ino, |there| Arc::ptr_eq(there, &known));
        writer.registry().begin_deletion(&known);
        drop(writer.let_go(&known));
        self.contexts.cache().invalidate(u64::from(ino), 0..pages);
        if known.file_type == FileType::Directory {
            // Another directory may have its number as soon as the change is visible.
            self.forget_name(ino, b".");
            self.forget_name(ino, b"..");
        }
        Some(known)
    }

    /// The change that deletes `known`, which was [ended](Self::end_unused), is complete, or has
    /// failed. Whoever looks for the number from now on reads what the disk has.
    pub(crate) fn end_deletion(&self, known: &Known) {
        if let Some(writer) = &self.writer {
            writer.registry().end_deletion(known);
        }
    }

    /// Goes on with what [`orphans::delete`] left of inode `known`, which was
    /// [ended](Self::end_unused).
    pub(crate) fn delete_rest(&self, known: &Known) {
        match self.finish_orphan(known.ino) {
            Ok(()) => self.end_deletion(known),
            // As in `delete`.
            Err(error) => {
                tracing::warn!(ino = known.ino, %error, "a file without names could not be deleted");
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
