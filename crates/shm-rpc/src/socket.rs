//! The meeting of client and owner: a socket of whole messages (`SOCK_SEQPACKET`) with a name that
//! is in no directory (unix(7), abstract).
//!
//! The owner sends its hello at once, with the connection's nonce and the closings. Then the client
//! asks for one line at a time, by one byte, and gets a line or a refusal.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    recvmsg, sendmsg,
};

use crate::message::Nonce;

/// The first bytes of a hello: a name and the protocol's version.
const MAGIC: [u8; 8] = *b"mtshmq\x00\x01";
/// The message that asks for a line.
const ASK: [u8; 1] = *b"l";
/// The answers that there is a line, or none.
const GRANTED: [u8; 1] = *b"y";
const REFUSED: [u8; 1] = *b"n";
/// The owner does not wait for a client that does not receive what it asked for.
const OWNER: SendFlags = SendFlags::DONTWAIT;
/// Bytes of an ancillary buffer for one descriptor.
const ONE_DESCRIPTOR: usize = rustix::cmsg_space!(ScmRights(1));

fn new_socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Listens under `name`, which is unique on this machine.
///
/// # Errors
/// The errors of bind(2).
pub fn listen(name: &str) -> io::Result<OwnedFd> {
    let socket = new_socket(SocketFlags::empty())?;
    rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    rustix::net::listen(&socket, 64)?;
    Ok(socket)
}

/// Accepts a connection. Returns `None` if it is of another user's process, which gets no message.
///
/// # Errors
/// The errors of accept(2).
pub fn accept(socket: impl AsFd) -> io::Result<Option<OwnedFd>> {
    let accepted = rustix::net::accept_with(&socket, SocketFlags::CLOEXEC)?;
    Ok(is_ours(&accepted)?.then_some(accepted))
}

/// Connects to the owner that listens under `name`.
///
/// # Errors
/// The errors of connect(2); `PermissionDenied` if another user listens there, whose messages
/// cannot be trusted.
pub fn connect(name: &str) -> io::Result<OwnedFd> {
    let socket = new_socket(SocketFlags::empty())?;
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    if is_ours(&socket)? { Ok(socket) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// Returns whether the other side is a process of our user.
fn is_ours(socket: &OwnedFd) -> io::Result<bool> {
    Ok(rustix::net::sockopt::socket_peercred(socket)?.uid == rustix::process::geteuid())
}

/// Sends the hello to a client.
///
/// # Errors
/// The errors of sendmsg(2).
pub fn say_hello(socket: impl AsFd, nonce: &Nonce, closings: impl AsFd) -> io::Result<()> {
    let mut hello = [0; 24];
    hello[..8].copy_from_slice(&MAGIC);
    hello[8..].copy_from_slice(nonce);
    send(socket, &hello, Some(closings.as_fd()), OWNER)
}

/// Receives the owner's hello: the nonce, and the memory of the closings.
///
/// # Errors
/// The errors of recvmsg(2); `InvalidData` if the owner is another program or version, or refused.
pub fn receive_hello(socket: impl AsFd) -> io::Result<(Nonce, OwnedFd)> {
    let mut hello = [0; 24];
    let mut space = [MaybeUninit::uninit(); ONE_DESCRIPTOR];
    let (len, memory) = receive(socket, &mut hello, &mut space)?;
    let (magic, nonce) = hello.split_at(8);
    match (memory, nonce.try_into()) {
        (Some(memory), Ok(nonce)) if len == 24 && magic == MAGIC => Ok((nonce, memory)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Asks for a line, and receives its memory.
///
/// # Errors
/// The errors of sendmsg(2) and recvmsg(2); `QuotaExceeded` if the owner has no more lines.
pub fn ask_line(socket: impl AsFd) -> io::Result<OwnedFd> {
    send(&socket, &ASK, None, SendFlags::empty())?;
    let mut answer = [0; 1];
    let mut space = [MaybeUninit::uninit(); ONE_DESCRIPTOR];
    match receive(socket, &mut answer, &mut space)? {
        (1, Some(memory)) if answer == GRANTED => Ok(memory),
        (1, None) if answer == REFUSED => Err(io::ErrorKind::QuotaExceeded.into()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Waits until a client asks for a line. Returns `false` when it has closed the connection.
///
/// # Errors
/// The errors of recvmsg(2); `InvalidData` if the client sends something else.
pub fn wait_for_ask(socket: impl AsFd) -> io::Result<bool> {
    let mut asked = [0; 1];
    // There is no space for descriptors. A client that sends some could make us close a file whose
    // closing takes for ever, so they never become ours.
    match receive(socket, &mut asked, &mut [])? {
        (0, _) => Ok(false),
        (1, _) if asked == ASK => Ok(true),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Answers a client that asked, with a line's memory or with a refusal.
///
/// # Errors
/// The errors of sendmsg(2); `WouldBlock` if the client does not receive its answers.
pub fn answer_ask(socket: impl AsFd, memory: Option<&OwnedFd>) -> io::Result<()> {
    let answer = if memory.is_some() { GRANTED } else { REFUSED };
    send(socket, &answer, memory.map(|memory| memory.as_fd()), OWNER)
}

fn send(
    socket: impl AsFd,
    bytes: &[u8],
    descriptor: Option<BorrowedFd<'_>>,
    flags: SendFlags,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); ONE_DESCRIPTOR];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if let Some(descriptor) = &descriptor {
        ancillary.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(descriptor)));
    }
    let bytes = [IoSlice::new(bytes)];
    // With NOSIGNAL a closed peer is an error, not a SIGPIPE.
    let flags = flags | SendFlags::NOSIGNAL;
    rustix::io::retry_on_intr(|| sendmsg(&socket, &bytes, &mut ancillary, flags))?;
    Ok(())
}

/// Receives one message. Returns its length, and its descriptor if there is `space` for any.
///
/// # Errors
/// The errors of recvmsg(2); `InvalidData` if there was more than there is room for.
fn receive(
    socket: impl AsFd,
    bytes: &mut [u8],
    space: &mut [MaybeUninit<u8>],
) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut ancillary = RecvAncillaryBuffer::new(space);
    let received = rustix::io::retry_on_intr(|| {
        let flags = RecvFlags::CMSG_CLOEXEC;
        recvmsg(&socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, flags)
    })?;
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(all) = message {
            descriptors.extend(all);
        }
    }
    // Descriptors that came with the message are closed.
    let is_cut = received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    if is_cut || descriptors.len() > 1 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok((received.bytes, descriptors.pop()))
}
