//! Publishes a channel's figures, and takes policy changes from outside (see
//! [`telemetry`](meantime_completion::telemetry)).

use super::NvmeChannel;
use crate::BlockChannel as _;

impl NvmeChannel {
    /// Publishes if that is due. Called off the fast path, with a time that is already known,
    /// preferably in a gap.
    #[inline(always)]
    pub(super) fn show(&mut self, now_ns: u64) {
        if self.telemetry.is_due(now_ns) {
            self.publish(now_ns);
        }
    }

    #[cold]
    #[inline(never)]
    fn publish(&mut self, now_ns: u64) {
        if let Some(policy) = self.telemetry.take_request() {
            let outcome = self.set_policy(policy);
            self.telemetry.answer(outcome);
        }
        self.publish_figures(now_ns);
    }

    pub(super) fn publish_figures(&mut self, now_ns: u64) {
        let mut figures = self.waiter.figures(self.policy);
        for queue in std::iter::once(&self.polled).chain(&self.interrupt) {
            let counters = queue.pair.counters();
            figures.ended += counters.ended;
            figures.in_flight += u64::from(queue.pair.in_flight());
            figures.timeouts += counters.late + counters.aborts;
            figures.aborts += counters.aborts;
            figures.recreations += counters.recreations;
            figures.retries += counters.retries;
            figures.requeued += counters.requeued;
            figures.refused += counters.strays + counters.bad_sqhd;
        }
        self.telemetry.publish(now_ns, self.policy, &figures);
    }

    /// The time of the last deadline check, in ns.
    #[inline]
    pub(super) fn last_tick_ns(&self) -> u64 {
        let interrupt_ns = self.interrupt.as_ref().map_or(0, |queue| queue.pair.last_tick_ns());
        self.polled.pair.last_tick_ns().max(interrupt_ns)
    }
}
