//! The kernel's own block stack as a [`BlockDevice`]: for comparison, and for devices that must
//! stay with it.
//!
//! `kernel:/dev/nvme0n1` or `kernel:/path/file` is driven by io_uring or `preadv2`;
//! `kernel:/dev/ng0n1`, the kernel's NVMe driver without the block layer, by io_uring. A policy
//! maps to what the kernel offers: `interrupt` is its default, `poll` its IOPOLL, `hybrid-min` its
//! HYBRID_IOPOLL. `adaptive` chooses between the first two for each transfer, where both are
//! available. Any other policy is an error with the reason.

mod channel;
mod controller;
mod file;
mod io;
mod namespace;
mod passthrough;
mod policies;
mod rings;
mod shared;
mod state;

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::sync::{Arc, OnceLock};

pub use self::channel::KernelChannel;
use self::controller::KernelController;
use self::file::KernelFile;
use self::shared::Shared;
use super::device::{BlockDevice, BlockInfo, ChannelOptions};
use super::error::{ChannelError, OpenError};
use super::options::OpenOptions;
use super::uri::KernelUri;
use meantime_completion::Policy;
use meantime_hw::uring::KernelMemory;
use meantime_hw::{DmaHeap, DmaMap};
use meantime_nvme::{AdminQueries, Error};

/// What answers queries, and the identifier of a namespace.
type OfNamespace = (Arc<dyn AdminQueries>, u32);

/// A file, a block device or an NVMe namespace's character device of the kernel, or a part of it. A
/// clone is the same device.
#[derive(Clone)]
pub struct KernelDevice {
    shared: Arc<Shared>,
    info: BlockInfo,
    /// Where its first block is in the file.
    first_byte: u64,
    /// Why this process should not write it, although it could.
    protected: Option<String>,
}

impl KernelDevice {
    pub(super) fn open(
        uri: &str,
        path: &std::path::Path,
        kernel: KernelUri,
        options: &OpenOptions,
    ) -> Result<Self, OpenError> {
        let there = std::fs::metadata(path);
        let file = match &there {
            Ok(meta) if meta.file_type().is_char_device() => {
                passthrough::open(uri, path, meta.rdev(), &kernel, options.access)
            }
            _ => KernelFile::open(uri, path, there, &kernel, options.access),
        }?;
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
        Ok(Self { shared: Arc::new(shared), info, first_byte: 0, protected: None })
    }

    /// A part of the device as a device, as `NvmeDevice::part_of`.
    pub(super) fn part_of(mut self, uri: String, first_lba: u64, blocks: u64) -> Option<Self> {
        let has_all = blocks > 0 && first_lba.checked_add(blocks)? <= self.info.blocks;
        if !has_all {
            return None;
        }
        self.first_byte += first_lba * u64::from(self.info.block_bytes);
        (self.info.uri, self.info.blocks) = (uri, blocks);
        Some(self)
    }

    /// The same for reading only, for the reason `why`.
    pub(super) fn with_read_only(self, why: String) -> Self {
        Self { protected: Some(why), ..self }
    }

    /// The heap of memory for I/O by the kernel.
    pub fn heap(&self) -> &DmaHeap {
        &self.shared.heap
    }

    /// The reason why it cannot be written, if there is one.
    pub fn read_only(&self) -> Option<&str> {
        self.protected.as_deref().or(self.shared.file.read_only.as_deref())
    }

    /// The controller, and the identifier of its namespace, if the kernel's NVMe driver has it.
    /// `None` for another driver's device, and for a file.
    pub(super) fn controller(&self) -> Result<Option<OfNamespace>, Error> {
        let of = KernelController::of(&self.shared.file)?;
        Ok(of.map(|(controller, nsid)| (Arc::new(controller) as _, nsid)))
    }

    /// Whether a part of the `bytes` from `offset_bytes` was never written. The file system answers
    /// reads of such a part without the disk.
    pub fn has_holes(&self, offset_bytes: u64, bytes: u64) -> bool {
        self.shared.file.has_holes(self.first_byte.saturating_add(offset_bytes), bytes)
    }

    /// Whether opening it created the file.
    pub fn was_created(&self) -> bool {
        self.shared.file.was_created()
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
        self.can_wait(options.policy.unwrap_or_default())?;
        let shared = Arc::clone(&self.shared);
        let (info, first_byte) = (self.info.clone(), self.first_byte);
        KernelChannel::new(info, first_byte, shared, options.depth, options.policy)
    }
}
