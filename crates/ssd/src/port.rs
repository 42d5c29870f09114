//! The handles of drivers and servers to an SSD, however it runs.

#![expect(unsafe_code)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use meantime_nvme_spec::soft_port::{
    DmaRegion, Doorbells, Heartbeat, Interrupt, PortError, SoftPort, Stepping, VirtualClock,
};

use crate::controller::{Controller, RegisterFile};
use crate::counters::SharedCounters;
use crate::stamps::StampRing;

/// State that is read without the controller's help.
pub(crate) struct Shared {
    pub(crate) regs: Arc<RegisterFile>,
    /// The doorbells, which are replaced when another host is plugged in.
    doorbells: Mutex<Arc<Doorbells>>,
    pub(crate) counters: Arc<SharedCounters>,
    pub(crate) stamps: Option<Arc<StampRing>>,
    vectors: u16,
}

impl Shared {
    pub(crate) fn of(controller: &Controller) -> Self {
        Self {
            regs: Arc::clone(&controller.regs),
            doorbells: Mutex::new(Arc::clone(&controller.doorbells)),
            counters: Arc::clone(&controller.counters),
            stamps: controller.stamps.clone(),
            vectors: controller.config.vectors,
        }
    }

    fn doorbells(&self) -> MutexGuard<'_, Arc<Doorbells>> {
        self.doorbells.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A way to run a controller.
pub(crate) trait Runner: Send + Sync + 'static {
    fn shared(&self) -> &Shared;

    /// Runs `action` on the controller at the current time, for a driver.
    fn run<T: Send + 'static>(
        &self,
        action: impl FnOnce(&mut Controller, u64) -> T + Send + 'static,
    ) -> Result<T, PortError>;

    /// Returns the clock, if it is virtual.
    fn clock(self: &Arc<Self>) -> Option<Arc<dyn VirtualClock>>;

    /// Returns itself, if a driver that waits has to run it.
    fn stepping(self: &Arc<Self>) -> Option<Arc<dyn Stepping>> {
        None
    }

    /// Returns the state of the thread, if there is one.
    fn heartbeat(&self) -> Option<Heartbeat> {
        None
    }

    /// Makes the thread, if there is one, yield for a while when it has nothing to do.
    fn share_cpu(&self) {}

    /// Wakes the thread, if there is one.
    fn wake(&self) {}

    /// Sets whether the thread, if there is one, naps instead of parking.
    fn set_napping(&self, _naps: bool) {}
}

/// A software SSD as its server uses it: its port, and power cycles.
pub trait FunctionPort: SoftPort {
    /// Resets the function. Everything except mappings and interrupt vectors is as after power-on.
    /// No data is lost.
    ///
    /// # Errors
    /// [`PortError::Gone`], or [`PortError::Unresponsive`], after which the reset is done later.
    fn reset_function(&self) -> Result<(), PortError>;

    /// Resets the function and forgets the host: no memory is mapped, no vector has an eventfd, and
    /// neither is accessed any more. The next host rings `doorbells`.
    ///
    /// # Errors
    /// [`PortError::Gone`], or [`PortError::Unresponsive`], after which the power cycle is done
    /// later.
    fn power_cycle(&self, doorbells: Doorbells) -> Result<(), PortError>;

    /// Sets whether the SSD's thread naps instead of parking while there are queues, because the
    /// host may ring without waking the thread. The setting is valid until the next power cycle.
    fn set_napping(&self, naps: bool);
}

/// The port of an SSD that `R` runs.
pub(crate) struct Port<R>(pub(crate) Arc<R>);

// SAFETY: the controller reaches host memory only through its table of regions, which `unmap_dma`
// has it drop, with their `keepalive`, before it answers; one that has ended has dropped the table.
unsafe impl<R: Runner> SoftPort for Port<R> {
    fn read32(&self, offset: u32) -> u32 {
        self.0.shared().regs.read32(offset)
    }

    fn read64(&self, offset: u32) -> u64 {
        self.0.shared().regs.read64(offset)
    }

    fn write32(&self, offset: u32, value: u32) {
        let _ = self.0.run(move |controller, now_ns| controller.write32(offset, value, now_ns));
    }

    fn write64(&self, offset: u32, value: u64) {
        let _ = self.0.run(move |controller, now_ns| controller.write64(offset, value, now_ns));
    }

    fn doorbells(&self) -> Arc<Doorbells> {
        Arc::clone(&self.0.shared().doorbells())
    }

    fn map_dma(&self, region: DmaRegion) -> Result<(), PortError> {
        self.0.run(move |controller, _| controller.map_dma(region))?
    }

    fn unmap_dma(&self, iova: u64) -> Result<(), PortError> {
        self.0.run(move |controller, now_ns| controller.unmap_dma(iova, now_ns))?
    }

    fn vectors(&self) -> u16 {
        self.0.shared().vectors
    }

    fn set_vector(&self, vector: u16, event: Option<Interrupt>) -> Result<(), PortError> {
        self.0.run(move |controller, _| controller.set_vector(vector, event))?
    }

    fn wake(&self) {
        self.0.wake();
    }

    fn virtual_clock(&self) -> Option<Arc<dyn VirtualClock>> {
        self.0.clock()
    }

    fn stepping(&self) -> Option<Arc<dyn Stepping>> {
        self.0.stepping()
    }

    fn heartbeat(&self) -> Option<Heartbeat> {
        self.0.heartbeat()
    }

    fn share_cpu(&self) {
        self.0.share_cpu();
    }
}

impl<R: Runner> FunctionPort for Port<R> {
    fn reset_function(&self) -> Result<(), PortError> {
        self.0.run(|controller, _| controller.reset_function())
    }

    fn power_cycle(&self, doorbells: Doorbells) -> Result<(), PortError> {
        let doorbells = Arc::new(doorbells);
        self.0.set_napping(false);
        let of_the_next = Arc::clone(&doorbells);
        self.0.run(move |controller, _| controller.power_cycle(of_the_next))?;
        *self.0.shared().doorbells() = doorbells;
        Ok(())
    }

    fn set_napping(&self, naps: bool) {
        self.0.set_napping(naps);
    }
}
