//! Reading, and what else is asked of an open file.

use std::ffi::{c_int, c_void};
use std::io::IoSliceMut;

use libc::{iovec, off_t, size_t, ssize_t};
use meantime_posix::{Description, Errno, RwFlags};

use crate::real::{cancellation_point, errno, guarded, real, set_errno};
use crate::state::descriptor;

/// Does `$ours` with the description `$open` if `$fd` is ours, else `$theirs`.
macro_rules! by_descriptor {
    ($fd:expr, |$open:ident| $ours:expr, $theirs:expr) => {
        match descriptor($fd) {
            // What was looked up may be the last of its description, if the program closes it
            // meanwhile: it is dropped inside of `guarded`, as all that is ours is done there.
            Some(held) if held.is_some() => guarded(|| {
                let held = held;
                let Some($open) = held.as_ref() else { return Err(Errno(libc::EBADF)) };
                $ours
            }),
            // Before `$theirs` begins, which may not come back.
            held => {
                drop(held);
                $theirs
            }
        }
    };
}
pub(crate) use by_descriptor;

/// The caller's memory for `bytes` bytes.
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

type Read = unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t) -> ssize_t;
type Pread = unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t, off_t) -> ssize_t;
type Readv = unsafe extern "C-unwind" fn(c_int, *const iovec, c_int) -> ssize_t;
type Preadv = unsafe extern "C-unwind" fn(c_int, *const iovec, c_int, off_t) -> ssize_t;
type Preadv2 = unsafe extern "C-unwind" fn(c_int, *const iovec, c_int, off_t, c_int) -> ssize_t;

/// # Safety
/// As read(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn read(fd: c_int, buf: *mut c_void, bytes: size_t) -> ssize_t {
    cancellation_point();
    // SAFETY: the caller's promise.
    unsafe {
        by_descriptor!(
            fd,
            |open| open.read(memory(buf, bytes)?).map(|read| read as ssize_t),
            real!(c"read" as Read)(fd, buf, bytes)
        )
    }
}

/// # Safety
/// As read(2); `room` is what the compiler knows of the buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn __read_chk(
    fd: c_int,
    buf: *mut c_void,
    bytes: size_t,
    room: size_t,
) -> ssize_t {
    type Chk = unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t, size_t) -> ssize_t;
    // SAFETY: the caller's promise. A program that would overrun its buffer is ended by the C
    // library.
    unsafe {
        if bytes <= room {
            read(fd, buf, bytes)
        } else {
            real!(c"__read_chk" as Chk)(fd, buf, bytes, room)
        }
    }
}

macro_rules! pread_hooks {
    ($($pread:ident, $checked:ident, $preadv:ident, $preadv2:ident: $real:literal, $checked_real:literal, $v:literal, $v2:literal;)*) => {$(
        /// # Safety
        /// As pread(2).
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $pread(fd: c_int, buf: *mut c_void, bytes: size_t, offset: off_t) -> ssize_t {
            cancellation_point();
            // SAFETY: the caller's promise.
            unsafe {
                by_descriptor!(
                    fd,
                    |open| read_at(open, buf, bytes, offset),
                    real!($real as Pread)(fd, buf, bytes, offset)
                )
            }
        }

        /// # Safety
        /// As pread(2); `room` is what the compiler knows of the buffer.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $checked(
            fd: c_int,
            buf: *mut c_void,
            bytes: size_t,
            offset: off_t,
            room: size_t,
        ) -> ssize_t {
            type Chk = unsafe extern "C-unwind" fn(c_int, *mut c_void, size_t, off_t, size_t) -> ssize_t;
            // SAFETY: the caller's promise. A program that would overrun its buffer is ended by the
            // C library.
            unsafe {
                if bytes <= room {
                    $pread(fd, buf, bytes, offset)
                } else {
                    real!($checked_real as Chk)(fd, buf, bytes, offset, room)
                }
            }
        }

        /// # Safety
        /// As preadv(2).
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $preadv(fd: c_int, iov: *const iovec, count: c_int, offset: off_t) -> ssize_t {
            cancellation_point();
            // SAFETY: the caller's promise.
            unsafe {
                by_descriptor!(
                    fd,
                    |open| with_buffers(iov, count, |bufs| open.read_vectored_at(bufs, offset, RwFlags::default())),
                    real!($v as Preadv)(fd, iov, count, offset)
                )
            }
        }

        /// # Safety
        /// As preadv2(2).
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $preadv2(
            fd: c_int,
            iov: *const iovec,
            count: c_int,
            offset: off_t,
            flags: c_int,
        ) -> ssize_t {
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
                    real!($v2 as Preadv2)(fd, iov, count, offset, flags)
                )
            }
        }
    )*};
}

pread_hooks! {
    pread, __pread_chk, preadv, preadv2: c"pread", c"__pread_chk", c"preadv", c"preadv2";
    pread64, __pread64_chk, preadv64, preadv64v2: c"pread64", c"__pread64_chk", c"preadv64", c"preadv64v2";
}

/// # Safety
/// As readv(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn readv(fd: c_int, iov: *const iovec, count: c_int) -> ssize_t {
    cancellation_point();
    // SAFETY: the caller's promise.
    unsafe {
        by_descriptor!(
            fd,
            |open| with_buffers(iov, count, |bufs| open.read_vectored(bufs, RwFlags::default())),
            real!(c"readv" as Readv)(fd, iov, count)
        )
    }
}

macro_rules! seek_hooks {
    ($($name:ident: $real:literal;)*) => {$(
        /// # Safety
        /// As lseek(2).
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(fd: c_int, offset: off_t, whence: c_int) -> off_t {
            type Seek = unsafe extern "C-unwind" fn(c_int, off_t, c_int) -> off_t;
            // SAFETY: no memory is meant.
            by_descriptor!(fd, |open| open.seek(offset, whence), unsafe {
                real!($real as Seek)(fd, offset, whence)
            })
        }
    )*};
}

seek_hooks! {
    lseek: c"lseek";
    lseek64: c"lseek64";
}

macro_rules! advise_hooks {
    ($($name:ident: $real:literal;)*) => {$(
        /// # Safety
        /// As posix_fadvise(2), which returns its errno.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(fd: c_int, offset: off_t, bytes: off_t, advice: c_int) -> c_int {
            type Advise = unsafe extern "C-unwind" fn(c_int, off_t, off_t, c_int) -> c_int;
            let before = errno();
            let answer = by_descriptor!(
                fd,
                |open| open.advise(offset, bytes, advice).map(|()| 0),
                // SAFETY: no memory is meant.
                return unsafe { real!($real as Advise)(fd, offset, bytes, advice) }
            );
            let failed = errno();
            set_errno(before);
            if answer == 0 { 0 } else { failed }
        }
    )*};
}

advise_hooks! {
    posix_fadvise: c"posix_fadvise";
    posix_fadvise64: c"posix_fadvise64";
}

/// # Safety
/// As readahead(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn readahead(fd: c_int, offset: off_t, bytes: size_t) -> ssize_t {
    type ReadAhead = unsafe extern "C-unwind" fn(c_int, off_t, size_t) -> ssize_t;
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
        unsafe { real!(c"readahead" as ReadAhead)(fd, offset, bytes) }
    )
}

/// Nothing was written: everything is on the disk.
macro_rules! sync_hooks {
    ($($name:ident: $real:literal;)*) => {$(
        /// # Safety
        /// As fsync(2).
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(fd: c_int) -> c_int {
            cancellation_point();
            type Sync = unsafe extern "C-unwind" fn(c_int) -> c_int;
            by_descriptor!(
                fd,
                |open| if matches!(open.kind(), meantime_posix::Kind::Path) { Err(Errno(libc::EBADF)) } else { Ok(0) },
                // SAFETY: no memory is meant.
                unsafe { real!($real as Sync)(fd) }
            )
        }
    )*};
}

sync_hooks! {
    fsync: c"fsync";
    fdatasync: c"fdatasync";
    syncfs: c"syncfs";
}

/// # Safety
/// As sync_file_range(2).
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sync_file_range(
    fd: c_int,
    offset: off_t,
    bytes: off_t,
    flags: u32,
) -> c_int {
    cancellation_point();
    type Sync = unsafe extern "C-unwind" fn(c_int, off_t, off_t, u32) -> c_int;
    // SAFETY: no memory is meant.
    by_descriptor!(fd, |_open| Ok(0), unsafe {
        real!(c"sync_file_range" as Sync)(fd, offset, bytes, flags)
    })
}
