//! A device of whatever kind its URI names.

use std::sync::Arc;
use std::task::Waker;

use super::channel::{ChannelCounters, NvmeChannel};
use super::device::{BlockDevice, BlockInfo, ChannelError, ChannelOptions, NvmeDevice};
use super::error::{Rejected, SubmitError};
use super::kernel::{KernelChannel, KernelDevice};
use super::probe::Probe;
use super::request::{BlockChannel, Done, Request, Ticket};
use super::stamps::StampSource;
use meantime_completion::adaptive::Estimate;
use meantime_completion::{DeferError, Deferred, Policy};
use meantime_hw::{DmaBuf, DmaHeap, EventFd, HwError};

/// A block device. Matched once, outside of the loop, its kinds cost nothing; used as it is, a
/// predictable branch.
pub enum Device {
    /// Behind our own driver.
    Nvme(NvmeDevice),
    /// The kernel's.
    Kernel(KernelDevice),
}

/// A channel to a [`Device`].
// A channel is long-lived, and there are few: the unused room does no harm, an indirection would.
#[allow(clippy::large_enum_variant)]
pub enum Channel {
    /// Of our own driver.
    Nvme(NvmeChannel),
    /// Of the kernel.
    Kernel(KernelChannel),
}

impl Device {
    /// The device behind our own driver, if it is one.
    pub fn as_nvme(&self) -> Option<&NvmeDevice> {
        match self {
            Self::Nvme(device) => Some(device),
            Self::Kernel(_) => None,
        }
    }

    /// Why nothing can be written to it, if that is known: e.g. the kernel has mounted it.
    pub fn read_only(&self) -> Option<&str> {
        match self {
            Self::Nvme(device) => device.read_only(),
            Self::Kernel(device) => device.read_only(),
        }
    }

    /// Memory that the device can reach.
    pub fn heap(&self) -> &DmaHeap {
        match self {
            Self::Nvme(device) => device.heap(),
            Self::Kernel(device) => device.heap(),
        }
    }
}

impl BlockDevice for Device {
    type Channel = Channel;

    fn info(&self) -> &BlockInfo {
        match self {
            Self::Nvme(device) => device.info(),
            Self::Kernel(device) => device.info(),
        }
    }

    fn can_wait(&self, policy: Policy) -> Result<(), ChannelError> {
        match self {
            Self::Nvme(device) => device.can_wait(policy),
            Self::Kernel(device) => device.can_wait(policy),
        }
    }

    fn channel(&self, options: &ChannelOptions) -> Result<Channel, ChannelError> {
        match self {
            Self::Nvme(device) => device.channel(options).map(Channel::Nvme),
            Self::Kernel(device) => device.channel(options).map(Channel::Kernel),
        }
    }

    fn stamps(&self) -> Option<Arc<dyn StampSource>> {
        match self {
            Self::Nvme(device) => device.stamps(),
            Self::Kernel(device) => device.stamps(),
        }
    }
}

impl Channel {
    /// What the driver has counted; of the kernel's, only what was done in the gaps.
    pub fn counters(&self) -> ChannelCounters {
        match self {
            Self::Nvme(channel) => channel.counters(),
            Self::Kernel(channel) => {
                ChannelCounters { work: channel.work_counters(), ..ChannelCounters::default() }
            }
        }
    }
}

impl Channel {
    /// What the channel's policy goes by at present; `None` if it does not estimate.
    pub fn estimate(&self) -> Option<Estimate> {
        match self {
            Self::Nvme(channel) => channel.estimate(),
            Self::Kernel(_) => None,
        }
    }
}

macro_rules! each {
    ($self:ident, $channel:ident => $call:expr) => {
        match $self {
            Self::Nvme($channel) => $call,
            Self::Kernel($channel) => $call,
        }
    };
}

impl BlockChannel for Channel {
    fn info(&self) -> &BlockInfo {
        each!(self, channel => channel.info())
    }

    fn alloc(&self, bytes: usize) -> Result<DmaBuf, HwError> {
        each!(self, channel => channel.alloc(bytes))
    }

    #[inline]
    fn submit(&mut self, request: Request) -> Result<Ticket, Rejected> {
        each!(self, channel => channel.submit(request))
    }

    #[inline]
    fn enqueue(&mut self, request: Request) -> Result<(), Rejected> {
        each!(self, channel => channel.enqueue(request))
    }

    #[inline]
    fn plug(&mut self) {
        each!(self, channel => channel.plug());
    }

    #[inline]
    fn unplug(&mut self) {
        each!(self, channel => channel.unplug());
    }

    #[inline]
    fn poll(&mut self) -> usize {
        each!(self, channel => channel.poll())
    }

    #[inline]
    fn wait(&mut self, ticket: Ticket) -> Done {
        each!(self, channel => channel.wait(ticket))
    }

    #[inline]
    fn wait_probed<P: Probe>(&mut self, ticket: Ticket, probe: &P) -> Done {
        each!(self, channel => channel.wait_probed(ticket, probe))
    }

    fn try_take(&mut self, ticket: Ticket) -> Result<Done, Ticket> {
        each!(self, channel => channel.try_take(ticket))
    }

    fn detach(&mut self, ticket: Ticket) {
        each!(self, channel => channel.detach(ticket));
    }

    #[inline]
    fn next_done(&mut self) -> Option<Done> {
        each!(self, channel => channel.next_done())
    }

    #[inline]
    fn wait_done(&mut self) -> Option<Done> {
        each!(self, channel => channel.wait_done())
    }

    #[inline]
    fn wait_until(&mut self, stop: &dyn Fn() -> bool) {
        each!(self, channel => channel.wait_until(stop))
    }

    fn event(&self) -> Option<EventFd> {
        each!(self, channel => channel.event())
    }

    fn in_flight(&self) -> usize {
        each!(self, channel => channel.in_flight())
    }

    fn depth(&self) -> u16 {
        each!(self, channel => channel.depth())
    }

    fn policy(&self) -> Policy {
        each!(self, channel => channel.policy())
    }

    fn set_policy(&mut self, policy: Policy) -> Result<(), SubmitError> {
        each!(self, channel => channel.set_policy(policy))
    }
    fn defer(&mut self, work: Box<dyn Deferred>) -> Result<(), DeferError> {
        each!(self, channel => channel.defer(work))
    }

    fn run_deferred(&mut self, budget_ns: u64) -> usize {
        each!(self, channel => channel.run_deferred(budget_ns))
    }

    fn deferred(&self) -> usize {
        each!(self, channel => channel.deferred())
    }

    fn gap_left_ns(&mut self) -> Option<u64> {
        each!(self, channel => channel.gap_left_ns())
    }

    fn wake_for_deferred(&mut self, waker: Option<Waker>) {
        each!(self, channel => channel.wake_for_deferred(waker));
    }
}
