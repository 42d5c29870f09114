//! Bytes and descriptors over a Unix socket; every wait has a deadline.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags,
    SocketType, connect, recvmsg, sendmsg, shutdown, socket_with,
};

use crate::kernel_time::timespec;

/// The most descriptors accepted in one message.
pub(super) const MAX_FDS: usize = 16;

/// Pause before retrying a socket whose backlog is full.
const FULL_NAP: Duration = Duration::from_millis(5);

/// Why bytes could not be received or sent.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The deadline has passed.
    Late,
    /// The other side has closed the connection.
    Closed,
    /// The other side has closed the connection in the middle of a message.
    Torn,
    /// More descriptors than [`MAX_FDS`], or than this process may open.
    TooManyFds,
    /// Another error.
    Os(Errno),
}

/// A connected Unix stream socket, which never blocks and never raises SIGPIPE.
#[derive(Debug)]
pub(super) struct Socket(OwnedFd);

impl Socket {
    /// Connects to the socket at `path`; waits for room in its backlog.
    pub(super) fn connect(path: &Path, deadline: Instant) -> Result<Self, Errno> {
        let address = SocketAddrUnix::new(path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        loop {
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            match connect(&socket, &address) {
                Ok(()) => return Ok(Self(socket)),
                // The backlog is full, and no event announces room.
                Err(Errno::AGAIN) if Instant::now() < deadline => std::thread::sleep(FULL_NAP),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Wraps a connected socket.
    pub(super) fn connected(socket: OwnedFd) -> Result<Self, Errno> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self(socket))
    }

    /// Sends all of `bytes`, and `fd` with the first of them.
    pub(super) fn send(
        &self,
        mut bytes: &[u8],
        mut fd: Option<BorrowedFd<'_>>,
        deadline: Instant,
    ) -> Result<(), Trouble> {
        while !bytes.is_empty() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let fds = fd.as_slice();
            if !fds.is_empty() {
                control.push(SendAncillaryMessage::ScmRights(fds));
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match sendmsg(&self.0, &[IoSlice::new(bytes)], &mut control, flags) {
                Ok(sent) => {
                    bytes = &bytes[sent..];
                    fd = None;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, deadline)?,
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(Trouble::Closed),
                Err(errno) => return Err(Trouble::Os(errno)),
            }
        }
        Ok(())
    }

    /// Fills `bytes`, and adds received descriptors to `fds`. `first` says that a message begins
    /// here, so the other side may also have closed the connection.
    pub(super) fn receive(
        &self,
        bytes: &mut [u8],
        fds: &mut Vec<OwnedFd>,
        first: bool,
        deadline: Instant,
    ) -> Result<(), Trouble> {
        let mut have = 0;
        while have < bytes.len() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            let received = match recvmsg(
                &self.0,
                &mut [IoSliceMut::new(&mut bytes[have..])],
                &mut control,
                flags,
            ) {
                Ok(received) => received,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => {
                    self.wait(PollFlags::IN, deadline)?;
                    continue;
                }
                Err(Errno::CONNRESET | Errno::PIPE) => return Err(Trouble::Closed),
                Err(errno) => return Err(Trouble::Os(errno)),
            };
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(more) = message {
                    // Surplus descriptors are closed here.
                    fds.extend(more);
                }
            }
            if received.flags.contains(ReturnFlags::CTRUNC) || fds.len() > MAX_FDS {
                return Err(Trouble::TooManyFds);
            }
            if received.bytes == 0 {
                return Err(if first && have == 0 { Trouble::Closed } else { Trouble::Torn });
            }
            have += received.bytes;
            // One deadline for all bytes: a server that trickles single bytes cannot block us.
            if have < bytes.len() && Instant::now() >= deadline {
                return Err(Trouble::Late);
            }
        }
        Ok(())
    }

    fn wait(&self, events: PollFlags, deadline: Instant) -> Result<(), Trouble> {
        let left = deadline.saturating_duration_since(Instant::now());
        match poll(&mut [PollFd::new(&self.0, events)], Some(&timespec(left.as_nanos() as u64))) {
            Ok(0) => Err(Trouble::Late),
            // A signal handler ran: the remaining time is recomputed.
            Ok(_) | Err(Errno::INTR) if Instant::now() < deadline => Ok(()),
            Ok(_) | Err(Errno::INTR) => Err(Trouble::Late),
            Err(errno) => Err(Trouble::Os(errno)),
        }
    }

    /// Shuts down our side of the connection. The other side's close can still be detected.
    pub(super) fn end(&self) {
        let _ = shutdown(&self.0, Shutdown::Write);
    }

    /// Whether the other side is closed: no process has it open any more. Only valid after
    /// [`end`](Self::end).
    pub(super) fn is_closed(&self) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::empty())];
        poll(&mut fds, Some(&timespec(0))).is_ok() && fds[0].revents().contains(PollFlags::HUP)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// `timeout` from now.
pub(super) fn deadline_after(timeout: Duration) -> Instant {
    let now = Instant::now();
    // A time that practically never comes.
    now.checked_add(timeout).unwrap_or(now + Duration::from_secs(1 << 30))
}
