//! `open` and its kind.

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use libc::mode_t;
use meantime_posix::{Errno, Posix, ResolvedPath, Table};

use crate::path::on_path;
use crate::real::{cancellation_point, errno, real};
use crate::state::{forget, is_owner};

pub type Open = unsafe extern "C-unwind" fn(*const c_char, c_int, ...) -> c_int;
type OpenAt = unsafe extern "C-unwind" fn(c_int, *const c_char, c_int, ...) -> c_int;

/// A number for a descriptor of ours: for the kernel it is one of a link, opened for its name only.
/// Whatever is asked of it past us fails, also if it is opened again by its name in `/proc`.
pub fn reserve(flags: c_int) -> Result<c_int, Errno> {
    let how = libc::O_PATH | libc::O_NOFOLLOW | (flags & libc::O_CLOEXEC);
    let open = real!(c"open64" as Open);
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
    unsafe { real!(c"close" as unsafe extern "C-unwind" fn(c_int) -> c_int)(fd) };
}

/// Opens what was found; the new descriptor.
pub fn open_resolved(
    posix: &'static Posix,
    place: ResolvedPath,
    flags: c_int,
) -> Result<c_int, Errno> {
    if !is_owner() {
        // In the child of a vfork: its descriptors are not those of the memory.
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

/// The kernel has given a number away: whatever we thought of it, it was closed by a way that we do
/// not see.
fn fresh(fd: c_int) -> c_int {
    if fd >= 0 {
        forget(fd);
    }
    fd
}

macro_rules! open_hooks {
    ($($name:ident, $at:ident: $real:literal;)*) => {$(
        /// # Safety
        /// As open(2).
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            cancellation_point();
            // SAFETY: the caller's promise. A mode that was not given is never read.
            unsafe {
                open_at(libc::AT_FDCWD, path, flags, |at, path| fresh(real!($real as OpenAt)(at, path, flags, mode)))
            }
        }

        /// # Safety
        /// As openat(2).
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $at(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            cancellation_point();
            // SAFETY: as above.
            unsafe { open_at(at, path, flags, |at, path| fresh(real!($real as OpenAt)(at, path, flags, mode))) }
        }
    )*};
}

open_hooks! {
    open, openat: c"openat";
    open64, openat64: c"openat64";
    __open, __openat: c"openat";
    __open64, __openat64: c"openat64";
}

macro_rules! checked_hooks {
    ($($name:ident, $at:ident: $open:ident, $openat:ident;)*) => {$(
        /// # Safety
        /// As open(2).
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(path: *const c_char, flags: c_int) -> c_int {
            // SAFETY: the caller's promise.
            unsafe { $open(path, flags, 0) }
        }

        /// # Safety
        /// As openat(2).
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $at(at: c_int, path: *const c_char, flags: c_int) -> c_int {
            // SAFETY: the caller's promise.
            unsafe { $openat(at, path, flags, 0) }
        }
    )*};
}

// What _FORTIFY_SOURCE makes of a call without a mode.
checked_hooks! {
    __open_2, __openat_2: open, openat;
    __open64_2, __openat64_2: open64, openat64;
}

/// openat2(2), which the C library has no function for.
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
        // Resolution rules of a path. Programs that use them must do without on older kernels.
        if resolve != 0 { Err(Errno(libc::ENOSYS)) } else { open_resolved(posix, place, flags) }
    };
    // SAFETY: the caller's promise.
    unsafe {
        on_path(at, path, Posix::open_follows(flags), ours, |at, path| fresh(theirs(at, path)))
    }
}

const CREAT: c_int = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;

/// # Safety
/// As creat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn creat(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open(path, CREAT, mode) }
}

/// # Safety
/// As creat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn creat64(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open64(path, CREAT, mode) }
}
