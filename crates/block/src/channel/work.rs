//! The waits of a channel that has work for its gaps: apart from those that have none, which pay
//! nothing for it.

use super::super::gap_work::{WithWork, shortened, soonest_end_ns};
use super::{NvmeChannel, View};
use crate::probe::Probe;
use crate::request::Done;
use meantime_completion::{DeferError, Deferred, Way};

impl NvmeChannel {
    /// See [`BlockChannel::defer`](super::BlockChannel::defer).
    #[inline(never)]
    pub(super) fn take_work(&mut self, work: Box<dyn Deferred>) -> Result<(), DeferError> {
        let now_ns = self.clock().now_ns();
        self.work.backlog.push(work, now_ns)?;
        self.begin_work();
        Ok(())
    }

    /// There is work: from now on I/O is timed, and waits take the long way.
    fn begin_work(&mut self) {
        self.work.begin();
        self.attention.set_work(true);
        self.untimed_blocks = 0;
    }

    /// An I/O that was timed has ended. When there was no work for long all is as it was before.
    pub(super) fn after_work(&mut self) {
        if self.work.goes_on() {
            return;
        }
        self.untimed_blocks = self.single_blocks;
        // The short way does not ask for times: none may be left that is taken.
        let mut under_way = self.table.under_way();
        if !under_way.any(|lbio| lbio.policy.is_poll() && lbio.timed_flight().is_some()) {
            self.attention.set_work(false);
        }
    }

    /// See [`BlockChannel::gap_left_ns`](super::BlockChannel::gap_left_ns).
    pub(super) fn ask_gap(&mut self) -> Option<u64> {
        if self.table.active() == 0 {
            return Some(u64::MAX);
        }
        self.begin_work();
        self.work.asked();
        let ends_ns = self.soonest_end_ns(None)?;
        Some(ends_ns.saturating_sub(self.clock().now_ns()))
    }

    /// When `slot`, or whatever ends first, may be complete, in ns; `None`: not known.
    pub(super) fn soonest_end_ns(&self, slot: Option<u16>) -> Option<u64> {
        soonest_end_ns(&self.table, &self.learning, slot)
    }

    /// As `wait_probed`, when requests are collected or there is work.
    #[cold]
    #[inline(never)]
    pub(super) fn wait_attentively(
        &mut self,
        slot: u16,
        generation: u32,
        probe: &impl Probe,
    ) -> Done {
        if self.attention.is_plugged() {
            self.ring_all();
        }
        let lbio = self.table.claimed(slot, generation);
        let polled = lbio.policy.is_poll() && !self.attention.has_work();
        let done = lbio.is_done() || polled && self.polls_until_done(slot, probe);
        if !done {
            self.wait_long(slot, probe);
        }
        self.finish(slot)
    }

    /// As `wait_on`, with work before and during the wait.
    #[inline(never)]
    pub(super) fn wait_working(&mut self, slot: u16, probe: &impl Probe) {
        let wanted = self.work.is_wanted();
        let ends_ns = if wanted { self.soonest_end_ns(Some(slot)) } else { None };
        let lbio = self.table.get_mut(slot);
        let (policy, flight, timed) = (lbio.policy, lbio.flight(), lbio.timed_flight().is_some());
        lbio.waited = true;
        let Self { table, ns, polled, interrupt, work, learning, .. } = self;
        let lane = match interrupt {
            Some(lane) if flight.interrupted => lane,
            _ => polled,
        };
        let mut worked = false;
        if lane.queue.in_flight() > 0 {
            let mut view = View { queue: &mut lane.queue, table, ns, probe };
            let before_ns = work.backlog.counters().worked_ns;
            worked = work.work(&mut view, ends_ns) > 0;
            if !worked {
                // Without a sleep, since only so it becomes known.
                let explores = timed && wanted && ends_ns.is_none();
                let way = if explores { Way::Poll } else { learning.way(policy, &flight) };
                let way = shortened(way, work.backlog.counters().worked_ns - before_ns);
                lane.gap.wait(&mut WithWork::new(&mut view, work), way);
            }
        }
        lane.after_reap(table, ns);
        // Found by a look of the work's: the gap was not waited in.
        self.learn(if worked { None } else { Some(flight.interrupted) });
        self.work.forget_sight();
        if !self.work.takes_times() {
            self.after_work();
        }
    }

    /// Takes in the times of what a look from outside has found. Who only ever looks runs the work
    /// that has waited too long so.
    #[cold]
    #[inline(never)]
    pub(super) fn learn_polled(&mut self) {
        self.learn(None);
        self.run_overdue();
    }

    /// Runs a piece that has waited too long, if there is one.
    pub(super) fn run_overdue(&mut self) {
        let clock = self.polled.queue.clock();
        self.work.run_overdue(clock.now_ns(), || clock.now_ns());
    }
}
