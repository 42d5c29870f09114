//! The doorbells of queues: registers, or their shadows in the host's memory (see `dbbuf`).

use std::sync::Arc;

use meantime_nvme_spec::soft_port::{Doorbells, SOFT_DSTRD};

use crate::hostmem::{Cells, Doorbell};

/// An event index that is passed only once per wrap, because the controller polls.
pub(super) const POLLED: u32 = 0xffff;

/// Returns the index of the tail doorbell of submission queue `qid`.
pub(super) fn sq_doorbell(qid: u16) -> usize {
    usize::from(qid) * 2
}

/// Returns the index of the head doorbell of completion queue `qid`.
pub(super) fn cq_doorbell(qid: u16) -> usize {
    usize::from(qid) * 2 + 1
}

/// The host's two pages.
pub(super) struct Shadows {
    pub(super) doorbells: Cells,
    pub(super) events: Cells,
}

/// The doorbell of a queue, in the registers or in the host's memory.
pub(super) struct QueueDoorbell {
    pub(super) cell: Doorbell,
    /// Its event index, if it is a shadow doorbell.
    pub(super) event: Option<Doorbell>,
}

impl QueueDoorbell {
    /// Returns the doorbell register at `index`, or `None` beyond the last queue.
    pub(super) fn register(doorbells: &Arc<Doorbells>, index: usize) -> Option<Self> {
        Some(Self { cell: Doorbell::new(doorbells, index)?, event: None })
    }

    /// Loads its value with Acquire, so that the entries which the host wrote before ringing are
    /// visible afterwards.
    #[inline(always)]
    pub(super) fn load(&self) -> u32 {
        self.cell.load()
    }
}

impl Shadows {
    /// Returns the shadow of the doorbell at `index`, initialised to `value`, with its event index
    /// at [`POLLED`].
    pub(super) fn doorbell(&self, index: usize, value: u32) -> Option<QueueDoorbell> {
        // The stride is the same as that of the registers (1.4 §5.7).
        let offset = index as u64 * (4 << SOFT_DSTRD);
        let (cell, event) = (self.doorbells.cell(offset)?, self.events.cell(offset)?);
        cell.store(value);
        event.store(POLLED);
        Some(QueueDoorbell { cell, event: Some(event) })
    }

    /// Returns whether either page touches the `len` bytes at `iova`.
    pub(super) fn overlap(&self, iova: u64, len: u64) -> bool {
        self.doorbells.overlaps(iova, len) || self.events.overlaps(iova, len)
    }
}
