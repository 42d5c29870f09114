//! Requests that fill pages of the cache, for a read that waits for them or ahead of one.

use std::ops::Range;

use crate::cache::{FillDuty, PAGE_BYTES, PageCache};
use crate::error::{Error, Result};
use meantime_block::{Done, IoError, Rejected, Request, RequestError, SubmitError};
use meantime_completion::Policy;
use meantime_hw::{DmaBuf, DmaHeap, DmaPages};

/// The maximum number of pages of one request. A long read is several requests, so that the first
/// is copied while the others are in flight.
pub(crate) const CHUNK_PAGES: usize = 8;

/// The maximum number of pages of one read-ahead request.
pub(crate) const AHEAD_CHUNK_PAGES: usize = 16;

/// The maximum number of pages of any request.
const REQUEST_PAGES: usize =
    if CHUNK_PAGES > AHEAD_CHUNK_PAGES { CHUNK_PAGES } else { AHEAD_CHUNK_PAGES };

/// The maximum number of read-ahead requests of a context in flight.
pub(crate) const AHEAD_REQUESTS: usize = 24;

/// Memory and lists for requests that fill pages of the cache. They are reused, so that reads do
/// not allocate.
pub(crate) struct FillMemory {
    heap: DmaHeap,
    block_bytes: u32,
    /// Pages for the device to write to, and how many are kept in stock. The page that was returned
    /// last is used first.
    pages: Vec<DmaBuf>,
    stock_pages: usize,
    /// Duties without a request yet.
    duties: Vec<FillDuty>,
    /// Pages in the cache, to be copied while the device works.
    hits: Vec<u64>,
    /// Empty lists for reuse.
    page_lists: Vec<DmaPages>,
    duty_lists: Vec<Vec<FillDuty>>,
}

/// The duties of a request's pages.
enum FillDuties {
    One(FillDuty),
    Many(Vec<FillDuty>),
}

/// The tag of a request for pages of a file, from page `first` on.
pub(crate) struct Fill {
    duties: FillDuties,
    pub(super) file: u64,
    pub(crate) first: u64,
    /// Bytes asked for: less than whole pages at the end of the file.
    bytes: usize,
}

impl Fill {
    /// Returns its pages.
    pub(crate) fn pages(&self) -> Range<u64> {
        let count = match &self.duties {
            FillDuties::One(_) => 1,
            FillDuties::Many(duties) => duties.len(),
        };
        self.first..self.first + count as u64
    }

    /// Abandons its duties.
    pub(crate) fn abandon(self, cache: &PageCache) {
        match self.duties {
            FillDuties::One(duty) => cache.abandon(duty),
            FillDuties::Many(duties) => duties.into_iter().for_each(|duty| cache.abandon(duty)),
        }
    }
}

/// Why a request was not sent. Its duties were abandoned.
#[derive(Debug)]
pub(crate) enum NotSent {
    /// The queue is full and there is nothing left to wait for; read-ahead never waits.
    Full,
    /// No page is available, so the caller reads past the cache.
    NoPage,
    Failed(Error),
}

/// The range of a file that a request reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FillRange {
    pub(crate) file: u64,
    /// Its first page.
    pub(crate) first: u64,
    /// The byte of the device where the page begins.
    pub(crate) device_byte: u64,
    pub(crate) bytes: usize,
}

impl FillMemory {
    /// Makes one with a stock of up to `stock_pages` pages of `heap`, for a device with blocks of
    /// `block_bytes`.
    pub(crate) fn new(heap: &DmaHeap, block_bytes: u32, stock_pages: usize) -> Self {
        Self {
            heap: heap.clone(),
            block_bytes,
            pages: Vec::with_capacity(stock_pages),
            stock_pages,
            duties: Vec::new(),
            hits: Vec::new(),
            page_lists: Vec::new(),
            duty_lists: Vec::new(),
        }
    }

    /// Returns a page for the device to write to.
    #[inline]
    pub(crate) fn page(&mut self, cache: &PageCache) -> Option<DmaBuf> {
        if self.pages.is_empty() {
            cache.take_pages(1, &mut self.pages);
        }
        self.pages.pop()
    }

    /// Refills the stock with pages that were never used, or that the cache evicts. Runs while the
    /// device works.
    #[inline]
    pub(crate) fn refill(&mut self, cache: &PageCache) {
        let missing = self.stock_pages.saturating_sub(self.pages.len());
        // Pages are taken in batches, because each call takes locks.
        if missing > self.stock_pages / 4 {
            cache.take_pages(missing, &mut self.pages);
        }
    }

    /// Takes back an unused page.
    fn keep_page(&mut self, cache: &PageCache, mut page: DmaBuf) {
        if self.pages.len() < self.stock_pages {
            page.set_len(PAGE_BYTES);
            self.pages.push(page);
        } else {
            cache.give_pages([page]);
        }
    }

    /// Keeps the pages of a failed request for the next ones.
    #[cold]
    fn recycle(&mut self, cache: &PageCache, buf: DmaBuf) {
        match DmaPages::from_buf(buf) {
            Ok(mut list) => {
                cache.give_pages(list.drain());
                self.keep_list(list);
            }
            Err(page) => self.keep_page(cache, page),
        }
    }

    fn keep_list(&mut self, list: DmaPages) {
        if self.page_lists.len() < AHEAD_REQUESTS {
            self.page_lists.push(list);
        }
    }

    fn keep_duty_list(&mut self, duties: Vec<FillDuty>) {
        debug_assert!(duties.is_empty());
        if self.duty_lists.len() < AHEAD_REQUESTS {
            self.duty_lists.push(duties);
        }
    }

    /// Abandons the duties that have no request.
    #[cold]
    fn abandon_duties(&mut self, cache: &PageCache) {
        self.duties.drain(..).for_each(|duty| cache.abandon(duty));
    }

    /// Returns an empty list for pages to be copied while the device works;
    /// [`give_hits`](Self::give_hits) returns it.
    pub(crate) fn take_hits(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.hits)
    }

    /// Takes the list back.
    pub(crate) fn give_hits(&mut self, mut hits: Vec<u64>) {
        hits.clear();
        self.hits = hits;
    }

    /// Returns the empty list that pages are claimed into before a [request](Self::request) is
    /// made.
    #[inline]
    pub(crate) fn duties(&mut self) -> &mut Vec<FillDuty> {
        debug_assert!(self.duties.is_empty());
        &mut self.duties
    }

    /// Makes the request for the [claimed](Self::duties) pages, which are those of `fill_range`.
    #[inline]
    pub(crate) fn request(
        &mut self,
        cache: &PageCache,
        fill_range: FillRange,
        policy: Option<Policy>,
    ) -> Result<(Request, Fill), NotSent> {
        let FillRange { file, first, device_byte, bytes } = fill_range;
        let block_bytes = u64::from(self.block_bytes);
        let whole = bytes.next_multiple_of(block_bytes as usize);
        let buf = match self.buffer(cache, whole) {
            Ok(buf) => buf,
            Err(error) => {
                self.abandon_duties(cache);
                return Err(error);
            }
        };
        let mut request = Request::read(device_byte / block_bytes, buf);
        request.policy = policy;
        let duties = match self.duties.len() {
            1 => self.duties.pop().map(FillDuties::One),
            _ => None,
        };
        let duties = duties.unwrap_or_else(|| {
            let empty = self.duty_lists.pop().unwrap_or_default();
            FillDuties::Many(std::mem::replace(&mut self.duties, empty))
        });
        Ok((request, Fill { duties, file, first, bytes }))
    }

    /// Abandons `fill`, whose request was rejected, and takes its pages back.
    #[cold]
    pub(crate) fn take_rejected(
        &mut self,
        cache: &PageCache,
        rejected: Rejected,
        fill: Fill,
    ) -> NotSent {
        if let Some(buf) = rejected.request.buf {
            self.recycle(cache, buf);
        }
        fill.abandon(cache);
        match rejected.error {
            SubmitError::Full { .. } => NotSent::Full,
            error => NotSent::Failed(RequestError::from(error).into()),
        }
    }

    /// Returns a buffer of one page per duty, for `bytes` bytes.
    #[inline]
    fn buffer(&mut self, cache: &PageCache, bytes: usize) -> Result<DmaBuf, NotSent> {
        let count = self.duties.len();
        if count == 1 {
            let mut page = self.page(cache).ok_or(NotSent::NoPage)?;
            page.set_len(bytes);
            return Ok(page);
        }
        let missing = count.saturating_sub(self.pages.len());
        if missing > 0 && cache.take_pages(missing, &mut self.pages) < missing {
            return Err(NotSent::NoPage);
        }
        let mut list = match self.page_lists.pop() {
            Some(list) => list,
            None => DmaPages::with_capacity(&self.heap, REQUEST_PAGES)
                .map_err(|error| NotSent::Failed(Error::Resources(error.to_string())))?,
        };
        for page in self.pages.drain(self.pages.len() - count..) {
            // All pages are whole pages of this heap, and fewer than a list takes.
            if list.push(page).is_err() {
                return Err(NotSent::Failed(Error::Resources(
                    "a page that is none of the device's".to_owned(),
                )));
            }
        }
        list.set_range(0, bytes);
        Ok(list.into_buf())
    }

    /// Calls `seen`, which may copy, with the number and content of each page that the request of
    /// `fill` has read, and publishes them. Returns whether all of them are in the cache. A page that was
    /// invalidated after it was claimed is not.
    ///
    /// # Errors
    /// Fails if the device fails. The pages were abandoned then, and `seen` was not called.
    #[inline]
    pub(crate) fn complete(
        &mut self,
        cache: &PageCache,
        done: Done,
        fill: Fill,
        mut seen: impl FnMut(u64, &[u8]),
    ) -> Result<bool> {
        let Fill { duties, first, bytes, .. } = fill;
        let mut is_there = true;
        let buf = match (done.result, done.buf) {
            (Ok(()), Some(buf)) => buf,
            (result, buf) => return Err(self.failed(cache, result, buf, duties)),
        };
        match (DmaPages::from_buf(buf), duties) {
            (Err(mut page), FillDuties::One(duty)) => {
                page.set_len(PAGE_BYTES);
                if bytes < PAGE_BYTES {
                    page[bytes..].fill(0);
                }
                seen(first, &page);
                if let Err(page) = cache.publish(duty, page) {
                    is_there = false;
                    self.keep_page(cache, page);
                }
            }
            (Ok(mut list), FillDuties::Many(mut duties)) => {
                let short = bytes % PAGE_BYTES;
                if short > 0
                    && let Some(last) = list.pages_mut().last()
                {
                    last[short..].fill(0);
                }
                for ((index, page), duty) in (first..).zip(list.drain()).zip(duties.drain(..)) {
                    seen(index, &page);
                    if let Err(page) = cache.publish(duty, page) {
                        is_there = false;
                        cache.give_pages([page]);
                    }
                }
                self.keep_list(list);
                self.keep_duty_list(duties);
            }
            // A request comes back as it was sent.
            (Ok(list), duties) => {
                return Err(self.failed(cache, Ok(()), Some(list.into_buf()), duties));
            }
            (Err(page), duties) => return Err(self.failed(cache, Ok(()), Some(page), duties)),
        }
        Ok(is_there)
    }

    #[cold]
    #[inline(never)]
    fn failed(
        &mut self,
        cache: &PageCache,
        result: Result<(), IoError>,
        buf: Option<DmaBuf>,
        duties: FillDuties,
    ) -> Error {
        let duties = match duties {
            FillDuties::One(duty) => vec![duty],
            FillDuties::Many(duties) => duties,
        };
        match buf {
            Some(buf) => self.recycle(cache, buf),
            None => cache.lose_pages(duties.len()),
        }
        duties.into_iter().for_each(|duty| cache.abandon(duty));
        result.map_or_else(Error::from_io, |()| RequestError::Quarantined.into())
    }
}
