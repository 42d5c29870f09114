//! Shadow doorbells (NVMe Base 1.4 §5.7 and §7.13): for a controller whose registers are slow to
//! write because a hypervisor or server handles each write.
//!
//! Each doorbell has a cell in each of two memory pages: the value itself, and the controller's
//! EventIdx, the value from which on the register must be written. `hw::Doorbell` has the rule and
//! its fence. The admin queue keeps its registers.

#![expect(unsafe_code)]

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use meantime_nvme_spec::dbbuf::{cq_head_offset, queues_per_page, sq_tail_offset};
use meantime_nvme_spec::soft_port::DoorbellCell;
use meantime_nvme_spec::sqe::Sqe;

use super::error::Result;
use super::features::Sender;
use meantime_hw::dma::DMA_PAGE;
use meantime_hw::{self as hw, DmaBuf, DmaHeap, Doorbell};

/// The two pages that a controller was given.
pub(crate) struct Shadows {
    pages: Arc<Pages>,
    dstrd: u8,
}

struct Pages {
    /// Shadow doorbells and EventIdx; taken only on drop.
    buffers: Option<[DmaBuf; 2]>,
    /// Whether the memory is never freed, because the device may still write to it.
    quarantined: AtomicBool,
}

impl Drop for Pages {
    fn drop(&mut self) {
        if self.quarantined.load(Ordering::Relaxed) {
            self.buffers.take().into_iter().flatten().for_each(DmaBuf::quarantine);
        }
    }
}

impl Pages {
    /// The cell at `offset` of page `page`.
    fn cell(&self, page: usize, offset: u64) -> Option<NonNull<DoorbellCell>> {
        let buffer = &self.buffers.as_ref()?[page];
        let inside = offset.is_multiple_of(4) && offset + 4 <= DMA_PAGE as u64;
        // SAFETY: the page is DMA_PAGE bytes long, and `offset` and what is there are within it.
        inside.then(|| unsafe { buffer.as_raw().add(offset as usize) }.cast())
    }
}

/// Stores to a cell of the pages, which both sides access as atomics.
fn store(cell: NonNull<DoorbellCell>, value: u32) {
    // SAFETY: `Pages::cell` gave it: aligned, and mapped while the pages are, which the caller
    // holds.
    unsafe { cell.as_ref() }.store(value, Ordering::Relaxed);
}

impl Shadows {
    /// Pages for a controller with the doorbell stride `dstrd`.
    pub(crate) fn new(heap: &DmaHeap, dstrd: u8) -> hw::Result<Self> {
        let buffers = Some([heap.alloc(DMA_PAGE)?, heap.alloc(DMA_PAGE)?]);
        Ok(Self { pages: Arc::new(Pages { buffers, quarantined: AtomicBool::new(false) }), dstrd })
    }

    /// Zeroes the pages and gives them to a newly enabled controller, before it has I/O queues.
    pub(crate) fn configure(&self, to: &mut Sender<'_>) -> Result<()> {
        for (page, offset) in [0, 1]
            .into_iter()
            .flat_map(|page| (0..DMA_PAGE as u64).step_by(4).map(move |at| (page, at)))
        {
            if let Some(cell) = self.pages.cell(page, offset) {
                store(cell, 0);
            }
        }
        let Some([doorbells, events]) = &self.pages.buffers else { return Ok(()) };
        let sqe = Sqe::doorbell_buffer_config(0, doorbells.iova().0, events.iova().0);
        to.queue.execute(&to.context, "Doorbell Buffer Config", sqe, None).map(drop)
    }

    /// Adds shadows to the doorbells of I/O queue pair `qid`, which the controller does not know at
    /// present. Doorbells beyond the pages' capacity stay unchanged (§5.7).
    pub(crate) fn shade(&self, qid: u16, tail: Doorbell, head: Doorbell) -> (Doorbell, Doorbell) {
        if qid >= queues_per_page(self.dstrd) {
            return (tail, head);
        }
        let shade = |doorbell: Doorbell, offset: u64| {
            let (Some(shadow), Some(event)) =
                (self.pages.cell(0, offset), self.pages.cell(1, offset))
            else {
                return doorbell;
            };
            store(shadow, 0);
            store(event, 0);
            let owner = Arc::clone(&self.pages) as Arc<dyn Any + Send + Sync>;
            #[cfg(not(loom))]
            // SAFETY: both cells are aligned, and are mapped as long as `owner` lives.
            return unsafe { doorbell.with_shadow(shadow, event, owner) };
            #[cfg(loom)] // Which has no such doorbell.
            return (doorbell, drop(owner)).0;
        };
        (shade(tail, sq_tail_offset(qid, self.dstrd)), shade(head, cq_head_offset(qid, self.dstrd)))
    }

    /// Notes that the controller may write to the pages for ever: the last doorbell leaks their
    /// memory.
    pub(crate) fn quarantine(&self) {
        self.pages.quarantined.store(true, Ordering::Relaxed);
    }
}
