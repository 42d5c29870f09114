//! A device of either kind.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::channel::{ChannelCounters, NvmeChannel};
use super::device::{BlockChannel, BlockDevice, BlockInfo, ChannelOptions};
use super::error::{ChannelError, SubmitError};
use super::group::GroupChannel;
use super::kernel::{KernelChannel, KernelDevice};
use super::nvme_device::NvmeDevice;
use super::probe::Probe;
use super::request::{Done, Rejected, Request, Ticket};
use super::stamps::StampSource;
use meantime_completion::adaptive::Estimate;
use meantime_completion::waiter::Rest;
use meantime_completion::{OffQueue, Policy};
use meantime_hw::{DmaBuf, DmaHeap, EventFd, HwError};

/// A block device; a clone is the same device. Matching it once, outside of the loop, makes its
/// kinds free; otherwise each use costs a predictable branch.
#[derive(Clone)]
pub enum Device {
    /// Driven by Meantime's own driver.
    Nvme(NvmeDevice),
    /// Driven by the kernel.
    Kernel(KernelDevice),
}

/// A channel to a [`Device`].
// A channel is long-lived, and there are few: the unused space is harmless, an indirection would
// not be.
#[allow(clippy::large_enum_variant)]
pub enum Channel {
    /// Of Meantime's own driver.
    Nvme(NvmeChannel),
    /// Of the kernel.
    Kernel(KernelChannel),
}

/// Runs the same expression on either kind.
macro_rules! either {
    ($this:expr, $kind:ident => $action:expr) => {
        match $this {
            Self::Nvme($kind) => $action,
            Self::Kernel($kind) => $action,
        }
    };
}

impl Device {
    /// The NVMe device, if it is one.
    pub fn as_nvme(&self) -> Option<&NvmeDevice> {
        match self {
            Self::Nvme(device) => Some(device),
            Self::Kernel(_) => None,
        }
    }

    /// A part of the device as a device, named `uri`; `None` if it does not have all of the blocks.
    pub(super) fn part_of(self, uri: String, first_lba: u64, blocks: u64) -> Option<Self> {
        match self {
            Self::Nvme(device) => device.part_of(uri, first_lba, blocks).map(Self::Nvme),
            Self::Kernel(device) => device.part_of(uri, first_lba, blocks).map(Self::Kernel),
        }
    }

    /// The same for reading only, for the reason `why`.
    pub(super) fn with_read_only(self, why: String) -> Self {
        match self {
            Self::Nvme(device) => Self::Nvme(device.with_read_only(Some(why))),
            Self::Kernel(device) => Self::Kernel(device.with_read_only(why)),
        }
    }

    /// Why it cannot be written, if known: e.g. the kernel has mounted it.
    pub fn read_only(&self) -> Option<&str> {
        either!(self, device => device.read_only())
    }

    /// The heap of memory that the device can reach.
    pub fn heap(&self) -> &DmaHeap {
        either!(self, device => device.heap())
    }
}

impl BlockDevice for Device {
    type Channel = Channel;

    fn info(&self) -> &BlockInfo {
        either!(self, device => device.info())
    }

    fn can_wait(&self, policy: Policy) -> Result<(), ChannelError> {
        either!(self, device => device.can_wait(policy))
    }

    fn channel(&self, options: &ChannelOptions) -> Result<Channel, ChannelError> {
        match self {
            Self::Nvme(device) => device.channel(options).map(Channel::Nvme),
            Self::Kernel(device) => device.channel(options).map(Channel::Kernel),
        }
    }

    fn stamps(&self) -> Option<Arc<dyn StampSource>> {
        either!(self, device => device.stamps())
    }
}

impl Channel {
    /// The counters of the driver; all 0 for a kernel channel.
    pub fn counters(&self) -> ChannelCounters {
        match self {
            Self::Nvme(channel) => channel.counters(),
            Self::Kernel(_) => ChannelCounters::default(),
        }
    }

    /// How often the device may have lost completed but unflushed writes since it was opened; 0 if
    /// the kernel drives it. A flush for writes of other channels too means nothing if this has
    /// changed since: each channel is told of a loss only once, by the failure of its next flush.
    pub fn cache_losses(&self) -> u32 {
        match self {
            Self::Nvme(channel) => channel.cache_losses(),
            Self::Kernel(_) => 0,
        }
    }

    /// As [`NvmeChannel::wait_probed`]; a kernel channel never calls the probe.
    #[inline]
    pub fn wait_probed<P: Probe>(&mut self, ticket: Ticket, probe: &P) -> Done {
        match self {
            Self::Nvme(channel) => channel.wait_probed(ticket, probe),
            Self::Kernel(channel) => channel.wait(ticket),
        }
    }

    /// The current estimate of the channel's policy; `None` if it does not estimate.
    pub fn estimate(&self) -> Option<Estimate> {
        match self {
            Self::Nvme(channel) => channel.estimate(),
            Self::Kernel(_) => None,
        }
    }
}

/// The functions of a [`BlockChannel`], or of its [`GroupChannel`], that forwards them: `$shared!`
/// and `$unique!` make an expression of `self`, which is borrowed in that way, and the call.
#[doc(hidden)]
#[macro_export]
macro_rules! forward_channel {
    (group $shared:ident, $unique:ident) => {
        $crate::forward_channel! { $shared &self:
            fn descriptor() -> Option<BorrowedFd<'_>>;
        }
        $crate::forward_channel! { $unique &mut self:
            fn poll_in_group(off_queue: Option<OffQueue>) -> usize;
            fn rest() -> Rest;
        }
    };
    ($shared:ident, $unique:ident) => {
        $crate::forward_channel! { $shared &self:
            fn info() -> &BlockInfo;
            fn alloc(bytes: usize) -> Result<DmaBuf, HwError>;
            fn event() -> Option<EventFd>;
            fn in_flight() -> usize;
            fn depth() -> u16;
            fn policy() -> Policy;
        }
        $crate::forward_channel! { $unique &mut self:
            fn submit(request: Request) -> Result<Ticket, Rejected>;
            fn enqueue(request: Request) -> Result<(), Rejected>;
            fn plug();
            fn unplug();
            fn poll() -> usize;
            fn wait(ticket: Ticket) -> Done;
            fn try_take(ticket: Ticket) -> Result<Done, Ticket>;
            fn detach(ticket: Ticket);
            fn next_done() -> Option<Done>;
            fn wait_done() -> Option<Done>;
            fn wait_until(stop: &dyn Fn() -> bool);
            fn set_policy(policy: Policy) -> Result<(), SubmitError>;
            fn gap_left_ns() -> Option<u64>;
        }
    };
    ($to:ident &$this:ident: $(fn $name:ident($($arg:ident: $of:ty)?) -> $out:ty;)*) => {$(
        #[inline]
        fn $name(&$this $(, $arg: $of)?) -> $out {
            $to!($this.$name($($arg)?))
        }
    )*};
    ($to:ident &mut $this:ident: $(fn $name:ident($($arg:ident: $of:ty)?) $(-> $out:ty)?;)*) => {$(
        #[inline]
        fn $name(&mut $this $(, $arg: $of)?) $(-> $out)? {
            $to!($this.$name($($arg)?))
        }
    )*};
}

/// The call of the channel of either kind.
macro_rules! of_either {
    ($this:ident.$($call:tt)+) => { either!($this, channel => channel.$($call)+) };
}

impl BlockChannel for Channel {
    forward_channel!(of_either, of_either);
}

impl GroupChannel for Channel {
    forward_channel!(group of_either, of_either);
}
