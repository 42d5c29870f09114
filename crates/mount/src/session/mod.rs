//! A connection with the kernel: /dev/fuse, the mount, and the first request, in which both sides
//! agree on features.

mod clone;
mod error;
pub(crate) mod fusermount;
mod init;
mod kernel;
pub(crate) mod namespace;
pub(crate) mod pass;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

pub(crate) use clone::clone_device;
pub use error::{SessionError, UNMOUNTED};
pub(crate) use init::{PIECE_BYTES, agree};

use crate::options::Options;

/// Checks whether a file system can be mounted at `dir`. Returns its absolute path.
pub(crate) fn check_directory(dir: &Path, nonempty: bool) -> Result<PathBuf, SessionError> {
    let failed = |why: &str| SessionError::Directory { dir: dir.to_owned(), why: why.to_owned() };
    let unusable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => failed("there is no such directory; make it first (mkdir)"),
        _ => failed(&why_unusable(&error)),
    };
    let path = dir.canonicalize().map_err(unusable)?;
    if !path.metadata().map_err(unusable)?.is_dir() {
        return Err(failed("it is not a directory"));
    }
    let mut names = std::fs::read_dir(&path).map_err(unusable)?;
    if !nonempty && names.next().is_some() {
        return Err(failed(
            "the directory is not empty, and what is in it would be out of sight; \
             -o nonempty mounts there all the same",
        ));
    }
    Ok(path)
}

/// Returns why a place that the system cannot examine cannot be mounted at.
fn why_unusable(error: &io::Error) -> String {
    if error.raw_os_error() != Some(libc::ENOTCONN) {
        return error.to_string();
    }
    "a mount is there whose server has ended (it was killed): remove it with `umount -l`, or by \
     `meantime mount --repair`"
        .to_owned()
}

/// Mounts at `dir`. Returns the descriptor from which requests are read.
pub(crate) fn mount(dir: &Path, options: &Options) -> Result<OwnedFd, SessionError> {
    if rustix::process::geteuid().is_root() {
        kernel::mount(dir, options)
    } else {
        fusermount::mount(dir, options)
    }
}

/// Ends the mount at `dir`. With `by_force` it also ends a mount in use, whose users get errors
/// from now on.
pub(crate) fn unmount(dir: &Path, by_force: bool) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        kernel::unmount(dir, by_force)
    } else {
        fusermount::unmount(dir, by_force)
    }
}
