//! Errors of opening, of channels, of submission, and of I/O.

use super::uri::UriError;
use meantime_completion::Policy;
use meantime_hw::HwError;
use meantime_nvme::{self as nvme, CommandError, Op};
use meantime_nvme_spec::status::Status;

/// Why a device could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The URI is wrong.
    #[error(transparent)]
    Uri(#[from] UriError),
    /// The software SSD could not be started.
    #[cfg(feature = "ssd")]
    #[error("{uri}: {source}")]
    Ssd {
        /// The device.
        uri: String,
        /// The cause.
        source: meantime_ssd::SsdError,
    },
    /// A model file could not be read.
    #[error("cannot read the model file {path}: {source}")]
    ModelFile {
        /// The file.
        path: String,
        /// The cause.
        source: std::io::Error,
    },
    /// The PCIe device is not available.
    #[error("{uri}: {source}")]
    Pci {
        /// The device.
        uri: String,
        /// The cause.
        source: meantime_hw::pci::PciError,
    },
    /// The NVMe/TCP target cannot be used.
    #[error("{uri}: {source}")]
    Fabrics {
        /// The device.
        uri: String,
        /// The cause.
        source: meantime_fabrics::FabricsError,
    },
    /// The driver could not initialise the controller.
    #[error(transparent)]
    Nvme(#[from] nvme::Error),
    /// The kernel's file cannot be used.
    #[error("{uri}: {what} ({source})")]
    Kernel {
        /// The device.
        uri: String,
        /// What is wrong, and a remedy.
        what: String,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The partition cannot be used.
    #[error("{uri}: {what}")]
    Partition {
        /// The device.
        uri: String,
        /// What is wrong, and what there is instead.
        what: String,
    },
    /// The device cannot be written.
    #[error("{uri} cannot be written: {why}")]
    ReadOnly {
        /// The device.
        uri: String,
        /// The reason, and a remedy.
        why: String,
    },
    /// The device is the kernel's, not Meantime's.
    #[error(
        "{uri}: the kernel's driver has this device: a device that Meantime drives is needed, e.g. \
         mem:1G"
    )]
    NotNvme {
        /// The device.
        uri: String,
    },
    /// The device is the kernel's, and has no NVMe controller that would describe it.
    #[error(
        "{uri}: only an NVMe controller describes itself, and this is a file, or a disk of another \
         driver: name a namespace of the kernel's (kernel:/dev/nvme0n1), or a device that Meantime \
         drives, e.g. mem:1G"
    )]
    NoController {
        /// The device.
        uri: String,
    },
    /// The URI names no software SSD.
    #[error("{uri}: this build has no software SSD (feature `ssd`)")]
    NoSsd {
        /// The device.
        uri: String,
    },
}

impl From<HwError> for OpenError {
    fn from(error: HwError) -> Self {
        Self::Nvme(error.into())
    }
}

/// Why a channel could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The driver could not create its queues.
    #[error(transparent)]
    Nvme(#[from] nvme::Error),
    /// There is no DMA memory.
    #[error(transparent)]
    Hw(#[from] HwError),
    /// The depth is 0 or too large.
    #[error("depth {depth}: this device's queues allow 1 to {limit}")]
    Depth {
        /// The depth requested.
        depth: u16,
        /// The largest depth possible.
        limit: u16,
    },
    /// The device does not support the policy.
    #[error("{uri} cannot wait by {policy}: {why}")]
    Policy {
        /// The device.
        uri: String,
        /// The policy.
        policy: Policy,
        /// The reason, and a remedy.
        why: String,
    },
    /// A system call failed.
    #[error("{what} ({source})")]
    Kernel {
        /// What was attempted, and a remedy.
        what: &'static str,
        /// The kernel's error.
        source: std::io::Error,
    },
}

/// An I/O that failed in the device or on the way to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}: {kind}", what(*op, *lba))]
pub struct IoError {
    /// The operation.
    pub op: Op,
    /// First logical block of the request.
    pub lba: u64,
    /// The cause.
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

/// Why a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IoErrorKind {
    /// One of its NVMe commands failed. A kernel request that is given up is
    /// [`CommandError::TimedOut`], too.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// A comparison found different data. A compare-and-write has written nothing, according to the
    /// device.
    #[error("the data on the device differ from the expected data")]
    Miscompare,
    /// In a compare-and-write, the comparison failed, and the device performed or began the write,
    /// in violation of the specification.
    #[error(
        "the comparison failed, and the device still wrote: its compare-and-write is broken; read \
         what is there, and do not rely on it"
    )]
    Unfused,
    /// The operating system returned this errno. It has 16 bits, because every I/O moves a result.
    #[error("the kernel answered: {}", std::io::Error::from_raw_os_error(i32::from(*.0)))]
    Os(u16),
    /// The operating system transferred no data: the file has become shorter.
    #[error("the kernel reached the end of the file: was it truncated?")]
    EndOfFile,
}

impl IoErrorKind {
    /// An error of the operating system. `errno` is positive and below 4,096.
    pub fn os(errno: i32) -> Self {
        Self::Os(u16::try_from(errno).unwrap_or(libc::EIO as u16))
    }
}

impl From<Status> for IoErrorKind {
    fn from(status: Status) -> Self {
        Self::Command(CommandError::Status(status))
    }
}

/// Compares with an error of a command.
impl PartialEq<CommandError> for IoErrorKind {
    fn eq(&self, error: &CommandError) -> bool {
        *self == Self::Command(*error)
    }
}

// Every I/O moves a result, so its size matters.
const _: () = assert!(size_of::<IoErrorKind>() == 4 && size_of::<Result<u32, IoErrorKind>>() == 8);

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// Every slot is in use: the caller has to wait for a request first.
    #[error(
        "all {depth} requests of the channel are in flight: wait for one, or open the channel with \
         more depth"
    )]
    Full {
        /// The number of slots.
        depth: u16,
    },
    /// The request extends beyond the end of the namespace.
    #[error("{blocks} blocks at LBA {lba} reach beyond the namespace's {size} blocks")]
    OutOfRange {
        /// First logical block.
        lba: u64,
        /// Number of blocks.
        blocks: u64,
        /// Size of the namespace in blocks.
        size: u64,
    },
    /// The bytes of a [`write_at`](crate::BlockChannel::write_at) are not whole blocks.
    #[error(
        "a write of {bytes} bytes at offset {offset} covers blocks in part: both must be multiples \
         of {block_bytes}"
    )]
    Unaligned {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        bytes: usize,
        /// Logical block size.
        block_bytes: u32,
    },
    /// The buffer's length is not a positive multiple of the block size.
    #[error("a buffer of {bytes} bytes is no whole number of blocks of {block_bytes} bytes")]
    PartialBlock {
        /// Length of the buffer.
        bytes: usize,
        /// Logical block size.
        block_bytes: u32,
    },
    /// The buffer of a compare-and-write does not consist of two halves of whole blocks: the
    /// expected data and the new data.
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
    /// The device cannot compare and write this number of blocks atomically.
    #[error("a compare-and-write of {blocks} blocks: the device does at most {most} in one")]
    NotAtomic {
        /// Number of blocks requested.
        blocks: u64,
        /// The device's maximum.
        most: u32,
    },
    /// The buffer belongs to another device.
    #[error("the buffer was not allocated by this device: use its `alloc`")]
    ForeignBuffer,
    /// A read or write has no buffer, or another operation has one.
    #[error("a read or write needs a buffer, and nothing else takes one")]
    Buffer,
    /// The request has no blocks.
    #[error("the request covers no blocks")]
    Empty,
    /// The device does not support the command.
    #[error("the device does not support {0}")]
    Unsupported(&'static str),
    /// The policy needs an interrupt vector and the channel has none.
    #[error(
        "the channel has no interrupt vector: use a polled policy, or open it with `interrupt` set"
    )]
    NoInterrupt,
    /// The device is read-only.
    #[error("the device cannot be written: {0}")]
    ReadOnly(String),
    /// The channel cannot wait by this policy.
    #[error("the channel cannot wait by {policy}: {why}")]
    CannotWait {
        /// The policy.
        policy: Policy,
        /// The reason, and a remedy.
        why: String,
    },
    /// The device is gone, or its queue is lost.
    #[error("the device cannot take requests: {0}")]
    Lost(String),
}

/// Why a synchronous request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// It was refused.
    #[error(transparent)]
    Refused(#[from] SubmitError),
    /// It failed.
    #[error(transparent)]
    Failed(#[from] IoError),
    /// There is no memory for its data that the device can reach.
    #[error("no memory for the data: {0}")]
    Memory(String),
    /// The device is gone and may still write to the buffer, which is lost.
    #[error("the device is gone, and the buffer had to be given up")]
    Quarantined,
}
