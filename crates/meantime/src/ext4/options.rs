//! How a file system is mounted and its files are read.

use crate::completion::Policy;

/// Which steps of the read path are taken while the device works. All of them, unless somebody measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overlap {
    /// The file's extents are read and kept when it is opened (`preload`).
    pub preload: bool,
    /// Pages come from a pool of mapped ones, refilled in the gap (`pool`); else each is had from the heap when it is needed.
    pub pool: bool,
    /// Pages become visible in the cache, queues and counters are kept, in the gap (`lazy-insert`); else before the device is asked.
    pub lazy_insert: bool,
    /// A user's buffer that was lent to the device for a direct read is taken back in the gap of a later read (`lazy-unmap`); else before
    /// the read returns: for a device that is not trusted to write only where it was told to.
    pub lazy_unmap: bool,
}

impl Overlap {
    /// Every step overlapped.
    pub const ALL: Self = Self { preload: true, pool: true, lazy_insert: true, lazy_unmap: true };
    /// None: each step where a classic stack has it.
    pub const NONE: Self = Self { preload: false, pool: false, lazy_insert: false, lazy_unmap: false };
}

impl Default for Overlap {
    fn default() -> Self {
        Self::ALL
    }
}

/// What a mount is to be.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// How much memory the page cache may use, in bytes; at least 1 MiB.
    pub cache_bytes: usize,
    /// The way to wait for reads that name none; `None`: by the device's channel default, `poll`.
    pub policy: Option<Policy>,
    /// Which steps are overlapped.
    pub overlap: Overlap,
    /// The most that is read ahead of a sequential reader, in bytes; 0: nothing.
    pub read_ahead_bytes: usize,
    /// Wrong checksums are counted instead of refused: to rescue what can be.
    pub ignore_checksums: bool,
    /// Where the superblock is, in blocks of the file system, if not at its usual place.
    pub superblock: Option<u64>,
    /// The most channels (queue pairs) to use; threads beyond that share them.
    pub channels: usize,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 256 << 20,
            policy: None,
            overlap: Overlap::ALL,
            read_ahead_bytes: 512 << 10,
            ignore_checksums: false,
            superblock: None,
            channels: 8,
        }
    }
}

/// How one read is done.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ReadOptions {
    /// The way to wait, if not the mount's (RWF_HIPRI asks for `poll`).
    pub policy: Option<Policy>,
    /// Past the cache, into the caller's memory (O_DIRECT). What the cache holds is not looked at, since nobody writes.
    pub direct: bool,
    /// Only what is in the cache: [`Error::WouldBlock`](super::Error::WouldBlock) if nothing is, a short read if some is (RWF_NOWAIT).
    pub no_wait: bool,
}

/// What a program says of its reads to come (`posix_fadvise`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Nothing special.
    Normal,
    /// In order: twice the read-ahead.
    Sequential,
    /// Anywhere: no read-ahead.
    Random,
    /// This range soon: it is read now, without waiting.
    WillNeed,
    /// This range no more: its pages are dropped.
    DontNeed,
}
