//! Errnos, for callers that speak C: the errno for each error of this crate. `meantime-ext4` has
//! its own.

use std::error::Error as StdError;
use std::ffi::c_int;
use std::fmt;

use meantime_hw::HwError;
use meantime_nvme::{self as nvme, CommandError};
use meantime_nvme_spec::status::StatusCode;

use crate::{ChannelError, IoError, IoErrorKind, OpenError, RequestError, SubmitError};

/// A positive errno, one of `libc`'s constants.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub c_int);

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({}: {})", self.0, std::io::Error::from_raw_os_error(self.0))
    }
}

impl From<Errno> for c_int {
    fn from(Errno(errno): Errno) -> Self {
        errno
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
            // fsync(2) reports lost writes in this way.
            IoErrorKind::Command(CommandError::CacheLost) => libc::EIO,
            IoErrorKind::Command(CommandError::TimedOut) => libc::ETIMEDOUT,
            IoErrorKind::Command(CommandError::Reset) => libc::ECANCELED,
            IoErrorKind::Command(CommandError::Gone { .. }) => libc::ENODEV,
            IoErrorKind::EndOfFile | IoErrorKind::Unfused => libc::EIO,
            // This is not a failure: a caller that compares must be able to distinguish it.
            IoErrorKind::Miscompare => libc::EILSEQ,
            IoErrorKind::Os(errno) if i32::from(errno) == libc::EINVAL => libc::EIO,
            IoErrorKind::Os(errno) => errno.into(),
        })
    }
}

/// With the kind of its errno.
impl From<RequestError> for std::io::Error {
    fn from(error: RequestError) -> Self {
        let Errno(errno) = Errno::from(&error);
        Self::new(Self::from_raw_os_error(errno).kind(), error)
    }
}

impl From<&RequestError> for Errno {
    fn from(error: &RequestError) -> Self {
        match error {
            RequestError::Refused(error) => Self::from(error),
            RequestError::Failed(error) => Self::from(error),
            RequestError::Memory(_) => Self(libc::ENOMEM),
            RequestError::Quarantined => Self(libc::ENODEV),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errno_is_shown_with_its_text() {
        assert_eq!(
            format!("{:?}", Errno(libc::ENOENT)),
            "Errno(2: No such file or directory (os error 2))"
        );
    }

    #[test]
    fn an_error_of_the_standard_library_has_the_kind_and_the_text() {
        let error = std::io::Error::from(RequestError::Memory("no more".to_owned()));
        assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory);
        assert_eq!(error.to_string(), "no memory for the data: no more");
    }
}
