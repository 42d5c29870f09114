//! Reading extended attributes.

use std::ffi::{c_char, c_int, c_void};

use libc::{size_t, ssize_t};
use meantime_posix::{Errno, Posix, ResolvedPath};

use crate::path::{bytes, copy_out, on_fd, on_path};
use meantime_hook::hooks;

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
    ($($get:ident, $list:ident: $follow:literal;)*) => {hooks! {$(
        "C" fn $get(
            path: *const c_char, name: *const c_char, to: *mut c_void, room: size_t,
        ) -> ssize_t = { |real|
            // SAFETY: the caller's promise.
            let ours = |posix, place| unsafe { get(posix, place, name, to, room) };
            // SAFETY: the caller's promise.
            let theirs = |_, path| unsafe { real()(path, name, to, room) };
            // SAFETY: the caller's promise.
            unsafe { on_path(libc::AT_FDCWD, path, $follow, ours, theirs) }
        }

        "C" fn $list(path: *const c_char, to: *mut c_char, room: size_t) -> ssize_t = { |real|
            // SAFETY: the caller's promise.
            let ours = |posix, place| unsafe { list(posix, place, to, room) };
            // SAFETY: the caller's promise.
            let theirs = |_, path| unsafe { real()(path, to, room) };
            // SAFETY: the caller's promise.
            unsafe { on_path(libc::AT_FDCWD, path, $follow, ours, theirs) }
        }
    )*}};
}

attribute_hooks! {
    getxattr, listxattr: true;
    lgetxattr, llistxattr: false;
}

hooks! {
    "C" fn fgetxattr(
        fd: c_int, name: *const c_char, to: *mut c_void, room: size_t,
    ) -> ssize_t = { |real|
        // SAFETY: the caller's promise.
        let ours = |posix, place| unsafe { get(posix, place, name, to, room) };
        // SAFETY: the caller's promise.
        on_fd(fd, ours, || unsafe { real()(fd, name, to, room) })
    }

    "C" fn flistxattr(fd: c_int, to: *mut c_char, room: size_t) -> ssize_t = { |real|
        // SAFETY: the caller's promise.
        let ours = |posix, place| unsafe { list(posix, place, to, room) };
        // SAFETY: the caller's promise.
        on_fd(fd, ours, || unsafe { real()(fd, to, room) })
    }
}
