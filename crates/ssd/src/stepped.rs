//! The SSD without a thread: it works when its clock moves.

#![expect(unsafe_code)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use meantime_spec::seam::{
    ControllerMemory, DmaRegion, Doorbells, Interrupt, SeamError, SoftPort, VirtualClock,
};

use crate::Rng;
use crate::clock::FixedClock;
use crate::config::SsdConfig;
use crate::control::{AddFaultError, FaultControl};
use crate::controller::{Controller, Refusal, RegisterFile, Turn};
use crate::counters::{Counters, SharedCounters};
use crate::error::SsdError;
use crate::faults::{FaultHits, FaultPlan, FaultRule};
use crate::medium::Medium;
use crate::record::Recorder;
use crate::served::FunctionPort;
use crate::stamps::StampRing;
use crate::threaded::check_medium;

/// By how much a reading moves the clock by default, in ns.
const DEFAULT_TICK_NS: u64 = 50;

/// A software SSD under a virtual clock. Cloning gives another handle to the same one.
///
/// Everything that happens follows from the configuration, the seed and the order of calls, so that
/// one seed reproduces a run.
#[derive(Clone)]
pub struct SteppedSsd {
    port: Arc<Port>,
    counters: Arc<SharedCounters>,
}

struct SteppedState {
    controller: Controller,
    now_ns: u64,
    tick_ns: u64,
    /// Counts turns, to check the doorbells that are not polled now and then.
    turns: u32,
}

/// Turns between two checks of every doorbell.
const INSPECT_TURNS: u32 = 64;

/// The port that a driver holds, and its clock.
struct Port {
    state: Mutex<SteppedState>,
    regs: Arc<RegisterFile>,
    /// Replaced when another host is plugged in.
    doorbells: Mutex<Arc<Doorbells>>,
    vectors: u16,
    memory: Option<ControllerMemory>,
    stamps: Option<Arc<StampRing>>,
}

/// The clock as an object of its own, so that a port can hand itself out as one.
struct SteppedClock(Arc<Port>);

impl SteppedSsd {
    /// An SSD on `medium`. `seed` replaces the seeds of the configuration and of its fault plan.
    ///
    /// # Errors
    /// If the configuration makes no sense or the medium is too small.
    pub fn new(mut config: SsdConfig, medium: Medium, seed: u64) -> Result<Self, SsdError> {
        check_medium(&config, &medium)?;
        let mut seeds = Rng::new(seed);
        config.seed = seeds.next_u64();
        config.faults.seed = seeds.next_u64();
        let vectors = config.vectors;
        let controller = Controller::new(config, medium);
        let regs = Arc::clone(controller.registers());
        let doorbells = Arc::clone(controller.doorbells());
        let counters = Arc::clone(controller.counters());
        let stamps = controller.stamps().map(Arc::clone);
        let memory = controller.memory();
        let state = SteppedState { controller, now_ns: 0, tick_ns: DEFAULT_TICK_NS, turns: 0 };
        let doorbells = Mutex::new(doorbells);
        let port =
            Arc::new(Port { state: Mutex::new(state), regs, doorbells, vectors, memory, stamps });
        Ok(Self { port, counters })
    }

    /// The port for a driver.
    #[must_use]
    pub fn port(&self) -> Arc<dyn SoftPort> {
        Arc::new(PortHandle(Arc::clone(&self.port)))
    }

    /// The port for a server.
    #[must_use]
    pub fn function_port(&self) -> Arc<dyn FunctionPort> {
        Arc::new(PortHandle(Arc::clone(&self.port)))
    }

    /// Its clock.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn VirtualClock> {
        Arc::new(SteppedClock(Arc::clone(&self.port)))
    }

    /// Sets by how much a reading moves the clock, in ns; at least 1.
    pub fn set_tick_ns(&self, tick_ns: u64) {
        self.port.state().tick_ns = tick_ns.max(1);
    }

    /// The time, without moving it, in ns.
    #[must_use]
    pub fn peek_ns(&self) -> u64 {
        self.port.state().now_ns
    }

    /// Lets the SSD work at the present time until it has nothing left to do now.
    pub fn settle(&self) {
        self.port.state().settle();
    }

    /// Its counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters.snapshot()
    }

    /// The time stamps of I/O commands, if the configuration asked for them.
    #[must_use]
    pub fn stamps(&self) -> Option<Arc<StampRing>> {
        self.port.stamps.clone()
    }

    /// The latest refusals with their reasons, oldest first.
    #[must_use]
    pub fn refusals(&self) -> Vec<Refusal> {
        self.port.state().controller.refusals()
    }

    /// Bytes in the volatile write cache: what a power cut could take.
    #[must_use]
    pub fn unflushed_bytes(&self) -> u64 {
        self.port.state().controller.unflushed_bytes()
    }

    /// Cuts the power and brings it back: a random subset of unflushed writes is lost, and the
    /// controller is reset. Returns how many writes were lost.
    pub fn power_cut(&self, rng: &mut Rng) -> u64 {
        self.port.state().controller.power_cut(rng)
    }

    /// Records writes and flushes from now on: [`record`](crate::record). Commands already in
    /// flight are not recorded.
    #[must_use]
    pub fn record(&self) -> Recorder {
        let recorder = Recorder::default();
        self.port.state().controller.set_recorder(recorder.clone());
        recorder
    }

    /// The content of all namespaces, as a host would read it now.
    #[must_use]
    pub fn contents(&self) -> Vec<u8> {
        self.port.state().controller.contents()
    }

    /// Injects faults by `plan` from now on; its seed counts.
    pub fn set_faults(&self, plan: FaultPlan) {
        self.port.state().controller.set_faults(plan);
    }

    /// The device leaves the bus: registers read all ones, and nothing completes.
    pub fn unplug(&self) {
        let mut state = self.port.state();
        state.controller.unplug();
    }
}

impl FaultControl for SteppedSsd {
    fn set_faults(&self, plan: FaultPlan) {
        Self::set_faults(self, plan);
    }

    fn add_fault(&self, rule: FaultRule) -> Result<(), AddFaultError> {
        Ok(self.port.state().controller.add_fault(rule)?)
    }

    fn faults(&self) -> Vec<FaultHits> {
        self.port.state().controller.fault_hits()
    }

    fn clear_faults(&self) {
        self.port.state().controller.clear_faults();
    }

    fn cut_power(&self, seed: u64) -> u64 {
        self.power_cut(&mut Rng::new(seed))
    }

    fn unplug(&self) {
        Self::unplug(self);
    }

    fn plug(&self) {
        self.port.state().controller.plug();
    }

    fn counters(&self) -> Counters {
        Self::counters(self)
    }

    fn refusals(&self) -> Vec<Refusal> {
        Self::refusals(self)
    }
}

impl std::fmt::Debug for SteppedSsd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SteppedSsd").field("counters", &self.counters()).finish_non_exhaustive()
    }
}

impl SteppedState {
    /// One turn at the present time.
    fn turn(&mut self) -> Turn {
        self.turns = self.turns.wrapping_add(1);
        self.controller.begin_turn();
        if self.turns.is_multiple_of(INSPECT_TURNS) {
            self.controller.inspect(self.now_ns);
        }
        self.controller.turn(&FixedClock(self.now_ns))
    }

    fn settle(&mut self) {
        while self.turn() == Turn::Worked {}
    }

    /// From event to event up to `target_ns`.
    fn advance_to(&mut self, target_ns: u64) {
        self.settle();
        while let Some(at) = self.controller.next_event_ns().filter(|&at| at <= target_ns) {
            self.now_ns = self.now_ns.max(at);
            self.settle();
            self.controller.look_for_life(self.now_ns);
        }
        self.now_ns = self.now_ns.max(target_ns);
        self.controller.inspect(self.now_ns);
    }
}

impl Port {
    fn state(&self) -> MutexGuard<'_, SteppedState> {
        // A panic while it was held has failed the test that caused it; the state is no worse than
        // the panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl VirtualClock for SteppedClock {
    fn now_ns(&self) -> u64 {
        let mut state = self.0.state();
        state.now_ns = state.now_ns.saturating_add(state.tick_ns);
        state.turn();
        state.now_ns
    }

    fn advance(&self, delta_ns: u64) {
        let mut state = self.0.state();
        let target_ns = state.now_ns.saturating_add(delta_ns);
        state.advance_to(target_ns);
    }
}

struct PortHandle(Arc<Port>);

// SAFETY: the controller reaches host memory only through its table of regions, which `unmap_dma`
// has it drop, with their `keepalive`, before it answers; one that has ended has dropped the table.
// Its own memory is allocated as long as it is held.
unsafe impl SoftPort for PortHandle {
    fn read32(&self, offset: u32) -> u32 {
        self.0.regs.read32(offset)
    }

    fn read64(&self, offset: u32) -> u64 {
        self.0.regs.read64(offset)
    }

    fn write32(&self, offset: u32, value: u32) {
        let mut state = self.0.state();
        let now_ns = state.now_ns;
        state.controller.write32(offset, value, now_ns);
    }

    fn write64(&self, offset: u32, value: u64) {
        let mut state = self.0.state();
        let now_ns = state.now_ns;
        state.controller.write64(offset, value, now_ns);
    }

    fn doorbells(&self) -> Arc<Doorbells> {
        Arc::clone(&self.0.doorbells.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn map_dma(&self, region: DmaRegion) -> Result<(), SeamError> {
        if self.0.regs.is_gone() {
            return Err(SeamError::Gone);
        }
        self.0.state().controller.map_dma(region)
    }

    fn unmap_dma(&self, iova: u64) -> Result<(), SeamError> {
        let mut state = self.0.state();
        let now_ns = state.now_ns;
        state.controller.unmap_dma(iova, now_ns)
    }

    fn vectors(&self) -> u16 {
        self.0.vectors
    }

    fn set_vector(&self, vector: u16, event: Option<Interrupt>) -> Result<(), SeamError> {
        self.0.state().controller.set_vector(vector, event)
    }

    fn wake(&self) {
        // There is no thread to wake; it works when its clock moves.
    }

    fn virtual_clock(&self) -> Option<Arc<dyn VirtualClock>> {
        Some(Arc::new(SteppedClock(Arc::clone(&self.0))))
    }

    fn controller_memory(&self) -> Option<ControllerMemory> {
        self.0.memory.clone()
    }
}

impl FunctionPort for PortHandle {
    fn reset_function(&self) -> Result<(), SeamError> {
        self.0.state().controller.reset_function();
        Ok(())
    }

    fn power_cycle(&self, doorbells: Doorbells) -> Result<(), SeamError> {
        let doorbells = Arc::new(doorbells);
        self.0.state().controller.power_cycle(Arc::clone(&doorbells));
        *self.0.doorbells.lock().unwrap_or_else(PoisonError::into_inner) = doorbells;
        Ok(())
    }

    fn set_napping(&self, _naps: bool) {
        // There is no thread to nap.
    }
}
