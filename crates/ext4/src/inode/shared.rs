//! Inodes that somebody works with, or did lately.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, Weak};

use super::extents::Extents;
use super::mount::Mount;
use super::writable::{Entered, Writable};
use crate::error::Error;
use crate::journal::Handle;
use meantime_ext4_format::edit::InodeEdit;
use meantime_ext4_format::{FileType, Inode as DiskInode, Metadata, Source, SourceError};
use meantime_process::lock::{Mutex, Rank, RwLock};

/// An inode whose extents take at most this, in bytes, keeps them when no file is open.
const KEPT_EXTENTS_BYTES: usize = 1024;

/// Of how many inodes, beside those that are in use, a mount keeps times of reading that the disk
/// does not have.
pub(crate) const NODES_KEPT: usize = 16 << 10;

/// How many inodes a mount keeps beside those that are in use, if its page cache has `cache_bytes`:
/// one for each page, about, within limits. (One takes about 1 KiB.)
pub(crate) fn nodes_kept(cache_bytes: usize) -> usize {
    (cache_bytes >> 12).clamp(16 << 10, 128 << 10)
}

/// How often what an inode leads to is read anew because the inode was changed meanwhile.
const CONSISTENT_TRIES: u32 = 64;

/// No block of metadata at all: what has to be found elsewhere than in an inode is not found.
struct Nothing;

impl Source for Nothing {
    fn read(&self, _: u64, _: usize) -> Result<Arc<[u8]>, SourceError> {
        Err(SourceError::NotHere)
    }
}

/// An inode. There is one for each number at a time.
pub(crate) struct Inode {
    pub(crate) ino: u32,
    pub(crate) file_type: FileType,
    /// Size of the content in bytes, as readers see it.
    size: AtomicU64,
    /// The mount's number of when its time of reading was last seen to; 0: it has to be.
    pub(crate) access_noted: AtomicU32,
    snapshot: RwLock<Arc<Snapshot>>,
    /// How often the inode was changed; and how often when `snapshot` was what it is. (At least: a
    /// change that comes while it is read may be in it.)
    version: AtomicU64,
    snapshot_version: AtomicU64,
    /// On a mount for writing.
    pub(crate) writable: Option<Box<Writable>>,
}

/// An inode as it was read, and checked.
pub(crate) struct Snapshot {
    pub(crate) metadata: Metadata,
    pub(crate) on_disk: DiskInode,
    extents: OnceLock<Arc<Extents>>,
    /// Of a file in many pieces: as long as somebody has it open.
    many: Mutex<Weak<Extents>>,
}

/// Nobody has the extents of a file in many pieces.
fn no_extents() -> Mutex<Weak<Extents>> {
    Mutex::new(Rank::InodeExtents, Weak::new())
}

impl Snapshot {
    fn read(mount: &Mount, ino: u32, linked: bool) -> Result<Self, Error> {
        let on_disk = mount.consistent(|| {
            if linked { mount.volume.linked_inode(ino) } else { mount.volume.inode(ino) }
        })?;
        let metadata = mount.volume.metadata(&on_disk);
        Ok(Self { metadata, on_disk, extents: OnceLock::new(), many: no_extents() })
    }

    /// Where its blocks are.
    pub(crate) fn extents(&self, mount: &Mount) -> Result<Arc<Extents>, Error> {
        if let Some(extents) = self.extents.get() {
            return Ok(Arc::clone(extents));
        }
        let mut many = self.many.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(extents) = many.upgrade() {
            return Ok(extents);
        }
        let extents = Arc::new(mount.consistent(|| Extents::load(&mount.volume, &self.on_disk))?);
        if mount.options.write || extents.bytes() <= KEPT_EXTENTS_BYTES {
            let _ = self.extents.set(Arc::clone(&extents));
        } else {
            *many = Arc::downgrade(&extents);
        }
        Ok(extents)
    }
}

impl Inode {
    /// Inode `ino` of `mount`: `linked` if a directory leads to it, which has to be in use then.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it is being deleted; damage, or the device.
    pub(crate) fn load(mount: &Mount, ino: u32, linked: bool) -> Result<Arc<Self>, Error> {
        if let Some(inode) = mount.nodes.get(&ino) {
            return Ok(inode);
        }
        let Some(writer) = &mount.writer else {
            let inode = Arc::new(Self::of(Snapshot::read(mount, ino, linked)?, None));
            return Ok(mount.nodes.keep(ino, inode, 1));
        };
        let mut made = false;
        let inode = loop {
            // Before it is read: what changes it from now on has a later one.
            let (sequence, changes) = (writer.last_sequence(), writer.registry().changes(ino));
            let snapshot = Snapshot::read(mount, ino, linked)?;
            let writable =
                Some(Box::new(Writable::new(sequence, mount.contexts.flushes().all_landed())));
            // Somebody has it perhaps, though it is no longer kept.
            let make = || {
                made = true;
                Arc::new(Self::of(snapshot, writable))
            };
            match writer.registry().enter(ino, changes, make) {
                Entered::Inode(inode) => break inode,
                Entered::Deleted => return Err(Error::NotFound),
                // What was read is of a file that was there before, perhaps.
                Entered::Changed => {}
            }
        };
        // What was read for one that is new is as it was when that was entered: any change since
        // would have been told of it, and one before would have been noticed.
        if !made {
            inode.outdate();
        }
        if let Some(writable) = &inode.writable {
            writable.touched(writer.last_sequence(), true);
        }
        Ok(mount.nodes.keep(ino, inode, 1))
    }

    /// Inode `ino`, which is being made by `handle`: none of its number is known.
    ///
    /// # Errors
    /// Damage, or the device.
    pub(crate) fn made(mount: &Mount, handle: &Handle<'_>, ino: u32) -> Result<Arc<Self>, Error> {
        let writer = mount.writer()?;
        let volume = handle.volume();
        let on_disk = volume.inode(ino)?;
        let metadata = volume.metadata(&on_disk);
        let snapshot = Snapshot { metadata, on_disk, extents: OnceLock::new(), many: no_extents() };
        let inode = Arc::new(Self::of(
            snapshot,
            Some(Box::new(Writable::new(
                writer.last_sequence(),
                mount.contexts.flushes().all_landed(),
            ))),
        ));
        writer.registry().replace(&inode);
        Ok(inode)
    }

    fn of(snapshot: Snapshot, writable: Option<Box<Writable>>) -> Self {
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

    /// Who writes to it says how large it is now.
    pub(crate) fn set_size(&self, bytes: u64) {
        self.size.store(bytes, Ordering::Release);
    }

    /// Something was changed.
    pub(crate) fn outdate(&self) {
        self.version.fetch_add(1, Ordering::AcqRel);
        self.forget_access();
    }

    /// Its next read may have to be noted: a time has changed.
    pub(crate) fn forget_access(&self) {
        if self.access_noted.load(Ordering::Relaxed) != 0 {
            self.access_noted.store(0, Ordering::SeqCst);
        }
    }

    /// How often it was changed. (What was found by a [`Snapshot`] of this version is right, if it is
    /// looked at afterwards.)
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Whether `snapshot` is what the file system has.
    fn is_current(&self) -> bool {
        self.snapshot_version.load(Ordering::Acquire) == self.version()
    }

    /// Has the snapshot be `changed`, what a change has made of the inode of a file, which was of
    /// version `before` until then: so that nobody has to read it. Work for the gap, which waits
    /// for nobody and reads nothing: it may also not be done.
    pub(crate) fn renew(&self, mount: &Mount, before: u64, changed: &InodeEdit) {
        let Ok(inode) = changed.parsed(mount.volume.superblock()) else { return };
        let Ok(mut snapshot) = self.snapshot.try_write() else { return };
        // (Nobody else changes it before the change is done, and that makes it one version more.)
        let version = before + 1;
        if self.version() != version || self.is_current() {
            return;
        }
        let metadata = mount.volume.metadata(&inode);
        let extents = OnceLock::new();
        if let Ok(all) = Extents::load(&mount.volume.with_source(Nothing), &inode) {
            let _ = extents.set(Arc::new(all));
        }
        *snapshot = Arc::new(Snapshot { metadata, on_disk: inode, extents, many: no_extents() });
        self.snapshot_version.store(version, Ordering::Release);
    }

    /// What it was when it was read last.
    pub(crate) fn last_snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What it is.
    ///
    /// # Errors
    /// Damage, or the device.
    pub(crate) fn snapshot(&self, mount: &Mount) -> Result<Arc<Snapshot>, Error> {
        if self.is_current() {
            return Ok(self.last_snapshot());
        }
        let mut snapshot = self.snapshot.write().unwrap_or_else(PoisonError::into_inner);
        if !self.is_current() {
            // Before it is read: what changes it from now on makes it old again.
            let version = self.version();
            let read = Snapshot::read(mount, self.ino, false)?;
            // Of what is written to it alone its writers know.
            if self.file_type != FileType::Regular || self.writable.is_none() {
                self.set_size(read.metadata.size);
            }
            *snapshot = Arc::new(read);
            self.snapshot_version.store(version, Ordering::Release);
        }
        Ok(Arc::clone(&snapshot))
    }

    /// What `read` makes of the inode and of the metadata that it leads to, both from one state of
    /// the file system. It may be called several times.
    ///
    /// # Errors
    /// Those of `read`; the inode cannot be read.
    pub(crate) fn consistent<T, E: Into<Error>>(
        &self,
        mount: &Mount,
        mut read: impl FnMut(&DiskInode) -> Result<T, E>,
    ) -> Result<T, Error> {
        for _ in 0..CONSISTENT_TRIES {
            let version = self.version();
            let snapshot = self.snapshot(mount)?;
            let result = mount.consistent(|| read(&snapshot.on_disk));
            // A change that `read` saw, and that changed the inode, has outdated it by then.
            if self.version() == version {
                return result.map_err(Into::into);
            }
        }
        // It changes all the time. One more read of the inode, then, with what it leads to.
        mount.consistent(|| read(&mount.volume.inode(self.ino)?).map_err(Into::into))
    }

    /// What `stat` tells.
    pub(crate) fn metadata(&self, mount: &Mount) -> Metadata {
        let Some(writable) = &self.writable else { return self.last_snapshot().metadata };
        // If it cannot be read it is as it was.
        let snapshot = self.snapshot(mount).unwrap_or_else(|_| self.last_snapshot());
        let mut metadata = snapshot.metadata;
        if self.file_type == FileType::Regular {
            metadata.size = self.size();
        }
        let pages = writable.pages();
        pages.times.shown(&mut metadata);
        metadata.blocks_512 += pages.delayed.len() as u64 * u64::from(metadata.block_bytes / 512);
        metadata
    }

    /// Where its blocks are.
    pub(crate) fn extents(&self, mount: &Mount) -> Result<Arc<Extents>, Error> {
        self.snapshot(mount)?.extents(mount)
    }
}
