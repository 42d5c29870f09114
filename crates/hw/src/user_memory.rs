//! A caller's memory, lent to the controller for one read.
//!
//! For a read past the cache the device can write straight to the caller's buffer. [`UserMemory`],
//! one per I/O context, maps the whole pages within the caller's slice into the controller's
//! address space, and requests name them by a [`DmaBuf`] with an empty slice ([`Loan::buf`]). A
//! page that is not entirely the caller's is never mapped. Only transports with cheap mappings do
//! it ([`DmaMap::lends`](super::DmaMap::lends)): those that access memory by its address and pin
//! nothing. An IOMMU mapping costs more than copying a request's data, and another process cannot
//! access private memory at all.
//!
//! *When the mapping is undone* ([`Undo`]): before the read returns (strict); or in the gap of a
//! later read, when there are too many, or with the I/O context (lazy). A buffer that is read into
//! again meanwhile is still mapped. The mapping is of an address, so other memory at the same
//! address is accessed correctly, too.
//!
//! *Safety.* When [`UserMemory::lend`] returns or unwinds, the device no longer writes to the lent
//! memory. Either each [`DmaBuf`] of the loan was dropped: the layers above do so when the device
//! has answered the command, or when its queue was deleted or the controller reset. Until then the
//! buffer is in a request's slot; if the device is gone and cannot be cut off, it is quarantined,
//! which never drops it. Otherwise the mapping is undone first, however long that takes: the
//! transport returns `Ok`, or drops its `Arc` of the pages, when it will write no more. The wait
//! ends when the SSD's thread answers or has ended. With lazy undoing, a device that writes where
//! no command tells it to could still change memory that was returned to the program: a program
//! that does not trust its device uses the strict mode.

#![expect(unsafe_code)]

use std::cell::Cell;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use super::dma::{DMA_PAGE, DmaBuf, DmaHeap, Inner, Iova, LENT};
use super::pages::Pages;
use super::{HwError, Result};

/// The most memory lent at once, in bytes.
pub const LOAN_BYTES_MAX: usize = 1 << 20;

/// The most mappings that wait to be reused or undone.
const KEPT_MAX: usize = 4;

/// A mapping is undone after this many reads of its I/O context that did not use it.
const IDLE_READS: u64 = 8;

/// When a mapping is undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undo {
    /// Before the read returns.
    Strict,
    /// In the gap of a later read.
    Lazy,
}

/// The callers' memory mapped by an I/O context.
pub struct UserMemory {
    heap: DmaHeap,
    undo: Undo,
    kept: Vec<Registration>,
    reads: u64,
    /// Addresses of unmapped memory that recent reads used, oldest first.
    seen: [usize; KEPT_MAX],
}

/// A range of the controller's addresses, and its mapping.
struct Registration {
    iova: u64,
    /// Address and size of the mapped memory; size 0: nothing is mapped.
    addr: usize,
    bytes: usize,
    /// The number of the read that last used it.
    used: u64,
    /// Each [`DmaBuf`] of a loan holds a reference: further ones belong to requests.
    token: Arc<Token>,
}

/// Counts the buffers of a loan. It is not zero-sized, so that its address is unique.
struct Token(#[allow(dead_code)] u8);

/// Memory that the controller may currently write to.
pub struct Loan<'a> {
    heap: &'a Arc<Inner>,
    token: &'a Arc<Token>,
    /// The controller's address of the first byte.
    iova: u64,
    bytes: usize,
    suspect: Cell<bool>,
}

/// Ends a loan, also on a panic.
struct Ending<'a> {
    heap: &'a Arc<Inner>,
    registration: Option<Registration>,
    undo: Undo,
    clean: bool,
}

/// The part of a slice at address `addr` that the device can write to directly: whole blocks, on
/// whole pages of the slice, from a multiple of 4 bytes on (NVMe Base 1.4 §4.3: a PRP's offset).
/// `lead`: the distance of its first block before the slice, in bytes.
pub fn lendable(
    addr: usize,
    bytes: usize,
    lead: usize,
    block_bytes: usize,
) -> Option<Range<usize>> {
    let pages = whole_pages(addr, bytes)?;
    let start = (pages.start - addr + lead).next_multiple_of(block_bytes) - lead;
    let end = (pages.end - addr + lead) / block_bytes * block_bytes;
    let end = end.checked_sub(lead)?;
    (start < end && (addr + start).is_multiple_of(4)).then_some(start..end)
}

/// The addresses of the whole pages among the `bytes` at `addr`.
fn whole_pages(addr: usize, bytes: usize) -> Option<Range<usize>> {
    let start = addr.checked_next_multiple_of(DMA_PAGE)?;
    let end = addr.checked_add(bytes)? / DMA_PAGE * DMA_PAGE;
    (start < end).then_some(start..end)
}

impl UserMemory {
    /// For the reads of one I/O context; `None` if the transport of `heap` does not lend.
    pub fn new(heap: &DmaHeap, undo: Undo) -> Option<Self> {
        let lends = heap.inner().map.lends();
        lends.then(|| Self {
            heap: heap.clone(),
            undo,
            kept: Vec::with_capacity(KEPT_MAX),
            reads: 0,
            seen: [0; KEPT_MAX],
        })
    }

    /// When mappings are undone.
    pub fn undo(&self) -> Undo {
        self.undo
    }

    /// Whether all whole pages of `buf` are mapped already, or were asked about recently: mapping
    /// pays off for a program that reads into the same few buffers repeatedly.
    pub fn is_reused(&mut self, buf: &[u8]) -> bool {
        let Some(pages) = whole_pages(buf.as_ptr().addr(), buf.len()) else { return false };
        let reused = self.seen.contains(&pages.start) || self.find(&pages).is_some();
        if !reused {
            self.seen.rotate_left(1);
            self.seen[KEPT_MAX - 1] = pages.start;
        }
        reused
    }

    /// The former name of [`is_reused`](Self::is_reused).
    #[deprecated(note = "use `is_reused`")]
    pub fn is_familiar(&mut self, buf: &[u8]) -> bool {
        self.is_reused(buf)
    }

    fn find(&self, pages: &Range<usize>) -> Option<usize> {
        let holds = |there: &Registration| {
            there.bytes > 0 && there.addr <= pages.start && pages.end <= there.addr + there.bytes
        };
        self.kept.iter().position(holds)
    }

    /// Lends bytes `part` of `buf`, which are [`lendable`], to the device while `run` runs, which
    /// sends requests for them and waits for them. `None`, without calling `run`, if it is more
    /// than [`LOAN_BYTES_MAX`], or the transport accepts no more mappings.
    ///
    /// # Panics
    /// If `part` is not on whole pages of `buf`.
    pub fn lend<R>(
        &mut self,
        buf: &mut [u8],
        part: Range<usize>,
        run: impl FnOnce(&Loan<'_>, &mut Self) -> R,
    ) -> Option<R> {
        // Exposed: the device makes its own pointer from the address. Only the device accesses
        // `buf` until this returns.
        let addr = buf.as_mut_ptr().expose_provenance();
        let pages = whole_pages(addr, buf.len()).filter(|pages| pages.len() <= LOAN_BYTES_MAX)?;
        let (first, last) = (addr + part.start, addr + part.end);
        assert!(
            pages.start <= first && first < last && last <= pages.end,
            "lent bytes are on whole pages"
        );
        let mut registration = self.registered(&pages)?;
        registration.used = self.reads;
        let heap = self.heap.clone();
        let iova = registration.iova + (first - registration.addr) as u64;
        let registration = Some(registration);
        // Dropped on every exit, before the caller can use `buf` again.
        let mut ending = Ending { heap: heap.inner(), registration, undo: self.undo, clean: false };
        let token = &ending.registration.as_ref()?.token;
        let loan =
            Loan { heap: heap.inner(), token, iova, bytes: part.len(), suspect: Cell::new(false) };
        let result = run(&loan, self);
        ending.clean = !loan.suspect.get();
        self.kept.extend(ending.end());
        Some(result)
    }

    /// Counts a read.
    pub fn count_read(&mut self) {
        self.reads += 1;
    }

    /// Undoes one idle mapping: work for the gap.
    pub fn undo_idle(&mut self) {
        let idle =
            |there: &&mut Registration| there.bytes > 0 && self.reads - there.used > IDLE_READS;
        if let Some(idle) = self.kept.iter_mut().find(idle)
            && self.heap.inner().unmap_lent(idle.iova)
        {
            idle.bytes = 0;
        }
    }

    /// Returns a registration that maps `pages`, removed from those that are kept.
    fn registered(&mut self, pages: &Range<usize>) -> Option<Registration> {
        if let Some(known) = self.find(pages) {
            return Some(self.kept.swap_remove(known));
        }
        let heap = self.heap.inner();
        let mut free = if let Some(empty) = self.kept.iter().position(|there| there.bytes == 0) {
            self.kept.swap_remove(empty)
        } else if self.kept.len() < KEPT_MAX {
            Registration {
                iova: heap.window()?,
                addr: 0,
                bytes: 0,
                used: 0,
                token: Arc::new(Token(0)),
            }
        } else {
            let oldest = (0..KEPT_MAX).min_by_key(|&at| self.kept[at].used)?;
            if !heap.unmap_lent(self.kept[oldest].iova) {
                return None;
            }
            self.kept.swap_remove(oldest)
        };
        (free.addr, free.bytes) = (pages.start, pages.len());
        if heap.lend(free.iova, pages).is_err() {
            // A previous unmapping may still be incomplete.
            heap.cut_off(free.iova);
            free.bytes = 0;
            self.kept.push(free);
            return None;
        }
        Some(free)
    }
}

impl Drop for UserMemory {
    fn drop(&mut self) {
        for there in self.kept.iter().filter(|there| there.bytes > 0) {
            // Its buffers were returned long ago. If it cannot be undone, the heap still counts it,
            // and it ends with the transport.
            self.heap.inner().unmap_lent(there.iova);
        }
    }
}

impl Loan<'_> {
    /// A request's buffer for `bytes` of the lent memory, from byte `at` on. It has no slice: its
    /// length is 0.
    ///
    /// # Panics
    /// If it exceeds the lent memory, or if `at` or `bytes` is not a multiple of 4.
    pub fn buf(&self, at: usize, bytes: usize) -> DmaBuf {
        let inside = at.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        assert!(
            inside && at.is_multiple_of(4) && bytes.is_multiple_of(4),
            "{bytes} bytes at {at} are not lent"
        );
        let token = Arc::into_raw(Arc::clone(self.token)).cast_mut();
        // SAFETY: `into_raw` never gives null.
        let ptr = unsafe { NonNull::new_unchecked(token) }.cast();
        let iova = Iova(self.iova + at as u64);
        // At most 1 MiB, and a multiple of 4: there is room for the flag.
        DmaBuf { heap: Arc::clone(self.heap), ptr, iova, len: 0, capacity: bytes as u32 | LENT }
    }

    /// Reports a failed request: the mapping is undone before the loan ends, even in lazy mode.
    pub fn suspect(&self) {
        self.suspect.set(true);
    }
}

impl Ending<'_> {
    /// Ends the loan. A second call does nothing.
    fn end(mut self) -> Option<Registration> {
        self.finish();
        self.registration.take()
    }

    fn finish(&mut self) {
        let Some(registration) = &mut self.registration else { return };
        // With Acquire: the thread that dropped the last buffer has seen the device's answer.
        let all_back = Arc::get_mut(&mut registration.token).is_some();
        if all_back && self.clean && self.undo == Undo::Lazy {
            return;
        }
        self.heap.cut_off(registration.iova);
        registration.bytes = 0;
        if !all_back {
            // Remaining buffers name memory that the device no longer finds, and no later loan
            // waits for them.
            registration.token = Arc::new(Token(0));
        }
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Inner {
    /// Reserves controller addresses for a loan, permanently.
    fn window(&self) -> Option<u64> {
        let last = self.map.limits().iova_last;
        let mut state = self.lock();
        let iova = state.next_iova;
        // A gap to the next window stays unmapped, as between chunks.
        let next =
            iova.checked_add(2 * LOAN_BYTES_MAX as u64)?.checked_next_multiple_of(2 << 20)?;
        if next > last {
            return None;
        }
        state.next_iova = next;
        Some(iova)
    }

    /// Gives the controller access to `pages` of this process at `iova`. After an error the access
    /// may still be granted later, until it is cut off.
    fn lend(&self, iova: u64, pages: &Range<usize>) -> Result<()> {
        let addr = NonNull::new(std::ptr::with_exposed_provenance_mut(pages.start));
        let addr =
            addr.ok_or_else(|| HwError::Missing { what: "memory at address 0".to_owned() })?;
        let memory = Arc::new(Pages::of_another(addr, pages.len()));
        // Recorded first: a thread that gives the device up meanwhile unmaps this too.
        self.lock().lent.insert(iova, Arc::clone(&memory));
        // Without the lock: the call waits for another thread.
        self.map.map_dma(iova, &memory)
    }

    /// Unmaps the memory lent at `iova`, if any; false if the controller may still access it.
    fn unmap_lent(&self, iova: u64) -> bool {
        if !self.lock().lent.contains_key(&iova) {
            return true;
        }
        // SAFETY: `lend` has mapped it, in a window that only such loans use. The command that
        // named it has ended, or belongs to an abandoned read: all that it can still reach there is
        // another loan.
        let undone = unsafe { self.map.unmap_dma(iova) }.is_ok();
        let mut state = self.lock();
        // Undone late, or by another thread: the transport no longer holds it (`DmaMap::lends`).
        let over =
            undone || state.lent.get(&iova).is_none_or(|pages| Arc::strong_count(pages) == 1);
        if over {
            // Synchronizes with the Release by which the transport dropped its reference after its
            // last access.
            fence(Ordering::Acquire);
            state.lent.remove(&iova);
        }
        over
    }

    /// Unmaps the memory lent at `iova`, however long it takes.
    fn cut_off(&self, iova: u64) {
        let mut warned = false;
        while !self.unmap_lent(iova) {
            if !warned {
                tracing::warn!(
                    iova,
                    "a device does not let go of a program's memory: the read waits for it"
                );
                warned = true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl DmaHeap {
    /// Bytes of callers' memory that the controller can access now: lent by direct reads of files,
    /// and not unmapped yet.
    pub fn lent_bytes(&self) -> usize {
        self.inner().lock().lent.values().map(|pages| pages.len()).sum()
    }

    /// Unmaps all lent memory; true if none is left.
    pub(super) fn unmap_all_lent(&self) -> bool {
        let lent: Vec<u64> = self.inner().lock().lent.keys().copied().collect();
        // Try each, even if one fails.
        lent.into_iter().filter(|&iova| !self.inner().unmap_lent(iova)).count() == 0
    }
}

impl DmaBuf {
    /// Whether this refers to a caller's memory.
    #[inline(always)]
    pub(super) fn is_lent(&self) -> bool {
        self.capacity & LENT != 0
    }

    /// The size of the caller's memory that this refers to, in bytes.
    #[inline]
    pub(super) fn lent_bytes(&self) -> Option<usize> {
        self.is_lent().then_some((self.capacity & !LENT) as usize)
    }

    /// Drops a lent buffer: the loan waits for one less.
    #[cold]
    pub(super) fn drop_lent(&mut self) {
        // SAFETY: `ptr` is from `Arc::into_raw` in `Loan::buf`, taken back once: by the drop of its
        // only owner.
        drop(unsafe { Arc::from_raw(self.ptr.cast::<Token>().as_ptr().cast_const()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::NullTransport;
    use proptest::prelude::*;

    /// A slice on whole pages.
    fn pages(memory: &mut [u8], count: usize) -> &mut [u8] {
        let skip = memory.as_ptr().align_offset(DMA_PAGE);
        &mut memory[skip..skip + count * DMA_PAGE]
    }

    fn lent(undo: Undo) -> (DmaHeap, UserMemory) {
        let heap = DmaHeap::new(Arc::new(NullTransport::default()));
        let memory = UserMemory::new(&heap, undo).unwrap();
        (heap, memory)
    }

    #[test]
    fn a_loan_is_accessible_to_the_device_only() {
        let (heap, mut memory) = lent(Undo::Strict);
        let mut bytes = vec![0; 16 * DMA_PAGE];
        let buf = pages(&mut bytes, 8);
        let seen = memory.lend(buf, 512..3 * DMA_PAGE, |loan, _| {
            let mut buf = loan.buf(512, 1024);
            assert_eq!((buf.len(), buf.capacity(), buf.transfer_bytes()), (0, 0, 1024));
            assert!(
                buf.is_of(&heap)
                    && !buf.is_scattered()
                    && buf.is_empty()
                    && buf.vectors(0, u64::MAX).is_none()
            );
            assert_eq!(buf.iova().0 % DMA_PAGE as u64, 1024);
            assert_eq!(heap.lent_bytes(), 8 * DMA_PAGE);
            buf.span(512, 512).data.0 - buf.iova().0
        });
        assert_eq!((seen, heap.lent_bytes()), (Some(512), 0));
    }

    #[test]
    fn a_mapping_is_used_again_until_it_is_idle() {
        let (heap, mut memory) = lent(Undo::Lazy);
        let mut bytes = vec![0; 16 * DMA_PAGE];
        let buf = pages(&mut bytes, 8);
        let iova = memory.lend(buf, 0..4096, |loan, _| loan.buf(0, 4096).iova()).unwrap();
        assert!(memory.is_reused(&buf[1..]) && heap.lent_bytes() == 8 * DMA_PAGE);
        let again = memory.lend(&mut buf[DMA_PAGE..], 0..4096, |loan, _| loan.buf(0, 4096).iova());
        assert_eq!(again, Some(Iova(iova.0 + DMA_PAGE as u64)));
        for _ in 0..=IDLE_READS {
            assert_eq!(heap.lent_bytes(), 8 * DMA_PAGE);
            memory.count_read();
            memory.undo_idle();
        }
        assert_eq!(
            (heap.lent_bytes(), memory.is_reused(buf), memory.is_reused(buf)),
            (0, false, true)
        );
    }

    #[test]
    fn only_a_few_are_kept() {
        let (heap, mut memory) = lent(Undo::Lazy);
        let mut all: Vec<Vec<u8>> = (0..3 * KEPT_MAX).map(|_| vec![0; 2 * DMA_PAGE]).collect();
        for bytes in &mut all {
            memory.count_read();
            assert!(memory.lend(pages(bytes, 1), 0..4096, |_, _| ()).is_some());
        }
        assert_eq!(heap.lent_bytes(), KEPT_MAX * DMA_PAGE);
        drop(memory);
        assert_eq!(heap.lent_bytes(), 0);
    }

    #[test]
    fn a_loan_that_does_not_come_back_is_cut_off() {
        let (heap, mut memory) = lent(Undo::Lazy);
        let mut bytes = vec![0; 2 * DMA_PAGE];
        let buf = pages(&mut bytes, 1);
        // In order: still with a request; given up; of a failed read; of a read that panicked.
        let held = memory.lend(buf, 0..4096, |loan, _| loan.buf(0, 4096)).unwrap();
        assert_eq!(heap.lent_bytes(), 0);
        memory.lend(buf, 0..4096, |loan, _| loan.buf(0, 4096).quarantine()).unwrap();
        assert_eq!((heap.lent_bytes(), heap.quarantined_bytes()), (0, 0));
        memory.lend(buf, 0..4096, |loan, _| loan.suspect()).unwrap();
        assert_eq!(heap.lent_bytes(), 0);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            memory.lend(buf, 0..4096, |_, _| panic!("of the test"));
        }));
        assert!(panicked.is_err());
        assert_eq!(heap.lent_bytes(), 0);
        drop(held);
        // The next loan is not affected.
        memory.lend(buf, 0..4096, |loan, _| drop(loan.buf(0, 4096))).unwrap();
        assert_eq!(heap.lent_bytes(), DMA_PAGE);
        // SAFETY: there is no controller that could be given a command.
        assert!(unsafe { heap.unmap_all() });
        assert_eq!(heap.lent_bytes(), 0);
    }

    #[test]
    fn what_is_too_much_is_refused() {
        let (heap, mut memory) = lent(Undo::Lazy);
        let mut bytes = vec![0; LOAN_BYTES_MAX + 3 * DMA_PAGE];
        let buf = pages(&mut bytes, LOAN_BYTES_MAX / DMA_PAGE + 1);
        assert!(memory.lend(buf, 0..4096, |_, _| ()).is_none());
        assert!(memory.lend(&mut buf[1..4096], 0..512, |_, _| ()).is_none());
        assert_eq!(heap.lent_bytes(), 0);
    }

    proptest! {
        /// Whole blocks on whole pages, as many as there are.
        #[test]
        fn only_pages_of_the_buffer_are_lent(
            addr in 1usize..1 << 40,
            bytes in 0usize..1 << 21,
            lead in 0usize..4096,
            block in 9u32..13,
        ) {
            let block = 1usize << block;
            let lead = lead % block;
            match lendable(addr, bytes, lead, block) {
                Some(part) => {
                    prop_assert!(part.start < part.end && part.end <= bytes);
                    let pages = whole_pages(addr, bytes).unwrap();
                    prop_assert!(pages.start <= addr + part.start && addr + part.end <= pages.end);
                    prop_assert!((addr + part.start).is_multiple_of(4));
                    prop_assert!((part.start + lead).is_multiple_of(block));
                    prop_assert!(part.len().is_multiple_of(block));
                    prop_assert!(addr + part.start < pages.start + block);
                    prop_assert!(addr + part.end + block > pages.end);
                }
                None => prop_assert!(
                    !(addr + block).wrapping_sub(lead).is_multiple_of(4)
                        || bytes < 2 * DMA_PAGE + 2 * block
                ),
            }
        }
    }
}
