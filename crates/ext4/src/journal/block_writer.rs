//! Writes blocks to the device from reused buffers.

use std::collections::VecDeque;

use crate::io::{IoContext, log_set};
use crate::{Error, Result};
use meantime_block::{Done, Request, RequestError};
use meantime_hw::DmaBuf;

/// Bytes of a buffer, unless four blocks are larger.
const BUFFER_BYTES: usize = 256 << 10;

/// The maximum number of buffers. A caller that needs another waits for a request to complete.
const BUFFERS_MOST: usize = 16;

/// Bytes warmed for the next commit: they hold a few blocks.
const WARM_BYTES: usize = 32 << 10;

/// Writes whole blocks of the file system with the caller's I/O context. The caller uses one
/// context between two [finishes](Self::finish), and no other writer uses it.
pub(crate) struct BlockWriter {
    block_bits: u32,
    buffer_bytes: usize,
    /// Free buffers; the last one is used next.
    free: VecDeque<DmaBuf>,
    /// Buffers that exist, free or in flight.
    made: usize,
    /// The first failure since the last [`finish`](Self::finish).
    failed: Option<Error>,
}

impl BlockWriter {
    /// Returns a writer for blocks of `1 << block_bits` bytes.
    pub(crate) fn new(block_bits: u32) -> Self {
        Self {
            block_bits,
            buffer_bytes: BUFFER_BYTES.max(4 << block_bits),
            free: VecDeque::with_capacity(BUFFERS_MOST),
            made: 0,
            failed: None,
        }
    }

    /// Returns how many blocks fit a buffer.
    pub(super) fn buffer_blocks(&self) -> usize {
        self.buffer_bytes >> self.block_bits
    }

    /// Returns a buffer of `blocks` blocks with arbitrary content, after waiting for one if
    /// necessary.
    ///
    /// # Errors
    /// Fails if there is no memory.
    pub(super) fn buffer(&mut self, io: &mut IoContext, blocks: usize) -> Result<DmaBuf> {
        while self.free.is_empty() && self.made >= BUFFERS_MOST && self.complete_oldest(io) {}
        let mut buf = match self.free.pop_back() {
            Some(buf) => buf,
            None => {
                let made = io.heap.alloc(self.buffer_bytes);
                let made = made.map_err(|error| Error::Resources(error.to_string()))?;
                self.made += 1;
                made
            }
        };
        buf.set_len(blocks << self.block_bits);
        Ok(buf)
    }

    /// Brings the memory that the next transaction is copied to into this CPU's cache, for a
    /// transaction as small as the last. Runs while the device works.
    pub(super) fn warm(&mut self, io: &IoContext) {
        // At least one buffer must not be in flight.
        if self.free.is_empty()
            && self.made < BUFFERS_MOST / 2
            && let Ok(mut buf) = io.heap.alloc(self.buffer_bytes)
        {
            buf.set_len(1 << self.block_bits);
            self.free.push_back(buf);
            self.made += 1;
        }
        let mut left = WARM_BYTES;
        for buf in self.free.iter_mut().rev() {
            let bytes = buf.len().min(left);
            if bytes == 0 {
                break;
            }
            buf.warm(bytes);
            left -= bytes;
        }
    }

    /// Sends `buf` to the blocks from `block` on, with FUA if `fua`.
    ///
    /// # Errors
    /// Fails if the context may not write, or the request is rejected.
    pub(super) fn send(
        &mut self,
        io: &mut IoContext,
        block: u64,
        buf: DmaBuf,
        fua: bool,
    ) -> Result<()> {
        if let Err(error) = io.may_write() {
            self.free.push_back(buf);
            return Err(error);
        }
        let lba = (block << self.block_bits) / u64::from(io.block_bytes);
        let mut request = Request::write(lba, buf);
        request.fua = fua;
        io.submit(log_set, request, ()).map_err(|(rejected, ())| {
            self.free.extend(rejected.request.buf);
            RequestError::from(rejected.error).into()
        })
    }

    /// Waits for the oldest request. Returns false if there is none.
    fn complete_oldest(&mut self, io: &mut IoContext) -> bool {
        let Some((Done { result, buf, .. }, ())) = io.wait_oldest_in_group(log_set) else {
            return false;
        };
        match (result, buf) {
            (Ok(()), Some(buf)) => self.free.push_front(buf),
            (result, buf) => {
                // A buffer that did not come back is still in use by the device.
                self.made -= usize::from(buf.is_none());
                self.free.extend(buf);
                let error =
                    result.map_or_else(Error::from_io, |()| RequestError::Quarantined.into());
                self.failed.get_or_insert(error);
            }
        }
        true
    }

    /// Waits for every request sent.
    ///
    /// # Errors
    /// Returns the error of the first request that failed. No request is in flight afterwards in
    /// any case.
    pub(super) fn finish(&mut self, io: &mut IoContext) -> Result<()> {
        while self.complete_oldest(io) {}
        self.failed.take().map_or(Ok(()), Err)
    }

    /// Writes `content` to `block` durably, and waits for it.
    ///
    /// # Errors
    /// Fails if the device fails.
    pub(crate) fn write_durably(
        &mut self,
        io: &mut IoContext,
        block: u64,
        content: &[u8],
    ) -> Result<()> {
        let fua = io.is_volatile;
        let sent = self.buffer(io, 1).and_then(|mut buf| {
            buf.copy_from_slice(content);
            self.send(io, block, buf, fua)
        });
        let done = self.finish(io);
        sent.and(done)
    }

    /// Writes `blocks`, in ascending order, adjacent ones in one request, and waits for them.
    ///
    /// # Errors
    /// Returns the error of the first request that failed. Others may have been written.
    pub(super) fn write_all<'a>(
        &mut self,
        io: &mut IoContext,
        blocks: impl Iterator<Item = (u64, &'a [u8])>,
    ) -> Result<()> {
        let sent = self.send_all(io, blocks);
        let done = self.finish(io);
        sent.and(done)
    }

    fn send_all<'a>(
        &mut self,
        io: &mut IoContext,
        blocks: impl Iterator<Item = (u64, &'a [u8])>,
    ) -> Result<()> {
        let most = self.buffer_blocks();
        let block_bytes = 1usize << self.block_bits;
        // The first block, the buffer, and the number of blocks in it.
        let mut current: Option<(u64, DmaBuf, usize)> = None;
        for (block, content) in blocks {
            let follows = current
                .as_ref()
                .is_some_and(|(first, _, count)| first + *count as u64 == block && *count < most);
            if !follows {
                if let Some((first, mut buf, count)) = current.take() {
                    buf.set_len(count << self.block_bits);
                    self.send(io, first, buf, false)?;
                }
                current = Some((block, self.buffer(io, most)?, 0));
            }
            if let Some((_, buf, count)) = &mut current {
                let at = *count << self.block_bits;
                buf[at..at + block_bytes].copy_from_slice(content);
                *count += 1;
            }
        }
        if let Some((first, mut buf, count)) = current {
            buf.set_len(count << self.block_bits);
            self.send(io, first, buf, false)?;
        }
        Ok(())
    }
}
