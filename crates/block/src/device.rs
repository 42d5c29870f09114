//! Block devices: what they are, and how to get a channel to one.

use std::sync::Arc;

use super::channel::NvmeChannel;
use super::request::BlockChannel;
use super::stamps::StampSource;
use meantime_completion::Policy;
use meantime_hw::{DmaHeap, HwError, IoPriority};
use meantime_nvme::{Controller, Error, NamespaceInfo, QueueClass};

/// What a block device is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockInfo {
    /// The device's name, as it was opened.
    pub uri: String,
    /// Logical block size in bytes.
    pub block_bytes: u32,
    /// Size in logical blocks.
    pub blocks: u64,
    /// The most data that goes to the device in one command, in bytes; larger requests are split.
    pub max_transfer_bytes: u32,
    /// The most blocks of a compare-and-write
    /// ([`Request::compare_and_write`](super::Request::compare_and_write)); 0 if the device has
    /// none.
    pub compare_write_blocks: u32,
    /// Whether done writes may be lost by a power cut until they are flushed.
    pub volatile_write_cache: bool,
    /// What is at the bottom, in a few words. Figures of different media are not those of different
    /// software.
    pub medium: String,
}

impl BlockInfo {
    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks * u64::from(self.block_bytes)
    }
}

/// What a channel is to be.
#[derive(Debug, Clone, Copy)]
pub struct ChannelOptions {
    /// How many requests can be under way: from 1 to two less than the controller's queues have
    /// entries, and at most 1,023.
    pub depth: u16,
    /// The way to wait, for requests that name none.
    pub policy: Policy,
    /// Whether to have a queue with an interrupt beside the polled one. `None`: if the policy needs
    /// it.
    pub interrupt: Option<bool>,
    /// The class of its queues, if the controller goes by that; `None`: by the calling thread's I/O
    /// priority (`ioprio_set(2)`).
    pub class: Option<QueueClass>,
}

impl Default for ChannelOptions {
    fn default() -> Self {
        Self { depth: 32, policy: Policy::Poll, interrupt: None, class: None }
    }
}

/// Slots of a queue for the parts of split requests.
const PART_SLOTS: u16 = 32;

/// Why there is no channel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChannelError {
    /// The driver could not make its queues.
    #[error(transparent)]
    Nvme(#[from] Error),
    /// No memory.
    #[error(transparent)]
    Hw(#[from] HwError),
    /// The depth is 0 or too large.
    #[error("a depth of {depth} is not possible: from 1 to {limit} is")]
    Depth {
        /// What was asked for.
        depth: u16,
        /// The largest possible.
        limit: u16,
    },
    /// The device cannot be waited for like that.
    #[error("{uri} cannot wait by {policy}: {why}")]
    Policy {
        /// The device.
        uri: String,
        /// The policy.
        policy: Policy,
        /// Why, and what would help.
        why: String,
    },
    /// The kernel refused something.
    #[error("{what} ({source})")]
    Kernel {
        /// What it was, and what would help.
        what: &'static str,
        /// The kernel's error.
        source: std::io::Error,
    },
}

/// Something that stores blocks. Channels to it are made per thread.
pub trait BlockDevice: Send + Sync {
    /// The way of one thread to the device.
    type Channel: BlockChannel;

    /// What the device is.
    fn info(&self) -> &BlockInfo;

    /// Whether its I/O can be waited for by `policy`.
    ///
    /// # Errors
    /// [`ChannelError::Policy`], with the reason.
    fn can_wait(&self, policy: Policy) -> Result<(), ChannelError>;

    /// The way to wait where none is asked for: `poll` if the device can be waited for so, else
    /// `interrupt`.
    fn usual_policy(&self) -> Policy {
        let polls = self.can_wait(Policy::Poll).is_ok();
        if polls { Policy::Poll } else { Policy::Interrupt }
    }

    /// A channel for the calling thread.
    ///
    /// # Errors
    /// No queue or vector left, no memory, device gone; a policy it cannot be waited for by.
    fn channel(&self, options: &ChannelOptions) -> Result<Self::Channel, ChannelError>;

    /// The device's own time stamps, if it takes any ([`OpenOptions::stamps`](super::OpenOptions)).
    fn stamps(&self) -> Option<Arc<dyn StampSource>> {
        None
    }
}

/// A namespace of an NVMe controller.
pub struct NvmeDevice {
    controller: Arc<Controller>,
    ns: NamespaceInfo,
    info: BlockInfo,
    stamps: Option<Arc<dyn StampSource>>,
    read_only: Option<String>,
}

impl NvmeDevice {
    /// Namespace `nsid` of `controller`, known to people as `uri`.
    ///
    /// # Errors
    /// [`Error::NoNamespace`].
    pub fn new(controller: Arc<Controller>, nsid: u32, uri: String) -> Result<Self, Error> {
        let ns = controller.namespace(nsid)?;
        let info = BlockInfo {
            uri,
            block_bytes: ns.block_bytes(),
            blocks: ns.blocks,
            max_transfer_bytes: ns.max_blocks << ns.block_shift,
            compare_write_blocks: ns.compare_write_blocks,
            volatile_write_cache: controller.info().volatile_write_cache,
            medium: controller.info().model.clone(),
        };
        Ok(Self { controller, ns, info, stamps: None, read_only: None })
    }

    /// With the device's own time stamps.
    #[must_use]
    pub fn with_stamps(mut self, stamps: Option<Arc<dyn StampSource>>) -> Self {
        self.stamps = stamps;
        self
    }

    /// The same, with other words for what is at the bottom than the controller's model number.
    pub fn with_medium(mut self, medium: String) -> Self {
        self.info.medium = medium;
        self
    }

    /// The same, to which nothing can be written, because of `why`.
    #[must_use]
    pub fn with_read_only(mut self, why: Option<String>) -> Self {
        self.read_only = why;
        self
    }

    /// Why nothing can be written, if that is known.
    pub fn read_only(&self) -> Option<&str> {
        self.read_only.as_deref()
    }

    /// The controller.
    pub fn controller(&self) -> &Arc<Controller> {
        &self.controller
    }

    /// The namespace.
    pub fn namespace(&self) -> &NamespaceInfo {
        &self.ns
    }

    /// Memory that the device can reach.
    pub fn heap(&self) -> &DmaHeap {
        self.controller.heap()
    }
}

impl BlockDevice for NvmeDevice {
    type Channel = NvmeChannel;

    fn info(&self) -> &BlockInfo {
        &self.info
    }

    fn can_wait(&self, policy: Policy) -> Result<(), ChannelError> {
        let vectors = self.controller.info().vectors;
        if policy.wants_interrupt() && vectors == 0 {
            return Err(Error::NoVector { vectors }.into());
        }
        Ok(())
    }

    fn channel(&self, options: &ChannelOptions) -> Result<NvmeChannel, ChannelError> {
        // A slot for each request, so that one which is one command finds it by its own index, and
        // at least one for the parts of requests that are split.
        let limit = self.controller.max_queue_entries() - 1;
        let assigned = options.depth;
        if assigned == 0 || assigned >= limit {
            return Err(ChannelError::Depth { depth: assigned, limit: limit - 1 });
        }
        let slots = (assigned + PART_SLOTS).min(limit);
        let class = options.class.unwrap_or_else(|| QueueClass::of(IoPriority::of_this_thread()));
        let polled = self.controller.create_io_queue(slots, assigned, false, class)?;
        let wanted = options.interrupt.unwrap_or(options.policy.may_interrupt());
        let needed = options.interrupt == Some(true) || options.policy.wants_interrupt();
        let queue = wanted.then(|| self.controller.create_io_queue(slots, assigned, true, class));
        let interrupt = match queue.transpose() {
            // It would use one, and does without.
            Err(error) if !needed => {
                tracing::warn!(
                    %error,
                    policy = %options.policy,
                    "no queue with an interrupt: this policy polls instead"
                );
                None
            }
            queue => queue?,
        };
        if options.policy.wants_interrupt() && interrupt.is_none() {
            return Err(Error::NoVector { vectors: self.controller.info().vectors }.into());
        }
        Ok(NvmeChannel::new(
            self.info.clone(),
            self.ns,
            polled,
            interrupt,
            options.depth,
            options.policy,
        ))
    }

    fn stamps(&self) -> Option<Arc<dyn StampSource>> {
        self.stamps.clone()
    }
}

impl From<HwError> for super::OpenError {
    fn from(error: HwError) -> Self {
        Self::Nvme(error.into())
    }
}
