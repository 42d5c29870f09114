//! Duplicating, closing and querying descriptors.

use std::ffi::{c_int, c_uint, c_ulong, c_void};

use libc::{flock as Flock, off_t, size_t, ssize_t};
use meantime_posix::{Errno, Kind, Lock, MAX_DESCRIPTORS, Table};

use meantime_process::{descriptor as reserved, fork, thread};

use crate::map::map;
use crate::read::by_descriptor;
use crate::state::{descriptor, forget, is_ours, is_owner, mount};
use meantime_hook::{cancellation_point, fail, forwards, guarded, hooks, real};

type Close = unsafe extern "C-unwind" fn(c_int) -> c_int;

/// The kernel has made `new` a duplicate of `old`: copies the table's entry, if `old` is ours.
fn duplicated(old: c_int, new: c_int) -> c_int {
    if new < 0 || new == old {
        return new;
    }
    if !is_ours(old) || fork::is_child() {
        forget(new);
        return new;
    }
    if !is_owner() {
        return new;
    }
    guarded(|| {
        let posix = mount()?;
        let open = posix.descriptors().get_full(old).ok_or(Errno(libc::EBADF))?;
        if Table::check(new).is_err() {
            // SAFETY: the kernel has just made it.
            unsafe { real!(c"close", Close)(new) };
            return Err(Errno(libc::EMFILE));
        }
        posix.descriptors().set(new, open);
        Ok(new)
    })
}

/// Whether `fd` is not the program's, but used by this library for the device. The program sees a
/// number that is not open, or above its limit. (Our own code closes by `close`, too.)
#[inline]
fn is_hidden(fd: c_int) -> bool {
    reserved::is_reserved(fd) && !thread::is_ours()
}

/// The kernel's answer for a number that is not open, or above the limit.
#[cold]
fn not_open() -> c_int {
    fail(libc::EBADF)
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
        cancellation_point();
        // The table first: after the kernel has closed it, another thread may get the number.
        forget(fd);
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

const CLOSE_RANGE_CLOEXEC: c_int = 4;

hooks! {
    "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int = { |real|
        // SAFETY: no memory is meant.
        let range = |first, last| unsafe { real()(first, last, flags) };
        if flags & CLOSE_RANGE_CLOEXEC != 0 || first > last {
            // Ours are close-on-exec already.
            return range(first, last);
        }
        forget_range(first, last);
        reserved::around_reserved(first, last, range)
    }

    "C" fn closefrom(first: c_int) -> () = { |real|
        let first = first.max(0);
        let Some(highest) = reserved::highest_from(first) else {
            forget_range(first as c_uint, c_uint::MAX);
            // SAFETY: no memory is meant.
            return unsafe { real()(first) };
        };
        // SAFETY: no memory is meant, here and below.
        if unsafe { close_range(first as c_uint, c_uint::MAX, 0) } == 0 {
            return;
        }
        // A kernel before 5.9.
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

fn forget_range(first: c_uint, last: c_uint) {
    for fd in first..=last.min(MAX_DESCRIPTORS as c_uint - 1) {
        forget(fd as c_int);
    }
}

macro_rules! fcntl_hooks {
    ($($name:ident: $real:literal;)*) => {$(
        /// # Safety
        /// As fcntl(2).
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            fd: c_int,
            command: c_int,
            argument: c_ulong,
        ) -> c_int {
            // Querying whether a number is in use is allowed: programs look for free ones.
            if command != libc::F_GETFD && is_hidden(fd) {
                return not_open();
            }
            type Fcntl = unsafe extern "C-unwind" fn(c_int, c_int, ...) -> c_int;
            let kernel = || {
                // SAFETY: the caller's promise. An argument that was not given is never read.
                unsafe { real!($real, Fcntl)(fd, command, argument) }
            };
            if !is_ours(fd) {
                let answer = kernel();
                if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) && answer >= 0 {
                    forget(answer);
                }
                return answer;
            }
            match command {
                libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicated(fd, kernel()),
                libc::F_GETFD | libc::F_SETFD => kernel(),
                // SAFETY: the caller's promise.
                _ => unsafe { control(fd, command, argument) },
            }
        }
    )*};
}

fcntl_hooks! {
    fcntl: c"fcntl";
    fcntl64: c"fcntl64";
}

/// # Safety
/// As fcntl(2).
unsafe fn control(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
    by_descriptor!(
        fd,
        |open| match command {
            libc::F_GETFL => Ok(open.flags()),
            _ if matches!(open.kind(), Kind::Path) => Err(Errno(libc::EBADF)),
            libc::F_SETFL => {
                open.set_flags(argument as c_int);
                Ok(0)
            }
            libc::F_SETLK | libc::F_SETLKW | libc::F_OFD_SETLK | libc::F_OFD_SETLKW => {
                // SAFETY: the caller's promise.
                let lock =
                    unsafe { (argument as *const Flock).as_ref() }.ok_or(Errno(libc::EFAULT))?;
                open.lock(Lock::new(lock.l_type.into())?).map(|()| 0)
            }
            libc::F_GETLK | libc::F_OFD_GETLK => {
                // SAFETY: the caller's promise.
                let lock =
                    unsafe { (argument as *mut Flock).as_mut() }.ok_or(Errno(libc::EFAULT))?;
                Lock::new(lock.l_type.into())?;
                // No lock conflicts.
                lock.l_type = libc::F_UNLCK as _;
                Ok(0)
            }
            _ => Err(Errno(libc::EINVAL)),
        },
        fail(libc::EBADF)
    )
}

hooks! {
    "C" fn flock(fd: c_int, operation: c_int) -> c_int = { |real|
        by_descriptor!(
            fd,
            |open| match operation & !libc::LOCK_NB {
                _ if matches!(open.kind(), Kind::Path) => Err(Errno(libc::EBADF)),
                libc::LOCK_SH | libc::LOCK_EX | libc::LOCK_UN => Ok(0),
                _ => Err(Errno(libc::EINVAL)),
            },
            // SAFETY: no memory is meant.
            unsafe { real()(fd, operation) }
        )
    }
}

/// # Safety
/// As ioctl(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: c_ulong) -> c_int {
    type Function = unsafe extern "C" fn(c_int, c_ulong, ...) -> c_int;
    /// Its argument is a descriptor.
    const FICLONE: c_ulong = 0x4004_9409;
    if request == FICLONE && is_ours(argument as c_int) {
        return fail(libc::EXDEV);
    }
    by_descriptor!(
        fd,
        |open| match (open.kind(), request) {
            (Kind::Path, _) => Err(Errno(libc::EBADF)),
            (Kind::File(file), libc::FIONREAD) => {
                let left = file.size().saturating_sub(open.position());
                let left = c_int::try_from(left).unwrap_or(c_int::MAX);
                // SAFETY: the caller's promise.
                unsafe { (argument as *mut c_int).as_mut() }
                    .map(|to| *to = left)
                    .ok_or(Errno(libc::EFAULT))?;
                Ok(0)
            }
            (_, FS_IOC_GETFLAGS) => {
                let flags = open.found().node().metadata().flags as c_int;
                // SAFETY: the caller's promise. The request is defined with long, and means int.
                unsafe { (argument as *mut c_int).as_mut() }
                    .map(|to| *to = flags)
                    .ok_or(Errno(libc::EFAULT))?;
                Ok(0)
            }
            _ => Err(Errno(libc::ENOTTY)),
        },
        // SAFETY: the caller's promise. An argument that was not given is never read.
        unsafe { real!(c"ioctl", Function)(fd, request, argument) }
    )
}

const FS_IOC_GETFLAGS: c_ulong = 0x8008_6601;

// Copies inside the kernel, which does not have our data: programs fall back to reading and
// writing.
hooks! {
    "C" fn (sendfile sendfile64)(
        to: c_int, from: c_int, offset: *mut off_t, bytes: size_t,
    ) -> ssize_t = { |real|
        // SAFETY: the caller's promise.
        not_copied(from, to, libc::EINVAL, || unsafe { real()(to, from, offset, bytes) })
    }

    "C" fn splice(
        from: c_int, at: *mut off_t, to: c_int, offset: *mut off_t, bytes: size_t, flags: c_uint,
    ) -> ssize_t = { |real|
        // SAFETY: the caller's promise.
        not_copied(from, to, libc::EINVAL, || unsafe { real()(from, at, to, offset, bytes, flags) })
    }

    "C" fn copy_file_range(
        from: c_int, at: *mut off_t, to: c_int, offset: *mut off_t, bytes: size_t, flags: c_uint,
    ) -> ssize_t = { |real|
        // SAFETY: the caller's promise.
        not_copied(from, to, libc::EXDEV, || unsafe { real()(from, at, to, offset, bytes, flags) })
    }

    "C" fn (mmap mmap64)(
        address: *mut c_void, bytes: size_t, protection: c_int, flags: c_int, fd: c_int,
        offset: off_t,
    ) -> *mut c_void = { |real|
        // SAFETY: the caller's promise.
        unsafe { map(real(), address, bytes, protection, flags, fd, offset) }
    }
}

/// Fails with `errno` if `from` or `to` is ours; otherwise calls `theirs`.
fn not_copied(from: c_int, to: c_int, errno: c_int, theirs: impl FnOnce() -> ssize_t) -> ssize_t {
    if is_ours(to) || is_ours(from) { fail(errno) } else { theirs() }
}
