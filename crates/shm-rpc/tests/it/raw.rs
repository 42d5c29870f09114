//! A line's words, for a client or an owner that is none of ours. `layout.rs` asserts their places.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use meantime_shm_rpc::DATA_BYTES;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Places of words, in bytes. Words of 64 bits have their upper half 4 bytes later.
pub(crate) const NUMBER: usize = 0;
pub(crate) const OP: usize = 4;
pub(crate) const FLAGS: usize = 8;
pub(crate) const LEN: usize = 12;
pub(crate) const HANDLE: usize = 16;
pub(crate) const OFFSET: usize = 24;
pub(crate) const CLOSINGS: usize = 40;
pub(crate) const REPLY_NUMBER: usize = 64;
pub(crate) const STATUS: usize = 68;
pub(crate) const RESULT: usize = 72;
pub(crate) const END: usize = 80;
pub(crate) const ENDED: usize = 92;
pub(crate) const CLIENT_PARKED: usize = 128;
pub(crate) const OWNER_PARKED: usize = 192;
pub(crate) const DATA: usize = 4096;
pub(crate) const BYTES: usize = DATA + DATA_BYTES;

/// A line's memory.
pub(crate) struct RawLine(NonNull<u8>);

// SAFETY: it is used through atomics only.
unsafe impl Send for RawLine {}
// SAFETY: as above.
unsafe impl Sync for RawLine {}

impl RawLine {
    pub(crate) fn new(memory: &OwnedFd) -> Self {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let begin = unsafe {
            mmap(std::ptr::null_mut(), BYTES, protection, MapFlags::SHARED, memory, 0).unwrap()
        };
        Self(NonNull::new(begin.cast()).unwrap())
    }

    pub(crate) fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at < BYTES);
        // SAFETY: it is in the mapping, and aligned; everybody uses it through atomics, or copies
        // bytes of which nothing is assumed.
        unsafe { self.0.add(at).cast().as_ref() }
    }

    pub(crate) fn store(&self, at: usize, value: u32) {
        self.word(at).store(value, Ordering::SeqCst);
    }

    pub(crate) fn load(&self, at: usize) -> u32 {
        self.word(at).load(Ordering::SeqCst)
    }
}

impl Drop for RawLine {
    fn drop(&mut self) {
        // SAFETY: our own mapping; no reference outlives `self`.
        unsafe { munmap(self.0.as_ptr().cast(), BYTES).unwrap() };
    }
}
