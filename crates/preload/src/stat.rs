//! The `stat` family. 64-bit Linux has one layout for both names of the structure.

use std::ffi::{c_char, c_int, c_uint};

use libc::{
    mode_t, stat as StatBuf, statfs as StatFsBuf, statvfs as StatVfsBuf, statx as StatxBuf,
};
use meantime_ext4::Timestamp;
use meantime_posix::{Access, Errno, Posix, ResolvedPath, Stat, StatFs};

use crate::path::{on_fd, on_path, on_path_or_fd};
use meantime_hook::{forwards, hooks, real};

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
    // The flags with the same bits in both: compressed, immutable, append, nodump, encrypted.
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
        let kernel = real!(c"fstatat", StatAt);
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
    let ours = |posix: &'static Posix, place| unsafe { fill(posix, place, to) };
    // SAFETY: the caller's promise.
    on_fd(fd, ours, || unsafe { real!(c"fstat", Function)(fd, to) })
}

// The second half is called by programs built with a C library before 2.33.
macro_rules! stat_hooks {
    ($(
        $stat:ident, $lstat:ident, $fstat:ident, $fstatat:ident,
        $xstat:ident, $lxstat:ident, $fxstat:ident, $fxstatat:ident;
    )*) => {forwards! {$(
        "C" fn $stat(path: *const c_char, to: *mut StatBuf) -> c_int
            => stat_at(libc::AT_FDCWD, path, to, 0);
        "C" fn $lstat(path: *const c_char, to: *mut StatBuf) -> c_int
            => stat_at(libc::AT_FDCWD, path, to, libc::AT_SYMLINK_NOFOLLOW);
        "C" fn $fstat(fd: c_int, to: *mut StatBuf) -> c_int
            => stat_fd(fd, to);
        "C" fn $fstatat(at: c_int, path: *const c_char, to: *mut StatBuf, flags: c_int) -> c_int
            => stat_at(at, path, to, flags);
        "C" fn $xstat(_version: c_int, path: *const c_char, to: *mut StatBuf) -> c_int
            => stat_at(libc::AT_FDCWD, path, to, 0);
        "C" fn $lxstat(_version: c_int, path: *const c_char, to: *mut StatBuf) -> c_int
            => stat_at(libc::AT_FDCWD, path, to, libc::AT_SYMLINK_NOFOLLOW);
        "C" fn $fxstat(_version: c_int, fd: c_int, to: *mut StatBuf) -> c_int
            => stat_fd(fd, to);
        "C" fn $fxstatat(
            _version: c_int, at: c_int, path: *const c_char, to: *mut StatBuf, flags: c_int
        ) -> c_int
            => stat_at(at, path, to, flags);
    )*}};
}

stat_hooks! {
    stat, lstat, fstat, fstatat, __xstat, __lxstat, __fxstat, __fxstatat;
    stat64, lstat64, fstat64, fstatat64, __xstat64, __lxstat64, __fxstat64, __fxstatat64;
}

hooks! {
    "C" fn statx(
        at: c_int, path: *const c_char, flags: c_int, mask: c_uint, to: *mut StatxBuf,
    ) -> c_int = { |real|
        let ours = |posix: &'static Posix, place: ResolvedPath| {
            let stat = posix.stat(&place.found()?);
            // SAFETY: the caller's promise.
            unsafe { put(to, statx_buf(&stat)) }
        };
        // SAFETY: the caller's promise.
        let theirs = |at, path| unsafe { real()(at, path, flags, mask, to) };
        // SAFETY: the caller's promise.
        unsafe { on_path_or_fd(at, path, flags, ours, theirs) }
    }
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
/// Set if the flags are valid.
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
    ($($name:ident, $fd_name:ident: $buf:ty, $make:ident;)*) => {hooks! {$(
        "C" fn $name(path: *const c_char, to: *mut $buf) -> c_int = { |real|
            let ours = |posix: &'static Posix, place: ResolvedPath| {
                place.found()?;
                // SAFETY: the caller's promise.
                unsafe { put(to, $make(&posix.stat_fs()?)) }
            };
            // SAFETY: the caller's promise.
            unsafe { on_path(libc::AT_FDCWD, path, true, ours, |_, path| real()(path, to)) }
        }

        "C" fn $fd_name(fd: c_int, to: *mut $buf) -> c_int = { |real|
            // SAFETY: the caller's promise.
            let ours = |posix: &'static Posix, _| unsafe { put(to, $make(&posix.stat_fs()?)) };
            // SAFETY: the caller's promise.
            on_fd(fd, ours, || unsafe { real()(fd, to) })
        }
    )*}};
}

statfs_hooks! {
    statfs, fstatfs: StatFsBuf, statfs_buf;
    statfs64, fstatfs64: StatFsBuf, statfs_buf;
    statvfs, fstatvfs: StatVfsBuf, statvfs_buf;
    statvfs64, fstatvfs64: StatVfsBuf, statvfs_buf;
}

hooks! {
    "C" fn faccessat(at: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int = { |real|
        let ours = |posix: &'static Posix, place: ResolvedPath| {
            posix.access(&place.found()?, Access::new(mode)?)?;
            Ok(0)
        };
        // SAFETY: the caller's promise.
        unsafe { on_path_or_fd(at, path, flags, ours, |at, path| real()(at, path, mode, flags)) }
    }
}

forwards! {
    "C" fn access(path: *const c_char, mode: c_int) -> c_int
        => faccessat(libc::AT_FDCWD, path, mode, 0);
    "C" fn eaccess(path: *const c_char, mode: c_int) -> c_int
        => faccessat(libc::AT_FDCWD, path, mode, libc::AT_EACCESS);
    "C" fn euidaccess(path: *const c_char, mode: c_int) -> c_int
        => faccessat(libc::AT_FDCWD, path, mode, libc::AT_EACCESS);
}
