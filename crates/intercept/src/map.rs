//! Prepares the operations of the kernel on a file that depend on the size that the kernel knows:
//! mapping, copying and appending.

use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::BorrowedFd;

use crate::hook::hooks;
use libc::{off_t, size_t, ssize_t};

use crate::call;
use crate::state::is_active;

/// Prepares operations of the kernel on the file of `fd` that depend on the size. The file must not
/// grow without the kernel from now on, and the kernel has to ask for the size.
#[cold]
pub(crate) fn prepare(fd: c_int) {
    if fd < 0 || !call::may_be_of_mount(fd) {
        return;
    }
    let is_left = call::leave(fd);
    let ask = || {
        // SAFETY: a number that is not open is an error.
        let _ = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(fd) });
    };
    crate::slowly(|| {
        ask();
        if !is_left {
            // The kernel reads the file into its cache, which has the same effect.
            // SAFETY: as above.
            unsafe { libc::posix_fadvise(fd, 0, 1, libc::POSIX_FADV_WILLNEED) };
            ask();
        }
    });
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

/// Prepares a write that appends, if it takes the FUSE path, because the kernel places it.
#[cold]
pub(crate) fn prepare_append(fd: c_int, is_asked: bool) {
    if fd < 0 || !call::may_be_of_mount(fd) {
        return;
    }
    // SAFETY: a number that is not open is an error.
    let flags = crate::slowly(|| rustix::fs::fcntl_getfl(unsafe { BorrowedFd::borrow_raw(fd) }));
    if is_asked || flags.is_ok_and(|flags| flags.contains(rustix::fs::OFlags::APPEND)) {
        prepare(fd);
    }
}

/// Prepares a copy by the kernel.
pub(crate) fn prepare_copy(from: c_int, to: c_int) {
    if is_active() {
        prepare(from);
        prepare(to);
    }
}

hooks! {
    "C-unwind" fn (sendfile sendfile64)(
        to: c_int, from: c_int, offset: *mut off_t, bytes: size_t,
    ) -> ssize_t = { |real|
        prepare_copy(from, to);
        // SAFETY: the caller's promise.
        unsafe { real()(to, from, offset, bytes) }
    }

    "C-unwind" fn copy_file_range(
        from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, bytes: size_t,
        flags: c_uint,
    ) -> ssize_t = { |real|
        prepare_copy(from, to);
        // SAFETY: the caller's promise.
        unsafe { real()(from, from_offset, to, to_offset, bytes, flags) }
    }

    "C-unwind" fn splice(
        from: c_int, from_offset: *mut off_t, to: c_int, to_offset: *mut off_t, bytes: size_t,
        flags: c_uint,
    ) -> ssize_t = { |real|
        prepare_copy(from, to);
        // SAFETY: the caller's promise.
        unsafe { real()(from, from_offset, to, to_offset, bytes, flags) }
    }
}
