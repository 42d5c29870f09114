//! Deferred work in the waits of a channel to the kernel: before it blocks there, what fits is run.

use std::task::Waker;

use super::super::state::SWEEPS;
use super::{KernelChannel, Way};
use meantime_completion::waiter::{Found, InFlight, Queues, Timed, Waiter};
use meantime_completion::{DeferError, Deferred, Source, WorkCounters};
use meantime_nvme::Op;

/// The shortest time for which the kernel is asked to block, in ns.
const SHORTEST_NS: u64 = 1_000;

/// The rings of a channel and its requests, lent to its waiter.
struct Rings<'a>(&'a mut KernelChannel);

impl Queues for Rings<'_> {
    type Id = u16;
    type Queue<'a>
        = Rings<'a>
    where
        Self: 'a;
    type Both<'a>
        = Rings<'a>
    where
        Self: 'a;

    fn queue(&mut self, _: bool) -> Rings<'_> {
        Rings(self.0)
    }

    fn both(&mut self) -> Option<Rings<'_>> {
        None
    }

    fn is_busy(&self, interrupted: bool) -> bool {
        !interrupted && self.0.state.table.active() > 0
    }

    fn active(&self) -> usize {
        self.0.state.table.active()
    }

    fn request(&self, slot: u16) -> InFlight {
        self.0.state.table.get(slot).in_flight()
    }

    fn begin_wait(&mut self, slot: u16) -> InFlight {
        self.0.state.table.begin_wait(slot)
    }

    fn under_way(&self) -> impl Iterator<Item = InFlight> {
        self.0.state.table.under_way()
    }

    fn unclaimed(&self) -> impl Iterator<Item = u16> {
        self.0.state.table.queued_slots()
    }

    fn timed(&mut self) -> &mut Vec<Timed> {
        &mut self.0.state.table.timed
    }

    fn now_ns(&self) -> u64 {
        self.0.clock.now_ns()
    }
}

impl Source for Rings<'_> {
    fn reap(&mut self) -> usize {
        let before = self.0.state.table.active();
        if let Way::Rings(rings) = &mut self.0.way {
            let told = rings.look();
            self.0.note(told);
            self.0.reap();
        }
        before - self.0.state.table.active()
    }

    fn has_completion(&self) -> bool {
        false
    }

    fn tick(&mut self, _: u64) -> usize {
        let before = self.0.state.table.active();
        self.0.sweep(self.tick_interval_ns(), false);
        before - self.0.state.table.active()
    }

    fn tick_interval_ns(&self) -> u64 {
        self.0.shared.timeout_ns / u64::from(SWEEPS)
    }

    fn now_ns(&self) -> u64 {
        self.0.clock.now_ns()
    }

    fn sleep_ns(&self, duration_ns: u64) {
        self.0.clock.sleep_ns(duration_ns);
    }

    fn wait_interrupt(&self, _: u64) -> bool {
        false
    }
}

impl KernelChannel {
    /// What was done in the gaps.
    pub(in super::super::super) fn work_counters(&self) -> WorkCounters {
        self.waiter.as_ref().map(|waiter| waiter.work_counters()).unwrap_or_default()
    }

    fn waiter(&mut self) -> &mut Waiter {
        self.waiter.get_or_insert_with(|| Box::new(Waiter::new(None)))
    }

    pub(super) fn take_work(&mut self, deferred: Box<dyn Deferred>) -> Result<(), DeferError> {
        let now_ns = self.clock.now_ns();
        self.waiter().defer(deferred, now_ns)
    }

    pub(super) fn deferred_work(&self) -> usize {
        self.waiter.as_ref().map_or(0, |waiter| waiter.deferred())
    }

    pub(super) fn run_work(&mut self, budget_ns: u64) -> usize {
        self.waiter.as_mut().map_or(0, |waiter| waiter.run_deferred(budget_ns, &self.clock))
    }

    pub(super) fn set_work_waker(&mut self, waker: Option<Waker>) {
        if waker.is_some() || self.waiter.is_some() {
            self.waiter().set_work_waker(waker);
        }
    }

    /// Lends the rings to the waiter, if there is one.
    fn with_waiter<R>(&mut self, act: impl FnOnce(&mut Waiter, &mut Rings<'_>) -> R) -> Option<R> {
        let mut waiter = self.waiter.take()?;
        let outcome = act(&mut waiter, &mut Rings(self));
        self.waiter = Some(waiter);
        Some(outcome)
    }

    pub(super) fn ask_gap(&mut self) -> Option<u64> {
        if self.state.table.active() == 0 {
            return Some(u64::MAX);
        }
        self.waiter();
        self.with_waiter(|waiter, rings| waiter.gap_left_ns(rings)).flatten()
    }

    /// Takes the time of the request in `slot` if there is work, or just was.
    pub(super) fn take_time(&mut self, slot: u16, op: Op, bytes: u64) {
        if self.waiter.as_ref().is_some_and(|waiter| waiter.takes_times()) {
            let table = &mut self.state.table;
            let class = table.class(op, bytes, table.active());
            table.take_time(slot, class, self.clock.now_ns());
        }
    }

    /// Waits as `wait_in_kernel` does, after what work fits before something may be complete.
    pub(super) fn wait_working(&mut self, slot: Option<u16>, patience_ns: u64) {
        let mut patience_ns = patience_ns;
        if matches!(self.way, Way::Calls { .. }) {
            // The I/O is done by the wait itself: there is no gap.
            self.run_overdue();
        } else if self.deferred_work() > 0 {
            let ended = self.with_waiter(|waiter, rings| waiter.work_before(rings, slot));
            if ended.is_some_and(|ended| ended > 0) {
                return self.learn(Found::Looking);
            }
            if let Some(overdue_ns) = self.waiter.as_ref().and_then(|waiter| waiter.overdue_ns()) {
                let left_ns = overdue_ns.saturating_sub(self.clock.now_ns());
                patience_ns = patience_ns.min(left_ns.max(SHORTEST_NS));
            }
        }
        self.wait_in_kernel(patience_ns);
        // When a blocked thread runs again counts as the moment of the completion: without work it
        // would not have been known earlier.
        self.learn(Found::Blocked);
    }

    /// Takes in the times of what has ended.
    pub(super) fn learn(&mut self, found: Found) {
        if self.with_waiter(|waiter, rings| waiter.learn(rings, found)).is_none() {
            self.state.table.timed.clear();
        }
    }

    /// Looks from outside run the work that has waited too long.
    pub(super) fn run_overdue(&mut self) {
        if let Some(waiter) = &mut self.waiter {
            waiter.run_overdue(&self.clock);
        }
    }

    pub(super) fn finish_work(&mut self) {
        if let Some(waiter) = &mut self.waiter {
            waiter.finish_work(&self.clock);
        }
    }
}
