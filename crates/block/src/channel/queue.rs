//! One of a channel's queues, and what waits for it.

use std::collections::VecDeque;

use super::super::lbio::{Requests, Table};
use super::view::View;
use meantime_completion::{Gap, Source, WaitPlan};
use meantime_nvme::queue::Tag;
use meantime_nvme::{CommandError, IoQueue, NamespaceInfo, Op};

/// A queue, and what waits to be sent to it.
pub(super) struct Queue {
    pub(super) pair: IoQueue,
    /// Requests with commands still to be sent, since the queue was full or had to be recreated;
    /// each at most once.
    pub(super) backlog: VecDeque<u16>,
}

impl Queue {
    /// Stages commands of `slot` until it has no more (true) or the queue takes no more (false).
    #[inline(always)]
    pub(super) fn send(&mut self, table: &mut Table, ns: &NamespaceInfo, slot: u16) -> bool {
        let lbio = table.get_mut(slot);
        if lbio.covers_other_than(self.pair.controller()) {
            table.cancel_rest(slot, CommandError::CacheLost);
            return true;
        }
        if lbio.op == Op::CompareAndWrite {
            return self.send_pair(table, ns, slot);
        }
        while lbio.has_more() {
            // The first command goes in the request's own slot.
            let own = lbio.own_slot_free && self.pair.is_current();
            let tag = if own { Some(Tag::assigned(slot)) } else { self.pair.take_tag() };
            let Some(tag) = tag else { return false };
            lbio.own_slot_free = false;
            self.pair.stage_kept(tag, slot, &lbio.emit(ns));
        }
        true
    }

    /// The same for a fused pair: both commands or none.
    #[cold]
    fn send_pair(&mut self, table: &mut Table, ns: &NamespaceInfo, slot: u16) -> bool {
        let lbio = table.get_mut(slot);
        if !lbio.has_more() {
            return true;
        }
        let sent = lbio.own_slot_free
            && self.pair.is_current()
            && self.pair.stage_pair(Tag::assigned(slot), slot, &lbio.pair(ns));
        if sent {
            lbio.pair_sent();
        }
        sent
    }

    /// Sends on what could not be sent before. A request whose queue is lost fails.
    #[cold]
    #[inline(never)]
    pub(super) fn send_backlog(&mut self, table: &mut Table, ns: &NamespaceInfo) {
        while let Some(&slot) = self.backlog.front() {
            if self.send(table, ns, slot) {
                self.backlog.pop_front();
                table.release(slot);
                continue;
            }
            // Tell the device of what was staged, or it would never make room.
            self.pair.ring_doorbell();
            if self.pair.is_current() && self.pair.is_full() {
                return;
            }
            // Not full: stale. Catch up with the reset.
            let now_ns = self.pair.clock().now_ns();
            self.pair.check(now_ns, &mut Requests { table, ns });
            if self.pair.usable().is_err() {
                // What was never sent the device never knew: the buffer is safe, unless another
                // part of it was sent, and that part has failed with an error of its own.
                let error = match self.pair.controller().gone() {
                    Some(_) => CommandError::Gone { memory_released: true },
                    None => CommandError::Reset,
                };
                table.cancel_rest(slot, error);
            }
        }
        self.pair.ring_doorbell();
    }

    /// Sends what is in the backlog, since no caller would learn that it was not done: a write may
    /// have been detached. For as long as a command may take; what is left then is given up.
    pub(super) fn send_rest(
        &mut self,
        table: &mut Table,
        ns: &NamespaceInfo,
        gap: &mut Gap,
        plan: WaitPlan,
    ) {
        let clock = self.pair.clock().clone();
        let until_ns = clock.now_ns().saturating_add(8 * self.pair.sweep_interval_ns());
        while !self.backlog.is_empty() && clock.now_ns() < until_ns {
            self.send_backlog(table, ns);
            if self.is_busy() && !self.backlog.is_empty() {
                gap.wait(&mut View { pair: &mut self.pair, table, ns, probe: &() }, plan);
            }
        }
        if !self.backlog.is_empty() {
            tracing::error!(
                requests = self.backlog.len(),
                "the channel ended before its requests were sent"
            );
        }
    }

    /// Whether anything is in flight.
    pub(super) fn is_busy(&self) -> bool {
        self.pair.in_flight() > 0
    }

    /// After something ended: there is room for what waits.
    #[inline(always)]
    pub(super) fn after_reap(&mut self, table: &mut Table, ns: &NamespaceInfo) {
        if !self.backlog.is_empty() {
            self.send_backlog(table, ns);
        }
    }

    /// Takes what has completed, and sends on.
    #[inline(always)]
    pub(super) fn reap(&mut self, table: &mut Table, ns: &NamespaceInfo) {
        View { pair: &mut self.pair, table, ns, probe: &() }.reap();
        self.after_reap(table, ns);
    }

    /// Deadlines and resets.
    pub(super) fn tick(&mut self, table: &mut Table, ns: &NamespaceInfo) {
        let now_ns = self.pair.clock().now_ns();
        View { pair: &mut self.pair, table, ns, probe: &() }.tick(now_ns);
        self.after_reap(table, ns);
    }
}
