//! Buffers of requests past the cache, and of writeback.

use super::context::IoContext;
use crate::cache::PAGE_BYTES;
use crate::error::Error;
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

impl IoContext {
    /// Returns a buffer for a request past the cache; `None`: all are in use, and a request has to
    /// complete first.
    pub(crate) fn take_buffer(&mut self) -> Result<Option<DmaBuf>, Error> {
        let buffers = &mut self.buffers;
        if let Some(buf) = buffers.warm.take().or_else(|| buffers.free.pop()) {
            return Ok(Some(buf));
        }
        if buffers.made == BUFFERS_MOST {
            return Ok(None);
        }
        let buf = self.alloc(CHUNK_BYTES)?;
        self.buffers.made += 1;
        Ok(Some(buf))
    }

    /// Brings the memory that the next write is copied to into the CPU's cache, in a buffer that is
    /// not in flight. Runs while the device works.
    pub(crate) fn warm_buffer(&mut self) {
        if self.buffers.warm.is_none()
            && let Ok(Some(mut buf)) = self.take_buffer()
        {
            buf.warm(PAGE_BYTES);
            self.buffers.warm = Some(buf);
        }
    }

    /// Takes back a buffer that came from [`take_buffer`](Self::take_buffer); `None`: it is lost.
    pub(crate) fn give_buffer(&mut self, buf: Option<DmaBuf>) {
        match buf {
            Some(buf) => self.buffers.free.push(buf),
            None => self.buffers.made -= 1,
        }
    }
}
