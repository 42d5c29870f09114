//! The page cache of a mount: pages of 4 KiB in DMA memory, by file and index.
//!
//! A hit takes no lock and, but for a page's first three visits, writes nothing:
//! [`PageCache::look_up`], [`PageCache::copy`]. A miss is claimed ([`PageCache::claim`]) by exactly
//! one reader, which supplies a page ([`PageCache::take_pages`]) that the device reads into, and
//! then [publishes](PageCache::publish) or [abandons](PageCache::abandon) it. Other readers of the
//! page [wait](PageCache::wait) for a time of their choice, or read past the cache. A page that is
//! [invalidated](PageCache::invalidate) while it is being read does not enter the cache.
//!
//! ```text
//!            claim            publish             evict, invalidate
//!   Free ───────────▶ Filling ───────────▶ Ready ───────────────────▶ Free (next generation)
//!    ▲                   │ │ invalidate
//!    │      abandon      │ └──────────▶ Dropped ──┐ publish: the page goes back to its reader
//!    └───────────────────┴────────────────────────┘ abandon
//! ```
//!
//! A page's memory has one owner at any time: the free list in here, a reader (as a [`DmaBuf`]), or
//! the page's slot. A ready page can be written to, and is dirty then; it can be copied out for the
//! device, and is under writeback meanwhile ([`write`]). A dirty page or one under writeback is
//! neither evicted nor invalidated.

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
use table::{At, PageSlot, Published, Table};
pub use write::Written;

/// The size of a page of the cache in bytes, independent of the file system's block size.
pub const PAGE_BYTES: usize = DMA_PAGE;

/// The size of a page in bytes, as a 64-bit number for offsets in files.
pub(crate) const PAGE: u64 = PAGE_BYTES as u64;

/// The minimum memory of a cache, in bytes.
pub const LEAST_BYTES: usize = 1 << 20;

/// Pages allocated per growth step.
const GROWTH_PAGES: usize = 512;

/// The number of published pages at which `publish` puts them in their queues itself.
const ARRIVALS_MOST: usize = 256;

/// The cache of a mount. Any thread may use it.
pub struct PageCache {
    table: Table<PageCell>,
    heap: DmaHeap,
    /// The maximum number of pages.
    capacity: usize,
    /// Pages that exist: free, in slots, and with readers.
    made: AtomicUsize,
    pages: Mutex<Vec<DmaBuf>>,
    slots: Mutex<Vec<u32>>,
    /// Pages published since the last upkeep of the queues.
    arrivals: Mutex<Vec<At>>,
    /// This lock is taken before the others.
    upkeep: Mutex<Upkeep>,
    evicted: AtomicU64,
    dropped: AtomicU64,
}

/// The state for the upkeep of the queues. Its lists are empty between two runs, and keep their
/// memory.
struct Upkeep {
    queues: Queues,
    arrived: Vec<At>,
    /// Evicted slots and pages, before they are freed.
    slots: Vec<u32>,
    pages: Vec<DmaBuf>,
}

/// The slot in which a page was found. The page may have left it since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hit(At);

/// A page that another reader is reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filling(At);

/// The state of a page in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookUp {
    /// The page is ready for [`PageCache::copy`].
    Hit(Hit),
    /// Another reader is reading the page; see [`PageCache::wait`].
    Filling(Filling),
    /// The page is not in the cache; see [`PageCache::claim`].
    Absent,
}

/// The duty to read a page, which ends with [`PageCache::publish`] or [`PageCache::abandon`]. If it
/// is dropped instead, an error is logged. The page cannot be cached then until it is invalidated,
/// and its readers read past the cache.
#[must_use = "others wait for the page"]
#[derive(Debug)]
pub struct FillDuty(At);

// A request carries it beside a page.
const _: () =
    assert!(size_of::<FillDuty>() == 8 && size_of::<DmaBuf>() + size_of::<FillDuty>() <= 48);

impl FillDuty {
    fn redeem(self) -> At {
        let at = self.0;
        std::mem::forget(self);
        at
    }
}

impl Drop for FillDuty {
    fn drop(&mut self) {
        tracing::error!(
            slot = self.0.slot,
            "a page was claimed, and neither published nor abandoned"
        );
    }
}

/// The result of claiming a page.
#[derive(Debug)]
pub enum Claiming {
    /// The caller has to read the page.
    Claimed(FillDuty),
    /// The page is ready now.
    Hit(Hit),
    /// Another reader is reading it.
    Filling(Filling),
    /// No slot is free, so the caller reads past the cache.
    Full,
}

/// Counters and sizes of the cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheCounters {
    /// The maximum number of pages.
    pub capacity_pages: usize,
    /// Pages that exist, those with readers included.
    pub pages: usize,
    /// Free pages.
    pub free_pages: usize,
    /// Pages that are to be written. The mount counts these, not the cache.
    pub dirty_pages: usize,
    /// Pages evicted so far.
    pub evicted: u64,
    /// Pages that were invalidated while they were read.
    pub dropped: u64,
}

impl PageSlot for PageCell {
    type Page = DmaBuf;

    fn put(&self, page: DmaBuf) -> Result<(), DmaBuf> {
        PageCell::put(self, page)
    }

    fn take(&self) -> Option<DmaBuf> {
        PageCell::take(self)
    }
}

impl PageCache {
    /// Makes a cache of at most `bytes` of `heap` (at least [`LEAST_BYTES`]). Memory is allocated
    /// as needed, 2 MiB at once.
    ///
    /// # Errors
    /// Fails if there is no memory.
    pub fn new(heap: &DmaHeap, bytes: usize) -> Result<Self, HwError> {
        let capacity = (bytes.max(LEAST_BYTES) / PAGE_BYTES).min(1 << 29);
        // There are more slots than pages, because a slot is freed later than its page.
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

    /// Returns the maximum number of pages.
    pub fn capacity_pages(&self) -> usize {
        self.capacity
    }

    /// Returns the counters.
    pub fn counters(&self) -> CacheCounters {
        CacheCounters {
            capacity_pages: self.capacity,
            pages: self.made.load(Ordering::Relaxed),
            free_pages: lock(&self.pages).len(),
            dirty_pages: 0,
            evicted: self.evicted.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
        }
    }

    /// Returns the state of page `index` of `file`.
    #[inline]
    pub fn look_up(&self, file: u64, index: u64) -> LookUp {
        self.table.look_up(file, index)
    }

    /// Copies from a page that was found. Returns false if the page has left the cache: the content
    /// of `to` is invalid then.
    ///
    /// # Panics
    /// Panics if the range exceeds the page.
    #[inline]
    pub fn copy(&self, hit: Hit, offset_bytes: usize, to: &mut [u8]) -> bool {
        self.table.place(hit.0).copy_out(offset_bytes, to) && self.table.still(hit.0)
    }

    /// Looks page `index` of `file` up, and copies from it if it is ready. A page that leaves
    /// during the copy is [`LookUp::Absent`]; `to` may have been overwritten then.
    ///
    /// # Panics
    /// Panics if the range exceeds the page.
    #[inline]
    pub fn read(&self, file: u64, index: u64, offset_bytes: usize, to: &mut [u8]) -> LookUp {
        match self.look_up(file, index) {
            LookUp::Hit(hit) if !self.copy(hit, offset_bytes, to) => LookUp::Absent,
            found => found,
        }
    }

    /// Counts a use of a page, which delays its eviction. The reads of one pass over a page should
    /// count as one, or a scan by small reads makes the page look used. Writes nothing after three
    /// uses.
    #[inline]
    pub fn visit(&self, hit: Hit) {
        self.table.visit(hit.0);
    }

    /// Claims page `index` of `file`.
    pub fn claim(&self, file: u64, index: u64) -> Claiming {
        let mut slots = lock(&self.slots);
        self.claim_in(&mut slots, file, index)
    }

    /// Claims pages of `file` from `first` on, at most `most` of them, and adds their duties to
    /// `into`. Stops at the first page that is not absent. Returns their number.
    pub fn claim_run(&self, file: u64, first: u64, most: usize, into: &mut Vec<FillDuty>) -> usize {
        let mut slots = lock(&self.slots);
        for count in 0..most {
            let index = first.checked_add(count as u64);
            match index.map(|index| self.claim_in(&mut slots, file, index)) {
                Some(Claiming::Claimed(duty)) => into.push(duty),
                _ => return count,
            }
        }
        most
    }

    fn claim_in(&self, slots: &mut Vec<u32>, file: u64, index: u64) -> Claiming {
        let Some(slot) = slots.pop() else { return Claiming::Full };
        match self.table.claim(slot, file, index) {
            Ok(at) => Claiming::Claimed(FillDuty(at)),
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

    /// Publishes the claimed page, which was read into `page`: readers find it from now on, and
    /// waiters are woken.
    ///
    /// # Errors
    /// Returns the page if it does not enter the cache, because it was invalidated meanwhile or
    /// does not come from this cache's heap. Its reader may use it.
    pub fn publish(&self, duty: FillDuty, page: DmaBuf) -> Result<Hit, DmaBuf> {
        let at = duty.redeem();
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
                // The thread that holds the lock does this work.
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

    /// Abandons a page that could not be read: its waiters are woken, and may claim it.
    pub fn abandon(&self, duty: FillDuty) {
        let at = duty.redeem();
        self.table.abandon(at);
        lock(&self.slots).push(at.slot);
    }

    /// Waits until `filling` has been published or abandoned, for `timeout_ns` at most. It polls
    /// for about a microsecond, then sleeps. Returns false if the page is still being read. It may
    /// return early, so the caller looks the page up again in any case.
    pub fn wait(&self, filling: Filling, timeout_ns: u64) -> bool {
        self.table.wait(filling.0, timeout_ns)
    }

    /// Drops `filling`: what its reader reads does not enter the cache, and the page can be
    /// claimed.
    pub fn drop_filling(&self, filling: Filling) {
        self.table.drop_filling(filling.0);
    }

    /// Registers `waker` for the end of `filling`. Returns false if it has ended already; the
    /// caller then looks the page up again.
    pub fn register(&self, filling: Filling, waker: &Waker) -> bool {
        self.table.register(filling.0, waker)
    }

    /// Removes the pages of `file` in `indices`, as after a truncation. Pages that are being read
    /// do not enter the cache, and their waiters are woken.
    pub fn invalidate(&self, file: u64, indices: Range<u64>) {
        self.each_of(file, indices, |index| self.table.forget(file, index));
    }

    /// Removes the clean pages `indices` of `file`, to save memory. Pages that are being read enter
    /// the cache all the same, so that their readers do not have to begin again.
    pub fn drop_clean(&self, file: u64, indices: Range<u64>) {
        self.each_of(file, indices, |index| self.table.forget_clean(file, index));
    }

    /// Removes pages `indices` of `file` by `remove`.
    fn each_of(
        &self,
        file: u64,
        indices: Range<u64>,
        remove: impl Fn(u64) -> Option<(u32, Option<DmaBuf>)>,
    ) {
        let forget = |index| {
            if let Some((slot, page)) = remove(index) {
                lock(&self.pages).extend(page);
                lock(&self.slots).push(slot);
            }
        };
        if indices.end.saturating_sub(indices.start) <= u64::from(self.table.slots()) {
            indices.for_each(forget);
        } else {
            // There are fewer slots than pages in the range.
            for slot in 0..self.table.slots() {
                let (theirs, index) = self.table.key(At { slot, generation: 0 });
                if theirs == file && indices.contains(&index) {
                    forget(index);
                }
            }
        }
    }

    /// Takes up to `count` free pages with arbitrary content into `pages`, from the free list, from
    /// the heap, or by eviction. Returns how many it took; these are fewer if all pages are in use
    /// or there is no memory.
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

    /// Brings the page that is taken next into the CPU's cache. Runs while the device works.
    pub fn warm_page(&self) {
        let next = lock(&self.pages).pop();
        if let Some(mut page) = next {
            page.warm(PAGE_BYTES);
            lock(&self.pages).push(page);
        }
    }

    /// Takes pages back.
    pub fn give_pages(&self, pages: impl IntoIterator<Item = DmaBuf>) {
        let fits = |page: &DmaBuf| page.capacity() == PAGE_BYTES && page.is_of(&self.heap);
        lock(&self.pages).extend(pages.into_iter().filter(fits).map(|mut page| {
            page.set_len(PAGE_BYTES);
            page
        }));
    }

    /// Records that `count` pages will not come back: the device kept them, or they were dropped.
    pub fn lose_pages(&self, count: usize) {
        let less = |made: usize| Some(made.saturating_sub(count));
        let _ = self.made.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Puts published pages in their queues, and evicts until `spare` pages are free or left on the
    /// heap, but at most `budget` pages. Returns how many it evicted. This runs while the device
    /// works.
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

    /// Allocates more pages, up to the capacity.
    fn grow(&self, free: &mut Vec<DmaBuf>) -> Result<(), HwError> {
        // The caller holds the lock, so one thread at a time does this.
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

    /// Evicts up to `count` pages. Returns how many.
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

/// The table, for the queues.
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

/// Locks `mutex`. Each list is consistent after each step, so a poisoned lock may be used.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(loom, test))]
mod loom_model;
