//! A cell for one page that threads may read while another thread removes it; a page cache keeps
//! its pages in such cells.
//!
//! A reader copies bytes out, and then checks the cell's generation, which the cache keeps. If the
//! page changed meanwhile, the reader discards the copy. So a hit writes to no shared memory, and a
//! device or another thread may change the bytes during the copy.

#![expect(unsafe_code)]

use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::dma::{DMA_PAGE, DmaBuf, DmaHeap, Iova};

/// The page is being put in or taken out. This is no page's address, since those are multiples of 4
/// KiB.
const BUSY: *mut u8 = std::ptr::without_provenance_mut(1);

/// Flag in a page's address: a thread is writing to the page, so no other thread may take it out.
const WRITTEN: usize = 2;

#[inline(always)]
fn is_page(ptr: *mut u8) -> bool {
    ptr.addr() > BUSY.addr()
}

/// The address without the flag.
#[inline(always)]
fn address(ptr: *mut u8) -> *mut u8 {
    ptr.map_addr(|addr| addr & !WRITTEN)
}

/// A cell for one page of a heap.
pub struct PageCell {
    /// Keeps the memory of every page that was ever in this cell mapped.
    heap: DmaHeap,
    /// The page; null if there is none.
    ptr: AtomicPtr<u8>,
    iova: AtomicU64,
}

impl PageCell {
    /// An empty cell for pages of `heap`.
    pub fn new(heap: &DmaHeap) -> Self {
        Self { heap: heap.clone(), ptr: AtomicPtr::default(), iova: AtomicU64::new(0) }
    }

    /// Puts `page` into the cell.
    ///
    /// # Errors
    /// Returns the page if the cell is full, or if the page is of another heap or not of 4 KiB.
    pub fn put(&self, page: DmaBuf) -> Result<(), DmaBuf> {
        let fits = page.capacity() == DMA_PAGE && page.is_of(&self.heap);
        // Acquire: this comes after the emptying thread has read the address.
        let is_free = || {
            self.ptr
                .compare_exchange(std::ptr::null_mut(), BUSY, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        };
        if !fits || !is_free() {
            return Err(page);
        }
        self.iova.store(page.iova().0, Ordering::Relaxed);
        // Release: the page is published with its address and its contents.
        self.ptr.store(page.as_raw().as_ptr(), Ordering::Release);
        forget(page);
        Ok(())
    }

    /// Takes the page out. If several threads try at once, one gets it; none does while a thread
    /// [writes](Self::copy_in) to it. Readers may continue to copy for a moment, and discard their
    /// copies.
    pub fn take(&self) -> Option<DmaBuf> {
        let free = |ptr: &NonNull<u8>| ptr.as_ptr() != BUSY && ptr.addr().get() & WRITTEN == 0;
        let ptr = NonNull::new(self.ptr.load(Ordering::Relaxed)).filter(free)?;
        self.ptr.compare_exchange(ptr.as_ptr(), BUSY, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let iova = Iova(self.iova.load(Ordering::Relaxed));
        self.ptr.store(std::ptr::null_mut(), Ordering::Release);
        let (len, capacity) = (DMA_PAGE as u32, DMA_PAGE as u32);
        Some(DmaBuf { heap: Arc::clone(self.heap.inner()), ptr, iova, len, capacity })
    }

    /// Whether there is a page.
    #[inline]
    pub fn is_full(&self) -> bool {
        is_page(self.ptr.load(Ordering::Relaxed))
    }

    /// Copies the page's bytes from `offset_bytes` on to `to`. Returns false, without copying, if
    /// there is no page. The caller checks whether the bytes are consistent, and of the right page.
    ///
    /// # Panics
    /// Panics if the range extends beyond the page.
    #[inline]
    pub fn copy_out(&self, offset_bytes: usize, to: &mut [u8]) -> bool {
        assert!(
            offset_bytes <= DMA_PAGE && to.len() <= DMA_PAGE - offset_bytes,
            "beyond the end of a page"
        );
        let ptr = self.ptr.load(Ordering::Acquire);
        if !is_page(ptr) {
            return false;
        }
        // SAFETY: `ptr` was a page of `heap`, which keeps its memory mapped and initialised as long
        // as this cell is there; the range is inside it. `to` is ours alone, and no part of a page
        // of a heap that is in a cell, since those have no other owner.
        unsafe { copy_shared(address(ptr).add(offset_bytes), to) };
        true
    }

    /// Writes `from` to the page, from byte `offset_bytes` on, while others may read it. Returns
    /// false, without writing, if there is no page, or if another thread is writing to it.
    ///
    /// # Panics
    /// Panics if the range extends beyond the page.
    pub fn copy_in(&self, offset_bytes: usize, from: &[u8]) -> bool {
        // SAFETY: as `write` promises; `from` is borrowed, and no part of a page in a cell, since
        // those have no other owner.
        self.write(offset_bytes, from.len(), |to| unsafe { copy_to_shared(from, to) })
    }

    /// Writes `bytes` zeroes to the page, from byte `offset_bytes` on, while others may read it.
    /// Returns false, without writing, if there is no page, or if another thread is writing to it.
    ///
    /// # Panics
    /// Panics if the range extends beyond the page.
    pub fn zero(&self, offset_bytes: usize, bytes: usize) -> bool {
        const ZEROES: [u8; DMA_PAGE] = [0; DMA_PAGE];
        assert!(bytes <= DMA_PAGE, "beyond the end of a page");
        self.copy_in(offset_bytes, &ZEROES[..bytes])
    }

    /// Calls `write` with an address to which `bytes` bytes may be written, though others may read
    /// them. Returns false, without the call, if there is no page, or if another thread is writing
    /// to it.
    fn write(&self, offset_bytes: usize, bytes: usize, write: impl FnOnce(*mut u8)) -> bool {
        assert!(
            offset_bytes <= DMA_PAGE && bytes <= DMA_PAGE - offset_bytes,
            "beyond the end of a page"
        );
        let ptr = self.ptr.load(Ordering::Relaxed);
        if !is_page(ptr) || ptr.addr() & WRITTEN != 0 {
            return false;
        }
        // From here on no other thread takes the page out or writes to it.
        let marked = ptr.map_addr(|addr| addr | WRITTEN);
        if self.ptr.compare_exchange(ptr, marked, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        write(ptr.wrapping_add(offset_bytes));
        // Release: a thread that takes the page out sees the written bytes.
        self.ptr.store(ptr, Ordering::Release);
        true
    }
}

impl Drop for PageCell {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl std::fmt::Debug for PageCell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PageCell {{ full: {} }}", self.is_full())
    }
}

/// Forgets a page that lives on in a cell. Only the page's reference to the heap is dropped, since
/// the cell has one of its own.
fn forget(page: DmaBuf) {
    let page = MaybeUninit::new(page);
    // SAFETY: the heap is moved out once and dropped; the rest has nothing to be dropped, and the
    // buffer is not used again.
    drop(unsafe { std::ptr::read(&raw const (*page.as_ptr()).heap) });
}

/// Copies from memory that others may write to concurrently: the compiler assumes nothing about the
/// bytes it reads.
///
/// # Safety
/// `from` must be mapped and initialised for as many bytes as `to` has, and not overlap it.
#[inline]
unsafe fn copy_shared(from: *const u8, to: &mut [u8]) {
    // SAFETY: as the caller promises. The instruction reads each byte in some order and cannot know
    // of another thread; assembly is to the compiler what a system call is, so that a change
    // meanwhile is no undefined behaviour, as with a device that writes. DF is clear by the ABI.
    unsafe {
        if to.len() < SHORT_BYTES {
            return copy_words(from, to);
        }
        copy_bytes(from, to.as_mut_ptr(), to.len());
    }
}

/// Copies to memory that others may read concurrently.
///
/// # Safety
/// `to` must be mapped for as many bytes as `from` has, not be written to by others, and not
/// overlap it.
#[inline]
unsafe fn copy_to_shared(from: &[u8], to: *mut u8) {
    // SAFETY: as the caller promises; as in `copy_shared`, concurrent readers use such
    // instructions, or are devices.
    unsafe {
        copy_bytes(from.as_ptr(), to, from.len());
    }
}

/// Copies by instructions that the compiler does not look into.
///
/// # Safety
/// For `len_bytes` bytes, `from` meets the requirements of [`copy_shared`], and `to` those of
/// [`copy_to_shared`].
#[inline(always)]
unsafe fn copy_bytes(from: *const u8, to: *mut u8, len_bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as the caller promises.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") len_bytes => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as the caller promises: 16 bytes at a time, then single ones. It ends when none is
    // left, and uses no stack.
    unsafe {
        std::arch::asm!(
            "2:",
            "subs {left}, {left}, #16",
            "b.lo 3f",
            "ldp {a}, {b}, [{from}], #16",
            "stp {a}, {b}, [{to}], #16",
            "b 2b",
            "3:",
            "adds {left}, {left}, #16",
            "b.eq 5f",
            "4:",
            "ldrb {a:w}, [{from}], #1",
            "strb {a:w}, [{to}], #1",
            "subs {left}, {left}, #1",
            "b.ne 4b",
            "5:",
            left = inout(reg) len_bytes => _,
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            a = out(reg) _,
            b = out(reg) _,
            options(nostack),
        );
    }
}

/// Below this many bytes starting `rep movsb` costs more than it saves.
const SHORT_BYTES: usize = 256;

/// An unaligned word.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Word(u64);

/// Copies a few bytes by volatile words, which is cheaper than starting `rep movsb`.
///
/// # Safety
/// `from` must be mapped and initialised for as many bytes as `to` has, and not overlap it.
#[inline]
unsafe fn copy_words(from: *const u8, to: &mut [u8]) {
    let mut words = to.chunks_exact_mut(8);
    let mut at = from;
    for word in &mut words {
        // SAFETY: inside the range that the caller promises; a packed word has no alignment.
        let Word(bytes) = unsafe { at.cast::<Word>().read_volatile() };
        word.copy_from_slice(&bytes.to_ne_bytes());
        // SAFETY: at most the end of the range.
        at = unsafe { at.add(8) };
    }
    for byte in words.into_remainder() {
        // SAFETY: as above.
        unsafe {
            *byte = at.read_volatile();
            at = at.add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::NullTransport;

    fn heap() -> DmaHeap {
        DmaHeap::new(Arc::new(NullTransport::default()))
    }

    #[test]
    fn a_page_is_put_in_copied_out_and_taken() {
        let heap = heap();
        let cell = PageCell::new(&heap);
        let mut to = [0u8; 4096];
        assert!(!cell.copy_out(0, &mut to) && cell.take().is_none());
        let mut page = heap.alloc(4096).unwrap();
        page.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at % 251) as u8);
        let (iova, there) = (page.iova(), page.to_vec());
        cell.put(page).unwrap();
        assert!(cell.put(heap.alloc(4096).unwrap()).is_err());
        for (offset, len) in
            [(0, 4096), (1, 4095), (3, 8), (4095, 1), (4096, 0), (7, 300), (9, 255)]
        {
            to.fill(0xff);
            assert!(cell.copy_out(offset, &mut to[..len]));
            assert!(to[..len] == there[offset..offset + len], "{len} bytes at {offset}");
        }
        let page = cell.take().unwrap();
        assert!(page.iova() == iova && *page == *there && !cell.is_full());
        drop(page);
        cell.put(heap.alloc(4096).unwrap()).unwrap();
        assert_eq!(heap.allocated_bytes(), 4096);
        drop(cell);
        assert_eq!(heap.allocated_bytes(), 0);
    }

    #[test]
    fn another_heaps_page_is_returned() {
        let (ours, theirs) = (heap(), heap());
        let cell = PageCell::new(&ours);
        assert!(cell.put(theirs.alloc(4096).unwrap()).is_err());
        assert!(cell.put(ours.alloc(8192).unwrap()).is_err());
    }

    #[test]
    #[should_panic(expected = "beyond the end")]
    fn nothing_is_read_beyond_the_page() {
        let heap = heap();
        let cell = PageCell::new(&heap);
        cell.put(heap.alloc(4096).unwrap()).unwrap();
        cell.copy_out(4000, &mut [0; 100]);
    }

    #[test]
    fn what_is_written_is_read() {
        let heap = heap();
        let cell = PageCell::new(&heap);
        assert!(!cell.copy_in(0, &[1]));
        cell.put(heap.alloc(4096).unwrap()).unwrap();
        assert!(cell.copy_in(4000, &[7; 96]) && cell.copy_in(3, &[8]) && cell.zero(4001, 94));
        let page = cell.take().unwrap();
        assert_eq!((page[3], page[2], page[4000], page[4001], page[4095]), (8, 0, 7, 0, 7));
    }

    /// If several threads take the page at once, one gets it.
    #[test]
    fn a_page_is_taken_once() {
        let heap = heap();
        let cell = PageCell::new(&heap);
        for _ in 0..200 {
            cell.put(heap.alloc(4096).unwrap()).unwrap();
            let taken: usize = std::thread::scope(|scope| {
                let takers: Vec<_> =
                    (0..2).map(|_| scope.spawn(|| usize::from(cell.take().is_some()))).collect();
                takers.into_iter().map(|taker| taker.join().unwrap()).sum()
            });
            assert_eq!(taken, 1);
        }
        assert_eq!(heap.allocated_bytes(), 0);
    }
}
