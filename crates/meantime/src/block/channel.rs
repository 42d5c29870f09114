//! A channel to an NVMe namespace: a pair of queues, one polled and one with an interrupt, and the slots of its requests.

use std::collections::VecDeque;

use super::device::BlockInfo;
use super::lbio::{Claim, Table};
use super::request::{BlockChannel, Done, Rejected, Request, SubmitError, Ticket};
use crate::completion::{Gap, GapCounters, Policy, Source};
use crate::hw::{Clock, DmaBuf, DmaHeap, HwError};
use crate::nvme::io_queue::StageError;
use crate::nvme::{CommandError, IoQueue, NamespaceInfo, Op, QueueCounters};

/// What a channel has seen.
#[derive(Debug, Clone, Copy, Default)]
pub struct ChannelCounters {
    /// Of the polled queue.
    pub polled: QueueCounters,
    /// Waits on the polled queue.
    pub polled_waits: GapCounters,
    /// Of the queue with an interrupt, if there is one.
    pub interrupt: Option<QueueCounters>,
    /// Waits on that.
    pub interrupt_waits: GapCounters,
}

/// A queue and the state of waiting on it.
struct Lane {
    queue: IoQueue,
    gap: Gap,
}

/// One thread's way to an NVMe namespace.
///
/// An SQ is bound to one CQ, and whether a CQ interrupts is fixed when it is created; so that a polled I/O never pays for an
/// interrupt, there are two queue pairs, and each request's policy chooses one at submission.
pub struct NvmeChannel {
    ns: NamespaceInfo,
    info: BlockInfo,
    heap: DmaHeap,
    polled: Lane,
    interrupt: Option<Lane>,
    table: Table,
    /// Requests with commands still to be sent, since a queue was full or had to be recreated.
    backlog: VecDeque<u16>,
    policy: Policy,
    plugged: bool,
    has_write_zeroes: bool,
    has_deallocate: bool,
}

/// A lane and the table its completions go to, as the gap sees them.
struct View<'a> {
    queue: &'a mut IoQueue,
    table: &'a mut Table,
}

impl Source for View<'_> {
    #[inline(always)]
    fn reap(&mut self) -> usize {
        let Self { queue, table } = self;
        queue.reap(|owner, outcome| table.complete(owner, outcome))
    }

    #[inline(always)]
    fn has_completion(&self) -> bool {
        self.queue.has_completion()
    }

    fn tick(&mut self, now_ns: u64) -> usize {
        let Self { queue, table } = self;
        queue.tick(now_ns, &mut |owner, outcome| table.complete(owner, outcome))
    }

    fn tick_interval_ns(&self) -> u64 {
        self.queue.sweep_interval_ns()
    }

    fn now_ns(&self) -> u64 {
        self.queue.clock().now_ns()
    }

    fn sleep_ns(&self, duration_ns: u64) {
        self.queue.clock().sleep_ns(duration_ns);
    }

    fn wait_interrupt(&self, timeout_ns: u64) -> bool {
        match self.queue.event() {
            Some(event) => {
                self.queue.clock().wait_event(event, timeout_ns);
                true
            }
            None => false,
        }
    }
}

impl NvmeChannel {
    pub(crate) fn new(
        info: BlockInfo,
        ns: NamespaceInfo,
        polled: IoQueue,
        interrupt: Option<IoQueue>,
        depth: u16,
        policy: Policy,
    ) -> Self {
        let controller = polled.controller();
        let (has_write_zeroes, has_deallocate) = (controller.has_write_zeroes(), controller.has_deallocate());
        let heap = controller.heap().clone();
        let lane = |queue| Lane { queue, gap: Gap::default() };
        Self {
            ns,
            info,
            heap,
            polled: lane(polled),
            interrupt: interrupt.map(lane),
            table: Table::new(depth),
            backlog: VecDeque::with_capacity(usize::from(depth)),
            policy,
            plugged: false,
            has_write_zeroes,
            has_deallocate,
        }
    }

    /// What was counted so far.
    pub fn counters(&self) -> ChannelCounters {
        ChannelCounters {
            polled: self.polled.queue.counters(),
            polled_waits: self.polled.gap.counters(),
            interrupt: self.interrupt.as_ref().map(|lane| lane.queue.counters()),
            interrupt_waits: self.interrupt.as_ref().map(|lane| lane.gap.counters()).unwrap_or_default(),
        }
    }

    /// How long a wait may spin before it stops burning the CPU.
    pub fn set_spin_budget_ns(&mut self, budget_ns: u64) {
        self.polled.gap.set_spin_budget_ns(budget_ns);
    }

    /// The mean device time in ns that the policy `hybrid` goes by at present; 0 while it has none.
    pub fn mean_device_time_ns(&self) -> u64 {
        self.polled.gap.mean().mean_ns()
    }

    /// How many requests can be under way.
    pub fn depth(&self) -> u16 {
        self.table.depth()
    }

    /// The clock that this device's time is measured by.
    pub fn clock(&self) -> &Clock {
        self.polled.queue.clock()
    }

    /// Checks what the caller can get wrong; the number of blocks.
    #[inline(always)]
    fn check(&self, request: &Request, policy: Policy) -> Result<u64, SubmitError> {
        if self.table.is_full() {
            return Err(SubmitError::Full { depth: self.table.depth() });
        }
        if policy.wants_interrupt() && self.interrupt.is_none() {
            return Err(SubmitError::NoInterrupt);
        }
        let blocks = match (request.op, &request.buf) {
            (Op::Read | Op::Write, Some(buf)) => {
                let block_mask = (1usize << self.ns.block_shift) - 1;
                if buf.is_empty() || buf.len() & block_mask != 0 {
                    let block_bytes = self.ns.block_bytes();
                    return Err(SubmitError::PartialBlock { bytes: buf.len(), block_bytes });
                }
                if !buf.is_of(&self.heap) {
                    return Err(SubmitError::ForeignBuffer);
                }
                (buf.len() >> self.ns.block_shift) as u64
            }
            (Op::Read | Op::Write, None) => return Err(SubmitError::Buffer),
            (_, Some(_)) => return Err(SubmitError::Buffer),
            (Op::Flush, None) => return Ok(0),
            (Op::WriteZeroes, None) if !self.has_write_zeroes => {
                return Err(SubmitError::Unsupported("Write Zeroes"));
            }
            (Op::Deallocate, None) if !self.has_deallocate => {
                return Err(SubmitError::Unsupported("Dataset Management (deallocate)"));
            }
            (Op::WriteZeroes | Op::Deallocate, None) if request.blocks == 0 => return Err(SubmitError::Empty),
            (Op::WriteZeroes | Op::Deallocate, None) => request.blocks,
        };
        // Written so that it cannot overflow.
        if blocks > self.ns.blocks || request.lba > self.ns.blocks - blocks {
            return Err(SubmitError::OutOfRange { lba: request.lba, blocks, size: self.ns.blocks });
        }
        Ok(blocks)
    }

    #[inline(always)]
    #[allow(clippy::result_large_err)]
    fn start(&mut self, request: Request, claim: Claim) -> Result<u16, Rejected> {
        let policy = request.policy.unwrap_or(self.policy);
        let blocks = match self.check(&request, policy) {
            Ok(blocks) => blocks,
            Err(error) => return Err(Rejected { error, request }),
        };
        let slot = self.table.insert(request, blocks, policy, claim);
        if policy.wants_times() {
            self.table.get_mut(slot).submitted_ns = self.polled.queue.clock().now_ns();
        }
        if !self.backlog.is_empty() || !self.send(slot) {
            // Behind those that were there before.
            self.backlog.push_back(slot);
            self.send_backlog();
        }
        if !self.plugged {
            self.lane(policy).queue.ring_doorbell();
        }
        Ok(slot)
    }

    #[inline(always)]
    fn lane(&mut self, policy: Policy) -> &mut Lane {
        match &mut self.interrupt {
            Some(lane) if policy.wants_interrupt() => lane,
            _ => &mut self.polled,
        }
    }

    /// Stages commands of `slot` until it has no more (true) or its queue takes no more (false).
    #[inline(always)]
    fn send(&mut self, slot: u16) -> bool {
        let Self { table, polled, interrupt, ns, .. } = self;
        let lbio = table.get_mut(slot);
        let queue = match interrupt {
            Some(lane) if lbio.policy.wants_interrupt() => &mut lane.queue,
            _ => &mut polled.queue,
        };
        loop {
            let command = lbio.next_command(ns);
            match queue.stage(slot, &command) {
                Ok(()) => lbio.sent(&command),
                Err(StageError::Full(_) | StageError::Stale) => return false,
            }
            if !lbio.has_more() {
                return true;
            }
        }
    }

    /// Sends on what could not be sent before. A request whose queue is lost fails.
    #[cold]
    #[inline(never)]
    fn send_backlog(&mut self) {
        while let Some(&slot) = self.backlog.front() {
            if self.table.is_done(slot) || !self.table.get(slot).has_more() || self.send(slot) {
                self.backlog.pop_front();
                continue;
            }
            let policy = self.table.get(slot).policy;
            let now_ns = self.clock().now_ns();
            let Self { table, polled, interrupt, .. } = self;
            let queue = match interrupt {
                Some(lane) if policy.wants_interrupt() => &mut lane.queue,
                _ => &mut polled.queue,
            };
            // Tell the device of what was staged, or it would never make room.
            queue.ring_doorbell();
            if queue.in_flight() == queue.slots() {
                return;
            }
            // Not full: stale. Catch up with the reset.
            queue.check(now_ns, &mut |owner, outcome| table.complete(owner, outcome));
            if queue.usable().is_err() {
                let controller = queue.controller();
                // What was never sent the device never knew: the buffer is safe, unless another part of it was sent.
                let error = match controller.gone() {
                    Some(_) => CommandError::Gone { memory_released: true },
                    None => CommandError::Reset,
                };
                table.cancel_rest(slot, error);
                self.backlog.pop_front();
            }
        }
    }

    /// After something ended: room for what waits.
    #[inline(always)]
    fn after_reap(&mut self) {
        if !self.backlog.is_empty() {
            self.send_backlog();
            self.ring_all();
        }
    }

    #[inline(always)]
    fn ring_all(&mut self) {
        self.polled.queue.ring_doorbell();
        if let Some(lane) = &mut self.interrupt {
            lane.queue.ring_doorbell();
        }
    }

    /// Waits until something ended on the lane of `slot`, sleeping only if its request has not slept yet.
    #[inline(always)]
    fn wait_on(&mut self, slot: u16, policy: Policy) {
        let first_wait = !std::mem::replace(&mut self.table.get_mut(slot).slept, true);
        let Self { table, polled, interrupt, .. } = self;
        let lane = match interrupt {
            Some(lane) if policy.wants_interrupt() => lane,
            _ => polled,
        };
        if lane.queue.in_flight() > 0 {
            lane.gap.wait(&mut View { queue: &mut lane.queue, table }, policy, first_wait);
        }
        self.after_reap();
    }

    /// The result of an ended request, whose time is taken in if its policy goes by that.
    #[inline(always)]
    fn finish(&mut self, slot: u16) -> Done {
        let (submitted_ns, policy) = (self.table.get(slot).submitted_ns, self.table.get(slot).policy);
        if submitted_ns != 0 {
            let lane = self.lane(policy);
            let now_ns = lane.queue.clock().now_ns();
            lane.gap.record(now_ns.saturating_sub(submitted_ns), now_ns);
        }
        self.table.take(slot)
    }
}

impl BlockChannel for NvmeChannel {
    fn info(&self) -> &BlockInfo {
        &self.info
    }

    fn alloc(&self, bytes: usize) -> Result<DmaBuf, HwError> {
        self.heap.alloc(bytes)
    }

    #[inline]
    fn submit(&mut self, request: Request) -> Result<Ticket, Rejected> {
        let slot = self.start(request, Claim::Ticket)?;
        Ok(Ticket { slot, generation: self.table.generation(slot) })
    }

    #[inline]
    fn enqueue(&mut self, request: Request) -> Result<(), Rejected> {
        self.start(request, Claim::Queue).map(|_| ())
    }

    #[inline]
    fn plug(&mut self) {
        self.plugged = true;
    }

    #[inline]
    fn unplug(&mut self) {
        self.plugged = false;
        self.ring_all();
    }

    #[inline]
    fn poll(&mut self) -> usize {
        self.ring_all();
        let before = self.table.ended;
        let Self { table, polled, interrupt, .. } = &mut *self;
        View { queue: &mut polled.queue, table }.reap();
        if let Some(lane) = interrupt {
            View { queue: &mut lane.queue, table }.reap();
        }
        self.after_reap();
        if self.table.ended == before && self.table.active() > 0 {
            self.tick();
        }
        (self.table.ended - before) as usize
    }

    #[inline]
    fn wait(&mut self, ticket: Ticket) -> Done {
        let (slot, generation) = ticket.redeem();
        self.table.check(slot, generation);
        self.ring_all();
        let policy = self.table.get(slot).policy;
        while !self.table.is_done(slot) {
            self.wait_on(slot, policy);
        }
        self.finish(slot)
    }

    fn try_take(&mut self, ticket: Ticket) -> Result<Done, Ticket> {
        self.table.check(ticket.slot, ticket.generation);
        if !self.table.is_done(ticket.slot) {
            return Err(ticket);
        }
        let (slot, _) = ticket.redeem();
        Ok(self.finish(slot))
    }

    fn detach(&mut self, ticket: Ticket) {
        let (slot, generation) = ticket.redeem();
        self.table.check(slot, generation);
        self.table.detach(slot);
    }

    #[inline]
    fn next_done(&mut self) -> Option<Done> {
        let slot = self.table.pop_done()?;
        Some(self.finish(slot))
    }

    #[inline]
    fn wait_done(&mut self) -> Option<Done> {
        self.ring_all();
        loop {
            if let Some(slot) = self.table.pop_done() {
                return Some(self.finish(slot));
            }
            if self.table.queued() == 0 {
                return None;
            }
            let (policy, slot) = self.table.queued_policy()?;
            self.wait_on(slot, policy);
        }
    }

    fn in_flight(&self) -> usize {
        self.table.active()
    }

    fn policy(&self) -> Policy {
        self.policy
    }

    fn set_policy(&mut self, policy: Policy) -> Result<(), SubmitError> {
        if policy.wants_interrupt() && self.interrupt.is_none() {
            return Err(SubmitError::NoInterrupt);
        }
        self.policy = policy;
        Ok(())
    }
}

impl NvmeChannel {
    /// Deadlines, for callers that only ever poll. Looks at the clock.
    #[cold]
    #[inline(never)]
    fn tick(&mut self) {
        let now_ns = self.clock().now_ns();
        let Self { table, polled, interrupt, .. } = &mut *self;
        View { queue: &mut polled.queue, table }.tick(now_ns);
        if let Some(lane) = interrupt {
            View { queue: &mut lane.queue, table }.tick(now_ns);
        }
        self.after_reap();
    }
}

impl Drop for NvmeChannel {
    fn drop(&mut self) {
        // Buffers leave their slots only when the device is done with them (ARCHITECTURE.md §3).
        let Self { table, polled, interrupt, backlog, .. } = self;
        for slot in backlog.drain(..) {
            table.cancel_rest(slot, CommandError::Reset);
        }
        for lane in [Some(polled), interrupt.as_mut()].into_iter().flatten() {
            lane.queue.drain(&mut |owner, outcome| table.complete(owner, outcome));
        }
        debug_assert_eq!(table.active(), 0);
    }
}
