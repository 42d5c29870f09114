//! The SSD without a thread, in real time. The threads that wait for it run it.

use std::sync::{Arc, Mutex, TryLockError};

use meantime_nvme_spec::soft_port::{PortError, SoftPort, Stepping, VirtualClock};

use crate::clock::Clock;
use crate::config::SsdConfig;
use crate::controller::{Controller, Turn};
use crate::counters::Counters;
use crate::error::SsdError;
use crate::medium::Medium;
use crate::port::{Port, Runner, Shared};
use crate::stamps::StampRing;
use crate::threaded::check_medium;

/// Steps between two checks of every doorbell.
const INSPECT_STEPS: u32 = 64;
/// The maximum number of turns of one step.
const TURNS_PER_STEP: u32 = 16;

/// A software SSD that a waiting driver runs between its polls. It is for a process with one CPU,
/// where a thread of its own would share the CPU with the driver. Cloning returns another handle to
/// the same SSD.
///
/// Its times are the model's, plus the time until a waiter polls next. While no driver waits it
/// does nothing.
pub struct InlineSsd<C: Clock>(Arc<Inline<C>>);

struct Inline<C> {
    shared: Shared,
    state: Mutex<State<C>>,
}

struct State<C> {
    controller: Controller,
    clock: C,
    steps: u32,
}

impl<C: Clock> InlineSsd<C> {
    /// Creates an SSD on `medium`, with the time of `clock`.
    ///
    /// # Errors
    /// Fails if the configuration is invalid or the medium is too small.
    pub fn new(config: SsdConfig, medium: Medium, clock: C) -> Result<Self, SsdError> {
        check_medium(&config, &medium)?;
        let controller = Controller::new(config, medium);
        let shared = Shared::of(&controller);
        let state = Mutex::new(State { controller, clock, steps: 0 });
        Ok(Self(Arc::new(Inline { shared, state })))
    }

    /// Returns the port for a driver.
    #[must_use]
    pub fn port(&self) -> Arc<dyn SoftPort> {
        Arc::new(Port(Arc::clone(&self.0)))
    }

    /// Returns its counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.0.shared.counters.snapshot()
    }

    /// Returns the time stamps of I/O commands, if the configuration asked for them.
    #[must_use]
    pub fn stamps(&self) -> Option<&Arc<StampRing>> {
        self.0.shared.stamps.as_ref()
    }
}

impl<C: Clock> Clone for InlineSsd<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<C: Clock> Stepping for Inline<C> {
    fn step(&self) {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            // The stepped SSD does the same.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another thread is running it.
            Err(TryLockError::WouldBlock) => return,
        };
        let State { controller, clock, steps } = &mut *state;
        *steps = steps.wrapping_add(1);
        controller.begin_turn();
        if steps.is_multiple_of(INSPECT_STEPS) {
            controller.inspect(clock.now_ns());
        }
        // One turn fetches no more than a burst.
        for _ in 0..TURNS_PER_STEP {
            if controller.turn(clock) != Turn::Worked {
                break;
            }
        }
    }

    fn idle_for_ns(&self) -> Option<u64> {
        let state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let at_ns = state.controller.next_event_ns()?;
        Some(at_ns.saturating_sub(state.clock.now_ns()))
    }
}

impl<C: Clock> Runner for Inline<C> {
    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn run<T: Send + 'static>(
        &self,
        action: impl FnOnce(&mut Controller, u64) -> T + Send + 'static,
    ) -> Result<T, PortError> {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let now_ns = state.clock.now_ns();
        Ok(action(&mut state.controller, now_ns))
    }

    fn clock(self: &Arc<Self>) -> Option<Arc<dyn VirtualClock>> {
        None
    }

    fn stepping(self: &Arc<Self>) -> Option<Arc<dyn Stepping>> {
        Some(Arc::clone(self) as Arc<dyn Stepping>)
    }
}
