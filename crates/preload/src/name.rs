//! Links, absolute paths, the working directory.

use std::ffi::{c_char, c_int};

use libc::{size_t, ssize_t};
use meantime_posix::{Errno, Posix, ResolvedPath};

use crate::cwd::{change, current, left};
use crate::path::{bytes, copy_out, named_descriptor, on_fd, on_path, on_path_or_fd};
use crate::state::descriptor;
use meantime_hook::{fail, forwards, guarded, hooks, set_errno};

hooks! {
    "C" fn readlinkat(
        at: c_int, path: *const c_char, to: *mut c_char, room: size_t,
    ) -> ssize_t = { |real|
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
        // An empty path means the link that the descriptor refers to, without a flag.
        let flags = libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW;
        // SAFETY: the caller's promise.
        unsafe { on_path_or_fd(at, path, flags, ours, |at, path| real()(at, path, to, room)) }
    }

    // The last argument is the buffer's size known to the compiler, here and in `__getcwd_chk`: the
    // C library ends a program that would overrun it.
    "C" fn __readlink_chk(
        path: *const c_char, to: *mut c_char, room: size_t, known: size_t,
    ) -> ssize_t = { |real|
        // SAFETY: the caller's promise.
        unsafe {
            if room <= known { readlink(path, to, room) } else { real()(path, to, room, known) }
        }
    }
}

forwards! {
    "C" fn readlink(path: *const c_char, to: *mut c_char, room: size_t) -> ssize_t
        => readlinkat(libc::AT_FDCWD, path, to, room);
    "C" fn canonicalize_file_name(path: *const c_char) -> *mut c_char
        => realpath(path, std::ptr::null_mut());
}

/// Returns a text in memory of the C library, or in `to`.
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

hooks! {
    "C" fn realpath(path: *const c_char, to: *mut c_char) -> *mut c_char = { |real|
        let ours = |posix: &'static Posix, place: ResolvedPath| {
            let found = place.found()?;
            // SAFETY: the caller's promise.
            unsafe { give_text(&posix.absolute(&found), to, None) }
        };
        // SAFETY: the caller's promise.
        unsafe { on_path(libc::AT_FDCWD, path, true, ours, |_, path| real()(path, to)) }
    }

    // The buffer has `room` bytes. The C library ends a program that could overrun it.
    "C" fn __realpath_chk(
        path: *const c_char, to: *mut c_char, room: size_t,
    ) -> *mut c_char = { |real|
        let fits = room >= libc::PATH_MAX as usize;
        // SAFETY: the caller's promise.
        unsafe { if fits { realpath(path, to) } else { real()(path, to, room) } }
    }

    "C" fn chdir(path: *const c_char) -> c_int = { |real|
        // SAFETY: the caller's promise.
        unsafe { on_path(libc::AT_FDCWD, path, true, change, |_, path| left(real()(path))) }
    }

    "C" fn fchdir(fd: c_int) -> c_int = { |real|
        // SAFETY: no memory is meant.
        on_fd(fd, change, || left(unsafe { real()(fd) }))
    }
}

/// The working directory's path, if it is one of ours.
fn cwd() -> Option<Vec<u8>> {
    current().map(|(posix, cwd)| posix.absolute(&cwd))
}

hooks! {
    "C" fn getcwd(to: *mut c_char, room: size_t) -> *mut c_char = { |real|
        let Some(path) = cwd() else {
            // SAFETY: the caller's promise.
            return unsafe { real()(to, room) };
        };
        if room == 0 && !to.is_null() {
            return fail(libc::EINVAL);
        }
        let room = if room == 0 { None } else { Some(room) };
        // SAFETY: the caller's promise.
        guarded(|| unsafe { give_text(&path, to, room) })
    }

    "C" fn __getcwd_chk(to: *mut c_char, room: size_t, known: size_t) -> *mut c_char = { |real|
        // SAFETY: the caller's promise.
        unsafe { if room <= known { getcwd(to, room) } else { real()(to, room, known) } }
    }

    "C" fn get_current_dir_name() -> *mut c_char = { |real|
        match cwd() {
            // SAFETY: no buffer is given.
            Some(path) => guarded(|| unsafe { give_text(&path, std::ptr::null_mut(), None) }),
            // SAFETY: no memory is meant.
            None => unsafe { real()() },
        }
    }

    // None of our files is a terminal.
    "C" fn isatty(fd: c_int) -> c_int = { |real|
        if descriptor(fd).is_some() {
            set_errno(libc::ENOTTY);
            return 0;
        }
        // SAFETY: no memory is meant.
        unsafe { real()(fd) }
    }
}
