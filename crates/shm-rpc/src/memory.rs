//! Memory that two processes share.

#![expect(unsafe_code, reason = "maps memory, and copies what another process may change")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{Ordering, compiler_fence};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, memfd_create};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// The seals of all shared memory, whose size never changes.
const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// Types for which any bytes are a value, and which others may change while they are shared.
///
/// # Safety
/// The type consists of atomics, without padding that matters, and is at most aligned to a page.
pub(crate) unsafe trait Shared: Sync {}

// SAFETY: it consists of atomics, and is aligned to 64 bytes.
unsafe impl Shared for crate::layout::Line {}
// SAFETY: as above.
unsafe impl Shared for crate::sync::AtomicU64 {}

/// A mapping of shared memory.
#[derive(Debug)]
pub(crate) struct Mapping {
    begin: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to the mapping. It is reached through atomics, and by copies that
// assume nothing of the bytes.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Creates `len` bytes of zeros, and a descriptor by which another process maps them. If
    /// `is_read_only`, that process can only read them.
    pub(crate) fn new(name: &str, len: usize, is_read_only: bool) -> io::Result<(Self, OwnedFd)> {
        let memory = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&memory, len as u64)?;
        fcntl_add_seals(&memory, SIZE_SEALS)?;
        let mapping = Self::map(memory.as_fd(), len, ProtFlags::READ | ProtFlags::WRITE)?;
        if is_read_only {
            // The seal comes after our own mapping, which stays writable.
            fcntl_add_seals(&memory, SealFlags::FUTURE_WRITE)?;
        }
        fcntl_add_seals(&memory, SealFlags::SEAL)?;
        Ok((mapping, memory))
    }

    /// Maps the memory that another process made.
    ///
    /// # Errors
    /// Fails if the memory is not `len` bytes long, or if its size could change.
    pub(crate) fn of(memory: BorrowedFd<'_>, len: usize, is_read_only: bool) -> io::Result<Self> {
        let is_sealed = fcntl_get_seals(memory)?.contains(SIZE_SEALS);
        if !is_sealed || fstat(memory)?.st_size as u64 != len as u64 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let write = if is_read_only { ProtFlags::empty() } else { ProtFlags::WRITE };
        Self::map(memory, len, ProtFlags::READ | write)
    }

    fn map(memory: BorrowedFd<'_>, len: usize, protection: ProtFlags) -> io::Result<Self> {
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let begin =
            unsafe { mmap(null_mut(), len, protection, MapFlags::SHARED, memory.as_fd(), 0)? };
        let begin = NonNull::new(begin.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { begin, len })
    }

    /// Returns the structure at `at` bytes, a multiple of 64.
    #[inline]
    pub(crate) fn at<T: Shared>(&self, at: usize) -> &T {
        assert!(at.is_multiple_of(align_of::<T>()) && at <= self.len - size_of::<T>());
        // SAFETY: it lies in the mapping, which begins on a page and stays as long as `self`. Any
        // bytes are a `T`, and others change it only as atomics do (`Shared`).
        unsafe { self.begin.add(at).cast().as_ref() }
    }

    /// Returns the address of `len` bytes from `at`.
    #[inline]
    fn range(&self, at: usize, len: usize) -> NonNull<u8> {
        assert!(at <= self.len && len <= self.len - at);
        // SAFETY: it lies in the mapping.
        unsafe { self.begin.add(at) }
    }

    /// Makes everything from `at` on zeros, which take no memory. Does nothing where the kernel
    /// cannot do this.
    pub(crate) fn drop_from(&self, at: usize) {
        let len = self.len - at;
        let begin = self.range(at, len);
        // SAFETY: our own memory, of which there are no references but to atomics before it. Who
        // reads or stores there at the same time finds zeros, or has its bytes lost.
        let _ = unsafe { madvise(begin.as_ptr().cast(), len, Advice::LinuxRemove) };
    }

    /// Copies `bytes` to `at`.
    #[inline]
    pub(crate) fn put(&self, at: usize, bytes: &[u8]) {
        // SAFETY: a slice can be read, and is no part of the mapping, of which there are no slices.
        unsafe { self.put_from(at, bytes.as_ptr(), bytes.len()) }
    }

    /// Fills `bytes` from `at`.
    #[inline]
    pub(crate) fn get(&self, at: usize, bytes: &mut [u8]) {
        // SAFETY: a slice can be written, and is no part of the mapping.
        unsafe { self.get_into(at, bytes.as_mut_ptr(), bytes.len()) }
    }

    /// Copies `len` bytes from `bytes` to `at`.
    ///
    /// # Safety
    /// `bytes` can be read for `len` bytes. If other threads change them meanwhile, a mixture is
    /// copied.
    #[inline]
    pub(crate) unsafe fn put_from(&self, at: usize, bytes: *const u8, len: usize) {
        let to = self.range(at, len);
        // SAFETY: the caller's promise; `range` has checked the other end. Whoever stores there at
        // the same time has bytes mixed; nothing else depends on them, and no reference to them
        // exists on either side.
        unsafe { std::ptr::copy_nonoverlapping(bytes, to.as_ptr(), len) }
    }

    /// Copies `len` bytes from `at` to `bytes`.
    ///
    /// # Safety
    /// `bytes` can be written for `len` bytes.
    #[inline]
    pub(crate) unsafe fn get_into(&self, at: usize, bytes: *mut u8, len: usize) {
        let from = self.range(at, len);
        // SAFETY: as for `put_from`.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), bytes, len) }
        // Otherwise the compiler might take later copies of `bytes` from the memory again, where it
        // sees that no code of this process has changed it.
        compiler_fence(Ordering::SeqCst);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of which no reference outlives `self`.
        let _ = unsafe { munmap(self.begin.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_side_can_neither_resize_nor_write_what_it_may_only_read() {
        let (ours, memory) = Mapping::new("test", 8192, true).unwrap();
        assert!(rustix::fs::ftruncate(&memory, 4096).is_err());
        assert!(rustix::fs::ftruncate(&memory, 1 << 20).is_err());
        assert!(Mapping::of(memory.as_fd(), 8192, false).is_err(), "writable");
        assert!(Mapping::of(memory.as_fd(), 4096, true).is_err(), "another length");
        let theirs = Mapping::of(memory.as_fd(), 8192, true).unwrap();
        ours.put(100, b"text");
        let mut text = [0; 4];
        theirs.get(100, &mut text);
        assert_eq!(&text, b"text");
    }

    #[test]
    fn memory_that_could_shrink_is_refused() {
        let memory = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&memory, 4096).unwrap();
        assert!(Mapping::of(memory.as_fd(), 4096, false).is_err());
    }

    #[test]
    #[should_panic(expected = "self.len")]
    fn nothing_is_copied_beyond_the_end() {
        let (ours, _memory) = Mapping::new("test", 4096, false).unwrap();
        ours.put(4000, &[0; 97]);
    }
}
