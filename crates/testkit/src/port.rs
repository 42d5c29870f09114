//! A port between the driver and a stepped SSD that observes, and intervenes at moments which a
//! test cannot reach otherwise.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use meantime_nvme_spec::regs::{CC, Cc};
use meantime_nvme_spec::soft_port::{
    DmaRegion, Doorbells, Interrupt, PortError, SoftPort, VirtualClock,
};

/// A one-time action.
type Hook = Mutex<Option<Box<dyn FnOnce() + Send>>>;

/// What sees the time go by.
type Watch = Mutex<Option<Box<dyn FnMut(u64) + Send>>>;

/// The observations of a [`MeddlingPort`], and its actions.
#[derive(Default)]
pub struct Meddling {
    /// Whether unmapping fails, like a broken IOMMU.
    pub refuses_unmap: AtomicBool,
    /// Number of sleeps, and their total time in ns.
    pub sleeps: AtomicU64,
    pub slept_ns: AtomicU64,
    /// All memory ever mapped.
    mapped: Mutex<Vec<Weak<dyn Any + Send + Sync>>>,
    on_disable: Hook,
    on_sleep: Hook,
    on_time: Watch,
}

fn run(hook: &Hook) {
    // Taken out first: the action may reenter this port.
    let taken = hook.lock().expect("no test panics in a hook").take();
    if let Some(action) = taken {
        action();
    }
}

impl Meddling {
    /// Runs `action` when CC.EN is next cleared, before the SSD is told.
    pub fn on_disable(&self, action: impl FnOnce() + Send + 'static) {
        *self.on_disable.lock().expect("not poisoned") = Some(Box::new(action));
    }

    /// Runs `action` at the next sleep, as another thread might.
    pub fn on_sleep(&self, action: impl FnOnce() + Send + 'static) {
        *self.on_sleep.lock().expect("not poisoned") = Some(Box::new(action));
    }

    /// Calls `action` with the time in ns at every reading of the clock, and after every sleep.
    pub fn on_time(&self, action: impl FnMut(u64) + Send + 'static) {
        *self.on_time.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(action));
    }

    fn passes(&self, now_ns: u64) -> u64 {
        // It may have failed its test, whose channels look at the clock once more.
        let mut action = self.on_time.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(action) = &mut *action {
            action(now_ns);
        }
        now_ns
    }

    /// Mappings of DMA memory that still exist in this process.
    pub fn mappings_alive(&self) -> usize {
        let mapped = self.mapped.lock().expect("not poisoned");
        mapped.iter().filter(|region| region.strong_count() > 0).count()
    }
}

pub struct MeddlingPort {
    inner: Arc<dyn SoftPort>,
    meddling: Arc<Meddling>,
}

impl MeddlingPort {
    pub fn new(inner: Arc<dyn SoftPort>) -> (Arc<Self>, Arc<Meddling>) {
        let meddling = Arc::<Meddling>::default();
        (Arc::new(Self { inner, meddling: Arc::clone(&meddling) }), meddling)
    }
}

// SAFETY: as the port it passes everything on to; what it refuses stays mapped.
unsafe impl SoftPort for MeddlingPort {
    fn read32(&self, offset: u32) -> u32 {
        self.inner.read32(offset)
    }

    fn read64(&self, offset: u32) -> u64 {
        self.inner.read64(offset)
    }

    fn write32(&self, offset: u32, value: u32) {
        if offset == CC && !Cc(value).en() {
            run(&self.meddling.on_disable);
        }
        self.inner.write32(offset, value);
    }

    fn write64(&self, offset: u32, value: u64) {
        self.inner.write64(offset, value);
    }

    fn doorbells(&self) -> Arc<Doorbells> {
        self.inner.doorbells()
    }

    fn map_dma(&self, region: DmaRegion) -> Result<(), PortError> {
        self.meddling.mapped.lock().expect("not poisoned").push(Arc::downgrade(region.keepalive()));
        self.inner.map_dma(region)
    }

    fn unmap_dma(&self, iova: u64) -> Result<(), PortError> {
        if self.meddling.refuses_unmap.load(Ordering::Relaxed) {
            return Err(PortError::NotMapped);
        }
        self.inner.unmap_dma(iova)
    }

    fn vectors(&self) -> u16 {
        self.inner.vectors()
    }

    fn set_vector(&self, vector: u16, event: Option<Interrupt>) -> Result<(), PortError> {
        self.inner.set_vector(vector, event)
    }

    fn wake(&self) {
        self.inner.wake();
    }

    fn virtual_clock(&self) -> Option<Arc<dyn VirtualClock>> {
        let inner = self.inner.virtual_clock()?;
        Some(Arc::new(MeddlingClock { inner, meddling: Arc::clone(&self.meddling) }))
    }
}

struct MeddlingClock {
    inner: Arc<dyn VirtualClock>,
    meddling: Arc<Meddling>,
}

impl VirtualClock for MeddlingClock {
    fn now_ns(&self) -> u64 {
        self.meddling.passes(self.inner.now_ns())
    }

    fn advance(&self, delta_ns: u64) {
        self.meddling.sleeps.fetch_add(1, Ordering::Relaxed);
        self.meddling.slept_ns.fetch_add(delta_ns, Ordering::Relaxed);
        self.inner.advance(delta_ns);
        run(&self.meddling.on_sleep);
        self.now_ns();
    }
}
