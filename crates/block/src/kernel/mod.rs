//! The kernel's own block stack as a [`BlockDevice`]: for comparison, and for devices that must
//! stay with it.
//!
//! `kernel:/dev/nvme0n1` or `kernel:/path/file`, by io_uring or `preadv2`; `kernel:/dev/ng0n1`, its
//! NVMe driver without the block layer, by io_uring. A policy maps to what the kernel offers:
//! `interrupt` is its default, `poll` its IOPOLL, `hybrid-min` its HYBRID_IOPOLL. `adaptive` chooses
//! between the first two for each transfer, where both are to be had. Any other is an error with the
//! reason.

mod channel;
mod file;
mod io;
mod passthrough;
mod rings;
mod state;

use std::sync::{Arc, OnceLock};

pub use self::channel::KernelChannel;
use self::file::KernelFile;
use self::rings::Rings;
use super::device::{BlockDevice, BlockInfo, ChannelOptions};
use super::error::{ChannelError, OpenError};
use super::options::OpenOptions;
use super::uri::{KernelEngine, KernelUri};
use meantime_completion::{Goal, Policy};
use meantime_hw::uring::KernelMemory;
use meantime_hw::{DmaHeap, DmaMap};

/// A file, a block device or an NVMe namespace's character device of the kernel.
pub struct KernelDevice {
    shared: Arc<Shared>,
    info: BlockInfo,
}

/// The state shared by a device's channels.
struct Shared {
    file: KernelFile,
    options: KernelUri,
    memory: Arc<KernelMemory>,
    heap: DmaHeap,
    timeout_ns: u64,
    /// The result of the first attempt to poll.
    polls: OnceLock<Result<(), String>>,
}

impl KernelDevice {
    pub(super) fn open(
        uri: &str,
        path: &std::path::Path,
        kernel: KernelUri,
        options: &OpenOptions,
    ) -> Result<Self, OpenError> {
        let file = KernelFile::open(uri, path, &kernel, options.access)?;
        let info = BlockInfo {
            uri: uri.to_owned(),
            block_bytes: file.block_bytes,
            blocks: file.bytes / u64::from(file.block_bytes),
            // The kernel splits requests itself; this is the largest transfer of one call, rounded
            // down. It does not split NVMe commands.
            max_transfer_bytes: file.namespace.map_or(1 << 30, |space| space.command_bytes),
            compare_write_blocks: 0,
            volatile_write_cache: file.has_volatile_cache(),
            medium: file.medium.clone(),
        };
        let memory = Arc::new(KernelMemory::default());
        let heap = DmaHeap::new(Arc::clone(&memory) as Arc<dyn DmaMap>);
        let timeout_ns = options.controller.io_timeout_ns;
        let shared =
            Shared { file, options: kernel, memory, heap, timeout_ns, polls: OnceLock::new() };
        Ok(Self { shared: Arc::new(shared), info })
    }

    /// The heap of memory for I/O by the kernel.
    pub fn heap(&self) -> &DmaHeap {
        &self.shared.heap
    }

    /// Why it cannot be written, if so.
    pub fn read_only(&self) -> Option<&str> {
        self.shared.file.read_only.as_deref()
    }

    /// Whether a part of the `bytes` from `offset_bytes` was never written: the file system answers
    /// reads of it without the disk.
    pub fn has_holes(&self, offset_bytes: u64, bytes: u64) -> bool {
        self.shared.file.has_holes(offset_bytes, bytes)
    }

    /// Whether it takes NVMe commands, so that there is no block layer of the kernel in between.
    pub fn is_passthrough(&self) -> bool {
        self.shared.file.namespace.is_some()
    }

    /// Whether opening it created the file.
    pub fn was_created(&self) -> bool {
        self.shared.file.was_created()
    }
}

/// Whether `policy` is the rule of this name, which here means io_uring's `HYBRID_IOPOLL`.
fn is_hybrid_min(policy: Policy) -> bool {
    policy.rule().is_some_and(|rule| rule.name() == "hybrid-min")
}

/// Whether Linux once had such a policy, which was removed.
fn was_removed(policy: Policy) -> bool {
    matches!(policy, Policy::HybridFixed(_) | Policy::HybridHalfMean)
        || policy.rule().is_some_and(|rule| rule.name() == "hybrid-bucket")
}

impl Shared {
    /// Checks that the kernel can wait by `policy`. The error is the reason.
    fn can_wait(&self, policy: Policy) -> Result<(), String> {
        let polls = policy.is_poll() || is_hybrid_min(policy);
        match policy {
            Policy::Interrupt | Policy::Adaptive(Goal::Latency(_)) => Ok(()),
            _ if polls && self.options.engine == KernelEngine::Preadv2 => {
                let why = "Linux ignores RWF_HIPRI for synchronous I/O since 5.19";
                Err(format!("{why}; use engine=io_uring"))
            }
            Policy::Poll => self.polls.get_or_init(|| Rings::try_polling(self, policy)).clone(),
            _ if is_hybrid_min(policy) && self.file.namespace.is_some() => {
                Err("NVMe passthrough is not polled so here: use poll, or the block device \
                     (kernel:/dev/nvme0n1)"
                    .to_owned())
            }
            _ if is_hybrid_min(policy) => Rings::try_polling(self, policy),
            _ if was_removed(policy) => Err(
                "Linux has no such sleep before polling since 6.4 (io_poll_delay was removed); use \
                 hybrid-min, io_uring's own"
                    .to_owned(),
            ),
            _ => Err(format!(
                "the kernel decides how its own I/O is waited for, and has no {policy}: use \
                 adaptive, interrupt, poll or hybrid-min, or drive the device by a URI of our own driver"
            )),
        }
    }

    /// The policy of the ring beside the plain one that `policy` needs.
    fn polled(&self, policy: Policy) -> Option<Policy> {
        match policy {
            Policy::Interrupt => None,
            Policy::Adaptive(_) => Some(Policy::Poll).filter(|poll| self.can_wait(*poll).is_ok()),
            polled => Some(polled),
        }
    }

    fn check_policy(&self, uri: &str, policy: Policy) -> Result<(), ChannelError> {
        self.can_wait(policy).map_err(|why| ChannelError::Policy {
            uri: uri.to_owned(),
            policy,
            why,
        })
    }
}

impl BlockDevice for KernelDevice {
    type Channel = KernelChannel;

    fn info(&self) -> &BlockInfo {
        &self.info
    }

    fn can_wait(&self, policy: Policy) -> Result<(), ChannelError> {
        self.shared.check_policy(&self.info.uri, policy)
    }

    fn channel(&self, options: &ChannelOptions) -> Result<KernelChannel, ChannelError> {
        let policy = options.policy.unwrap_or_default();
        self.can_wait(policy)?;
        KernelChannel::new(self.info.clone(), Arc::clone(&self.shared), options.depth, policy)
    }
}
