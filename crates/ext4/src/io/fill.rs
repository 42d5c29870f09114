//! Sends and completes the requests that fill pages of the cache.

use super::context::IoContext;
pub(crate) use super::fill_memory::{
    AHEAD_CHUNK_PAGES, AHEAD_REQUESTS, CHUNK_PAGES, Fill, FillMemory, FillRange, NotSent,
};
use super::requests::{ahead_set, read_set};
use crate::cache::PageCache;
use crate::counters::{Count, Counts};
use crate::error::Result;
use meantime_block::Done;
use meantime_completion::Policy;

/// Why pages are filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    /// For a reader, which waits for room in the queue.
    Reader,
    /// Read-ahead.
    Ahead,
}

impl IoContext {
    /// Sends a request for the [claimed](FillMemory::duties) pages, which are those of `fill_range`.
    #[inline]
    pub(crate) fn send_claimed(
        &mut self,
        cache: &PageCache,
        counts: &Counts,
        whom: For,
        fill_range: FillRange,
        policy: Option<Policy>,
    ) -> Result<(), NotSent> {
        let (request, fill) = self.fills.request(cache, fill_range, policy)?;
        let sent = match whom {
            For::Reader => self.submit(read_set, request, fill),
            For::Ahead => self.try_submit(ahead_set, request, fill),
        };
        sent.map_err(|(rejected, fill)| self.fills.take_rejected(cache, rejected, fill))?;
        counts.add(Count::Requests, 1);
        counts.add(Count::RequestedBytes, fill_range.bytes as u64);
        Ok(())
    }

    /// Waits for a reader's oldest request, and [completes](FillMemory::complete) it. Returns its
    /// first page and the result; `None` if there is no request.
    #[inline]
    pub(crate) fn complete_read(
        &mut self,
        cache: &PageCache,
        seen: impl FnMut(u64, &[u8]),
    ) -> Option<(u64, Result<()>)> {
        let (done, fill) = self.wait_oldest(read_set)?;
        let first = fill.first;
        // The file's blocks are not freed while its reader waits, so what was read is right, even
        // if it did not go into the cache.
        Some((first, self.fills.complete(cache, done, fill, seen).map(|_| ())))
    }

    /// Publishes completed read-ahead; failed pages are left absent.
    #[cold]
    #[inline(never)]
    pub(crate) fn reap_ahead(&mut self, cache: &PageCache, counts: &Counts) {
        self.poll();
        let mut position = 0;
        while position < self.in_flight().ahead.len() {
            match self.ended_at(ahead_set, position) {
                Some((done, fill)) => self.complete_ahead(cache, counts, done, fill),
                None => position += 1,
            }
        }
    }

    /// Waits for the read-ahead request that has page `index` of `file`, or for the oldest. Returns
    /// false if there is none.
    pub(crate) fn wait_ahead(
        &mut self,
        cache: &PageCache,
        counts: &Counts,
        page: Option<(u64, u64)>,
    ) -> bool {
        let holds = |fill: &Fill| {
            page.is_none_or(|(file, index)| fill.file == file && fill.pages().contains(&index))
        };
        let Some(position) = self.in_flight().ahead.position(holds) else { return false };
        if let Some((done, fill)) = self.wait_at(ahead_set, position) {
            self.complete_ahead(cache, counts, done, fill);
        }
        true
    }

    fn complete_ahead(&mut self, cache: &PageCache, counts: &Counts, done: Done, fill: Fill) {
        if self.fills.complete(cache, done, fill, |_, _| {}).is_err() {
            counts.add(Count::Failed, 1);
        }
        counts.end_ahead();
    }
}
