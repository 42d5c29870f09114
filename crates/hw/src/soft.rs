//! The transport to a software SSD in this process.

#![expect(unsafe_code)]

use std::sync::Arc;

use meantime_nvme_spec::regs::DOORBELLS;
use meantime_nvme_spec::soft_port::{
    DmaRegion, Doorbells, Heartbeat, PortError, SOFT_DSTRD, SoftPort,
};

use super::clock::Clock;
use super::event::EventFd;
use super::mmio::Doorbell;
use super::pages::Pages;
use super::transport::{Claim, DmaLimits, DmaMap, Transport};
use super::{HwError, Result};

/// A software SSD, by the interface that `meantime-nvme-spec` defines.
pub struct SoftTransport {
    port: Arc<dyn SoftPort>,
    doorbells: Arc<Doorbells>,
    clock: Clock,
    claim: Claim,
    lock_memory: bool,
    name: String,
    /// Ends the SSD when the last user of the transport has gone.
    _owner: Option<Box<dyn std::any::Any + Send + Sync>>,
}

impl SoftTransport {
    /// A transport over `port`; `owner` is dropped with it.
    ///
    /// # Safety
    /// As long as the transport exists, nothing else writes registers of the port, rings its
    /// doorbells or unmaps memory that the transport has mapped: the SSD would access memory
    /// without the driver's knowledge.
    pub unsafe fn new(
        port: Arc<dyn SoftPort>,
        name: String,
        owner: Option<Box<dyn std::any::Any + Send + Sync>>,
    ) -> Self {
        let clock = match (port.virtual_clock(), port.stepping()) {
            (Some(clock), _) => Clock::virtual_time(clock),
            (None, Some(device)) => Clock::stepping(device),
            (None, None) => Clock::real(),
        };
        let doorbells = port.doorbells();
        Self {
            port,
            doorbells,
            clock,
            claim: Claim::new(),
            lock_memory: false,
            name,
            _owner: owner,
        }
    }

    /// Locks DMA memory as a real device requires, although a software SSD does not.
    pub fn lock_memory(mut self, lock: bool) -> Self {
        self.lock_memory = lock;
        self
    }
}

fn refused(iova: u64, bytes: usize, error: PortError) -> HwError {
    match error {
        PortError::Gone => HwError::Gone,
        PortError::Unresponsive => HwError::Unresponsive,
        other => HwError::DmaMap { iova, bytes, what: other.to_string() },
    }
}

// SAFETY: `SoftPort` promises the same: the SSD touches only what is mapped, and nothing of a
// region after `unmap_dma`.
unsafe impl DmaMap for SoftTransport {
    fn map_dma(&self, iova: u64, pages: &Arc<Pages>) -> Result<()> {
        let keepalive = Arc::clone(pages) as Arc<dyn std::any::Any + Send + Sync>;
        // SAFETY: only the transport's driver gives the SSD commands (`new`). `Pages` are mapped
        // for reading and writing as long as they are held, or lent for as long (`DmaMap::lends`).
        // None of their methods gives a reference: `DmaHeap` and the driver do, and hold none to
        // what a command names until the device is done with it (ARCHITECTURE.md §3).
        let region = unsafe { DmaRegion::new(iova, pages.addr(), pages.len(), keepalive) };
        self.port.map_dma(region).map_err(|error| refused(iova, pages.len(), error))
    }

    unsafe fn unmap_dma(&self, iova: u64) -> Result<()> {
        match self.port.unmap_dma(iova) {
            // An SSD that has ended accesses no memory.
            Ok(()) | Err(PortError::Gone) => Ok(()),
            Err(error) => Err(refused(iova, 0, error)),
        }
    }

    /// An SSD in this process writes to memory as any thread does, so memory can be lent. If memory
    /// is locked, the SSD has to behave like hardware.
    fn lends(&self) -> bool {
        !self.lock_memory
    }

    fn limits(&self) -> DmaLimits {
        DmaLimits { lock: self.lock_memory, ..DmaLimits::default() }
    }
}

// SAFETY: doorbells are cells of the port's own, which they hold. There is nothing to be released.
unsafe impl Transport for SoftTransport {
    fn describe(&self) -> String {
        self.name.clone()
    }

    fn read32(&self, offset: u32) -> u32 {
        self.port.read32(offset)
    }

    fn read64(&self, offset: u32) -> u64 {
        self.port.read64(offset)
    }

    fn claim(&self) -> &Claim {
        &self.claim
    }

    unsafe fn write32(&self, offset: u32, value: u32) {
        self.port.write32(offset, value);
    }

    unsafe fn write64(&self, offset: u32, value: u64) {
        self.port.write64(offset, value);
    }

    unsafe fn doorbell(&self, offset: u32) -> Result<Doorbell> {
        let index = offset.checked_sub(DOORBELLS).map(|bytes| (bytes >> (2 + SOFT_DSTRD)) as usize);
        index
            .and_then(|index| Doorbell::soft(&self.doorbells, index, &self.port))
            .ok_or_else(|| HwError::Missing { what: format!("doorbell at offset {offset:#x}") })
    }

    fn vectors(&self) -> u16 {
        self.port.vectors()
    }

    fn new_event(&self) -> Result<EventFd> {
        Ok(EventFd::local())
    }

    fn set_vector(&self, vector: u16, event: Option<&EventFd>) -> Result<()> {
        match self.port.set_vector(vector, event.map(EventFd::interrupt)) {
            Ok(()) => Ok(()),
            Err(PortError::Gone) => Err(HwError::Gone),
            Err(PortError::Unresponsive) => Err(HwError::Unresponsive),
            Err(_) => Err(HwError::Missing { what: format!("interrupt vector {vector}") }),
        }
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    fn is_read_by_core(&self) -> bool {
        !self.clock.steps_device()
    }

    fn heartbeat(&self) -> Option<Heartbeat> {
        self.port.heartbeat()
    }

    fn share_cpu(&self) {
        self.port.share_cpu();
    }
}
