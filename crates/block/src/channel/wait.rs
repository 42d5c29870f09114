//! The waits of a channel, and what it learns from them.

use super::super::probe::Probe;
use super::super::request::Done;
use super::super::request_table::RequestTable;
use super::NvmeChannel;
use super::queue::Queue;
use super::view::{Both, View};
use meantime_completion::waiter::{FIRST_LOOKS, Found, InFlight, Queues, Rest, Timed, Waiter};
use meantime_completion::{OffQueue, Policy};
use meantime_hw::{EventFd, cpu};
use meantime_nvme::{NamespaceInfo, Op};

/// How soon to look, in ns, at a device that its clock runs, if it has not fetched the commands in
/// flight.
const UNFETCHED_NS: u64 = 20_000;

/// A channel's queues and requests, lent to its waiter, with the probe of the wait.
pub(super) struct Parts<'p, P> {
    polled: &'p mut Queue,
    interrupt: &'p mut Option<Queue>,
    table: &'p mut RequestTable,
    ns: &'p NamespaceInfo,
    probe: &'p P,
}

impl<P: Probe> Queues for Parts<'_, P> {
    type Id = u16;
    type Queue<'a>
        = View<'a, P>
    where
        Self: 'a;
    type Both<'a>
        = Both<'a, P>
    where
        Self: 'a;

    #[inline(always)]
    fn queue(&mut self, interrupted: bool) -> View<'_, P> {
        let queue = match &mut *self.interrupt {
            Some(queue) if interrupted => queue,
            _ => &mut *self.polled,
        };
        View { pair: &mut queue.pair, table: self.table, ns: self.ns, probe: self.probe }
    }

    fn both(&mut self) -> Option<Both<'_, P>> {
        let Self { polled, interrupt, table, ns, probe } = self;
        let interrupt = &mut interrupt.as_mut()?.pair;
        Some(Both { polled: &mut polled.pair, interrupt, table, ns, probe })
    }

    #[inline(always)]
    fn is_busy(&self, interrupted: bool) -> bool {
        match &*self.interrupt {
            Some(queue) if interrupted => queue.is_busy(),
            _ => !interrupted && self.polled.is_busy(),
        }
    }

    #[inline(always)]
    fn refill(&mut self, interrupted: bool) {
        match &mut *self.interrupt {
            Some(queue) if interrupted => queue.after_reap(self.table, self.ns),
            _ => self.polled.after_reap(self.table, self.ns),
        }
    }

    fn ended(&self) -> u64 {
        let polled = self.polled.pair.counters().ended;
        polled + self.interrupt.as_ref().map_or(0, |queue| queue.pair.counters().ended)
    }

    #[inline]
    fn active(&self) -> usize {
        self.table.active()
    }

    #[inline]
    fn request(&self, slot: u16) -> InFlight {
        self.table.get(slot).in_flight()
    }

    #[inline]
    fn begin_wait(&mut self, slot: u16) -> InFlight {
        self.table.begin_wait(slot)
    }

    fn under_way(&self) -> impl Iterator<Item = InFlight> {
        self.table.under_way()
    }

    fn unclaimed(&self) -> impl Iterator<Item = u16> {
        self.table.queued_slots()
    }

    #[inline]
    fn timed(&mut self) -> &mut Vec<Timed> {
        &mut self.table.timed
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        self.polled.pair.clock().now_ns()
    }

    /// In virtual time, a thread does not wait for its CPU.
    fn thread_waited_ns(&self) -> Option<u64> {
        if self.polled.pair.clock().is_real() { cpu::thread_waited_ns() } else { Some(0) }
    }
}

impl NvmeChannel {
    /// Looks at the polled queue for a while for the end of `slot`. Returns true if it ended.
    #[inline(always)]
    pub(super) fn polls_until_done(&mut self, slot: u16, probe: &impl Probe) -> bool {
        for _ in 0..FIRST_LOOKS {
            let table = &mut self.table;
            let seen = self.polled.pair.reap_one(|requester, result| {
                probe.seen();
                table.complete(requester, result) == Some(slot)
            });
            match seen {
                Some(true) => return true,
                Some(false) => self.another_ended(),
                None => {}
            }
        }
        false
    }

    /// Looks at the polled queue for a while for the end of any request without a ticket. Returns
    /// true if there is one.
    #[inline(always)]
    pub(super) fn polls_until_any_done(&mut self) -> bool {
        // This looks for longer than a wait by ticket: just before, the caller has read the clock
        // and swept deadlines.
        self.polled.pair.progress();
        for _ in 0..4 * FIRST_LOOKS {
            if self.polled.pair.has_completion() {
                self.polled.reap(&mut self.table, &self.ns);
                if self.table.has_done() {
                    return true;
                }
            }
        }
        false
    }

    /// Handles a completion of another request, or of a part of this one.
    #[cold]
    #[inline(never)]
    pub(super) fn another_ended(&mut self) {
        self.polled.after_reap(&mut self.table, &self.ns);
        self.learn();
    }

    #[inline(never)]
    pub(super) fn wait_long(&mut self, slot: u16, probe: &impl Probe) {
        while !self.table.is_done(slot) {
            self.with_waiter(probe, |waiter, parts| waiter.wait_for(parts, slot));
            self.show(self.last_tick_ns());
        }
    }

    /// Waits for `slot` while requests are collected or callers ask for the time left.
    #[cold]
    #[inline(never)]
    pub(super) fn wait_slow(&mut self, slot: u16, probe: &impl Probe) -> Done {
        if self.waiter.is_plugged() {
            self.ring_all();
        }
        let entry = self.table.get(slot);
        let polled = entry.policy.is_poll() && !self.waiter.is_asked();
        let done = entry.is_done() || polled && self.polls_until_done(slot, probe);
        if !done {
            self.wait_long(slot, probe);
        }
        self.table.take_done(slot)
    }

    /// Waits until any request without a ticket has ended. Returns false if none is in flight.
    #[inline]
    pub(super) fn wait_for_any(&mut self, probe: &impl Probe) -> bool {
        let waited = self.with_waiter(probe, |waiter, parts| waiter.wait_for_any(parts));
        self.show(self.last_tick_ns());
        waited
    }

    /// Lends queues and requests to the waiter, which decides whether polled I/O is timed.
    #[inline(always)]
    pub(super) fn with_waiter<P: Probe, R>(
        &mut self,
        probe: &P,
        act: impl FnOnce(&mut Waiter, &mut Parts<'_, P>) -> R,
    ) -> R {
        let Self { waiter, polled, interrupt, table, ns, .. } = self;
        let outcome = act(waiter, &mut Parts { polled, interrupt, table, ns, probe });
        self.untimed_blocks = if waiter.takes_times() { 0 } else { self.single_blocks };
        outcome
    }

    /// Records the times of completions found without waiting.
    #[inline]
    pub(super) fn learn(&mut self) {
        if !self.table.timed.is_empty() {
            self.with_waiter(&(), |waiter, parts| waiter.learn(parts, Found::Looking));
        }
    }

    /// See GroupChannel::poll_in_group.
    #[inline]
    pub(super) fn poll_queues(&mut self, off_queue: Option<OffQueue>) -> usize {
        self.ring_all();
        let before = self.table.active();
        if let Some(queue) = &mut self.interrupt {
            if off_queue.is_some() && queue.is_busy() {
                // The signal is taken before the look, so that no later signal is lost.
                queue.pair.event().map(EventFd::take);
            }
            queue.reap(&mut self.table, &self.ns);
        }
        self.polled.reap(&mut self.table, &self.ns);
        let ended = before - self.table.active();
        if ended > 0 {
            self.table.free_dropped();
            self.with_waiter(&(), |waiter, parts| waiter.found(parts, off_queue));
        } else if let Some(off_queue) = off_queue {
            self.waiter.polled_empty(off_queue);
        }
        ended
    }

    /// See [`GroupChannel::rest`](crate::GroupChannel::rest).
    pub(super) fn rest_after_looks(&mut self) -> Rest {
        let Self { table, ns, polled, interrupt, .. } = &mut *self;
        polled.tick(table, ns);
        if let Some(queue) = interrupt {
            queue.tick(table, ns);
        }
        self.learn();
        if self.table.has_done() {
            self.waiter.forget_looks();
            return Rest::NONE;
        }
        let now_ns = self.clock().now_ns();
        self.show(now_ns);
        let rest = self.with_waiter(&(), |waiter, parts| waiter.rest(parts, now_ns));
        if rest.waits && !self.clock().is_real() {
            // Virtual time passes while the thread looks, not while it sleeps.
            return Rest { until_ns: 0, ..rest };
        }
        if rest.waits && self.clock().steps_device() {
            // The device does nothing while the thread sleeps by another clock.
            let idle_ns = self.clock().idle_for_ns().unwrap_or(UNFETCHED_NS);
            return Rest { until_ns: rest.until_ns.min(now_ns + idle_ns), ..rest };
        }
        rest
    }

    /// Starts timing `slot`, whose command has been sent and is waited for by `policy`.
    #[inline(never)]
    pub(super) fn start_timed(&mut self, slot: u16, policy: Policy) {
        let entry = self.table.get_mut(slot);
        let (op, bytes) = (entry.op, entry.buf_mut().map_or(0, |buf| buf.len() as u64));
        let class = self.table.class(op, bytes, self.table.active());
        if !self.waiter.wants_time(policy, class) {
            return;
        }
        self.table.get_mut(slot).policy = policy;
        let now_ns = self.clock().now_ns();
        self.table.take_time(slot, class, now_ns);
        self.show(now_ns);
    }

    /// Starts timing `slot`. Returns the current time.
    #[inline]
    pub(super) fn take_time(&mut self, slot: u16, op: Op, bytes: u64) -> u64 {
        let class = self.table.class(op, bytes, self.table.active());
        let now_ns = self.clock().now_ns();
        self.table.take_time(slot, class, now_ns);
        now_ns
    }

    /// Checks deadlines, for callers that only poll. It reads the clock.
    #[cold]
    #[inline(never)]
    pub(super) fn tick(&mut self) {
        let Self { table, ns, polled, interrupt, .. } = &mut *self;
        polled.tick(table, ns);
        if let Some(queue) = interrupt {
            queue.tick(table, ns);
        }
        self.learn();
    }
}
