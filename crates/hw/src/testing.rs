//! A transport without a device, for unit tests.

#![expect(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use meantime_nvme_spec::soft_port::{
    DmaRegion, Doorbells, Interrupt, PortError, SoftPort, VirtualClock,
};

use super::{
    Claim, Clock, DmaLimits, DmaMap, Doorbell, EventFd, HwError, Result, Transport, pages::Pages,
};

/// Accepts every mapping; its doorbells have no effect, and its registers read as 0.
pub(crate) struct NullTransport {
    doorbells: Arc<Doorbells>,
    claim: Claim,
    pub(crate) mapped: AtomicUsize,
    /// How many mappings it still refuses to take back.
    pub(crate) refusals: AtomicUsize,
}

impl Default for NullTransport {
    fn default() -> Self {
        Self {
            doorbells: Arc::new(Doorbells::new(4)),
            claim: Claim::new(),
            mapped: AtomicUsize::new(0),
            refusals: AtomicUsize::new(0),
        }
    }
}

struct NullPort(Arc<Doorbells>);

// SAFETY: it touches no memory at all.
unsafe impl SoftPort for NullPort {
    fn read32(&self, _: u32) -> u32 {
        0
    }
    fn read64(&self, _: u32) -> u64 {
        0
    }
    fn write32(&self, _: u32, _: u32) {}
    fn write64(&self, _: u32, _: u64) {}
    fn doorbells(&self) -> Arc<Doorbells> {
        Arc::clone(&self.0)
    }
    fn map_dma(&self, _: DmaRegion) -> std::result::Result<(), PortError> {
        Ok(())
    }
    fn unmap_dma(&self, _: u64) -> std::result::Result<(), PortError> {
        Ok(())
    }
    fn vectors(&self) -> u16 {
        0
    }
    fn set_vector(&self, _: u16, _: Option<Interrupt>) -> std::result::Result<(), PortError> {
        Ok(())
    }
    fn wake(&self) {}
    fn virtual_clock(&self) -> Option<Arc<dyn VirtualClock>> {
        None
    }
}

// SAFETY: it touches no memory at all.
unsafe impl DmaMap for NullTransport {
    fn map_dma(&self, _: u64, _: &Arc<Pages>) -> Result<()> {
        self.mapped.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
    unsafe fn unmap_dma(&self, _: u64) -> Result<()> {
        let refuses = |left: usize| left.checked_sub(1);
        if self.refusals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, refuses).is_ok() {
            return Err(HwError::Gone);
        }
        self.mapped.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }
    fn lends(&self) -> bool {
        true
    }
    fn limits(&self) -> DmaLimits {
        DmaLimits::default()
    }
}

// SAFETY: as above; a doorbell holds its own cell.
unsafe impl Transport for NullTransport {
    fn describe(&self) -> String {
        "nowhere".into()
    }
    fn read32(&self, _: u32) -> u32 {
        0
    }
    fn read64(&self, _: u32) -> u64 {
        0
    }
    fn claim(&self) -> &Claim {
        &self.claim
    }
    unsafe fn write32(&self, _: u32, _: u32) {}
    unsafe fn write64(&self, _: u32, _: u64) {}
    unsafe fn doorbell(&self, offset: u32) -> Result<Doorbell> {
        let port: Arc<dyn SoftPort> = Arc::new(NullPort(Arc::clone(&self.doorbells)));
        Doorbell::soft(&self.doorbells, offset as usize, &port)
            .ok_or(HwError::Missing { what: "doorbell".into() })
    }
    fn vectors(&self) -> u16 {
        0
    }
    fn set_vector(&self, _: u16, _: Option<&EventFd>) -> Result<()> {
        Ok(())
    }
    fn clock(&self) -> Clock {
        Clock::real()
    }
}
