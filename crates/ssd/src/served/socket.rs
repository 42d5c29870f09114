//! The socket that clients connect to.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// The maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 64;

/// The processes that may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// Permissions of the socket. Connecting requires write permission.
    pub mode: u32,
    /// Its owner, by number, or `None` for the process's user.
    pub uid: Option<u32>,
    /// Its group, by number, or `None` for the process's group.
    pub gid: Option<u32>,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self { mode: 0o600, uid: None, gid: None }
    }
}

/// The reason why the socket could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// Another process serves at the path.
    #[error(
        "{}: another process serves there already; end that process, or give another path",
        path.display()
    )]
    Taken {
        /// The path.
        path: PathBuf,
    },
    /// The path is not a socket.
    #[error(
        "{}: there is something that is no socket; remove it, or give another path",
        path.display()
    )]
    NoSocket {
        /// The path.
        path: PathBuf,
    },
    /// The path is not valid for a socket.
    #[error("{}: {what}", path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// What is wrong with it, and which paths are valid.
        what: &'static str,
    },
    /// A system call failed.
    #[error("{}: {attempted}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// What was attempted.
        attempted: &'static str,
        /// The cause.
        source: io::Error,
    },
}

/// A listening socket. Dropping it removes its file.
#[derive(Debug)]
pub struct Socket {
    listener: OwnedFd,
    path: PathBuf,
    /// Device and inode, to check that the file at `path` is still this socket.
    identity: (u64, u64),
}

impl Socket {
    /// Binds a socket at `path`. A socket left over from a dead process is replaced.
    ///
    /// # Errors
    /// [`SocketError`] if another server is there, the path is not a socket, or the system refuses.
    pub fn bind(path: &Path, options: &SocketOptions) -> Result<Self, SocketError> {
        let io = |attempted| {
            move |source: io::Error| SocketError::Io { path: path.to_owned(), attempted, source }
        };
        let address = SocketAddrUnix::new(path).map_err(|_| SocketError::Path {
            path: path.to_owned(),
            what: "is too long for a socket; 107 bytes are the most",
        })?;
        match fs::symlink_metadata(path) {
            Ok(meta) if meta.file_type().is_socket() => {
                if !is_stale(path) {
                    return Err(SocketError::Taken { path: path.to_owned() });
                }
                fs::remove_file(path)
                    .map_err(io("removing the socket of a process that has ended"))?;
            }
            Ok(_) => return Err(SocketError::NoSocket { path: path.to_owned() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io("looking for the socket")(error)),
        }
        let listener = stream().map_err(|error| io("making a socket")(error.into()))?;
        rustix::net::bind(&listener, &address).map_err(|error| match error {
            // Another process was faster.
            Errno::ADDRINUSE => SocketError::Taken { path: path.to_owned() },
            error => io("making the socket")(error.into()),
        })?;
        let meta = fs::symlink_metadata(path).map_err(io("looking at the socket"))?;
        let socket = Self { listener, path: path.to_owned(), identity: (meta.dev(), meta.ino()) };
        // No process can connect before the socket listens, so its mode applies to all of them.
        fs::set_permissions(path, fs::Permissions::from_mode(options.mode & 0o777))
            .map_err(io("setting the socket's mode"))?;
        if options.uid.is_some() || options.gid.is_some() {
            chown(path, options.uid, options.gid).map_err(io("giving the socket to its owner"))?;
        }
        rustix::net::listen(&socket.listener, BACKLOG)
            .map_err(|error| io("listening on the socket")(error.into()))?;
        Ok(socket)
    }

    /// Returns its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Returns the descriptor that listens.
impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let is_ours = |meta: fs::Metadata| (meta.dev(), meta.ino()) == self.identity;
        if fs::symlink_metadata(&self.path).is_ok_and(is_ours) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns whether no process listens on the socket at `path`. A busy one is not stale.
fn is_stale(path: &Path) -> bool {
    let connected =
        SocketAddrUnix::new(path).and_then(|address| rustix::net::connect(&stream()?, &address));
    matches!(connected, Err(Errno::CONNREFUSED | Errno::NOENT))
}

fn stream() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_stale_socket_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ssd.sock");
        let options = SocketOptions::default();
        let socket = Socket::bind(&path, &options).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(matches!(Socket::bind(&path, &options), Err(SocketError::Taken { .. })));
        drop(socket);
        assert!(!path.exists());
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let socket = Socket::bind(&path, &SocketOptions { mode: 0o660, ..options }).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o660);
        // Another process has put something else in its place.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "notes").unwrap();
        drop(socket);
        assert_eq!(fs::read_to_string(&path).unwrap(), "notes");
        assert!(matches!(Socket::bind(&path, &options), Err(SocketError::NoSocket { .. })));
        let long = dir.path().join("x".repeat(120));
        assert!(Socket::bind(&long, &options).unwrap_err().to_string().contains("107"));
        let nowhere = dir.path().join("no/such/ssd.sock");
        assert!(matches!(Socket::bind(&nowhere, &options), Err(SocketError::Io { .. })));
    }
}
