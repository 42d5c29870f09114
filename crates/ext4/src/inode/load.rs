//! Reads inodes, and what they lead to, as a mount has them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, PoisonError};

use super::extents::Extents;
use super::mount::Mount;
use super::registry::Entered;
use super::shared::{Inode, Snapshot, no_extents};
use super::writable::Writable;
use crate::error::{Error, Result};
use crate::io::DeviceSource;
use crate::journal::Handle;
use meantime_ext4_format::edit::InodeEdit;
use meantime_ext4_format::{FileType, Inode as DiskInode, Metadata, Source, SourceError, Volume};

/// Largest extents, in bytes, that an inode keeps while no file is open, on a mount for reading.
const KEPT_EXTENTS_BYTES: usize = 1024;

/// Attempts at reading an inode, and what it leads to, without a concurrent change.
const CONSISTENT_TRIES: u32 = 64;

/// A source without any block: only what is in the inode itself can be parsed.
struct Nothing;

impl Source for Nothing {
    fn read(&self, _: u64, _: usize) -> Result<Arc<[u8]>, SourceError> {
        Err(SourceError::OutOfRange)
    }
}

impl Snapshot {
    fn read(volume: &Volume<DeviceSource>, ino: u32, linked: bool) -> Result<Self> {
        let read = || if linked { volume.linked_inode(ino) } else { volume.inode(ino) };
        let on_disk = volume.source().newer_blocks().consistent(read)?;
        let metadata = volume.metadata(&on_disk);
        Ok(Self { metadata, on_disk, extents: OnceLock::new(), many: no_extents() })
    }

    /// Returns the extents of the file. With `keep`, the snapshot keeps them however many there
    /// are, as on a mount for writing.
    pub(crate) fn extents(
        &self,
        volume: &Volume<DeviceSource>,
        keep: bool,
    ) -> Result<Arc<Extents>> {
        if let Some(extents) = self.extents.get() {
            return Ok(Arc::clone(extents));
        }
        let mut many = self.many.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(extents) = many.upgrade() {
            return Ok(extents);
        }
        let load = || Extents::load(volume, &self.on_disk);
        let extents = Arc::new(volume.source().newer_blocks().consistent(load)?);
        if keep || extents.bytes() <= KEPT_EXTENTS_BYTES {
            let _ = self.extents.set(Arc::clone(&extents));
        } else {
            *many = Arc::downgrade(&extents);
        }
        Ok(extents)
    }
}

impl Inode {
    /// Returns inode `ino` of `mount`. With `linked`, a directory leads to it, so it must be in
    /// use.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it is being deleted. Damage, or a failed read of the device.
    pub(crate) fn load(mount: &Mount, ino: u32, linked: bool) -> Result<Arc<Self>> {
        if let Some(inode) = mount.nodes.get(&ino) {
            return Ok(inode);
        }
        let Some(rw_mount) = &mount.rw_mount else {
            let inode = Arc::new(Self::of(Snapshot::read(&mount.volume, ino, linked)?, None));
            return Ok(mount.nodes.keep(ino, inode, 1));
        };
        let mut made = false;
        let inode = loop {
            // These numbers are taken before the read, so any later change has a later sequence.
            let (sequence, changes) = (rw_mount.last_sequence(), rw_mount.registry().changes(ino));
            let snapshot = Snapshot::read(&mount.volume, ino, linked)?;
            let writable =
                Some(Box::new(Writable::new(sequence, mount.contexts.flushes().needed_by_all())));
            // Another user may still hold the inode although the cache dropped it.
            let make = || {
                made = true;
                Arc::new(Self::of(snapshot, writable))
            };
            match rw_mount.registry().enter(ino, changes, make) {
                Entered::Inode(inode) => break inode,
                Entered::Deleted => return Err(Error::NotFound),
                // The snapshot may be of a file that had the number before.
                Entered::Changed => {}
            }
        };
        // A new inode's snapshot is current as of its entry: a later change outdates it, and an
        // earlier one would have returned `Changed`.
        if !made {
            inode.outdate();
        }
        if let Some(writable) = &inode.writable {
            writable.touched(rw_mount.last_sequence(), true);
        }
        Ok(mount.nodes.keep(ino, inode, 1))
    }

    /// Returns inode `ino`, which `handle` is making. It replaces any inode of that number in
    /// memory.
    ///
    /// # Errors
    /// Damage, or a failed read of the device.
    pub(crate) fn made(mount: &Mount, handle: &Handle<'_>, ino: u32) -> Result<Arc<Self>> {
        let rw_mount = mount.for_writing()?;
        let volume = handle.volume();
        let on_disk = volume.inode(ino)?;
        let metadata = volume.metadata(&on_disk);
        let snapshot = Snapshot { metadata, on_disk, extents: OnceLock::new(), many: no_extents() };
        let inode = Arc::new(Self::of(
            snapshot,
            Some(Box::new(Writable::new(
                rw_mount.last_sequence(),
                mount.contexts.flushes().needed_by_all(),
            ))),
        ));
        rw_mount.registry().replace(&inode);
        Ok(inode)
    }

    /// Sets the snapshot to `changed`, the result of a change of a file's inode, which had version
    /// `before` until then, so that no reader has to read it. This is optional work for a gap: it
    /// neither waits nor reads.
    pub(crate) fn renew(&self, volume: &Volume<DeviceSource>, before: u64, changed: &InodeEdit) {
        let Ok(inode) = changed.parsed(volume.superblock()) else { return };
        let Ok(mut snapshot) = self.snapshot.try_write() else { return };
        // There is one change at a time, and this one has increased the version by one.
        let version = before + 1;
        if self.version() != version || self.is_current() {
            return;
        }
        let metadata = volume.metadata(&inode);
        let extents = OnceLock::new();
        if let Ok(all) = Extents::load(&volume.with_source(Nothing), &inode) {
            let _ = extents.set(Arc::new(all));
        }
        *snapshot = Arc::new(Snapshot { metadata, on_disk: inode, extents, many: no_extents() });
        self.snapshot_version.store(version, Ordering::Release);
    }

    /// Returns the current snapshot.
    ///
    /// # Errors
    /// Damage, or a failed read of the device.
    pub(crate) fn snapshot(&self, volume: &Volume<DeviceSource>) -> Result<Arc<Snapshot>> {
        if self.is_current() {
            return Ok(self.last_snapshot());
        }
        let mut snapshot = self.snapshot.write().unwrap_or_else(PoisonError::into_inner);
        if !self.is_current() {
            // The version is taken before the read: a change from now on makes the snapshot old
            // again.
            let version = self.version();
            let read = Snapshot::read(volume, self.ino, false)?;
            // Only writers know the size of a file that is written to.
            if self.file_type != FileType::Regular || self.writable.is_none() {
                self.set_size(read.metadata.size);
            }
            *snapshot = Arc::new(read);
            self.snapshot_version.store(version, Ordering::Release);
        }
        Ok(Arc::clone(&snapshot))
    }

    /// Returns what `read` makes of the inode and the metadata that it leads to, both from one
    /// state of the file system. It may be called several times.
    ///
    /// The errors of `read`. Fails also if the inode cannot be read.
    pub(crate) fn consistent<T, E: Into<Error>>(
        &self,
        volume: &Volume<DeviceSource>,
        mut read: impl FnMut(&DiskInode) -> Result<T, E>,
    ) -> Result<T> {
        for _ in 0..CONSISTENT_TRIES {
            let version = self.version();
            let snapshot = self.snapshot(volume)?;
            let result = volume.source().newer_blocks().consistent(|| read(&snapshot.on_disk));
            // A change that `read` saw, and that changed the inode, has changed the version by now.
            if self.version() == version {
                return result.map_err(Into::into);
            }
        }
        // The inode changes all the time: read it once more together with what it leads to.
        let newer_blocks = volume.source().newer_blocks();
        newer_blocks.consistent(|| read(&volume.inode(self.ino)?).map_err(Into::into))
    }

    /// Returns what `stat` returns.
    pub(crate) fn metadata(&self, volume: &Volume<DeviceSource>) -> Metadata {
        let Some(writable) = &self.writable else { return self.last_snapshot().metadata };
        // If it cannot be read, the last snapshot is returned.
        let snapshot = self.snapshot(volume).unwrap_or_else(|_| self.last_snapshot());
        let mut metadata = snapshot.metadata;
        if self.file_type == FileType::Regular {
            metadata.size = self.size();
        }
        let pages = writable.pages();
        pages.times.shown(&mut metadata);
        if !volume.superblock().has_nanoseconds() {
            // As on the disk: a time must not change when it is stored.
            for time in [&mut metadata.accessed, &mut metadata.modified, &mut metadata.changed] {
                time.nanoseconds = 0;
            }
        }
        metadata.blocks_512 += pages.delayed.len() as u64 * u64::from(metadata.block_bytes / 512);
        metadata
    }

    /// Returns the extents of the file.
    pub(crate) fn extents(&self, volume: &Volume<DeviceSource>) -> Result<Arc<Extents>> {
        self.snapshot(volume)?.extents(volume, self.writable.is_some())
    }
}
