//! Flags of requests and answers, with the names of `fuse.h`.

/// The features on which kernel and server agree (`FUSE_*` of `fuse_init_in.flags`, with `flags2`
/// as the upper half).
pub(crate) mod init {
    pub(crate) const ASYNC_READ: u64 = 1 << 0;
    pub(crate) const ATOMIC_O_TRUNC: u64 = 1 << 3;
    pub(crate) const EXPORT_SUPPORT: u64 = 1 << 4;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const DONT_MASK: u64 = 1 << 6;
    pub(crate) const IOCTL_DIR: u64 = 1 << 11;
    pub(crate) const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const POSIX_ACL: u64 = 1 << 20;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const CACHE_SYMLINKS: u64 = 1 << 23;
    pub(crate) const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(crate) const SETXATTR_EXT: u64 = 1 << 29;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
}

/// The attributes that are to be changed (`FATTR_*` of `fuse_setattr_in.valid`).
pub(crate) mod set {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// The ways in which the kernel is to treat an open file (`FOPEN_*`).
pub(crate) mod opened {
    pub(crate) const DIRECT_IO: u32 = 1 << 0;
    pub(crate) const KEEP_CACHE: u32 = 1 << 1;
    /// Closing a descriptor sends no FLUSH (protocol 7.35, Linux 5.16; ignored before).
    pub(crate) const NOFLUSH: u32 = 1 << 5;
    pub(crate) const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// `FUSE_OPEN_KILL_SUIDGID`.
pub(crate) const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// `FUSE_WRITE_CACHE`: the write is a writeback of cached pages, by any file that was open for
/// writing.
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
/// `FUSE_READ_LOCKOWNER`, `FUSE_WRITE_LOCKOWNER`: the kernel sets this flag if the data go between
/// us and the program, past its cache.
pub(crate) const READ_PAST_CACHE: u32 = 1 << 1;
pub(crate) const WRITE_PAST_CACHE: u32 = 1 << 1;
/// `FUSE_WRITE_KILL_SUIDGID`.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// `FUSE_FSYNC_FDATASYNC`.
pub(crate) const FSYNC_DATA: u32 = 1 << 0;
/// `FUSE_SETXATTR_ACL_KILL_SGID`.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
