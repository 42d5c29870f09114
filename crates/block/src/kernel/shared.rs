//! The state that the channels of a device of the kernel share.

use std::sync::{Arc, OnceLock};

use super::super::uri::KernelUri;
use super::file::KernelFile;
use meantime_hw::DmaHeap;
use meantime_hw::uring::KernelMemory;

/// The state shared by a device's channels.
pub(super) struct Shared {
    pub(super) file: KernelFile,
    pub(super) options: KernelUri,
    pub(super) memory: Arc<KernelMemory>,
    pub(super) heap: DmaHeap,
    pub(super) timeout_ns: u64,
    /// The result of the first attempt to poll.
    pub(super) polls: OnceLock<Result<(), String>>,
}
