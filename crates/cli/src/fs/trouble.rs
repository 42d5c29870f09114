//! Why something was not copied.

use meantime_ext4::Error;
use rustix::io::Errno;

/// On which side of a copy it was.
pub(super) enum Trouble {
    /// An error of the file system on the device.
    Inside(Error),
    /// An error of a file system in the kernel.
    Outside(std::io::Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Inside(error)
    }
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        Self::Outside(error)
    }
}

impl From<Errno> for Trouble {
    fn from(errno: Errno) -> Self {
        Self::Outside(errno.into())
    }
}
