//! An open file.

pub(crate) mod read;
mod segments;
pub(crate) mod write;

pub use segments::{Segment, SegmentKind};

use std::io::{IoSliceMut, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::cache::PAGE;
use crate::error::{Error, Result};
use crate::file::read::ahead::Ahead;
use crate::inode::Node;
use crate::inode::extents::Extents;
use crate::io::target::Target;
use crate::options::{Advice, OpenOptions, ReadOptions};
use meantime_block::Device;
use meantime_ext4_format::inode::flags;
use meantime_ext4_format::{FileType, Metadata};
use meantime_process::lock::RwLockReadGuard;

/// An open file. It has a position for [`std::io::Read`]; [`read_at`](Self::read_at) does not use
/// it, and any thread may call it.
pub struct File {
    node: Node,
    kind: Kind,
    /// All extents, if they were loaded at open, on a mount for reading.
    pub(crate) extents: Option<Arc<Extents>>,
    pub(crate) ahead: Ahead,
    pub(crate) position: u64,
    /// Options of the open.
    pub(crate) options: OpenOptions,
    /// Number of the inode's failed writes that this file has reported.
    pub(crate) failures_seen: AtomicU64,
}

/// How the file's content is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Blocks,
    Inline,
    Directory,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File")
            .field("ino", &self.node.ino())
            .field("size", &self.size())
            .finish_non_exhaustive()
    }
}

impl File {
    pub(crate) fn open(node: Node, options: OpenOptions) -> Result<Self> {
        let file_type = node.file_type();
        let is_inline = node.inode.last_snapshot().metadata.flags & flags::INLINE_DATA != 0;
        let kind = match file_type {
            FileType::Regular if is_inline => Kind::Inline,
            FileType::Regular => Kind::Blocks,
            FileType::Directory => Kind::Directory,
            // `open` with O_NOFOLLOW fails in the same way.
            FileType::Symlink => return Err(Error::Loop),
            FileType::Character | FileType::Block | FileType::Fifo | FileType::Socket => {
                return Err(Error::Special);
            }
        };
        let preload = kind == Kind::Blocks && node.mount.options.overlap.preload;
        let extents = if preload { Some(node.inode.extents(&node.mount.volume)?) } else { None };
        // On a mount for writing they change: the inode has the current ones.
        let extents = extents.filter(|_| node.inode.writable.is_none());
        let ahead = Ahead::new(node.mount.options.read_ahead_bytes);
        let failures = node.inode.writable.as_ref().map_or(0, |writable| writable.failures());
        let failures_seen = AtomicU64::new(failures);
        Ok(Self { node, kind, extents, ahead, position: 0, options, failures_seen })
    }

    /// Returns the file's inode.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Locks the file's blocks for reading: no block is taken away while the guard is held.
    pub(crate) fn keep_blocks(&self) -> Option<RwLockReadGuard<'_, ()>> {
        self.node.inode.writable.as_ref().map(|writable| writable.keep_blocks())
    }

    /// Notes a read, unless the file was opened not to.
    #[inline(always)]
    pub(crate) fn note_access(&self) {
        if !self.options.no_access_time {
            self.node.accessed();
        }
    }

    /// Returns whether the file is open for reading.
    pub(crate) fn may_be_read(&self) -> bool {
        self.options.read || !self.options.write
    }

    /// Returns whether the content is in blocks: neither in the inode, nor that of a directory.
    pub(crate) fn is_in_blocks(&self) -> bool {
        self.kind == Kind::Blocks
    }

    /// Returns whether the content is in the inode.
    pub(crate) fn is_inline(&self) -> bool {
        self.kind == Kind::Inline
    }

    /// Returns the device of the file system.
    pub fn device(&self) -> &Device {
        self.node.mount.contexts.device()
    }

    /// Returns what `fstat` returns.
    pub fn metadata(&self) -> Metadata {
        self.node.metadata()
    }

    /// Returns the size in bytes.
    #[inline]
    pub fn size(&self) -> u64 {
        self.node.inode.size()
    }

    /// Reads into `buf` from byte `offset` on. Returns the number of bytes: fewer than asked for
    /// only at the end of the file.
    ///
    /// # Errors
    /// The errors of `pread(2)`. If a part was read before the failure, its length is returned
    /// instead.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        self.read_at_with(buf, offset, &ReadOptions::default())
    }

    /// Reads into `buf` from byte `offset` on, with `options`. Returns the number of bytes.
    ///
    /// # Errors
    /// The errors of `preadv2(2)`. If a part was read before the failure, its length is returned
    /// instead.
    #[inline]
    pub fn read_at_with(
        &self,
        buf: &mut [u8],
        offset: u64,
        options: &ReadOptions,
    ) -> Result<usize> {
        self.read_vectored_at(&mut [IoSliceMut::new(buf)], offset, options)
    }

    /// Reads into `buf` from byte `offset` on, with `options`. Returns the number of bytes, and
    /// whether all of them came without a read of the device.
    ///
    /// # Errors
    /// The errors of [`read_at_with`](Self::read_at_with).
    #[inline]
    pub fn read_at_where(
        &self,
        buf: &mut [u8],
        offset: u64,
        options: &ReadOptions,
    ) -> Result<(usize, bool)> {
        let mut bufs = [IoSliceMut::new(buf)];
        let mut target = Target::new(&mut bufs);
        self.read_to(&mut target, offset, options).map(|read| (read, !target.is_from_device))
    }

    /// Reads from byte `offset` on into several buffers, one after another, with `options`.
    ///
    /// # Errors
    /// The errors of [`read_at_with`](Self::read_at_with).
    pub fn read_vectored_at(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        offset: u64,
        options: &ReadOptions,
    ) -> Result<usize> {
        self.read_to(&mut Target::new(bufs), offset, options)
    }

    #[inline]
    fn read_to(
        &self,
        target: &mut Target<'_, '_>,
        offset: u64,
        options: &ReadOptions,
    ) -> Result<usize> {
        if !self.may_be_read() {
            return Err(Error::Invalid("the file is not open for reading"));
        }
        if self.kind == Kind::Directory {
            return Err(Error::IsDirectory);
        }
        let Some(left) = self.size().checked_sub(offset).filter(|left| *left > 0) else {
            return Ok(0);
        };
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(target.room());
        if len == 0 {
            return Ok(0);
        }
        let read = match self.kind {
            Kind::Inline => self.read_inline(target, offset, len),
            _ if options.direct => self.read_direct(target, 0, offset, len, options),
            _ => self.read_cached(target, offset, len, options),
        };
        if read.is_ok() {
            self.note_access();
        }
        read
    }

    #[cold]
    fn read_inline(&self, target: &mut Target<'_, '_>, offset: u64, len: usize) -> Result<usize> {
        let Node { mount, inode } = &self.node;
        let snapshot = inode.snapshot(&mount.volume)?;
        let data =
            mount.consistent(|| mount.volume.inline_data(&snapshot.on_disk))?.unwrap_or_default();
        // The bytes between the content in the inode and the file's size are zeroes.
        let held = data.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
        let held = &held[..held.len().min(len)];
        target.put(0, held);
        target.zero(held.len(), len - held.len());
        Ok(len)
    }

    /// Announces how the range will be read (`posix_fadvise`). If `bytes` is 0, the range extends
    /// to the end of the file.
    ///
    /// # Errors
    /// The device fails when the reads for [`Advice::WillNeed`] are started.
    pub fn advise(&self, offset: u64, bytes: u64, advice: Advice) -> Result<()> {
        if self.kind != Kind::Blocks {
            return Ok(());
        }
        let end =
            if bytes == 0 { self.size() } else { offset.saturating_add(bytes).min(self.size()) };
        match advice {
            Advice::Normal | Advice::Sequential | Advice::Random => self.ahead.advise(advice),
            Advice::WillNeed => self.fetch(offset, end)?,
            Advice::DontNeed => {
                // Partly covered pages stay, as in Linux, but the file's last page counts as a
                // whole one.
                let last = if end == self.size() { end.div_ceil(PAGE) } else { end / PAGE };
                let first = offset.div_ceil(PAGE);
                if first < last {
                    self.node
                        .mount
                        .contexts
                        .cache()
                        .drop_clean(u64::from(self.node.ino()), first..last);
                }
            }
        }
        Ok(())
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let read = self.read_at(buf, self.position)?;
        self.position += read as u64;
        Ok(read)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> std::io::Result<usize> {
        let read = self.read_vectored_at(bufs, self.position, &ReadOptions::default())?;
        self.position += read as u64;
        Ok(read)
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        let (base, by) = match to {
            SeekFrom::Start(offset) => (offset, 0),
            SeekFrom::End(by) => (self.size(), by),
            SeekFrom::Current(by) => (self.position, by),
        };
        let invalid = Error::Invalid(
            "a position before the beginning of the file, or beyond what there can be",
        );
        let position = base.checked_add_signed(by).ok_or(invalid)?;
        self.position = position;
        Ok(position)
    }
}
