//! A page that the competitor, another process, writes and we read.

#![expect(unsafe_code)]

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64};

use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};

/// The page's content. Each counter is consistent by itself. Two that are read one after the other
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
    /// The number of pauses that have ended. A gap in which this changed is not counted.
    pub pauses: AtomicU64,
}

/// Creates counters of zeroes, and the file by which another process maps them.
pub(super) fn create() -> std::io::Result<(&'static Counters, OwnedFd)> {
    let file = memfd_create("meantime-competitor", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, size_of::<Counters>() as u64)?;
    Ok((map(&file)?, file))
}

/// Maps the counters in `file` for as long as this process lives. Each competitor has one page.
pub(super) fn map(file: &OwnedFd) -> std::io::Result<&'static Counters> {
    if fstat(file)?.st_size != size_of::<Counters>() as i64 {
        return Err(std::io::ErrorKind::InvalidData.into());
    }
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh mapping at an address of the kernel's choice, which is never unmapped. It
    // starts at a page and is as long as a `Counters`; the file is too, and no holder of it makes
    // it shorter. All bits of it are valid ones: zeroes at first, then what atomics of the same
    // program stored.
    unsafe {
        let addr =
            mmap(std::ptr::null_mut(), size_of::<Counters>(), prot, MapFlags::SHARED, file, 0)?;
        Ok(&*addr.cast_const().cast())
    }
}
