//! Inodes that a program works with.

use std::sync::Arc;

use super::known::Known;
use super::mount::Mount;
use meantime_ext4_format::{FileType, Metadata};

/// An inode that somebody works with: a place to look names up from. Cloning is cheap.
///
/// One that no name leads to any more is deleted with its last node.
pub struct Node {
    pub(crate) mount: Arc<Mount>,
    pub(crate) known: Arc<Known>,
}

impl Clone for Node {
    fn clone(&self) -> Self {
        if let Some(live) = &self.known.live {
            // What has a node is not gone.
            live.enter();
        }
        Self { mount: Arc::clone(&self.mount), known: Arc::clone(&self.known) }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(live) = &self.known.live
            && live.leave()
        {
            self.mount.delete(&self.known);
        }
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("ino", &self.ino()).finish_non_exhaustive()
    }
}

impl Node {
    /// A node of `known`; `None`: it is gone.
    pub(crate) fn new(mount: &Arc<Mount>, known: &Arc<Known>) -> Option<Self> {
        let is_there = known.live.as_ref().is_none_or(|live| live.enter());
        is_there.then(|| Self { mount: Arc::clone(mount), known: Arc::clone(known) })
    }

    /// Inode number.
    pub fn ino(&self) -> u32 {
        self.known.ino
    }

    /// What it is.
    pub fn file_type(&self) -> FileType {
        self.known.file_type
    }

    /// What `stat` tells.
    pub fn metadata(&self) -> Metadata {
        self.known.metadata(&self.mount)
    }
}
