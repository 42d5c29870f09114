//! Reads and writes by byte offsets, through a buffer of their own.

use meantime_hw::DmaBuf;

use super::device::BlockChannel;
use super::error::{RequestError, SubmitError};

/// The most bytes in a request: enough for the full rate of a device, and a small part of a heap.
const CHUNK_BYTES: u64 = 1 << 20;

/// The first block of `bytes` bytes from `offset` on, and a buffer for the largest chunk of them.
/// `None` if there are no bytes.
fn begin<C: BlockChannel + ?Sized>(
    channel: &C,
    bytes: usize,
    offset: u64,
) -> Result<Option<(u64, DmaBuf)>, RequestError> {
    let (block_bytes, size) = (u64::from(channel.info().block_bytes), channel.info().blocks);
    let lba = offset / block_bytes;
    let blocks = (offset % block_bytes + bytes as u64).div_ceil(block_bytes);
    if blocks > size || lba > size - blocks {
        return Err(SubmitError::OutOfRange { lba, blocks, size }.into());
    }
    if bytes == 0 {
        return Ok(None);
    }
    let alloc = channel.alloc((blocks * block_bytes).min(CHUNK_BYTES) as usize);
    let buf = alloc.map_err(|error| RequestError::Memory(error.to_string()))?;
    Ok(Some((lba, buf)))
}

/// See [`BlockChannel::read_at`].
pub(super) fn read_at<C: BlockChannel + ?Sized>(
    channel: &mut C,
    data: &mut [u8],
    offset: u64,
) -> Result<(), RequestError> {
    let Some((mut lba, mut buf)) = begin(channel, data.len(), offset)? else { return Ok(()) };
    let block_bytes = channel.info().block_bytes as usize;
    // Only the first block can have bytes skipped at its start.
    let mut skipped = (offset % block_bytes as u64) as usize;
    let mut left = data;
    while !left.is_empty() {
        buf.set_len((skipped + left.len()).next_multiple_of(block_bytes).min(CHUNK_BYTES as usize));
        buf = channel.read(lba, buf)?;
        let (now, later) = left.split_at_mut(left.len().min(buf.len() - skipped));
        now.copy_from_slice(&buf[skipped..skipped + now.len()]);
        lba += (buf.len() / block_bytes) as u64;
        (skipped, left) = (0, later);
    }
    Ok(())
}

/// See [`BlockChannel::write_at`].
pub(super) fn write_at<C: BlockChannel + ?Sized>(
    channel: &mut C,
    data: &[u8],
    offset: u64,
) -> Result<(), RequestError> {
    let (bytes, block_bytes) = (data.len(), channel.info().block_bytes);
    if !offset.is_multiple_of(block_bytes.into()) || !bytes.is_multiple_of(block_bytes as usize) {
        return Err(SubmitError::Unaligned { offset, bytes, block_bytes }.into());
    }
    let Some((mut lba, mut buf)) = begin(channel, bytes, offset)? else { return Ok(()) };
    for chunk in data.chunks(CHUNK_BYTES as usize) {
        buf.set_len(chunk.len());
        buf.copy_from_slice(chunk);
        buf = channel.write(lba, buf)?;
        lba += chunk.len() as u64 / u64::from(block_bytes);
    }
    Ok(())
}
