//! Host memory as the controller reaches it by DMA: translation, data copies, queue rings,
//! doorbells.
//!
//! Host memory is written by other threads at any time, so no Rust reference to it is ever made.
//! Entries are copied out through atomics, and data through raw copies. The NVMe protocol decides
//! which side may access which bytes when: an SQE belongs to the controller from the doorbell to
//! the head pointer that passes it, a data buffer from the doorbell to the CQE. A host that breaks
//! this gets mixed bytes, as from hardware. No decision about addresses uses bytes that are read
//! twice.

#![expect(unsafe_code)]

use std::alloc::Layout;
use std::any::Any;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use meantime_nvme_spec::cqe::Cqe;
use meantime_nvme_spec::soft_port::{DmaRegion, Doorbells, PortError};
use meantime_nvme_spec::sqe::Sqe;

use crate::medium::MediumSpan;
use crate::sys;

/// The memory page size of the controller in bytes: CAP.MPSMIN = CAP.MPSMAX = 0.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// The maximum number of regions that can be mapped at once.
const MAX_REGIONS: usize = 1024;

struct Region {
    iova: u64,
    len: u64,
    addr: usize,
    keepalive: Arc<dyn Any + Send + Sync>,
}

/// The mapped regions, sorted by IOVA.
#[derive(Default)]
pub(crate) struct HostMemory {
    regions: Vec<Region>,
    /// Index of the last region used. Nearly every driver has one region.
    last: Cell<usize>,
}

/// A range of host memory, by region and offset. It is plain data that is checked again when it is
/// resolved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    region: u32,
    len: u32,
    offset: u64,
}

/// Contiguous bytes of host memory, mapped for as long as the table is borrowed.
#[derive(Clone, Copy)]
pub(crate) struct HostSlice<'m> {
    ptr: NonNull<u8>,
    len: usize,
    table: PhantomData<&'m HostMemory>,
}

impl HostMemory {
    /// Adds a region.
    pub(crate) fn map(&mut self, region: DmaRegion) -> Result<(), PortError> {
        let (iova, host_addr, len) = (region.iova(), region.host_addr(), region.len() as u64);
        // An empty region, or one that wraps around either address space, is refused as an overlap.
        let Some(end) = iova.checked_add(len) else { return Err(PortError::Overlap) };
        if len == 0 || host_addr == 0 || host_addr.checked_add(region.len()).is_none() {
            return Err(PortError::Overlap);
        }
        if self.regions.len() >= MAX_REGIONS {
            return Err(PortError::TooManyRegions);
        }
        let at = self.regions.partition_point(|r| r.iova < iova);
        let before = at.checked_sub(1).is_some_and(|i| {
            let r = &self.regions[i];
            r.iova + r.len > iova
        });
        if before || self.regions.get(at).is_some_and(|r| r.iova < end) {
            return Err(PortError::Overlap);
        }
        let keepalive = Arc::clone(region.keepalive());
        self.regions.insert(at, Region { iova, len, addr: host_addr, keepalive });
        self.last.set(0);
        Ok(())
    }

    /// Removes the region that begins at `iova`.
    pub(crate) fn unmap(&mut self, iova: u64) {
        self.regions.retain(|region| region.iova != iova);
        self.last.set(0);
    }

    /// Returns the length of the region that begins at `iova`, in bytes.
    pub(crate) fn region_len(&self, iova: u64) -> Option<u64> {
        self.regions.binary_search_by_key(&iova, |r| r.iova).ok().map(|i| self.regions[i].len)
    }

    #[inline(always)]
    fn covers(region: &Region, iova: u64, len: u64) -> Option<u64> {
        let offset = iova.wrapping_sub(region.iova);
        (offset < region.len && len <= region.len - offset).then_some(offset)
    }

    #[inline(always)]
    fn find(&self, iova: u64, len: u64) -> Option<(usize, u64)> {
        let last = self.last.get();
        if let Some(region) = self.regions.get(last)
            && let Some(offset) = Self::covers(region, iova, len)
        {
            return Some((last, offset));
        }
        self.find_slow(iova, len)
    }

    #[cold]
    fn find_slow(&self, iova: u64, len: u64) -> Option<(usize, u64)> {
        let at = self.regions.partition_point(|r| r.iova <= iova).checked_sub(1)?;
        let offset = Self::covers(&self.regions[at], iova, len)?;
        self.last.set(at);
        Some((at, offset))
    }

    #[inline(always)]
    fn slice_at<'m>(region: &'m Region, offset: u64, len: usize) -> HostSlice<'m> {
        let addr = region.addr + offset as usize;
        let ptr = NonNull::new(std::ptr::with_exposed_provenance_mut(addr))
            .unwrap_or(NonNull::dangling());
        HostSlice { ptr, len, table: PhantomData }
    }

    /// Returns the `len` bytes at `iova`, if one region holds them all.
    #[inline(always)]
    pub(crate) fn slice(&self, iova: u64, len: usize) -> Option<HostSlice<'_>> {
        let (at, offset) = self.find(iova, len as u64)?;
        Some(Self::slice_at(&self.regions[at], offset, len))
    }

    /// Returns the `len` bytes at `iova` as plain data that can be stored.
    pub(crate) fn segment(&self, iova: u64, len: u32) -> Option<Segment> {
        let (at, offset) = self.find(iova, u64::from(len))?;
        Some(Segment { region: at as u32, len, offset })
    }

    /// Returns the bytes of a segment, if it still lies within a region.
    pub(crate) fn resolve(&self, segment: Segment) -> Option<HostSlice<'_>> {
        let region = self.regions.get(segment.region as usize)?;
        let len = u64::from(segment.len);
        (segment.offset < region.len && len <= region.len - segment.offset)
            .then(|| Self::slice_at(region, segment.offset, segment.len as usize))
    }

    /// Returns the ring of `entries` entries of `entry_bytes` at `iova`, if one region holds it at
    /// a usable alignment.
    pub(crate) fn ring(&self, iova: u64, entries: u32, entry_bytes: usize) -> Option<Ring> {
        let held = self.hold(iova, entries as usize * entry_bytes)?;
        (held.base.as_ptr() as usize).is_multiple_of(64).then_some(Ring { held, entries })
    }

    /// Returns the `len` bytes at `iova` as cells, if one region holds them all at a usable
    /// alignment.
    pub(crate) fn cells(&self, iova: u64, len: usize) -> Option<Cells> {
        let held = self.hold(iova, len)?;
        let aligned = (held.base.as_ptr() as usize).is_multiple_of(4) && len.is_multiple_of(4);
        aligned.then_some(Cells(held))
    }

    /// Returns the `len` bytes at `iova`, if one region holds them all.
    fn hold(&self, iova: u64, len: usize) -> Option<Held> {
        let (at, offset) = self.find(iova, len as u64)?;
        let region = &self.regions[at];
        let base = Self::slice_at(region, offset, len).ptr;
        Some(Held { base, iova, len, keepalive: Arc::clone(&region.keepalive) })
    }
}

impl Segment {
    /// Returns its length in bytes.
    pub(crate) fn len(self) -> usize {
        self.len as usize
    }

    /// Returns the `len` bytes at offset `at`, which must be within.
    pub(crate) fn part(self, at: u64, len: u32) -> Self {
        assert!(at + u64::from(len) <= u64::from(self.len), "beyond the segment");
        Self { region: self.region, len, offset: self.offset + at }
    }

    /// Extends this segment by `next`, if that follows it immediately.
    pub(crate) fn try_extend(&mut self, next: Self) -> bool {
        let follows =
            self.region == next.region && self.offset + u64::from(self.len) == next.offset;
        if follows && let Some(len) = self.len.checked_add(next.len) {
            self.len = len;
            return true;
        }
        false
    }
}

impl HostSlice<'_> {
    /// Copies from the medium. Both have the same length.
    #[inline(always)]
    pub(crate) fn fill_from_medium(self, span: MediumSpan<'_>) {
        assert_eq!(self.len, span.len());
        // SAFETY: `SoftPort`'s contract keeps `len` bytes at `ptr` mapped for reading and writing
        // while the region is in the table, which `'m` borrows; the medium's span is mapped while
        // the medium is borrowed. The medium is the SSD's own mapping, never handed out, so that
        // the two cannot overlap. Nothing holds a reference to either; bytes have no invalid value.
        unsafe { std::ptr::copy_nonoverlapping(span.as_ptr(), self.ptr.as_ptr(), self.len) }
    }

    /// Copies to the medium. Both have the same length.
    #[inline(always)]
    pub(crate) fn store_to_medium(self, span: MediumSpan<'_>) {
        assert_eq!(self.len, span.len());
        // SAFETY: as in `fill_from_medium`, the other way round.
        unsafe { std::ptr::copy_nonoverlapping(self.ptr.as_ptr(), span.as_ptr(), self.len) }
    }

    /// Copies out of host memory. Both have the same length.
    pub(crate) fn read(self, to: &mut [u8]) {
        assert_eq!(self.len, to.len());
        // SAFETY: the source is mapped (as in `fill_from_medium`), the target is the SSD's own
        // exclusive slice, which host memory cannot overlap.
        unsafe { std::ptr::copy_nonoverlapping(self.ptr.as_ptr(), to.as_mut_ptr(), self.len) }
    }

    /// Copies into host memory. Both have the same length.
    pub(crate) fn write(self, from: &[u8]) {
        assert_eq!(self.len, from.len());
        // SAFETY: as in `read`, the other way round.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.ptr.as_ptr(), self.len) }
    }

    /// Prefetches all its cache lines for writing.
    #[inline(always)]
    pub(crate) fn prefetch_write(self) {
        let mut at = 0;
        while at < self.len {
            sys::prefetch_write(self.ptr.as_ptr().wrapping_add(at));
            at += 64;
        }
    }

    /// Prefetches all its cache lines for reading.
    #[inline(always)]
    pub(crate) fn prefetch_read(self) {
        let mut at = 0;
        while at < self.len {
            sys::prefetch_read(self.ptr.as_ptr().wrapping_add(at));
            at += 64;
        }
    }
}

/// Contiguous memory of one region, which it keeps alive.
struct Held {
    base: NonNull<u8>,
    iova: u64,
    len: usize,
    keepalive: Arc<dyn Any + Send + Sync>,
}

// SAFETY: an address with the ownership of what keeps it mapped (itself `Send + Sync`); it is not
// bound to the thread that made it.
unsafe impl Send for Held {}

impl Held {
    /// Returns whether it overlaps the `len` bytes at `iova`.
    fn overlaps(&self, iova: u64, len: u64) -> bool {
        self.iova < iova + len && iova < self.iova + self.len as u64
    }
}

/// A queue's memory.
pub(crate) struct Ring {
    held: Held,
    entries: u32,
}

impl Ring {
    /// Returns the size in entries.
    #[inline(always)]
    pub(crate) fn entries(&self) -> u32 {
        self.entries
    }

    /// Returns whether it overlaps the `len` bytes at `iova`.
    pub(crate) fn overlaps(&self, iova: u64, len: u64) -> bool {
        self.held.overlaps(iova, len)
    }

    #[inline(always)]
    fn slot(&self, index: u32, entry_bytes: usize) -> *mut u8 {
        let offset = index as usize * entry_bytes;
        assert!(offset + entry_bytes <= self.held.len, "queue index out of range");
        // SAFETY: within the ring's `len` bytes, by the assertion.
        unsafe { self.held.base.as_ptr().add(offset) }
    }

    /// Copies submission queue entry `index`. The caller has loaded the tail doorbell with Acquire.
    #[inline(always)]
    pub(crate) fn read_sqe(&self, index: u32) -> Sqe {
        let slot = self.slot(index, 64).cast::<u64>();
        Sqe::from_words(std::array::from_fn(|i| {
            // SAFETY: `slot` points to 64 mapped bytes (`slot()`), aligned to 64 as `ring()`
            // checked (bases are) and entries are 64 bytes; the host may write them at any time,
            // which atomics allow.
            unsafe { AtomicU64::from_ptr(slot.add(i)) }.load(Ordering::Relaxed)
        }))
    }

    /// Prefetches the line of submission queue entry `index`.
    #[inline(always)]
    pub(crate) fn prefetch_sqe(&self, index: u32) {
        sys::prefetch_read(self.held.base.as_ptr().wrapping_add(index as usize * 64));
    }

    /// Prefetches the line of completion queue entry `index` for writing.
    #[inline(always)]
    pub(crate) fn prefetch_cqe(&self, index: u32) {
        sys::prefetch_write(self.held.base.as_ptr().wrapping_add(index as usize * 16));
    }

    /// Writes completion queue entry `index`. The first half comes first, and then, with Release,
    /// the half that holds the phase.
    #[inline(always)]
    pub(crate) fn write_cqe(&self, index: u32, cqe: Cqe) {
        let [low, high] = cqe.to_words();
        let slot = self.slot(index, 16).cast::<u64>();
        // SAFETY: `slot` points to 16 mapped bytes, aligned to 16; the host polls them at any time,
        // which atomics allow.
        let (first, second) =
            unsafe { (AtomicU64::from_ptr(slot), AtomicU64::from_ptr(slot.add(1))) };
        first.store(low, Ordering::Relaxed);
        // Release: a host that acquires this phase tag also sees the first half, and the data
        // copied before.
        second.store(high, Ordering::Release);
    }
}

/// 32-bit cells in host memory.
pub(crate) struct Cells(Held);

impl Cells {
    /// Returns the cell at `offset`, if it is aligned and within bounds.
    pub(crate) fn cell(&self, offset: u64) -> Option<Doorbell> {
        let within = offset.is_multiple_of(4) && offset < self.0.len as u64;
        // SAFETY: within the `len` bytes at `base`, by the condition; `cells()` has checked that
        // those are whole aligned cells.
        let cell = within.then(|| unsafe { self.0.base.add(offset as usize) })?;
        Some(Doorbell { cell: cell.cast(), owner: Arc::clone(&self.0.keepalive) })
    }

    /// Returns whether they overlap the `len` bytes at `iova`.
    pub(crate) fn overlaps(&self, iova: u64, len: u64) -> bool {
        self.0.overlaps(iova, len)
    }
}

/// One doorbell of the shared array, or a cell of the host's memory that serves as one.
pub(crate) struct Doorbell {
    cell: NonNull<AtomicU32>,
    #[expect(dead_code, reason = "held so that the cell stays mapped")]
    owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: a pointer to an atomic that its owner, `Send + Sync`, keeps allocated.
unsafe impl Send for Doorbell {}

impl Doorbell {
    /// Returns the doorbell at `index`, or `None` beyond the last queue.
    pub(crate) fn new(owner: &Arc<Doorbells>, index: usize) -> Option<Self> {
        let cell = NonNull::from(owner.get(index)?);
        Some(Self { cell, owner: Arc::clone(owner) as Arc<dyn Any + Send + Sync> })
    }

    #[inline(always)]
    fn cell(&self) -> &AtomicU32 {
        // SAFETY: `owner` keeps the shared array, or the host's region, and with it the atomic at
        // this fixed address, mapped; it is aligned, being one of the array or checked by `Cells`.
        unsafe { self.cell.as_ref() }
    }

    /// Loads its value with Acquire, so that the entries which the host wrote before ringing are
    /// visible afterwards.
    #[inline(always)]
    pub(crate) fn load(&self) -> u32 {
        self.cell().load(Ordering::Acquire)
    }

    /// Stores its value. The caller provides the ordering.
    pub(crate) fn store(&self, value: u32) {
        self.cell().store(value, Ordering::Relaxed);
    }
}

/// Memory that this process gives to a controller. It is initially zero.
pub(crate) struct OwnMemory {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: an allocation is bound to no thread; it is only accessed as atomics.
unsafe impl Send for OwnMemory {}
// SAFETY: as above.
unsafe impl Sync for OwnMemory {}

impl OwnMemory {
    /// Allocates `bytes` bytes, aligned to a page. Returns `None` if that is 0 or the allocation
    /// fails.
    pub(crate) fn new(bytes: usize) -> Option<Arc<Self>> {
        let layout =
            Layout::from_size_align(bytes, PAGE_BYTES as usize).ok().filter(|_| bytes > 0)?;
        // SAFETY: the layout is not empty.
        let base = NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })?;
        Some(Arc::new(Self { base, layout }))
    }

    /// Returns its address in this process.
    pub(crate) fn addr(&self) -> usize {
        self.base.as_ptr().expose_provenance()
    }

    /// Returns its length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for OwnMemory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and no reference to it is left.
        unsafe { std::alloc::dealloc(self.base.as_ptr(), self.layout) }
    }
}
