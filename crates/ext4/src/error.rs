//! Errors of a file system.

use meantime_block::{IoError, RequestError};
use meantime_ext4_format::{self as format, OpenFailure, SourceError};

pub use meantime_ext4_format::{Corruption, Defect, Unsupported};

/// Why an operation on a file failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No such file or directory (ENOENT).
    #[error("no such file or directory")]
    NotFound,
    /// A part of the path that must be a directory is not one (ENOTDIR).
    #[error("not a directory")]
    NotDirectory,
    /// A directory where a file is needed (EISDIR).
    #[error("is a directory")]
    IsDirectory,
    /// A device, socket or pipe, which has no content here (ENXIO).
    #[error("a device, socket or pipe has no content in the file system")]
    Special,
    /// Too many symbolic links, or a loop of links (ELOOP).
    #[error("too many symbolic links")]
    Loop,
    /// A name of more than 255 bytes, or a path of more than 4,095 (ENAMETOOLONG).
    #[error("the name is too long")]
    NameTooLong,
    /// An invalid argument (EINVAL).
    #[error("{0}")]
    Invalid(&'static str),
    /// The file system is read only (EROFS).
    #[error("the file system is mounted read only")]
    ReadOnly,
    /// The file has no such attribute (ENODATA).
    #[error("no such attribute")]
    NoAttribute,
    /// The disk contains impossible data (EUCLEAN; EIO if file data cannot be read because of it).
    #[error("the file system is damaged: {0}")]
    Corrupt(#[from] Corruption),
    /// An unsupported feature or operation (EOPNOTSUPP).
    #[error("not supported: {0}")]
    Unsupported(#[from] Unsupported),
    /// The device failed (EIO).
    #[error(transparent)]
    Io(#[from] RequestError),
    /// No memory or no queue is left (ENOMEM).
    #[error("no memory or queue for it: {0}")]
    Resources(String),
    /// No block or inode is free, or the free blocks are reserved for root (ENOSPC).
    #[error("no space left on the file system")]
    NoSpace,
    /// The name or the attribute exists already (EEXIST).
    #[error("it exists already")]
    Exists,
    /// The directory is not empty (ENOTEMPTY).
    #[error("the directory is not empty")]
    NotEmpty,
    /// The inode has the maximum number of links (EMLINK).
    #[error("too many links")]
    TooManyLinks,
    /// Beyond the maximum size of this kind of file (EFBIG).
    #[error("the file would be too large")]
    FileTooBig,
    /// It is in use (EBUSY).
    #[error("it is in use")]
    Busy,
    /// The inode must not be changed: immutable, append-only, or the like (EPERM).
    #[error("the operation is not permitted")]
    NotPermitted,
    /// A change could not be made durable; the file system is read only since then (EROFS).
    #[error("the journal was aborted after an error: the file system is read only")]
    Aborted,
    /// Another host may have the file system mounted (feature `mmp`); it is read only since that
    /// was detected (EROFS).
    #[error("multiple mount protection: {0}: the file system is read only")]
    Taken(String),
    /// A name or value is too long for its place (ERANGE).
    #[error("too long for its place")]
    Range,
    /// An attribute value of more than 64 KiB (E2BIG).
    #[error("the attribute's value is too long")]
    TooBig,
    /// The inode was deleted; its number may be in use again (ESTALE).
    #[error("the file is no more: stale handle")]
    Stale,
    /// Source and destination are on different file systems or projects (EXDEV).
    #[error("on another file system")]
    CrossDevice,
}

impl Error {
    /// Returns the code that Linux stores in the superblock for this error (`EXT4_ERR_*`).
    pub(super) fn noted_code(&self) -> u8 {
        match self {
            Self::Io(_) => 2,
            Self::Resources(_) => 3,
            Self::Corrupt(corruption) => match corruption.defect {
                Defect::SuperblockChecksum
                | Defect::GroupChecksum
                | Defect::BitmapChecksum
                | Defect::InodeChecksum
                | Defect::ExtentChecksum
                | Defect::DirectoryChecksum
                | Defect::HashTreeChecksum
                | Defect::AttributeChecksum
                | Defect::JournalChecksum
                | Defect::MmpChecksum => 4,
                _ => 5,
            },
            Self::NoSpace => 6,
            _ => 1,
        }
    }

    /// Wraps a failure of the device.
    pub(super) fn from_io(error: IoError) -> Self {
        Self::Io(error.into())
    }
}

impl From<format::Error> for Error {
    fn from(error: format::Error) -> Self {
        match error {
            format::Error::NotFound => Self::NotFound,
            format::Error::NotDirectory => Self::NotDirectory,
            format::Error::Loop => Self::Loop,
            format::Error::NameTooLong => Self::NameTooLong,
            format::Error::Invalid(what) => Self::Invalid(what),
            format::Error::Corrupt(corruption) => Self::Corrupt(corruption),
            format::Error::Unsupported(unsupported) => Self::Unsupported(unsupported),
            format::Error::Source(error) => error.into(),
            error => Self::Resources(error.to_string()),
        }
    }
}

impl From<SourceError> for Error {
    fn from(error: SourceError) -> Self {
        match error {
            // Pointers are checked against the file system's size, and that against the device's.
            SourceError::OutOfRange => Self::Corrupt(Corruption::new(Defect::BlockPointer)),
            SourceError::Io(failure) => match failure.downcast_ref::<RequestError>() {
                Some(error) => Self::Io(error.clone()),
                None => Self::Resources(failure.to_string()),
            },
            SourceError::Resources(what) => Self::Resources(what),
        }
    }
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        use std::io::ErrorKind;
        let kind = match &error {
            Error::NotFound => ErrorKind::NotFound,
            Error::NotDirectory => ErrorKind::NotADirectory,
            Error::IsDirectory => ErrorKind::IsADirectory,
            Error::Invalid(_) | Error::NameTooLong => ErrorKind::InvalidInput,
            Error::ReadOnly => ErrorKind::ReadOnlyFilesystem,
            Error::Unsupported(_) => ErrorKind::Unsupported,
            Error::Corrupt(_) => ErrorKind::InvalidData,
            Error::Resources(_) => ErrorKind::OutOfMemory,
            Error::NoSpace => ErrorKind::StorageFull,
            Error::Exists => ErrorKind::AlreadyExists,
            Error::NotEmpty => ErrorKind::DirectoryNotEmpty,
            Error::TooManyLinks => ErrorKind::TooManyLinks,
            Error::FileTooBig => ErrorKind::FileTooLarge,
            Error::Busy => ErrorKind::ResourceBusy,
            Error::NotPermitted => ErrorKind::PermissionDenied,
            Error::Aborted | Error::Taken(_) => ErrorKind::ReadOnlyFilesystem,
            Error::Stale => ErrorKind::StaleNetworkFileHandle,
            Error::CrossDevice => ErrorKind::CrossesDevices,
            Error::Special
            | Error::Loop
            | Error::NoAttribute
            | Error::Io(_)
            | Error::Range
            | Error::TooBig => ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// The result of an operation on a file.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a file system could not be mounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The device has no ext4 file system.
    #[error("{uri} holds no ext4 file system: {why}")]
    NotExt4 {
        /// The device.
        uri: String,
        /// What was found instead, if known.
        why: String,
    },
    /// The primary superblock is damaged, and an intact backup exists.
    #[error("{uri}: {corruption}; a backup at block {block} is intact: try --superblock {block}")]
    Backup {
        /// The device.
        uri: String,
        /// The defect of the primary superblock.
        corruption: Corruption,
        /// The block of an intact backup, in blocks of the file system.
        block: u64,
    },
    /// The device is smaller than its file system.
    #[error(
        "{uri} has {device_bytes} bytes, its file system {fs_bytes}: the image was cut off, or the partition is too small"
    )]
    TooSmall {
        /// The device.
        uri: String,
        /// The size of the device, in bytes.
        device_bytes: u64,
        /// The size of the file system, in bytes.
        fs_bytes: u64,
    },
    /// A feature that this implementation does not support.
    #[error("{uri}: {unsupported}")]
    Unsupported {
        /// The device.
        uri: String,
        /// The feature.
        unsupported: Unsupported,
    },
    /// A mount for writing was requested, and the kernel has the device mounted or in use.
    #[error("{uri} cannot be written: {who}")]
    InUse {
        /// The device.
        uri: String,
        /// What uses the device and what would help, for a person to read.
        who: String,
    },
    /// A mount for writing was requested, and the device cannot be written.
    #[error("{uri} cannot be written: {why}")]
    ReadOnly {
        /// The device.
        uri: String,
        /// The reason, for a person to read.
        why: String,
    },
    /// A mount for writing was requested, and multiple mount protection marks the file system as in
    /// use by another host.
    #[error("{uri}: {who}: {advice}")]
    Protected {
        /// The device.
        uri: String,
        /// The host and the time of its last update, for a person to read.
        who: String,
        /// What would help.
        advice: &'static str,
    },
    /// An invalid value of an option.
    #[error("{0}")]
    Option(String),
    /// The device failed, or the metadata read by the mount are damaged.
    #[error("{uri}: {error}")]
    Failed {
        /// The device.
        uri: String,
        /// The reason.
        error: Error,
    },
}

/// Why a mount failed, without the device's name.
#[derive(Debug)]
pub(crate) enum MountFailure {
    /// The volume could not be opened.
    Open(OpenFailure),
    /// A later step failed.
    Failed(Error),
}

macro_rules! from_open_failure {
    ($($kind:ty),*) => {
        $(impl From<$kind> for MountFailure {
            fn from(failure: $kind) -> Self {
                Self::Open(failure.into())
            }
        })*
    };
}

from_open_failure!(OpenFailure, Corruption, format::Error);

impl From<Error> for MountFailure {
    fn from(error: Error) -> Self {
        match error {
            Error::Unsupported(unsupported) => Self::Open(OpenFailure::Unsupported(unsupported)),
            error => Self::Failed(error),
        }
    }
}

impl MountError {
    /// Describes `failure` of the device `uri`, which has `device_bytes` bytes.
    pub fn of_device(failure: OpenFailure, uri: &str, device_bytes: u64) -> Self {
        let uri = uri.to_owned();
        match failure {
            OpenFailure::NotExt4(why) => Self::NotExt4 { uri, why },
            OpenFailure::Backup { corruption, block } => Self::Backup { uri, corruption, block },
            OpenFailure::TooSmall { fs_bytes } => Self::TooSmall { uri, device_bytes, fs_bytes },
            OpenFailure::Unsupported(unsupported) => Self::Unsupported { uri, unsupported },
            OpenFailure::Failed(error) => Self::Failed { uri, error: error.into() },
        }
    }

    /// Describes `failure` of a mount of the device `uri`, which has `device_bytes` bytes.
    pub(crate) fn new(failure: impl Into<MountFailure>, uri: &str, device_bytes: u64) -> Self {
        match failure.into() {
            MountFailure::Open(failure) => Self::of_device(failure, uri, device_bytes),
            MountFailure::Failed(error) => Self::Failed { uri: uri.to_owned(), error },
        }
    }
}
