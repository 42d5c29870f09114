//! The metadata of a file, and of a file system.

/// The type of an inode; as a number, the highest four bits of `st_mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileType {
    /// A file.
    Regular = 0x8,
    /// A directory.
    Directory = 0x4,
    /// A symbolic link.
    Symlink = 0xA,
    /// A character device.
    Character = 0x2,
    /// A block device.
    Block = 0x6,
    /// A named pipe.
    Fifo = 0x1,
    /// A socket.
    Socket = 0xC,
}

impl FileType {
    /// The types in the order of their directory numbers (`EXT4_FT_*`), which start with 1.
    const IN_DIRECTORIES: [Self; 7] = [
        Self::Regular,
        Self::Directory,
        Self::Character,
        Self::Block,
        Self::Fifo,
        Self::Socket,
        Self::Symlink,
    ];

    /// Returns the type in `mode` (`st_mode`).
    pub(crate) fn of_mode(mode: u16) -> Option<Self> {
        Self::IN_DIRECTORIES.into_iter().find(|file_type| *file_type as u16 == mode >> 12)
    }

    /// Returns the type with directory number `number`.
    pub(crate) fn of_number(number: u8) -> Option<Self> {
        Self::IN_DIRECTORIES.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// Returns its directory number.
    pub(crate) fn number(self) -> u8 {
        (1..).zip(Self::IN_DIRECTORIES).find(|(_, known)| *known == self).map_or(0, |(at, _)| at)
    }
}

/// A point in time, from 1901 to 2446.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Seconds since 1970, UTC.
    pub seconds: i64,
    /// Nanoseconds, below 10⁹.
    pub nanoseconds: u32,
}

/// The result of `stat` for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    /// Inode number.
    pub ino: u32,
    /// The inode's generation.
    pub generation: u32,
    /// Its type.
    pub file_type: FileType,
    /// Type and permissions, as in `st_mode`.
    pub mode: u16,
    /// The number of links to it, which is 1 for a directory with more than 65,000.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Room on the disk, in units of 512 bytes, including extent and attribute blocks.
    pub blocks_512: u64,
    /// Block size of the file system, in bytes.
    pub block_bytes: u32,
    /// Major and minor number of a device.
    pub device: (u32, u32),
    /// Time of the last read.
    pub accessed: Timestamp,
    /// Time of the last change of the content.
    pub modified: Timestamp,
    /// Time of the last change of the inode.
    pub changed: Timestamp,
    /// Creation time, if the inode has room for it.
    pub created: Option<Timestamp>,
    /// The inode's flags (EXT4_*_FL).
    pub flags: u32,
    /// Project number.
    pub project: u32,
}

/// The result of `statfs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Block size, in bytes.
    pub block_bytes: u32,
    /// Blocks without the file system's own (as in `statfs` with minixdf off).
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Free blocks without those reserved for root.
    pub available_blocks: u64,
    /// Inodes.
    pub inodes: u64,
    /// Free inodes.
    pub free_inodes: u64,
    /// `f_fsid`, as the kernel computes it from the UUID.
    pub fsid: u64,
}

/// Information from the superblock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Its label, up to 16 bytes.
    pub label: Vec<u8>,
    /// Its last mount point.
    pub last_mounted: Vec<u8>,
    /// Names of its features, as in `dumpe2fs`.
    pub features: Vec<String>,
    /// Block size, in bytes.
    pub block_bytes: u32,
    /// Inode size, in bytes.
    pub inode_bytes: u32,
    /// Size of the file system, in blocks.
    pub blocks: u64,
    /// Inodes.
    pub inodes: u32,
    /// Block groups.
    pub groups: u32,
    /// Whether the superblock records errors.
    pub errors: bool,
    /// Whether the superblock records a clean unmount.
    pub clean: bool,
    /// The result of replaying the journal, or `None` if there was nothing to replay.
    pub recovered: Option<Recovered>,
    /// Creation time.
    pub created: Timestamp,
    /// Time of the last write.
    pub written: Timestamp,
}

/// The contents of a journal that were not in place yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Committed transactions.
    pub transactions: u32,
    /// Blocks with newer contents in the journal.
    pub blocks: usize,
    /// Revoked blocks.
    pub revoked: usize,
    /// Fast commits that were replayed.
    pub fast_commits: u32,
}
