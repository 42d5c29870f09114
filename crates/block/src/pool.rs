//! A pool of DMA-mapped pages for one thread: taking and returning a page takes a few instructions,
//! without a lock.

use meantime_hw::{DmaBuf, DmaHeap, HwError};

/// Pages of 4 KiB. The page returned last is reused first, since its cache lines are warm.
pub struct PagePool {
    heap: DmaHeap,
    pages: Vec<DmaBuf>,
    capacity: usize,
}

impl PagePool {
    /// The size of a page in bytes.
    pub const PAGE_BYTES: usize = meantime_hw::dma::DMA_PAGE;

    /// A full pool of `capacity` pages.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn new(heap: &DmaHeap, capacity: usize) -> Result<Self, HwError> {
        let mut pool = Self { heap: heap.clone(), pages: Vec::with_capacity(capacity), capacity };
        pool.refill()?;
        Ok(pool)
    }

    /// Takes a page, if there is one, with unspecified content.
    #[inline]
    pub fn take(&mut self) -> Option<DmaBuf> {
        self.pages.pop()
    }

    /// Returns `page`; beyond the pool's capacity it goes back to the heap.
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

    /// Refills the pool from the heap: work for the gap.
    ///
    /// # Errors
    /// If there is no memory; the pool keeps its pages.
    pub fn refill(&mut self) -> Result<(), HwError> {
        while self.pages.len() < self.capacity {
            self.pages.push(self.heap.alloc(Self::PAGE_BYTES)?);
        }
        Ok(())
    }

    /// Number of pages in the pool.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether the pool is empty.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }
}
