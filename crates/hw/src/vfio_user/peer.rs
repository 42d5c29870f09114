//! Whether the server's process has ended.
//!
//! A server maps our memory, and closing the socket does not unmap it: a hanging server may write
//! to buffers whenever it resumes. Memory may be reused when the server has answered DMA_UNMAP, or
//! has ended. A pidfd reports the end: it becomes readable when the last thread of the process is
//! gone, and threads release their memory before that.
//!
//! The kernel names the process that called `listen`, which may have forked the one that serves. So
//! the other side must also have closed the connection, which shows that no process has it open.
//! One case is not detected: a serving process that closes the connection, keeps the memory and
//! outlives its parent.

#![expect(unsafe_code)]

use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};

use crate::kernel_time::timespec;

/// The peer process.
#[derive(Debug)]
pub(super) struct Peer(Option<OwnedFd>);

impl Peer {
    /// The process that listened on the socket to which `socket` is connected.
    pub(super) fn of(socket: BorrowedFd<'_>) -> Self {
        // A process that has ended already is not the server.
        let pidfd = pidfd_of(socket).filter(|pidfd| !has_ended(pidfd.as_fd(), Duration::ZERO));
        Self(pidfd)
    }

    /// Whether it has ended, or ends within `wait`. Returns false if that is unknown.
    pub(super) fn has_ended(&self, wait: Duration) -> bool {
        self.0.as_ref().is_some_and(|pidfd| has_ended(pidfd.as_fd(), wait))
    }
}

fn has_ended(pidfd: BorrowedFd<'_>, wait: Duration) -> bool {
    let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
    // A signal may end the wait early: then false is the safe answer.
    matches!(poll(&mut fds, Some(&timespec(wait.as_nanos() as u64))), Ok(1))
        && fds[0].revents().contains(PollFlags::IN)
}

fn pidfd_of(socket: BorrowedFd<'_>) -> Option<OwnedFd> {
    let credentials: Credentials = socket_option(socket, libc::SO_PEERCRED)?;
    // This process cannot end before us.
    if credentials.pid == getpid().as_raw_pid() {
        return None;
    }
    // SO_PEERPIDFD exists since Linux 6.5. Before, the process may have ended, and its number been
    // reused, by the time it is opened.
    if let Some(fd) = socket_option::<libc::c_int>(socket, libc::SO_PEERPIDFD).filter(|&fd| fd >= 0)
    {
        // SAFETY: the kernel has just opened it for us; only we know it.
        return Some(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    // A number of 0 stands for a process that is not visible from here.
    let pid = Pid::from_raw(credentials.pid).filter(|_| credentials.pid > 0)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// `struct ucred`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Credentials {
    pid: i32,
    uid: u32,
    gid: u32,
}

/// A value that the kernel writes as a socket option: integers, for which any bytes are valid.
trait Plain: Copy + Default {}
impl Plain for libc::c_int {}
impl Plain for Credentials {}

fn socket_option<T: Plain>(socket: BorrowedFd<'_>, option: libc::c_int) -> Option<T> {
    let mut value = T::default();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is `len` bytes, which the kernel does not go beyond, and any bytes are a
    // value of it (`Plain`).
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw mut value).cast(),
            &raw mut len,
        )
    };
    (result == 0 && len as usize == size_of::<T>()).then_some(value)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn this_process_has_not_ended() {
        let (here, _there) = UnixStream::pair().unwrap();
        let begun = std::time::Instant::now();
        assert!(!Peer::of(here.as_fd()).has_ended(Duration::from_secs(3600)));
        assert!(begun.elapsed().as_secs() < 3600, "it is not waited for");
    }

    #[test]
    fn the_end_of_a_process_is_detected() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(child.id() as i32).unwrap();
        let peer = Peer(Some(pidfd_open(pid, PidfdFlags::empty()).unwrap()));
        assert!(!peer.has_ended(Duration::ZERO));
        child.kill().unwrap();
        // The process has ended, but its parent has not reaped it yet.
        assert!(peer.has_ended(Duration::from_secs(60)));
        child.wait().unwrap();
        assert!(peer.has_ended(Duration::ZERO));
    }

    #[test]
    fn a_file_that_is_no_socket_has_no_peer() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(Peer::of(file.as_fd()).0.is_none());
    }
}
