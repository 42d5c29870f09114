//! A namespace of an NVMe controller as a block device.

use std::sync::Arc;

use super::channel::NvmeChannel;
use super::device::{BlockDevice, BlockInfo, ChannelOptions};
use super::error::ChannelError;
use super::stamps::StampSource;
use meantime_completion::Policy;
use meantime_hw::{DmaHeap, IoPriority};
use meantime_nvme::{Controller, Error, NamespaceInfo, QueueClass};

/// The slots of a queue for parts of split requests.
const PART_SLOTS: u16 = 32;

/// A namespace of an NVMe controller, or a part of it. A clone is the same device.
#[derive(Clone)]
pub struct NvmeDevice {
    controller: Arc<Controller>,
    ns: NamespaceInfo,
    info: BlockInfo,
    stamps: Option<Arc<dyn StampSource>>,
    read_only: Option<String>,
}

impl NvmeDevice {
    /// Namespace `nsid` of `controller`, with `uri` as its name.
    ///
    /// # Errors
    /// Returns [`Error::NoNamespace`].
    pub fn new(controller: Arc<Controller>, nsid: u32, uri: String) -> Result<Self, Error> {
        let ns = controller.namespace(nsid)?;
        let info = BlockInfo {
            uri,
            block_bytes: ns.block_bytes(),
            blocks: ns.blocks,
            max_transfer_bytes: ns.max_blocks << ns.block_shift,
            // Both commands of a fused pair are in the queue at once.
            compare_write_blocks: match controller.max_queue_entries() {
                ..=2 => 0,
                _ => ns.compare_write_blocks,
            },
            volatile_write_cache: controller.info().volatile_write_cache,
            medium: controller.info().model.clone(),
        };
        Ok(Self { controller, ns, info, stamps: None, read_only: None })
    }

    /// The largest depth of a channel: two less than the entries of the controller's queues, and at
    /// least 1. One entry tells a full queue from an empty one, and one is for parts of split
    /// requests.
    pub fn max_depth(&self) -> u16 {
        (self.controller.max_queue_entries() - 2).max(1)
    }

    /// Adds the device's own time stamps.
    #[must_use]
    pub fn with_stamps(mut self, stamps: Option<Arc<dyn StampSource>>) -> Self {
        self.stamps = stamps;
        self
    }

    /// A part of the device as a device: `blocks` logical blocks from `first_lba` on, with `uri` as
    /// its name. A flush still covers the whole namespace. `None` if the device does not have all
    /// of them.
    pub(super) fn part_of(mut self, uri: String, first_lba: u64, blocks: u64) -> Option<Self> {
        self.ns = self.ns.part_of(first_lba, blocks)?;
        (self.info.uri, self.info.blocks) = (uri, blocks);
        Some(self)
    }

    /// Replaces the description of the medium, which is the controller's model number by default.
    pub fn with_medium(mut self, medium: String) -> Self {
        self.info.medium = medium;
        self
    }

    /// Makes the device read-only, for the reason `why`.
    #[must_use]
    pub fn with_read_only(mut self, why: Option<String>) -> Self {
        self.read_only = why;
        self
    }

    /// The reason why it cannot be written, if known.
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

    /// The heap of memory that the device can reach.
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
        // There is a slot for each request, so that a one-command request finds it by its own
        // index, and some for the parts of split requests.
        let (assigned, limit) = (options.depth, self.max_depth());
        if assigned == 0 || assigned > limit {
            return Err(ChannelError::Depth { depth: assigned, limit });
        }
        let slots = (assigned + PART_SLOTS).min(self.controller.max_queue_entries() - 1);
        let class = options.class.unwrap_or_else(|| QueueClass::of(IoPriority::of_this_thread()));
        let polled = self.controller.create_io_queue(slots, assigned, false, class)?;
        let policy = options.policy.unwrap_or_default();
        let needed = options.interrupt == Some(true) || policy.wants_interrupt();
        let wanted = options.interrupt.unwrap_or_else(|| {
            // `adaptive` does not require an interrupt, so it leaves queues for other channels.
            policy.may_interrupt()
                && (policy.polls_instead() || self.controller.has_queues_to_spare())
        });
        let queue = wanted.then(|| self.controller.create_io_queue(slots, assigned, true, class));
        let interrupt = match queue.transpose() {
            // An interrupt is wanted but not required, so the channel does without.
            Err(error) if !needed => {
                if policy.polls_instead() {
                    tracing::warn!(
                        %error,
                        %policy,
                        "no queue with an interrupt: this policy polls instead"
                    );
                }
                None
            }
            queue => queue?,
        };
        if policy.wants_interrupt() && interrupt.is_none() {
            return Err(Error::NoVector { vectors: self.controller.info().vectors }.into());
        }
        let (depth, said) = (options.depth, options.policy);
        Ok(NvmeChannel::new(self.info.clone(), self.ns, polled, interrupt, depth, said))
    }

    fn stamps(&self) -> Option<Arc<dyn StampSource>> {
        self.stamps.clone()
    }
}
