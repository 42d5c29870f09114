//! Inodes that a program works with.

use std::sync::Arc;

use super::mount::Mount;
use super::shared::Inode;
use meantime_ext4_format::{FileType, Metadata};

/// An inode that somebody works with: a place to look names up from. Cloning is cheap.
///
/// One that no name leads to any more is deleted with its last node.
pub struct Node {
    pub(crate) mount: Arc<Mount>,
    pub(crate) inode: Arc<Inode>,
}

impl Clone for Node {
    fn clone(&self) -> Self {
        if let Some(writable) = &self.inode.writable {
            // What has a node is not gone.
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
    /// A node of `inode`; `None`: it is gone.
    pub(crate) fn new(mount: &Arc<Mount>, inode: &Arc<Inode>) -> Option<Self> {
        let is_there = inode.writable.as_ref().is_none_or(|writable| writable.enter());
        is_there.then(|| Self { mount: Arc::clone(mount), inode: Arc::clone(inode) })
    }

    /// Inode number.
    pub fn ino(&self) -> u32 {
        self.inode.ino
    }

    /// What it is.
    pub fn file_type(&self) -> FileType {
        self.inode.file_type
    }

    /// What `stat` tells.
    pub fn metadata(&self) -> Metadata {
        self.inode.metadata(&self.mount)
    }
}
