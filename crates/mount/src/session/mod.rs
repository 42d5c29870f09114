//! A connection with the kernel: /dev/fuse, the mount, and the first request, in which both sides
//! agree on features.

mod clone;
pub(crate) mod fusermount;
mod init;
mod kernel;
pub(crate) mod namespace;
pub(crate) mod pass;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

pub(crate) use clone::clone_device;
pub(crate) use init::agree;

use crate::options::Options;

/// Largest read or write of one request: 256 pages, the kernel's default limit
/// (`fs.fuse.max_pages_limit`).
pub(crate) const PIECE_BYTES: usize = 1 << 20;

/// What reads files where nothing can be mounted: for the end of a message.
pub const UNMOUNTED: &str = "without a mount, `meantime fs get` and `meantime fs cat` read files, \
                             and so does Python's file system (fsspec)";

/// Why there is no mount.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The directory cannot be used.
    #[error("{dir}: {why}")]
    Directory {
        /// The directory.
        dir: PathBuf,
        /// What is wrong with it, with advice.
        why: String,
    },
    /// The kernel's FUSE cannot be reached.
    #[error("{0}")]
    NoFuse(String),
    /// The kernel refused the mount.
    #[error("mounting at {dir}: {why}")]
    Refused {
        /// The mount's directory.
        dir: PathBuf,
        /// Why, with advice.
        why: String,
    },
    /// Kernel and server have no version of the protocol in common.
    #[error("{0}")]
    Protocol(String),
    /// The system has no thread or descriptor left.
    #[error("starting to serve the mount: {0}")]
    Start(#[from] io::Error),
}

/// Checks whether `dir` can be mounted at. Returns its absolute path.
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

/// Says why a place cannot be mounted at which the system cannot look at.
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

/// Ends the mount at `dir`; with `by_force` also if it is in use: its users get errors from now on.
pub(crate) fn unmount(dir: &Path, by_force: bool) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        kernel::unmount(dir, by_force)
    } else {
        fusermount::unmount(dir, by_force)
    }
}
