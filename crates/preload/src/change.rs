//! Calls that change something: EROFS for our paths, at the same point as in Linux. Our descriptors
//! are open for reading, and the kernel, for which they are names only, correctly answers a write
//! with EBADF.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libc::{dev_t, gid_t, mode_t, off_t, size_t, timespec, timeval, uid_t, utimbuf};
use meantime_posix::{Errno, Posix, ResolvedPath};

use crate::path::{on_path, on_path_or_fd};
use crate::state::is_ours;
use meantime_hook::{errno, fail, forwards, hooks};

/// Creates a name.
fn make(posix: &'static Posix, place: ResolvedPath) -> Result<c_int, Errno> {
    Err(posix.make(&place))
}

/// Changes an existing file.
fn change(posix: &'static Posix, place: ResolvedPath) -> Result<c_int, Errno> {
    Err(posix.change(&place))
}

/// Removes a name: Linux returns EROFS before it looks the name up.
fn remove_name(_: &'static Posix, _: ResolvedPath) -> Result<c_int, Errno> {
    Err(Errno(libc::EROFS))
}

/// Changes the length of a file, but not of directories or special files.
fn resize(posix: &'static Posix, place: ResolvedPath) -> Result<c_int, Errno> {
    use meantime_ext4::FileType;
    let found = place.found()?;
    Err(match found.node().file_type() {
        FileType::Directory => Errno(libc::EISDIR),
        FileType::Regular => posix.change(&ResolvedPath::Found(found)),
        _ => Errno(libc::EINVAL),
    })
}

/// Functions of one path: at the working directory, or at a descriptor that is their first
/// argument.
macro_rules! path_hooks {
    ($($name:ident: $ours:ident, $follow:literal, ($($arg:ident: $ty:ty),*);)*) => {hooks! {$(
        "C" fn $name(path: *const c_char $(, $arg: $ty)*) -> c_int = { |real|
            // SAFETY: the caller's promise.
            let theirs = |_, path| unsafe { real()(path $(, $arg)*) };
            // SAFETY: the caller's promise.
            unsafe { on_path(libc::AT_FDCWD, path, $follow, $ours, theirs) }
        }
    )*}};
    (at: $($name:ident: $ours:ident, ($($arg:ident: $ty:ty),*), $flags:expr;)*) => {hooks! {$(
        "C" fn $name(at: c_int, path: *const c_char $(, $arg: $ty)*) -> c_int = { |real|
            // SAFETY: the caller's promise.
            let theirs = |at, path| unsafe { real()(at, path $(, $arg)*) };
            // SAFETY: the caller's promise.
            unsafe { on_path_or_fd(at, path, $flags, $ours, theirs) }
        }
    )*}};
}

path_hooks! {
    mkdir: make, false, (mode: mode_t);
    mknod: make, false, (mode: mode_t, device: dev_t);
    mkfifo: make, false, (mode: mode_t);
    unlink: remove_name, false, ();
    rmdir: remove_name, false, ();
    remove: remove_name, false, ();
    truncate: resize, true, (bytes: off_t);
    truncate64: resize, true, (bytes: off_t);
    chmod: change, true, (mode: mode_t);
    lchmod: change, false, (mode: mode_t);
    chown: change, true, (owner: uid_t, group: gid_t);
    lchown: change, false, (owner: uid_t, group: gid_t);
    utime: change, true, (times: *const utimbuf);
    utimes: change, true, (times: *const timeval);
    lutimes: change, false, (times: *const timeval);
    setxattr: change, true,
        (name: *const c_char, value: *const c_void, bytes: size_t, flags: c_int);
    lsetxattr: change, false,
        (name: *const c_char, value: *const c_void, bytes: size_t, flags: c_int);
    removexattr: change, true, (name: *const c_char);
    lremovexattr: change, false, (name: *const c_char);
}

const NO_FOLLOW: c_int = libc::AT_SYMLINK_NOFOLLOW;

path_hooks! {
    at:
    mkdirat: make, (mode: mode_t), NO_FOLLOW;
    mknodat: make, (mode: mode_t, device: dev_t), NO_FOLLOW;
    mkfifoat: make, (mode: mode_t), NO_FOLLOW;
    unlinkat: remove_name, (flags: c_int), NO_FOLLOW;
    fchmodat: change, (mode: mode_t, flags: c_int), flags;
    fchownat: change, (owner: uid_t, group: gid_t, flags: c_int), flags;
    futimesat: change, (times: *const timeval), 0;
}

hooks! {
    "C" fn utimensat(
        at: c_int, path: *const c_char, times: *const timespec, flags: c_int,
    ) -> c_int = { |real|
        // Without a path Linux uses the descriptor, but the C library refuses that.
        if path.is_null() && is_ours(at) {
            return fail(libc::EINVAL);
        }
        // SAFETY: the caller's promise.
        let theirs = |at, path| unsafe { real()(at, path, times, flags) };
        // SAFETY: the caller's promise.
        unsafe { on_path_or_fd(at, path, flags, change, theirs) }
    }
}

/// Functions of a descriptor.
macro_rules! descriptor_hooks {
    ($($name:ident: $errno:ident, ($($arg:ident: $ty:ty),*);)*) => {hooks! {$(
        "C" fn $name(fd: c_int $(, $arg: $ty)*) -> c_int = { |real|
            // SAFETY: the caller's promise.
            if is_ours(fd) { fail(libc::$errno) } else { unsafe { real()(fd $(, $arg)*) } }
        }
    )*}};
}

descriptor_hooks! {
    fchmod: EROFS, (mode: mode_t);
    fchown: EROFS, (owner: uid_t, group: gid_t);
    ftruncate: EINVAL, (bytes: off_t);
    ftruncate64: EINVAL, (bytes: off_t);
    futimens: EROFS, (times: *const timespec);
    futimes: EROFS, (times: *const timeval);
    fsetxattr: EROFS, (name: *const c_char, value: *const c_void, bytes: size_t, flags: c_int);
    fremovexattr: EROFS, (name: *const c_char);
}

/// A directory and a path from there.
type At = (c_int, *const c_char);

/// A call with an existing name and a new one. `both` answers if the second is ours; if only the
/// first is, it is on another file system (EXDEV).
///
/// # Safety
/// The paths are NULL or end.
unsafe fn two_paths(
    from: At,
    to: At,
    both: impl FnMut(&'static Posix, ResolvedPath) -> Result<c_int, Errno>,
    mut theirs: impl FnMut(At, At) -> c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        on_path(to.0, to.1, false, both, |to_at, to_path| {
            let elsewhere = |_: &'static Posix, place: ResolvedPath| {
                place.found()?;
                Err(Errno(libc::EXDEV))
            };
            on_path(from.0, from.1, false, elsewhere, |at, path| {
                theirs((at, path), (to_at, to_path))
            })
        })
    }
}

/// The result of a rename to a name of ours: EROFS from a name of ours, EXDEV from another.
///
/// # Safety
/// The path is NULL or ends.
unsafe fn renamed_to_ours(at: c_int, from: *const c_char) -> Result<c_int, Errno> {
    // SAFETY: the caller's promise.
    unsafe { on_path(at, from, false, remove_name, |_, _| fail(libc::EXDEV)) };
    Err(Errno(errno()))
}

hooks! {
    "C" fn renameat(
        from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char,
    ) -> c_int = { |real|
        // SAFETY: the caller's promise.
        let both = |_, _| unsafe { renamed_to_ours(from_at, from) };
        // SAFETY: the caller's promise.
        let theirs = |from: At, to: At| unsafe { real()(from.0, from.1, to.0, to.1) };
        // SAFETY: the caller's promise.
        unsafe { two_paths((from_at, from), (to_at, to), both, theirs) }
    }

    "C" fn renameat2(
        from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char, flags: c_uint,
    ) -> c_int = { |real|
        // SAFETY: the caller's promise.
        let both = |_, _| unsafe { renamed_to_ours(from_at, from) };
        // SAFETY: the caller's promise.
        let theirs = |from: At, to: At| unsafe { real()(from.0, from.1, to.0, to.1, flags) };
        // SAFETY: the caller's promise.
        unsafe { two_paths((from_at, from), (to_at, to), both, theirs) }
    }

    "C" fn linkat(
        from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char, flags: c_int,
    ) -> c_int = { |real|
        if flags & libc::AT_EMPTY_PATH != 0 && is_ours(from_at) {
            return fail(libc::EXDEV);
        }
        // SAFETY: the caller's promise.
        let theirs = |from: At, to: At| unsafe { real()(from.0, from.1, to.0, to.1, flags) };
        // SAFETY: the caller's promise.
        unsafe { two_paths((from_at, from), (to_at, to), make, theirs) }
    }

    "C" fn symlinkat(target: *const c_char, at: c_int, path: *const c_char) -> c_int = { |real|
        // SAFETY: the caller's promise.
        unsafe { on_path(at, path, false, make, |at, path| real()(target, at, path)) }
    }
}

forwards! {
    "C" fn rename(from: *const c_char, to: *const c_char) -> c_int
        => renameat(libc::AT_FDCWD, from, libc::AT_FDCWD, to);
    "C" fn link(from: *const c_char, to: *const c_char) -> c_int
        => linkat(libc::AT_FDCWD, from, libc::AT_FDCWD, to, 0);
    "C" fn symlink(target: *const c_char, path: *const c_char) -> c_int
        => symlinkat(target, libc::AT_FDCWD, path);
}
