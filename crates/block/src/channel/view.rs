//! The lanes and requests of a channel, as its waiter sees them.

use super::super::lbio::{Requests, Table};
use super::super::probe::Probe;
use super::lane::Lane;
use meantime_completion::Source;
use meantime_completion::waiter::{InFlight, Queues, Timed};
use meantime_hw::clock::thread_cpu_ns;
use meantime_nvme::{IoQueue, NamespaceInfo};

/// A channel's queues and requests, lent to its waiter; and what watches the wait.
pub(super) struct Parts<'p, P> {
    pub(super) polled: &'p mut Lane,
    pub(super) interrupt: &'p mut Option<Lane>,
    pub(super) table: &'p mut Table,
    pub(super) ns: &'p NamespaceInfo,
    pub(super) probe: &'p P,
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
        let lane = match &mut *self.interrupt {
            Some(lane) if interrupted => lane,
            _ => &mut *self.polled,
        };
        View { queue: &mut lane.queue, table: self.table, ns: self.ns, probe: self.probe }
    }

    fn both(&mut self) -> Option<Both<'_, P>> {
        let Self { polled, interrupt, table, ns, probe } = self;
        let interrupt = &mut interrupt.as_mut()?.queue;
        Some(Both { polled: &mut polled.queue, interrupt, table, ns, probe })
    }

    #[inline(always)]
    fn is_busy(&self, interrupted: bool) -> bool {
        match &*self.interrupt {
            Some(lane) if interrupted => lane.is_busy(),
            _ => !interrupted && self.polled.is_busy(),
        }
    }

    #[inline(always)]
    fn refill(&mut self, interrupted: bool) {
        match &mut *self.interrupt {
            Some(lane) if interrupted => lane.after_reap(self.table, self.ns),
            _ => self.polled.after_reap(self.table, self.ns),
        }
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
        self.polled.queue.clock().now_ns()
    }
}

/// A lane and the table its completions go to, as the gap sees them; and who is told what happens
/// on the way.
pub(super) struct View<'a, P> {
    pub(super) queue: &'a mut IoQueue,
    pub(super) table: &'a mut Table,
    pub(super) ns: &'a NamespaceInfo,
    pub(super) probe: &'a P,
}

/// What a tick returns: to a wait, being told to stop is as good as something that ended.
fn ended_or_stop(ended: usize, probe: &impl Probe) -> usize {
    if ended == 0 && probe.stops() { 1 } else { ended }
}

impl<P: Probe> Source for View<'_, P> {
    #[inline(always)]
    fn reap(&mut self) -> usize {
        let Self { queue, table, probe, .. } = self;
        queue.reap(|owner, outcome| {
            probe.seen();
            table.complete(owner, outcome);
        })
    }

    #[inline(always)]
    fn has_completion(&self) -> bool {
        self.queue.has_completion()
    }

    fn tick(&mut self, now_ns: u64) -> usize {
        let Self { queue, table, ns, probe } = self;
        let ended = queue.tick(now_ns, &mut Requests { table, ns });
        ended_or_stop(ended, *probe)
    }

    fn tick_interval_ns(&self) -> u64 {
        self.queue.look_interval_ns()
    }

    fn now_ns(&self) -> u64 {
        self.queue.clock().now_ns()
    }

    fn sleep_ns(&self, duration_ns: u64) {
        self.queue.clock().sleep_ns(duration_ns);
        self.probe.woken();
    }

    fn wait_interrupt(&self, timeout_ns: u64) -> bool {
        match self.queue.event() {
            Some(event) => {
                self.queue.clock().wait_event(event, timeout_ns);
                self.probe.woken();
                true
            }
            None => false,
        }
    }

    fn cpu_ns(&self) -> u64 {
        if self.queue.clock().is_real() { thread_cpu_ns() } else { 0 }
    }
}

/// Two lanes at once.
pub(super) struct Both<'a, P> {
    pub(super) polled: &'a mut IoQueue,
    pub(super) interrupt: &'a mut IoQueue,
    pub(super) table: &'a mut Table,
    pub(super) ns: &'a NamespaceInfo,
    pub(super) probe: &'a P,
}

impl<P: Probe> Source for Both<'_, P> {
    fn reap(&mut self) -> usize {
        let Self { polled, interrupt, table, .. } = self;
        polled.reap(|owner, outcome| table.complete(owner, outcome))
            + interrupt.reap(|owner, outcome| table.complete(owner, outcome))
    }

    fn has_completion(&self) -> bool {
        self.polled.has_completion() || self.interrupt.has_completion()
    }

    fn tick(&mut self, now_ns: u64) -> usize {
        let Self { polled, interrupt, table, ns, probe } = self;
        let mut requests = Requests { table, ns };
        let ended = polled.tick(now_ns, &mut requests) + interrupt.tick(now_ns, &mut requests);
        ended_or_stop(ended, *probe)
    }

    fn tick_interval_ns(&self) -> u64 {
        self.polled.look_interval_ns().min(self.interrupt.look_interval_ns())
    }

    fn now_ns(&self) -> u64 {
        self.polled.clock().now_ns()
    }

    fn sleep_ns(&self, duration_ns: u64) {
        self.polled.clock().sleep_ns(duration_ns);
    }

    fn wait_interrupt(&self, _: u64) -> bool {
        false
    }
}
