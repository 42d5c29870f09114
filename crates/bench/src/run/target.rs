//! What a job does I/O on: a device, or a file in the file system of one.

use meantime_block::{
    BlockChannel as _, BlockDevice, BlockInfo, Channel, ChannelCounters, ChannelError,
    ChannelOptions, Device, KernelDevice, NvmeDevice,
};
use meantime_completion::Policy;
use meantime_ext4::{Advice, FileChannel, FileDevice, Overlap};
use meantime_hw::HwError;

use crate::engine::Slots;

/// What a job asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The URI as the user wrote it.
    pub uri: String,
    /// The device's own URI.
    pub device: String,
    /// The file in its file system, if one is named, and how it is read.
    pub file: Option<(std::path::PathBuf, HowRead)>,
}

/// How a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HowRead {
    /// Past the page cache.
    pub direct: bool,
    /// Which steps are taken while the device works.
    pub overlap: Overlap,
    /// Memory of the page cache.
    pub cache_bytes: usize,
    /// The advice on the reads to come.
    pub advice: Advice,
}

impl Wanted {
    /// A device.
    pub fn device(uri: &str) -> Self {
        Self { uri: uri.to_owned(), device: uri.to_owned(), file: None }
    }
}

/// What is opened of it.
pub(crate) enum Target {
    /// A device.
    Device(Device),
    /// A file.
    File(FileDevice),
}

/// A thread's channel to a target. The loop is chosen by its kind, once for each turn.
// There are few, and each lives long: the unused room does no harm.
#[allow(clippy::large_enum_variant)]
pub(crate) enum TargetChannel {
    /// To a device.
    Device(Channel),
    /// To a file.
    File(FileChannel),
}

impl Target {
    /// What it is.
    pub(crate) fn info(&self) -> &BlockInfo {
        match self {
            Self::Device(device) => device.info(),
            Self::File(file) => file.info(),
        }
    }

    /// Whether its I/O can be waited for by `policy`.
    ///
    /// # Errors
    /// [`ChannelError::Policy`], with the reason.
    pub(crate) fn can_wait(&self, policy: Policy) -> Result<(), ChannelError> {
        match self {
            Self::Device(device) => device.can_wait(policy),
            Self::File(file) => file.can_wait(policy),
        }
    }

    /// A channel for one thread.
    ///
    /// # Errors
    /// As [`BlockDevice::channel`].
    pub(crate) fn channel(&self, options: &ChannelOptions) -> Result<TargetChannel, ChannelError> {
        Ok(match self {
            Self::Device(device) => TargetChannel::Device(device.channel(options)?),
            Self::File(file) => TargetChannel::File(file.channel(options)?),
        })
    }

    /// The device behind our own driver, if it is one.
    pub(crate) fn as_nvme(&self) -> Option<&NvmeDevice> {
        match self {
            Self::Device(device) => device.as_nvme(),
            Self::File(_) => None,
        }
    }

    /// The kernel's device, if it is one.
    pub(crate) fn as_kernel(&self) -> Option<&KernelDevice> {
        match self {
            Self::Device(Device::Kernel(device)) => Some(device),
            _ => None,
        }
    }
}

impl TargetChannel {
    /// What it leads to.
    pub(crate) fn info(&self) -> &BlockInfo {
        match self {
            Self::Device(channel) => channel.info(),
            Self::File(channel) => channel.info(),
        }
    }

    /// Buffers for I/O on it.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn slots(&self, depth: usize, bytes: usize) -> Result<Slots, HwError> {
        match self {
            Self::Device(channel) => Slots::new(channel, depth, bytes),
            Self::File(channel) => Slots::new(channel, depth, bytes),
        }
    }

    /// What the driver has counted; of a file's, nothing.
    pub(crate) fn counters(&self) -> ChannelCounters {
        match self {
            Self::Device(channel) => channel.counters(),
            Self::File(_) => ChannelCounters::default(),
        }
    }
}
