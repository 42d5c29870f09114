//! `open` and its variants.

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use libc::mode_t;
use meantime_posix::{Errno, Posix, ResolvedPath, Table};

use crate::path::on_path;
use crate::state::{forget, is_owner};
use meantime_hook::{cancellation_point, errno, forwards, real};

type Open = unsafe extern "C-unwind" fn(*const c_char, c_int, ...) -> c_int;
type OpenAt = unsafe extern "C-unwind" fn(c_int, *const c_char, c_int, ...) -> c_int;

/// Reserves a number for a descriptor of ours: to the kernel it is a link opened with O_PATH. Any
/// access that bypasses this library fails, also if it is opened again by its name in `/proc`.
fn reserve(flags: c_int) -> Result<c_int, Errno> {
    let how = libc::O_PATH | libc::O_NOFOLLOW | (flags & libc::O_CLOEXEC);
    let open = real!(c"open64", Open);
    for name in [c"/proc/self", c"/dev/null"] {
        // SAFETY: a path that ends.
        let fd = unsafe { open(name.as_ptr(), how) };
        if fd >= 0 {
            return Table::check(fd).map(|()| fd).inspect_err(|_| give_up(fd));
        }
        if errno() != libc::ENOENT {
            break;
        }
    }
    Err(Errno(errno()))
}

fn give_up(fd: c_int) {
    // SAFETY: a descriptor of our own.
    unsafe { real!(c"close", unsafe extern "C-unwind" fn(c_int) -> c_int)(fd) };
}

/// Opens a resolved path. Returns the new descriptor.
pub fn open_resolved(
    posix: &'static Posix,
    place: ResolvedPath,
    flags: c_int,
) -> Result<c_int, Errno> {
    if !is_owner() {
        // In the child of a vfork, whose descriptors are separate from the shared memory.
        return Err(Errno(libc::ENOMEM));
    }
    let description = posix.open(place, flags)?;
    let fd = reserve(flags)?;
    posix.descriptors().set(fd, Arc::new(description));
    Ok(fd)
}

/// # Safety
/// As openat(2).
unsafe fn open_at(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    theirs: impl FnMut(c_int, *const c_char) -> c_int,
) -> c_int {
    let ours = |posix, place| open_resolved(posix, place, flags);
    // SAFETY: the caller's promise.
    unsafe { on_path(at, path, Posix::open_follows(flags), ours, theirs) }
}

/// The kernel has assigned a number: if the table has an entry for it, that descriptor was closed
/// without this library seeing it.
fn fresh(fd: c_int) -> c_int {
    if fd >= 0 {
        forget(fd);
    }
    fd
}

macro_rules! open_hooks {
    ($($name:ident, $at:ident: $real:literal;)*) => {$(
        /// # Safety
        /// As openat(2).
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $at(
            at: c_int,
            path: *const c_char,
            flags: c_int,
            mode: mode_t,
        ) -> c_int {
            cancellation_point();
            // SAFETY: the caller's promise. A mode that was not given is never read.
            let theirs = |at, path| fresh(unsafe { real!($real, OpenAt)(at, path, flags, mode) });
            // SAFETY: the caller's promise.
            unsafe { open_at(at, path, flags, theirs) }
        }

        /// # Safety
        /// As open(2).
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            path: *const c_char,
            flags: c_int,
            mode: mode_t,
        ) -> c_int {
            cancellation_point();
            // SAFETY: as above.
            let theirs = |at, path| fresh(unsafe { real!($real, OpenAt)(at, path, flags, mode) });
            // SAFETY: as above.
            unsafe { open_at(libc::AT_FDCWD, path, flags, theirs) }
        }
    )*};
}

open_hooks! {
    open, openat: c"openat";
    open64, openat64: c"openat64";
    __open, __openat: c"openat";
    __open64, __openat64: c"openat64";
}

// The functions that _FORTIFY_SOURCE substitutes for a call without a mode.
forwards! {
    "C-unwind" fn __open_2(path: *const c_char, flags: c_int) -> c_int => open(path, flags, 0);
    "C-unwind" fn __open64_2(path: *const c_char, flags: c_int) -> c_int => open64(path, flags, 0);
    "C-unwind" fn __openat_2(at: c_int, path: *const c_char, flags: c_int) -> c_int
        => openat(at, path, flags, 0);
    "C-unwind" fn __openat64_2(at: c_int, path: *const c_char, flags: c_int) -> c_int
        => openat64(at, path, flags, 0);
    "C-unwind" fn creat(path: *const c_char, mode: mode_t) -> c_int => open(path, CREAT, mode);
    "C-unwind" fn creat64(path: *const c_char, mode: mode_t) -> c_int => open64(path, CREAT, mode);
}

const CREAT: c_int = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;

/// openat2(2), for which the C library has no function.
///
/// # Safety
/// As the system call; `theirs` calls it.
pub unsafe fn openat2(
    at: c_int,
    path: *const c_char,
    how: *const libc::open_how,
    bytes: usize,
    theirs: impl Fn(c_int, *const c_char) -> c_int,
) -> c_int {
    if how.is_null() || bytes < size_of::<libc::open_how>() {
        return theirs(at, path);
    }
    // SAFETY: the caller's promise.
    let how = unsafe { &*how };
    let (flags, resolve) = (how.flags as c_int, how.resolve);
    let ours = |posix, place| {
        // Resolution rules of a path. Programs that use them have a fallback for older kernels.
        if resolve != 0 { Err(Errno(libc::ENOSYS)) } else { open_resolved(posix, place, flags) }
    };
    // SAFETY: the caller's promise.
    unsafe {
        on_path(at, path, Posix::open_follows(flags), ours, |at, path| fresh(theirs(at, path)))
    }
}
