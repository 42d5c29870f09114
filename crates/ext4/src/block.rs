//! A file as a block device, for programs that measure or copy devices.

use std::collections::VecDeque;
use std::sync::Arc;

use super::error::Error;
use super::file::File;
use super::options::ReadOptions;
use meantime_block::{
    BlockChannel, BlockDevice, BlockInfo, ChannelError, ChannelOptions, Done, IoError, IoErrorKind,
    Rejected, Request, RequestError, SubmitError, Ticket,
};
use meantime_completion::Policy;
use meantime_hw::{DmaBuf, DmaHeap, HwError};
use meantime_nvme::Op;

/// The most requests that a [`FileChannel`] holds.
const DEPTH_MAX: u16 = 1023;

/// The largest read, in bytes.
const TRANSFER_BYTES: u32 = 1 << 20;

/// How a file is read as a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileDeviceOptions {
    /// Reads past the page cache (O_DIRECT).
    pub direct: bool,
    /// The logical block size in bytes: a power of two from 512 to 65,536. A partial block at the
    /// file's end is not visible.
    pub block_bytes: u32,
    /// The device's name; `None`: the underlying device's name and the inode's number.
    pub name: Option<String>,
}

impl Default for FileDeviceOptions {
    fn default() -> Self {
        Self { direct: false, block_bytes: 512, name: None }
    }
}

/// A file of a mounted file system as a block device for reading.
pub struct FileDevice {
    file: Arc<File>,
    direct: bool,
    info: BlockInfo,
}

/// A channel of a [`FileDevice`]. It executes requests one at a time, when the caller waits or
/// polls, as `pread` does.
pub struct FileChannel {
    file: Arc<File>,
    direct: bool,
    info: BlockInfo,
    heap: DmaHeap,
    policy: Policy,
    slots: Box<[Slot]>,
    free: Vec<u16>,
    /// Requests still to be read, oldest first.
    waiting: VecDeque<u16>,
    /// Completed requests without a ticket.
    ended: VecDeque<u16>,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    request: Option<Request>,
    done: Option<Done>,
    /// The request has no ticket.
    queued: bool,
    /// The caller has given up the request.
    detached: bool,
}

impl FileDevice {
    /// Creates a device of `file`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the block size is invalid.
    pub fn new(file: File, options: FileDeviceOptions) -> Result<Self, Error> {
        let FileDeviceOptions { direct, block_bytes, name } = options;
        if !block_bytes.is_power_of_two() || !(512..=65_536).contains(&block_bytes) {
            return Err(Error::Invalid("a block size is a power of two from 512 to 65536 bytes"));
        }
        let device = file.device().info();
        let info = BlockInfo {
            uri: name.unwrap_or_else(|| format!("{}:<{}>", device.uri, file.node().ino())),
            block_bytes,
            blocks: file.size() / u64::from(block_bytes),
            max_transfer_bytes: TRANSFER_BYTES,
            compare_write_blocks: 0,
            volatile_write_cache: false,
            medium: format!("ext4 on {}", device.medium),
        };
        Ok(Self { file: Arc::new(file), direct, info })
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The heap for its buffers.
    pub fn heap(&self) -> &DmaHeap {
        self.file.device().heap()
    }
}

impl BlockDevice for FileDevice {
    type Channel = FileChannel;

    fn info(&self) -> &BlockInfo {
        &self.info
    }

    fn can_wait(&self, policy: Policy) -> Result<(), ChannelError> {
        self.file.device().can_wait(policy)
    }

    fn channel(&self, options: &ChannelOptions) -> Result<FileChannel, ChannelError> {
        let depth = options.depth;
        if depth == 0 || depth > DEPTH_MAX {
            return Err(ChannelError::Depth { depth, limit: DEPTH_MAX });
        }
        self.can_wait(options.policy)?;
        Ok(FileChannel {
            file: Arc::clone(&self.file),
            direct: self.direct,
            info: self.info.clone(),
            heap: self.heap().clone(),
            policy: options.policy,
            slots: (0..depth).map(|_| Slot::default()).collect(),
            free: (0..depth).rev().collect(),
            waiting: VecDeque::with_capacity(depth.into()),
            ended: VecDeque::with_capacity(depth.into()),
        })
    }
}

impl FileChannel {
    fn check(&self, request: &Request) -> Result<(), SubmitError> {
        match request.op {
            Op::Read => {}
            Op::Flush if request.buf.is_none() => return Ok(()),
            _ => {
                return Err(SubmitError::ReadOnly(
                    "the file system is mounted for reading".to_owned(),
                ));
            }
        }
        let Some(buf) = &request.buf else { return Err(SubmitError::Buffer) };
        let block_bytes = self.info.block_bytes;
        if buf.is_empty() || !buf.len().is_multiple_of(block_bytes as usize) {
            return Err(SubmitError::PartialBlock { bytes: buf.len(), block_bytes });
        }
        let (blocks, size) = (buf.len() as u64 / u64::from(block_bytes), self.info.blocks);
        if blocks > size || request.lba > size - blocks {
            return Err(SubmitError::OutOfRange { lba: request.lba, blocks, size });
        }
        Ok(())
    }

    #[allow(clippy::result_large_err)] // The trait's signature.
    fn start(&mut self, request: Request, queued: bool) -> Result<u16, Rejected> {
        if let Err(error) = self.check(&request) {
            return Err(Rejected { error, request });
        }
        let Some(index) = self.free.pop() else {
            return Err(Rejected { error: SubmitError::Full { depth: self.depth() }, request });
        };
        let slot = &mut self.slots[usize::from(index)];
        (slot.request, slot.queued, slot.detached) = (Some(request), queued, false);
        self.waiting.push_back(index);
        Ok(index)
    }

    /// Executes the request in slot `index`, unless that was done before.
    fn serve(&mut self, index: u16) {
        let Self { file, direct, info, policy, slots, ended, free, waiting, .. } = self;
        let slot = &mut slots[usize::from(index)];
        let Some(Request { op, lba, mut buf, policy: own, user_data, .. }) = slot.request.take()
        else {
            return;
        };
        if waiting.front() == Some(&index) {
            waiting.pop_front();
        } else {
            waiting.retain(|other| *other != index);
        }
        let mut result = Ok(());
        if let Some(buf) = &mut buf {
            let options = ReadOptions {
                policy: Some(own.unwrap_or(*policy)),
                direct: *direct,
                no_wait: false,
            };
            let bytes = buf.len();
            let read = file.read_at_with(buf, lba * u64::from(info.block_bytes), &options);
            result = match read {
                Ok(read) if read == bytes => Ok(()),
                Ok(_) => Err(IoErrorKind::os(libc::EIO)),
                Err(Error::Io(RequestError::Failed(error))) => Err(error.kind),
                Err(error) => {
                    tracing::error!(%error, file = %info.uri, "a read failed");
                    Err(IoErrorKind::os(libc::EIO))
                }
            };
        }
        let result = result.map_err(|kind| IoError { op, lba, kind });
        if slot.detached {
            slot.generation = slot.generation.wrapping_add(1);
            free.push(index);
            return;
        }
        slot.done = Some(Done { result, buf, user_data });
        if slot.queued {
            ended.push_back(index);
        }
    }

    fn take(&mut self, index: u16) -> Option<Done> {
        let slot = &mut self.slots[usize::from(index)];
        let done = slot.done.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
        Some(done)
    }
}

impl BlockChannel for FileChannel {
    fn info(&self) -> &BlockInfo {
        &self.info
    }

    fn alloc(&self, bytes: usize) -> Result<DmaBuf, HwError> {
        self.heap.alloc(bytes)
    }

    fn submit(&mut self, request: Request) -> Result<Ticket, Rejected> {
        let slot = self.start(request, false)?;
        Ok(Ticket::new(slot, self.slots[usize::from(slot)].generation))
    }

    fn enqueue(&mut self, request: Request) -> Result<(), Rejected> {
        self.start(request, true).map(|_| ())
    }

    fn plug(&mut self) {}

    fn unplug(&mut self) {}

    fn poll(&mut self) -> usize {
        let Some(index) = self.waiting.front().copied() else { return 0 };
        self.serve(index);
        1
    }

    fn wait(&mut self, ticket: Ticket) -> Done {
        let (slot, generation) = ticket.redeem();
        assert!(
            self.slots[usize::from(slot)].generation == generation,
            "the ticket is of another channel"
        );
        self.serve(slot);
        self.take(slot).expect("it was just read")
    }

    fn try_take(&mut self, ticket: Ticket) -> Result<Done, Ticket> {
        if self.slots[usize::from(ticket.slot())].done.is_none() {
            return Err(ticket);
        }
        Ok(self.wait(ticket))
    }

    fn detach(&mut self, ticket: Ticket) {
        let (index, _) = ticket.redeem();
        let slot = &mut self.slots[usize::from(index)];
        slot.detached = true;
        if slot.done.is_some() {
            drop(self.take(index));
        }
    }

    fn next_done(&mut self) -> Option<Done> {
        let index = self.ended.pop_front()?;
        self.take(index)
    }

    fn wait_done(&mut self) -> Option<Done> {
        // (A request with a ticket may be older.)
        while self.ended.is_empty() && self.poll() > 0 {}
        self.next_done()
    }

    fn depth(&self) -> u16 {
        self.slots.len() as u16
    }

    fn in_flight(&self) -> usize {
        self.waiting.len()
    }

    fn policy(&self) -> Policy {
        self.policy
    }

    fn set_policy(&mut self, policy: Policy) -> Result<(), SubmitError> {
        self.file
            .device()
            .can_wait(policy)
            .map_err(|why| SubmitError::CannotWait { policy, why: why.to_string() })?;
        self.policy = policy;
        Ok(())
    }
}
