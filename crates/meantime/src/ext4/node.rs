//! Inodes that somebody works with, or did lately.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use super::error::Error;
use super::format::Inode;
use super::fs::Mount;
use super::metadata::Metadata;
use super::read::place::Extents;

/// An inode whose extents take at most this, in bytes, keeps them when no file is open.
const KEPT_EXTENTS_BYTES: usize = 1024;

/// How many inodes a mount keeps beside those that are in use.
pub(super) const NODES_KEPT: usize = 16 << 10;

/// An inode, checked.
pub(super) struct Known {
    pub(super) metadata: Metadata,
    pub(super) inode: Inode,
    extents: OnceLock<Arc<Extents>>,
    /// Of a file in many pieces: as long as somebody has it open.
    many: Mutex<Weak<Extents>>,
}

impl Known {
    /// Inode `ino` of `mount`: `linked` if a directory leads to it, which has to be in use then.
    pub(super) fn load(mount: &Mount, ino: u32, linked: bool) -> Result<Arc<Self>, Error> {
        if let Some(known) = mount.nodes.get(&ino) {
            return Ok(known);
        }
        let inode = if linked { mount.volume.linked_inode(ino)? } else { mount.volume.inode(ino)? };
        let metadata = mount.volume.metadata(&inode);
        let known = Self { metadata, inode, extents: OnceLock::new(), many: Mutex::default() };
        Ok(mount.nodes.keep(ino, Arc::new(known), 1))
    }

    /// Where its blocks are.
    pub(super) fn extents(&self, mount: &Mount) -> Result<Arc<Extents>, Error> {
        if let Some(extents) = self.extents.get() {
            return Ok(Arc::clone(extents));
        }
        let mut many = self.many.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(extents) = many.upgrade() {
            return Ok(extents);
        }
        let extents = Arc::new(Extents::load(&mount.volume, &self.inode)?);
        if extents.bytes() <= KEPT_EXTENTS_BYTES {
            let _ = self.extents.set(Arc::clone(&extents));
        } else {
            *many = Arc::downgrade(&extents);
        }
        Ok(extents)
    }
}
