//! Creates file systems on devices.

use std::collections::VecDeque;
use std::ops::Range;

use meantime_block::{
    BlockChannel as _, BlockDevice as _, Channel, ChannelError, ChannelOptions, Device, Request,
    RequestError, SubmitError, Ticket,
};
use meantime_ext4_format::mkfs::{Content, Layout, MakeOptions, MakeRefusal};
use meantime_hw::{DmaBuf, HwError};
use meantime_partitions::{Size, signature};

/// The largest write, in bytes.
const CHUNK_BYTES: usize = 1 << 20;
/// The largest Write Zeroes, in bytes.
const ZEROES_BYTES: u64 = 256 << 20;
/// The maximum number of writes in flight.
const DEPTH: u16 = 16;

/// Why no file system was created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MakeError {
    /// These options are not possible on this device.
    #[error("{uri}: {refusal}")]
    Refused {
        /// The device.
        uri: String,
        /// The reason.
        refusal: MakeRefusal,
    },
    /// The device has no channel, or no memory for it.
    #[error("{uri}: {why}")]
    Resources {
        /// The device.
        uri: String,
        /// The reason.
        why: String,
    },
    /// A write failed. The old content is lost, and the new file system is incomplete.
    #[error("{uri}: {error}")]
    Failed {
        /// The device.
        uri: String,
        /// The reason.
        error: RequestError,
    },
}

/// The new file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// The block size, in bytes.
    pub block_bytes: u32,
    /// The number of blocks.
    pub blocks: u64,
    /// The number of inodes.
    pub inodes: u32,
    /// The number of block groups.
    pub groups: u32,
    /// The size of the journal, in bytes.
    pub journal_bytes: u64,
}

/// Returns what `device` seems to contain, for a person to read, or `None` if nothing is
/// recognized.
///
/// # Errors
/// Fails if the device cannot be read.
pub fn found_on(device: &Device) -> Result<Option<&'static str>, MakeError> {
    let mut writer = ImageWriter::new(device)?;
    let info = device.info();
    let size = Size { block_bytes: info.block_bytes, blocks: info.blocks };
    let found = signature(&mut |data: &mut [u8], offset| writer.read(data, offset), size)?;
    Ok(found.map(|signature| signature.text))
}

/// Creates an empty ext4 file system on `device`. Its old content is lost.
///
/// The superblock is written last, when everything else is durable, so an incomplete file system is
/// not recognized.
///
/// # Errors
/// [`MakeError`].
pub fn make(device: &Device, options: &MakeOptions) -> Result<Made, MakeError> {
    let info = device.info();
    let layout = Layout::new(options, info.bytes(), info.block_bytes)
        .map_err(|refusal| MakeError::Refused { uri: info.uri.clone(), refusal })?;
    let mut writer = ImageWriter::new(device)?;
    let superblock = layout.superblock_of();
    writer.block_lbas = u64::from(superblock.block_bytes() / info.block_bytes);
    layout.write(|block, content| writer.put(block, content))?;
    writer.flush()?;
    let (block, primary) = layout.primary();
    writer.put(block, Content::Bytes(&primary))?;
    writer.flush()?;
    Ok(Made {
        block_bytes: superblock.block_bytes(),
        blocks: superblock.blocks(),
        inodes: superblock.inodes(),
        groups: superblock.groups(),
        journal_bytes: layout.journal_bytes(),
    })
}

/// Writes several pieces at a time, and overlapping ones in order.
struct ImageWriter {
    channel: Channel,
    uri: String,
    lba_bytes: u32,
    /// Logical blocks per block of the file system.
    block_lbas: u64,
    under_way: VecDeque<(Ticket, Range<u64>)>,
    spare: Vec<DmaBuf>,
    /// Whether the device supports Write Zeroes.
    can_zero: bool,
}

impl ImageWriter {
    fn new(device: &Device) -> Result<Self, MakeError> {
        let info = device.info();
        let uri = info.uri.clone();
        let options = ChannelOptions { depth: DEPTH, ..ChannelOptions::default() };
        let no_channel =
            |error: ChannelError| MakeError::Resources { uri: uri.clone(), why: error.to_string() };
        let channel = device.channel(&options).map_err(no_channel)?;
        Ok(Self {
            channel,
            uri,
            lba_bytes: info.block_bytes,
            block_lbas: 1,
            under_way: VecDeque::new(),
            spare: Vec::new(),
            can_zero: true,
        })
    }

    fn failed(&self, error: impl Into<RequestError>) -> MakeError {
        MakeError::Failed { uri: self.uri.clone(), error: error.into() }
    }

    fn alloc(&self, bytes: usize) -> Result<DmaBuf, MakeError> {
        let failed =
            |error: HwError| MakeError::Resources { uri: self.uri.clone(), why: error.to_string() };
        self.channel.alloc(bytes).map_err(failed)
    }

    /// Reads all of `data` from the byte `offset` on.
    fn read(&mut self, data: &mut [u8], offset: u64) -> Result<(), MakeError> {
        let lba_bytes = u64::from(self.lba_bytes);
        let (lba, skipped) = (offset / lba_bytes, (offset % lba_bytes) as usize);
        let buf = self.alloc((skipped + data.len()).next_multiple_of(self.lba_bytes as usize))?;
        let buf = self.channel.read(lba, buf).map_err(|error| self.failed(error))?;
        data.copy_from_slice(&buf[skipped..skipped + data.len()]);
        Ok(())
    }

    fn put(&mut self, block: u64, content: Content<'_>) -> Result<(), MakeError> {
        let mut lba = block * self.block_lbas;
        match content {
            Content::Bytes(bytes) => {
                for chunk in bytes.chunks(CHUNK_BYTES) {
                    let mut buf = self.buffer(chunk.len())?;
                    buf.copy_from_slice(chunk);
                    lba = self.write(lba, buf)?;
                }
            }
            Content::Zeroes(blocks) => {
                let end = lba + blocks * self.block_lbas;
                while lba < end {
                    lba = self.zero(lba, end)?;
                }
            }
        }
        Ok(())
    }

    /// Zeroes some blocks from `lba`, at most up to `end`. Returns where to continue.
    fn zero(&mut self, lba: u64, end: u64) -> Result<u64, MakeError> {
        let lba_bytes = u64::from(self.lba_bytes);
        if self.can_zero {
            let blocks = (end - lba).min(ZEROES_BYTES / lba_bytes);
            self.wait_for(&(lba..lba + blocks))?;
            match self.channel.submit(Request::write_zeroes(lba, blocks)) {
                Ok(ticket) => {
                    self.under_way.push_back((ticket, lba..lba + blocks));
                    return Ok(lba + blocks);
                }
                Err(rejected) if matches!(rejected.error, SubmitError::Unsupported(_)) => {
                    self.can_zero = false;
                }
                Err(rejected) => return Err(self.failed(rejected.error)),
            }
        }
        let bytes = ((end - lba) * lba_bytes).min(CHUNK_BYTES as u64);
        let mut buf = self.buffer(bytes as usize)?;
        buf.fill(0);
        self.write(lba, buf)
    }

    /// Returns a buffer of `bytes` bytes, at most [`CHUNK_BYTES`].
    fn buffer(&mut self, bytes: usize) -> Result<DmaBuf, MakeError> {
        while self.under_way.len() + 1 >= usize::from(DEPTH) {
            self.wait_for_oldest()?;
        }
        let mut buf = match self.spare.pop() {
            Some(buf) => buf,
            None => self.alloc(CHUNK_BYTES)?,
        };
        buf.set_len(bytes);
        Ok(buf)
    }

    fn write(&mut self, lba: u64, buf: DmaBuf) -> Result<u64, MakeError> {
        let end = lba + buf.len() as u64 / u64::from(self.lba_bytes);
        self.wait_for(&(lba..end))?;
        let written = self.channel.submit(Request::write(lba, buf));
        let ticket = written.map_err(|rejected| self.failed(rejected.error))?;
        self.under_way.push_back((ticket, lba..end));
        Ok(end)
    }

    /// Waits until there is room for another request and none in flight overlaps `range`, because a
    /// device may execute them in any order.
    fn wait_for(&mut self, range: &Range<u64>) -> Result<(), MakeError> {
        let touches =
            |(_, other): &(Ticket, Range<u64>)| other.start < range.end && range.start < other.end;
        while self.under_way.len() + 1 >= usize::from(DEPTH) || self.under_way.iter().any(touches) {
            self.wait_for_oldest()?;
        }
        Ok(())
    }

    fn wait_for_oldest(&mut self) -> Result<(), MakeError> {
        let Some((ticket, _)) = self.under_way.pop_front() else { return Ok(()) };
        let done = self.channel.wait(ticket);
        self.spare.extend(done.buf);
        done.result.map_err(|error| self.failed(error))
    }

    /// Makes all earlier writes durable.
    fn flush(&mut self) -> Result<(), MakeError> {
        while !self.under_way.is_empty() {
            self.wait_for_oldest()?;
        }
        self.channel.flush().map_err(|error| self.failed(error))
    }
}

impl Drop for ImageWriter {
    fn drop(&mut self) {
        for (ticket, _) in self.under_way.drain(..) {
            self.channel.detach(ticket);
        }
    }
}
