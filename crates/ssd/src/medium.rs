//! The SSD's storage: anonymous memory, or a mapped file.
//!
//! All namespaces share one medium, split by offset. Only the controller uses the medium: nothing
//! outside the SSD gets a pointer into it, and a file is locked against a second SSD.

#![expect(unsafe_code)]

use std::fmt;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::marker::PhantomData;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::error::SsdError;
use crate::sys;

/// The granularity of a medium's size in bytes: the smallest block format.
pub const MEDIUM_ALIGN_BYTES: u64 = 512;
/// The granularity in which memory is returned to the kernel.
const PAGE_BYTES: u64 = 4096;

/// The bytes after the namespaces.
pub struct Medium {
    base: NonNull<u8>,
    len: usize,
    file: Option<(File, PathBuf)>,
    created: bool,
    read_only: bool,
}

/// How many times locking a file is tried, 1 ms apart. A lock may be held only briefly: a forked
/// child shares its parent's locks until its exec, and a process that locks a file before its
/// creator has filled it releases the lock again.
const LOCK_TRIES: u32 = 200;

/// Returns the error of a system call on the file at `path`.
fn failed(path: &Path, attempted: &'static str) -> impl Fn(io::Error) -> SsdError {
    let path = path.to_owned();
    move |source| SsdError::Io { path: path.clone(), attempted, source }
}

/// Locks `file` as `how` says, which must be non-blocking.
fn lock(file: &File, path: &Path, how: FlockOperation) -> Result<(), SsdError> {
    let mut locked = flock(file, how);
    for _ in 0..LOCK_TRIES {
        if locked != Err(Errno::WOULDBLOCK) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
        locked = flock(file, how);
    }
    locked.map_err(|error| match error {
        Errno::WOULDBLOCK => {
            let by = meantime_process::locks::holders_of(path);
            SsdError::InUse { path: path.to_owned(), by }
        }
        error => failed(path, "locking the medium's file")(error.into()),
    })
}

/// A file that was just created. It is removed again when this is dropped.
struct Created<'p> {
    path: &'p Path,
    /// Its device and inode number.
    identity: Option<(u64, u64)>,
}

impl Drop for Created<'_> {
    fn drop(&mut self) {
        // The path may name a file that another process has put there.
        let there = std::fs::symlink_metadata(self.path).ok().map(|meta| (meta.dev(), meta.ino()));
        if there.is_some() && there == self.identity {
            let _ = std::fs::remove_file(self.path);
        }
    }
}

// SAFETY: a mapping belongs to the process, not to a thread, and `Medium` owns it alone.
unsafe impl Send for Medium {}

/// Contiguous bytes of the medium, mapped for as long as it is borrowed.
#[derive(Clone, Copy)]
pub(crate) struct MediumSpan<'m> {
    ptr: NonNull<u8>,
    len: usize,
    medium: PhantomData<&'m Medium>,
}

impl Medium {
    /// Allocates anonymous memory of `bytes` bytes, all zero, in huge pages where the kernel has
    /// them. Pages are taken when they are first touched.
    ///
    /// # Errors
    /// Fails if `bytes` is 0 or not a multiple of 512, or if there is no address space for it.
    pub fn dram(bytes: u64) -> Result<Self, SsdError> {
        let what = || "DRAM medium".to_owned();
        let len = checked_len(bytes, what)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address that the kernel chooses.
        let mapped = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )
        };
        let base = mapped.map_err(|e| SsdError::Size {
            what: what(),
            problem: format!(
                "{bytes} bytes of memory cannot be mapped ({e}); choose a smaller one"
            ),
        })?;
        // SAFETY: the range was mapped just above. Huge pages are a wish; ordinary ones work as
        // well.
        let _ = unsafe { rustix::mm::madvise(base, len, Advice::LinuxHugepage) };
        let base = NonNull::new(base.cast()).expect("mmap gives no null mapping");
        Ok(Self { base, len, file: None, created: false, read_only: false })
    }

    /// Allocates memory that holds `bytes`, whose length is a multiple of 512.
    ///
    /// # Errors
    /// Fails if `bytes` is empty or its length is not a multiple of 512, or if there is no address
    /// space for it.
    pub fn of(bytes: &[u8]) -> Result<Self, SsdError> {
        let medium = Self::dram(bytes.len() as u64)?;
        medium.span(0, bytes.len()).write(bytes);
        Ok(medium)
    }

    /// Opens a regular file, mapped read-only, and shared with other SSDs that only read it. Its
    /// namespaces are write protected.
    ///
    /// # Errors
    /// [`SsdError::InUse`] if an SSD that may write has it, [`SsdError::NotAFile`] for directories
    /// and devices, [`SsdError::Size`] if the size does not fit, [`SsdError::Io`] if a system call
    /// failed.
    pub fn file_read_only(path: impl AsRef<Path>) -> Result<Self, SsdError> {
        let path = path.as_ref();
        // This is checked before the file is opened, because opening a device or a FIFO can have
        // effects, or hang.
        let there = std::fs::metadata(path);
        check_regular(path, &there.map_err(failed(path, "looking for the medium's file"))?)?;
        let file =
            File::open(path).map_err(failed(path, "opening the medium's file for reading"))?;
        lock(&file, path, FlockOperation::NonBlockingLockShared)?;
        let bytes = whole_blocks(regular_metadata(&file, path)?.len());
        let len = checked_len(bytes, || path.display().to_string())?;
        let base = map(&file, path, len, ProtFlags::READ)?;
        Ok(Self { base, len, file: Some((file, path.to_owned())), created: false, read_only: true })
    }

    /// Opens a regular file, mapped shared, and locks it against every other SSD.
    ///
    /// `create: Some(bytes)` creates the file with that size if it does not exist. An existing file
    /// is never truncated, and its size must then be `bytes`. If a later step fails, a file created
    /// here is removed again. With `None` the file must exist. The bytes after its last whole 512
    /// are not used, as on Linux's loop devices, and the file keeps its size.
    ///
    /// Like any mapped file, it must not be shortened by another process meanwhile (`SIGBUS`). A
    /// sparse file needs room on its file system for blocks written later.
    ///
    /// # Errors
    /// [`SsdError::InUse`] if another SSD has it, [`SsdError::NotAFile`] for directories and
    /// devices, [`SsdError::Size`] if the size does not fit, [`SsdError::Io`] if a system call
    /// failed.
    pub fn file(path: impl AsRef<Path>, create: Option<u64>) -> Result<Self, SsdError> {
        let path = path.as_ref();
        let what = || path.display().to_string();
        if let Some(bytes) = create {
            checked_len(bytes, what)?;
        }
        // This is checked before the file is opened, because opening a device or a FIFO can have
        // effects, or hang.
        match std::fs::metadata(path) {
            Ok(meta) => check_regular(path, &meta)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound && create.is_some() => {}
            Err(e) => return Err(failed(path, "looking for the medium's file")(e)),
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let (file, was_created) = match options.open(path) {
            Ok(file) => (file, false),
            Err(e) if e.kind() == io::ErrorKind::NotFound && create.is_some() => {
                // The creation is exclusive: it fails if the file exists by now, and for a dangling
                // symbolic link.
                let file = options.create_new(true).open(path);
                (file.map_err(failed(path, "creating the medium's file"))?, true)
            }
            Err(e) => {
                return Err(failed(path, "opening the medium's file for reading and writing")(e));
            }
        };
        lock(&file, path, FlockOperation::NonBlockingLockExclusive)?;
        // This is declared after `file`, so it is dropped first, while the lock is held.
        let identity = file.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
        let created = was_created.then(|| Created { path, identity });
        if let Some(bytes) = create.filter(|_| was_created) {
            // This reserves blocks now, so that a full file system is an error here and not a
            // SIGBUS later.
            let reserved =
                match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
                    Err(Errno::OPNOTSUPP) => file.set_len(bytes),
                    other => other.map_err(Into::into),
                };
            reserved.map_err(failed(path, "reserving room for the medium's file"))?;
        }
        let meta = regular_metadata(&file, path)?;
        if meta.nlink() == 0 {
            // The process that created the file has removed it again.
            let gone = io::ErrorKind::NotFound.into();
            return Err(failed(path, "opening the medium's file")(gone));
        }
        let len = checked_len(whole_blocks(meta.len()), what)?;
        if let Some(bytes) = create.filter(|&bytes| bytes != meta.len()) {
            let problem = format!(
                "exists with {} bytes, not the {bytes} asked for; leave the size out or remove the \
                 file",
                meta.len()
            );
            return Err(SsdError::Size { what: what(), problem });
        }
        let base = map(&file, path, len, ProtFlags::READ | ProtFlags::WRITE)?;
        std::mem::forget(created);
        let file = Some((file, path.to_owned()));
        Ok(Self { base, len, file, created: was_created, read_only: false })
    }

    /// Returns the size in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len as u64
    }

    /// Returns false, because a medium holds at least one block.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns its file, if it has one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|(_, path)| path.as_path())
    }

    /// Returns whether opening it created its file.
    #[must_use]
    pub fn was_created(&self) -> bool {
        self.created
    }

    /// Returns whether it is read-only, so that the controller refuses every command that would
    /// write.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Returns the `len` bytes at `offset`.
    ///
    /// # Panics
    /// Panics if the range ends beyond the medium. Callers check ranges against their namespace
    /// first.
    #[inline(always)]
    pub(crate) fn span(&self, offset: u64, len: usize) -> MediumSpan<'_> {
        assert!(
            offset <= self.len as u64 && len as u64 <= self.len as u64 - offset,
            "beyond the medium"
        );
        // SAFETY: within the mapping, by the assertion.
        let ptr = unsafe { self.base.add(offset as usize) };
        MediumSpan { ptr, len, medium: PhantomData }
    }

    /// Zeroes the `len` bytes at `offset`. Memory is returned to the kernel where possible, and a
    /// file keeps its blocks reserved. Returns false if the file failed.
    pub(crate) fn zero(&self, offset: u64, len: u64) -> bool {
        let span = self.span(offset, len as usize);
        let page = PAGE_BYTES;
        let first = offset.next_multiple_of(page);
        let last = (offset + len) / page * page;
        // Below 2 MiB, system calls cost more than they save.
        if last <= first || last - first < 2 << 20 {
            span.fill(0);
            return true;
        }
        let pages = self.span(first, (last - first) as usize);
        let zeroed = match &self.file {
            Some((file, _)) => zero_range(file, first, last - first),
            None => {
                // SAFETY: the range lies within our private anonymous mapping, to which there is no
                // reference; its pages read as zero afterwards (madvise(2), MADV_DONTNEED).
                let dropped = unsafe {
                    rustix::mm::madvise(pages.as_ptr().cast(), pages.len, Advice::LinuxDontNeed)
                };
                if dropped.is_err() {
                    pages.fill(0);
                }
                true
            }
        };
        self.span(offset, (first - offset) as usize).fill(0);
        self.span(last, (offset + len - last) as usize).fill(0);
        zeroed
    }

    /// Makes written data of a file durable. Does nothing for memory.
    pub(crate) fn sync(&self) -> bool {
        // fdatasync also writes back pages dirtied through a shared mapping. A read-only mapping
        // dirties none.
        self.read_only || self.file.as_ref().is_none_or(|(file, _)| file.sync_data().is_ok())
    }
}

impl Drop for Medium {
    fn drop(&mut self) {
        // SAFETY: our own mapping, whose spans all borrow `self`. An error would mean that it was
        // not mapped.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

impl fmt::Debug for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Medium").field("len", &self.len).field("path", &self.path()).finish()
    }
}

impl MediumSpan<'_> {
    #[inline(always)]
    pub(crate) fn len(self) -> usize {
        self.len
    }

    #[inline(always)]
    pub(crate) fn as_ptr(self) -> *mut u8 {
        self.ptr.as_ptr()
    }

    /// Prefetches all its cache lines.
    #[inline(always)]
    pub(crate) fn prefetch(self) {
        let mut at = 0;
        while at < self.len {
            sys::prefetch_read(self.ptr.as_ptr().wrapping_add(at));
            at += 64;
        }
    }

    pub(crate) fn fill(self, byte: u8) {
        // SAFETY: `len` mapped bytes of our own, to which nothing holds a reference.
        unsafe { std::ptr::write_bytes(self.ptr.as_ptr(), byte, self.len) }
    }

    /// Copies from the medium. Both have the same length.
    pub(crate) fn read(self, to: &mut [u8]) {
        assert_eq!(self.len, to.len());
        // SAFETY: `len` mapped bytes of our own; `to` is an exclusive slice outside the mapping.
        unsafe { std::ptr::copy_nonoverlapping(self.ptr.as_ptr(), to.as_mut_ptr(), self.len) }
    }

    /// Copies to the medium. Both have the same length.
    pub(crate) fn write(self, from: &[u8]) {
        assert_eq!(self.len, from.len());
        // SAFETY: as in `read`, the other way round.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.ptr.as_ptr(), self.len) }
    }
}

/// Zeroes `len` bytes of the file at `offset`. Its blocks stay reserved, because after a release, a
/// file system that is full when they are written again would end the process (`SIGBUS`).
fn zero_range(file: &File, offset: u64, len: u64) -> bool {
    use rustix::fs::FallocateFlags;
    static ZEROES: [u8; 1 << 20] = [0; 1 << 20];
    let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
    if rustix::fs::fallocate(file, flags, offset, len).is_ok() {
        return true;
    }
    // This uses a system call, not the mapping, so that a sparse file on a full file system results
    // in an error.
    let end = offset + len;
    let mut at = offset;
    while at < end {
        let piece = (end - at).min(ZEROES.len() as u64);
        if file.write_all_at(&ZEROES[..piece as usize], at).is_err() {
            return false;
        }
        at += piece;
    }
    true
}

/// Maps `len` bytes of `file`.
fn map(file: &File, path: &Path, len: usize, prot: ProtFlags) -> Result<NonNull<u8>, SsdError> {
    let anywhere = std::ptr::null_mut();
    // SAFETY: a fresh mapping at an address that the kernel chooses, of a file that stays open as
    // long.
    let mapped = unsafe { rustix::mm::mmap(anywhere, len, prot, MapFlags::SHARED, file, 0) };
    let base =
        mapped.map_err(|e| failed(path, "mapping the medium's file into memory")(e.into()))?;
    Ok(NonNull::new(base.cast()).expect("mmap gives no null mapping"))
}

/// Returns the metadata of the open `file`, if it is a regular file.
fn regular_metadata(file: &File, path: &Path) -> Result<Metadata, SsdError> {
    let meta = file.metadata().map_err(failed(path, "asking for the size of the medium's file"))?;
    check_regular(path, &meta)?;
    Ok(meta)
}

fn check_regular(path: &Path, meta: &Metadata) -> Result<(), SsdError> {
    if meta.is_file() {
        return Ok(());
    }
    Err(SsdError::NotAFile { path: path.to_owned(), kind: kind_of(meta) })
}

/// Returns the part of a file of `bytes` bytes that is whole blocks.
fn whole_blocks(bytes: u64) -> u64 {
    bytes / MEDIUM_ALIGN_BYTES * MEDIUM_ALIGN_BYTES
}

fn checked_len(bytes: u64, what: impl Fn() -> String) -> Result<usize, SsdError> {
    let problem = if bytes == 0 {
        format!("holds no block; give a size of at least {MEDIUM_ALIGN_BYTES} bytes")
    } else if !bytes.is_multiple_of(MEDIUM_ALIGN_BYTES) {
        let down = bytes / MEDIUM_ALIGN_BYTES * MEDIUM_ALIGN_BYTES;
        let up = down.saturating_add(MEDIUM_ALIGN_BYTES);
        format!("{bytes} bytes are no multiple of {MEDIUM_ALIGN_BYTES}; {down} or {up} are")
    } else if bytes > isize::MAX as u64 {
        format!("{bytes} bytes are more than a process can map")
    } else {
        return Ok(bytes as usize);
    };
    Err(SsdError::Size { what: what(), problem })
}

fn kind_of(meta: &Metadata) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    let t = meta.file_type();
    if t.is_dir() {
        "directory"
    } else if t.is_block_device() {
        "block device"
    } else if t.is_char_device() {
        "character device"
    } else if t.is_fifo() {
        "FIFO"
    } else if t.is_socket() {
        "socket"
    } else {
        "special file"
    }
}
