//! The time left of a gap, for callers with work of their own.

use super::super::learning::Flight;
use super::{InFlight, Queues, SlowPath, Waiter};

/// After this many I/Os without a question, I/O is no longer timed.
const UNASKED_IOS: u32 = 64;

/// With more requests than this in flight, one is always about to end.
const MANY: usize = 64;

impl Waiter {
    /// Whether callers ask for the time left, or did recently, or requests in flight were timed
    /// for it.
    #[inline(always)]
    pub fn is_asked(&self) -> bool {
        self.slow_path.has(SlowPath::ASKED)
    }

    /// The time left before a request may be complete, in ns; `None` if unknown.
    pub fn gap_left_ns<Q: Queues>(&mut self, queues: &Q) -> Option<u64> {
        if queues.active() == 0 {
            return Some(u64::MAX);
        }
        self.slow_path.set(SlowPath::ASKED, true);
        (self.takes_times, self.asked, self.unasked_ios) = (true, true, 0);
        Some(self.earliest_end_ns(queues, None)?.saturating_sub(queues.now_ns()))
    }

    /// When the request waited for may be complete, in ns; `None` if unknown. That request is `id`
    /// if a caller has a ticket for it, and otherwise any request.
    pub(super) fn earliest_end_ns<Q: Queues>(&self, queues: &Q, id: Option<Q::Id>) -> Option<u64> {
        let end_ns = |request: InFlight| {
            let Flight { submitted_ns, class, .. } = request.flight;
            let earliest_ns = request.timed.then(|| self.learning.earliest_ns(class))??;
            Some(submitted_ns.saturating_add(earliest_ns))
        };
        let claimed = id.map(|id| queues.request(id)).filter(|request| !request.unclaimed);
        if let Some(request) = claimed {
            return end_ns(request);
        }
        if queues.active() > MANY {
            return Some(0);
        }
        queues
            .under_way()
            .try_fold(u64::MAX, |earliest_ns, request| Some(earliest_ns.min(end_ns(request)?)))
    }

    /// Called when a timed I/O or a wait has ended. Restores the normal state if no question came
    /// for long enough.
    pub(super) fn after_asked<Q: Queues>(&mut self, queues: &Q) {
        self.unasked_ios = self.unasked_ios.saturating_add(1);
        self.takes_times &= self.unasked_ios < UNASKED_IOS;
        if self.takes_times {
            return;
        }
        // The fast path does not record times: no timed polled request may be left.
        let timed = |request: InFlight| request.policy.is_poll() && request.timed;
        if !queues.under_way().any(timed) {
            self.slow_path.set(SlowPath::ASKED, false);
        }
    }
}
