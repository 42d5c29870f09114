//! Calls that change something: EROFS for our paths, at the point where Linux returns it.
//! Descriptors of ours are open for reading, and the kernel, for which they are names only, answers
//! EBADF to a write as it should.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libc::{dev_t, gid_t, mode_t, off_t, size_t, timespec, timeval, uid_t, utimbuf};
use meantime_posix::{Errno, Posix, ResolvedPath};

use crate::path::{on_path, on_path_or_fd};
use crate::real::{errno, real, set_errno};
use crate::state::is_ours;

/// Makes a name.
fn make(posix: &'static Posix, place: ResolvedPath) -> Result<c_int, Errno> {
    Err(posix.make(&place))
}

/// Changes what is there.
fn change(posix: &'static Posix, place: ResolvedPath) -> Result<c_int, Errno> {
    Err(posix.change(&place))
}

/// Takes a name away: Linux says EROFS before it looks for the name.
fn remove_name(_: &'static Posix, _: ResolvedPath) -> Result<c_int, Errno> {
    Err(Errno(libc::EROFS))
}

/// Changes the length: not of directories, nor of what has none.
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
    ($($name:ident: $real:literal, $ours:ident, $follow:literal, ($($arg:ident: $ty:ty),*);)*) => {$(
        /// # Safety
        /// As the function of that name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char $(, $arg: $ty)*) -> c_int {
            type Function = unsafe extern "C" fn(*const c_char $(, $ty)*) -> c_int;
            // SAFETY: the caller's promise.
            unsafe { on_path(libc::AT_FDCWD, path, $follow, $ours, |_, path| real!($real as Function)(path $(, $arg)*)) }
        }
    )*};
    (at: $($name:ident: $real:literal, $ours:ident, ($($arg:ident: $ty:ty),*), $flags:expr;)*) => {$(
        /// # Safety
        /// As the function of that name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(at: c_int, path: *const c_char $(, $arg: $ty)*) -> c_int {
            type Function = unsafe extern "C" fn(c_int, *const c_char $(, $ty)*) -> c_int;
            // SAFETY: the caller's promise.
            unsafe { on_path_or_fd(at, path, $flags, $ours, |at, path| real!($real as Function)(at, path $(, $arg)*)) }
        }
    )*};
}

path_hooks! {
    mkdir: c"mkdir", make, false, (mode: mode_t);
    mknod: c"mknod", make, false, (mode: mode_t, device: dev_t);
    mkfifo: c"mkfifo", make, false, (mode: mode_t);
    unlink: c"unlink", remove_name, false, ();
    rmdir: c"rmdir", remove_name, false, ();
    remove: c"remove", remove_name, false, ();
    truncate: c"truncate", resize, true, (bytes: off_t);
    truncate64: c"truncate64", resize, true, (bytes: off_t);
    chmod: c"chmod", change, true, (mode: mode_t);
    lchmod: c"lchmod", change, false, (mode: mode_t);
    chown: c"chown", change, true, (owner: uid_t, group: gid_t);
    lchown: c"lchown", change, false, (owner: uid_t, group: gid_t);
    utime: c"utime", change, true, (times: *const utimbuf);
    utimes: c"utimes", change, true, (times: *const timeval);
    lutimes: c"lutimes", change, false, (times: *const timeval);
    setxattr: c"setxattr", change, true, (name: *const c_char, value: *const c_void, bytes: size_t, flags: c_int);
    lsetxattr: c"lsetxattr", change, false, (name: *const c_char, value: *const c_void, bytes: size_t, flags: c_int);
    removexattr: c"removexattr", change, true, (name: *const c_char);
    lremovexattr: c"lremovexattr", change, false, (name: *const c_char);
}

const NO_FOLLOW: c_int = libc::AT_SYMLINK_NOFOLLOW;

path_hooks! {
    at:
    mkdirat: c"mkdirat", make, (mode: mode_t), NO_FOLLOW;
    mknodat: c"mknodat", make, (mode: mode_t, device: dev_t), NO_FOLLOW;
    mkfifoat: c"mkfifoat", make, (mode: mode_t), NO_FOLLOW;
    unlinkat: c"unlinkat", remove_name, (flags: c_int), NO_FOLLOW;
    fchmodat: c"fchmodat", change, (mode: mode_t, flags: c_int), flags;
    fchownat: c"fchownat", change, (owner: uid_t, group: gid_t, flags: c_int), flags;
    futimesat: c"futimesat", change, (times: *const timeval), 0;
}

/// # Safety
/// As utimensat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn utimensat(
    at: c_int,
    path: *const c_char,
    times: *const timespec,
    flags: c_int,
) -> c_int {
    type Function = unsafe extern "C" fn(c_int, *const c_char, *const timespec, c_int) -> c_int;
    // Without a path Linux means the descriptor, but the C library refuses that.
    if path.is_null() && is_ours(at) {
        set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: the caller's promise.
    unsafe {
        on_path_or_fd(at, path, flags, change, |at, path| {
            real!(c"utimensat" as Function)(at, path, times, flags)
        })
    }
}

/// Functions of a descriptor.
macro_rules! descriptor_hooks {
    ($($name:ident: $real:literal, $errno:ident, ($($arg:ident: $ty:ty),*);)*) => {$(
        /// # Safety
        /// As the function of that name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int $(, $arg: $ty)*) -> c_int {
            type Function = unsafe extern "C" fn(c_int $(, $ty)*) -> c_int;
            if is_ours(fd) {
                set_errno(libc::$errno);
                return -1;
            }
            // SAFETY: the caller's promise.
            unsafe { real!($real as Function)(fd $(, $arg)*) }
        }
    )*};
}

descriptor_hooks! {
    fchmod: c"fchmod", EROFS, (mode: mode_t);
    fchown: c"fchown", EROFS, (owner: uid_t, group: gid_t);
    ftruncate: c"ftruncate", EINVAL, (bytes: off_t);
    ftruncate64: c"ftruncate64", EINVAL, (bytes: off_t);
    futimens: c"futimens", EROFS, (times: *const timespec);
    futimes: c"futimes", EROFS, (times: *const timeval);
    fsetxattr: c"fsetxattr", EROFS, (name: *const c_char, value: *const c_void, bytes: size_t, flags: c_int);
    fremovexattr: c"fremovexattr", EROFS, (name: *const c_char);
}

/// A call with a name that is there and one to be made. `both` answers if the second is ours; a
/// first one of ours alone is on another file system (EXDEV).
///
/// # Safety
/// The paths are NULL or end.
unsafe fn two_paths(
    from: (c_int, *const c_char),
    to: (c_int, *const c_char),
    both: impl FnMut(&'static Posix, ResolvedPath) -> Result<c_int, Errno>,
    mut theirs: impl FnMut((c_int, *const c_char), (c_int, *const c_char)) -> c_int,
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

/// What renaming to a name of ours answers: EROFS from a name of ours, EXDEV from another.
///
/// # Safety
/// The path is NULL or ends.
unsafe fn renamed_to_ours(at: c_int, from: *const c_char) -> Result<c_int, Errno> {
    let elsewhere = |_, _| {
        set_errno(libc::EXDEV);
        -1
    };
    // SAFETY: the caller's promise.
    unsafe { on_path(at, from, false, remove_name, elsewhere) };
    Err(Errno(errno()))
}

type RenameAt2 = unsafe extern "C" fn(c_int, *const c_char, c_int, *const c_char, c_uint) -> c_int;
type RenameAt = unsafe extern "C" fn(c_int, *const c_char, c_int, *const c_char) -> c_int;
type LinkAt = unsafe extern "C" fn(c_int, *const c_char, c_int, *const c_char, c_int) -> c_int;
type SymlinkAt = unsafe extern "C" fn(*const c_char, c_int, *const c_char) -> c_int;

/// # Safety
/// As renameat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn renameat(
    from_at: c_int,
    from: *const c_char,
    to_at: c_int,
    to: *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        two_paths(
            (from_at, from),
            (to_at, to),
            |_, _| renamed_to_ours(from_at, from),
            |from, to| real!(c"renameat" as RenameAt)(from.0, from.1, to.0, to.1),
        )
    }
}

/// # Safety
/// As renameat2(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn renameat2(
    from_at: c_int,
    from: *const c_char,
    to_at: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        two_paths(
            (from_at, from),
            (to_at, to),
            |_, _| renamed_to_ours(from_at, from),
            |from, to| real!(c"renameat2" as RenameAt2)(from.0, from.1, to.0, to.1, flags),
        )
    }
}

/// # Safety
/// As rename(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { renameat(libc::AT_FDCWD, from, libc::AT_FDCWD, to) }
}

/// # Safety
/// As linkat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkat(
    from_at: c_int,
    from: *const c_char,
    to_at: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    if flags & libc::AT_EMPTY_PATH != 0 && is_ours(from_at) {
        set_errno(libc::EXDEV);
        return -1;
    }
    // SAFETY: the caller's promise.
    unsafe {
        two_paths((from_at, from), (to_at, to), make, |from, to| {
            real!(c"linkat" as LinkAt)(from.0, from.1, to.0, to.1, flags)
        })
    }
}

/// # Safety
/// As link(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { linkat(libc::AT_FDCWD, from, libc::AT_FDCWD, to, 0) }
}

/// # Safety
/// As symlinkat(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symlinkat(target: *const c_char, at: c_int, path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        on_path(at, path, false, make, |at, path| {
            real!(c"symlinkat" as SymlinkAt)(target, at, path)
        })
    }
}

/// # Safety
/// As symlink(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symlink(target: *const c_char, path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { symlinkat(target, libc::AT_FDCWD, path) }
}
