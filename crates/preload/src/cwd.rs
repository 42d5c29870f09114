//! The working directory, if it is below the mount point.
//!
//! The kernel cannot enter it. Its working directory is set to a removed directory instead, so that
//! a relative path that this library does not see fails, and never refers to something else. The
//! directory's name tells an executed program, which only knows the kernel's state, where it is.

use std::ffi::{CString, c_char, c_int};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use libc::mode_t;
use meantime_posix::{Errno, Found, Posix, ResolvedPath};

use crate::state::{is_owner, mount, mounted};
use meantime_hook::{errno, real};

/// Prefix of such a name; followed by process, number, and the path with [`SLASH`] for each slash.
const PREFIX: &[u8] = b"meantime-cwd.";
const SLASH: u8 = 0x1f;
const NAME_MAX: usize = 255;

/// The path in which this program started, until it is first needed.
static INHERITED: AtomicPtr<Vec<u8>> = AtomicPtr::new(null_mut());

/// Records the program's starting directory, if it is ours.
pub(crate) fn inherit() {
    let Ok(link) = std::fs::read_link("/proc/self/cwd") else { return };
    let link = std::os::unix::ffi::OsStringExt::into_vec(link.into_os_string());
    if let Some(path) = path_in(&link) {
        INHERITED.store(Box::into_raw(Box::new(path)), Ordering::Release);
    }
}

/// Our path in the kernel's name of a working directory.
fn path_in(link: &[u8]) -> Option<Vec<u8>> {
    let name = link.strip_suffix(b" (deleted)")?.rsplit(|&byte| byte == b'/').next()?;
    let rest = name.strip_prefix(PREFIX)?;
    let start = rest.iter().position(|&byte| byte == SLASH).unwrap_or(rest.len());
    Some(rest[start..].iter().map(|&byte| if byte == SLASH { b'/' } else { byte }).collect())
}

/// After mounting: sets the working directory in which this program started.
pub(crate) fn settle(posix: &Posix) {
    let inherited = INHERITED.swap(null_mut(), Ordering::AcqRel);
    if inherited.is_null() {
        return;
    }
    // SAFETY: made by `inherit`, and taken only here.
    let path = unsafe { Box::from_raw(inherited) };
    if let Ok(ResolvedPath::Found(found)) = posix.find_from_root(&path, true) {
        posix.set_cwd(Some(found));
    }
}

/// The mount, if the working directory may be ours.
fn home() -> Option<&'static Posix> {
    if INHERITED.load(Ordering::Relaxed).is_null() { mounted() } else { mount().ok() }
}

/// The working directory, if it is ours.
#[inline]
pub(crate) fn current() -> Option<(&'static Posix, Arc<Found>)> {
    let posix = home()?;
    Some((posix, posix.cwd()?))
}

/// Changes the working directory to `place`.
pub(crate) fn change(posix: &'static Posix, place: ResolvedPath) -> Result<c_int, Errno> {
    if !is_owner() {
        return Err(Errno(libc::EIO));
    }
    let found = place.found()?;
    if !found.is_directory() {
        return Err(Errno(libc::ENOTDIR));
    }
    send_kernel_away(found.path())?;
    posix.set_cwd(Some(found));
    Ok(0)
}

type OnPath = unsafe extern "C" fn(*const c_char) -> c_int;

fn send_kernel_away(path: &[u8]) -> Result<(), Errno> {
    type Mkdir = unsafe extern "C" fn(*const c_char, mode_t) -> c_int;
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let mut name = [PREFIX, format!("{}.{number}", std::process::id()).as_bytes()].concat();
    name.extend(path.iter().map(|&byte| if byte == b'/' { SLASH } else { byte }));
    if name.len() > NAME_MAX {
        return Err(Errno(libc::ENAMETOOLONG));
    }
    let mut failed = libc::ENOENT;
    for place in ["/dev/shm/", "/tmp/", "/var/tmp/"] {
        let whole = [place.as_bytes(), &name].concat();
        let Ok(whole) = CString::new(whole) else { return Err(Errno(libc::EINVAL)) };
        // SAFETY: a path that ends.
        unsafe {
            if real!(c"mkdir", Mkdir)(whole.as_ptr(), 0o700) != 0 {
                failed = errno();
                continue;
            }
            let changed = real!(c"chdir", OnPath)(whole.as_ptr());
            failed = errno();
            real!(c"rmdir", OnPath)(whole.as_ptr());
            if changed == 0 {
                return Ok(());
            }
        }
    }
    Err(Errno(failed))
}

/// The kernel has changed the working directory: it is no longer ours.
pub(crate) fn left(result: c_int) -> c_int {
    if result == 0 && is_owner() {
        INHERITED.store(null_mut(), Ordering::Release);
        if let Some(posix) = mounted().filter(|posix| posix.cwd().is_some()) {
            posix.set_cwd(None);
        }
    }
    result
}
