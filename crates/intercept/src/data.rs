//! The functions that read, write, and ask for other operations on an open file.

use std::ffi::{c_int, c_void};

use crate::hook::{NotCancelled, cancellation_point, errno, forwards, hooks, real, set_errno};
use libc::{iovec, off_t, size_t, ssize_t, stat as StatBuf};
use meantime_process::thread::NotSignalled;
use meantime_shm_rpc::message::{APPEND, Attributes, DSYNC, HIPRI, Op, SYNC, SYNCFS};

use crate::ahead;
use crate::call::{self, Outcome, Place, answer, unreserve};
use crate::descriptor::is_on_mount;
use crate::map::prepare_append;
use crate::report::Reason;
use crate::state::{device, is_active};

/// A call's buffers and place.
#[derive(Clone, Copy)]
struct Transfer {
    is_write: bool,
    fd: c_int,
    iov: *const iovec,
    count: c_int,
    place: Place,
    /// The flags of preadv2(2).
    flags: c_int,
}

/// Returns the flags of a request for those of preadv2(2), or `None` if some are for the kernel.
fn request_flags(flags: c_int, is_write: bool) -> Option<u32> {
    let of_writes = [(libc::RWF_DSYNC, DSYNC), (libc::RWF_SYNC, SYNC), (libc::RWF_APPEND, APPEND)];
    let (mut left, mut all) = (flags, 0);
    let known = [(libc::RWF_HIPRI, HIPRI)].into_iter();
    for (flag, ours) in known.chain(of_writes.into_iter().filter(|_| is_write)) {
        if left & flag != 0 {
            left &= !flag;
            all |= ours;
        }
    }
    (left == 0).then_some(all)
}

/// Executes `transfer`, or calls `long`.
///
/// # Safety
/// The caller keeps the contract of preadv2(2) or pwritev2(2).
#[inline]
unsafe fn run(transfer: &Transfer, long: impl FnOnce() -> ssize_t) -> ssize_t {
    let Transfer { is_write, fd, iov, count, place, flags } = *transfer;
    let Some(flags) = request_flags(flags, is_write) else {
        if is_write {
            prepare_append(fd, flags & libc::RWF_APPEND != 0);
        }
        return long();
    };
    // SAFETY: the caller's promise.
    match unsafe { call::transfer(is_write, fd, iov, count, place, flags) } {
        Ok(Outcome::Ended(result)) => answer(result),
        // SAFETY: as above.
        Ok(Outcome::Rest { done, total, at }) => unsafe { rest(transfer, done, total, at) },
        Err(reason) => {
            if is_write {
                prepare_append(fd, flags & APPEND != 0);
            } else if reason == Reason::Left
                && let Place::At(at) = place
                && count > 0
                && !iov.is_null()
            {
                // SAFETY: the caller's promise.
                ahead::prepare(fd, at, unsafe { (*iov).iov_len });
            }
            long()
        }
    }
}

/// Executes the rest of a transfer by the FUSE path.
///
/// # Safety
/// The caller keeps the contract of [`run`], and `done` of `total` bytes have been moved.
#[cold]
unsafe fn rest(transfer: &Transfer, done: usize, total: usize, at: i64) -> ssize_t {
    type One = unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t, off_t) -> ssize_t;
    type All = unsafe extern "C-unwind" fn(c_int, *const iovec, c_int, off_t, c_int) -> ssize_t;
    let Transfer { is_write, fd, iov, count, place, flags } = *transfer;
    let is_here = matches!(place, Place::Here);
    let before = errno();
    // The position is not the program's until the rest is unreserved.
    let ours = (NotSignalled::enter(), NotCancelled::enter());
    let one = count == 1;
    // SAFETY: the caller's promise: of one buffer, `done` bytes are moved.
    let moved = unsafe {
        if one && flags == 0 {
            let move_one = if is_write { real!(c"pwrite64", One) } else { real!(c"pread64", One) };
            let base = (*iov).iov_base.byte_add(done);
            move_one(fd, base, total - done, at + done as i64)
        } else if done == 0 {
            let move_all =
                if is_write { real!(c"pwritev64v2", All) } else { real!(c"preadv64v2", All) };
            move_all(fd, iov, count, at, flags)
        } else {
            // With several buffers the result is fewer bytes than asked for.
            0
        }
    };
    let moved_all = done + usize::try_from(moved).unwrap_or(0);
    if is_here {
        unreserve(fd, total - moved_all);
    }
    drop(ours);
    if moved < 0 && done == 0 {
        return -1;
    }
    set_errno(before);
    moved_all as ssize_t
}

/// Defines `$name` as a transfer. Without a shared-memory path, it only calls the next definition.
macro_rules! transfer {
    ($real:ident($($arg:expr),*), $is_write:literal, $fd:ident, $iov:expr, $count:expr, $place:expr, $flags:expr) => {{
        // SAFETY: the caller's promise.
        let long = || unsafe { $real()($($arg),*) };
        if !is_active() {
            return long();
        }
        cancellation_point();
        let (iov, count): (*const iovec, c_int) = ($iov, $count);
        let transfer = Transfer {
            is_write: $is_write,
            fd: $fd,
            iov,
            count,
            place: $place,
            flags: $flags,
        };
        // SAFETY: as above.
        unsafe { run(&transfer, long) }
    }};
}

/// Returns a buffer as an `iovec`.
fn one(buf: *const c_void, bytes: size_t) -> iovec {
    iovec { iov_base: buf.cast_mut(), iov_len: bytes }
}

fn place(offset: off_t) -> Place {
    if offset == -1 { Place::Here } else { Place::At(offset) }
}

hooks! {
    "C-unwind" fn read(fd: c_int, buf: *mut c_void, bytes: size_t) -> ssize_t = { |real|
        transfer!(real(fd, buf, bytes), false, fd, &one(buf, bytes), 1, Place::Here, 0)
    }

    "C-unwind" fn (pread pread64)(
        fd: c_int, buf: *mut c_void, bytes: size_t, offset: off_t,
    ) -> ssize_t = { |real|
        transfer!(
            real(fd, buf, bytes, offset), false, fd, &one(buf, bytes), 1, Place::At(offset), 0
        )
    }

    "C-unwind" fn readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t = { |real|
        transfer!(real(fd, iov, count), false, fd, iov, count, Place::Here, 0)
    }

    "C-unwind" fn (preadv preadv64)(
        fd: c_int, iov: *const iovec, count: c_int, offset: off_t,
    ) -> ssize_t = { |real|
        transfer!(real(fd, iov, count, offset), false, fd, iov, count, Place::At(offset), 0)
    }

    "C-unwind" fn (preadv2 preadv64v2)(
        fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int,
    ) -> ssize_t = { |real|
        transfer!(
            real(fd, iov, count, offset, flags), false, fd, iov, count, place(offset), flags
        )
    }

    "C-unwind" fn write(fd: c_int, buf: *const c_void, bytes: size_t) -> ssize_t = { |real|
        transfer!(real(fd, buf, bytes), true, fd, &one(buf, bytes), 1, Place::Here, 0)
    }

    "C-unwind" fn (pwrite pwrite64)(
        fd: c_int, buf: *const c_void, bytes: size_t, offset: off_t,
    ) -> ssize_t = { |real|
        transfer!(
            real(fd, buf, bytes, offset), true, fd, &one(buf, bytes), 1, Place::At(offset), 0
        )
    }

    "C-unwind" fn writev(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t = { |real|
        transfer!(real(fd, iov, count), true, fd, iov, count, Place::Here, 0)
    }

    "C-unwind" fn (pwritev pwritev64)(
        fd: c_int, iov: *const iovec, count: c_int, offset: off_t,
    ) -> ssize_t = { |real|
        transfer!(real(fd, iov, count, offset), true, fd, iov, count, Place::At(offset), 0)
    }

    "C-unwind" fn (pwritev2 pwritev64v2)(
        fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int,
    ) -> ssize_t = { |real|
        transfer!(
            real(fd, iov, count, offset, flags), true, fd, iov, count, place(offset), flags
        )
    }

    // `room` is the buffer's size known to the compiler, here and below. The C library ends a
    // program that would overrun the buffer.
    "C-unwind" fn __read_chk(
        fd: c_int, buf: *mut c_void, bytes: size_t, room: size_t,
    ) -> ssize_t = { |real|
        // SAFETY: the caller's promise.
        unsafe { if bytes <= room { read(fd, buf, bytes) } else { real()(fd, buf, bytes, room) } }
    }

    "C-unwind" fn (__pread_chk __pread64_chk)(
        fd: c_int, buf: *mut c_void, bytes: size_t, offset: off_t, room: size_t,
    ) -> ssize_t = { |real|
        if bytes <= room {
            // SAFETY: the caller's promise.
            return unsafe { pread64(fd, buf, bytes, offset) };
        }
        // SAFETY: the caller's promise.
        unsafe { real()(fd, buf, bytes, offset, room) }
    }

    "C-unwind" fn fsync(fd: c_int) -> c_int = { |real|
        // SAFETY: no memory is meant.
        sync(fd, Op::SyncAll, || unsafe { real()(fd) })
    }

    "C-unwind" fn fdatasync(fd: c_int) -> c_int = { |real|
        // SAFETY: no memory is meant.
        sync(fd, Op::SyncData, || unsafe { real()(fd) })
    }

    "C-unwind" fn syncfs(fd: c_int) -> c_int = { |real|
        // The kernel comes first, for what is stored in mapped files.
        // SAFETY: no memory is meant.
        let synced = unsafe { real()(fd) };
        if synced == 0 && is_active() && is_on_mount(fd) {
            // SAFETY: the number says that no memory is meant.
            return unsafe { libc::ioctl(fd, SYNCFS.into()) };
        }
        synced
    }

    "C" fn (ftruncate ftruncate64)(fd: c_int, bytes: off_t) -> c_int = { |real|
        if is_active() && let Ok(result) = call::truncate(fd, bytes) {
            return answer(result) as c_int;
        }
        // SAFETY: no memory is meant.
        unsafe { real()(fd, bytes) }
    }

    // The kernel may not know the size. It has the position, so the position is set through the
    // kernel.
    "C" fn (lseek lseek64)(fd: c_int, offset: off_t, whence: c_int) -> off_t = { |real|
        // SAFETY: no memory is meant.
        let seek = |offset, whence| unsafe { real()(fd, offset, whence) };
        if whence == libc::SEEK_END && is_active() {
            let size = call::attributes(fd, |of| isize::try_from(of.size).ok());
            if let Ok(size) = size && size >= 0 {
                return seek((size as off_t).saturating_add(offset), libc::SEEK_SET);
            }
        }
        seek(offset, whence)
    }

    "C" fn (fstat fstat64)(fd: c_int, to: *mut StatBuf) -> c_int = { |real|
        // SAFETY: the caller's promise.
        unsafe { stat(fd, to, || real()(fd, to)) }
    }
}

// These are other names of the same functions, most of them for programs built with an older C
// library.
forwards! {
    "C-unwind" fn __read(fd: c_int, buf: *mut c_void, bytes: size_t) -> ssize_t
        => read(fd, buf, bytes);
    "C-unwind" fn __write(fd: c_int, buf: *const c_void, bytes: size_t) -> ssize_t
        => write(fd, buf, bytes);
    "C-unwind" fn __pread64(
        fd: c_int, buf: *mut c_void, bytes: size_t, offset: off_t
    ) -> ssize_t => pread64(fd, buf, bytes, offset);
    "C-unwind" fn __pwrite64(
        fd: c_int, buf: *const c_void, bytes: size_t, offset: off_t
    ) -> ssize_t => pwrite64(fd, buf, bytes, offset);
    "C" fn __lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t => lseek(fd, offset, whence);
    "C" fn __fxstat(_version: c_int, fd: c_int, to: *mut StatBuf) -> c_int => fstat(fd, to);
    "C" fn __fxstat64(_version: c_int, fd: c_int, to: *mut StatBuf) -> c_int => fstat64(fd, to);
}

fn sync(fd: c_int, op: Op, long: impl FnOnce() -> c_int) -> c_int {
    if !is_active() {
        return long();
    }
    cancellation_point();
    match call::sync(fd, op) {
        Ok(result) => answer(result) as c_int,
        Err(_) => long(),
    }
}

/// # Safety
/// `to` is NULL or has room.
unsafe fn stat(fd: c_int, to: *mut StatBuf, long: impl FnOnce() -> c_int) -> c_int {
    if !is_active() || to.is_null() {
        return long();
    }
    let fill = |of: &Attributes| {
        // SAFETY: the caller's promise.
        unsafe { to.write(stat_buf(of)) };
        Some(0)
    };
    match call::attributes(fd, fill) {
        Ok(result) => answer(result) as c_int,
        Err(_) => long(),
    }
}

fn stat_buf(of: &Attributes) -> StatBuf {
    // SAFETY: integers, and padding.
    let mut buf: StatBuf = unsafe { std::mem::zeroed() };
    buf.st_dev = device() as _;
    buf.st_ino = of.ino as _;
    buf.st_mode = of.mode as _;
    buf.st_nlink = of.nlink as _;
    (buf.st_uid, buf.st_gid) = (of.uid, of.gid);
    (buf.st_size, buf.st_blocks) = (of.size as _, of.blocks as _);
    buf.st_blksize = of.blksize as _;
    (buf.st_atime, buf.st_atime_nsec) = (of.atime, of.atime_nsec.into());
    (buf.st_mtime, buf.st_mtime_nsec) = (of.mtime, of.mtime_nsec.into());
    (buf.st_ctime, buf.st_ctime_nsec) = (of.ctime, of.ctime_nsec.into());
    buf
}
