//! Why requests are not taken, and why they fail.

use meantime_completion::Policy;
use meantime_nvme::{CommandError, Op};

use super::request::Request;
use meantime_spec::status::Status;

/// An I/O that failed on its way to the device or in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}: {kind}", what(*op, *lba))]
pub struct IoError {
    /// What was to be done.
    pub op: Op,
    /// First logical block of the request.
    pub lba: u64,
    /// Why it was not.
    #[source]
    pub kind: IoErrorKind,
}

fn what(op: Op, lba: u64) -> String {
    let op = match op {
        Op::Read => "read",
        Op::Write => "write",
        Op::Flush => return "flush".to_owned(),
        Op::WriteZeroes => "write zeroes",
        Op::Deallocate => "deallocate",
        Op::Compare => "compare",
        Op::Verify => "verify",
        Op::WriteUncorrectable => "write uncorrectable",
        Op::CompareAndWrite => "compare and write",
    };
    format!("{op} at LBA {lba}")
}

/// Why a request was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IoErrorKind {
    /// An NVMe command of it failed. (The kernel's requests that are given up are
    /// [`CommandError::TimedOut`], too.)
    #[error(transparent)]
    Command(#[from] CommandError),
    /// Of a comparison: the data differ from what was expected. A compare-and-write has written
    /// nothing, as far as the device says.
    #[error("what is there is not what was expected")]
    Miscompare,
    /// Of a compare-and-write: the comparison failed, and the device did the write, or began it,
    /// against the specification.
    #[error(
        "the comparison failed, and the device still wrote: its compare-and-write is broken; read \
         what is there, and do not rely on it"
    )]
    Unfused,
    /// The operating system answered with this errno. (Of 16 bits: a result is moved with every
    /// I/O.)
    #[error("the kernel answered: {}", std::io::Error::from_raw_os_error(i32::from(*.0)))]
    Os(u16),
    /// The operating system transferred nothing: the file has become shorter.
    #[error("the kernel reached the end of the file: was it truncated?")]
    EndOfFile,
}

impl IoErrorKind {
    /// An error of the operating system: an errno, which is positive and below 4,096.
    pub fn os(errno: i32) -> Self {
        Self::Os(u16::try_from(errno).unwrap_or(libc::EIO as u16))
    }
}

impl From<Status> for IoErrorKind {
    fn from(status: Status) -> Self {
        Self::Command(CommandError::Status(status))
    }
}

/// Whether it is this error of a command.
impl PartialEq<CommandError> for IoErrorKind {
    fn eq(&self, error: &CommandError) -> bool {
        *self == Self::Command(*error)
    }
}

// A result is moved with every I/O.
const _: () = assert!(size_of::<IoErrorKind>() == 4 && size_of::<Result<u32, IoErrorKind>>() == 8);

/// Why a request was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// Every slot is taken: wait for something first.
    #[error(
        "all {depth} requests of the channel are in flight: wait for one, or open the channel with \
         more depth"
    )]
    Full {
        /// How many there are.
        depth: u16,
    },
    /// Beyond the end of the namespace.
    #[error("{blocks} blocks at LBA {lba} reach beyond the namespace's {size} blocks")]
    OutOfRange {
        /// First logical block.
        lba: u64,
        /// How many.
        blocks: u64,
        /// Size of the namespace in blocks.
        size: u64,
    },
    /// The buffer's length is no positive multiple of the block size.
    #[error("a buffer of {bytes} bytes is no whole number of blocks of {block_bytes} bytes")]
    PartialBlock {
        /// Length of the buffer.
        bytes: usize,
        /// Logical block size.
        block_bytes: u32,
    },
    /// The buffer of a compare-and-write is not what is expected and, as long, what is to be
    /// written.
    #[error(
        "a buffer of {bytes} bytes is not two halves of whole blocks of {block_bytes} bytes, one \
         after the other"
    )]
    Halves {
        /// Length of the buffer.
        bytes: usize,
        /// Logical block size.
        block_bytes: u32,
    },
    /// The device does not compare and write this number of blocks at once.
    #[error("a compare-and-write of {blocks} blocks: the device does at most {most} in one")]
    NotAtomic {
        /// How many.
        blocks: u64,
        /// How many it does.
        most: u32,
    },
    /// The buffer belongs to another device.
    #[error("the buffer was not allocated by this device: use its `alloc`")]
    ForeignBuffer,
    /// A read or write without a buffer, or another operation with one.
    #[error("a read or write needs a buffer, and nothing else takes one")]
    Buffer,
    /// No blocks.
    #[error("the request covers no blocks")]
    Empty,
    /// The device lacks the command.
    #[error("the device does not support {0}")]
    Unsupported(&'static str),
    /// The policy needs an interrupt vector and the channel has none.
    #[error("the channel has no interrupt vector: use a polled policy, or open it with interrupts")]
    NoInterrupt,
    /// The device can be read only.
    #[error("the device cannot be written: {0}")]
    ReadOnly(String),
    /// The channel cannot wait by this policy.
    #[error("the channel cannot wait by {policy}: {why}")]
    CannotWait {
        /// The policy.
        policy: Policy,
        /// Why, and what would help.
        why: String,
    },
    /// The device is gone, or its queue is lost.
    #[error("the device cannot take requests: {0}")]
    Lost(String),
}

/// Why a synchronous request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// It was not taken.
    #[error(transparent)]
    Rejected(#[from] SubmitError),
    /// It was not done.
    #[error(transparent)]
    Failed(#[from] IoError),
    /// The device is gone and may still write to the buffer, which is given up.
    #[error("the device is gone, and the buffer had to be given up")]
    Quarantined,
}

/// A request that was not taken, given back whole.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Rejected {
    /// Why.
    pub error: SubmitError,
    /// The request, with its buffer.
    pub request: Request,
}
