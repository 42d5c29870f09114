//! A connection that carries one command and its reply at a time.
//!
//! After any error that leaves the position in the byte stream or the server's next message
//! unclear, the connection is closed for good: no later byte is taken for an answer to another
//! command.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use meantime_nvme_spec::vfio_user::{
    Command, DEFAULT_MAX_DATA_XFER_BYTES, DmaAccess, Flags, Header, KIND_COMMAND, KIND_REPLY,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::error::{Result, UserError};
use super::peer::Peer;
use super::socket::{MAX_FDS, Socket, Trouble, deadline_after};

const HEADER_BYTES: usize = size_of::<Header>();

/// The largest command that a server may send: a memory write by message.
const MAX_COMMAND_BYTES: u32 =
    (HEADER_BYTES + size_of::<DmaAccess>()) as u32 + DEFAULT_MAX_DATA_XFER_BYTES;

/// Time for a server that has closed the connection to end, after which our memory counts as lost.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// A connection to a server.
pub(super) struct Connection {
    /// The server's name, for messages.
    server: String,
    timeout: Duration,
    wire: Mutex<Wire>,
    gone: AtomicBool,
    why: OnceLock<String>,
    peer: Peer,
}

struct Wire {
    socket: Socket,
    next_id: u16,
    /// Whether the server was already given time to end.
    waited: bool,
}

/// A reply.
pub(super) struct Reply {
    /// What follows the header.
    pub(super) body: Vec<u8>,
    /// The descriptors that came with it.
    pub(super) fds: Vec<OwnedFd>,
}

impl Reply {
    /// The structure at the begin of the reply, and the bytes after it.
    pub(super) fn split<T: FromBytes + KnownLayout + Immutable>(&self) -> Option<(T, &[u8])> {
        T::read_from_prefix(&self.body).ok()
    }
}

impl Connection {
    /// A connection over `socket`; messages call the peer `server`.
    pub(super) fn new(socket: Socket, server: String, timeout: Duration) -> Self {
        let peer = Peer::of(socket.as_fd());
        let wire = Mutex::new(Wire { socket, next_id: 1, waited: false });
        Self { server, timeout, wire, gone: AtomicBool::new(false), why: OnceLock::new(), peer }
    }

    /// The server's name, for messages.
    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// Whether the connection was closed.
    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Whether the server is known to have ended, and its mappings of our memory with it.
    pub(super) fn has_ended(&self) -> bool {
        if !self.is_gone() {
            return false;
        }
        let mut wire = self.lock();
        if !wire.socket.is_closed() {
            return false;
        }
        // A process closes its sockets shortly before it ends; one that continues without them is
        // waited for only once.
        let wait =
            if std::mem::replace(&mut wire.waited, true) { Duration::ZERO } else { LAST_WAIT };
        self.peer.has_ended(wait)
    }

    fn lock(&self) -> MutexGuard<'_, Wire> {
        // No code in here panics, and otherwise the protocol's own checks would detect it.
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the connection because the server sent an invalid message. Returns the error.
    pub(super) fn protocol(&self, what: impl Into<String>) -> UserError {
        self.give_up(
            &self.lock(),
            UserError::Protocol { server: self.server.clone(), what: what.into() },
        )
    }

    /// The error that the server's device cannot be used.
    pub(super) fn unusable(&self, what: impl Into<String>) -> UserError {
        UserError::Unusable { server: self.server.clone(), what: what.into() }
    }

    /// Sends `command` with the bytes of `body` and with `fd`, and waits for the reply, of at most
    /// `most` bytes without its header.
    ///
    /// # Errors
    /// [`UserError::Refused`] leaves the connection usable; any other error closes it.
    pub(super) fn request(
        &self,
        command: Command,
        body: &[&[u8]],
        fd: Option<BorrowedFd<'_>>,
        most: usize,
    ) -> Result<Reply> {
        let mut wire = self.lock();
        let deadline = deadline_after(self.timeout);
        let result = self.send(&mut wire, command, body, fd, deadline).and_then(|id| {
            let refused = |errno: u32| UserError::Refused {
                server: self.server.clone(),
                command,
                // Some servers leave the errno at 0.
                source: io::Error::from_raw_os_error(i32::try_from(errno).unwrap_or(0).max(0)),
            };
            self.reply(&wire, command, id, most, deadline)?.map_err(refused)
        });
        match result {
            Err(error @ (UserError::Refused { .. } | UserError::Gone { .. })) => Err(error),
            Err(error) => Err(self.give_up(&wire, error)),
            Ok(reply) => Ok(reply),
        }
    }

    fn give_up(&self, wire: &Wire, error: UserError) -> UserError {
        if self.why.set(error.to_string()).is_ok() {
            tracing::error!(%error, "the connection to the controller's server was given up");
        }
        self.gone.store(true, Ordering::Release);
        wire.socket.end();
        error
    }

    fn send(
        &self,
        wire: &mut Wire,
        command: Command,
        body: &[&[u8]],
        fd: Option<BorrowedFd<'_>>,
        deadline: Instant,
    ) -> Result<u16> {
        if self.is_gone() {
            let why = self.why.get().cloned().unwrap_or_default();
            return Err(UserError::Gone { server: self.server.clone(), why });
        }
        let id = wire.next_id;
        wire.next_id = id.wrapping_add(1);
        let header = Header {
            id: id.into(),
            command: u16::from(command).into(),
            bytes: ((HEADER_BYTES + body.iter().map(|part| part.len()).sum::<usize>()) as u32)
                .into(),
            flags: Flags(0).with_kind(KIND_COMMAND).0.into(),
            error: 0.into(),
        };
        let mut message = header.as_bytes().to_vec();
        body.iter().for_each(|part| message.extend_from_slice(part));
        let sent = wire.socket.send(&message, fd, deadline);
        sent.map(|()| id).map_err(|trouble| self.trouble(trouble, command))
    }

    /// Receives the reply to `command` number `id`, or its errno. Declines commands of the server
    /// that come before it.
    fn reply(
        &self,
        wire: &Wire,
        command: Command,
        id: u16,
        most: usize,
        deadline: Instant,
    ) -> Result<std::result::Result<Reply, u32>> {
        let protocol = |what: String| UserError::Protocol { server: self.server.clone(), what };
        let trouble = |trouble: Trouble| self.trouble(trouble, command);
        loop {
            let mut fds = Vec::new();
            let mut bytes = [0; HEADER_BYTES];
            wire.socket.receive(&mut bytes, &mut fds, true, deadline).map_err(trouble)?;
            let header = Header::read_from_bytes(&bytes).unwrap_or_default();
            let (size, flags) = (header.bytes.get(), Flags(header.flags.get()));
            let Some(rest) = (size as usize).checked_sub(HEADER_BYTES) else {
                return Err(protocol(format!("a message of {size} bytes, less than its header")));
            };
            match flags.kind() {
                KIND_COMMAND if size <= MAX_COMMAND_BYTES => {
                    self.decline(wire, header, rest, deadline).map_err(trouble)?;
                    continue;
                }
                KIND_COMMAND => return Err(protocol(format!("a command of {size} bytes"))),
                KIND_REPLY => {}
                kind => {
                    return Err(protocol(format!(
                        "a message that is neither command nor reply ({kind})"
                    )));
                }
            }
            let (its_id, its_command) = (header.id.get(), header.command.get());
            if (its_id, its_command) != (id, command.into()) {
                return Err(protocol(format!(
                    "a reply to message {its_id}, command {its_command}, where {id}, {command}, \
                     was due"
                )));
            }
            // This comes first, since an error reply may end here, whatever was requested.
            if flags.error() {
                if rest > most {
                    return Err(protocol(format!(
                        "an error of {size} bytes in reply to {command}"
                    )));
                }
                discard(&wire.socket, rest, deadline).map_err(trouble)?;
                return Ok(Err(header.error.get()));
            }
            if rest > most {
                return Err(protocol(format!(
                    "{rest} bytes in reply to {command}, where {most} were expected at most"
                )));
            }
            let mut body = vec![0; rest];
            wire.socket.receive(&mut body, &mut fds, false, deadline).map_err(trouble)?;
            return Ok(Ok(Reply { body, fds }));
        }
    }

    /// Declines a command of the server: it can map our memory, yet requests it by message.
    fn decline(
        &self,
        wire: &Wire,
        header: Header,
        rest: usize,
        deadline: Instant,
    ) -> std::result::Result<(), Trouble> {
        discard(&wire.socket, rest, deadline)?;
        let command = header.command.get();
        tracing::warn!(
            server = %self.server,
            command,
            "the server wants something that is not done here: refused"
        );
        if Flags(header.flags.get()).no_reply() {
            return Ok(());
        }
        let reply = Header {
            bytes: (HEADER_BYTES as u32).into(),
            flags: Flags(0).with_kind(KIND_REPLY).with_error(true).0.into(),
            error: (libc::ENOTSUP as u32).into(),
            ..header
        };
        wire.socket.send(reply.as_bytes(), None, deadline)
    }

    fn trouble(&self, trouble: Trouble, command: Command) -> UserError {
        let server = self.server.clone();
        let torn = "the connection was closed in the middle of a message";
        match trouble {
            Trouble::Late => {
                UserError::Late { server, command, timeout_ms: self.timeout.as_millis() }
            }
            Trouble::Closed => UserError::Closed { server },
            Trouble::Torn => UserError::Protocol { server, what: torn.into() },
            Trouble::TooManyFds => {
                let what = format!(
                    "more than {MAX_FDS} descriptors in reply to {command}, or than this process \
                     may open"
                );
                UserError::Protocol { server, what }
            }
            Trouble::Os(errno) => UserError::Socket { server, source: errno.into() },
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.lock().socket.end();
    }
}

/// Reads and drops `rest` bytes, and the descriptors that come with them.
fn discard(
    socket: &Socket,
    mut rest: usize,
    deadline: Instant,
) -> std::result::Result<(), Trouble> {
    let mut scrap = [0; 4096];
    while rest > 0 {
        let now = rest.min(scrap.len());
        socket.receive(&mut scrap[..now], &mut Vec::new(), false, deadline)?;
        rest -= now;
    }
    Ok(())
}
