//! A mount that only one program and its children see.
//!
//! Two processes make it. The first enters namespaces of its own ([`enter`]) and becomes the
//! program ([`Entered::wait`], then execve). The second starts the first, with a socket of
//! [`sockets`] as its standard input, and serves the mount
//! ([`Mount::in_namespace`](crate::Mount::in_namespace)). So the serving process is outside the
//! namespaces, and no process in them has the descriptor of /dev/fuse.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use crate::options::Options;
use crate::session::{SessionError, namespace, pass};

/// Returns a pair of connected sockets, which programs do not inherit.
///
/// # Errors
/// The system's error, if no descriptor is left.
pub fn sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    pass::sockets()
}

/// A process that sees a mount which is not served yet.
#[derive(Debug)]
pub struct Entered<S> {
    socket: S,
}

/// Moves this process, which must have one thread, into namespaces of its own. Mounts at `dir`
/// there, and passes the mount's descriptor over `socket`.
///
/// # Errors
/// Fails if something is not permitted here, with advice for the user.
pub fn enter<S: AsFd>(
    dir: &Path,
    options: &Options,
    socket: S,
) -> Result<Entered<S>, SessionError> {
    let device = namespace::mount_for_this_process(dir, options)?;
    match pass::send(&socket, device) {
        // The serving process has ended, so there is nothing to wait for, and `wait` returns
        // `None`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        sent => sent?,
    }
    Ok(Entered { socket })
}

impl<S: AsFd> Entered<S> {
    /// Waits until the mount answers, which [`begin`] reports. Returns `None` if it never will.
    ///
    /// # Errors
    /// The socket's error.
    pub fn wait(self) -> io::Result<Option<OwnedFd>> {
        pass::receive(&self.socket)
    }
}

/// Returns the descriptor that [`enter`] passed, for
/// [`Mount::in_namespace`](crate::Mount::in_namespace). Returns `None` if the process has ended,
/// after printing why.
///
/// # Errors
/// The socket's error.
pub fn entered(socket: impl AsFd) -> io::Result<Option<OwnedFd>> {
    pass::receive(socket)
}

/// Tells the process that the mount answers, and passes it `stdin`, which the socket replaced.
///
/// # Errors
/// The socket's error, if the process has ended.
pub fn begin(socket: impl AsFd, stdin: impl AsFd) -> io::Result<()> {
    pass::send(socket, stdin)
}
