//! Handles programs that confine themselves: by seccomp to some system calls, and by chroot to some
//! files.

use std::ffi::{CStr, OsString, c_char, c_int, c_ulong, c_void};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::ptr::{null, null_mut};

use crate::hook::hooks;
use rustix::fs::{Access, access};

use crate::data;
use crate::state::{end, is_active};

/// The variable that makes the loader load this library.
const PRELOAD: &str = "LD_PRELOAD";
/// The name of this library's file in that variable.
const FILE: &[u8] = b"libmeantime_intercept.so";

/// Is called before the program confines itself to some system calls (seccomp). Those of the
/// shared-memory path may not be among them.
#[cold]
pub(crate) fn confined() {
    if !is_active() {
        return;
    }
    end();
    // The next definitions are found now, which may take system calls as well.
    crate::slowly(|| {
        // SAFETY: there is no descriptor -1, and no memory is meant.
        unsafe {
            data::read(-1, null_mut(), 0);
            data::write(-1, null(), 0);
        }
    });
}

/// Is called after the process has got another root. If this library is not there, the loader would
/// report that for each program that is started. Therefore the loader is no longer asked to load
/// it.
#[cold]
pub(crate) fn moved() {
    if !is_active() {
        return;
    }
    crate::slowly(|| {
        let asked = std::env::var_os(PRELOAD).unwrap_or_default();
        if own_file().is_some_and(|file| access(file, Access::EXISTS).is_ok()) {
            return;
        }
        let asked = asked.as_bytes().split(|byte| matches!(byte, b':' | b' '));
        let others: Vec<_> = asked.filter(|library| !library.ends_with(FILE)).collect();
        let others = OsString::from_vec(others.join(&b':'));
        // SAFETY: the caller changes the root of all of its threads, and of what they start.
        unsafe { std::env::set_var(PRELOAD, others) };
    });
}

/// Returns the path at which the loader has found this library.
fn own_file() -> Option<&'static CStr> {
    let mut of = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: an address in this library, and room for what is said of it.
    let found = unsafe { libc::dladdr(own_file as *const c_void, of.as_mut_ptr()) };
    // SAFETY: it is filled in; the name stays as long as the library.
    (found != 0).then(|| unsafe { CStr::from_ptr(of.assume_init().dli_fname) })
}

hooks! {
    "C" fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int = { |real|
        if option == libc::PR_SET_SECCOMP {
            confined();
        }
        // SAFETY: the caller's promise. What was not given is not read.
        unsafe { real()(option, a, b, c, d) }
    }

    "C" fn chroot(path: *const c_char) -> c_int = { |real|
        // SAFETY: the caller's promise.
        let answer = unsafe { real()(path) };
        if answer == 0 {
            moved();
        }
        answer
    }
}
