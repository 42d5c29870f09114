//! What a channel learns of its I/O's times.

use super::NvmeChannel;
use meantime_completion::{Policy, Sample};
use meantime_nvme::Op;

/// Of how many requests under way the likely end is compared.
const COMPARED: usize = 16;

impl NvmeChannel {
    /// `slot`, whose command has been sent, is waited for by `policy`.
    #[inline(never)]
    pub(super) fn start_timed(&mut self, slot: u16, policy: Policy) {
        let lbio = self.table.get_mut(slot);
        let (op, bytes) = (lbio.op, lbio.buf_mut().map_or(0, |buf| buf.len() as u64));
        let class = self.table.class(op, bytes, self.table.active());
        if !self.work.takes_times() && self.learning.skips(policy, class) {
            return;
        }
        self.table.get_mut(slot).policy = policy;
        let now_ns = self.clock().now_ns();
        self.table.take_time(slot, class, now_ns);
        self.show(now_ns);
    }

    /// From now on the time of `slot` is taken: what time it is.
    #[inline]
    pub(super) fn take_time(&mut self, slot: u16, op: Op, bytes: u64) -> u64 {
        let class = self.table.class(op, bytes, self.table.active());
        let now_ns = self.clock().now_ns();
        self.table.take_time(slot, class, now_ns);
        now_ns
    }

    /// Takes in the times of what has ended: in a wait on the lane with an interrupt or on the
    /// polled one, or found without waiting.
    #[inline]
    pub(super) fn learn(&mut self, waited_on: Option<bool>) {
        if !self.table.timed.is_empty() {
            self.learn_times(waited_on);
        }
    }

    #[inline(never)]
    pub(super) fn learn_times(&mut self, waited_on: Option<bool>) {
        let now_ns = self.clock().now_ns();
        let in_flight = self.table.active() + self.table.timed.len();
        let waited = match (waited_on, &self.interrupt) {
            (Some(true), Some(lane)) => Some(lane.gap.waited()),
            (Some(_), _) => Some(self.polled.gap.waited()),
            (None, _) => None,
        };
        if let Some(waited) = waited {
            self.learning.slept(waited, now_ns);
        }
        for timed in self.table.timed.drain(..) {
            let sample = Sample {
                class: timed.flight.class,
                device_ns: now_ns.saturating_sub(timed.flight.submitted_ns),
                slept_ns: waited.map_or(0, |waited| waited.slept_ns),
                overslept: waited.is_some_and(|waited| waited.overslept),
                interrupted: timed.flight.interrupted,
                in_flight: u16::try_from(in_flight).unwrap_or(u16::MAX),
                now_ns,
            };
            self.times.add(sample.device_ns);
            // What was found just after a piece may have been there during that.
            let exact = waited.filter(|_| self.work.sight_after_piece(&timed.flight).is_none());
            self.learning.record(timed.policy, &sample, exact);
            if self.attention.has_work() {
                let sight = self.work.sight(&timed.flight, &sample, waited);
                self.learning.record_sight(timed.flight.class, sight);
            }
        }
        if self.attention.has_work() {
            self.after_work();
        }
    }

    /// The request without a ticket that is likely to end first, as far as that matters: no more
    /// than the first few are looked at.
    pub(super) fn next_to_end(&self) -> Option<u16> {
        let first = self.table.queued_slots().next()?;
        if !matches!(self.table.get(first).policy, Policy::Adaptive(_) | Policy::Auto) {
            return Some(first);
        }
        let end_ns = |slot: &u16| {
            let flight = self.table.get(*slot).flight();
            flight.submitted_ns + self.learning.soonest_ns(flight.class)
        };
        self.table.queued_slots().take(COMPARED).min_by_key(end_ns)
    }
}
