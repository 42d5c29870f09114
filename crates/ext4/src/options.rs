//! How a file system is mounted and its files are read.

use std::time::Duration;

use meantime_completion::Policy;

/// Which steps of the read path are taken while the device works. All of them, unless somebody
/// measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overlap {
    /// The file's extents are read and kept when it is opened (`preload`).
    pub preload: bool,
    /// Pages come from a pool of mapped ones, refilled in the gap (`pool`); else each is had from
    /// the heap when it is needed.
    pub pool: bool,
    /// Pages become visible in the cache, queues and counters are kept, in the gap (`lazy-insert`);
    /// else before the device is asked.
    pub lazy_insert: bool,
    /// A user's buffer that was lent to the device for a direct read is taken back in the gap of a
    /// later read (`lazy-unmap`); else before the read returns: for a device that is not trusted to
    /// write only where it was told to.
    pub lazy_unmap: bool,
}

impl Overlap {
    /// Every step overlapped.
    pub const ALL: Self = Self { preload: true, pool: true, lazy_insert: true, lazy_unmap: true };
    /// None: each step where a classic stack has it.
    pub const NONE: Self =
        Self { preload: false, pool: false, lazy_insert: false, lazy_unmap: false };
}

impl Default for Overlap {
    fn default() -> Self {
        Self::ALL
    }
}

/// Which waits of a commit are moved from where a classic journal has them. All of them, unless
/// somebody measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitOverlap {
    /// The log is written while the data are under way (`data`); else they are waited for first.
    pub data: bool,
    /// The commit block is made while the log is under way (`prepare`); else when that was waited
    /// for.
    pub prepare: bool,
    /// Whoever wants a commit leads it, if nobody does (`direct`); else it is handed over to a
    /// thread of the journal's.
    pub direct: bool,
}

impl CommitOverlap {
    /// Every wait moved.
    pub const ALL: Self = Self { data: true, prepare: true, direct: true };
    /// None.
    pub const NONE: Self = Self { data: false, prepare: false, direct: false };
}

impl Default for CommitOverlap {
    fn default() -> Self {
        Self::ALL
    }
}

/// What a mount is to be.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// How much memory the page cache may use, in bytes; at least 1 MiB. Beside it, metadata and
    /// names take about a sixteenth of that each; and a mount keeps an inode in memory for each 4 KiB (from
    /// 16,384 to 131,072 of them, of about 1 KiB each, as far as there are so many).
    pub cache_bytes: usize,
    /// The way to wait for reads that name none; `None`: `poll`, or `interrupt` if the device
    /// cannot be polled.
    pub policy: Option<Policy>,
    /// Which steps are overlapped.
    pub overlap: Overlap,
    /// Which waits of a commit are moved.
    pub commit_overlap: CommitOverlap,
    /// The most that is read ahead of a sequential reader, in bytes; 0: nothing.
    pub read_ahead_bytes: usize,
    /// Wrong checksums are counted instead of refused: to rescue what can be.
    pub ignore_checksums: bool,
    /// Where the superblock is, in blocks of the file system, if not at its usual place.
    pub superblock: Option<u64>,
    /// The most channels (queue pairs) to use; threads beyond that share them.
    pub channels: usize,
    /// For writing, too. It has to be ended by [`unmount`](super::FileSystem::unmount), or the
    /// journal is replayed at the next mount.
    ///
    /// Where the file system has the feature `mmp` (multiple mount protection), and was not
    /// unmounted, the mount has to wait whether somebody else has it, before anything is written
    /// and once more when it has said that it is here: 22 s as a rule, more with a long update
    /// interval (`mke2fs -E mmp_update_interval`), 22 minutes at the most.
    pub write: bool,
    /// Is told once if a mount has to wait for that, and for how long at the most, before it does.
    pub on_wait: Option<fn(Duration)>,
    /// A thread of the mount's own writes back what is old, commits and empties the journal; else
    /// only [`background_step`](super::FileSystem::background_step) does. For writing only.
    pub background: bool,
    /// How often the running transaction is committed and what is dirty is written back, in ms, at
    /// the latest.
    pub commit_interval_ms: u64,
    /// Changes of single files are committed as fast commits, where the journal has room for those
    /// and metadata have checksums (`fast_commit` and `metadata_csum` of mkfs.ext4).
    ///
    /// They survive a recovery by us, by Linux and by e2fsck 1.47.0. For its sake, a file of more
    /// than four extents is committed whole when it gets or gives up blocks, though not when it is
    /// overwritten; and the journal is emptied when its end comes.
    pub fast_commit: bool,
    /// The most dirty pages, in bytes: who writes beyond that writes back. 0: a quarter of the page
    /// cache.
    pub dirty_bytes: usize,
    /// Who gets the blocks that the file system keeps in reserve.
    pub reserved: ReservedBlocks,
    /// When a read is noted in the inode. For writing only: a mount for reading writes nothing.
    pub access_times: AccessTimes,
}

/// When reading a file, a directory or a symbolic link sets its time of reading (`atime`), as the
/// mount options of the same names. It is kept in memory and written with a later change, by the
/// mount's thread, with [`sync`](super::FileSystem::sync) or at the end of the mount: a crash loses
/// it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// If it is not later than the last change of content and inode, or a day old (`relatime`).
    /// (That a day has passed is seen within an hour, by
    /// [`background_step`](super::FileSystem::background_step).)
    #[default]
    Relative,
    /// Never (`noatime`).
    Never,
    /// At each read (`strictatime`): each takes a lock of the file's, and reads the time.
    Strict,
}

/// Who gets the blocks that a file system keeps in reserve (`mke2fs -m`): all who use the mount, or
/// nobody.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReservedBlocks {
    /// As the kernel has it, for the process that mounts: it gets them as the user or in the group
    /// that they are kept for (root, as a rule), or with `CAP_SYS_RESOURCE`.
    #[default]
    ByProcess,
    /// They can be used.
    Use,
    /// They cannot.
    Keep,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 256 << 20,
            policy: None,
            overlap: Overlap::ALL,
            commit_overlap: CommitOverlap::ALL,
            read_ahead_bytes: 512 << 10,
            ignore_checksums: false,
            superblock: None,
            channels: 8,
            write: false,
            on_wait: None,
            background: true,
            commit_interval_ms: 5_000,
            fast_commit: false,
            dirty_bytes: 0,
            reserved: ReservedBlocks::ByProcess,
            access_times: AccessTimes::Relative,
        }
    }
}

/// How one read is done.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ReadOptions {
    /// The way to wait, if not the mount's (RWF_HIPRI asks for `poll`).
    pub policy: Option<Policy>,
    /// Past the cache, into the caller's memory (O_DIRECT). What is dirty is written back before.
    pub direct: bool,
    /// Only what is in the cache: [`Error::WouldBlock`](super::Error::WouldBlock) if nothing is, a
    /// short read if some is (RWF_NOWAIT).
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

/// How a file is opened, as the flags of `open(2)`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Made if it is not there (O_CREAT).
    pub create: bool,
    /// Made; it must not be there (O_CREAT and O_EXCL).
    pub create_new: bool,
    /// Emptied (O_TRUNC).
    pub truncate: bool,
    /// Every write goes to the end (O_APPEND).
    pub append: bool,
    /// Past the page cache (O_DIRECT).
    pub direct: bool,
    /// A write returns when it, and what is needed to find it, is durable, with all metadata
    /// (O_SYNC).
    pub sync: bool,
    /// A write returns when it, and what is needed to find it, is durable (O_DSYNC).
    pub dsync: bool,
    /// Permissions of a file that is made, as they are: there is no umask.
    pub mode: u16,
}

/// What a new inode is to be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NewNode {
    /// Permissions, `S_ISUID` and the like included; without the type.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group (a directory with `S_ISGID` gives its own instead).
    pub gid: u32,
    /// Permissions that it does not get (`umask(2)`), of the lowest nine bits; 0, the default,
    /// takes none away. As for the kernel it does not count where the directory has a default
    /// access list: what is made there has that list, restricted by `mode`. It never counts for a
    /// symbolic link.
    pub umask: u16,
}

/// How [`rename_at`](super::FileSystem::rename_at) treats what is there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RenameFlags {
    /// Nothing may be there (RENAME_NOREPLACE).
    pub no_replace: bool,
    /// The two change places (RENAME_EXCHANGE).
    pub exchange: bool,
    /// A whiteout stays where it was (RENAME_WHITEOUT).
    pub whiteout: bool,
}

/// Whether an attribute that is set has to be there before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SetAttribute {
    /// It may.
    #[default]
    Any,
    /// It must not (XATTR_CREATE).
    Create,
    /// It must (XATTR_REPLACE).
    Replace,
}

/// What [`allocate`](super::File::allocate) does with a range, as `fallocate(2)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocate {
    /// Sets room aside, which reads as zeroes; the file grows if need be.
    Extend,
    /// Sets room aside; the size stays (FALLOC_FL_KEEP_SIZE).
    KeepSize,
    /// Makes a hole; the size stays (FALLOC_FL_PUNCH_HOLE).
    Punch,
    /// Makes zeroes, with room set aside; the file grows if need be (FALLOC_FL_ZERO_RANGE).
    Zero,
    /// Makes zeroes, with room set aside; the size stays (FALLOC_FL_ZERO_RANGE and
    /// FALLOC_FL_KEEP_SIZE).
    ZeroKeepSize,
}

/// How one write is done.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WriteOptions {
    /// The way to wait, if not the mount's.
    pub policy: Option<Policy>,
    /// Past the cache, if it is of whole blocks of the device (O_DIRECT); else through it, and
    /// written back at once.
    pub direct: bool,
    /// Returns when it is durable, with all metadata (RWF_SYNC).
    pub sync: bool,
    /// Returns when it is durable, and what is needed to find it (RWF_DSYNC).
    pub dsync: bool,
    /// At the end of the file, wherever that is (RWF_APPEND); the offset does not count.
    pub append: bool,
}
