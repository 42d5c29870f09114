//! Mapping a file of ours: memory with the file's content, read at the time of the mapping.
//!
//! The file is never written, so this equals a mapping of it; except that memory is used for all of
//! it at once, and that pages beyond the file's end are zero instead of raising SIGBUS.

use std::ffi::{c_int, c_void};

use libc::{off_t, size_t};
use meantime_posix::{Errno, Kind, RwFlags};

use crate::state::{is_ours, mount};
use meantime_hook::{errno, guarded};

type Mmap = unsafe extern "C" fn(*mut c_void, size_t, c_int, c_int, c_int, off_t) -> *mut c_void;

/// Unmaps memory that could not be filled.
struct Mapped(*mut c_void, size_t);

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: a mapping that only we know.
        unsafe { libc::munmap(self.0, self.1) };
    }
}

/// # Safety
/// As mmap(2); `kernel` is the C library's `mmap`.
pub(crate) unsafe fn map(
    kernel: Mmap,
    address: *mut c_void,
    bytes: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    if flags & libc::MAP_ANONYMOUS != 0 || !is_ours(fd) {
        // SAFETY: the caller's promise.
        return unsafe { kernel(address, bytes, protection, flags, fd, offset) };
    }
    let mapped = guarded(|| {
        let open = mount()?.descriptors().get_full(fd).ok_or(Errno(libc::EBADF))?;
        match open.kind() {
            Kind::File(_) => {}
            Kind::Directory(_) => return Err(Errno(libc::ENODEV)),
            Kind::Path => return Err(Errno(libc::EBADF)),
        }
        let shared = match flags & libc::MAP_TYPE {
            libc::MAP_PRIVATE => false,
            libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE => true,
            _ => return Err(Errno(libc::EINVAL)),
        };
        if shared && protection & libc::PROT_WRITE != 0 {
            return Err(Errno(libc::EACCES));
        }
        if bytes == 0 || offset < 0 || offset % 4096 != 0 {
            return Err(Errno(libc::EINVAL));
        }
        // MAP_32BIT is x86's.
        #[cfg(target_arch = "x86_64")]
        let low = libc::MAP_32BIT;
        #[cfg(not(target_arch = "x86_64"))]
        let low = 0;
        let keep = libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE | low | libc::MAP_NORESERVE;
        let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | (flags & keep);
        let writable = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the caller's promise; where it fixes the address, what is there is to be replaced.
        let at = unsafe { kernel(address, bytes, writable, how, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(Errno(errno()));
        }
        let mapped = Mapped(at, bytes);
        // SAFETY: just mapped, zero, and only ours so far.
        let memory = unsafe { std::slice::from_raw_parts_mut(at.cast::<u8>(), bytes) };
        let mut filled = 0;
        while filled < bytes {
            let Some(from) = offset.checked_add(filled as off_t) else { break };
            match open.read_at(&mut memory[filled..], from, RwFlags::default())? {
                0 => break,
                read => filled += read,
            }
        }
        if protection != writable {
            // SAFETY: our own mapping, to which there is no reference any more.
            if unsafe { libc::mprotect(at, bytes, protection) } != 0 {
                return Err(Errno(errno()));
            }
        }
        std::mem::forget(mapped);
        Ok(at)
    });
    if mapped.is_null() { libc::MAP_FAILED } else { mapped }
}
