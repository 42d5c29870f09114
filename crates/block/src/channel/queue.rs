//! One of a channel's queues, and its backlog.

use std::collections::VecDeque;

use super::super::request_table::{RequestTable, Requests};
use super::view::View;
use meantime_completion::{Gap, Source, WaitPlan};
use meantime_nvme::queue::Tag;
use meantime_nvme::{CommandError, IoQueue, NamespaceInfo, Op};

/// A queue, and the requests that wait to be sent on it.
pub(super) struct Queue {
    pub(super) pair: IoQueue,
    /// Requests with unsent commands, because the queue was full or being recreated; each at most
    /// once.
    pub(super) backlog: VecDeque<u16>,
}

impl Queue {
    /// Stages commands of `slot`. Returns true when none is left, and false if the queue accepts no
    /// more.
    #[inline(always)]
    pub(super) fn send(&mut self, table: &mut RequestTable, ns: &NamespaceInfo, slot: u16) -> bool {
        let entry = table.get_mut(slot);
        if entry.covers_other_than(self.pair.controller()) {
            table.cancel_rest(slot, CommandError::CacheLost);
            return true;
        }
        if entry.op == Op::CompareAndWrite {
            return self.send_pair(table, ns, slot);
        }
        while entry.has_more() {
            // The first command goes in the request's own slot, and so does a later one while none
            // is in flight. In that case a queue needs no other slots.
            let own = entry.is_own_slot_free() && self.pair.is_current();
            let tag = if own { Some(Tag::assigned(slot)) } else { self.pair.take_tag() };
            let Some(tag) = tag else { return false };
            entry.own_slot_free = false;
            self.pair.stage_kept(tag, slot, &entry.emit(ns));
        }
        true
    }

    /// Stages a fused pair: both commands or none. Returns true if they are staged.
    #[cold]
    fn send_pair(&mut self, table: &mut RequestTable, ns: &NamespaceInfo, slot: u16) -> bool {
        let entry = table.get_mut(slot);
        if !entry.has_more() {
            return true;
        }
        let sent = entry.own_slot_free
            && self.pair.is_current()
            && self.pair.stage_pair(Tag::assigned(slot), slot, &entry.pair(ns));
        if sent {
            entry.pair_sent();
        }
        sent
    }

    /// Sends the backlog. A request whose queue is lost fails.
    #[cold]
    #[inline(never)]
    pub(super) fn send_backlog(&mut self, table: &mut RequestTable, ns: &NamespaceInfo) {
        while let Some(&slot) = self.backlog.front() {
            if self.send(table, ns, slot) {
                self.backlog.pop_front();
                table.release(slot);
                continue;
            }
            // This announces staged commands; the device would otherwise never make room.
            self.pair.ring_doorbell();
            if self.pair.is_current() && self.pair.is_full() {
                return;
            }
            // The queue is not full but outdated, so this handles the reset.
            let now_ns = self.pair.clock().now_ns();
            self.pair.check(now_ns, &mut Requests { table, ns });
            if self.pair.usable().is_err() {
                // The device never saw unsent commands, so the buffer is safe, unless another part
                // of it was sent and has failed with its own error.
                let error = match self.pair.controller().gone() {
                    Some(_) => CommandError::Gone { memory_released: true },
                    None => CommandError::Reset,
                };
                table.cancel_rest(slot, error);
            }
        }
        self.pair.ring_doorbell();
    }

    /// Sends the backlog when the channel is dropped: a write may have been detached, and no caller
    /// would learn that it was not executed. Gives up after the time that a command may take.
    pub(super) fn send_rest(
        &mut self,
        table: &mut RequestTable,
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

    /// Whether commands are in flight.
    pub(super) fn is_busy(&self) -> bool {
        self.pair.in_flight() > 0
    }

    /// Called after completions: there may be room for the backlog.
    #[inline(always)]
    pub(super) fn after_reap(&mut self, table: &mut RequestTable, ns: &NamespaceInfo) {
        if !self.backlog.is_empty() {
            self.send_backlog(table, ns);
        }
    }

    /// Reaps completions, and sends the backlog.
    #[inline(always)]
    pub(super) fn reap(&mut self, table: &mut RequestTable, ns: &NamespaceInfo) {
        self.pair.progress();
        View { pair: &mut self.pair, table, ns, probe: &() }.reap();
        self.after_reap(table, ns);
    }

    /// Checks deadlines and resets.
    pub(super) fn tick(&mut self, table: &mut RequestTable, ns: &NamespaceInfo) {
        let now_ns = self.pair.clock().now_ns();
        View { pair: &mut self.pair, table, ns, probe: &() }.tick(now_ns);
        self.after_reap(table, ns);
    }
}
