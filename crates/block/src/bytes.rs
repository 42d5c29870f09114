//! Reads and writes by byte offsets, through a buffer of their own.

use meantime_hw::DmaBuf;

use super::device::BlockChannel;
use super::error::{RequestError, SubmitError};

/// The most bytes in a request: enough for the full rate of a device, and a small part of a heap.
const CHUNK_BYTES: u64 = 1 << 20;

/// Checks that the range is on the device. Returns its end.
fn end_of(offset: u64, bytes: usize, size: u64) -> Result<u64, SubmitError> {
    let end = offset.checked_add(bytes as u64).filter(|end| *end <= size);
    end.ok_or(SubmitError::BeyondEnd { offset, bytes, size })
}

/// A buffer for the blocks from `first` to `end`, or for the largest piece of them.
fn buffer<C: BlockChannel + ?Sized>(channel: &C, bytes: u64) -> Result<DmaBuf, RequestError> {
    let alloc = channel.alloc(bytes.min(CHUNK_BYTES) as usize);
    alloc.map_err(|error| RequestError::Memory(error.to_string()))
}

/// See [`BlockChannel::read_at`].
pub(super) fn read_at<C: BlockChannel + ?Sized>(
    channel: &mut C,
    data: &mut [u8],
    offset: u64,
) -> Result<(), RequestError> {
    let info = channel.info();
    let block_bytes = u64::from(info.block_bytes);
    let end = end_of(offset, data.len(), info.bytes())?;
    if data.is_empty() {
        return Ok(());
    }
    let mut first = offset - offset % block_bytes;
    let mut buf = buffer(channel, end.next_multiple_of(block_bytes) - first)?;
    let mut filled = 0;
    while filled < data.len() {
        let left = end.next_multiple_of(block_bytes) - first;
        buf.set_len(left.min(CHUNK_BYTES) as usize);
        buf = channel.read(first / block_bytes, buf)?;
        let skipped = (offset + filled as u64 - first) as usize;
        let bytes = (buf.len() - skipped).min(data.len() - filled);
        data[filled..filled + bytes].copy_from_slice(&buf[skipped..skipped + bytes]);
        filled += bytes;
        first += buf.len() as u64;
    }
    Ok(())
}

/// See [`BlockChannel::write_at`].
pub(super) fn write_at<C: BlockChannel + ?Sized>(
    channel: &mut C,
    data: &[u8],
    offset: u64,
) -> Result<(), RequestError> {
    let info = channel.info();
    let block_bytes = info.block_bytes;
    let bytes = data.len();
    end_of(offset, bytes, info.bytes())?;
    if !offset.is_multiple_of(block_bytes.into()) || !bytes.is_multiple_of(block_bytes as usize) {
        return Err(SubmitError::Unaligned { offset, bytes, block_bytes }.into());
    }
    if data.is_empty() {
        return Ok(());
    }
    let mut buf = buffer(channel, bytes as u64)?;
    let mut lba = offset / u64::from(block_bytes);
    for piece in data.chunks(CHUNK_BYTES as usize) {
        buf.set_len(piece.len());
        buf.copy_from_slice(piece);
        buf = channel.write(lba, buf)?;
        lba += piece.len() as u64 / u64::from(block_bytes);
    }
    Ok(())
}
