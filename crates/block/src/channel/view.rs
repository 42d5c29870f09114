//! One or both of a channel's queues with the table of its requests, as the gap sees them.

use super::super::probe::Probe;
use super::super::request_table::{RequestTable, Requests};
use meantime_completion::Source;
use meantime_hw::clock::thread_cpu_ns;
use meantime_nvme::{IoQueue, NamespaceInfo};
use rustix::thread::sched_getcpu;

/// A queue and the table of its requests, as the gap sees them, with the probe of the wait.
pub(super) struct View<'a, P> {
    pub(super) pair: &'a mut IoQueue,
    pub(super) table: &'a mut RequestTable,
    pub(super) ns: &'a NamespaceInfo,
    pub(super) probe: &'a P,
}

/// The turns of the device's thread, if that last ran on this thread's CPU.
fn heartbeat_here(pair: &IoQueue) -> Option<u64> {
    let heartbeat = pair.controller().heartbeat()?;
    (heartbeat.cpu as usize == sched_getcpu()).then_some(heartbeat.turns)
}

/// The result of a tick: a probe that stops the wait counts as an ended command.
fn ended_or_stop(ended: usize, probe: &impl Probe) -> usize {
    if ended == 0 && probe.stops() { 1 } else { ended }
}

impl<P: Probe> Source for View<'_, P> {
    #[inline(always)]
    fn reap(&mut self) -> usize {
        let Self { pair, table, probe, .. } = self;
        pair.reap(|requester, outcome| {
            probe.seen();
            table.complete(requester, outcome);
        })
    }

    #[inline(always)]
    fn has_completion(&self) -> bool {
        self.pair.has_completion()
    }

    fn tick(&mut self, now_ns: u64) -> usize {
        let Self { pair, table, ns, probe } = self;
        let ended = pair.tick(now_ns, &mut Requests { table, ns });
        table.free_dropped();
        ended_or_stop(ended, *probe)
    }

    fn tick_interval_ns(&self) -> u64 {
        self.pair.look_interval_ns()
    }

    /// A waiting thread reads the clock between its looks, so this is where it receives what has
    /// come.
    fn now_ns(&self) -> u64 {
        self.pair.progress();
        self.pair.clock().now_ns()
    }

    fn sleep_ns(&self, duration_ns: u64) {
        self.pair.sleep_ns(duration_ns);
        self.probe.woken();
    }

    fn wait_interrupt(&self, timeout_ns: u64) -> bool {
        let has_interrupt = self.pair.wait_interrupt(timeout_ns);
        if has_interrupt {
            self.probe.woken();
        }
        has_interrupt
    }

    fn cpu_ns(&self) -> u64 {
        if self.pair.clock().is_real() { thread_cpu_ns() } else { 0 }
    }

    fn heartbeat_here(&self) -> Option<u64> {
        heartbeat_here(self.pair)
    }

    fn share_cpu(&self) {
        self.pair.controller().share_cpu();
    }
}

/// Two queues at once.
pub(super) struct Both<'a, P> {
    pub(super) polled: &'a mut IoQueue,
    pub(super) interrupt: &'a mut IoQueue,
    pub(super) table: &'a mut RequestTable,
    pub(super) ns: &'a NamespaceInfo,
    pub(super) probe: &'a P,
}

impl<P: Probe> Source for Both<'_, P> {
    fn reap(&mut self) -> usize {
        let Self { polled, interrupt, table, .. } = self;
        let mut end = |requester, outcome| {
            table.complete(requester, outcome);
        };
        polled.reap(&mut end) + interrupt.reap(&mut end)
    }

    fn has_completion(&self) -> bool {
        self.polled.has_completion() || self.interrupt.has_completion()
    }

    fn tick(&mut self, now_ns: u64) -> usize {
        let Self { polled, interrupt, table, ns, probe } = self;
        let mut requests = Requests { table, ns };
        let ended = polled.tick(now_ns, &mut requests) + interrupt.tick(now_ns, &mut requests);
        requests.table.free_dropped();
        ended_or_stop(ended, *probe)
    }

    fn tick_interval_ns(&self) -> u64 {
        self.polled.look_interval_ns().min(self.interrupt.look_interval_ns())
    }

    fn now_ns(&self) -> u64 {
        self.polled.progress();
        self.interrupt.progress();
        self.polled.clock().now_ns()
    }

    fn sleep_ns(&self, duration_ns: u64) {
        self.polled.clock().sleep_ns(duration_ns);
    }

    fn wait_interrupt(&self, _: u64) -> bool {
        false
    }

    fn heartbeat_here(&self) -> Option<u64> {
        heartbeat_here(self.polled)
    }

    fn share_cpu(&self) {
        self.polled.controller().share_cpu();
    }
}
