//! A mount, and how its metadata are read and changed.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError};

use super::access::Accesses;
use super::shared::Inode;
use super::units::Units;
use super::writable_mount::WritableMount;
use crate::alloc::AllocHandle;
use crate::bounded::Bounded;
use crate::counters::Counts;
use crate::error::{Error, Result};
use crate::io::{DeviceSource, IoContexts};
use crate::options::MountOptions;
use meantime_ext4_format::dirent::NAME_BYTES_MAX;
use meantime_ext4_format::{Recovered, Volume};
use meantime_hw::Clock;
use meantime_process::lock::{Mutex, MutexGuard};

/// A mounted file system.
pub(crate) struct Mount {
    pub(crate) volume: Volume<DeviceSource>,
    pub(crate) contexts: Arc<IoContexts>,
    pub(crate) nodes: Bounded<u32, Arc<Inode>>,
    /// Inode numbers by [`NameKey`]; 0 for a name that was changed, which is looked up again. (So
    /// it keeps its place, also for when it leads somewhere again.)
    pub(crate) names: Bounded<Box<[u8]>, u32>,
    /// Number of changes of names. A look-up that began before the last one must not be cached.
    pub(crate) names_changed: Mutex<u64>,
    /// Only on a mount for writing.
    pub(crate) rw_mount: Option<WritableMount>,
    pub(crate) options: MountOptions,
    /// Log2 of the block size.
    pub(crate) block_shift: u32,
    /// Whether recovery keeps any block from the journal in memory.
    pub(crate) overlaid: bool,
    pub(crate) recovered: Option<Recovered>,
    pub(crate) counts: Counts,
    pub(crate) clock: Clock,
    pub(crate) accesses: Accesses,
    /// Whether the work in the gaps is timed.
    pub(crate) timed: AtomicBool,
}

impl Mount {
    pub(crate) fn lock_names(&self) -> MutexGuard<'_, u64> {
        // A plain number: valid after a panic.
        self.names_changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn names_changed(&self) -> u64 {
        *self.lock_names()
    }

    /// Caches that `name` in directory `parent` leads to `ino`, as a complete change has made it.
    /// Names had been changed `before` times when that change was made. If they were changed since,
    /// nothing is cached, since the name may lead elsewhere. (A later change that has not reported
    /// its names yet has it forgotten.)
    pub(crate) fn learn_name(&self, parent: u32, name: &[u8], ino: u32, before: u64) {
        let mut changed = self.lock_names();
        let is_newest = *changed == before;
        *changed += 1;
        let key = NameKey::new(parent, name);
        if is_newest {
            self.names.put(key.as_bytes(), (ino, key.weight()), |_| true);
        } else {
            key.forget(self);
        }
    }

    /// Forgets where `name` in directory `parent` leads, because it was changed.
    pub(crate) fn forget_name(&self, parent: u32, name: &[u8]) {
        let mut changed = self.lock_names();
        *changed += 1;
        NameKey::new(parent, name).forget(self);
    }

    /// Returns what is needed to change anything.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]: mounted for reading, or the mount has ended. The journal's failure.
    pub(crate) fn for_writing(&self) -> Result<&WritableMount> {
        let rw_mount = self.rw_mount.as_ref().ok_or(Error::ReadOnly)?;
        rw_mount.usable()?;
        Ok(rw_mount)
    }

    /// Returns the sizes of blocks and pages.
    pub(crate) fn units(&self) -> Units {
        Units::new(self.block_shift)
    }

    /// Returns what `read` returns when it sees each change as a whole or not at all. It may be
    /// called several times.
    pub(crate) fn consistent<T>(&self, read: impl FnMut() -> T) -> T {
        self.volume.source().newer_blocks().consistent(read)
    }

    /// Changes metadata by `work`: as a whole, or not at all if it fails.
    ///
    /// # Errors
    /// Those of `work`, and of the journal. [`Error::ReadOnly`]: mounted for reading.
    pub(crate) fn change<T>(
        &self,
        work: impl FnMut(&mut AllocHandle<'_, '_>) -> Result<T>,
    ) -> Result<T> {
        self.rw_mount.as_ref().ok_or(Error::ReadOnly)?.change(work)
    }

    /// Drops `inode`, which is gone, from memory: the next look-up of its number reads the disk.
    pub(crate) fn forget_inode(&self, inode: &Inode) {
        self.nodes.remove_if(&inode.ino, |there| std::ptr::eq(Arc::as_ptr(there), inode));
        if let Some(rw_mount) = &self.rw_mount {
            rw_mount.registry().remove_this(inode);
        }
    }

    /// Drops the inode of number `ino` from memory, because the number is given to another.
    pub(crate) fn forget_node(&self, ino: u32) {
        self.nodes.remove(&ino);
        if let Some(rw_mount) = &self.rw_mount {
            rw_mount.registry().remove(ino);
        }
    }
}

/// The key of a cached name: the directory's number and the name.
pub(crate) struct NameKey {
    room: [u8; 4 + NAME_BYTES_MAX],
    bytes: usize,
}

impl NameKey {
    /// Returns the key of `name`, of at most 255 bytes, in directory `parent`.
    pub(crate) fn new(parent: u32, name: &[u8]) -> Self {
        let mut room = [0; 4 + NAME_BYTES_MAX];
        let bytes = 4 + name.len();
        room[..4].copy_from_slice(&parent.to_le_bytes());
        room[4..bytes].copy_from_slice(name);
        Self { room, bytes }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.room[..self.bytes]
    }

    /// Returns where the name leads, if that is cached.
    pub(crate) fn get(&self, mount: &Mount) -> Option<u32> {
        mount.names.get(self.as_bytes()).filter(|ino| *ino != 0)
    }

    /// Caches that the name leads to `ino`, as a look-up has found, unless it is known already.
    /// Names are locked.
    pub(crate) fn learn(&self, mount: &Mount, ino: u32) {
        mount.names.put(self.as_bytes(), (ino, self.weight()), |there| *there == 0);
    }

    fn forget(&self, mount: &Mount) {
        mount.names.retire(self.as_bytes(), 0);
    }

    fn weight(&self) -> usize {
        self.bytes + 64
    }
}
