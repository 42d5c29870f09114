//! Buffers of requests past the cache, and of writeback.

use crate::cache::PAGE_BYTES;
use crate::error::{Error, Result};
use meantime_block::{BlockChannel, Channel};
use meantime_hw::DmaBuf;

/// The size of a buffer: a read is several requests, so that the first is copied while the others
/// are in flight.
pub(crate) const CHUNK_BYTES: usize = 32 << 10;

/// The most buffers of a context: this bounds reads past the cache, and writeback, too.
const BUFFERS_MOST: usize = 8;

/// The buffers of a context.
#[derive(Default)]
pub(super) struct Buffers {
    free: Vec<DmaBuf>,
    /// A buffer that is in the CPU's cache, used first.
    warm: Option<DmaBuf>,
    made: usize,
    /// Requests into lent memory, not yet counted.
    pub(super) lent: u64,
}

impl Buffers {
    /// Returns a buffer for a request of `channel` past the cache; `None`: all are in use, and a
    /// request has to complete first.
    pub(super) fn take(&mut self, channel: &Channel) -> Result<Option<DmaBuf>> {
        if let Some(buf) = self.warm.take().or_else(|| self.free.pop()) {
            return Ok(Some(buf));
        }
        if self.made == BUFFERS_MOST {
            return Ok(None);
        }
        let buf = alloc(channel, CHUNK_BYTES)?;
        self.made += 1;
        Ok(Some(buf))
    }

    /// Brings the memory that the next write is copied to into the CPU's cache.
    pub(super) fn warm(&mut self, channel: &Channel) {
        if self.warm.is_none()
            && let Ok(Some(mut buf)) = self.take(channel)
        {
            buf.warm(PAGE_BYTES);
            self.warm = Some(buf);
        }
    }

    /// Takes back a buffer that came from [`take`](Self::take); `None`: it is lost.
    pub(super) fn give(&mut self, buf: Option<DmaBuf>) {
        match buf {
            Some(buf) => self.free.push(buf),
            None => self.made -= 1,
        }
    }
}

/// Allocates `bytes` bytes for requests of `channel` past the cache.
///
/// # Errors
/// Fails with [`Error::Resources`] if there is no memory.
pub(super) fn alloc(channel: &Channel, bytes: usize) -> Result<DmaBuf> {
    channel.alloc(bytes).map_err(|error| Error::Resources(error.to_string()))
}
