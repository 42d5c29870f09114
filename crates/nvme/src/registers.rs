//! The registers and doorbells of a controller. Only this file writes them, and it argues why the
//! controller then accesses no memory but its own.

#![expect(unsafe_code)]

use std::sync::Arc;

use meantime_nvme_spec::regs::{
    ACQ, AQA, ASQ, Aqa, CC, CSTS, Cap, Cc, Csts, GONE, cq_head_doorbell, sq_tail_doorbell,
};

use super::error::{Error, Result};
use super::ring::Ring;
use meantime_hw::{DmaHeap, Doorbell, Transport};

/// Whether CSTS says that the controller accepts commands.
pub(super) fn is_alive(csts: u32) -> bool {
    csts != GONE && Csts(csts).rdy() && !Csts(csts).cfs()
}

/// A transport that no other driver uses while this exists.
pub(super) struct Registers(Arc<dyn Transport>);

impl Registers {
    /// Claims `transport`.
    ///
    /// # Errors
    /// Returns [`Error::Driven`] if it is claimed already.
    pub(super) fn claim(transport: Arc<dyn Transport>) -> Result<Self> {
        if transport.claim().take() {
            Ok(Self(transport))
        } else {
            Err(Error::Driven(transport.describe()))
        }
    }

    /// The transport, for operations without exclusive access.
    pub(super) fn transport(&self) -> &dyn Transport {
        self.0.as_ref()
    }

    /// Restates `error` in the words of a transport that knows more about it: the registers of a
    /// controller behind a network say little.
    pub(super) fn explain(&self, error: Error) -> Error {
        match error {
            Error::NotReady { .. } | Error::Fatal { .. } | Error::Gone => {
                self.0.trouble().map_or(error, Error::Connection)
            }
            error => error,
        }
    }

    /// Reads CSTS. Returns all ones if the device is gone.
    pub(super) fn csts(&self) -> u32 {
        self.0.read32(CSTS)
    }

    /// Reads CC. Returns all ones if the device is gone.
    pub(super) fn cc(&self) -> u32 {
        self.0.read32(CC)
    }

    /// The sizes of the admin queues as programmed in the controller.
    pub(super) fn admin_attributes(&self) -> u32 {
        self.0.read32(AQA)
    }

    /// Programs the admin queue of a disabled controller, and sets CC with EN (NVMe Base 1.4
    /// §7.6.1, steps 3 to 5).
    ///
    /// The owner of `admin` keeps it until the controller is disabled, or is cut off from memory:
    /// [`Controller`](super::Controller) does so, and quarantines it if neither is possible.
    pub(super) fn enable(&self, admin: &Ring, sizes: Aqa, cc: Cc) {
        // SAFETY: no other driver uses the device, which knows no queue while it is disabled. This
        // queue is memory of the heap, used by the ring alone, and stays for as long as the owner
        // promises. No entry is announced yet; `AdminQueue` writes the entries, and holds their
        // data.
        unsafe {
            self.0.write32(AQA, sizes.0);
            self.0.write64(ASQ, admin.sq_iova().0);
            self.0.write64(ACQ, admin.cq_iova().0);
            self.0.write32(CC, cc.with_en(true).0);
        }
    }

    /// Clears CC.EN, and CC.SHN with it.
    pub(super) fn clear_enable(&self) {
        // SAFETY: no other driver uses the device. Without EN it touches less memory than before.
        unsafe { self.0.write32(CC, Cc(self.cc()).with_en(false).with_shn(0).0) };
    }

    /// Asks for a normal shutdown (NVMe Base 1.4 §7.6.2).
    pub(super) fn shut_down(&self) {
        // SAFETY: no other driver uses the device, and its queues stay the same: only SHN changes.
        unsafe { self.0.write32(CC, Cc(self.cc()).with_shn(1).0) };
    }

    /// Unmaps all memory of `heap`. Returns true if the controller will not access it again. The
    /// caller's controller has stopped, or is gone, and gets no further command.
    pub(super) fn unmap_all(&self, heap: &DmaHeap) -> bool {
        // SAFETY: no other driver uses the device, and its rings are muted by then: no later
        // command names the memory.
        unsafe { heap.unmap_all() }
    }

    /// The doorbells of queue pair `qid`, for its rings: tail and head. A queue pair has one ring
    /// at a time: [`Controller`](super::Controller) hands identifiers out, and takes them back when
    /// the controller does not know them any more.
    ///
    /// # Errors
    /// Fails if the transport has no such doorbells.
    pub(super) fn doorbells(&self, qid: u16, cap: Cap) -> Result<(Doorbell, Doorbell)> {
        let (tail, head) = (sq_tail_doorbell(qid, cap.dstrd()), cq_head_doorbell(qid, cap.dstrd()));
        // SAFETY: no other driver uses the device. Only a `Ring` writes these doorbells, for
        // entries that it has written. Each entry keeps its slot, and the slot its buffer, until
        // the device has let go of it (ARCHITECTURE.md §3). The ring is muted while the controller
        // does not know it, and its queue holds the controller, and with it this claim.
        let bells = unsafe { (self.0.doorbell(tail), self.0.doorbell(head)) };
        Ok((bells.0?, bells.1?))
    }
}

impl Drop for Registers {
    fn drop(&mut self) {
        self.0.claim().release();
    }
}
