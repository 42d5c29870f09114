//! Messages, replies and refusals, without the socket.

use std::os::fd::OwnedFd;

use meantime_nvme_spec::soft_port::PortError;
use meantime_nvme_spec::vfio_user::{Flags, Header, KIND_REPLY};
use rustix::io::Errno;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The maximum number of descriptors per message. QEMU accepts this limit, and Cloud Hypervisor
/// sends this number.
pub(super) const MAX_MSG_FDS: usize = 16;
/// The maximum of data in a message that reads or writes a region, in bytes.
pub(super) const MAX_DATA_XFER_BYTES: u32 = 1 << 20;

/// The longest message, including its header, in bytes. It has the data, and ample room for what
/// precedes them.
pub(super) const MESSAGE_BYTES_MAX: u32 = MAX_DATA_XFER_BYTES + 4096;

/// A command as received.
#[derive(Debug)]
pub struct Message {
    /// Its header. Only the length has been checked.
    pub header: Header,
    /// The bytes that followed the header.
    pub body: Vec<u8>,
    /// Descriptors that came with it.
    pub fds: Vec<OwnedFd>,
    /// Whether there were more descriptors than are accepted, or than this process may open. The
    /// rest are lost.
    pub fds_lost: bool,
}

/// The answer to a command.
#[derive(Debug)]
pub struct Reply {
    /// The whole message.
    pub bytes: Vec<u8>,
    /// A descriptor that goes with it.
    pub fd: Option<OwnedFd>,
}

/// The content of a successful reply.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) body: Vec<u8>,
    pub(super) fd: Option<OwnedFd>,
}

impl Answer {
    /// Returns an answer that is one structure.
    pub(super) fn of(wire: &(impl IntoBytes + Immutable)) -> Self {
        Self { body: wire.as_bytes().to_vec(), fd: None }
    }
}

/// The reason why a command is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) errno: Errno,
    pub(super) why: &'static str,
}

/// Refuses an invalid command.
pub(super) fn refused(errno: Errno, why: &'static str) -> Refused {
    Refused { errno, why }
}

pub(super) fn invalid(why: &'static str) -> Refused {
    refused(Errno::INVAL, why)
}

/// Refuses an invalid command if `wrong` holds.
pub(super) fn refuse_if(wrong: bool, why: &'static str) -> Result<(), Refused> {
    if wrong { Err(invalid(why)) } else { Ok(()) }
}

/// Returns whether a request's `argsz` is too small for a `T`.
pub(super) fn lacks_room<T>(argsz: U32) -> bool {
    (argsz.get() as usize) < size_of::<T>()
}

impl From<PortError> for Refused {
    fn from(error: PortError) -> Self {
        match error {
            PortError::Overlap => invalid("the DMA region overlaps one that is mapped already"),
            PortError::NotMapped => Self { errno: Errno::NOENT, why: "no such DMA mapping" },
            PortError::TooManyRegions => Self { errno: Errno::NOSPC, why: "too many DMA regions" },
            PortError::NoSuchVector => invalid("no such interrupt vector"),
            PortError::Gone => Self { errno: Errno::NODEV, why: "the SSD has ended" },
            _ => Self { errno: Errno::IO, why: "the SSD did not answer in time" },
        }
    }
}

/// Returns the structure at the beginning of `body`, and the bytes after it.
pub(super) fn parse<T: FromBytes + KnownLayout + Immutable + Copy>(
    body: &[u8],
) -> Result<(T, &[u8]), Refused> {
    let parsed = T::read_from_prefix(body).map_err(|_| invalid("the message is too short"))?;
    Ok(parsed)
}

/// Returns the structure that fills `body`.
pub(super) fn parse_all<T: FromBytes + KnownLayout + Immutable + Copy>(
    body: &[u8],
) -> Result<T, Refused> {
    match parse(body)? {
        (parsed, []) => Ok(parsed),
        _ => Err(invalid("the message is too long")),
    }
}

/// Returns the reply to the command with `header`.
pub(super) fn reply(header: &Header, answer: Result<Answer, Refused>) -> Reply {
    let flags = Flags(0).with_kind(KIND_REPLY);
    let (flags, errno, answer) = match answer {
        Ok(answer) => (flags, 0, answer),
        Err(refused) => {
            (flags.with_error(true), refused.errno.raw_os_error() as u32, Answer::default())
        }
    };
    let length = size_of::<Header>() + answer.body.len();
    let header = Header {
        id: header.id,
        command: header.command,
        // A body is a few structures, or the requested data, whose length is limited.
        bytes: (length as u32).into(),
        flags: flags.0.into(),
        error: errno.into(),
    };
    let mut bytes = Vec::with_capacity(length);
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(&answer.body);
    Reply { bytes, fd: answer.fd }
}
