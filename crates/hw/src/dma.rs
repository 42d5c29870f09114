//! The DMA heap: memory that a controller may reach, by I/O virtual address.
//!
//! A heap grows by chunks of huge pages, each mapped into the controller's address space once.
//! Buffers are ranges of a chunk, contiguous in both address spaces, aligned to 4 KiB. Allocation
//! takes a lock and is not for the fast path, which reuses its buffers.

#![expect(unsafe_code)]

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};

use super::pages::{PageKind, Pages};
use super::transport::DmaMap;
use super::{HwError, Result};
use meantime_process::lock::{Mutex, MutexGuard, Rank};

/// The granularity of allocation: one page of the controller's (CC.MPS = 0).
pub const DMA_PAGE: usize = 4096;

/// The largest single buffer.
pub(crate) const MAX_BUFFER: usize = 1 << 30;

const CHUNK: usize = 8 << 20;

/// Bytes of a CPU's cache line.
const LINE_BYTES: usize = 64;

/// The capacity that marks a scattered buffer, which points to a list of pages (see `scatter`).
/// Other capacities are whole pages.
pub(super) const SCATTERED: u32 = 1;

/// Flag in a buffer's capacity: the rest of it is the number of lent bytes of a caller's memory
/// (see `user_memory`).
pub(super) const LENT: u32 = 2;

/// The chunk size doubles after this many chunks: an IOMMU, or another process, takes a limited
/// number of mappings.
const CHUNKS_OF_A_SIZE: usize = 8;

/// An address as the controller sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Iova(pub u64);

/// Memory that one controller may reach. Cloning shares the heap.
#[derive(Clone)]
pub struct DmaHeap(Arc<Inner>);

pub(super) struct Inner {
    pub(super) map: Arc<dyn DmaMap>,
    state: Mutex<HeapState>,
    quarantined_bytes: AtomicUsize,
}

pub(super) struct HeapState {
    chunks: Vec<Chunk>,
    pub(super) next_iova: u64,
    /// Lent memory of callers, by the address at which the controller sees it.
    pub(super) lent: BTreeMap<u64, Arc<Pages>>,
}

struct Chunk {
    pages: Arc<Pages>,
    iova: u64,
    /// Whether the controller may reach it.
    mapped: bool,
    /// Free ranges: offset → length, neighbours always merged.
    free: BTreeMap<usize, usize>,
}

impl DmaHeap {
    /// An empty heap, whose memory `map` maps for the device.
    pub fn new(map: Arc<dyn DmaMap>) -> Self {
        let next_iova = map.limits().iova_first;
        let state = HeapState { chunks: Vec::new(), next_iova, lent: BTreeMap::new() };
        Self(Arc::new(Inner {
            map,
            state: Mutex::new(Rank::Heap, state),
            quarantined_bytes: AtomicUsize::new(0),
        }))
    }

    /// A zeroed buffer of `bytes`.
    ///
    /// # Errors
    /// If there is no memory, for more than 1 GiB, or when the transport cannot map more.
    pub fn alloc(&self, bytes: usize) -> Result<DmaBuf> {
        if bytes == 0 || bytes > MAX_BUFFER {
            return Err(HwError::TooLarge { bytes, limit: MAX_BUFFER });
        }
        let capacity = bytes.next_multiple_of(DMA_PAGE);
        let (ptr, iova) = self.take(capacity)?;
        let (len, capacity) = (bytes as u32, capacity as u32);
        let mut buf = DmaBuf { heap: Arc::clone(&self.0), ptr, iova, len, capacity };
        buf.fill(0);
        Ok(buf)
    }

    /// `count` buffers of one page each, side by side, with undefined contents.
    ///
    /// # Errors
    /// As [`DmaHeap::alloc`] of their total size.
    pub fn alloc_pages(&self, count: usize) -> Result<Vec<DmaBuf>> {
        self.alloc_run(count, DMA_PAGE)
    }

    /// `count` buffers of `bytes` each, rounded up to whole pages, side by side, with undefined
    /// contents.
    ///
    /// # Errors
    /// As [`DmaHeap::alloc`] of their total size.
    pub fn alloc_run(&self, count: usize, bytes: usize) -> Result<Vec<DmaBuf>> {
        let limit = MAX_BUFFER;
        let capacity = bytes.min(limit).next_multiple_of(DMA_PAGE);
        let total = count.saturating_mul(capacity);
        if total == 0 || total > limit {
            return Err(HwError::TooLarge { bytes: total, limit });
        }
        let (ptr, iova) = self.take(total)?;
        let one = |at: usize| {
            let iova = Iova(iova.0 + (at * capacity) as u64);
            // SAFETY: `take` gave `total` bytes from `ptr` on; each part goes into one buffer.
            let ptr = unsafe { ptr.add(at * capacity) };
            let (len, capacity) = (capacity as u32, capacity as u32);
            DmaBuf { heap: Arc::clone(&self.0), ptr, iova, len, capacity }
        };
        Ok((0..count).map(one).collect())
    }

    /// A free range of `capacity` bytes, which are whole pages.
    fn take(&self, capacity: usize) -> Result<(NonNull<u8>, Iova)> {
        let mut state = self.0.lock();
        let mut found = state.take(capacity);
        if found.is_none() {
            self.0.grow(&mut state, capacity)?;
            found = state.take(capacity);
        }
        let (chunk, offset) =
            found.ok_or(HwError::TooLarge { bytes: capacity, limit: MAX_BUFFER })?;
        let owner = &state.chunks[chunk];
        // SAFETY: `take` returns ranges inside the chunk.
        let ptr = unsafe { owner.pages.as_ptr().add(offset) };
        Ok((ptr, Iova(owner.iova + offset as u64)))
    }

    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.0
    }

    /// Ensures that another `bytes` can be allocated without growing: for start-up.
    ///
    /// # Errors
    /// As [`DmaHeap::alloc`].
    pub fn reserve(&self, bytes: usize) -> Result<()> {
        self.alloc(bytes).map(drop)
    }

    /// Bytes allocated.
    pub fn allocated_bytes(&self) -> usize {
        let state = self.0.lock();
        state
            .chunks
            .iter()
            .map(|chunk| chunk.pages.len() - chunk.free.values().sum::<usize>())
            .sum()
    }

    /// Bytes that are never reused, because a device that is gone may still write to them.
    pub fn quarantined_bytes(&self) -> usize {
        self.0.quarantined_bytes.load(Ordering::Relaxed)
    }

    /// The kind of memory; `None` before the first allocation.
    pub fn page_kind(&self) -> Option<PageKind> {
        self.0.lock().chunks.first().map(|chunk| chunk.pages.kind())
    }

    /// Unmaps everything from the controller. True if the controller will not access the memory
    /// again. For a device that is gone: buffers stay valid for the host, but no I/O can use them.
    ///
    /// # Safety
    /// The controller has no command that names this memory, and gets none: another heap may use
    /// its addresses from now on.
    pub unsafe fn unmap_all(&self) -> bool {
        let lent = self.unmap_all_lent();
        let mut state = self.0.lock();
        // Try every chunk, even if one fails.
        let stuck = state.chunks.iter_mut().filter_map(|chunk| self.0.unmap(chunk).err()).count();
        lent && stuck == 0
    }
}

impl Inner {
    /// Counts `bytes` as quarantined: a device that is gone may still write to them.
    pub(super) fn note_quarantined(&self, bytes: usize) {
        self.quarantined_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, HeapState> {
        // Each step of an update leaves the state consistent, so a poisoned lock is still good.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Unmaps `chunk` from the controller, once.
    fn unmap(&self, chunk: &mut Chunk) -> Result<()> {
        if chunk.mapped {
            // SAFETY: this heap has mapped the chunk. Either the heap is dropped, so that none of
            // its buffers exists, or the driver cuts it off (`unmap_all`) when the device gets no
            // further command.
            unsafe { self.map.unmap_dma(chunk.iova)? };
            chunk.mapped = false;
        }
        Ok(())
    }

    fn grow(&self, state: &mut HeapState, at_least: usize) -> Result<()> {
        let limits = self.map.limits();
        let bytes = at_least.max(CHUNK << (state.chunks.len() / CHUNKS_OF_A_SIZE).min(7));
        let iova = state.next_iova;
        let refused = |what: &str| HwError::DmaMap { iova, bytes, what: what.to_owned() };
        if state.chunks.len() >= limits.max_regions {
            return Err(refused("it takes no more mappings: use fewer or smaller buffers"));
        }
        let pages = Arc::new(Pages::map(bytes, &limits)?);
        if iova.checked_add(pages.len() as u64 - 1).is_none_or(|last| last > limits.iova_last) {
            return Err(refused("beyond the addresses that the device can reach"));
        }
        self.map.map_dma(iova, &pages)?;
        // 2 MiB between chunks stay unmapped, so an access beyond the end of a chunk faults. At the
        // end of all addresses the next chunk is refused above.
        state.next_iova = iova.saturating_add(pages.len() as u64 + (2 << 20));
        let free = BTreeMap::from([(0, pages.len())]);
        state.chunks.push(Chunk { pages, iova, mapped: true, free });
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let mut state = self.lock();
        let chunks = std::mem::take(&mut state.chunks);
        drop(state);
        for mut chunk in chunks {
            if self.unmap(&mut chunk).is_err() {
                // The controller may still reach it: leak it.
                std::mem::forget(chunk.pages);
            }
        }
    }
}

impl HeapState {
    /// First fit: (chunk, offset).
    fn take(&mut self, capacity: usize) -> Option<(usize, usize)> {
        for (index, chunk) in self.chunks.iter_mut().enumerate() {
            let fit = chunk
                .free
                .iter()
                .find(|&(_, &len)| len >= capacity)
                .map(|(&offset, &len)| (offset, len));
            if let Some((offset, len)) = fit {
                chunk.free.remove(&offset);
                if len > capacity {
                    chunk.free.insert(offset + capacity, len - capacity);
                }
                return Some((index, offset));
            }
        }
        None
    }

    fn free(&mut self, iova: Iova, mut len: usize) {
        // A linear search: chunks are few and large, and this is not on the fast path.
        let holds = |chunk: &&mut Chunk| {
            iova.0.checked_sub(chunk.iova).is_some_and(|at| at < chunk.pages.len() as u64)
        };
        let chunk = self.chunks.iter_mut().find(holds).expect("every buffer is of a chunk");
        let mut offset = (iova.0 - chunk.iova) as usize;
        let free = &mut chunk.free;
        if let Some(next) = free.remove(&(offset + len)) {
            len += next;
        }
        if let Some((&before, &before_len)) = free.range(..offset).next_back() {
            assert!(before + before_len <= offset, "a DMA range was freed twice");
            if before + before_len == offset {
                offset = before;
                len += before_len;
            }
        }
        free.insert(offset, len);
    }
}

/// A buffer that the controller can reach: contiguous in both address spaces, aligned to 4 KiB.
///
/// Its owner may read and write it. `submit` takes it until the device is done with it. Dropping it
/// returns it to its heap.
pub struct DmaBuf {
    pub(super) heap: Arc<Inner>,
    /// The first byte; if scattered, its list; if lent, the loan's counter.
    pub(super) ptr: NonNull<u8>,
    pub(super) iova: Iova,
    /// 0 if scattered or lent: the slice is empty.
    pub(super) len: u32,
    pub(super) capacity: u32,
}

// Half a cache line: it is moved with each request.
const _: () = assert!(size_of::<Option<DmaBuf>>() == 32 && MAX_BUFFER <= u32::MAX as usize);

// SAFETY: a `DmaBuf` is the only way to its bytes, like a `Box<[u8]>`.
unsafe impl Send for DmaBuf {}
// SAFETY: shared access only reads.
unsafe impl Sync for DmaBuf {}

impl std::fmt::Debug for DmaBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DmaBuf {{ iova: {:#x}, len: {} }}", self.iova.0, self.len)
    }
}

impl DmaBuf {
    /// Where the controller sees the first byte; meaningless if scattered.
    #[inline(always)]
    pub fn iova(&self) -> Iova {
        self.iova
    }

    /// Sets the length, within the capacity (the next multiple of 4 KiB of what was asked for).
    ///
    /// # Panics
    /// If `len` is beyond the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "{len} bytes do not fit a DMA buffer of {}", self.capacity);
        self.len = len as u32;
    }

    /// Sets the length to `len`, and brings the bytes into this CPU's cache for writing, with
    /// undefined contents. A thread that then fills them does not wait for cache lines last written
    /// by a device or another CPU. Work for the gap: 4 KiB may take half a microsecond.
    ///
    /// # Panics
    /// If `len` is beyond the capacity.
    pub fn warm(&mut self, len: usize) {
        self.set_len(len);
        self.chunks_mut(LINE_BYTES).for_each(|line| line[0] = 0);
    }

    /// The largest length, in bytes; 0 if scattered.
    pub fn capacity(&self) -> usize {
        if self.is_special() { 0 } else { self.capacity as usize }
    }

    /// Whether this is scattered or lent: its slice is empty then.
    #[inline(always)]
    pub(super) fn is_special(&self) -> bool {
        self.capacity & (SCATTERED | LENT) != 0
    }

    /// Whether the buffer belongs to `heap`, so that that heap's controller can reach it.
    #[inline(always)]
    pub fn is_of(&self, heap: &DmaHeap) -> bool {
        Arc::ptr_eq(&self.heap, &heap.0)
    }

    /// The raw memory, for rings and lists that the device writes while we look.
    ///
    /// # Panics
    /// If the buffer is scattered or lent: it has no contiguous memory of its own.
    pub fn as_raw(&self) -> NonNull<u8> {
        assert!(!self.is_special(), "a scattered or lent buffer has no memory of its own");
        self.ptr
    }

    /// Leaks this memory: a device that is gone, and cannot be cut off, may still write to it.
    pub fn quarantine(self) {
        if self.is_scattered() {
            return self.quarantine_list();
        }
        if self.is_lent() {
            // The lender finds the buffer missing, and cuts the device off.
            return std::mem::forget(self);
        }
        self.heap.note_quarantined(self.capacity());
        std::mem::forget(self);
    }
}

impl Deref for DmaBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `ptr` is the start of `capacity` ≥ `len` mapped, initialised bytes, reachable
        // only through this value. While a controller may write to them the value is in a request's
        // slot, which never dereferences it. (A scattered or lent one has length 0: `set_len`
        // refuses any other, and `ptr` is not null and aligned for bytes.)
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len as usize) }
    }
}

impl DerefMut for DmaBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len as usize) }
    }
}

impl Drop for DmaBuf {
    fn drop(&mut self) {
        if self.is_special() {
            return if self.is_lent() { self.drop_lent() } else { self.drop_list() };
        }
        self.heap.lock().free(self.iova, self.capacity());
    }
}

#[cfg(test)]
mod tests {
    use super::super::transport::DmaLimits;
    use super::*;
    use crate::testing::NullTransport;
    use proptest::prelude::*;

    fn heap() -> DmaHeap {
        DmaHeap::new(Arc::new(NullTransport::default()))
    }

    #[test]
    fn buffers_are_zeroed_aligned_and_recycled() {
        let heap = heap();
        let mut first = heap.alloc(5000).unwrap();
        assert_eq!((first.len(), first.capacity(), first.iova().0 % 4096), (5000, 8192, 0));
        first.fill(9);
        let iova = first.iova();
        drop(first);
        let again = heap.alloc(100).unwrap();
        assert_eq!(again.iova(), iova);
        assert!(again.iter().all(|&byte| byte == 0));
        assert_eq!(heap.allocated_bytes(), 4096);
    }

    #[test]
    fn a_chunk_that_stays_mapped_keeps_no_other() {
        let transport = Arc::new(NullTransport::default());
        let mapped = || transport.mapped.load(Ordering::Relaxed);
        let heap = DmaHeap::new(Arc::clone(&transport) as Arc<dyn DmaMap>);
        let bufs = [CHUNK; 3].map(|bytes| heap.alloc(bytes).unwrap());
        assert!(mapped() >= 2, "{}", mapped());
        transport.refusals.store(1, Ordering::Relaxed);
        // SAFETY: there is no device that could have a command.
        assert!(!unsafe { heap.unmap_all() });
        assert_eq!(mapped(), 1);
        // SAFETY: as above.
        assert!(unsafe { heap.unmap_all() });
        assert_eq!(mapped(), 0);
        drop(bufs);
    }

    /// A device that reaches the last addresses there are.
    struct Top;

    // SAFETY: there is no device.
    unsafe impl DmaMap for Top {
        fn map_dma(&self, _: u64, _: &Arc<Pages>) -> Result<()> {
            Ok(())
        }

        unsafe fn unmap_dma(&self, _: u64) -> Result<()> {
            Ok(())
        }

        fn limits(&self) -> DmaLimits {
            DmaLimits { iova_first: u64::MAX - CHUNK as u64 + 1, ..DmaLimits::default() }
        }
    }

    #[test]
    fn after_the_last_address_there_is_none() {
        let heap = DmaHeap::new(Arc::new(Top));
        let whole = heap.alloc(CHUNK).unwrap();
        assert_eq!(whole.iova().0, u64::MAX - CHUNK as u64 + 1);
        assert!(matches!(heap.alloc(4096), Err(HwError::DmaMap { .. })));
    }

    #[test]
    fn sizes_that_cannot_be_are_errors() {
        assert!(matches!(heap().alloc(0), Err(HwError::TooLarge { .. })));
        assert!(matches!(heap().alloc(MAX_BUFFER + 1), Err(HwError::TooLarge { .. })));
    }

    #[test]
    fn a_run_is_side_by_side_and_freed_piece_by_piece() {
        let heap = heap();
        let mut run = heap.alloc_run(3, 5000).unwrap();
        let addresses: Vec<_> = run.iter().map(|buf| buf.as_raw().as_ptr() as usize).collect();
        assert_eq!((addresses[1] - addresses[0], addresses[2] - addresses[1]), (8192, 8192));
        assert_eq!(run[2].iova().0 - run[0].iova().0, 16384);
        assert_eq!(run[1].capacity(), 8192);
        drop(run.swap_remove(1));
        assert_eq!(heap.allocated_bytes(), 16384);
        drop(run);
        assert_eq!(heap.allocated_bytes(), 0);
        for (count, bytes) in [(0, 4096), (1, 0), (2, MAX_BUFFER), (usize::MAX, 1)] {
            assert!(heap.alloc_run(count, bytes).is_err(), "{count} {bytes}");
        }
    }

    #[test]
    fn quarantined_memory_is_never_given_out_again() {
        let heap = heap();
        let buf = heap.alloc(4096).unwrap();
        let iova = buf.iova();
        buf.quarantine();
        assert_eq!(heap.quarantined_bytes(), 4096);
        let all: Vec<_> = (0..CHUNK / DMA_PAGE - 1).map(|_| heap.alloc(4096).unwrap()).collect();
        assert!(all.iter().all(|buf| buf.iova() != iova));
    }

    proptest! {
        /// In any order of allocating and freeing: no overlap, and everything is returned.
        #[test]
        fn never_overlaps(
            steps in prop::collection::vec((any::<bool>(), 1usize..100_000), 1..200),
        ) {
            let heap = heap();
            let mut held: Vec<DmaBuf> = Vec::new();
            for (take, n) in steps {
                if take || held.is_empty() {
                    let buf = heap.alloc(n).unwrap();
                    let range = |b: &DmaBuf| (b.iova().0, b.iova().0 + b.capacity() as u64);
                    let (start, end) = range(&buf);
                    prop_assert!(held.iter().map(range).all(|(s, e)| end <= s || e <= start));
                    held.push(buf);
                } else {
                    held.swap_remove(n % held.len());
                }
            }
            held.clear();
            prop_assert_eq!(heap.allocated_bytes(), 0);
        }
    }
}
