//! Errnos: the only place that maps the library's errors to errno.

use std::error::Error as StdError;
use std::ffi::c_int;
use std::fmt;

use meantime_block::{ChannelError, IoError, IoErrorKind, OpenError, RequestError, SubmitError};
use meantime_ext4::{Error, MountError};
use meantime_hw::HwError;
use meantime_nvme::{self as nvme, CommandError};
use meantime_spec::status::StatusCode;

/// An errno: positive, and one of `libc`'s constants.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub c_int);

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({}: {})", self.0, std::io::Error::from_raw_os_error(self.0))
    }
}

impl Errno {
    /// For file data: damaged data cannot be read (EIO); otherwise as for names.
    pub fn of_data(error: &Error) -> Self {
        match error {
            Error::Corrupt(_) => Self(libc::EIO),
            _ => Self::from(error),
        }
    }
}

impl From<Errno> for c_int {
    fn from(Errno(errno): Errno) -> Self {
        errno
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
            Error::WouldBlock => libc::EAGAIN,
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
            // A kind that this table does not know.
            _ => libc::EIO,
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

/// The kernel's errno, if the error came from the kernel.
fn of_kernel(error: &(dyn StdError + 'static)) -> Option<c_int> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return io.raw_os_error();
        }
        next = error.source();
    }
    None
}

impl From<&OpenError> for Errno {
    fn from(error: &OpenError) -> Self {
        match error {
            OpenError::Nvme(error) => Self::from(error),
            _ => Self(of_kernel(error).unwrap_or(libc::EINVAL)),
        }
    }
}

impl From<&ChannelError> for Errno {
    fn from(error: &ChannelError) -> Self {
        match error {
            ChannelError::Nvme(error) => Self::from(error),
            ChannelError::Hw(error) => Self::from(error),
            ChannelError::Depth { .. } => Self(libc::EINVAL),
            ChannelError::Policy { .. } => Self(libc::EOPNOTSUPP),
            ChannelError::Kernel { .. } => Self(match of_kernel(error) {
                // The request was valid, but the kernel does not support it.
                Some(libc::EINVAL | libc::ENOSYS) => libc::EOPNOTSUPP,
                errno => errno.unwrap_or(libc::EIO),
            }),
            _ => Self(libc::EIO),
        }
    }
}

impl From<&nvme::Error> for Errno {
    fn from(error: &nvme::Error) -> Self {
        Self(match error {
            nvme::Error::Hw(error) => return Self::from(error),
            nvme::Error::NotReady { .. } | nvme::Error::AdminTimeout { .. } => libc::ETIMEDOUT,
            nvme::Error::Gone | nvme::Error::Connection(_) => libc::ENODEV,
            nvme::Error::Unsupported(_) => libc::EOPNOTSUPP,
            nvme::Error::NoNamespace { .. } => libc::EINVAL,
            nvme::Error::Driven(_) | nvme::Error::NoQueue { .. } | nvme::Error::NoVector { .. } => {
                libc::EBUSY
            }
            _ => libc::EIO,
        })
    }
}

impl From<&HwError> for Errno {
    fn from(error: &HwError) -> Self {
        Self(match error {
            HwError::Map { .. } | HwError::Lock { .. } | HwError::DmaMap { .. } => libc::ENOMEM,
            HwError::TooLarge { .. } => libc::EINVAL,
            HwError::Missing { .. } => libc::EOPNOTSUPP,
            HwError::Unresponsive => libc::ETIMEDOUT,
            HwError::Gone => libc::ENODEV,
            _ => of_kernel(error).unwrap_or(libc::EIO),
        })
    }
}

/// A refused request.
impl From<&SubmitError> for Errno {
    fn from(error: &SubmitError) -> Self {
        Self(match error {
            SubmitError::Full { .. } => libc::EAGAIN,
            SubmitError::Unsupported(_)
            | SubmitError::NoInterrupt
            | SubmitError::CannotWait { .. } => libc::EOPNOTSUPP,
            SubmitError::ReadOnly(_) => libc::EROFS,
            SubmitError::Lost(_) => libc::ENODEV,
            _ => libc::EINVAL,
        })
    }
}

/// A failed request. Never EINVAL, which is for calls without effect.
impl From<&IoError> for Errno {
    #[cold]
    #[inline(never)]
    fn from(error: &IoError) -> Self {
        Self(match error.kind {
            IoErrorKind::Command(CommandError::Status(status)) => match status.code() {
                Ok(StatusCode::CapacityExceeded) => libc::ENOSPC,
                Ok(StatusCode::NamespaceIsWriteProtected) => libc::EROFS,
                _ => libc::EIO,
            },
            // As fsync(2) reports lost writes.
            IoErrorKind::Command(CommandError::CacheLost) => libc::EIO,
            IoErrorKind::Command(CommandError::TimedOut) => libc::ETIMEDOUT,
            IoErrorKind::Command(CommandError::Reset) => libc::ECANCELED,
            IoErrorKind::Command(CommandError::Gone { .. }) => libc::ENODEV,
            IoErrorKind::EndOfFile | IoErrorKind::Unfused => libc::EIO,
            // Not a failure: a caller that compares must be able to distinguish it.
            IoErrorKind::Miscompare => libc::EILSEQ,
            IoErrorKind::Os(errno) if i32::from(errno) == libc::EINVAL => libc::EIO,
            IoErrorKind::Os(errno) => errno.into(),
        })
    }
}

impl From<&RequestError> for Errno {
    fn from(error: &RequestError) -> Self {
        match error {
            RequestError::Rejected(error) => Self::from(error),
            RequestError::Failed(error) => Self::from(error),
            RequestError::Quarantined => Self(libc::ENODEV),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meantime_ext4::{Corruption, Defect};

    #[test]
    fn damaged_data_and_damaged_names_have_different_errnos() {
        let damaged = Error::Corrupt(Corruption::new(Defect::ExtentHeader));
        assert_eq!(Errno::from(&damaged), Errno(libc::EUCLEAN));
        assert_eq!(Errno::of_data(&damaged), Errno(libc::EIO));
        assert_eq!(Errno::of_data(&Error::WouldBlock), Errno(libc::EAGAIN));
        assert_eq!(
            format!("{:?}", Errno(libc::ENOENT)),
            "Errno(2: No such file or directory (os error 2))"
        );
    }
}
