//! The `stat` family. 64-bit Linux has one layout for both names of the structure.

use std::ffi::{c_char, c_int, c_uint};

use libc::{
    mode_t, stat as StatBuf, statfs as StatFsBuf, statvfs as StatVfsBuf, statx as StatxBuf,
};
use meantime_ext4::Timestamp;
use meantime_posix::{Access, Errno, Posix, ResolvedPath, Stat, StatFs};

use crate::path::{on_descriptor, on_path, on_path_or_fd};
use crate::real::{guarded, real};
use crate::state::is_ours;

/// Fills `to` with `value`.
///
/// # Safety
/// `to` is NULL or has room.
unsafe fn put<T>(to: *mut T, value: T) -> Result<c_int, Errno> {
    if to.is_null() {
        return Err(Errno(libc::EFAULT));
    }
    // SAFETY: the caller's promise.
    unsafe { to.write(value) };
    Ok(0)
}

fn stat_buf(stat: &Stat) -> StatBuf {
    let of = &stat.metadata;
    // SAFETY: integers, and padding.
    let mut buf: StatBuf = unsafe { std::mem::zeroed() };
    buf.st_dev = stat.device as _;
    buf.st_ino = of.ino.into();
    buf.st_mode = mode_t::from(of.mode);
    buf.st_nlink = of.links as _;
    buf.st_uid = of.uid;
    buf.st_gid = of.gid;
    buf.st_rdev = libc::makedev(of.device.0, of.device.1);
    buf.st_size = of.size as _;
    buf.st_blksize = of.block_bytes as _;
    buf.st_blocks = of.blocks_512 as _;
    (buf.st_atime, buf.st_atime_nsec) = (of.accessed.seconds, of.accessed.nanoseconds.into());
    (buf.st_mtime, buf.st_mtime_nsec) = (of.modified.seconds, of.modified.nanoseconds.into());
    (buf.st_ctime, buf.st_ctime_nsec) = (of.changed.seconds, of.changed.nanoseconds.into());
    buf
}

fn statx_buf(stat: &Stat) -> StatxBuf {
    let of = &stat.metadata;
    let time = |at: Timestamp| {
        // SAFETY: integers, and padding.
        let mut buf: libc::statx_timestamp = unsafe { std::mem::zeroed() };
        (buf.tv_sec, buf.tv_nsec) = (at.seconds, at.nanoseconds);
        buf
    };
    // SAFETY: integers, and padding.
    let mut buf: StatxBuf = unsafe { std::mem::zeroed() };
    buf.stx_mask = libc::STATX_BASIC_STATS;
    buf.stx_blksize = of.block_bytes;
    // The flags that both have are the same bits: compressed, immutable, append, nodump, encrypted.
    buf.stx_attributes = u64::from(of.flags & 0x874);
    buf.stx_attributes_mask = 0x874;
    buf.stx_nlink = of.links;
    (buf.stx_uid, buf.stx_gid) = (of.uid, of.gid);
    buf.stx_mode = of.mode;
    buf.stx_ino = of.ino.into();
    (buf.stx_size, buf.stx_blocks) = (of.size, of.blocks_512);
    buf.stx_atime = time(of.accessed);
    buf.stx_mtime = time(of.modified);
    buf.stx_ctime = time(of.changed);
    if let Some(created) = of.created {
        buf.stx_btime = time(created);
        buf.stx_mask |= libc::STATX_BTIME;
    }
    (buf.stx_rdev_major, buf.stx_rdev_minor) = of.device;
    (buf.stx_dev_major, buf.stx_dev_minor) = (libc::major(stat.device), libc::minor(stat.device));
    buf
}

/// # Safety
/// `to` is NULL or has room.
unsafe fn fill(posix: &Posix, place: ResolvedPath, to: *mut StatBuf) -> Result<c_int, Errno> {
    let stat = posix.stat(&place.found()?);
    // SAFETY: the caller's promise.
    unsafe { put(to, stat_buf(&stat)) }
}

type StatAt = unsafe extern "C" fn(c_int, *const c_char, *mut StatBuf, c_int) -> c_int;

/// # Safety
/// As fstatat(2).
unsafe fn stat_at(at: c_int, path: *const c_char, to: *mut StatBuf, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    let ours = |posix: &'static Posix, place| unsafe { fill(posix, place, to) };
    let theirs = |at, path| {
        let kernel = real!(c"fstatat" as StatAt);
        // SAFETY: the caller's promise.
        unsafe { kernel(at, path, to, flags) }
    };
    // SAFETY: the caller's promise.
    unsafe { on_path_or_fd(at, path, flags, ours, theirs) }
}

/// # Safety
/// As fstat(2).
unsafe fn stat_fd(fd: c_int, to: *mut StatBuf) -> c_int {
    type Function = unsafe extern "C" fn(c_int, *mut StatBuf) -> c_int;
    // SAFETY: the caller's promise.
    unsafe {
        if is_ours(fd) {
            guarded(|| on_descriptor(fd, |posix, place| fill(posix, place, to)))
        } else {
            real!(c"fstat" as Function)(fd, to)
        }
    }
}

macro_rules! stat_hooks {
    ($($stat:ident, $lstat:ident, $fstat:ident, $fstatat:ident, $xstat:ident, $lxstat:ident, $fxstat:ident, $fxstatat:ident;)*) => {$(
        /// # Safety
        /// As stat(2).
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $stat(path: *const c_char, to: *mut StatBuf) -> c_int {
            // SAFETY: the caller's promise.
            unsafe { stat_at(libc::AT_FDCWD, path, to, 0) }
        }

        /// # Safety
        /// As lstat(2).
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $lstat(path: *const c_char, to: *mut StatBuf) -> c_int {
            // SAFETY: the caller's promise.
            unsafe { stat_at(libc::AT_FDCWD, path, to, libc::AT_SYMLINK_NOFOLLOW) }
        }

        /// # Safety
        /// As fstat(2).
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $fstat(fd: c_int, to: *mut StatBuf) -> c_int {
            // SAFETY: the caller's promise.
            unsafe { stat_fd(fd, to) }
        }

        /// # Safety
        /// As fstatat(2).
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $fstatat(at: c_int, path: *const c_char, to: *mut StatBuf, flags: c_int) -> c_int {
            // SAFETY: the caller's promise.
            unsafe { stat_at(at, path, to, flags) }
        }

        /// What programs that were built with a C library before 2.33 call.
        ///
        /// # Safety
        /// As stat(2).
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $xstat(_version: c_int, path: *const c_char, to: *mut StatBuf) -> c_int {
            // SAFETY: the caller's promise.
            unsafe { stat_at(libc::AT_FDCWD, path, to, 0) }
        }

        /// # Safety
        /// As lstat(2).
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $lxstat(_version: c_int, path: *const c_char, to: *mut StatBuf) -> c_int {
            // SAFETY: the caller's promise.
            unsafe { stat_at(libc::AT_FDCWD, path, to, libc::AT_SYMLINK_NOFOLLOW) }
        }

        /// # Safety
        /// As fstat(2).
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $fxstat(_version: c_int, fd: c_int, to: *mut StatBuf) -> c_int {
            // SAFETY: the caller's promise.
            unsafe { stat_fd(fd, to) }
        }

        /// # Safety
        /// As fstatat(2).
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $fxstatat(
            _version: c_int,
            at: c_int,
            path: *const c_char,
            to: *mut StatBuf,
            flags: c_int,
        ) -> c_int {
            // SAFETY: the caller's promise.
            unsafe { stat_at(at, path, to, flags) }
        }
    )*};
}

stat_hooks! {
    stat, lstat, fstat, fstatat, __xstat, __lxstat, __fxstat, __fxstatat;
    stat64, lstat64, fstat64, fstatat64, __xstat64, __lxstat64, __fxstat64, __fxstatat64;
}

/// # Safety
/// As statx(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn statx(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    to: *mut StatxBuf,
) -> c_int {
    type Function =
        unsafe extern "C" fn(c_int, *const c_char, c_int, c_uint, *mut StatxBuf) -> c_int;
    let ours = |posix: &'static Posix, place: ResolvedPath| {
        let stat = posix.stat(&place.found()?);
        // SAFETY: the caller's promise.
        unsafe { put(to, statx_buf(&stat)) }
    };
    let theirs = |at, path| {
        let kernel = real!(c"statx" as Function);
        // SAFETY: the caller's promise.
        unsafe { kernel(at, path, flags, mask, to) }
    };
    // SAFETY: the caller's promise.
    unsafe { on_path_or_fd(at, path, flags, ours, theirs) }
}

fn statfs_buf(stat: &StatFs) -> StatFsBuf {
    let of = &stat.usage;
    // SAFETY: integers, and padding.
    let mut buf: StatFsBuf = unsafe { std::mem::zeroed() };
    buf.f_type = stat.magic as _;
    buf.f_bsize = of.block_bytes as _;
    (buf.f_blocks, buf.f_bfree, buf.f_bavail) = (of.blocks, of.free_blocks, of.available_blocks);
    (buf.f_files, buf.f_ffree) = (of.inodes, of.free_inodes);
    // SAFETY: eight bytes, of two integers.
    buf.f_fsid = unsafe { std::mem::transmute::<u64, libc::fsid_t>(of.fsid) };
    buf.f_namelen = stat.name_max as _;
    buf.f_frsize = of.block_bytes as _;
    // The field after it, f_flags, has no name in libc.
    let at = std::mem::offset_of!(StatFsBuf, f_frsize) + size_of_val(&buf.f_frsize);
    // SAFETY: within the structure, of integers of that size.
    unsafe { (&raw mut buf).byte_add(at).cast::<i64>().write(ST_RDONLY | ST_VALID | ST_NOATIME) };
    buf
}

const ST_RDONLY: i64 = 1;
/// That the flags are there.
const ST_VALID: i64 = 0x20;
const ST_NOATIME: i64 = 0x400;

fn statvfs_buf(stat: &StatFs) -> StatVfsBuf {
    let of = &stat.usage;
    // SAFETY: integers, and padding.
    let mut buf: StatVfsBuf = unsafe { std::mem::zeroed() };
    (buf.f_bsize, buf.f_frsize) = (of.block_bytes.into(), of.block_bytes.into());
    (buf.f_blocks, buf.f_bfree, buf.f_bavail) = (of.blocks, of.free_blocks, of.available_blocks);
    (buf.f_files, buf.f_ffree, buf.f_favail) = (of.inodes, of.free_inodes, of.free_inodes);
    buf.f_fsid = of.fsid as _;
    buf.f_flag = (ST_RDONLY | ST_NOATIME) as _;
    buf.f_namemax = stat.name_max.into();
    buf
}

macro_rules! statfs_hooks {
    ($($name:ident, $fd_name:ident: $real:literal, $fd_real:literal, $buf:ty, $make:ident;)*) => {$(
        /// # Safety
        /// As statfs(2).
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, to: *mut $buf) -> c_int {
            type Function = unsafe extern "C" fn(*const c_char, *mut $buf) -> c_int;
            let ours = |posix: &'static Posix, place: ResolvedPath| {
                place.found()?;
                // SAFETY: the caller's promise.
                unsafe { put(to, $make(&posix.stat_fs()?)) }
            };
            // SAFETY: the caller's promise.
            unsafe { on_path(libc::AT_FDCWD, path, true, ours, |_, path| real!($real as Function)(path, to)) }
        }

        /// # Safety
        /// As fstatfs(2).
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $fd_name(fd: c_int, to: *mut $buf) -> c_int {
            type Function = unsafe extern "C" fn(c_int, *mut $buf) -> c_int;
            // SAFETY: the caller's promise.
            unsafe {
                if is_ours(fd) {
                    guarded(|| on_descriptor(fd, |posix, _| put(to, $make(&posix.stat_fs()?))))
                } else {
                    real!($fd_real as Function)(fd, to)
                }
            }
        }
    )*};
}

statfs_hooks! {
    statfs, fstatfs: c"statfs", c"fstatfs", StatFsBuf, statfs_buf;
    statfs64, fstatfs64: c"statfs64", c"fstatfs64", StatFsBuf, statfs_buf;
    statvfs, fstatvfs: c"statvfs", c"fstatvfs", StatVfsBuf, statvfs_buf;
    statvfs64, fstatvfs64: c"statvfs64", c"fstatvfs64", StatVfsBuf, statvfs_buf;
}

/// # Safety
/// As faccessat(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faccessat(
    at: c_int,
    path: *const c_char,
    mode: c_int,
    flags: c_int,
) -> c_int {
    type Function = unsafe extern "C" fn(c_int, *const c_char, c_int, c_int) -> c_int;
    let ours = |posix: &'static Posix, place: ResolvedPath| {
        posix.access(&place.found()?, Access::new(mode)?)?;
        Ok(0)
    };
    let theirs = |at, path| {
        let kernel = real!(c"faccessat" as Function);
        // SAFETY: the caller's promise.
        unsafe { kernel(at, path, mode, flags) }
    };
    // SAFETY: the caller's promise.
    unsafe { on_path_or_fd(at, path, flags, ours, theirs) }
}

/// # Safety
/// As access(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { faccessat(libc::AT_FDCWD, path, mode, 0) }
}

/// # Safety
/// As eaccess(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eaccess(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { faccessat(libc::AT_FDCWD, path, mode, libc::AT_EACCESS) }
}

/// # Safety
/// As euidaccess(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn euidaccess(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { faccessat(libc::AT_FDCWD, path, mode, libc::AT_EACCESS) }
}
