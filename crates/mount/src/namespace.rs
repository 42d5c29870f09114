//! A mount for one program and those that it starts, which nobody else sees.
//!
//! Two processes make it. One goes into namespaces of its own ([`enter`]), and becomes the program
//! ([`Entered::wait`], then execve). The other has started it, with a socket of [`sockets`] as its
//! standard input, and serves the mount ([`Mount::in_namespace`](crate::Mount::in_namespace)). So the process
//! that serves is not in the namespaces, and no process in them has the descriptor of /dev/fuse.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use crate::options::Options;
use crate::session::{SessionError, namespace, pass};

/// Two sockets, each the other's end; neither is inherited by programs.
///
/// # Errors
/// The system's: no descriptor is left.
pub fn sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    pass::sockets()
}

/// This process sees a mount that nobody serves yet.
#[derive(Debug)]
pub struct Entered<S> {
    socket: S,
}

/// Puts this process, which must have one thread, into namespaces of its own. Mounts at `dir` there,
/// and passes the mount's descriptor over `socket`.
///
/// # Errors
/// For people: what is not permitted here, and what would help.
pub fn enter<S: AsFd>(
    dir: &Path,
    options: &Options,
    socket: S,
) -> Result<Entered<S>, SessionError> {
    let device = namespace::mount_for_this_process(dir, options)?;
    match pass::send(&socket, device) {
        // Who would serve it has ended: then there is nothing to wait for, which `wait` says.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        sent => sent?,
    }
    Ok(Entered { socket })
}

impl<S: AsFd> Entered<S> {
    /// Waits until the mount answers: what [`begin`] sends. `None` if it never will.
    ///
    /// # Errors
    /// The socket's.
    pub fn wait(self) -> io::Result<Option<OwnedFd>> {
        pass::receive(&self.socket)
    }
}

/// The descriptor that [`enter`] has passed: for [`Mount::in_namespace`](crate::Mount::in_namespace). `None`:
/// the process has ended, and has said why.
///
/// # Errors
/// The socket's.
pub fn entered(socket: impl AsFd) -> io::Result<Option<OwnedFd>> {
    pass::receive(socket)
}

/// Tells the process that the mount answers. It gets `stdin`, which had to give way to the socket.
///
/// # Errors
/// The socket's: the process has ended.
pub fn begin(socket: impl AsFd, stdin: impl AsFd) -> io::Result<()> {
    pass::send(socket, stdin)
}
