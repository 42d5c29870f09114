//! The controller, and the memory that it accesses for the target: data buffers and queues.
//!
//! Both are in one structure because of its promise: while the controller runs, no reference to
//! that memory exists. The controller runs only in calls on the borrow that
//! [`Machine::controller_mut`] returns, which borrows the memory too.

#![expect(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use meantime_nvme_spec::cqe::Cqe;
use meantime_nvme_spec::soft_port::DmaRegion;
use meantime_nvme_spec::sqe::Sqe;

use crate::controller::Controller;
use crate::hostmem::{OwnMemory, PAGE_BYTES};

/// The size of a slot's data buffer in bytes, which is the most that a command transfers.
pub(super) const BUFFER_BYTES: usize = 128 << 10;

const PAGE: usize = PAGE_BYTES as usize;

/// Returns the size of the rings of one queue pair of `entries` entries, in bytes of whole pages.
const fn pair_bytes(entries: u32) -> usize {
    sq_bytes(entries) + (entries as usize * size_of::<Cqe>()).next_multiple_of(PAGE)
}

const fn sq_bytes(entries: u32) -> usize {
    (entries as usize * size_of::<Sqe>()).next_multiple_of(PAGE)
}

pub(super) struct Machine {
    controller: Controller,
    memory: Arc<OwnMemory>,
    slots: usize,
    pairs: usize,
    entries: u32,
}

impl Machine {
    /// Gives `controller` memory for `slots` commands and `pairs` queue pairs of `entries` entries.
    /// Returns `None` if there is none, or the controller refuses it.
    pub(super) fn new(
        mut controller: Controller,
        slots: usize,
        pairs: usize,
        entries: u32,
    ) -> Option<Self> {
        let bytes = slots * (BUFFER_BYTES + PAGE) + pairs * pair_bytes(entries);
        let memory = OwnMemory::new(bytes)?;
        let keepalive = Arc::clone(&memory) as Arc<_>;
        let addr = memory.addr();
        // SAFETY: the memory is allocated for as long as `keepalive` is held. It is private to
        // `Machine`, whose functions below make references to it only for the time of a borrow of
        // all of `Machine`, and the controller runs only in a mutable borrow of it: never at once.
        let region = unsafe { DmaRegion::new(addr as u64, addr, memory.len(), keepalive) };
        controller.map_dma(region).ok()?;
        let mut machine = Self { controller, memory, slots, pairs, entries };
        for slot in 0..slots {
            let pages: Vec<u8> = (1..BUFFER_BYTES / PAGE)
                .flat_map(|page| (machine.buffer(slot) + (page * PAGE) as u64).to_le_bytes())
                .collect();
            let at = machine.list_at(slot);
            machine.range_mut(at..at + pages.len()).copy_from_slice(&pages);
        }
        Some(machine)
    }

    /// Returns the controller. Nothing else of this structure can be used meanwhile.
    #[inline(always)]
    pub(super) fn controller_mut(&mut self) -> &mut Controller {
        &mut self.controller
    }

    /// Returns the controller for reading. It must not be run.
    #[inline(always)]
    pub(super) fn controller(&self) -> &Controller {
        &self.controller
    }

    /// Returns the address of a slot's buffer.
    #[inline(always)]
    pub(super) fn buffer(&self, slot: usize) -> u64 {
        (self.memory.addr() + slot * BUFFER_BYTES) as u64
    }

    fn list_at(&self, slot: usize) -> usize {
        self.slots * BUFFER_BYTES + slot * PAGE
    }

    /// Returns the PRPs of `len` bytes of a slot's buffer.
    #[inline(always)]
    pub(super) fn prps(&self, slot: usize, len: usize) -> (u64, u64) {
        let buffer = self.buffer(slot);
        let second = if len <= PAGE {
            0
        } else if len <= 2 * PAGE {
            buffer + PAGE_BYTES
        } else {
            (self.memory.addr() + self.list_at(slot)) as u64
        };
        (buffer, second)
    }

    fn pair_at(&self, pair: usize) -> usize {
        assert!(pair < self.pairs, "no such queue pair");
        self.slots * (BUFFER_BYTES + PAGE) + pair * pair_bytes(self.entries)
    }

    /// Returns the addresses of a queue pair's rings.
    pub(super) fn rings(&self, pair: usize) -> (u64, u64) {
        let sq = (self.memory.addr() + self.pair_at(pair)) as u64;
        (sq, sq + sq_bytes(self.entries) as u64)
    }

    /// Clears the content of a pair's completion queue.
    pub(super) fn clear_pair(&mut self, pair: usize) {
        let at = self.pair_at(pair);
        self.range_mut(at..at + pair_bytes(self.entries)).fill(0);
    }

    /// Writes entry `index` of a submission queue.
    #[inline(always)]
    pub(super) fn write_sqe(&mut self, pair: usize, index: u32, sqe: &Sqe) {
        assert!(index < self.entries, "submission queue index out of range");
        let at = self.pair_at(pair) + index as usize * size_of::<Sqe>();
        let bytes = zerocopy::IntoBytes::as_bytes(sqe);
        self.range_mut(at..at + size_of::<Sqe>()).copy_from_slice(bytes);
    }

    /// Reads entry `index` of a completion queue.
    #[inline(always)]
    pub(super) fn read_cqe(&self, pair: usize, index: u32) -> Cqe {
        assert!(index < self.entries, "completion queue index out of range");
        let at = self.pair_at(pair) + sq_bytes(self.entries) + index as usize * size_of::<Cqe>();
        let mut cqe = Cqe::default();
        zerocopy::IntoBytes::as_mut_bytes(&mut cqe)
            .copy_from_slice(self.range(at..at + size_of::<Cqe>()));
        cqe
    }

    /// Returns a slot's data.
    #[inline(always)]
    pub(super) fn data(&self, slot: usize, range: Range<usize>) -> &[u8] {
        self.range(self.data_range(slot, range))
    }

    /// Returns a slot's data for changes.
    #[inline(always)]
    pub(super) fn data_mut(&mut self, slot: usize, range: Range<usize>) -> &mut [u8] {
        let range = self.data_range(slot, range);
        self.range_mut(range)
    }

    #[inline(always)]
    fn data_range(&self, slot: usize, range: Range<usize>) -> Range<usize> {
        assert!(slot < self.slots && range.end <= BUFFER_BYTES, "beyond a slot's buffer");
        slot * BUFFER_BYTES + range.start..slot * BUFFER_BYTES + range.end
    }

    #[inline(always)]
    fn range(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= self.memory.len(), "beyond the memory");
        let start = std::ptr::with_exposed_provenance::<u8>(self.memory.addr() + range.start);
        // SAFETY: within the allocation, by the assertion, and initialised, being zero at first.
        // Only the controller writes it otherwise, and runs only while `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts(start, range.len()) }
    }

    #[inline(always)]
    fn range_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        assert!(range.start <= range.end && range.end <= self.memory.len(), "beyond the memory");
        let start = std::ptr::with_exposed_provenance_mut(self.memory.addr() + range.start);
        // SAFETY: as in `range`; the mutable borrow of `self` excludes other references.
        unsafe { std::slice::from_raw_parts_mut(start, range.len()) }
    }
}
