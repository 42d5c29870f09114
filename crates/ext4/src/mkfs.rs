//! Creates file systems on devices.

use std::collections::VecDeque;
use std::ops::Range;

use meantime_block::{
    BlockChannel as _, BlockDevice as _, Channel, ChannelError, ChannelOptions, Device, Request,
    RequestError, SubmitError, Ticket,
};
use meantime_ext4_format::mkfs::{Content, Layout, MakeOptions, MakeRefusal};
use meantime_hw::{DmaBuf, HwError};

/// The largest write, in bytes.
const CHUNK_BYTES: usize = 1 << 20;
/// The largest Write Zeroes, in bytes.
const ZEROES_BYTES: u64 = 256 << 20;
/// The maximum number of writes in flight.
const DEPTH: u16 = 16;
/// The bytes at the device's beginning that are searched for signatures.
const SIGNS_BYTES: u64 = 72 << 10;

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

/// Signatures of formats, each with its byte offset, its bytes and its name.
const SIGNS: [(usize, &[u8], &str); 19] = [
    (0, b"XFSB", "an XFS file system"),
    (0, b"LUKS\xba\xbe", "an encrypted volume (LUKS)"),
    (0, b"hsqs", "a squashfs file system"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (3, b"-FVE-FS-", "an encrypted volume (BitLocker)"),
    (0x36, b"FAT1", "a FAT file system"),
    (0x52, b"FAT32", "a FAT file system"),
    (512, b"EFI PART", "a partition table (GPT)"),
    (4096, b"EFI PART", "a partition table (GPT)"),
    (512, b"LABELONE", "a volume of LVM"),
    (0, b"LABELONE", "a volume of LVM"),
    (1024, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    (1024 + 56, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
    (4096, b"\xfc\x4e\x2b\xa9", "a part of a RAID"),
    (4086, b"SWAPSPACE2", "a swap area"),
    (4096 + 24, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca", "a bcachefs file system"),
    (32_769, b"CD001", "an ISO 9660 file system"),
    (65_600, b"_BHRfS_M", "a btrfs file system"),
];

/// Returns what `device` seems to contain, for a person to read, or `None` if nothing is
/// recognized.
///
/// # Errors
/// Fails if the device cannot be read.
pub fn found_on(device: &Device) -> Result<Option<&'static str>, MakeError> {
    let mut writer = ImageWriter::new(device)?;
    let bytes = SIGNS_BYTES.min(device.info().bytes());
    let blocks = bytes / u64::from(device.info().block_bytes);
    let mut buf = writer.alloc(blocks as usize * device.info().block_bytes as usize)?;
    buf = writer.channel.read(0, buf).map_err(|error| writer.failed(error))?;
    let is_there =
        |(at, sign, _): &&(usize, &[u8], &str)| buf.get(*at..at + sign.len()) == Some(*sign);
    if let Some((_, _, name)) = SIGNS.iter().find(is_there) {
        return Ok(Some(name));
    }
    // This byte is the type of the first partition. Other boot sectors have code there.
    let partitions =
        buf.get(510..512) == Some(&[0x55, 0xAA]) && buf.get(450).is_some_and(|kind| *kind != 0);
    Ok(partitions.then_some("a partition table"))
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
