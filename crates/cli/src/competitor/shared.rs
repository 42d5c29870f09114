//! A page that the competitor, another process, writes and we read.

#![expect(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64};

use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The page's content. Each counter is consistent by itself; two that are read one after the other
/// may be an instant apart.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(super) struct Counters {
    /// Units of work done.
    pub work: AtomicU64,
    /// Time in which the competitor ran, in ns.
    pub ran_ns: AtomicU64,
    /// Number of times it did not run.
    pub gaps: AtomicU64,
    /// Time in which it did not run, in ns.
    pub gap_ns: AtomicU64,
    /// Whether it runs.
    pub ready: AtomicBool,
    /// Whether it must end.
    pub stop: AtomicBool,
    /// Number of pauses that have ended: a gap in which this changed is not counted.
    pub pauses: AtomicU64,
}

/// The mapping. Its file can be handed to another process.
#[derive(Debug)]
pub(super) struct Shared {
    counters: NonNull<Counters>,
    file: OwnedFd,
}

// SAFETY: the mapping is memory like any other and consists of atomics; it is unmapped by the last
// owner only.
unsafe impl Send for Shared {}
// SAFETY: as above: atomics may be used by several threads.
unsafe impl Sync for Shared {}

impl Shared {
    /// Creates a mapping of zeroes.
    pub(super) fn create() -> std::io::Result<Self> {
        let file = memfd_create("meantime-competitor", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, size_of::<Counters>() as u64)?;
        Self::open(file)
    }

    /// Maps the counters in `file`.
    pub(super) fn open(file: OwnedFd) -> std::io::Result<Self> {
        if fstat(&file)?.st_size != size_of::<Counters>() as i64 {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice; the file is as long as the
        // mapping, and no holder of it makes it shorter.
        let addr = unsafe {
            mmap(std::ptr::null_mut(), size_of::<Counters>(), prot, MapFlags::SHARED, &file, 0)
        }?;
        let counters = NonNull::new(addr.cast()).ok_or(std::io::ErrorKind::OutOfMemory)?;
        Ok(Self { counters, file })
    }

    /// Returns the file, for the other process.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl std::ops::Deref for Shared {
    type Target = Counters;

    #[inline(always)]
    fn deref(&self) -> &Counters {
        // SAFETY: the mapping lives as long as `self`, starts at a page, is as long as a
        // `Counters`, and all bits of it are valid ones: zeroes at first, then what atomics of the
        // same program stored.
        unsafe { self.counters.as_ref() }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: our own mapping; every reference into it borrowed `self`.
        let _ = unsafe { munmap(self.counters.as_ptr().cast(), size_of::<Counters>()) };
    }
}
