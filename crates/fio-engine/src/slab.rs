//! The memory of a job's I/Os: a buffer for each.

#![expect(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::{NonNull, null_mut};

use meantime_block::Device;
use meantime_hw::{DmaBuf, HwError};

use crate::abi::Ptr;

const PAGE: usize = 4096;

/// The buffers, by the number of fio's `io_u`.
///
/// fio lays out its I/Os' memory itself, in one piece. If its I/Os begin at pages there, that piece
/// is DMA memory, and each buffer is where fio expects it. Otherwise (I/Os of 512 bytes) fio gets
/// other memory, and each I/O is moved into its buffer when it is first sent.
#[derive(Default)]
pub(crate) struct Slab {
    /// `None` while the buffer is with the device, or if it is lost because a device that is gone
    /// may still write to it.
    bufs: Vec<Option<DmaBuf>>,
    /// The most bytes of an I/O.
    most: usize,
    memory: Option<Memory>,
}

impl Slab {
    /// Makes `count` buffers for I/Os of up to `most` bytes. fio wants `total` bytes in one piece,
    /// and its I/Os begin every `most` bytes from there on, unless they are `shifted`.
    pub(crate) fn new(
        device: &Device,
        count: usize,
        most: usize,
        total: usize,
        shifted: bool,
    ) -> Result<Self, HwError> {
        let heap = device.heap();
        if !shifted
            && most.is_multiple_of(PAGE)
            && let Ok(run) = heap.alloc_run(count, most)
        {
            return Ok(Self { bufs: run.into_iter().map(Some).collect(), most, memory: None });
        }
        let memory = Memory::new(total)
            .ok_or(HwError::TooLarge { bytes: total, limit: isize::MAX as usize })?;
        let bufs = (0..count).map(|_| heap.alloc(most).map(Some)).collect::<Result<_, _>>()?;
        Ok(Self { bufs, most, memory: Some(memory) })
    }

    /// The address where fio's piece begins, at a page.
    pub(crate) fn start(&self) -> Ptr {
        match &self.memory {
            Some(memory) => memory.ptr.as_ptr().cast(),
            None => self.address(0),
        }
    }

    /// The address where buffer `index` begins; NULL if it is not here.
    #[inline(always)]
    pub(crate) fn address(&self, index: usize) -> Ptr {
        match self.bufs.get(index) {
            Some(Some(buf)) => buf.as_raw().as_ptr().cast(),
            _ => null_mut(),
        }
    }

    /// Copies what fio has at `from` for I/O `index` into its buffer. Returns the buffer's address.
    ///
    /// # Safety
    /// `from` is the address of this I/O in fio's memory, with as many bytes as the largest of its
    /// I/Os.
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn adopt(&mut self, index: usize, from: Ptr) -> Option<Ptr> {
        let most = self.most;
        let buf = self.bufs.get_mut(index)?.as_mut()?;
        // SAFETY: the caller's promise; the buffer holds as much, and is none of fio's yet.
        unsafe { buf.as_raw().as_ptr().copy_from_nonoverlapping(from.cast(), most) };
        Some(buf.as_raw().as_ptr().cast())
    }

    /// Takes buffer `index` for an I/O of `bytes`.
    #[inline(always)]
    pub(crate) fn take(&mut self, index: usize, bytes: u64) -> Option<DmaBuf> {
        let place = self.bufs.get_mut(index)?;
        if bytes > self.most as u64 {
            return None;
        }
        let mut buf = place.take()?;
        buf.set_len(bytes as usize);
        Some(buf)
    }

    /// Puts buffer `index` back.
    #[inline(always)]
    pub(crate) fn put(&mut self, index: usize, buf: DmaBuf) {
        if let Some(place) = self.bufs.get_mut(index) {
            *place = Some(buf);
        }
    }

    /// Whether the device has kept the buffer of an I/O that is not in flight.
    pub(crate) fn was_lost(&self, index: usize) -> bool {
        matches!(self.bufs.get(index), Some(None))
    }

    /// The reason why [`take`](Self::take) found no buffer.
    pub(crate) fn missing(&self, index: usize, bytes: u64) -> String {
        if self.was_lost(index) {
            return "the device is gone, and may still write to this buffer".to_owned();
        }
        format!("an I/O of {bytes} bytes, and its buffer has {}", self.most)
    }
}

/// Zeroed memory for fio alone.
struct Memory {
    ptr: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the only owner of its bytes.
unsafe impl Send for Memory {}

impl Memory {
    fn new(bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(bytes.max(1), PAGE).ok()?;
        // SAFETY: the layout is not empty.
        let ptr = unsafe { alloc_zeroed(layout) };
        Some(Self { ptr: NonNull::new(ptr)?, layout })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: from `alloc_zeroed` with this layout.
        unsafe { dealloc(self.ptr.as_ptr(), self.layout) };
    }
}
