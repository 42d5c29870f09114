//! How client and owner meet: a socket of whole messages (`SOCK_SEQPACKET`) with a name that is in
//! no directory (unix(7), abstract).
//!
//! The owner says hello at once, with the connection's nonce and the closings. Then the client asks
//! for one line at a time, by one byte, and gets a line or a refusal.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recvmsg, sendmsg,
};

use crate::message::Nonce;

/// The first bytes of a hello: a name and the protocol's version.
const MAGIC: [u8; 8] = *b"mtshmq\x00\x01";
/// Asks for a line.
const ASK: [u8; 1] = *b"l";
/// Answers that there is a line, or none.
const GRANTED: [u8; 1] = *b"y";
const REFUSED: [u8; 1] = *b"n";

fn new_socket(flags: SocketFlags) -> io::Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Listens under `name`, which is unique on this machine.
///
/// # Errors
/// Of bind(2).
pub fn listen(name: &str) -> io::Result<OwnedFd> {
    let socket = new_socket(SocketFlags::empty())?;
    rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    rustix::net::listen(&socket, 64)?;
    Ok(socket)
}

/// Accepts a connection. Returns `None` if it is of another user's process, which is told nothing.
///
/// # Errors
/// Of accept(2).
pub fn accept(socket: impl AsFd) -> io::Result<Option<OwnedFd>> {
    let accepted = rustix::net::accept_with(&socket, SocketFlags::CLOEXEC)?;
    let peer = rustix::net::sockopt::socket_peercred(&accepted)?;
    Ok((peer.uid == rustix::process::geteuid()).then_some(accepted))
}

/// Connects to the owner that listens under `name`.
///
/// # Errors
/// Of connect(2).
pub fn connect(name: &str) -> io::Result<OwnedFd> {
    let socket = new_socket(SocketFlags::empty())?;
    rustix::net::connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(socket)
}

/// Says hello to a client.
///
/// # Errors
/// Of sendmsg(2).
pub fn say_hello(socket: impl AsFd, nonce: &Nonce, closings: impl AsFd) -> io::Result<()> {
    let mut hello = [0; 24];
    hello[..8].copy_from_slice(&MAGIC);
    hello[8..].copy_from_slice(nonce);
    send(socket, &hello, Some(closings.as_fd()))
}

/// Receives the owner's hello: the nonce, and the memory of the closings.
///
/// # Errors
/// Of recvmsg(2); `InvalidData` if the owner is another program or version, or refused.
pub fn receive_hello(socket: impl AsFd) -> io::Result<(Nonce, OwnedFd)> {
    let mut hello = [0; 24];
    let (len, memory) = receive(socket, &mut hello)?;
    let (magic, nonce) = hello.split_at(8);
    match (memory, nonce.try_into()) {
        (Some(memory), Ok(nonce)) if len == 24 && magic == MAGIC => Ok((nonce, memory)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Asks for a line, and receives its memory.
///
/// # Errors
/// Of sendmsg(2) and recvmsg(2); `QuotaExceeded` if the owner has no more lines.
pub fn ask_line(socket: impl AsFd) -> io::Result<OwnedFd> {
    send(&socket, &ASK, None)?;
    let mut answer = [0; 1];
    match receive(socket, &mut answer)? {
        (1, Some(memory)) if answer == GRANTED => Ok(memory),
        (1, None) if answer == REFUSED => Err(io::ErrorKind::QuotaExceeded.into()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Waits until a client asks for a line. Returns `false` when it has closed the connection.
///
/// # Errors
/// Of recvmsg(2); `InvalidData` if it says something else.
pub fn wait_for_ask(socket: impl AsFd) -> io::Result<bool> {
    let mut asked = [0; 1];
    match receive(socket, &mut asked)? {
        (0, _) => Ok(false),
        (1, None) if asked == ASK => Ok(true),
        // (What descriptors came with it are closed.)
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Answers a client that asked: with a line's memory, or with a refusal.
///
/// # Errors
/// Of sendmsg(2).
pub fn answer_ask(socket: impl AsFd, memory: Option<&OwnedFd>) -> io::Result<()> {
    let answer = if memory.is_some() { GRANTED } else { REFUSED };
    send(socket, &answer, memory.map(|memory| memory.as_fd()))
}

fn send(
    socket: impl AsFd,
    bytes: &[u8],
    descriptor: Option<rustix::fd::BorrowedFd<'_>>,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if let Some(descriptor) = &descriptor {
        ancillary.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(descriptor)));
    }
    let bytes = [IoSlice::new(bytes)];
    // NOSIGNAL: a closed peer is an error, not a SIGPIPE.
    rustix::io::retry_on_intr(|| sendmsg(&socket, &bytes, &mut ancillary, SendFlags::NOSIGNAL))?;
    Ok(())
}

fn receive(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        let flags = RecvFlags::CMSG_CLOEXEC;
        recvmsg(&socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, flags)
    })?;
    let mut descriptor = None;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(all) = message {
            // Of several the last is kept; the others are closed.
            descriptor = all.last().or(descriptor);
        }
    }
    Ok((received.bytes, descriptor))
}
