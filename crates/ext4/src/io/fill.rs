//! Requests that fill pages of the cache, for a read that waits for them or ahead of one.

use std::ops::Range;

use super::context::IoContext;
use super::requests::{ahead, reads};
use crate::cache::{Claim, PAGE_BYTES, PageCache};
use crate::counters::{Count, Counts};
use crate::error::Error;
use meantime_block::{Done, IoError, Rejected, Request, RequestError, SubmitError};
use meantime_completion::Policy;
use meantime_hw::{DmaBuf, DmaHeap, DmaPages};

/// The most pages of one request: so that a long read is several, of which the first is copied
/// while the others are under way.
pub(crate) const CHUNK_PAGES: usize = 8;

/// The same for what is read ahead.
pub(crate) const AHEAD_CHUNK_PAGES: usize = 16;

/// The most pages of any request.
const REQUEST_PAGES: usize =
    if CHUNK_PAGES > AHEAD_CHUNK_PAGES { CHUNK_PAGES } else { AHEAD_CHUNK_PAGES };

/// The most requests of a context that are in flight ahead of readers.
pub(crate) const AHEAD_REQUESTS: usize = 24;

/// Memory for requests that fill pages of the cache, and their lists: used again and again, so that
/// reads do not allocate.
pub(crate) struct FillMemory {
    heap: DmaHeap,
    block_bytes: u32,
    /// Pages that the device may write to, the one that was given back last used first; and how
    /// many of them are kept in stock.
    pages: Vec<DmaBuf>,
    pool_pages: usize,
    /// Claims of pages that no request has yet.
    claims: Vec<Claim>,
    /// Pages that the cache has, to be copied in the gap.
    hits: Vec<u64>,
    /// Emptied ones, to be used again.
    page_lists: Vec<DmaPages>,
    claim_lists: Vec<Vec<Claim>>,
}

/// Whose the pages of a request are to be.
enum Claims {
    One(Claim),
    Many(Vec<Claim>),
}

/// The tag of a request for pages of a file, from page `first` on.
pub(crate) struct Fill {
    claims: Claims,
    file: u64,
    pub(crate) first: u64,
    /// How much was asked for, in bytes: less than whole pages at the end of the file.
    bytes: usize,
}

impl Fill {
    /// Its pages.
    pub(crate) fn pages(&self) -> Range<u64> {
        let count = match &self.claims {
            Claims::One(_) => 1,
            Claims::Many(claims) => claims.len(),
        };
        self.first..self.first + count as u64
    }

    /// Gives its claims up.
    pub(crate) fn abandon(self, cache: &PageCache) {
        match self.claims {
            Claims::One(claim) => cache.abandon(claim),
            Claims::Many(claims) => claims.into_iter().for_each(|claim| cache.abandon(claim)),
        }
    }
}

/// For whom pages are filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    /// A reader, who waits until there is room for the request.
    Reader,
    /// Nobody yet.
    Ahead,
}

/// Why a request was not sent. Its claims were given up.
#[derive(Debug)]
pub(crate) enum NotSent {
    /// There is no room in the queue now: only for what is read [ahead](For::Ahead).
    Full,
    /// There is no page to be had: what is missing has to be read past the cache.
    NoPage,
    Failed(Error),
}

/// The stretch of a file that a request is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FillRange {
    pub(crate) file: u64,
    /// Its first page.
    pub(crate) first: u64,
    /// The byte of the device where that begins.
    pub(crate) place: u64,
    pub(crate) bytes: usize,
}

impl FillMemory {
    /// Pages of `heap`, of which `pool_pages` are kept, for a device with blocks of `block_bytes`.
    pub(crate) fn new(heap: &DmaHeap, block_bytes: u32, pool_pages: usize) -> Self {
        Self {
            heap: heap.clone(),
            block_bytes,
            pages: Vec::with_capacity(pool_pages),
            pool_pages,
            claims: Vec::new(),
            hits: Vec::new(),
            page_lists: Vec::new(),
            claim_lists: Vec::new(),
        }
    }

    /// A page for the device to write to.
    #[inline]
    pub(crate) fn page(&mut self, cache: &PageCache) -> Option<DmaBuf> {
        if self.pages.is_empty() {
            cache.take_pages(1, &mut self.pages);
        }
        self.pages.pop()
    }

    /// Fills the pool up, with pages that were not used yet, or that the cache gives up for it.
    /// Work for the gap.
    #[inline]
    pub(crate) fn refill(&mut self, cache: &PageCache) {
        let missing = self.pool_pages.saturating_sub(self.pages.len());
        // Not one at a time: each turn takes locks.
        if missing > self.pool_pages / 4 {
            cache.take_pages(missing, &mut self.pages);
        }
    }

    /// Takes a page back that nobody needs.
    fn keep_page(&mut self, cache: &PageCache, mut page: DmaBuf) {
        if self.pages.len() < self.pool_pages {
            page.set_len(PAGE_BYTES);
            self.pages.push(page);
        } else {
            cache.give_pages([page]);
        }
    }

    /// The pages of a request that did not do what it should.
    #[cold]
    fn take_back(&mut self, cache: &PageCache, buf: DmaBuf) {
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

    fn keep_claim_list(&mut self, claims: Vec<Claim>) {
        debug_assert!(claims.is_empty());
        if self.claim_lists.len() < AHEAD_REQUESTS {
            self.claim_lists.push(claims);
        }
    }

    /// Gives the claims in the scratch up.
    #[cold]
    fn abandon_claims(&mut self, cache: &PageCache) {
        self.claims.drain(..).for_each(|claim| cache.abandon(claim));
    }

    /// An empty list for pages that are to be copied in the gap: [`give_hits`](Self::give_hits).
    pub(crate) fn take_hits(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.hits)
    }

    /// Takes that back.
    pub(crate) fn give_hits(&mut self, mut hits: Vec<u64>) {
        hits.clear();
        self.hits = hits;
    }

    /// The list that pages are claimed into before there is a [request](Self::request) for them:
    /// empty.
    #[inline]
    pub(crate) fn claims(&mut self) -> &mut Vec<Claim> {
        debug_assert!(self.claims.is_empty());
        &mut self.claims
    }

    /// The request for the pages that were [claimed](Self::claims), which are those of `stretch`.
    #[inline]
    pub(crate) fn request(
        &mut self,
        cache: &PageCache,
        stretch: FillRange,
        policy: Option<Policy>,
    ) -> Result<(Request, Fill), NotSent> {
        let FillRange { file, first, place, bytes } = stretch;
        let block_bytes = u64::from(self.block_bytes);
        let whole = bytes.next_multiple_of(block_bytes as usize);
        let buf = match self.buffer(cache, whole) {
            Ok(buf) => buf,
            Err(error) => {
                self.abandon_claims(cache);
                return Err(error);
            }
        };
        let mut request = Request::read(place / block_bytes, buf);
        request.policy = policy;
        let claims = match self.claims.len() {
            1 => self.claims.pop().map(Claims::One),
            _ => None,
        };
        let claims = claims.unwrap_or_else(|| {
            let empty = self.claim_lists.pop().unwrap_or_default();
            Claims::Many(std::mem::replace(&mut self.claims, empty))
        });
        Ok((request, Fill { claims, file, first, bytes }))
    }

    /// The request of `fill` was not sent: its pages are given up.
    #[cold]
    pub(crate) fn take_rejected(
        &mut self,
        cache: &PageCache,
        rejected: Rejected,
        fill: Fill,
    ) -> NotSent {
        if let Some(buf) = rejected.request.buf {
            self.take_back(cache, buf);
        }
        fill.abandon(cache);
        match rejected.error {
            SubmitError::Full { .. } => NotSent::Full,
            error => NotSent::Failed(RequestError::from(error).into()),
        }
    }

    /// A buffer of as many pages as there are claims, for `bytes` bytes.
    #[inline]
    fn buffer(&mut self, cache: &PageCache, bytes: usize) -> Result<DmaBuf, NotSent> {
        let count = self.claims.len();
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
            // All are whole pages of this heap, and fewer than a list takes.
            if list.push(page).is_err() {
                return Err(NotSent::Failed(Error::Resources(
                    "a page that is none of the device's".to_owned(),
                )));
            }
        }
        list.set_range(0, bytes);
        Ok(list.into_buf())
    }

    /// Has `seen` look at each page that the request of `fill` has read, with its number, and puts
    /// them into the cache; whether all of them are there. (What was invalidated since it was
    /// claimed is not.)
    ///
    /// # Errors
    /// The device's: the pages were given up, and `seen` saw none.
    #[inline]
    pub(crate) fn complete(
        &mut self,
        cache: &PageCache,
        done: Done,
        fill: Fill,
        mut seen: impl FnMut(u64, &[u8]),
    ) -> Result<bool, Error> {
        let Fill { claims, first, bytes, .. } = fill;
        let mut is_there = true;
        let buf = match (done.result, done.buf) {
            (Ok(()), Some(buf)) => buf,
            (result, buf) => return Err(self.failed(cache, result, buf, claims)),
        };
        match (DmaPages::from_buf(buf), claims) {
            (Err(mut page), Claims::One(claim)) => {
                page.set_len(PAGE_BYTES);
                if bytes < PAGE_BYTES {
                    page[bytes..].fill(0);
                }
                seen(first, &page);
                if let Err(page) = cache.publish(claim, page) {
                    is_there = false;
                    self.keep_page(cache, page);
                }
            }
            (Ok(mut list), Claims::Many(mut claims)) => {
                let short = bytes % PAGE_BYTES;
                if short > 0
                    && let Some(last) = list.pages_mut().last()
                {
                    last[short..].fill(0);
                }
                for ((index, page), claim) in (first..).zip(list.drain()).zip(claims.drain(..)) {
                    seen(index, &page);
                    if let Err(page) = cache.publish(claim, page) {
                        is_there = false;
                        cache.give_pages([page]);
                    }
                }
                self.keep_list(list);
                self.keep_claim_list(claims);
            }
            // A request comes back as it was sent.
            (Ok(list), claims) => {
                return Err(self.failed(cache, Ok(()), Some(list.into_buf()), claims));
            }
            (Err(page), claims) => return Err(self.failed(cache, Ok(()), Some(page), claims)),
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
        claims: Claims,
    ) -> Error {
        let claims = match claims {
            Claims::One(claim) => vec![claim],
            Claims::Many(claims) => claims,
        };
        match buf {
            Some(buf) => self.take_back(cache, buf),
            None => cache.lose_pages(claims.len()),
        }
        claims.into_iter().for_each(|claim| cache.abandon(claim));
        result.map_or_else(Error::from_io, |()| RequestError::Quarantined.into())
    }
}

impl IoContext {
    /// Sends a request for the pages that were [claimed](FillMemory::claims), which are those of
    /// `stretch`.
    #[inline]
    pub(crate) fn send_claimed(
        &mut self,
        cache: &PageCache,
        counts: &Counts,
        whom: For,
        stretch: FillRange,
        policy: Option<Policy>,
    ) -> Result<(), NotSent> {
        let (request, fill) = self.fills.request(cache, stretch, policy)?;
        let sent = match whom {
            For::Reader => self.submit(reads, request, fill),
            For::Ahead => self.try_submit(ahead, request, fill),
        };
        sent.map_err(|(rejected, fill)| self.fills.take_rejected(cache, rejected, fill))?;
        counts.add(Count::Requests, 1);
        counts.add(Count::RequestedBytes, stretch.bytes as u64);
        Ok(())
    }

    /// Waits for the oldest request that a reader has sent, and [completes](FillMemory::complete)
    /// it; its first page, and what came of it. `None`: there is none.
    #[inline]
    pub(crate) fn complete_read(
        &mut self,
        cache: &PageCache,
        seen: impl FnMut(u64, &[u8]),
    ) -> Option<(u64, Result<(), Error>)> {
        let (done, fill) = self.next(reads)?;
        let first = fill.first;
        // (Blocks are not taken away from the file while its reader waits: what was read is right,
        // whether it came into the cache or not.)
        Some((first, self.fills.complete(cache, done, fill, seen).map(|_| ())))
    }

    /// Puts what was read ahead and has come into the cache; what has failed is simply not there.
    #[cold]
    #[inline(never)]
    pub(crate) fn reap_ahead(&mut self, cache: &PageCache, counts: &Counts) {
        self.poll();
        let mut place = 0;
        while place < self.in_flight().ahead.len() {
            match self.ended_at(ahead, place) {
                Some((done, fill)) => self.complete_ahead(cache, counts, done, fill),
                None => place += 1,
            }
        }
    }

    /// Waits for what was read ahead and has page `index` of `file`, or for the oldest; false:
    /// there is none.
    pub(crate) fn wait_ahead(
        &mut self,
        cache: &PageCache,
        counts: &Counts,
        page: Option<(u64, u64)>,
    ) -> bool {
        let holds = |fill: &Fill| {
            page.is_none_or(|(file, index)| fill.file == file && fill.pages().contains(&index))
        };
        let Some(place) = self.in_flight().ahead.position(holds) else { return false };
        if let Some((done, fill)) = self.next_at(ahead, place) {
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
