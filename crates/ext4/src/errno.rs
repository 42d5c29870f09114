//! Converts errors of the file system to errno values.

use meantime_block::Errno;

use crate::{Error, MountError};

impl Error {
    /// Returns the errno of this error where it concerns file data. Damaged data cannot be read
    /// (EIO); other errors have the same errno as for names.
    pub fn errno_of_data(&self) -> Errno {
        match self {
            Self::Corrupt(_) => Errno(libc::EIO),
            _ => Errno::from(self),
        }
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Self {
        Self::from(&error)
    }
}

impl From<&Error> for Errno {
    fn from(error: &Error) -> Self {
        Self(match error {
            Error::NotFound => libc::ENOENT,
            Error::NotDirectory => libc::ENOTDIR,
            Error::IsDirectory => libc::EISDIR,
            Error::Special => libc::ENXIO,
            Error::Loop => libc::ELOOP,
            Error::NameTooLong => libc::ENAMETOOLONG,
            Error::Invalid(_) => libc::EINVAL,
            Error::ReadOnly => libc::EROFS,
            Error::NoAttribute => libc::ENODATA,
            Error::Corrupt(_) => libc::EUCLEAN,
            Error::Unsupported(_) => libc::EOPNOTSUPP,
            // A program gets no details of the device below a file system.
            Error::Io(_) => libc::EIO,
            Error::Resources(_) => libc::ENOMEM,
            Error::NoSpace => libc::ENOSPC,
            Error::Exists => libc::EEXIST,
            Error::NotEmpty => libc::ENOTEMPTY,
            Error::TooManyLinks => libc::EMLINK,
            Error::FileTooBig => libc::EFBIG,
            Error::Busy => libc::EBUSY,
            Error::NotPermitted => libc::EPERM,
            Error::Aborted | Error::Taken(_) => libc::EROFS,
            Error::Range => libc::ERANGE,
            Error::TooBig => libc::E2BIG,
            Error::Stale => libc::ESTALE,
            Error::CrossDevice => libc::EXDEV,
        })
    }
}

impl From<&MountError> for Errno {
    fn from(error: &MountError) -> Self {
        match error {
            MountError::Failed { error, .. } => Self::from(error),
            MountError::Unsupported { .. } => Self(libc::EOPNOTSUPP),
            MountError::Backup { .. } => Self(libc::EUCLEAN),
            MountError::InUse { .. } | MountError::Protected { .. } => Self(libc::EBUSY),
            MountError::ReadOnly { .. } => Self(libc::EROFS),
            _ => Self(libc::EINVAL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Corruption, Defect};

    #[test]
    fn damaged_data_and_damaged_names_have_different_errnos() {
        let damaged = Error::Corrupt(Corruption::new(Defect::ExtentHeader));
        assert_eq!(Errno::from(&damaged), Errno(libc::EUCLEAN));
        assert_eq!(damaged.errno_of_data(), Errno(libc::EIO));
    }
}
