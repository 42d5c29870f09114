//! Decides whether a path is ours, and dispatches the call.

use std::ffi::{CStr, c_char, c_int};

use meantime_posix::settings::Settings;
use meantime_posix::{Errno, Found, Posix, ResolvedPath};
use rustix::path::DecInt;

use crate::cwd::current;
use crate::lent::Lent;
use crate::state::{Inside, descriptor, is_ours, mount, settings};
use meantime_hook::{Answer, errno, guarded, set_errno};

/// The owner of a path.
enum Whose<'p> {
    /// The kernel's, by its text.
    Theirs,
    /// Ours, from the root of the file system.
    FromRoot(&'p [u8]),
    /// Ours, from a directory of ours.
    From(Found, &'p [u8]),
    /// A descriptor of ours, named by a path in `/proc` or `/dev`.
    Descriptor(Found),
}

/// The most crossings between our paths and the kernel's.
const MAX_CROSSINGS: u32 = 40;

fn whose<'p>(settings: &Settings, at: c_int, path: &'p [u8]) -> Whose<'p> {
    match path.first() {
        None => Whose::Theirs,
        Some(b'/') => match settings.mount_point.strip(path) {
            Some(rest) => Whose::FromRoot(rest),
            None => match named_descriptor(path).and_then(descriptor) {
                Some(open) => {
                    let open: &Option<_> = &open;
                    open.as_ref()
                        .map_or(Whose::Theirs, |open| Whose::Descriptor(open.found().clone()))
                }
                None => Whose::Theirs,
            },
        },
        Some(_) if at == libc::AT_FDCWD => match current() {
            Some((_, cwd)) => Whose::From(Found::clone(&cwd), path),
            None => Whose::Theirs,
        },
        Some(_) => match descriptor(at).as_deref() {
            Some(Some(open)) => Whose::From(open.found().clone(), path),
            _ => Whose::Theirs,
        },
    }
}

/// The descriptor named by `path`, if it is such a path.
pub(crate) fn named_descriptor(path: &[u8]) -> Option<c_int> {
    let number = match path {
        b"/dev/stdin" => return Some(0),
        [b'/', b'd', b'e', b'v', b'/', b'f', b'd', b'/', number @ ..] => number,
        _ => path.strip_prefix(b"/proc/self/fd/")?,
    };
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// Dispatches a call with a path. If the path is ours, calls `ours` with the resolved path
/// (following a link at its end if `follow`); otherwise `theirs`, with a path for the kernel.
///
/// # Safety
/// `path` is NULL or ends.
#[inline]
pub(crate) unsafe fn on_path<R: Answer>(
    at: c_int,
    path: *const c_char,
    follow: bool,
    mut ours: impl FnMut(&'static Posix, ResolvedPath) -> Result<R, Errno>,
    mut theirs: impl FnMut(c_int, *const c_char) -> R,
) -> R {
    let Some(settings) = settings() else { return theirs(at, path) };
    if path.is_null() || Inside::is_here() {
        return theirs(at, path);
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    match whose(settings, at, bytes) {
        Whose::Theirs => {
            let answer = theirs(at, path);
            if !answer.failed()
                || !matches!(errno(), libc::ENOENT | libc::ENOTDIR)
                || bytes.is_empty()
            {
                return answer;
            }
            let before = errno();
            let Some(walk) = enters(settings, at, bytes, follow) else {
                set_errno(before);
                return answer;
            };
            cross(settings, Whose::FromRoot(walk.rest()), follow, &mut ours, &mut theirs)
        }
        here => cross(settings, here, follow, &mut ours, &mut theirs),
    }
}

/// Resolves a path that does not exist for the kernel, if it enters the mount point.
#[cold]
#[inline(never)]
fn enters(settings: &Settings, at: c_int, path: &[u8], follow: bool) -> Option<Lent> {
    let _inside = Inside::enter();
    let mut walk = Lent::take()?;
    if path[0] != b'/' {
        walk.cwd.fill(|cwd| directory(at, cwd))?;
        // The path of a removed or unreachable directory does not begin with a slash.
        if walk.cwd.as_bytes().first() != Some(&b'/') {
            return None;
        }
    }
    settings.mount_point.enters(path, follow, &mut walk).then_some(walk)
}

/// Writes the path of directory `at` to `to`. Returns its length.
fn directory(at: c_int, to: &mut [u8]) -> Option<usize> {
    if at == libc::AT_FDCWD {
        // SAFETY: a buffer of that size.
        let read = unsafe { libc::syscall(libc::SYS_getcwd, to.as_mut_ptr(), to.len()) };
        // With the NUL at the end.
        return usize::try_from(read).ok()?.checked_sub(1);
    }
    let mut link = *b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0\0";
    let number = DecInt::new(at.max(0));
    link[14..][..number.as_bytes().len()].copy_from_slice(number.as_bytes());
    // SAFETY: a path that ends, and a buffer of that size.
    let read =
        unsafe { libc::syscall(libc::SYS_readlinkat, 0, link.as_ptr(), to.as_mut_ptr(), to.len()) };
    usize::try_from(read).ok()
}

/// Handles a path that begins in our file system: it may leave and enter it again.
fn cross<R: Answer>(
    settings: &Settings,
    here: Whose<'_>,
    follow: bool,
    ours: &mut impl FnMut(&'static Posix, ResolvedPath) -> Result<R, Errno>,
    theirs: &mut impl FnMut(c_int, *const c_char) -> R,
) -> R {
    let mut outside = None;
    let answer = guarded(|| {
        let posix = mount()?;
        let mut place = match here {
            Whose::FromRoot(rest) => posix.find_from_root(rest, follow)?,
            Whose::From(start, rest) => posix.find(start, rest, follow)?,
            Whose::Descriptor(found) => ResolvedPath::Found(found),
            Whose::Theirs => return Err(Errno(libc::ENOENT)),
        };
        for _ in 0..MAX_CROSSINGS {
            let ResolvedPath::Outside(mut path) = place else { return ours(posix, place) };
            place = if let Some(rest) = settings.mount_point.strip(&path) {
                posix.find_from_root(rest, follow)?
            } else if let Some(walk) = enters(settings, libc::AT_FDCWD, &path, follow) {
                posix.find_from_root(walk.rest(), follow)?
            } else {
                path.push(0);
                outside = Some(path);
                return Ok(R::FAILED);
            };
        }
        Err(Errno(libc::ELOOP))
    });
    match outside {
        Some(path) => theirs(libc::AT_FDCWD, path.as_ptr().cast()),
        None => answer,
    }
}

/// Dispatches a call with a directory and a path, or with the descriptor alone if the path is empty
/// and `flags` contain AT_EMPTY_PATH.
///
/// # Safety
/// `path` is NULL or ends.
#[inline]
pub(crate) unsafe fn on_path_or_fd<R: Answer>(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    mut ours: impl FnMut(&'static Posix, ResolvedPath) -> Result<R, Errno>,
    theirs: impl FnMut(c_int, *const c_char) -> R,
) -> R {
    // SAFETY: the caller's promise; Linux takes NULL for an empty path, too.
    let is_empty = flags & libc::AT_EMPTY_PATH != 0 && (path.is_null() || unsafe { *path } == 0);
    if is_empty {
        if is_ours(at) {
            return guarded(|| on_descriptor(at, &mut ours));
        }
        if at == libc::AT_FDCWD
            && let Some((posix, cwd)) = current()
        {
            return guarded(|| ours(posix, ResolvedPath::Found(Found::clone(&cwd))));
        }
    }
    let follow = flags & libc::AT_SYMLINK_NOFOLLOW == 0;
    // SAFETY: the caller's promise.
    unsafe { on_path(at, path, follow, ours, theirs) }
}

/// Dispatches a call with a descriptor: if it is ours, calls `ours` with its resolved path.
#[inline]
pub(crate) fn on_fd<R: Answer>(
    fd: c_int,
    ours: impl FnOnce(&'static Posix, ResolvedPath) -> Result<R, Errno>,
    theirs: impl FnOnce() -> R,
) -> R {
    if is_ours(fd) { guarded(|| on_descriptor(fd, ours)) } else { theirs() }
}

/// Calls `ours` with the resolved path of our descriptor `fd`.
fn on_descriptor<R>(
    fd: c_int,
    ours: impl FnOnce(&'static Posix, ResolvedPath) -> Result<R, Errno>,
) -> Result<R, Errno> {
    let posix = mount()?;
    let open = posix.descriptors().get_full(fd).ok_or(Errno(libc::EBADF))?;
    ours(posix, ResolvedPath::Found(open.found().clone()))
}

/// The bytes of a path or name, which may be NULL.
///
/// # Safety
/// `text` is NULL or ends, and stays as it is for `'a`.
pub(crate) unsafe fn bytes<'a>(text: *const c_char) -> Result<&'a [u8], Errno> {
    if text.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Copies as much of `from` as fits. Returns the number of bytes.
///
/// # Safety
/// `to` has room for `room` bytes.
pub(crate) unsafe fn copy_out(from: &[u8], to: *mut c_char, room: usize) -> usize {
    let bytes = from.len().min(room);
    if bytes > 0 {
        // SAFETY: the caller's promise; `from` is our own.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.cast(), bytes) };
    }
    bytes
}
