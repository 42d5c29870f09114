//! Reading extended attributes.

use std::ffi::{c_char, c_int, c_void};

use libc::{size_t, ssize_t};
use meantime_posix::{Errno, Posix, ResolvedPath};

use crate::path::{bytes, copy_out, on_descriptor, on_path};
use crate::real::{guarded, real};
use crate::state::is_ours;

/// # Safety
/// `name` is NULL or ends; there are `room` bytes.
unsafe fn get(
    posix: &'static Posix,
    place: ResolvedPath,
    name: *const c_char,
    to: *mut c_void,
    room: size_t,
) -> Result<ssize_t, Errno> {
    // SAFETY: the caller's promise.
    let value = posix.attribute(&place.found()?, unsafe { bytes(name) }?, room)?;
    // SAFETY: the caller's promise; without room nothing is copied.
    unsafe { copy_out(&value, to.cast(), room) };
    Ok(value.len() as ssize_t)
}

/// # Safety
/// There are `room` bytes.
unsafe fn list(
    posix: &'static Posix,
    place: ResolvedPath,
    to: *mut c_char,
    room: size_t,
) -> Result<ssize_t, Errno> {
    let names = posix.attribute_names(&place.found()?, room)?;
    // SAFETY: the caller's promise; without room nothing is copied.
    unsafe { copy_out(&names, to, room) };
    Ok(names.len() as ssize_t)
}

macro_rules! attribute_hooks {
    ($($get:ident, $list:ident: $get_real:literal, $list_real:literal, $follow:literal;)*) => {$(
        /// # Safety
        /// As getxattr(2).
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get(path: *const c_char, name: *const c_char, to: *mut c_void, room: size_t) -> ssize_t {
            type Function = unsafe extern "C" fn(*const c_char, *const c_char, *mut c_void, size_t) -> ssize_t;
            // SAFETY: the caller's promise.
            unsafe {
                on_path(libc::AT_FDCWD, path, $follow, |posix, place| get(posix, place, name, to, room), |_, path| {
                    real!($get_real as Function)(path, name, to, room)
                })
            }
        }

        /// # Safety
        /// As listxattr(2).
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $list(path: *const c_char, to: *mut c_char, room: size_t) -> ssize_t {
            type Function = unsafe extern "C" fn(*const c_char, *mut c_char, size_t) -> ssize_t;
            // SAFETY: the caller's promise.
            unsafe {
                on_path(libc::AT_FDCWD, path, $follow, |posix, place| list(posix, place, to, room), |_, path| {
                    real!($list_real as Function)(path, to, room)
                })
            }
        }
    )*};
}

attribute_hooks! {
    getxattr, listxattr: c"getxattr", c"listxattr", true;
    lgetxattr, llistxattr: c"lgetxattr", c"llistxattr", false;
}

/// # Safety
/// As fgetxattr(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fgetxattr(
    fd: c_int,
    name: *const c_char,
    to: *mut c_void,
    room: size_t,
) -> ssize_t {
    type Function = unsafe extern "C" fn(c_int, *const c_char, *mut c_void, size_t) -> ssize_t;
    // SAFETY: the caller's promise.
    unsafe {
        if is_ours(fd) {
            guarded(|| on_descriptor(fd, |posix, place| get(posix, place, name, to, room)))
        } else {
            real!(c"fgetxattr" as Function)(fd, name, to, room)
        }
    }
}

/// # Safety
/// As flistxattr(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flistxattr(fd: c_int, to: *mut c_char, room: size_t) -> ssize_t {
    type Function = unsafe extern "C" fn(c_int, *mut c_char, size_t) -> ssize_t;
    // SAFETY: the caller's promise.
    unsafe {
        if is_ours(fd) {
            guarded(|| on_descriptor(fd, |posix, place| list(posix, place, to, room)))
        } else {
            real!(c"flistxattr" as Function)(fd, to, room)
        }
    }
}
