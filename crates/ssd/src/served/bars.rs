//! The layout of the function's base address registers.
//!
//! BAR0 has the registers, then the doorbells with the word that says whether the thread has
//! parked, in whole pages that can be mapped. BAR4 has the MSI-X table, and the pending bits in a
//! page of their own. They are not in BAR0, so none of them shares a page with mapped memory.

use meantime_nvme_spec::pci::MSIX_ENTRY_BYTES;
use meantime_nvme_spec::regs;
use meantime_nvme_spec::soft_port::SOFT_DSTRD;

use super::mapping::{PAGE_BYTES, doorbell_bytes};

/// Sizes and offsets in BAR0 and BAR4.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bars {
    /// Number of queue identifiers, including the admin queue's.
    pub(super) queues: u16,
    /// Number of interrupt vectors.
    pub(super) vectors: u16,
    /// Size of BAR0: a power of two.
    pub(super) bar0_bytes: u64,
    /// Size of BAR4: a power of two.
    pub(super) msix_bytes: u64,
}

impl Bars {
    pub(super) fn new(queues: u16, vectors: u16) -> Self {
        let bar0_bytes = (u64::from(regs::DOORBELLS) + doorbell_bytes(queues)).next_power_of_two();
        let table = (u64::from(vectors) * u64::from(MSIX_ENTRY_BYTES)).next_multiple_of(PAGE_BYTES);
        let msix_bytes = (table + PAGE_BYTES).next_power_of_two();
        Self { queues, vectors, bar0_bytes, msix_bytes }
    }

    /// Returns the mappable part of BAR0: its offset and its length in bytes.
    pub(super) fn mappable(&self) -> (u64, u64) {
        (u64::from(regs::DOORBELLS), doorbell_bytes(self.queues))
    }

    /// Returns the size of the MSI-X table in bytes.
    pub(super) fn table_bytes(&self) -> usize {
        usize::from(self.vectors) * MSIX_ENTRY_BYTES as usize
    }

    /// Returns the offset of the pending bits in BAR4.
    pub(super) fn pba_offset(&self) -> u64 {
        (self.table_bytes() as u64).next_multiple_of(PAGE_BYTES)
    }

    /// Returns the offset in BAR0 of the word that says whether the thread has parked.
    pub(super) fn parked_offset(&self) -> u32 {
        regs::DOORBELLS + u32::from(self.queues) * 2 * (4 << SOFT_DSTRD)
    }
}
