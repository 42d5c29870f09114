//! What a channel shows of itself, and how its policy is changed from outside (see
//! [`telemetry`](meantime_completion::telemetry)).

use super::NvmeChannel;
use crate::BlockChannel as _;
use meantime_completion::Policy;

/// How a polled I/O is waited for of which the time is taken: by polling, too, but on the way that
/// has a clock. The one in some hundred that looks at deadlines is such a one, so that the others
/// pay nothing for there being a mean.
pub(super) const SAMPLED: Policy = Policy::HybridFixed(0);

impl NvmeChannel {
    /// Off the fast path, with the time at hand; best while the device is at work.
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
        let mut figures = self.waiter.figures(self.policy);
        for queue in std::iter::once(&self.polled).chain(&self.interrupt) {
            figures.ended += queue.pair.counters().ended;
            figures.in_flight += u64::from(queue.pair.in_flight());
        }
        self.telemetry.publish(now_ns, self.policy, &figures);
    }

    /// When deadlines were last looked at, in ns.
    #[inline]
    pub(super) fn last_tick_ns(&self) -> u64 {
        let interrupt_ns = self.interrupt.as_ref().map_or(0, |queue| queue.pair.last_tick_ns());
        self.polled.pair.last_tick_ns().max(interrupt_ns)
    }
}
