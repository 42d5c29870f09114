//! Passes descriptors from one process to another over a socket (SCM_RIGHTS).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// Returns a pair of connected sockets, which child processes do not inherit.
pub(crate) fn sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// Passes `descriptor` to the process at the other end of `socket`.
pub(crate) fn send(socket: impl AsFd, descriptor: impl AsFd) -> io::Result<()> {
    let descriptors = [descriptor.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    // Without a byte of data nothing is sent. With NOSIGNAL a closed peer is an error, not a
    // SIGPIPE.
    sendmsg(socket, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives the descriptor that comes over `socket`. Returns `None` if the other end is closed.
pub(crate) fn receive(socket: impl AsFd) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let received = rustix::io::retry_on_intr(|| {
        let flags = RecvFlags::CMSG_CLOEXEC;
        recvmsg(&socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags)
    });
    match received {
        // The socket was closed before the other end read what was sent to it.
        Err(Errno::CONNRESET) => return Ok(None),
        received => received?,
    };
    let mut descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(descriptors.next())
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn a_descriptor_comes_out_as_it_went_in() {
        let (here, there) = sockets().unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        send(&here, &writer).unwrap();
        drop(writer);
        let passed = receive(&there).unwrap().unwrap();
        assert!(rustix::io::fcntl_getfd(&passed).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        io::PipeWriter::from(passed).write_all(b"text").unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
        drop(here);
        assert!(receive(&there).unwrap().is_none());
        assert!(send(&there, io::stderr()).is_err());
        let (here, there) = sockets().unwrap();
        send(&there, io::stderr()).unwrap();
        drop(here);
        assert!(receive(&there).unwrap().is_none(), "not read, and closed");
    }
}
