//! Doorbells: the one kind of register that is on the path of an I/O.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use meantime_spec::seam::{DoorbellCell, Doorbells, SoftPort};

/// One doorbell register.
///
/// It may be mapped device memory or memory shared with a software SSD; an aligned 32-bit store reaches both.
pub struct Doorbell {
    cell: NonNull<DoorbellCell>,
    backing: Backing,
}

/// What keeps `cell` mapped.
enum Backing {
    Soft { doorbells: Arc<Doorbells>, port: Arc<dyn SoftPort> },
}

// SAFETY: the cell is an atomic, and its backing is shared by reference count; nothing is bound to a thread.
unsafe impl Send for Doorbell {}

impl Doorbell {
    /// The doorbell at `index` of a software SSD; `None` if it has no such doorbell.
    pub fn soft(doorbells: &Arc<Doorbells>, index: usize, port: &Arc<dyn SoftPort>) -> Option<Self> {
        let cell = NonNull::from(doorbells.get(index)?);
        Some(Self {
            cell,
            backing: Backing::Soft { doorbells: Arc::clone(doorbells), port: Arc::clone(port) },
        })
    }

    #[inline(always)]
    fn store(&self, value: u16) {
        // SAFETY: `cell` points into `backing`, which lives as long as `self`.
        let cell = unsafe { self.cell.as_ref() };
        // Release: the entries that this doorbell announces, and the data they point to, are visible before it is
        // (ARCHITECTURE.md §2, rules 1, 3 and 4).
        cell.store(u32::from(value), Ordering::Release);
    }

    /// Announces a new submission queue tail, and wakes a software SSD that has parked.
    #[inline(always)]
    pub fn ring_tail(&self, tail: u16) {
        self.store(tail);
        match &self.backing {
            Backing::Soft { doorbells, port } => {
                if doorbells.parking().must_wake() {
                    wake(port.as_ref());
                }
            }
        }
    }

    /// Announces a new completion queue head. No wake-up: a software SSD that waits for room in a completion
    /// queue looks again within a millisecond.
    #[inline(always)]
    pub fn ring_head(&self, head: u16) {
        self.store(head);
    }
}

#[cold]
#[inline(never)]
fn wake(port: &dyn SoftPort) {
    port.wake();
}
