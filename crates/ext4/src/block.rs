//! A file as a block device, for programs that measure or copy devices.

use std::collections::VecDeque;
use std::sync::Arc;

use super::error::{Error, Result};
use super::file::File;
use super::options::{ReadOptions, WriteOptions};
use meantime_block::{
    BlockChannel, BlockDevice, BlockInfo, ChannelError, ChannelOptions, Done, IoError, IoErrorKind,
    Rejected, Request, RequestError, SubmitError, Ticket,
};
use meantime_completion::Policy;
use meantime_hw::{DmaBuf, DmaHeap, HwError};
use meantime_nvme::Op;

/// The most requests that a [`FileChannel`] holds.
const DEPTH_MAX: u16 = 1023;

/// The largest read or write, in bytes.
const TRANSFER_BYTES: u32 = 1 << 20;

/// How a file is read and written as a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileDeviceOptions {
    /// Reads and writes past the page cache (O_DIRECT).
    pub direct: bool,
    /// A flush makes durable only the data, and the metadata needed to find them (`fdatasync`). So
    /// does a write that asks for durability (FUA).
    pub data_only: bool,
    /// The least size of the device in bytes: writes beyond the file's end extend it. Reads there
    /// fail until then.
    pub least_bytes: u64,
    /// The logical block size in bytes: a power of two from 512 to 65,536. A partial block at the
    /// file's end is not visible.
    pub block_bytes: u32,
    /// The device's name; `None`: the underlying device's name and the inode's number.
    pub name: Option<String>,
}

impl Default for FileDeviceOptions {
    fn default() -> Self {
        Self { direct: false, data_only: false, least_bytes: 0, block_bytes: 512, name: None }
    }
}

/// A file of a mounted file system as a block device. It can be written if the file is open for
/// writing: a flush is an `fsync`.
pub struct FileDevice {
    file: Arc<File>,
    direct: bool,
    data_only: bool,
    info: BlockInfo,
}

/// A channel of a [`FileDevice`]. It executes requests one at a time, when the caller waits or
/// polls, as `pread` and `pwrite` do.
pub struct FileChannel {
    file: Arc<File>,
    direct: bool,
    data_only: bool,
    info: BlockInfo,
    heap: DmaHeap,
    policy: Policy,
    slots: Box<[Slot]>,
    free: Vec<u16>,
    /// Requests that are not yet executed, oldest first.
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
    pub fn new(file: File, options: FileDeviceOptions) -> Result<Self> {
        let FileDeviceOptions { direct, data_only, least_bytes, block_bytes, name } = options;
        if !block_bytes.is_power_of_two() || !(512..=65_536).contains(&block_bytes) {
            return Err(Error::Invalid("a block size is a power of two from 512 to 65536 bytes"));
        }
        let device = file.device().info();
        let info = BlockInfo {
            uri: name.unwrap_or_else(|| format!("{}:<{}>", device.uri, file.node().ino())),
            block_bytes,
            blocks: file.size().max(least_bytes) / u64::from(block_bytes),
            max_transfer_bytes: TRANSFER_BYTES,
            compare_write_blocks: 0,
            volatile_write_cache: file.check_writable().is_ok(),
            medium: format!("ext4 on {}", device.medium),
        };
        Ok(Self { file: Arc::new(file), direct, data_only, info })
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
        let policy = options.policy.unwrap_or_default();
        self.can_wait(policy)?;
        let generation = Ticket::first_generation();
        Ok(FileChannel {
            file: Arc::clone(&self.file),
            direct: self.direct,
            data_only: self.data_only,
            info: self.info.clone(),
            heap: self.heap().clone(),
            policy,
            slots: (0..depth).map(|_| Slot { generation, ..Slot::default() }).collect(),
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
            Op::Write => self
                .file
                .check_writable()
                .map_err(|error| SubmitError::ReadOnly(error.to_string()))?,
            _ => return Err(SubmitError::Unsupported("anything but reads, writes and flushes")),
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
        let Some(index) = self.free.pop().or_else(|| self.slot_of_dropped()) else {
            return Err(Rejected { error: SubmitError::Full { depth: self.depth() }, request });
        };
        let slot = &mut self.slots[usize::from(index)];
        (slot.request, slot.queued, slot.detached) = (Some(request), queued, false);
        self.waiting.push_back(index);
        Ok(index)
    }

    /// The slot of a request whose ticket was dropped, which is executed.
    #[cold]
    fn slot_of_dropped(&mut self) -> Option<u16> {
        let ticket = self.take_dropped()?;
        drop(self.wait(ticket));
        self.free.pop()
    }

    fn take_dropped(&self) -> Option<Ticket> {
        Ticket::take_dropped(|slot, generation| {
            self.slots.get(usize::from(slot)).is_some_and(|slot| slot.generation == generation)
        })
    }

    /// Executes the request in slot `index`, unless that was done before.
    fn serve(&mut self, index: u16) {
        let Self { file, direct, data_only, info, policy, slots, ended, free, waiting, .. } = self;
        let slot = &mut slots[usize::from(index)];
        let Some(Request { op, lba, mut buf, policy: own, user_data, fua, .. }) =
            slot.request.take()
        else {
            return;
        };
        if waiting.front() == Some(&index) {
            waiting.pop_front();
        } else {
            waiting.retain(|other| *other != index);
        }
        let (offset, policy) = (lba * u64::from(info.block_bytes), Some(own.unwrap_or(*policy)));
        let moved = match (op, &mut buf) {
            (Op::Write, Some(buf)) => {
                let (sync, dsync) = (fua && !*data_only, fua && *data_only);
                let options = WriteOptions { policy, direct: *direct, sync, dsync, append: false };
                file.write_at_with(buf, offset, &options)
            }
            (_, Some(buf)) => {
                let options = ReadOptions { policy, direct: *direct };
                file.read_at_with(buf, offset, &options)
            }
            (_, None) if *data_only => file.sync_data().map(|()| 0),
            (_, None) => file.sync_all().map(|()| 0),
        };
        let result = match moved {
            Ok(bytes) if bytes == buf.as_ref().map_or(0, |buf| buf.len()) => Ok(()),
            // A write is short if no more could be written.
            Ok(_) if op == Op::Write => Err(IoErrorKind::os(libc::ENOSPC)),
            Ok(_) => Err(IoErrorKind::os(libc::EIO)),
            Err(Error::Io(RequestError::Failed(error))) => Err(error.kind),
            Err(Error::NoSpace) => Err(IoErrorKind::os(libc::ENOSPC)),
            Err(error) => {
                tracing::error!(%error, file = %info.uri, ?op, "an I/O failed");
                Err(IoErrorKind::os(libc::EIO))
            }
        };
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
        self.take(slot).expect("it was just executed")
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
        // A request with a ticket may be older.
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

/// A write that was detached, or whose ticket was dropped, is executed.
impl Drop for FileChannel {
    fn drop(&mut self) {
        while self.poll() > 0 {}
        while let Some(ticket) = self.take_dropped() {
            ticket.redeem();
        }
    }
}
