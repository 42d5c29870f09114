//! Deferred work in the waits of a channel to the kernel: before it blocks there, what fits is run.

use std::task::Waker;

use super::super::super::gap_work::{GapWork, soonest_end_ns};
use super::super::state::SWEEPS;
use super::{KernelChannel, Way};
use meantime_completion::{DeferError, Deferred, Learning, Sight, Source, WorkCounters};
use meantime_nvme::Op;

/// The shortest time for which the kernel is asked to block, in ns.
const SHORTEST_NS: u64 = 1_000;

/// What there is to do in the gaps of a channel, and what was learned for it.
#[derive(Default)]
pub(super) struct KernelWork {
    gap: GapWork,
    learning: Learning,
}

/// The rings, as deferred work sees them.
struct Rings<'a>(&'a mut KernelChannel);

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
        self.work.as_ref().map(|work| work.gap.backlog.counters()).unwrap_or_default()
    }

    pub(super) fn take_work(&mut self, deferred: Box<dyn Deferred>) -> Result<(), DeferError> {
        let now_ns = self.clock.now_ns();
        let work = self.work.get_or_insert_default();
        work.gap.backlog.push(deferred, now_ns)?;
        work.gap.begin();
        Ok(())
    }

    pub(super) fn deferred_work(&self) -> usize {
        self.work.as_ref().map_or(0, |work| work.gap.backlog.len())
    }

    pub(super) fn run_work(&mut self, budget_ns: u64) -> usize {
        self.work.as_mut().map_or(0, |work| work.gap.run_for(budget_ns, &self.clock))
    }

    pub(super) fn set_work_waker(&mut self, waker: Option<Waker>) {
        if waker.is_some() || self.work.is_some() {
            self.work.get_or_insert_default().gap.backlog.set_waker(waker);
        }
    }

    pub(super) fn ask_gap(&mut self) -> Option<u64> {
        if self.state.table.active() == 0 {
            return Some(u64::MAX);
        }
        let work = self.work.get_or_insert_default();
        work.gap.begin();
        let ends_ns = soonest_end_ns(&self.state.table, &work.learning, None)?;
        Some(ends_ns.saturating_sub(self.clock.now_ns()))
    }

    /// Takes the time of the request in `slot` if there is work, or just was.
    pub(super) fn take_time(&mut self, slot: u16, op: Op, bytes: u64) {
        if self.work.as_ref().is_some_and(|work| work.gap.takes_times()) {
            let table = &mut self.state.table;
            let class = table.class(op, bytes, table.active());
            table.take_time(slot, class, self.clock.now_ns());
        }
    }

    /// Waits as `wait_in_kernel` does, after what work fits before something may be complete.
    pub(super) fn wait_working(&mut self, slot: Option<u16>, patience_ns: u64) {
        let Some(mut work) = self.work.take() else { return self.wait_in_kernel(patience_ns) };
        let mut ended = 0;
        let mut patience_ns = patience_ns;
        if matches!(self.way, Way::Calls { .. }) {
            // The I/O is done by the wait itself: there is no gap.
            work.gap.run_overdue(self.clock.now_ns(), || self.clock.now_ns());
        } else if !work.gap.backlog.is_empty() {
            let ends_ns = soonest_end_ns(&self.state.table, &work.learning, slot);
            ended = work.gap.work(&mut Rings(self), ends_ns);
            if let Some(latest_ns) = work.gap.backlog.latest_ns() {
                patience_ns =
                    patience_ns.min(latest_ns.saturating_sub(self.clock.now_ns()).max(SHORTEST_NS));
            }
        }
        self.work = Some(work);
        if ended == 0 {
            self.wait_in_kernel(patience_ns);
        }
        self.learn(ended == 0);
    }

    /// Takes in the times of what has ended, in a wait or found otherwise.
    ///
    /// When a blocked thread runs again counts as the moment of the completion: without work it
    /// would not have been known earlier.
    pub(super) fn learn(&mut self, waited: bool) {
        if self.state.table.timed.is_empty() {
            return;
        }
        let Some(work) = &mut self.work else { return self.state.table.timed.clear() };
        let now_ns = self.clock.now_ns();
        for timed in self.state.table.timed.drain(..) {
            let device_ns = now_ns.saturating_sub(timed.flight.submitted_ns);
            let found = if waited { Sight::Exact(device_ns) } else { Sight::AtMost(device_ns) };
            let sight = work.gap.sight_after_piece(&timed.flight).unwrap_or(found);
            work.learning.record_sight(timed.flight.class, sight);
        }
        work.gap.goes_on();
    }

    /// Looks from outside run the work that has waited too long.
    pub(super) fn run_overdue(&mut self) {
        if let Some(work) = &mut self.work {
            work.gap.run_overdue(self.clock.now_ns(), || self.clock.now_ns());
        }
    }

    pub(super) fn finish_work(&mut self) {
        if let Some(work) = &mut self.work {
            work.gap.finish(&self.clock);
        }
    }
}
