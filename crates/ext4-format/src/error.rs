//! Errors: damage on the disk, and requests that cannot be satisfied.

use crate::source::SourceError;

/// A defect of a structure on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Defect {
    /// The magic number of a superblock is not ext4's.
    #[error("not an ext4 superblock (wrong magic number)")]
    SuperblockMagic,
    /// The superblock's checksum is wrong.
    #[error("the superblock's checksum is wrong")]
    SuperblockChecksum,
    /// A field of the superblock has an invalid value.
    #[error("the superblock's {0} cannot be")]
    SuperblockField(&'static str),
    /// A group descriptor's checksum is wrong.
    #[error("a group descriptor's checksum is wrong")]
    GroupChecksum,
    /// A group descriptor points outside the file system.
    #[error("a group descriptor points out of the file system")]
    GroupPointer,
    /// A block or inode bitmap's checksum is wrong.
    #[error("a bitmap's checksum is wrong")]
    BitmapChecksum,
    /// An inode's checksum is wrong.
    #[error("the inode's checksum is wrong")]
    InodeChecksum,
    /// An invalid inode number.
    #[error("an inode number that cannot be")]
    InodeNumber,
    /// A directory entry or handle refers to an inode that is not in use.
    #[error("the inode is not in use, but something leads to it")]
    InodeFree,
    /// A field of an inode has an invalid value.
    #[error("the inode's {0} cannot be")]
    InodeField(&'static str),
    /// An extent node's magic number, depth or counts are wrong.
    #[error("an extent node's header cannot be")]
    ExtentHeader,
    /// An extent node's checksum is wrong.
    #[error("an extent node's checksum is wrong")]
    ExtentChecksum,
    /// Extents are out of order, overlap, have length 0, or are outside their parent's range.
    #[error("extents are out of order or overlap")]
    ExtentOrder,
    /// An extent, or a pointer of a block map, points outside the file system.
    #[error("a block number leads out of the file system")]
    BlockPointer,
    /// A directory block's checksum is wrong.
    #[error("a directory block's checksum is wrong")]
    DirectoryChecksum,
    /// A directory entry's length or name is invalid.
    #[error("a directory entry cannot be")]
    DirectoryEntry,
    /// A directory's hash tree is malformed.
    #[error("the directory's hash tree is malformed")]
    HashTree,
    /// The checksum of a node of a directory's hash tree is wrong.
    #[error("the checksum of a hash tree node is wrong")]
    HashTreeChecksum,
    /// A symbolic link is too long, or its target is missing.
    #[error("the symbolic link's text is not there")]
    SymbolicLink,
    /// An extended attribute's header, entry or value is invalid.
    #[error("an extended attribute cannot be")]
    Attribute,
    /// The checksum of a block of extended attributes is wrong.
    #[error("the checksum of a block of extended attributes is wrong")]
    AttributeChecksum,
    /// Inline data is missing, or longer than its room.
    #[error("inline data are not where they should be")]
    InlineData,
    /// The journal's superblock is invalid.
    #[error("the journal's superblock cannot be")]
    JournalSuperblock,
    /// The checksum of the journal's superblock, or of a block in it that recovery needs, is wrong.
    #[error("a checksum in the journal is wrong")]
    JournalChecksum,
    /// A block of the journal is inconsistent.
    #[error("a block of the journal cannot be what it says")]
    JournalBlock,
    /// The journal is marked as aborted, with this errno.
    #[error("the journal was aborted (errno {0})")]
    JournalAborted(i32),
    /// A structure's block is claimed by another structure too.
    #[error("a block belongs to two owners")]
    BlockShared,
    /// Blocks from this one on are in use but marked free in their bitmap.
    #[error("blocks are in use, and their bitmap says that they are free")]
    BlockUnmarked,
    /// Blocks from this one on are marked as in use but unused.
    #[error("blocks are marked as in use, and nothing uses them")]
    BlockLeaked,
    /// An inode is in use but marked free in its bitmap.
    #[error("the inode is in use, and its bitmap says that it is free")]
    InodeUnmarked,
    /// An inode is marked as in use but unused.
    #[error("the inode is marked as in use, and is not")]
    InodeLeaked,
    /// An inode is in use but has no name.
    #[error("the inode is in use, and no name leads to it")]
    InodeUnreachable,
    /// An inode's link count differs from its number of names.
    #[error("the inode's link count is wrong")]
    LinkCount,
    /// An inode's block count is wrong.
    #[error("the inode's block count is wrong")]
    BlockCount,
    /// A count in a group's descriptor is wrong.
    #[error("the count of {0} is wrong")]
    FreeCount(&'static str),
    /// The bits after the last one of a bitmap are not set.
    #[error("what lies past the end of a bitmap is not marked as in use")]
    BitmapPadding,
    /// `.` or `..` does not refer to the directory or its parent.
    #[error("`.` or `..` leads elsewhere")]
    DirectoryParent,
    /// A directory has two names.
    #[error("the directory has two names")]
    DirectoryNames,
    /// An attribute block's reference count is wrong.
    #[error("the reference count of a block of attributes is wrong")]
    AttributeReferences,
    /// The orphan list contains an invalid inode.
    #[error("the list of inodes that are being deleted cannot be")]
    OrphanList,
    /// There are orphans, although the file system was unmounted cleanly.
    #[error("inodes are left to be deleted, though nothing says that recovery is needed")]
    OrphansLeft,
    /// A directory has two entries with the same name.
    #[error("the directory has two entries of one name")]
    DuplicateName,
    /// The resize inode does not point to the reserved blocks after the group descriptors.
    #[error("the resize inode does not lead to the room for group descriptors")]
    ResizeInode,
    /// A field of a group descriptor has an invalid value.
    #[error("the group descriptor's {0} cannot be")]
    GroupField(&'static str),
    /// A quota file's header or tree is invalid.
    #[error("the quota file cannot be what it says")]
    QuotaFile,
    /// A quota file has wrong figures for a user, group or project.
    #[error("the quota file has somebody's usage wrong")]
    QuotaUsage,
    /// The MMP block (multiple mount protection) lacks its magic number.
    #[error("the block of multiple mount protection is none (wrong magic number)")]
    MmpMagic,
    /// The checksum of the MMP block is wrong.
    #[error("the checksum of the block of multiple mount protection is wrong")]
    MmpChecksum,
    /// A field of the MMP block has an invalid value.
    #[error("the {0} in the block of multiple mount protection cannot be")]
    MmpField(&'static str),
}

impl Defect {
    /// Returns its kind in one word for programs: `extent-checksum`.
    pub fn kind(&self) -> String {
        let mut kind = String::new();
        for letter in format!("{self:?}").chars().take_while(char::is_ascii_alphanumeric) {
            if letter.is_ascii_uppercase() && !kind.is_empty() {
                kind.push('-');
            }
            kind.push(letter.to_ascii_lowercase());
        }
        kind
    }
}

/// A defect, and its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Corruption {
    /// The defect.
    pub defect: Defect,
    /// The inode, if known (the journal is inode 8).
    pub ino: Option<u32>,
    /// The block of the file system (or the group, for a defect of a descriptor), if known.
    pub block: Option<u64>,
}

impl Corruption {
    /// Returns `defect`, without a place.
    pub const fn new(defect: Defect) -> Self {
        Self { defect, ino: None, block: None }
    }

    /// Returns `defect` in inode `ino`, and in `block` if it is known.
    pub(crate) const fn at(defect: Defect, ino: u32, block: Option<u64>) -> Self {
        Self { defect, ino: Some(ino), block }
    }

    /// Sets the inode, unless one is set already.
    #[must_use]
    pub fn in_inode(mut self, ino: u32) -> Self {
        self.ino.get_or_insert(ino);
        self
    }

    /// Sets the block, unless one is set already.
    #[must_use]
    pub fn in_block(mut self, block: u64) -> Self {
        self.block.get_or_insert(block);
        self
    }
}

impl std::fmt::Display for Corruption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.defect.fmt(f)?;
        match (self.ino, self.block) {
            (Some(ino), Some(block)) => write!(f, ": inode {ino}, block {block}"),
            (Some(ino), None) => write!(f, ": inode {ino}"),
            (None, Some(block)) => write!(f, ": block {block}"),
            (None, None) => Ok(()),
        }
    }
}

impl std::error::Error for Corruption {}

/// An unsupported feature.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {advice}")]
pub struct Unsupported {
    /// The feature's or flag's name in `dumpe2fs` or `lsattr`.
    pub what: String,
    /// A remedy.
    pub advice: &'static str,
}

/// Why a read or look-up failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No such file or directory.
    #[error("no such file or directory")]
    NotFound,
    /// A path component that should be a directory is not.
    #[error("not a directory")]
    NotDirectory,
    /// Too many symbolic links, or a link to itself.
    #[error("too many symbolic links")]
    Loop,
    /// A name of more than 255 bytes, or a path of more than 4,095.
    #[error("the name is too long")]
    NameTooLong,
    /// An invalid argument.
    #[error("{0}")]
    Invalid(&'static str),
    /// The disk is damaged.
    #[error("the file system is damaged: {0}")]
    Corrupt(#[from] Corruption),
    /// An unsupported feature.
    #[error("not supported: {0}")]
    Unsupported(#[from] Unsupported),
    /// The source failed.
    #[error(transparent)]
    Source(SourceError),
}

/// Why a volume could not be opened.
#[derive(Debug, Clone, PartialEq)]
pub enum OpenFailure {
    /// The device holds no ext4. The string says what it seems to hold.
    NotExt4(String),
    /// The primary superblock is damaged; block `block` of the file system has an intact backup.
    Backup {
        /// The defect.
        corruption: Corruption,
        /// The backup's block.
        block: u64,
    },
    /// The device is smaller than the file system.
    TooSmall {
        /// Size of the file system, in bytes.
        fs_bytes: u64,
    },
    /// An unknown feature.
    Unsupported(Unsupported),
    /// Damage, or an error of the source.
    Failed(Error),
}

impl From<Corruption> for OpenFailure {
    fn from(corruption: Corruption) -> Self {
        Self::Failed(Error::Corrupt(corruption))
    }
}

impl From<Error> for OpenFailure {
    fn from(error: Error) -> Self {
        match error {
            Error::Unsupported(unsupported) => Self::Unsupported(unsupported),
            error => Self::Failed(error),
        }
    }
}

/// The result of reading a file system.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_defects() {
        assert_eq!(Defect::ExtentChecksum.kind(), "extent-checksum");
        assert_eq!(Defect::InodeField("size").kind(), "inode-field");
        assert_eq!(Defect::JournalAborted(5).kind(), "journal-aborted");
    }
}
