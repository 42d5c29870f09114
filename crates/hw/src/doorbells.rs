//! Mappings of a device's or server's doorbells.

#![expect(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;

use meantime_nvme_spec::soft_port::DoorbellCell;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::event::EventFd;
use super::sigbus::{self, Guard};

/// A mapped part of BAR0 that holds doorbells. Registers are not accessed through it: a load would
/// raise SIGBUS where a read of the file fails.
#[derive(Debug)]
pub(crate) struct Window {
    start: NonNull<c_void>,
    bytes: usize,
    /// Its offset in BAR0.
    offset: u64,
    /// Handles stores to memory that is gone. `None` only during the drop.
    guard: Option<Guard>,
}

// SAFETY: a window only owns the mapping, whose bytes are reached as atomics.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    /// Maps `bytes` bytes of `file` at offset `from`, which are at `offset` of BAR0. `lost` is
    /// signalled when they no longer exist.
    pub(crate) fn map(
        file: impl AsFd,
        from: u64,
        bytes: usize,
        offset: u64,
        lost: Option<EventFd>,
    ) -> io::Result<Self> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let start =
            unsafe { mmap(std::ptr::null_mut(), bytes, prot, MapFlags::SHARED, file, from) }?;
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        // A forked child could ring them as well.
        // SAFETY: our own mapping, which the advice does not change.
        let _ = unsafe { madvise(start.as_ptr(), bytes, Advice::LinuxDontFork) };
        let mut window = Self { start, bytes, offset, guard: None };
        // SAFETY: our own mapping, used for doorbells only.
        let guard = unsafe { sigbus::guard(start, bytes, lost) }.map_err(io::Error::other)?;
        window.guard = Some(guard);
        Ok(window)
    }

    /// The doorbell at `offset` of BAR0, if it is in this window and aligned.
    pub(crate) fn cell(&self, offset: u32) -> Option<NonNull<DoorbellCell>> {
        const CELL_BYTES: usize = size_of::<u32>();
        let at = usize::try_from(u64::from(offset).checked_sub(self.offset)?).ok()?;
        let inside = at.is_multiple_of(CELL_BYTES) && at.checked_add(CELL_BYTES)? <= self.bytes;
        // SAFETY: `at` is inside the mapping.
        inside.then(|| unsafe { self.start.byte_add(at) }.cast())
    }

    /// Whether a store has faulted.
    pub(crate) fn is_lost(&self) -> bool {
        self.guard.as_ref().is_none_or(Guard::is_lost)
    }

    /// Detaches from the file: later doorbell rings have no effect, and the file is no longer held.
    pub(crate) fn detach(&self) -> io::Result<()> {
        // SAFETY: our own mapping, which is never read.
        unsafe { sigbus::replace(self.start, self.bytes) }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // First, because after the unmapping the range is no longer ours.
        self.guard = None;
        // SAFETY: the mapping is ours, and reaching it takes a reference to `self`.
        let _ = unsafe { munmap(self.start.as_ptr(), self.bytes) };
    }
}
