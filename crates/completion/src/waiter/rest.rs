//! Waiting on several channels at once: the needs of each channel, for a thread that looks at all
//! of them.
//!
//! The thread looks at each channel in turn. After a round of empty polls, it asks each for its
//! [`Rest`]: the time until which no look is needed. If there is such a time for all, the thread
//! sleeps until the first of them, or until an interrupt. Otherwise it looks again.

use super::super::gap::{LONGEST_NAP_NS, NAP_SHARE, OffQueue, Source as _, WaitPlan};
use super::{Found, InFlight, Queues, Waiter};

/// The time until which a channel need not be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rest {
    /// No look is needed before this time, in ns of the channel's clock. If it has passed, the
    /// thread looks again and again.
    pub until_ns: u64,
    /// Whether a completion may end the rest earlier, by the channel's event.
    pub interrupt: bool,
    /// Whether a queued request is in flight. If not, a look only checks deadlines.
    pub waits: bool,
}

impl Rest {
    /// Nothing is in flight.
    pub const FOREVER: Self = Self { until_ns: u64::MAX, interrupt: false, waits: false };
    /// A look is needed at once.
    pub const NONE: Self = Self { until_ns: 0, interrupt: false, waits: true };
}

/// A channel's state between the looks at it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Looks {
    /// The number of commands that had ended at the last look. With the next one another wait
    /// begins.
    ended: u64,
    /// Start of the wait, at its first empty poll; 0 if there was none.
    since_ns: u64,
    /// The time since which the thread has looked without a rest.
    spun_since_ns: u64,
    /// Whether the spin budget is used up: the thread naps between looks until a command ends.
    naps: bool,
    /// Length and end of the sleep that a rule chose, in ns.
    sleep_ns: u64,
    sleeps_until_ns: u64,
    /// How to wait for the I/O submitted at this time, decided once.
    plan: Option<(u64, WaitPlan)>,
}

impl Waiter {
    /// The time until which this channel needs no look. Called at `now_ns`, after an empty poll.
    pub fn rest<Q: Queues>(&mut self, queues: &mut Q, now_ns: u64) -> Rest {
        let mut until_ns = u64::MAX;
        for interrupted in [false, true] {
            if queues.is_busy(interrupted) {
                let interval_ns = queues.queue(interrupted).tick_interval_ns();
                until_ns = until_ns.min(now_ns.saturating_add(interval_ns));
            }
        }
        if queues.unclaimed().next().is_none() {
            return Rest { until_ns, ..Rest::FOREVER };
        }
        let ended = queues.ended();
        if self.looks.since_ns == 0 || self.looks.ended != ended {
            self.looks =
                Looks { ended, since_ns: now_ns, spun_since_ns: now_ns, ..Looks::default() };
            self.gaps[0].begin_looks(now_ns);
        } else {
            self.gaps[0].polled_empty(now_ns);
        }
        let polled_ns = self.rest_of_polled(queues, now_ns);
        if polled_ns > now_ns && polled_ns < u64::MAX && !self.looks.naps {
            // The thread looks again from that time on.
            self.looks.spun_since_ns = polled_ns;
        }
        until_ns = until_ns.min(polled_ns);
        Rest { until_ns, interrupt: queues.is_busy(true), waits: true }
    }

    /// The time for the requests that are waited for by looks, but not for those that block until
    /// their interrupt.
    fn rest_of_polled<Q: Queues>(&mut self, queues: &mut Q, now_ns: u64) -> u64 {
        if self.looks.sleeps_until_ns > now_ns {
            return self.looks.sleeps_until_ns;
        }
        let looked_for = |id: &Q::Id| {
            let InFlight { policy, flight, .. } = queues.request(*id);
            !flight.interrupted || self.learning.may_plan_sleeps(policy)
        };
        let Some(id) = self.next_to_end(queues, looked_for) else { return u64::MAX };
        let plan = self.plan_of(queues, id);
        let mut since_ns = self.looks.since_ns;
        let mut spins_until_ns =
            self.looks.spun_since_ns.saturating_add(self.gaps[0].spin_budget_ns());
        match plan {
            WaitPlan::Poll | WaitPlan::Interrupt => {}
            WaitPlan::Sleep(0) => {}
            WaitPlan::Sleep(sleep_ns) => {
                self.looks.sleep_ns = sleep_ns;
                self.looks.sleeps_until_ns = now_ns.saturating_add(sleep_ns);
                return self.looks.sleeps_until_ns;
            }
            WaitPlan::Planned { plan, since_ns: submitted_ns } => {
                since_ns = submitted_ns;
                let elapsed_ns = now_ns.saturating_sub(submitted_ns);
                let mut left = plan.stages().iter().filter(|s| u64::from(s.until_ns) > elapsed_ns);
                match left.next() {
                    Some(stage) if u64::from(stage.from_ns) <= elapsed_ns => {
                        return submitted_ns + u64::from(stage.until_ns);
                    }
                    Some(_) => return now_ns,
                    None => {
                        let patience_ns = submitted_ns.saturating_add(plan.patience_ns());
                        spins_until_ns = spins_until_ns.min(patience_ns);
                    }
                }
            }
        }
        if now_ns < spins_until_ns && !self.looks.naps {
            return now_ns;
        }
        if !std::mem::replace(&mut self.looks.naps, true) {
            self.gaps[0].note_fallback();
        }
        let nap_ns = now_ns.saturating_sub(since_ns) / NAP_SHARE;
        now_ns + nap_ns.clamp(1_000, LONGEST_NAP_NS)
    }

    /// How to wait for the request `id`. A sleep without a plan is chosen once.
    fn plan_of<Q: Queues>(&mut self, queues: &mut Q, id: Q::Id) -> WaitPlan {
        let InFlight { policy, flight, timed, .. } = queues.begin_wait(id);
        match self.looks.plan {
            Some((submitted_ns, plan)) if timed && submitted_ns == flight.submitted_ns => {
                if let WaitPlan::Sleep(_) = plan {
                    WaitPlan::Poll
                } else {
                    plan
                }
            }
            _ => {
                let plan = self.learning.wait_plan(policy, &flight, queues);
                self.looks.plan = timed.then_some((flight.submitted_ns, plan));
                plan
            }
        }
    }

    /// Notes an empty poll, after which the thread may look for long before it asks for a rest.
    /// `off_queue` is what it did before the poll.
    #[inline(never)]
    pub fn polled_empty(&mut self, off_queue: OffQueue) {
        self.gaps[0].polled_empty_after(off_queue);
    }

    /// The former name of [`polled_empty`](Self::polled_empty).
    #[deprecated(note = "use `polled_empty`")]
    pub fn looked_in_vain(&mut self, off_queue: OffQueue) {
        self.polled_empty(off_queue);
    }

    /// Notes that commands have ended otherwise than by a look: the next wait has nothing to do
    /// with the looks before.
    #[inline(always)]
    pub fn forget_looks(&mut self) {
        if self.looks.since_ns != 0 {
            self.looks = Looks::default();
            self.gaps[0].forget_looks();
        }
    }

    /// Records the times of the requests that a look has found ended. `off_queue` is what the
    /// thread did before that look, if it was not looking.
    #[inline]
    pub fn found<Q: Queues>(&mut self, queues: &mut Q, off_queue: Option<OffQueue>) {
        let slept_ns = std::mem::take(&mut self.looks).sleep_ns;
        self.gaps[0].found_by_a_look(off_queue, slept_ns);
        self.learn(queues, Found::Waiting { interrupted: false });
    }
}
