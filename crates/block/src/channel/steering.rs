//! What a channel shows of itself, and how its policy is changed from outside (see
//! [`steer`](meantime_completion::steer)).

use super::{Lane, NvmeChannel};
use crate::BlockChannel as _;
use meantime_completion::Policy;
use meantime_completion::steer::QueueFigures;

/// How a polled I/O is waited for of which the time is taken: by polling, too, but on the way that
/// has a clock. The one in some hundred that looks at deadlines is such a one, so that the others
/// pay nothing for there being a mean.
pub(super) const SAMPLED: Policy = Policy::HybridFixed(0);

/// How far apart such I/Os are at least: 200 a second, which a device of half a million does not
/// feel.
const SAMPLE_INTERVAL_NS: u64 = 5_000_000;

/// The I/Os of which the time was taken.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Times {
    count: u64,
    sum_ns: u64,
    next_sample_ns: u64,
}

impl Times {
    /// Takes in the time of one.
    #[inline]
    pub(super) fn add(&mut self, device_ns: u64) {
        self.count += 1;
        self.sum_ns += device_ns;
    }

    /// Whether a polled I/O is to be timed that is submitted at `now_ns`.
    pub(super) fn take_sample(&mut self, now_ns: u64) -> bool {
        let due = now_ns >= self.next_sample_ns;
        if due {
            self.next_sample_ns = now_ns.saturating_add(SAMPLE_INTERVAL_NS);
        }
        due
    }
}

impl NvmeChannel {
    /// Off the fast path, with the time at hand; best while the device is at work.
    #[inline(always)]
    pub(super) fn show(&mut self, now_ns: u64) {
        if self.helm.is_due(now_ns) {
            self.publish(now_ns);
        }
    }

    #[cold]
    #[inline(never)]
    fn publish(&mut self, now_ns: u64) {
        if let Some(policy) = self.helm.take_request() {
            let outcome = self.set_policy(policy);
            self.helm.answer(outcome);
        }
        let expected = self.learning.expected(self.policy);
        let mut figures = QueueFigures {
            timed: self.times.count,
            timed_sum_ns: self.times.sum_ns,
            expected_ns: expected.median_ns,
            expected_low_ns: expected.low_ns,
            ..QueueFigures::default()
        };
        add(&mut figures, &self.polled);
        if let Some(lane) = &self.interrupt {
            add(&mut figures, lane);
        }
        self.helm.publish(now_ns, self.policy, &figures);
    }
}

fn add(figures: &mut QueueFigures, lane: &Lane) {
    let waits = lane.gap.counters();
    figures.ended += lane.queue.counters().ended;
    figures.in_flight += u64::from(lane.queue.in_flight());
    figures.waits += waits.waits;
    figures.sleeps += waits.sleeps;
    figures.oversleeps += waits.oversleeps;
    figures.fallbacks += waits.fallbacks;
    figures.blocks += waits.blocks;
}
