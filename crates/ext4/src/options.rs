//! Options for mounts, files, reads and writes.

use std::time::Duration;

use meantime_completion::Policy;

/// The steps of the read path that are taken while the device works. By default all of them are; a
/// smaller set is only for measuring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overlap {
    /// Reads and keeps the file's extents when it is opened (`preload`).
    pub preload: bool,
    /// Takes pages from a stock of mapped ones, which is refilled in the gap (`pool`). Otherwise
    /// each page comes from the heap when it is needed.
    pub pool: bool,
    /// Maintains the cache's replacement queues in the gap (`lazy-insert`). Otherwise this is done
    /// before the request is sent.
    pub lazy_insert: bool,
    /// Unmaps a user's buffer that was lent to the device for a direct read in the gap of a later
    /// read (`lazy-unmap`). Otherwise it is unmapped before the read returns, for a device that is
    /// not trusted to write only where it was told to.
    pub lazy_unmap: bool,
}

impl Overlap {
    /// All steps overlap.
    pub const ALL: Self = Self { preload: true, pool: true, lazy_insert: true, lazy_unmap: true };
    /// No step overlaps: each is where a classic stack has it.
    pub const NONE: Self =
        Self { preload: false, pool: false, lazy_insert: false, lazy_unmap: false };
}

impl Default for Overlap {
    fn default() -> Self {
        Self::ALL
    }
}

/// The waits of a commit that are moved from their places in a classic journal. By default all of
/// them are; a smaller set is only for measuring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitOverlap {
    /// Writes the log while the data are in flight (`data`). Otherwise the commit waits for the
    /// data first.
    pub data: bool,
    /// Prepares the commit block while the log is in flight (`prepare`). Otherwise it is prepared
    /// after the log has completed, and the gap of the commit block is not used.
    pub prepare: bool,
    /// Lets the thread that wants a commit lead it, unless there is a leader (`direct` in job
    /// files). Otherwise a thread of the journal leads it.
    pub caller_commits: bool,
}

impl CommitOverlap {
    /// All waits are moved.
    pub const ALL: Self = Self { data: true, prepare: true, caller_commits: true };
    /// No wait is moved.
    pub const NONE: Self = Self { data: false, prepare: false, caller_commits: false };
}

impl Default for CommitOverlap {
    fn default() -> Self {
        Self::ALL
    }
}

/// Options of a mount.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// The memory of the page cache, in bytes; at least 1 MiB. In addition, metadata and names take
    /// about a sixteenth of that each, and a mount keeps up to one inode per 4 KiB of it in memory
    /// (the limit is between 16,384 and 131,072 inodes, of about 1 KiB each). On a mount for
    /// writing each of them also keeps the file's extents, once they were needed.
    pub cache_bytes: usize,
    /// The wait policy of reads that name none. `None` means `adaptive`, for as many threads as
    /// `pollers` says.
    pub policy: Option<Policy>,
    /// The maximum number of threads that may spin at once, if `policy` is `None`. Others wait by
    /// interrupt, and so do all while more [callers](super::FileSystem::begin_call) wait. A thread
    /// that spins keeps its CPU from those that would use the result. 0 stands for the number of
    /// CPUs.
    pub pollers: usize,
    /// The steps of reads that overlap.
    pub overlap: Overlap,
    /// The waits of a commit that are moved.
    pub commit_overlap: CommitOverlap,
    /// The maximum read-ahead for a sequential reader, in bytes; 0 switches it off.
    pub read_ahead_bytes: usize,
    /// Counts wrong checksums instead of refusing them, to rescue data.
    pub ignore_checksums: bool,
    /// The superblock's block, in blocks of the file system, if not the usual one.
    pub superblock: Option<u64>,
    /// The maximum number of channels to use, each of which has one queue pair or two. If there are more threads, they share
    /// the channels.
    pub channels: usize,
    /// Mounts for writing, too. The mount must be ended by [`unmount`](super::FileSystem::unmount);
    /// otherwise the next mount replays the journal.
    ///
    /// If the file system has the feature `mmp` (multiple mount protection) and was not unmounted,
    /// the mount waits to see whether another host has it: once before it writes anything, and
    /// again after it has written its mark. This usually takes 22 s. It takes more with a long
    /// update interval (`mke2fs -E mmp_update_interval`), and at most 22 minutes.
    pub write: bool,
    /// Called once before a mount has to wait to see whether another host has the file system, with
    /// the longest time that this may take.
    pub on_wait: Option<fn(Duration)>,
    /// Starts a thread of the mount that writes back old pages, commits and empties the journal.
    /// Without it, only [`background_step`](super::FileSystem::background_step) does this work. The
    /// option is for mounts for writing only.
    pub background: bool,
    /// The longest interval between commits of the running transaction and writebacks of dirty
    /// pages, in ms.
    pub commit_interval_ms: u64,
    /// Commits changes of single files as fast commits, if the journal has room for them and
    /// metadata have checksums (`fast_commit` and `metadata_csum` of mkfs.ext4).
    ///
    /// They survive a recovery by this crate, by Linux and by e2fsck 1.47.0. For e2fsck's sake, a
    /// file of more than four extents needs a whole commit when blocks are added or removed, but
    /// not when it is overwritten, and the journal is emptied when its end is reached.
    pub fast_commit: bool,
    /// The maximum size of dirty pages, in bytes. A writer beyond that writes back. 0 stands for a
    /// quarter of the page cache.
    pub dirty_bytes: usize,
    /// Whether the file system's reserved blocks can be used.
    pub reserved: ReservedBlocks,
    /// When reads update the access time. This is for mounts for writing only, because a mount for
    /// reading writes nothing.
    pub access_times: AccessTimes,
}

/// When reading a file, a directory or a symbolic link updates its access time (`atime`), as the
/// mount options of the same names. The time is kept in memory and written with a later change, by
/// the mount's thread, by [`sync`](super::FileSystem::sync) or at the end of the mount. A crash
/// loses it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// A read updates the time if it is not later than the last changes of content and inode, or is
    /// a day old (`relatime`). That a day has passed is noticed within an hour, by
    /// [`background_step`](super::FileSystem::background_step).
    #[default]
    Relative,
    /// No read updates the time (`noatime`).
    Never,
    /// Each read updates the time (`strictatime`), for which it takes a lock of the file and reads
    /// the clock.
    Strict,
}

/// Whether a mount's users get the blocks that the file system reserves (`mke2fs -m`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ReservedBlocks {
    /// The kernel's rule for the mounting process applies: it gets them if it runs as the user or
    /// in the group that they are reserved for (usually root), or with `CAP_SYS_RESOURCE`. A thread
    /// that acts for a [`Caller`](super::Caller) gets them if the caller has this user or group ID,
    /// or user ID 0.
    #[default]
    ByProcess,
    /// Every caller gets them.
    Use,
    /// No caller gets them.
    Keep,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 256 << 20,
            policy: None,
            pollers: 0,
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

/// Options of one read.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ReadOptions {
    /// The wait policy, if not the mount's (RWF_HIPRI asks for `poll`).
    pub policy: Option<Policy>,
    /// Reads past the cache into the caller's memory (O_DIRECT). Dirty pages are written back
    /// first.
    pub direct: bool,
}

/// A program's announcement of its later reads (`posix_fadvise`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// The program announces nothing special.
    Normal,
    /// The program reads in order, so the read-ahead doubles.
    Sequential,
    /// The program reads anywhere, so there is no read-ahead.
    Random,
    /// The program reads this range soon, so its pages are read ahead now, without waiting.
    WillNeed,
    /// The program no longer needs this range, so its pages are dropped.
    DontNeed,
}

/// Options for opening a file, as the flags of `open(2)`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Opens the file for reading.
    pub read: bool,
    /// Opens the file for writing.
    pub write: bool,
    /// Creates the file if it does not exist (O_CREAT).
    pub create: bool,
    /// Creates the file, which must not exist (O_CREAT and O_EXCL).
    pub create_new: bool,
    /// Truncates the file to zero (O_TRUNC).
    pub truncate: bool,
    /// Every write goes to the end (O_APPEND).
    pub append: bool,
    /// Reads and writes past the page cache (O_DIRECT).
    pub direct: bool,
    /// Reads leave the access time as it is (O_NOATIME).
    pub no_access_time: bool,
    /// A write returns when its data, the metadata needed to find them, and all other metadata are
    /// durable (O_SYNC).
    pub sync: bool,
    /// A write returns when its data and the metadata needed to find them are durable (O_DSYNC).
    pub dsync: bool,
    /// The permissions of a new file; no umask is applied.
    pub mode: u16,
}

/// Attributes of a new inode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NewNode {
    /// Permissions, with `S_ISUID` and the like, without the type.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group (a directory with `S_ISGID` gives its own instead).
    pub gid: u32,
    /// Permissions to remove (`umask(2)`), of the lowest nine bits. The default of 0 removes none.
    /// As in the kernel, the mask does not apply if the directory has a default ACL: new inodes get
    /// that list, restricted by `mode`. It never applies to a symbolic link.
    pub umask: u16,
}

/// How [`rename_at`](super::FileSystem::rename_at) treats an existing target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RenameFlags {
    /// The target must not exist (RENAME_NOREPLACE).
    pub no_replace: bool,
    /// Exchanges source and target (RENAME_EXCHANGE).
    pub exchange: bool,
    /// Leaves a whiteout at the old name (RENAME_WHITEOUT).
    pub whiteout: bool,
}

/// Whether setting an attribute requires that it exists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SetAttribute {
    /// It may exist.
    #[default]
    Any,
    /// It must not exist (XATTR_CREATE).
    Create,
    /// It must exist (XATTR_REPLACE).
    Replace,
}

/// What [`allocate`](super::File::allocate) does with a range, as `fallocate(2)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocate {
    /// Allocates blocks that read as zeroes, and extends the size if necessary.
    Extend,
    /// Allocates blocks and keeps the size (FALLOC_FL_KEEP_SIZE).
    KeepSize,
    /// Makes a hole and keeps the size (FALLOC_FL_PUNCH_HOLE).
    Punch,
    /// Makes allocated zeroes, and extends the size if necessary (FALLOC_FL_ZERO_RANGE).
    Zero,
    /// Makes allocated zeroes and keeps the size (FALLOC_FL_ZERO_RANGE and FALLOC_FL_KEEP_SIZE).
    ZeroKeepSize,
}

/// Options of one write.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WriteOptions {
    /// The wait policy, if not the mount's.
    pub policy: Option<Policy>,
    /// Writes past the cache if the write covers whole blocks of the device (O_DIRECT). Otherwise
    /// writes through the cache and writes back at once.
    pub direct: bool,
    /// Returns when the data and all metadata are durable (RWF_SYNC).
    pub sync: bool,
    /// Returns when the data and the metadata needed to find them are durable (RWF_DSYNC).
    pub dsync: bool,
    /// Writes at the end of the file (RWF_APPEND); the offset is ignored.
    pub append: bool,
}
