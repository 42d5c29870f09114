//! Links, absolute paths, the working directory.

use std::ffi::{c_char, c_int};

use libc::{size_t, ssize_t};
use meantime_posix::{Errno, Posix, ResolvedPath};

use crate::cwd::{change, current, left};
use crate::path::{bytes, copy_out, named_descriptor, on_descriptor, on_path, on_path_or_fd};
use crate::real::{answer, guarded, real};
use crate::state::{descriptor, is_ours};

/// # Safety
/// As readlinkat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readlinkat(
    at: c_int,
    path: *const c_char,
    to: *mut c_char,
    room: size_t,
) -> ssize_t {
    type Function = unsafe extern "C" fn(c_int, *const c_char, *mut c_char, size_t) -> ssize_t;
    let ours = |posix: &'static Posix, place: ResolvedPath| {
        if room == 0 {
            return Err(Errno(libc::EINVAL));
        }
        let found = place.found()?;
        // SAFETY: the caller's promise.
        let target = match unsafe { bytes(path) }.ok().and_then(named_descriptor) {
            Some(_) => posix.absolute(&found),
            None => posix.read_link(&found)?,
        };
        // SAFETY: the caller's promise.
        Ok(unsafe { copy_out(&target, to, room) } as ssize_t)
    };
    let theirs = |at, path| {
        let kernel = real!(c"readlinkat" as Function);
        // SAFETY: the caller's promise.
        unsafe { kernel(at, path, to, room) }
    };
    // A path that is empty is the link that the descriptor stands for, with no flag for it.
    let flags = libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: the caller's promise.
    unsafe { on_path_or_fd(at, path, flags, ours, theirs) }
}

/// # Safety
/// As readlink(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readlink(path: *const c_char, to: *mut c_char, room: size_t) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { readlinkat(libc::AT_FDCWD, path, to, room) }
}

/// # Safety
/// As readlink(2); `known` is what the compiler knows of the buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __readlink_chk(
    path: *const c_char,
    to: *mut c_char,
    room: size_t,
    known: size_t,
) -> ssize_t {
    type Function = unsafe extern "C" fn(*const c_char, *mut c_char, size_t, size_t) -> ssize_t;
    // SAFETY: the caller's promise. A program that would overrun its buffer is ended by the C
    // library.
    unsafe {
        if room <= known {
            readlink(path, to, room)
        } else {
            real!(c"__readlink_chk" as Function)(path, to, room, known)
        }
    }
}

/// A text of the C library's memory, or in `to`.
///
/// # Safety
/// `to` is NULL or has room for PATH_MAX bytes.
unsafe fn give_text(
    text: &[u8],
    to: *mut c_char,
    room: Option<usize>,
) -> Result<*mut c_char, Errno> {
    let bytes = text.len() + 1;
    if room.is_some_and(|room| bytes > room) {
        return Err(Errno(libc::ERANGE));
    }
    if bytes > libc::PATH_MAX as usize {
        return Err(Errno(libc::ENAMETOOLONG));
    }
    let to = if to.is_null() {
        // SAFETY: it is the caller's to free.
        unsafe { libc::malloc(room.unwrap_or(bytes)) }.cast::<c_char>()
    } else {
        to
    };
    if to.is_null() {
        return Err(Errno(libc::ENOMEM));
    }
    // SAFETY: there is room, as was looked at, or promised.
    unsafe {
        copy_out(text, to, text.len());
        to.add(text.len()).write(0);
    }
    Ok(to)
}

/// # Safety
/// As realpath(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realpath(path: *const c_char, to: *mut c_char) -> *mut c_char {
    type Function = unsafe extern "C" fn(*const c_char, *mut c_char) -> *mut c_char;
    let ours = |posix: &'static Posix, place: ResolvedPath| {
        let found = place.found()?;
        // SAFETY: the caller's promise.
        unsafe { give_text(&posix.absolute(&found), to, None) }
    };
    // SAFETY: the caller's promise.
    unsafe {
        on_path(libc::AT_FDCWD, path, true, ours, |_, path| {
            real!(c"realpath" as Function)(path, to)
        })
    }
}

/// # Safety
/// As realpath(3); the buffer has `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __realpath_chk(
    path: *const c_char,
    to: *mut c_char,
    room: size_t,
) -> *mut c_char {
    type Function = unsafe extern "C" fn(*const c_char, *mut c_char, size_t) -> *mut c_char;
    // SAFETY: the caller's promise. A program that could overrun its buffer is ended by the C
    // library.
    unsafe {
        if room >= libc::PATH_MAX as usize {
            realpath(path, to)
        } else {
            real!(c"__realpath_chk" as Function)(path, to, room)
        }
    }
}

/// # Safety
/// As canonicalize_file_name(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn canonicalize_file_name(path: *const c_char) -> *mut c_char {
    // SAFETY: the caller's promise.
    unsafe { realpath(path, std::ptr::null_mut()) }
}

/// # Safety
/// As chdir(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chdir(path: *const c_char) -> c_int {
    type Function = unsafe extern "C" fn(*const c_char) -> c_int;
    // SAFETY: the caller's promise.
    unsafe {
        on_path(libc::AT_FDCWD, path, true, change, |_, path| {
            left(real!(c"chdir" as Function)(path))
        })
    }
}

/// # Safety
/// As fchdir(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fchdir(fd: c_int) -> c_int {
    type Function = unsafe extern "C" fn(c_int) -> c_int;
    if is_ours(fd) {
        return guarded(|| on_descriptor(fd, change));
    }
    // SAFETY: no memory is meant.
    left(unsafe { real!(c"fchdir" as Function)(fd) })
}

/// The working directory's path, if it is one of ours.
fn cwd() -> Option<Vec<u8>> {
    current().map(|(posix, cwd)| posix.absolute(&cwd))
}

/// # Safety
/// As getcwd(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getcwd(to: *mut c_char, room: size_t) -> *mut c_char {
    type Function = unsafe extern "C" fn(*mut c_char, size_t) -> *mut c_char;
    let Some(path) = cwd() else {
        // SAFETY: the caller's promise.
        return unsafe { real!(c"getcwd" as Function)(to, room) };
    };
    if room == 0 && !to.is_null() {
        return answer(Err(Errno(libc::EINVAL)));
    }
    let room = if room == 0 { None } else { Some(room) };
    // SAFETY: the caller's promise.
    guarded(|| unsafe { give_text(&path, to, room) })
}

/// # Safety
/// As getcwd(3); the buffer has `known` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __getcwd_chk(to: *mut c_char, room: size_t, known: size_t) -> *mut c_char {
    type Function = unsafe extern "C" fn(*mut c_char, size_t, size_t) -> *mut c_char;
    // SAFETY: the caller's promise. A program that would overrun its buffer is ended by the C
    // library.
    unsafe {
        if room <= known {
            getcwd(to, room)
        } else {
            real!(c"__getcwd_chk" as Function)(to, room, known)
        }
    }
}

/// # Safety
/// As get_current_dir_name(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn get_current_dir_name() -> *mut c_char {
    type Function = unsafe extern "C" fn() -> *mut c_char;
    match cwd() {
        // SAFETY: no buffer is given.
        Some(path) => guarded(|| unsafe { give_text(&path, std::ptr::null_mut(), None) }),
        // SAFETY: no memory is meant.
        None => unsafe { real!(c"get_current_dir_name" as Function)() },
    }
}

/// # Safety
/// As isatty(3): nothing of ours is a terminal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn isatty(fd: c_int) -> c_int {
    type Function = unsafe extern "C" fn(c_int) -> c_int;
    if descriptor(fd).is_some() {
        let _: c_int = answer::<c_int>(Err(Errno(libc::ENOTTY)));
        return 0;
    }
    // SAFETY: no memory is meant.
    unsafe { real!(c"isatty" as Function)(fd) }
}
