//! Reading, and other operations on an open file.

use std::ffi::{c_int, c_void};
use std::io::IoSliceMut;

use libc::{iovec, off_t, size_t, ssize_t};
use meantime_posix::{Description, Errno, Kind, RwFlags};

use crate::state::descriptor;
use meantime_hook::{cancellation_point, errno, guarded, hooks, set_errno};

/// Runs `$ours` with the description `$open` if `$fd` is ours, otherwise `$theirs`.
macro_rules! by_descriptor {
    ($fd:expr, |$open:ident| $ours:expr, $theirs:expr) => {
        match descriptor($fd) {
            // The guard may hold the last reference to its description, if the program closes it
            // meanwhile: it is dropped inside `guarded`, like all of our code.
            Some(held) if held.is_some() => guarded(|| {
                let held = held;
                let Some($open) = held.as_ref() else { return Err(Errno(libc::EBADF)) };
                $ours
            }),
            // Before `$theirs` begins, which may not return.
            held => {
                drop(held);
                $theirs
            }
        }
    };
}
pub(crate) use by_descriptor;

/// The caller's buffer of `bytes` bytes.
///
/// # Safety
/// It is, for as long as the call lasts; or `bytes` is 0.
pub unsafe fn memory<'a>(buf: *mut c_void, bytes: size_t) -> Result<&'a mut [u8], Errno> {
    if bytes == 0 {
        return Ok(&mut []);
    }
    if buf.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    let bytes = bytes.min(isize::MAX as usize);
    // SAFETY: the caller's promise. What is there is only written to.
    Ok(unsafe { std::slice::from_raw_parts_mut(buf.cast(), bytes) })
}

/// Runs `read` with the caller's buffers.
///
/// # Safety
/// As readv(2).
unsafe fn with_buffers(
    iov: *const iovec,
    count: c_int,
    read: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<usize, Errno>,
) -> Result<ssize_t, Errno> {
    let count = usize::try_from(count).ok().filter(|&count| count <= libc::UIO_MAXIOV as usize);
    let count = count.ok_or(Errno(libc::EINVAL))?;
    if count == 0 {
        return Ok(0);
    }
    if iov.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller's promise.
    let iov = unsafe { std::slice::from_raw_parts(iov, count) };
    if let [one] = iov {
        // SAFETY: the caller's promise.
        let buf = unsafe { memory(one.iov_base, one.iov_len) }?;
        return read(&mut [IoSliceMut::new(buf)]).map(|read| read as ssize_t);
    }
    let bufs: Result<Vec<_>, _> = iov
        .iter()
        // SAFETY: the caller's promise.
        .map(|buf| unsafe { memory(buf.iov_base, buf.iov_len) }.map(IoSliceMut::new))
        .collect();
    read(&mut bufs?).map(|read| read as ssize_t)
}

/// # Safety
/// As pread(2).
unsafe fn read_at(
    open: &Description,
    buf: *mut c_void,
    bytes: size_t,
    offset: off_t,
) -> Result<ssize_t, Errno> {
    // SAFETY: the caller's promise.
    let buf = unsafe { memory(buf, bytes) }?;
    open.read_at(buf, offset, RwFlags::default()).map(|read| read as ssize_t)
}

hooks! {
    "C-unwind" fn read(fd: c_int, buf: *mut c_void, bytes: size_t) -> ssize_t = { |real|
        cancellation_point();
        // SAFETY: the caller's promise.
        unsafe {
            by_descriptor!(
                fd,
                |open| open.read(memory(buf, bytes)?).map(|read| read as ssize_t),
                real()(fd, buf, bytes)
            )
        }
    }

    // `room` is the buffer's size known to the compiler, here and below: the C library ends a
    // program that would overrun it.
    "C-unwind" fn __read_chk(
        fd: c_int, buf: *mut c_void, bytes: size_t, room: size_t,
    ) -> ssize_t = { |real|
        // SAFETY: the caller's promise.
        unsafe { if bytes <= room { read(fd, buf, bytes) } else { real()(fd, buf, bytes, room) } }
    }

    "C-unwind" fn readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t = { |real|
        cancellation_point();
        // SAFETY: the caller's promise.
        unsafe {
            by_descriptor!(
                fd,
                |open| with_buffers(iov, count, |bufs| {
                    open.read_vectored(bufs, RwFlags::default())
                }),
                real()(fd, iov, count)
            )
        }
    }

    "C-unwind" fn (pread pread64)(
        fd: c_int, buf: *mut c_void, bytes: size_t, offset: off_t,
    ) -> ssize_t = { |real|
        cancellation_point();
        // SAFETY: the caller's promise.
        unsafe {
            by_descriptor!(
                fd,
                |open| read_at(open, buf, bytes, offset),
                real()(fd, buf, bytes, offset)
            )
        }
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

    "C-unwind" fn (preadv preadv64)(
        fd: c_int, iov: *const iovec, count: c_int, offset: off_t,
    ) -> ssize_t = { |real|
        cancellation_point();
        // SAFETY: the caller's promise.
        unsafe {
            by_descriptor!(
                fd,
                |open| with_buffers(iov, count, |bufs| {
                    open.read_vectored_at(bufs, offset, RwFlags::default())
                }),
                real()(fd, iov, count, offset)
            )
        }
    }

    "C-unwind" fn (preadv2 preadv64v2)(
        fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int,
    ) -> ssize_t = { |real|
        cancellation_point();
        // SAFETY: the caller's promise.
        unsafe {
            by_descriptor!(
                fd,
                |open| {
                    let flags = RwFlags::new(flags)?;
                    with_buffers(iov, count, |bufs| match offset {
                        -1 => open.read_vectored(bufs, flags),
                        _ => open.read_vectored_at(bufs, offset, flags),
                    })
                },
                real()(fd, iov, count, offset, flags)
            )
        }
    }

    "C-unwind" fn (lseek lseek64)(fd: c_int, offset: off_t, whence: c_int) -> off_t = { |real|
        // SAFETY: no memory is meant.
        by_descriptor!(fd, |open| open.seek(offset, whence), unsafe {
            real()(fd, offset, whence)
        })
    }

    // It returns its errno.
    "C-unwind" fn (posix_fadvise posix_fadvise64)(
        fd: c_int, offset: off_t, bytes: off_t, advice: c_int,
    ) -> c_int = { |real|
        let before = errno();
        let answer = by_descriptor!(
            fd,
            |open| open.advise(offset, bytes, advice).map(|()| 0),
            // SAFETY: no memory is meant.
            return unsafe { real()(fd, offset, bytes, advice) }
        );
        let failed = errno();
        set_errno(before);
        if answer == 0 { 0 } else { failed }
    }

    // Nothing was written, so everything is on the disk.
    "C-unwind" fn (fsync fdatasync syncfs)(fd: c_int) -> c_int = { |real|
        cancellation_point();
        by_descriptor!(
            fd,
            |open| match open.kind() {
                Kind::Path => Err(Errno(libc::EBADF)),
                Kind::File(_) | Kind::Directory(_) => Ok(0),
            },
            // SAFETY: no memory is meant.
            unsafe { real()(fd) }
        )
    }

    "C-unwind" fn sync_file_range(
        fd: c_int, offset: off_t, bytes: off_t, flags: u32,
    ) -> c_int = { |real|
        cancellation_point();
        // SAFETY: no memory is meant.
        by_descriptor!(fd, |_open| Ok(0), unsafe { real()(fd, offset, bytes, flags) })
    }

    "C-unwind" fn readahead(fd: c_int, offset: off_t, bytes: size_t) -> ssize_t = { |real|
        by_descriptor!(
            fd,
            |open| {
                let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
                if bytes == 0 {
                    return Ok(0);
                }
                open.advise(offset, bytes, libc::POSIX_FADV_WILLNEED).map(|()| 0)
            },
            // SAFETY: no memory is meant.
            unsafe { real()(fd, offset, bytes) }
        )
    }
}
