//! Mapping files.

use std::ffi::{c_int, c_void};
use std::os::fd::BorrowedFd;

use libc::{off_t, size_t};
use meantime_hook::hooks;

use crate::call;
use crate::state::is_active;

/// Prepares a mapping of the file of `fd`. The kernel checks accesses to it by the size that it
/// knows, so the file must not grow without it from now on, and it has to ask for the size.
#[cold]
fn prepare(fd: c_int) {
    if fd < 0 || !call::may_be_of_mount(fd) {
        return;
    }
    let is_left = call::leave(fd);
    let ask = || {
        if !is_left {
            // The kernel reads it into its cache, which does the same.
            // SAFETY: a number that is not open is an error.
            unsafe { libc::posix_fadvise(fd, 0, 1, libc::POSIX_FADV_WILLNEED) };
        }
        // SAFETY: as above.
        rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(fd) })
    };
    let _ = crate::slowly(ask);
}

hooks! {
    "C-unwind" fn (mmap mmap64)(
        at: *mut c_void,
        len: size_t,
        protection: c_int,
        flags: c_int,
        fd: c_int,
        offset: off_t,
    ) -> *mut c_void = { |real|
        if flags & libc::MAP_ANONYMOUS == 0 && is_active() {
            prepare(fd);
        }
        // SAFETY: the caller's promise.
        unsafe { real()(at, len, protection, flags, fd, offset) }
    }
}
