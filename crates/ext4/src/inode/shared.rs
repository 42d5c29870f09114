//! Inodes that are in use, or were recently.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, Weak};

use super::extents::Extents;
use super::writable::Writable;
use meantime_ext4_format::{FileType, Inode as DiskInode, Metadata};
use meantime_process::lock::{Mutex, Rank, RwLock};

/// Inodes, beside those in use, for which a mount keeps access times that are not on the disk.
pub(crate) const NODES_KEPT: usize = 16 << 10;

/// Returns how many inodes a mount with a page cache of `cache_bytes` caches beside those in use:
/// about one for each page, within limits. One takes about 1 KiB.
pub(crate) fn nodes_kept(cache_bytes: usize) -> usize {
    (cache_bytes >> 12).clamp(16 << 10, 128 << 10)
}

/// An inode in memory. There is one for each number at a time.
pub(crate) struct Inode {
    pub(crate) ino: u32,
    pub(crate) file_type: FileType,
    /// Size of the content in bytes, as readers see it.
    size: AtomicU64,
    /// The mount's access epoch when the access time was last checked; 0: it has to be checked.
    pub(crate) access_noted: AtomicU32,
    pub(super) snapshot: RwLock<Arc<Snapshot>>,
    /// Number of changes of the inode, and a lower bound of it for `snapshot`, which may already
    /// include a change that came while it was read.
    version: AtomicU64,
    pub(super) snapshot_version: AtomicU64,
    /// Only on a mount for writing.
    pub(crate) writable: Option<Box<Writable>>,
}

/// An inode as it was read and verified.
pub(crate) struct Snapshot {
    pub(crate) metadata: Metadata,
    pub(crate) on_disk: DiskInode,
    pub(super) extents: OnceLock<Arc<Extents>>,
    /// Extents of a file in many pieces, as long as an open file holds them.
    pub(super) many: Mutex<Weak<Extents>>,
}

/// Returns the empty value of [`Snapshot::many`].
pub(super) fn no_extents() -> Mutex<Weak<Extents>> {
    Mutex::new(Rank::InodeExtents, Weak::new())
}

impl Inode {
    /// Returns the inode that `snapshot` is of.
    pub(super) fn of(snapshot: Snapshot, writable: Option<Box<Writable>>) -> Self {
        let Metadata { ino, file_type, size, .. } = snapshot.metadata;
        Self {
            ino,
            file_type,
            size: AtomicU64::new(size),
            access_noted: AtomicU32::new(0),
            snapshot: RwLock::new(Rank::InodeSnapshot, Arc::new(snapshot)),
            version: AtomicU64::new(0),
            snapshot_version: AtomicU64::new(0),
            writable,
        }
    }

    /// Size of the content, in bytes.
    #[inline(always)]
    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Sets the size. Only the holder of the content lock calls this, if the file can be written
    /// to.
    pub(crate) fn set_size(&self, bytes: u64) {
        self.size.store(bytes, Ordering::Release);
    }

    /// Notes that the inode was changed.
    pub(crate) fn outdate(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
        self.forget_access();
    }

    /// Makes the next read check the access time, because a time was changed.
    pub(crate) fn forget_access(&self) {
        if self.access_noted.load(Ordering::Relaxed) != 0 {
            self.access_noted.store(0, Ordering::SeqCst);
        }
    }

    /// Returns the number of changes. What a [`Snapshot`] of this version leads to is valid if the
    /// version is still the same afterwards.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Returns whether `snapshot` is current.
    #[inline]
    pub(super) fn is_current(&self) -> bool {
        self.snapshot_version.load(Ordering::Acquire) == self.version()
    }

    /// Returns the snapshot that was read last, which may be old.
    pub(crate) fn last_snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.read().unwrap_or_else(PoisonError::into_inner))
    }
}
