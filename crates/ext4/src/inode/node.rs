//! Inodes that a program works with.

use std::sync::Arc;

use super::mount::Mount;
use super::shared::Inode;
use meantime_ext4_format::{FileType, Metadata};

/// A reference to an inode, from which names can be looked up. Cloning is cheap.
///
/// An inode without a name is deleted when its last node is dropped.
pub struct Node {
    pub(crate) mount: Arc<Mount>,
    pub(crate) inode: Arc<Inode>,
}

impl Clone for Node {
    fn clone(&self) -> Self {
        if let Some(writable) = &self.inode.writable {
            // This cannot fail, because an inode that has a node is not gone.
            writable.enter();
        }
        Self { mount: Arc::clone(&self.mount), inode: Arc::clone(&self.inode) }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(writable) = &self.inode.writable
            && writable.leave()
        {
            self.mount.delete(&self.inode);
        }
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("ino", &self.ino()).finish_non_exhaustive()
    }
}

impl Node {
    /// Returns a node of `inode`, or `None` if the inode is gone.
    pub(crate) fn new(mount: &Arc<Mount>, inode: &Arc<Inode>) -> Option<Self> {
        let is_there = inode.writable.as_ref().is_none_or(|writable| writable.enter());
        is_there.then(|| Self { mount: Arc::clone(mount), inode: Arc::clone(inode) })
    }

    /// Inode number.
    pub fn ino(&self) -> u32 {
        self.inode.ino
    }

    /// Type of the inode.
    pub fn file_type(&self) -> FileType {
        self.inode.file_type
    }

    /// Notes a read of the content. If it was noted already, this is one comparison.
    #[inline(always)]
    pub(crate) fn accessed(&self) {
        if !self.mount.accesses.are_noted(&self.inode) {
            self.note_access();
        }
    }

    #[cold]
    #[inline(never)]
    fn note_access(&self) {
        let Self { mount, inode } = self;
        if let Some(rw_mount) = &mount.rw_mount {
            mount.accesses.note(inode, rw_mount, &mount.volume, &mount.clock);
        }
    }

    /// Returns what `stat` returns.
    pub fn metadata(&self) -> Metadata {
        self.inode.metadata(&self.mount.volume)
    }
}
