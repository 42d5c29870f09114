//! The functions that make a descriptor refer to another file, or that change its flags.

use std::ffi::{c_char, c_int, c_uint, c_ulong};

use crate::hook::{cancellation_point, errno, forwards, hooks, real, set_errno};
use libc::{FILE, mode_t};
use meantime_process::{descriptor as reserved, thread};

use crate::map::prepare_append;
use crate::resolve::Use;
use crate::state::{TABLE, device, is_active, is_owner};
use crate::table::Entry;

type Close = unsafe extern "C-unwind" fn(c_int) -> c_int;

/// Returns whether `fd` is not the program's, but this library's socket. For the program, the
/// number is not open, or is above its limit. Our own code also closes by `close`.
#[inline]
fn is_hidden(fd: c_int) -> bool {
    reserved::is_reserved(fd) && !thread::is_ours()
}

/// Returns the kernel's answer for a number that is not open, or is above the limit.
#[cold]
fn not_open() -> c_int {
    set_errno(libc::EBADF);
    -1
}

/// Notes that the kernel has opened a file as `fd`.
fn opened(fd: c_int) -> c_int {
    if fd >= 0 && is_active() {
        TABLE.forget(fd, is_owner());
    }
    fd
}

/// Notes that the kernel has opened a file by a call with `flags`.
///
/// A file that will be appended to is taken at once. Until then another program's appends take the
/// FUSE path, and the file would stay there.
fn opened_with(fd: c_int, flags: c_int) -> c_int {
    let fd = opened(fd);
    let appends = flags & libc::O_APPEND != 0 && flags & libc::O_ACCMODE != libc::O_RDONLY;
    if appends && fd >= 0 && is_active() && is_owner() {
        crate::call::find_out(fd, Use::Other);
    }
    fd
}

/// Notes that the kernel has made `new` a duplicate of `old`.
fn duplicated(old: c_int, new: c_int) -> c_int {
    if new >= 0 && new != old && is_active() {
        TABLE.forget(new, TABLE.is_own(old) && is_owner());
    }
    new
}

hooks! {
    "C" fn dup(fd: c_int) -> c_int = { |real|
        if is_hidden(fd) {
            return not_open();
        }
        // SAFETY: no memory is meant.
        duplicated(fd, unsafe { real()(fd) })
    }

    "C" fn dup2(old: c_int, new: c_int) -> c_int = { |real|
        if is_hidden(old) || is_hidden(new) {
            return not_open();
        }
        // SAFETY: no memory is meant.
        duplicated(old, unsafe { real()(old, new) })
    }

    "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int = { |real|
        if is_hidden(old) || is_hidden(new) {
            return not_open();
        }
        // SAFETY: no memory is meant.
        duplicated(old, unsafe { real()(old, new, flags) })
    }

    "C-unwind" fn close(fd: c_int) -> c_int = { |real|
        if reserved::is_reserved(fd) {
            return close_reserved(fd, real());
        }
        // The table comes first, because after the kernel has closed the descriptor, another thread
        // may get the number.
        if is_active() {
            cancellation_point();
            TABLE.forget(fd, false);
        }
        // SAFETY: no memory is meant.
        unsafe { real()(fd) }
    }
}

forwards! {
    "C" fn __dup2(old: c_int, new: c_int) -> c_int => dup2(old, new);
    "C-unwind" fn __close(fd: c_int) -> c_int => close(fd);
}

#[cold]
fn close_reserved(fd: c_int, real: Close) -> c_int {
    if is_hidden(fd) {
        return not_open();
    }
    // SAFETY: no memory is meant.
    let closed = unsafe { real(fd) };
    reserved::closed(fd);
    closed
}

const CLOSE_RANGE_UNSHARE: c_int = 2;
const CLOSE_RANGE_CLOEXEC: c_int = 4;

hooks! {
    "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int = { |real|
        // SAFETY: no memory is meant.
        let range = |first, last| unsafe { real()(first, last, flags) };
        if !is_active() {
            return range(first, last);
        }
        if flags & CLOSE_RANGE_UNSHARE != 0 {
            crate::children::unshared();
        }
        if flags & CLOSE_RANGE_CLOEXEC != 0 || first > last {
            // Our descriptors are close-on-exec already.
            return range(first, last);
        }
        TABLE.forget_range(first, last);
        reserved::around_reserved(first, last, range)
    }

    "C" fn closefrom(first: c_int) -> () = { |real|
        let first = first.max(0);
        if is_active() {
            TABLE.forget_range(first as c_uint, c_uint::MAX);
        }
        let Some(highest) = reserved::highest_from(first) else {
            // SAFETY: no memory is meant.
            return unsafe { real()(first) };
        };
        // SAFETY: no memory is meant, here and below.
        if unsafe { close_range(first as c_uint, c_uint::MAX, 0) } == 0 {
            return;
        }
        // This is a kernel before 5.9.
        reserved::around_reserved(first as c_uint, highest as c_uint, |first, last| {
            for fd in first..=last {
                // SAFETY: no memory is meant.
                unsafe { real!(c"close", Close)(fd as c_int) };
            }
            0
        });
        // SAFETY: as above.
        unsafe { real()(highest + 1) }
    }
}

macro_rules! fcntl_hooks {
    ($($name:ident: $real:literal;)*) => {$(
        /// # Safety
        /// The caller keeps the contract of fcntl(2).
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            fd: c_int,
            command: c_int,
            argument: c_ulong,
        ) -> c_int {
            // Querying whether a number is in use is allowed, because programs look for free ones.
            if command != libc::F_GETFD && is_hidden(fd) {
                return not_open();
            }
            type Fcntl = unsafe extern "C-unwind" fn(c_int, c_int, ...) -> c_int;
            // SAFETY: the caller's promise. An argument that was not given is never read.
            let answer = unsafe { real!($real, Fcntl)(fd, command, argument) };
            match command {
                libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicated(fd, answer),
                libc::F_SETFL if is_active() => {
                    flags_changed(fd);
                    answer
                }
                _ => answer,
            }
        }
    )*};
}

fcntl_hooks! {
    fcntl: c"fcntl";
    fcntl64: c"fcntl64";
    __fcntl: c"fcntl";
}

/// Notes that flags of `fd` were changed. Other descriptors may refer to the same open file.
fn flags_changed(fd: c_int) {
    if fd < 0 || matches!(TABLE.load(fd), Some((Entry::Foreign, _))) {
        return;
    }
    if is_on_mount(fd) {
        TABLE.forget_flags();
    }
}

/// Returns whether `fd`, which is not negative, is open on the mount.
pub(crate) fn is_on_mount(fd: c_int) -> bool {
    // SAFETY: a number that is not open is an error.
    let of = rustix::fs::fstat(unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) });
    of.is_ok_and(|of| of.st_dev == device())
}

type Open = unsafe extern "C-unwind" fn(*const c_char, c_int, ...) -> c_int;
type OpenAt = unsafe extern "C-unwind" fn(c_int, *const c_char, c_int, ...) -> c_int;

macro_rules! open_hooks {
    ($($name:ident: $real:literal, $at:ident: $real_at:literal;)*) => {$(
        /// # Safety
        /// The caller keeps the contract of openat(2).
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $at(
            at: c_int,
            path: *const c_char,
            flags: c_int,
            mode: mode_t,
        ) -> c_int {
            // SAFETY: the caller's promise. A mode that was not given is never read.
            opened_with(unsafe { real!($real_at, OpenAt)(at, path, flags, mode) }, flags)
        }

        /// # Safety
        /// The caller keeps the contract of open(2).
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            path: *const c_char,
            flags: c_int,
            mode: mode_t,
        ) -> c_int {
            // SAFETY: as above.
            opened_with(unsafe { real!($real, Open)(path, flags, mode) }, flags)
        }
    )*};
}

open_hooks! {
    open: c"open", openat: c"openat";
    open64: c"open64", openat64: c"openat64";
    __open: c"open", __openat: c"openat";
    __open64: c"open64", __openat64: c"openat64";
}

// These are the functions that _FORTIFY_SOURCE substitutes for a call without a mode.
forwards! {
    "C-unwind" fn __open_2(path: *const c_char, flags: c_int) -> c_int => open(path, flags, 0);
    "C-unwind" fn __open64_2(path: *const c_char, flags: c_int) -> c_int => open64(path, flags, 0);
    "C-unwind" fn __openat_2(at: c_int, path: *const c_char, flags: c_int) -> c_int
        => openat(at, path, flags, 0);
    "C-unwind" fn __openat64_2(at: c_int, path: *const c_char, flags: c_int) -> c_int
        => openat64(at, path, flags, 0);
}

hooks! {
    "C-unwind" fn (creat creat64)(path: *const c_char, mode: mode_t) -> c_int = { |real|
        // SAFETY: the caller's promise.
        opened(unsafe { real()(path, mode) })
    }

    "C-unwind" fn (mkstemp mkstemp64)(template: *mut c_char) -> c_int = { |real|
        // SAFETY: the caller's promise.
        opened(unsafe { real()(template) })
    }

    "C-unwind" fn (mkostemp mkostemp64)(template: *mut c_char, flags: c_int) -> c_int = { |real|
        // SAFETY: the caller's promise.
        opened(unsafe { real()(template, flags) })
    }

    "C-unwind" fn (mkstemps mkstemps64)(template: *mut c_char, length: c_int) -> c_int = { |real|
        // SAFETY: the caller's promise.
        opened(unsafe { real()(template, length) })
    }

    "C-unwind" fn (mkostemps mkostemps64)(
        template: *mut c_char, length: c_int, flags: c_int,
    ) -> c_int = { |real|
        // SAFETY: the caller's promise.
        opened(unsafe { real()(template, length, flags) })
    }
}

/// Notes that the C library has opened a stream.
fn opened_stream(stream: *mut FILE) -> *mut FILE {
    if !stream.is_null() && is_active() {
        // SAFETY: a stream that is open.
        opened(unsafe { libc::fileno(stream) });
    }
    stream
}

// The C library's own reads and writes go through the kernel. The program may also use the number
// of the stream's descriptor.
hooks! {
    "C-unwind" fn (fopen fopen64)(path: *const c_char, mode: *const c_char) -> *mut FILE = { |real|
        // SAFETY: the caller's promise.
        opened_stream(unsafe { real()(path, mode) })
    }

    "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE = { |real|
        // The kernel places what the stream appends.
        if is_active() {
            prepare_append(fd, false);
        }
        // SAFETY: the caller's promise.
        unsafe { real()(fd, mode) }
    }

    "C-unwind" fn (freopen freopen64)(
        path: *const c_char, mode: *const c_char, stream: *mut FILE,
    ) -> *mut FILE = { |real|
        // SAFETY: the caller's promise.
        unsafe { closes(stream) };
        // SAFETY: the caller's promise.
        opened_stream(unsafe { real()(path, mode, stream) })
    }

    "C-unwind" fn fclose(stream: *mut FILE) -> c_int = { |real|
        // SAFETY: the caller's promise.
        unsafe { closes(stream) };
        // SAFETY: as above.
        unsafe { real()(stream) }
    }
}

/// Notes that the C library is going to close the descriptor of `stream`. The kernel frees the
/// number before it tells the owner of the close. Until then only this note prevents another
/// thread, which gets the number in a way that is not seen (`socket`), from using what is known of
/// it.
///
/// # Safety
/// The stream is open.
unsafe fn closes(stream: *mut FILE) {
    if stream.is_null() || !is_active() {
        return;
    }
    let before = errno();
    // SAFETY: the caller's promise.
    let fd = unsafe { libc::fileno(stream) };
    set_errno(before);
    TABLE.forget(fd, false);
}
