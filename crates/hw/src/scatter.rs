//! A transfer to or from pages that lie anywhere: one request, one command, many buffers.
//!
//! [`DmaPages`] collects pages, each a separate [`DmaBuf`], and goes into a request as a single
//! buffer: [`DmaPages::into_buf`]. It brings its own list of physical region pages (NVMe Base 1.4
//! §4.3), in memory of the heap, so a command only has to point there. After the request the pages
//! are taken out again, and the list serves the next one: nothing is allocated on the way.

#![expect(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;

use super::Result;
use super::dma::{DMA_PAGE, DmaBuf, DmaHeap, Iova, SCATTERED};

/// The most pages of one request: for these, one list page suffices wherever a command begins.
pub const PAGES_MAX: usize = DMA_PAGE / ENTRY_BYTES;

/// An entry of a list: the address of a page.
const ENTRY_BYTES: usize = 8;

/// Pages that one request transfers to or from, in order.
#[derive(Debug)]
pub struct DmaPages(DmaBuf);

/// The content of a scattered [`DmaBuf`]. Boxed, so that it stays in place while a request moves.
pub(super) struct List {
    pages: Vec<DmaBuf>,
    /// The addresses of all pages but the first, in the format of a command's list.
    entries: DmaBuf,
    /// The same for the kernel, as far as requested.
    vectors: Vec<libc::iovec>,
    /// Offset of the data in the first page, in bytes.
    offset_bytes: u32,
    data_bytes: u32,
}

/// Memory for a system call: `struct iovec`s that live as long as their buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vectors {
    pub(super) first: *const libc::iovec,
    pub(super) count: u32,
}

// SAFETY: an address and a number. The code that hands them to the kernel argues for what they
// point to (see `uring`).
unsafe impl Send for Vectors {}
// SAFETY: as above; shared access only copies.
unsafe impl Sync for Vectors {}

/// The data pointers of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first byte.
    pub data: Iova,
    /// PRP2: the second page, if there are two, or a list of all but the first. 0: the data is
    /// contiguous.
    pub second: Iova,
}

impl DmaPages {
    /// An empty collection, with room for `pages` without allocating.
    ///
    /// # Errors
    /// If there is no memory.
    ///
    /// # Panics
    /// If `pages` exceeds [`PAGES_MAX`].
    pub fn with_capacity(heap: &DmaHeap, pages: usize) -> Result<Self> {
        assert!(pages <= PAGES_MAX, "{pages} pages are more than one list names");
        let list = Box::new(List {
            pages: Vec::with_capacity(pages),
            entries: heap.alloc(DMA_PAGE)?,
            vectors: Vec::new(),
            offset_bytes: 0,
            data_bytes: 0,
        });
        let (inner, iova) = (Arc::clone(heap.inner()), list.entries.iova());
        let list = NonNull::from(Box::leak(list)).cast();
        Ok(Self(DmaBuf { heap: inner, ptr: list, iova, len: 0, capacity: SCATTERED }))
    }

    /// Adds `page`. The data range becomes all bytes of all pages.
    ///
    /// # Errors
    /// The page, if there are [`PAGES_MAX`] already, or if it is of another heap, or not of 4 KiB.
    pub fn push(&mut self, mut page: DmaBuf) -> std::result::Result<(), DmaBuf> {
        let fits = page.capacity() == DMA_PAGE && Arc::ptr_eq(&page.heap, &self.0.heap);
        let list = self.list_mut();
        let count = list.pages.len();
        if !fits || count == PAGES_MAX {
            return Err(page);
        }
        if let Some(before) = count.checked_sub(1) {
            let at = before * ENTRY_BYTES;
            list.entries[at..at + ENTRY_BYTES].copy_from_slice(&page.iova().0.to_le_bytes());
        }
        // Every byte of the page counts.
        page.set_len(DMA_PAGE);
        list.pages.push(page);
        (list.offset_bytes, list.data_bytes) = (0, ((count + 1) * DMA_PAGE) as u32);
        Ok(())
    }

    /// Restricts the data to `bytes` bytes from `offset_bytes` of the first page on.
    ///
    /// # Panics
    /// If that exceeds the pages, or does not begin on the first one, at a multiple of 4 bytes (as
    /// a command requires).
    pub fn set_range(&mut self, offset_bytes: usize, bytes: usize) {
        let list = self.list_mut();
        let whole = list.pages.len() * DMA_PAGE;
        let inside = offset_bytes < DMA_PAGE
            && offset_bytes.checked_add(bytes).is_some_and(|end| end <= whole);
        assert!(
            inside && offset_bytes.is_multiple_of(4),
            "{bytes} bytes at {offset_bytes} of {whole}"
        );
        (list.offset_bytes, list.data_bytes) = (offset_bytes as u32, bytes as u32);
    }

    /// Number of pages.
    pub fn len(&self) -> usize {
        self.list().pages.len()
    }

    /// Whether there are no pages.
    pub fn is_empty(&self) -> bool {
        self.list().pages.is_empty()
    }

    /// Bytes that a request transfers.
    pub fn data_bytes(&self) -> usize {
        self.list().data_bytes as usize
    }

    /// The pages.
    pub fn pages(&self) -> &[DmaBuf] {
        &self.list().pages
    }

    /// The pages, for writing.
    pub fn pages_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.list_mut().pages.iter_mut().map(|page| &mut **page)
    }

    /// Takes all pages out, in order. Those left in the iterator when it is dropped go back to the
    /// heap.
    pub fn drain(&mut self) -> impl DoubleEndedIterator<Item = DmaBuf> + ExactSizeIterator {
        let list = self.list_mut();
        (list.offset_bytes, list.data_bytes) = (0, 0);
        list.pages.drain(..)
    }

    /// Converts to a request's buffer. Its slice is empty; [`DmaBuf::transfer_bytes`] is the size
    /// of the transfer.
    pub fn into_buf(self) -> DmaBuf {
        self.0
    }

    /// Converts from a request's buffer.
    ///
    /// # Errors
    /// The buffer, if it is not scattered.
    pub fn from_buf(buf: DmaBuf) -> std::result::Result<Self, DmaBuf> {
        if buf.is_scattered() { Ok(Self(buf)) } else { Err(buf) }
    }

    fn list(&self) -> &List {
        self.0.list().expect("only scattered ones are in here")
    }

    fn list_mut(&mut self) -> &mut List {
        self.0.list_mut().expect("only scattered ones are in here")
    }
}

impl List {
    /// The page of byte `at` of the data, and the offset in that page.
    fn place(&self, at_bytes: usize) -> (usize, usize) {
        let at_bytes = self.offset_bytes as usize + at_bytes;
        (at_bytes / DMA_PAGE, at_bytes % DMA_PAGE)
    }

    fn span(&self, at_bytes: u32, bytes: u32) -> Span {
        assert!(
            u64::from(at_bytes) + u64::from(bytes) <= u64::from(self.data_bytes),
            "beyond the data"
        );
        let (page, within) = self.place(at_bytes as usize);
        let data = Iova(self.pages[page].iova().0 + within as u64);
        let on_first = DMA_PAGE - within;
        let second = match (bytes as usize).saturating_sub(on_first) {
            0 => Iova(0),
            1..=DMA_PAGE => self.pages[page + 1].iova(),
            // The list does not contain the first page.
            _ => Iova(self.entries.iova().0 + (page * ENTRY_BYTES) as u64),
        };
        Span { data, second }
    }
}

impl DmaBuf {
    /// Whether this is a converted [`DmaPages`].
    #[inline(always)]
    pub fn is_scattered(&self) -> bool {
        self.capacity & SCATTERED != 0
    }

    /// Bytes that a request with this buffer transfers: its length, or that of its pages' data, or
    /// of the lent memory.
    #[inline]
    pub fn transfer_bytes(&self) -> usize {
        match self.list() {
            Some(list) => list.data_bytes as usize,
            None => self.lent_bytes().unwrap_or(self.len()),
        }
    }

    #[inline]
    fn list(&self) -> Option<&List> {
        // SAFETY: a scattered buffer's `ptr` is a leaked `Box<List>` which only this value leads
        // to, until its drop.
        self.is_scattered().then(|| unsafe { self.ptr.cast().as_ref() })
    }

    #[inline]
    fn list_mut(&mut self) -> Option<&mut List> {
        // SAFETY: as above, and `self` is borrowed mutably.
        self.is_scattered().then(|| unsafe { self.ptr.cast().as_mut() })
    }

    /// The data pointers for `bytes` of the transfer from byte `at_bytes` on.
    pub fn span(&self, at_bytes: u32, bytes: u32) -> Span {
        match self.list() {
            Some(list) => list.span(at_bytes, bytes),
            None => Span { data: Iova(self.iova.0 + u64::from(at_bytes)), second: Iova(0) },
        }
    }

    /// The contiguous part of the transfer from byte `at_bytes` on.
    pub fn contiguous_mut(&mut self, at_bytes: usize) -> &mut [u8] {
        if !self.is_scattered() {
            return &mut self[at_bytes..];
        }
        let list = self.list_mut().expect("it is scattered");
        let left = (list.data_bytes as usize).saturating_sub(at_bytes);
        let (page, within) = list.place(at_bytes);
        match list.pages.get_mut(page) {
            Some(page) => &mut page[within..DMA_PAGE.min(within + left)],
            None => &mut [],
        }
    }

    /// At most `bytes` of the transfer from byte `at_bytes` on for the kernel; `None` if it is
    /// contiguous. The kernel must be done with earlier vectors.
    pub fn vectors(&mut self, at_bytes: u64, bytes: u64) -> Option<Vectors> {
        let list = self.list_mut()?;
        let (mut page, mut within) = list.place(at_bytes as usize);
        let left = u64::from(list.data_bytes).saturating_sub(at_bytes);
        let mut left = left.min(bytes) as usize;
        list.vectors.clear();
        while left > 0 {
            let bytes = left.min(DMA_PAGE - within);
            let base = list.pages[page].ptr.as_ptr().wrapping_add(within);
            list.vectors.push(libc::iovec { iov_base: base.cast(), iov_len: bytes });
            (page, within, left) = (page + 1, 0, left - bytes);
        }
        Some(Vectors { first: list.vectors.as_ptr(), count: list.vectors.len() as u32 })
    }

    /// Drops a scattered buffer: each page goes back to its heap.
    #[cold]
    pub(super) fn drop_list(&mut self) {
        // SAFETY: `ptr` is a leaked `Box<List>`, taken back once: by the drop of its only owner.
        drop(unsafe { Box::<List>::from_raw(self.ptr.cast().as_ptr()) });
    }

    /// Drops a scattered buffer that a device may still write to: leaks all its memory, including
    /// the list.
    #[cold]
    pub(super) fn quarantine_list(mut self) {
        if let Some(list) = self.list_mut() {
            list.pages.drain(..).for_each(DmaBuf::quarantine);
        }
        // The list's page is leaked with its owner.
        self.heap.note_quarantined(DMA_PAGE);
        std::mem::forget(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::NullTransport;

    fn heap() -> DmaHeap {
        DmaHeap::new(Arc::new(NullTransport::default()))
    }

    fn pages(heap: &DmaHeap, count: usize) -> DmaPages {
        let mut pages = DmaPages::with_capacity(heap, count).unwrap();
        let mut all = heap.alloc_pages(count).unwrap();
        // Every second page first, so that they are not contiguous.
        let second: Vec<DmaBuf> = (0..count / 2).map(|at| all.remove(at)).collect();
        second.into_iter().chain(all).for_each(|page| pages.push(page).unwrap());
        pages
    }

    #[test]
    #[should_panic(expected = "no memory of its own")]
    fn a_list_of_pages_is_not_taken_for_their_memory() {
        let _ = pages(&heap(), 2).into_buf().as_raw();
    }

    #[test]
    fn a_command_finds_its_pages() {
        let heap = heap();
        let buf = pages(&heap, 6).into_buf();
        assert_eq!((buf.len(), buf.capacity(), buf.transfer_bytes()), (0, 0, 6 * 4096));
        let list = buf.list().unwrap();
        let iova = |at: usize| list.pages[at].iova();
        let entry =
            |at: usize| u64::from_le_bytes(list.entries[at * 8..at * 8 + 8].try_into().unwrap());
        assert_eq!(
            (0..5).map(entry).collect::<Vec<_>>(),
            (1..6).map(|at| iova(at).0).collect::<Vec<_>>()
        );
        assert_eq!(buf.span(0, 4096), Span { data: iova(0), second: Iova(0) });
        assert_eq!(buf.span(0, 8192), Span { data: iova(0), second: iova(1) });
        assert_eq!(buf.span(0, 8196), Span { data: iova(0), second: list.entries.iova() });
        assert_eq!(buf.span(8192, 4 * 4096).second, Iova(list.entries.iova().0 + 16));
        assert_eq!(buf.span(512, 4096), Span { data: Iova(iova(0).0 + 512), second: iova(1) });
        assert_eq!(
            buf.span(5 * 4096 + 512, 512),
            Span { data: Iova(iova(5).0 + 512), second: Iova(0) }
        );
    }

    #[test]
    fn a_range_begins_within_the_first_page() {
        let heap = heap();
        let mut pages = pages(&heap, 3);
        pages.set_range(1024, 2 * 4096);
        let mut buf = pages.into_buf();
        let parts: Vec<usize> =
            [0, 3072, 3072 + 4096].iter().map(|&at| buf.contiguous_mut(at).len()).collect();
        assert_eq!(parts, [3072, 4096, 1024]);
        let vectors = buf.vectors(3072 + 4000, u64::MAX).unwrap();
        assert_eq!(vectors.count, 2);
        let list = buf.list().unwrap();
        let lens: Vec<usize> = list.vectors.iter().map(|vector| vector.iov_len).collect();
        assert_eq!(lens, [96, 1024]);
        // A part of them.
        assert_eq!(buf.vectors(1024, 4096).map(|vectors| vectors.count), Some(2));
        let list = buf.list().unwrap();
        let lens: Vec<usize> = list.vectors.iter().map(|vector| vector.iov_len).collect();
        assert_eq!(lens, [2048, 2048]);
    }

    #[test]
    fn everything_comes_back() {
        let heap = heap();
        let mut there = pages(&heap, 8);
        assert_eq!(heap.allocated_bytes(), 9 * 4096);
        assert_eq!(there.drain().len(), 8);
        assert_eq!((there.data_bytes(), heap.allocated_bytes()), (0, 4096));
        drop(there);
        drop(pages(&heap, 8).into_buf());
        assert_eq!(heap.allocated_bytes(), 0);
        pages(&heap, 8).into_buf().quarantine();
        assert_eq!((heap.allocated_bytes(), heap.quarantined_bytes()), (9 * 4096, 9 * 4096));
    }

    #[test]
    fn what_does_not_fit_is_returned() {
        let (ours, theirs) = (heap(), heap());
        let mut pages = DmaPages::with_capacity(&ours, 1).unwrap();
        assert!(pages.push(theirs.alloc(4096).unwrap()).is_err());
        assert!(pages.push(ours.alloc(8192).unwrap()).is_err());
        let inner = DmaPages::with_capacity(&ours, 1).unwrap();
        assert!(pages.push(inner.into_buf()).is_err());
        assert!(DmaPages::from_buf(ours.alloc(4096).unwrap()).is_err());
        for page in ours.alloc_pages(PAGES_MAX).unwrap() {
            pages.push(page).unwrap();
        }
        assert!(pages.push(ours.alloc(4096).unwrap()).is_err());
    }
}
