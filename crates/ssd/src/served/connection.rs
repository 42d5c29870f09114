//! A client's connection. It receives whole messages and sends whole replies, without blocking.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};

use meantime_nvme_spec::vfio_user::Header;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use zerocopy::FromBytes as _;

use super::message::{MAX_MSG_FDS, MESSAGE_BYTES_MAX, Message, Reply};

const HEADER_BYTES: usize = size_of::<Header>();

/// Memory for a message is allocated in these steps as bytes arrive, not by the length in its
/// header.
const PIECE_BYTES: usize = 64 << 10;

/// The result of reading.
#[derive(Debug)]
pub(super) enum Received {
    /// A whole message.
    Message(Message),
    /// The message is not complete yet.
    Later,
    /// The client has closed the connection, between two messages.
    Closed,
    /// The connection has failed.
    End(String),
}

/// A client's connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: OwnedFd,
    header: [u8; HEADER_BYTES],
    /// The number of bytes of the message that were received, including the header's.
    have: usize,
    body: Vec<u8>,
    fds: Vec<OwnedFd>,
    fds_lost: bool,
    /// A reply that is not fully written yet.
    reply: Option<Reply>,
    written: usize,
}

impl Connection {
    /// Creates a connection on a non-blocking stream.
    pub(super) fn new(stream: OwnedFd) -> Self {
        Self {
            stream,
            header: [0; HEADER_BYTES],
            have: 0,
            body: Vec::new(),
            fds: Vec::new(),
            fds_lost: false,
            reply: None,
            written: 0,
        }
    }

    pub(super) fn stream(&self) -> &OwnedFd {
        &self.stream
    }

    /// Returns the events to poll for. While the client does not take its reply, nothing more is
    /// read from it.
    pub(super) fn interest(&self) -> PollFlags {
        if self.reply.is_some() { PollFlags::OUT } else { PollFlags::IN }
    }

    /// Continues reading. It never reads beyond the end of a message, so descriptors belong to the
    /// message with whose bytes they came.
    pub(super) fn receive(&mut self) -> Received {
        if let Err(error) = self.flush() {
            return Received::End(format!("it cannot be written to: {error}"));
        }
        if self.reply.is_some() {
            return Received::Later;
        }
        loop {
            if self.have >= HEADER_BYTES && self.have == self.length() {
                return Received::Message(self.take());
            }
            match self.read_some() {
                Ok(0) if self.have == 0 => return Received::Closed,
                Ok(0) => {
                    let why = "it closed the connection in the middle of a message";
                    return Received::End(why.into());
                }
                Ok(_) => {}
                Err(Errno::AGAIN) => return Received::Later,
                Err(Errno::INTR) => continue,
                Err(error) => return Received::End(format!("it cannot be read from: {error}")),
            }
            let bytes = self.length();
            if self.have == HEADER_BYTES
                && !(HEADER_BYTES..=MESSAGE_BYTES_MAX as usize).contains(&bytes)
            {
                return Received::End(format!(
                    "a message of {bytes} bytes; {HEADER_BYTES} to {MESSAGE_BYTES_MAX} are possible"
                ));
            }
        }
    }

    /// Returns the length of the message according to its header.
    fn length(&self) -> usize {
        let Ok(header) = Header::read_from_bytes(&self.header) else { return 0 };
        header.bytes.get() as usize
    }

    /// Reads more of the header, or of the rest of the message.
    fn read_some(&mut self) -> Result<usize, Errno> {
        let body_bytes = self.length().saturating_sub(HEADER_BYTES);
        let into = if self.have < HEADER_BYTES {
            &mut self.header[self.have..]
        } else {
            let at = self.have - HEADER_BYTES;
            let end = body_bytes.min(at + PIECE_BYTES);
            self.body.resize(end, 0);
            &mut self.body[at..end]
        };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_MSG_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut pieces = [IoSliceMut::new(into)];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let received = recvmsg(&self.stream, &mut pieces, &mut control, flags)?;
        // The kernel has dropped the descriptors that did not fit.
        self.fds_lost |= received.flags.contains(ReturnFlags::CTRUNC);
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                for fd in fds {
                    if self.fds.len() < MAX_MSG_FDS {
                        self.fds.push(fd);
                    } else {
                        self.fds_lost = true;
                    }
                }
            }
        }
        self.have += received.bytes;
        Ok(received.bytes)
    }

    fn take(&mut self) -> Message {
        self.have = 0;
        Message {
            header: Header::read_from_bytes(&self.header).unwrap_or_default(),
            body: std::mem::take(&mut self.body),
            fds: std::mem::take(&mut self.fds),
            fds_lost: std::mem::take(&mut self.fds_lost),
        }
    }

    /// Sends a reply, now or when the client can take it.
    pub(super) fn send(&mut self, reply: Reply) -> Result<(), Errno> {
        self.reply = Some(reply);
        self.written = 0;
        self.flush()
    }

    /// Writes as much of the reply as possible.
    fn flush(&mut self) -> Result<(), Errno> {
        while let Some(reply) = &mut self.reply {
            let fds: Vec<_> = reply.fd.iter().map(|fd| fd.as_fd()).collect();
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !fds.is_empty() {
                control.push(SendAncillaryMessage::ScmRights(&fds));
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let pieces = [IoSlice::new(&reply.bytes[self.written..])];
            match sendmsg(&self.stream, &pieces, &mut control, flags) {
                Ok(bytes) => {
                    drop(fds);
                    // The descriptor was sent with the first byte.
                    reply.fd = None;
                    self.written += bytes;
                    if self.written == reply.bytes.len() {
                        self.reply = None;
                    }
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
