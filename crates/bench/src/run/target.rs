//! The target of a job's I/O: a device, or a file in a device's file system.

use meantime_block::{
    BlockChannel as _, BlockDevice, BlockInfo, Channel, ChannelCounters, ChannelError,
    ChannelOptions, Device, KernelDevice, NvmeDevice,
};
use meantime_completion::Policy;
use meantime_ext4::{Advice, CommitOverlap, FileChannel, FileDevice, Overlap};
use meantime_hw::HwError;

use crate::engine::Slots;

/// The target that a job requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The URI as the user wrote it.
    pub uri: String,
    /// The device's own URI.
    pub device: String,
    /// The file in its file system, if one is named, and how it is used.
    pub file: Option<(std::path::PathBuf, HowUsed)>,
}

/// The use of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HowUsed {
    /// Whether to bypass the page cache.
    pub direct: bool,
    /// The steps that run while the device works.
    pub overlap: Overlap,
    /// Size of the page cache.
    pub cache_bytes: usize,
    /// The advice on future reads.
    pub advice: Advice,
    /// Whether to time what reads could leave for the gap.
    pub times_deferrable: bool,
    /// The options for writing it, if it is written.
    pub written: Option<HowWritten>,
}

/// The options for writing a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HowWritten {
    /// The options for mounting its file system.
    pub mount: MountedToWrite,
    /// Whether a flush makes durable only the data, and the metadata needed to find them.
    pub data_only: bool,
    /// The file may grow to this size.
    pub grows_to_bytes: u64,
}

/// The options for mounting a file system for writing. They apply to all its files in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountedToWrite {
    /// The waits of a commit that are moved from their classic places.
    pub commit_overlap: CommitOverlap,
    /// Whether there are fast commits.
    pub fast_commit: bool,
    /// The policy by which commits and writebacks wait.
    pub policy: Policy,
}

impl Wanted {
    /// Returns the target of a device.
    pub fn device(uri: &str) -> Self {
        Self { uri: uri.to_owned(), device: uri.to_owned(), file: None }
    }
}

/// An open target.
pub(crate) enum Target {
    /// A device.
    Device(Device),
    /// A file.
    File(FileDevice),
}

/// A thread's channel to a target. The loop is chosen by its kind, once for each turn.
// There are few of these, and each lives long, so the unused space does no harm.
#[allow(clippy::large_enum_variant)]
pub(crate) enum TargetChannel {
    /// To a device.
    Device(Channel),
    /// To a file.
    File(FileChannel),
}

impl Target {
    /// Returns the target's properties.
    pub(crate) fn info(&self) -> &BlockInfo {
        match self {
            Self::Device(device) => device.info(),
            Self::File(file) => file.info(),
        }
    }

    /// Checks that its I/O can wait by `policy`.
    ///
    /// # Errors
    /// Returns [`ChannelError::Policy`], with the reason.
    pub(crate) fn can_wait(&self, policy: Policy) -> Result<(), ChannelError> {
        match self {
            Self::Device(device) => device.can_wait(policy),
            Self::File(file) => file.can_wait(policy),
        }
    }

    /// Creates a channel for one thread.
    ///
    /// # Errors
    /// Returns [`ChannelError`] if the device cannot open another channel with these options.
    pub(crate) fn channel(&self, options: &ChannelOptions) -> Result<TargetChannel, ChannelError> {
        Ok(match self {
            Self::Device(device) => TargetChannel::Device(device.channel(options)?),
            Self::File(file) => TargetChannel::File(file.channel(options)?),
        })
    }

    /// Returns the device behind our own driver, if it is one.
    pub(crate) fn as_nvme(&self) -> Option<&NvmeDevice> {
        match self {
            Self::Device(device) => device.as_nvme(),
            Self::File(_) => None,
        }
    }

    /// Returns the kernel's device, if it is one.
    pub(crate) fn as_kernel(&self) -> Option<&KernelDevice> {
        match self {
            Self::Device(Device::Kernel(device)) => Some(device),
            _ => None,
        }
    }
}

impl TargetChannel {
    /// Returns the properties of its target.
    pub(crate) fn info(&self) -> &BlockInfo {
        match self {
            Self::Device(channel) => channel.info(),
            Self::File(channel) => channel.info(),
        }
    }

    /// Allocates buffers for I/O on it.
    ///
    /// # Errors
    /// Returns an error if there is no memory.
    pub(crate) fn slots(&self, depth: usize, bytes: usize) -> Result<Slots, HwError> {
        match self {
            Self::Device(channel) => Slots::new(channel, depth, bytes),
            Self::File(channel) => Slots::new(channel, depth, bytes),
        }
    }

    /// Returns the driver's counters, which are empty for a file.
    pub(crate) fn counters(&self) -> ChannelCounters {
        match self {
            Self::Device(channel) => channel.counters(),
            Self::File(_) => ChannelCounters::default(),
        }
    }
}
