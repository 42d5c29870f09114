//! The SSD without a thread. It works when its clock moves.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use meantime_nvme_spec::soft_port::{PortError, SoftPort, VirtualClock};

use crate::Rng;
use crate::clock::FixedClock;
use crate::config::SsdConfig;
use crate::control::{Action, FaultControl};
use crate::controller::{Controller, Refusal, Turn};
use crate::counters::Counters;
use crate::error::SsdError;
use crate::faults::FaultPlan;
use crate::medium::Medium;
use crate::port::{FunctionPort, Port, Runner, Shared};
use crate::record::Recorder;
use crate::stamps::StampRing;
use crate::threaded::check_medium;

/// The default time by which a reading moves the clock, in ns.
const DEFAULT_TICK_NS: u64 = 50;

/// A software SSD under a virtual clock. Cloning returns another handle to the same one.
///
/// Everything follows from the configuration, the seed and the order of calls, so one seed
/// reproduces a run.
#[derive(Clone)]
pub struct SteppedSsd(Arc<Stepped>);

struct SteppedState {
    controller: Controller,
    now_ns: u64,
    tick_ns: u64,
    /// Counts turns, for the periodic check of doorbells that are not polled.
    turns: u32,
}

/// Turns between two checks of every doorbell.
const INSPECT_TURNS: u32 = 64;

/// An SSD and its clock.
struct Stepped {
    shared: Shared,
    state: Mutex<SteppedState>,
}

/// The clock as a separate object, so that a port can return it.
struct SteppedClock(Arc<Stepped>);

impl SteppedSsd {
    /// Creates an SSD on `medium`. `seed` replaces the seeds of the configuration and of its fault
    /// plan.
    ///
    /// # Errors
    /// Fails if the configuration is invalid or the medium is too small.
    pub fn new(mut config: SsdConfig, medium: Medium, seed: u64) -> Result<Self, SsdError> {
        check_medium(&config, &medium)?;
        let mut seeds = Rng::new(seed);
        config.seed = seeds.next_u64();
        config.faults.seed = seeds.next_u64();
        let controller = Controller::new(config, medium);
        let shared = Shared::of(&controller);
        let state = SteppedState { controller, now_ns: 0, tick_ns: DEFAULT_TICK_NS, turns: 0 };
        Ok(Self(Arc::new(Stepped { shared, state: Mutex::new(state) })))
    }

    /// Returns the port for a driver.
    #[must_use]
    pub fn port(&self) -> Arc<dyn SoftPort> {
        Arc::new(Port(Arc::clone(&self.0)))
    }

    /// Returns the port for a server.
    #[must_use]
    pub fn function_port(&self) -> Arc<dyn FunctionPort> {
        Arc::new(Port(Arc::clone(&self.0)))
    }

    /// Returns its clock.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn VirtualClock> {
        Arc::new(SteppedClock(Arc::clone(&self.0)))
    }

    /// Sets by how much a reading moves the clock, in ns, which is at least 1.
    pub fn set_tick_ns(&self, tick_ns: u64) {
        self.0.state().tick_ns = tick_ns.max(1);
    }

    /// Returns the current time in ns, without moving it.
    #[must_use]
    pub fn peek_ns(&self) -> u64 {
        self.0.state().now_ns
    }

    /// Lets the SSD work at the current time until no work is left.
    pub fn run_until_idle(&self) {
        self.0.state().run_until_idle();
    }

    /// The former name of [`run_until_idle`](Self::run_until_idle).
    #[deprecated(note = "use `run_until_idle`")]
    pub fn settle(&self) {
        self.run_until_idle();
    }

    /// Returns its counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.0.shared.counters.snapshot()
    }

    /// Returns the time stamps of I/O commands, if the configuration asked for them.
    #[must_use]
    pub fn stamps(&self) -> Option<Arc<StampRing>> {
        self.0.shared.stamps.clone()
    }

    /// Returns the latest refusals with their reasons, oldest first.
    #[must_use]
    pub fn refusals(&self) -> Vec<Refusal> {
        FaultControl::refusals(self)
    }

    /// Returns the number of bytes in the volatile write cache, which a power cut may lose.
    #[must_use]
    pub fn unflushed_bytes(&self) -> u64 {
        self.0.state().controller.store.unflushed_bytes()
    }

    /// Cuts the power and restores it. A random subset of unflushed writes is lost, and the
    /// controller is reset. Returns the number of lost writes.
    pub fn power_cut(&self, rng: &mut Rng) -> u64 {
        self.0.state().controller.power_cut(rng)
    }

    /// Records writes and flushes from now on (see [`record`](crate::record)). Commands in flight
    /// are not recorded.
    #[must_use]
    pub fn record(&self) -> Recorder {
        let recorder = Recorder::default();
        self.0.state().controller.set_recorder(recorder.clone());
        recorder
    }

    /// Returns the content of all namespaces, as a host would read it now.
    #[must_use]
    pub fn contents(&self) -> Vec<u8> {
        self.0.state().controller.contents()
    }

    /// Replaces the fault plan, including its seed.
    pub fn set_faults(&self, plan: FaultPlan) {
        self.0.state().controller.set_faults(plan);
    }

    /// Makes the device leave the bus: registers read all ones, and nothing completes.
    pub fn unplug(&self) {
        self.0.state().controller.unplug();
    }
}

impl FaultControl for SteppedSsd {
    fn run(&self, action: Action) {
        let _ = self.0.run(move |controller, now_ns| action.run(controller, now_ns));
    }

    fn counters(&self) -> Counters {
        Self::counters(self)
    }
}

impl std::fmt::Debug for SteppedSsd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SteppedSsd").field("counters", &self.counters()).finish_non_exhaustive()
    }
}

impl SteppedState {
    /// Does one turn at the current time.
    fn turn(&mut self) -> Turn {
        self.turns = self.turns.wrapping_add(1);
        self.controller.begin_turn();
        if self.turns.is_multiple_of(INSPECT_TURNS) {
            self.controller.inspect(self.now_ns);
        }
        self.controller.turn(&FixedClock(self.now_ns))
    }

    fn run_until_idle(&mut self) {
        while self.turn() == Turn::Worked {}
    }

    /// Advances from event to event up to `target_ns`.
    fn advance_to(&mut self, target_ns: u64) {
        self.run_until_idle();
        while let Some(at) = self.controller.next_event_ns().filter(|&at| at <= target_ns) {
            self.now_ns = self.now_ns.max(at);
            self.run_until_idle();
            self.controller.look_for_life(self.now_ns);
        }
        self.now_ns = self.now_ns.max(target_ns);
        self.controller.inspect(self.now_ns);
    }
}

impl Stepped {
    fn state(&self) -> MutexGuard<'_, SteppedState> {
        // A panic under this lock has already failed its test, and the state is no worse than the
        // panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runner for Stepped {
    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn run<T: Send + 'static>(
        &self,
        action: impl FnOnce(&mut Controller, u64) -> T + Send + 'static,
    ) -> Result<T, PortError> {
        let state = &mut *self.state();
        Ok(action(&mut state.controller, state.now_ns))
    }

    fn clock(self: &Arc<Self>) -> Option<Arc<dyn VirtualClock>> {
        Some(Arc::new(SteppedClock(Arc::clone(self))))
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
