//! Calls to a running software SSD in this process.

use std::sync::mpsc::sync_channel;

use crate::Rng;
use crate::controller::{Controller, Refusal};
use crate::counters::Counters;
use crate::faults::{FaultHits, FaultPlan, FaultRule, TooManyRules};

/// Why a fault was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddFaultError {
    /// The plan is full.
    #[error(transparent)]
    TooMany(#[from] TooManyRules),
    /// The SSD has ended.
    #[error("the SSD has ended")]
    Ended,
}

/// An operation on a controller. It gets the time in ns.
pub struct Action(Box<ActionFn>);

type ActionFn = dyn FnOnce(&mut Controller, u64) + Send;

impl Action {
    pub(crate) fn new(action: impl FnOnce(&mut Controller, u64) + Send + 'static) -> Self {
        Self(Box::new(action))
    }

    pub(crate) fn run(self, controller: &mut Controller, now_ns: u64) {
        (self.0)(controller, now_ns);
    }
}

/// A running software SSD. Once it has ended, calls have no effect and report nothing.
pub trait FaultControl: Send + Sync {
    /// Runs `action` on the controller, or drops it if the SSD has ended.
    fn run(&self, action: Action);

    /// Returns the SSD's counters.
    fn counters(&self) -> Counters;

    /// Replaces the fault plan, including its seed.
    fn set_faults(&self, plan: FaultPlan) {
        call(self, |controller| controller.set_faults(plan));
    }

    /// Injects one more fault.
    ///
    /// # Errors
    /// [`AddFaultError`] says why the fault was not added.
    fn add_fault(&self, rule: FaultRule) -> Result<(), AddFaultError> {
        let added = call(self, move |controller| controller.add_fault(rule));
        Ok(added.ok_or(AddFaultError::Ended)??)
    }

    /// Returns the fault rules in force, in order, and how often each has happened.
    fn faults(&self) -> Vec<FaultHits> {
        call(self, |controller| controller.faults.hits()).unwrap_or_default()
    }

    /// Stops injecting faults.
    fn clear_faults(&self) {
        call(self, Controller::clear_faults);
    }

    /// Cuts the power and brings it back: a random subset (by `seed`) of unflushed writes is lost,
    /// and the controller is reset. Returns how many writes were lost.
    fn cut_power(&self, seed: u64) -> u64 {
        call(self, move |controller| controller.power_cut(&mut Rng::new(seed))).unwrap_or_default()
    }

    /// Makes the device leave the bus: registers read all ones, and nothing completes.
    fn unplug(&self) {
        call(self, Controller::unplug);
    }

    /// Returns the device to the bus, disabled, with the data that it held.
    fn plug(&self) {
        call(self, Controller::plug);
    }

    /// Returns the latest refusals with their reasons, oldest first.
    fn refusals(&self) -> Vec<Refusal> {
        let refusals = |controller: &mut Controller| controller.refusals.iter().copied().collect();
        call(self, refusals).unwrap_or_default()
    }
}

/// Runs `action`. Returns its result, or `None` if the SSD has ended.
pub(crate) fn call<T: Send + 'static>(
    ssd: &(impl FaultControl + ?Sized),
    action: impl FnOnce(&mut Controller) -> T + Send + 'static,
) -> Option<T> {
    let (reply, answer) = sync_channel(1);
    ssd.run(Action::new(move |controller, _| {
        let _ = reply.send(action(controller));
    }));
    answer.recv().ok()
}
