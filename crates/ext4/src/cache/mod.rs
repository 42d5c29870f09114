//! The page cache of a mount: pages of 4 KiB in DMA memory, by file and index.
//!
//! A hit takes no lock and writes to nothing that another core uses: [`PageCache::read`]. A miss is
//! claimed ([`PageCache::claim`]) by exactly one reader, who brings a page
//! ([`PageCache::take_pages`]) that the device reads into, and then [publishes](PageCache::publish)
//! or [abandons](PageCache::abandon) it. Others who want the page meanwhile [wait](PageCache::wait)
//! as long as they please, or read it past the cache. What is [invalidated](PageCache::invalidate)
//! while it is being read stays out.
//!
//! ```text
//!            claim            publish             evict, invalidate
//!   Free ───────────▶ Filling ───────────▶ Ready ───────────────────▶ Free (next generation)
//!    ▲                   │ │ invalidate
//!    │      abandon      │ └──────────▶ Dropped ──┐ publish: the page goes back to its reader
//!    └───────────────────┴────────────────────────┘ abandon
//! ```
//!
//! A page's memory has one owner at any time: the pool in here, a reader (as a [`DmaBuf`]), or the
//! page's slot. A page that is ready can be written to, and is dirty then; it can be copied out for
//! the device, and is under writeback meanwhile ([`write`]). Such a page is neither evicted nor
//! invalidated.

mod parking;
mod queues;
mod table;
mod word;
mod write;

use std::ops::Range;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;

use meantime_hw::dma::DMA_PAGE;
use meantime_hw::{DmaBuf, DmaHeap, HwError, PageCell};
use meantime_process::lock::{Mutex, MutexGuard, Rank};
use queues::{Pages, Queues};
use table::{At, Place, Published, Table};
pub use write::Written;

/// The size of a page of the cache in bytes, whatever the file system's blocks are.
pub const PAGE_BYTES: usize = DMA_PAGE;

/// The least memory of a cache, in bytes.
pub const LEAST_BYTES: usize = 1 << 20;

/// How many pages are had from the heap at a time.
const GROWTH_PAGES: usize = 512;

/// So many published pages are put in their queues at once, if nobody did that in a gap.
const ARRIVALS_MOST: usize = 256;

/// The cache of a mount. Any thread may use it.
pub struct PageCache {
    table: Table<PageCell>,
    heap: DmaHeap,
    /// How many pages there may be.
    capacity: usize,
    /// How many pages there are: here, in slots, and with readers.
    made: AtomicUsize,
    pages: Mutex<Vec<DmaBuf>>,
    slots: Mutex<Vec<u32>>,
    /// What was published since the queues were looked after.
    arrivals: Mutex<Vec<At>>,
    /// Locked before the others.
    upkeep: Mutex<Upkeep>,
    evicted: AtomicU64,
    dropped: AtomicU64,
}

/// What looking after the queues takes. Its lists are empty between two times, and keep their
/// memory.
struct Upkeep {
    queues: Queues,
    arrived: Vec<At>,
    /// What was evicted, on its way to the free ones.
    slots: Vec<u32>,
    pages: Vec<DmaBuf>,
}

/// Where a page was found; of no more use than to look again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hit(At);

/// A page that somebody else is reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filling(At);

/// What the cache has of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookUp {
    /// It is there: [`PageCache::copy`].
    Hit(Hit),
    /// Somebody is reading it: [`PageCache::wait`].
    Filling(Filling),
    /// Nothing: [`PageCache::claim`].
    Absent,
}

/// The duty to read a page: to be given to [`PageCache::publish`] or [`PageCache::abandon`]. (If it
/// is lost instead, which is logged, the page cannot be cached any more until it is invalidated,
/// and its readers read past the cache.)
#[must_use = "others wait for the page"]
#[derive(Debug)]
pub struct Claim(At);

// It goes beside a page in a request.
const _: () = assert!(size_of::<Claim>() == 8 && size_of::<DmaBuf>() + size_of::<Claim>() <= 48);

impl Claim {
    fn redeem(self) -> At {
        let at = self.0;
        std::mem::forget(self);
        at
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        tracing::error!(
            slot = self.0.slot,
            "a page was claimed, and neither published nor abandoned"
        );
    }
}

/// What became of a claim.
#[derive(Debug)]
pub enum Claiming {
    /// The caller is to read it.
    Claimed(Claim),
    /// It is there by now.
    Hit(Hit),
    /// Somebody else is reading it.
    Filling(Filling),
    /// There is no slot to be had: read it past the cache.
    Full,
}

/// What the cache did, and has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// How many pages there may be.
    pub capacity_pages: usize,
    /// How many there are, those of readers included.
    pub pages: usize,
    /// How many of them are free.
    pub free_pages: usize,
    /// Pages evicted so far.
    pub evicted: u64,
    /// Pages that were read in vain, since they were invalidated meanwhile.
    pub dropped: u64,
}

impl Place for PageCell {
    type Page = DmaBuf;

    fn put(&self, page: DmaBuf) -> Result<(), DmaBuf> {
        PageCell::put(self, page)
    }

    fn take(&self) -> Option<DmaBuf> {
        PageCell::take(self)
    }
}

impl PageCache {
    /// A cache of at most `bytes` of `heap` (at least [`LEAST_BYTES`]). The memory is had as it is
    /// needed; 2 MiB are there at once.
    ///
    /// # Errors
    /// Without memory.
    pub fn new(heap: &DmaHeap, bytes: usize) -> Result<Self, HwError> {
        let capacity = (bytes.max(LEAST_BYTES) / PAGE_BYTES).min(1 << 29);
        // More than pages: a slot is free again later than its page.
        let slots = capacity + capacity / 8 + 64;
        let cache = Self {
            table: Table::new((0..slots).map(|_| PageCell::new(heap))),
            heap: heap.clone(),
            capacity,
            made: AtomicUsize::new(0),
            pages: Mutex::new(Rank::CachePages, Vec::new()),
            slots: Mutex::new(Rank::CacheSlots, (0..slots as u32).rev().collect()),
            arrivals: Mutex::new(Rank::CacheArrivals, Vec::with_capacity(2 * ARRIVALS_MOST)),
            upkeep: Mutex::new(
                Rank::CacheUpkeep,
                Upkeep {
                    queues: Queues::new(capacity),
                    arrived: Vec::with_capacity(2 * ARRIVALS_MOST),
                    slots: Vec::new(),
                    pages: Vec::new(),
                },
            ),
            evicted: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        };
        cache.grow(&mut lock(&cache.pages))?;
        Ok(cache)
    }

    /// How many pages there may be.
    pub fn capacity_pages(&self) -> usize {
        self.capacity
    }

    /// What it did, and has.
    pub fn counters(&self) -> CacheCounters {
        CacheCounters {
            capacity_pages: self.capacity,
            pages: self.made.load(Ordering::Relaxed),
            free_pages: lock(&self.pages).len(),
            evicted: self.evicted.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
        }
    }

    /// What the cache has of page `index` of `file`.
    #[inline]
    pub fn look_up(&self, file: u64, index: u64) -> LookUp {
        self.table.look_up(file, index)
    }

    /// Copies from a page that was found; false if it is not there any more: what `to` holds then
    /// is of no use.
    ///
    /// # Panics
    /// Beyond the end of the page.
    #[inline]
    pub fn copy(&self, hit: Hit, offset_bytes: usize, to: &mut [u8]) -> bool {
        self.table.place(hit.0).copy_out(offset_bytes, to) && self.table.still(hit.0)
    }

    /// Looks page `index` of `file` up, and copies from it if it is there. A page that leaves in
    /// the middle is [`LookUp::Absent`]; `to` may have been written to then.
    ///
    /// # Panics
    /// Beyond the end of the page.
    #[inline]
    pub fn read(&self, file: u64, index: u64, offset_bytes: usize, to: &mut [u8]) -> LookUp {
        match self.look_up(file, index) {
            LookUp::Hit(hit) if !self.copy(hit, offset_bytes, to) => LookUp::Absent,
            found => found,
        }
    }

    /// Counts a use of a page, for it to stay. The reads of one pass over a page should count as
    /// one, or a scan by small reads looks like a page in use. Writes nothing once it was used
    /// three times.
    #[inline]
    pub fn visit(&self, hit: Hit) {
        self.table.visit(hit.0);
    }

    /// Claims page `index` of `file`. A claimant should have a page to read it into.
    pub fn claim(&self, file: u64, index: u64) -> Claiming {
        let mut slots = lock(&self.slots);
        self.claim_in(&mut slots, file, index)
    }

    /// Claims up to `most` pages of `file` from `first` on, into `claims`: as many as are absent,
    /// up to the first that is not. How many.
    pub fn claim_run(&self, file: u64, first: u64, most: usize, claims: &mut Vec<Claim>) -> usize {
        let mut slots = lock(&self.slots);
        for count in 0..most {
            let index = first.checked_add(count as u64);
            match index.map(|index| self.claim_in(&mut slots, file, index)) {
                Some(Claiming::Claimed(claim)) => claims.push(claim),
                _ => return count,
            }
        }
        most
    }

    fn claim_in(&self, slots: &mut Vec<u32>, file: u64, index: u64) -> Claiming {
        let Some(slot) = slots.pop() else { return Claiming::Full };
        match self.table.claim(slot, file, index) {
            Ok(at) => Claiming::Claimed(Claim(at)),
            Err(found) => {
                slots.push(slot);
                match found {
                    LookUp::Hit(hit) => Claiming::Hit(hit),
                    LookUp::Filling(filling) => Claiming::Filling(filling),
                    LookUp::Absent => Claiming::Full,
                }
            }
        }
    }

    /// The claimed page was read into `page`, and is in the cache from now on: everybody finds it,
    /// and who waits is woken.
    ///
    /// # Errors
    /// The page, if it does not go into the cache: it was invalidated meanwhile, or is no page of
    /// this cache's heap. Its reader may use it.
    pub fn publish(&self, claim: Claim, page: DmaBuf) -> Result<Hit, DmaBuf> {
        let at = claim.redeem();
        self.published(at, self.table.publish(at, page))
    }

    fn published(&self, at: At, published: Published<DmaBuf>) -> Result<Hit, DmaBuf> {
        match published {
            Published::Ready => {
                let arrivals = {
                    let mut arrivals = lock(&self.arrivals);
                    arrivals.push(at);
                    arrivals.len()
                };
                // Whoever has the lock does it.
                if arrivals >= ARRIVALS_MOST
                    && let Ok(mut upkeep) = self.upkeep.try_lock()
                {
                    self.queue_arrivals(&mut upkeep);
                }
                Ok(Hit(at))
            }
            Published::Dropped(page) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                lock(&self.slots).push(at.slot);
                Err(page)
            }
            Published::Refused(page) => {
                lock(&self.slots).push(at.slot);
                Err(page)
            }
        }
    }

    /// The claimed page could not be read; who waits for it is woken, and may claim it.
    pub fn abandon(&self, claim: Claim) {
        let at = claim.redeem();
        self.table.abandon(at);
        lock(&self.slots).push(at.slot);
    }

    /// Waits until `filling`'s reader is done, well or not, for `timeout_ns` at most: looks for
    /// about a microsecond, then sleeps. False: it is still being read. It may end early: look
    /// again in any case.
    pub fn wait(&self, filling: Filling, timeout_ns: u64) -> bool {
        self.table.wait(filling.0, timeout_ns)
    }

    /// `filling` is not waited for any more: what its reader has does not come into the cache, and
    /// the page can be claimed.
    pub fn drop_filling(&self, filling: Filling) {
        self.table.drop_filling(filling.0);
    }

    /// Has `waker` woken when `filling`'s reader is done. False: it is done already; look again.
    pub fn register(&self, filling: Filling, waker: &Waker) -> bool {
        self.table.register(filling.0, waker)
    }

    /// Forgets the pages of `file` in `indices`, as after a truncation. Those that are being read
    /// do not come into the cache; who waits for them is woken.
    pub fn invalidate(&self, file: u64, indices: Range<u64>) {
        if indices.end.saturating_sub(indices.start) <= u64::from(self.table.slots()) {
            indices.for_each(|index| self.forget(file, index));
        } else {
            // Fewer slots than pages.
            for slot in 0..self.table.slots() {
                let (theirs, index) = self.table.key(At { slot, generation: 0 });
                if theirs == file && indices.contains(&index) {
                    self.forget(file, index);
                }
            }
        }
    }

    fn forget(&self, file: u64, index: u64) {
        if let Some((slot, page)) = self.table.forget(file, index) {
            lock(&self.pages).extend(page);
            lock(&self.slots).push(slot);
        }
    }

    /// Takes up to `count` free pages, with anything in them, into `pages`: from those that are
    /// free, from the heap, or from what is evicted for them. How many; fewer if all are in use, or
    /// there is no memory.
    pub fn take_pages(&self, count: usize, pages: &mut Vec<DmaBuf>) -> usize {
        let mut taken = 0;
        while taken < count {
            let mut free = lock(&self.pages);
            if free.is_empty() && self.grow(&mut free).is_err() {
                tracing::warn!("no memory for more of the page cache: it stays as it is");
            }
            let some = free.len().min(count - taken);
            let from = free.len() - some;
            pages.extend(free.drain(from..));
            drop(free);
            taken += some;
            if some == 0 && self.evict(count - taken) == 0 {
                break;
            }
        }
        taken
    }

    /// Has the CPU's cache own the page that is taken next. Work for the gap.
    pub fn warm_page(&self) {
        let next = lock(&self.pages).pop();
        if let Some(mut page) = next {
            page.warm(PAGE_BYTES);
            lock(&self.pages).push(page);
        }
    }

    /// Gives pages back.
    pub fn give_pages(&self, pages: impl IntoIterator<Item = DmaBuf>) {
        let fits = |page: &DmaBuf| page.capacity() == PAGE_BYTES && page.is_of(&self.heap);
        lock(&self.pages).extend(pages.into_iter().filter(fits).map(|mut page| {
            page.set_len(PAGE_BYTES);
            page
        }));
    }

    /// `count` pages will not come back: they were given up with their device, or dropped.
    pub fn lose_pages(&self, count: usize) {
        let less = |made: usize| Some(made.saturating_sub(count));
        let _ = self.made.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// For the gap: puts what was published in its queue, and evicts until `spare` pages are free,
    /// or could be had from the heap; at most `budget` pages are evicted. How many were.
    pub fn maintain(&self, spare: usize, budget: usize) -> usize {
        let there = lock(&self.pages).len()
            + self.capacity.saturating_sub(self.made.load(Ordering::Relaxed));
        match spare.saturating_sub(there).min(budget) {
            0 => {
                self.queue_arrivals(&mut lock(&self.upkeep));
                0
            }
            missing => self.evict(missing),
        }
    }

    /// More pages, if there may be.
    fn grow(&self, free: &mut Vec<DmaBuf>) -> Result<(), HwError> {
        // One thread at a time: the caller has the lock.
        let count =
            self.capacity.saturating_sub(self.made.load(Ordering::Relaxed)).min(GROWTH_PAGES);
        if count > 0 {
            free.extend(self.heap.alloc_pages(count)?);
            self.made.fetch_add(count, Ordering::Relaxed);
        }
        Ok(())
    }

    fn queue_arrivals(&self, upkeep: &mut Upkeep) {
        let Upkeep { queues, arrived, .. } = upkeep;
        std::mem::swap(&mut *lock(&self.arrivals), arrived);
        let view = Evicting { table: &self.table, slots: &mut Vec::new(), pages: &mut Vec::new() };
        arrived.drain(..).for_each(|at| queues.arrive(at, &view));
    }

    /// Evicts up to `count` pages; how many.
    fn evict(&self, count: usize) -> usize {
        let mut upkeep = lock(&self.upkeep);
        self.queue_arrivals(&mut upkeep);
        let Upkeep { queues, slots, pages, .. } = &mut *upkeep;
        let mut view = Evicting { table: &self.table, slots, pages };
        let evicted = (0..count).take_while(|_| queues.evict_one(&mut view)).count();
        lock(&self.pages).append(pages);
        lock(&self.slots).append(slots);
        self.evicted.fetch_add(evicted as u64, Ordering::Relaxed);
        evicted
    }
}

/// The table as the queues see it.
struct Evicting<'a> {
    table: &'a Table<PageCell>,
    slots: &'a mut Vec<u32>,
    pages: &'a mut Vec<DmaBuf>,
}

impl Pages for Evicting<'_> {
    fn visits(&self, at: At) -> Option<u32> {
        self.table.visits(at)
    }

    fn set_visits(&self, at: At, count: u32) {
        self.table.set_visits(at, count);
    }

    fn hash(&self, at: At) -> u64 {
        let (file, index) = self.table.key(at);
        table::hash(file, index)
    }

    fn evict(&mut self, at: At) -> bool {
        let Some(page) = self.table.evict(at) else { return false };
        self.slots.push(at.slot);
        self.pages.extend(page);
        true
    }
}

/// Every list in here is whole after each step, so that a panic elsewhere does not spoil it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(loom, test))]
mod model;
