//! Errors: damage on the disk, and requests that cannot be fulfilled.

use crate::source::SourceError;

/// What a structure on the disk has wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Defect {
    /// The magic number of a superblock is not ext4's.
    #[error("not an ext4 superblock (wrong magic number)")]
    SuperblockMagic,
    /// The superblock's checksum is wrong.
    #[error("the superblock's checksum is wrong")]
    SuperblockChecksum,
    /// A field of the superblock has a value that cannot be.
    #[error("the superblock's {0} cannot be")]
    SuperblockField(&'static str),
    /// A group descriptor's checksum is wrong.
    #[error("a group descriptor's checksum is wrong")]
    GroupChecksum,
    /// A group descriptor points out of the file system.
    #[error("a group descriptor points out of the file system")]
    GroupPointer,
    /// A block or inode bitmap's checksum is wrong.
    #[error("a bitmap's checksum is wrong")]
    BitmapChecksum,
    /// An inode's checksum is wrong.
    #[error("the inode's checksum is wrong")]
    InodeChecksum,
    /// An inode number that cannot be.
    #[error("an inode number that cannot be")]
    InodeNumber,
    /// A directory entry or handle leads to an inode that is not in use.
    #[error("the inode is not in use, but something leads to it")]
    InodeFree,
    /// A field of an inode has a value that cannot be.
    #[error("the inode's {0} cannot be")]
    InodeField(&'static str),
    /// An extent node's magic number, depth or counts are wrong.
    #[error("an extent node's header cannot be")]
    ExtentHeader,
    /// An extent node's checksum is wrong.
    #[error("an extent node's checksum is wrong")]
    ExtentChecksum,
    /// Extents out of order, overlapping, of length 0, or not where their parent says.
    #[error("extents are out of order or overlap")]
    ExtentOrder,
    /// An extent, or a pointer of a block map, leads out of the file system.
    #[error("a block number leads out of the file system")]
    BlockPointer,
    /// A directory block's checksum is wrong.
    #[error("a directory block's checksum is wrong")]
    DirectoryChecksum,
    /// A directory entry's length or name cannot be.
    #[error("a directory entry cannot be")]
    DirectoryEntry,
    /// A directory's hash tree is malformed.
    #[error("the directory's hash tree is malformed")]
    HashTree,
    /// The checksum of a node of a directory's hash tree is wrong.
    #[error("the checksum of a hash tree node is wrong")]
    HashTreeChecksum,
    /// A symbolic link is too long, or its text is not there.
    #[error("the symbolic link's text is not there")]
    SymbolicLink,
    /// An extended attribute's header, entry or value cannot be.
    #[error("an extended attribute cannot be")]
    Attribute,
    /// The checksum of a block of extended attributes is wrong.
    #[error("the checksum of a block of extended attributes is wrong")]
    AttributeChecksum,
    /// Inline data that are not there, or longer than their room.
    #[error("inline data are not where they should be")]
    InlineData,
    /// The journal's superblock cannot be.
    #[error("the journal's superblock cannot be")]
    JournalSuperblock,
    /// The checksum of the journal's superblock, or of a block in it that recovery needs, is wrong.
    #[error("a checksum in the journal is wrong")]
    JournalChecksum,
    /// A block of the journal cannot be what it says.
    #[error("a block of the journal cannot be what it says")]
    JournalBlock,
    /// The journal says of itself that it was aborted, with this errno.
    #[error("the journal was aborted (errno {0})")]
    JournalAborted(i32),
    /// A structure's block is claimed by something else too.
    #[error("a block belongs to two owners")]
    BlockShared,
    /// Blocks are in use, from this one on, that their bitmap says are free.
    #[error("blocks are in use, and their bitmap says that they are free")]
    BlockUnmarked,
    /// Blocks are marked as in use, from this one on, and nothing uses them.
    #[error("blocks are marked as in use, and nothing uses them")]
    BlockLeaked,
    /// An inode is in use, and its bitmap says that it is free.
    #[error("the inode is in use, and its bitmap says that it is free")]
    InodeUnmarked,
    /// An inode is marked as in use, and is not.
    #[error("the inode is marked as in use, and is not")]
    InodeLeaked,
    /// An inode is in use, and no name leads to it.
    #[error("the inode is in use, and no name leads to it")]
    InodeUnreachable,
    /// An inode has more or fewer names than it says.
    #[error("the inode's link count is wrong")]
    LinkCount,
    /// An inode has more or fewer blocks than it says.
    #[error("the inode's block count is wrong")]
    BlockCount,
    /// A count that a group's descriptor keeps is wrong.
    #[error("the count of {0} is wrong")]
    FreeCount(&'static str),
    /// What lies behind the last bit of a bitmap is not marked as in use.
    #[error("what lies behind the end of a bitmap is not marked as in use")]
    BitmapPadding,
    /// `.` or `..` leads to something else than the directory or its parent.
    #[error("`.` or `..` leads elsewhere")]
    DirectoryParent,
    /// A directory has two names.
    #[error("the directory has two names")]
    DirectoryNames,
    /// A block of attributes has more or fewer inodes than it says.
    #[error("the reference count of a block of attributes is wrong")]
    AttributeReferences,
    /// The list of inodes that are being deleted leads to what cannot be.
    #[error("the list of inodes that are being deleted cannot be")]
    OrphanList,
    /// Inodes are left to be deleted, and nothing says that the file system was not unmounted.
    #[error("inodes are left to be deleted, though nothing says that recovery is needed")]
    OrphansLeft,
    /// A directory has two entries of one name.
    #[error("the directory has two entries of one name")]
    DuplicateName,
    /// The resize inode does not lead to the room behind the group descriptors.
    #[error("the resize inode does not lead to the room for group descriptors")]
    ResizeInode,
    /// A field of a group descriptor has a value that cannot be.
    #[error("the group descriptor's {0} cannot be")]
    GroupField(&'static str),
    /// A quota file's header or tree cannot be.
    #[error("the quota file cannot be what it says")]
    QuotaFile,
    /// A quota file has a wrong usage of a user, group or project.
    #[error("the quota file has somebody's usage wrong")]
    QuotaUsage,
    /// The block of multiple mount protection has not its magic number.
    #[error("the block of multiple mount protection is none (wrong magic number)")]
    MmpMagic,
    /// The checksum of the block of multiple mount protection is wrong.
    #[error("the checksum of the block of multiple mount protection is wrong")]
    MmpChecksum,
    /// A field of the block of multiple mount protection has a value that cannot be.
    #[error("the {0} in the block of multiple mount protection cannot be")]
    MmpField(&'static str),
}

impl Defect {
    /// Its kind in one word for programs: `extent-checksum`.
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

/// A defect, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Corruption {
    /// What is wrong.
    pub defect: Defect,
    /// In which inode, if in one (the journal is inode 8).
    pub ino: Option<u32>,
    /// In which block of the file system (or group, for a defect of a descriptor), if it is known.
    pub block: Option<u64>,
}

impl Corruption {
    /// `defect`, not located yet.
    pub const fn new(defect: Defect) -> Self {
        Self { defect, ino: None, block: None }
    }

    /// `defect` in inode `ino`, and in `block` if it is known.
    pub(crate) const fn at(defect: Defect, ino: u32, block: Option<u64>) -> Self {
        Self { defect, ino: Some(ino), block }
    }

    /// In inode `ino`, unless one is named already.
    #[must_use]
    pub fn in_inode(mut self, ino: u32) -> Self {
        self.ino.get_or_insert(ino);
        self
    }

    /// In block `block`, unless one is named already.
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

/// What this implementation does not do, by name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {advice}")]
pub struct Unsupported {
    /// The feature's or flag's name, as `dumpe2fs` or `lsattr` has it.
    pub what: String,
    /// What would help.
    pub advice: &'static str,
}

/// Why something could not be read or looked up.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No such file or directory.
    #[error("no such file or directory")]
    NotFound,
    /// A part of the path that should be a directory is none.
    #[error("not a directory")]
    NotDirectory,
    /// Too many symbolic links, or one that leads to itself.
    #[error("too many symbolic links")]
    Loop,
    /// A name of more than 255 bytes, or a path of more than 4,095.
    #[error("the name is too long")]
    NameTooLong,
    /// An argument that makes no sense.
    #[error("{0}")]
    Invalid(&'static str),
    /// The disk says what cannot be.
    #[error("the file system is damaged: {0}")]
    Corrupt(#[from] Corruption),
    /// Something that is not supported.
    #[error("not supported: {0}")]
    Unsupported(#[from] Unsupported),
    /// The source has no bytes.
    #[error(transparent)]
    Source(SourceError),
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
