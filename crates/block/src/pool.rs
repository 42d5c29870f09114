//! A pool of DMA-mapped pages that belongs to one thread: taking and giving are a few instructions,
//! without a lock.

use meantime_hw::{DmaBuf, DmaHeap, HwError};

/// Pages of 4 KiB, the one given back last first, since its lines are warm.
pub struct PagePool {
    heap: DmaHeap,
    pages: Vec<DmaBuf>,
    capacity: usize,
}

impl PagePool {
    /// The size of a page in bytes.
    pub const PAGE_BYTES: usize = meantime_hw::dma::DMA_PAGE;

    /// A pool that holds up to `capacity` pages, all of them there at once.
    ///
    /// # Errors
    /// Without memory.
    pub fn new(heap: &DmaHeap, capacity: usize) -> Result<Self, HwError> {
        let mut pool = Self { heap: heap.clone(), pages: Vec::with_capacity(capacity), capacity };
        pool.refill()?;
        Ok(pool)
    }

    /// A page, if there is one. Its contents are whatever they were.
    #[inline]
    pub fn take(&mut self) -> Option<DmaBuf> {
        self.pages.pop()
    }

    /// Takes `page` back; beyond the pool's capacity it goes back to the heap.
    #[inline]
    pub fn give(&mut self, mut page: DmaBuf) {
        if self.pages.len() < self.capacity
            && page.capacity() == Self::PAGE_BYTES
            && page.is_of(&self.heap)
        {
            page.set_len(Self::PAGE_BYTES);
            self.pages.push(page);
        }
    }

    /// Fills the pool up from the heap: work for the gap.
    ///
    /// # Errors
    /// Without memory; the pool keeps what it has.
    pub fn refill(&mut self) -> Result<(), HwError> {
        while self.pages.len() < self.capacity {
            self.pages.push(self.heap.alloc(Self::PAGE_BYTES)?);
        }
        Ok(())
    }

    /// How many pages are there.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }
}
