//! A channel to an NVMe namespace: a polled queue, an optional queue with an interrupt, and the
//! slots of its requests.

mod queue;
mod telemetry;
mod view;
mod wait;

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd};

use super::device::{BlockChannel, BlockInfo};
use super::error::SubmitError;
use super::group::GroupChannel;
use super::probe::{Probe, Until};
use super::request::{Done, Rejected, Request, Ticket};
use super::request_table::{Recipient, RequestTable, Requests};
use meantime_completion::adaptive::{Estimate, SleepCosts};
use meantime_completion::telemetry::Telemetry;
use meantime_completion::waiter::{Rest, Waiter};
use meantime_completion::{GapCounters, OffQueue, Policy, WaitPlan};
use meantime_hw::dma::Iova;
use meantime_hw::{Clock, DmaBuf, DmaHeap, EventFd, HwError};
use meantime_nvme::queue::Tag;
use meantime_nvme::{Command, CommandError, IoQueue, NamespaceInfo, Op, QueueCounters};
use queue::Queue;

/// The counters of a channel.
#[derive(Debug, Clone, Copy, Default)]
pub struct ChannelCounters {
    /// Counters of the polled queue.
    pub polled: QueueCounters,
    /// Waits on the polled queue.
    pub polled_waits: GapCounters,
    /// Counters of the queue with an interrupt, if there is one.
    pub interrupt: Option<QueueCounters>,
    /// Waits on the queue with an interrupt.
    pub interrupt_waits: GapCounters,
}

/// Bytes of a page-aligned buffer that PRP1 and PRP2 cover without a list.
const TWO_PAGES: u32 = 8192;

/// The policy of an I/O of `poll` whose device time is measured: a planned sleep of 0 ns polls at
/// once, too, but on the path that reads the clock. Such an I/O is one of those, one in some
/// hundred, that check deadlines anyway, so the others pay nothing for the mean device time.
const POLL_TIMED: Policy = Policy::HybridFixed(0);

/// One thread's channel to an NVMe namespace.
///
/// An SQ is bound to one CQ, and whether a CQ interrupts is fixed when it is created. So that a
/// polled I/O never pays for an interrupt, there are two queue pairs, and each request's policy
/// chooses one at submission.
pub struct NvmeChannel {
    ns: NamespaceInfo,
    info: BlockInfo,
    heap: DmaHeap,
    polled: Queue,
    interrupt: Option<Queue>,
    table: RequestTable,
    waiter: Waiter,
    telemetry: Telemetry,
    policy: Policy,
    /// The most blocks that always fit in one command, at most the namespace's size; 0 if that
    /// depends on the address.
    single_blocks: u32,
    /// As `single_blocks`; also 0 while polled I/O is timed, so that none takes the untimed path.
    untimed_blocks: u32,
    /// Block size minus one.
    block_mask: u32,
    /// Optional commands of the device.
    oncs: u16,
    /// The device's count of volatile cache losses that a flush of this channel last read.
    cache_losses: u32,
}

impl NvmeChannel {
    pub(crate) fn new(
        info: BlockInfo,
        ns: NamespaceInfo,
        polled: IoQueue,
        interrupt: Option<IoQueue>,
        depth: u16,
        said: Option<Policy>,
    ) -> Self {
        let controller = polled.controller();
        let oncs = controller.info().oncs;
        let heap = controller.heap().clone();
        let cache_losses = controller.cache_losses_reported();
        let queue = |pair| Queue { pair, backlog: VecDeque::with_capacity(depth.into()) };
        // Virtual time has no wake-up lateness.
        let costs = (!polled.clock().is_real()).then(SleepCosts::none);
        let mut waiter = Waiter::new(costs);
        if interrupt.is_some() {
            waiter.allow_interrupts();
        }
        let policy = said.unwrap_or_default();
        // A program that did not ask for the default, and does little, measures nothing for it.
        if said.is_some() {
            waiter.prepare(policy);
        }
        let telemetry = Telemetry::new(&info.uri, policy, polled.clock().now_ns());
        let single_blocks = match ns.optimal_boundary_blocks {
            0 => u64::from(ns.max_blocks).min(ns.blocks) as u32,
            _ => 0,
        };
        // Transfers that need SGLs take the long path, so that the short one need not check.
        // Buffers begin at a page.
        let single_blocks = match polled.controller().uses_sgls() {
            true => single_blocks.min(TWO_PAGES >> ns.block_shift),
            false => single_blocks,
        };
        Self {
            ns,
            info,
            heap,
            waiter,
            telemetry,
            polled: queue(polled),
            interrupt: interrupt.map(queue),
            table: RequestTable::new(depth),
            policy,
            block_mask: ns.block_bytes() - 1,
            single_blocks,
            untimed_blocks: single_blocks,
            oncs,
            cache_losses,
        }
    }

    /// The counters so far.
    pub fn counters(&self) -> ChannelCounters {
        ChannelCounters {
            polled: self.polled.pair.counters(),
            polled_waits: self.waiter.counters(false),
            interrupt: self.interrupt.as_ref().map(|queue| queue.pair.counters()),
            interrupt_waits: self.waiter.counters(true),
        }
    }

    /// Sets how long a wait may spin before it stops using the CPU.
    pub fn set_spin_budget_ns(&mut self, budget_ns: u64) {
        self.waiter.set_spin_budget_ns(budget_ns);
    }

    /// The mean device time in ns that the policy `hybrid` currently uses; 0 while there is none.
    pub fn mean_device_time_ns(&self) -> u64 {
        self.waiter.mean_ns()
    }

    /// Waits as [`wait`](BlockChannel::wait) does, and calls `probe` on events of the wait.
    #[inline]
    pub fn wait_probed<P: Probe>(&mut self, ticket: Ticket, probe: &P) -> Done {
        let slot = self.table.redeem(ticket);
        if self.waiter.is_slow() {
            return self.wait_slow(slot, probe);
        }
        let entry = self.table.get(slot);
        let polled = entry.policy.is_poll();
        let done = entry.is_done() || polled && self.polls_until_done(slot, probe);
        if !done {
            self.wait_long(slot, probe);
        }
        self.table.take_done(slot)
    }

    /// The current estimate of the channel's policy; `None` if it does not estimate.
    pub fn estimate(&self) -> Option<Estimate> {
        self.waiter.estimate(self.policy)
    }

    /// The clock of this device's times.
    pub fn clock(&self) -> &Clock {
        self.polled.pair.clock()
    }

    /// Checks a request for caller errors.
    fn check(&self, request: &Request, policy: Policy) -> Result<(), SubmitError> {
        if policy.wants_interrupt() && self.interrupt.is_none() {
            return Err(SubmitError::NoInterrupt);
        }
        if let Some((bit, name)) = request.op.optional()
            && self.oncs & bit == 0
        {
            return Err(SubmitError::Unsupported(name));
        }
        let blocks = match (request.op, &request.buf) {
            (Op::CompareAndWrite, Some(buf)) => self.check_pair(buf)?,
            (op, Some(buf)) if op.has_data() => {
                let bytes = buf.transfer_bytes();
                if bytes == 0 || bytes as u32 & self.block_mask != 0 {
                    let block_bytes = self.ns.block_bytes();
                    return Err(SubmitError::PartialBlock { bytes, block_bytes });
                }
                if !buf.is_of(&self.heap) {
                    return Err(SubmitError::ForeignBuffer);
                }
                (bytes >> self.ns.block_shift) as u64
            }
            (Op::Flush, None) => return Ok(()),
            (op, buf) if op.has_data() || buf.is_some() => return Err(SubmitError::Buffer),
            _ if request.blocks == 0 => return Err(SubmitError::Empty),
            _ => request.blocks,
        };
        // Written so that it cannot overflow.
        if blocks > self.ns.blocks || request.lba > self.ns.blocks - blocks {
            return Err(SubmitError::OutOfRange { lba: request.lba, blocks, size: self.ns.blocks });
        }
        Ok(())
    }

    /// The blocks of a compare-and-write with `buf`.
    fn check_pair(&self, buf: &DmaBuf) -> Result<u64, SubmitError> {
        let most = self.ns.compare_write_blocks;
        if most == 0 {
            return Err(SubmitError::Unsupported("Compare and Write, fused"));
        }
        // A scattered buffer has no length of its own.
        let (bytes, block_bytes) = (buf.len(), self.ns.block_bytes());
        if bytes == 0 || !bytes.is_multiple_of(2 * block_bytes as usize) {
            return Err(SubmitError::Halves { bytes, block_bytes });
        }
        if !buf.is_of(&self.heap) {
            return Err(SubmitError::ForeignBuffer);
        }
        let blocks = (bytes / 2) as u64 >> self.ns.block_shift;
        if blocks > u64::from(most) {
            return Err(SubmitError::NotAtomic { blocks, most });
        }
        Ok(blocks)
    }

    /// Starts `request`, whose result goes to `to`, on the path of its policy.
    #[inline(always)]
    #[allow(clippy::result_large_err)]
    fn start(&mut self, request: Request, to: Recipient) -> Result<u16, Rejected> {
        self.start_polled::<false>(request, to)
    }

    /// Starts what the untimed common path does not: I/O that is timed, by `adaptive` or because
    /// there is work for its gap, and all that takes the long path. It is a function of its own
    /// because every register of the untimed path counts.
    #[inline(never)]
    #[allow(clippy::result_large_err)]
    fn start_timed_or_long(&mut self, request: Request, to: Recipient) -> Result<u16, Rejected> {
        let policy = request.policy.unwrap_or(self.policy);
        if self.waiter.polls_timed(policy) {
            return self.start_polled::<true>(request, to);
        }
        self.start_long(request, to)
    }

    /// The common path in one function: a read or write that is one command, on the polled queue,
    /// with room for it and an empty backlog. Everything else, including invalid requests, takes
    /// the long path. `TIMED` says whether the I/O is timed.
    #[inline(always)]
    #[allow(clippy::result_large_err)]
    fn start_polled<const TIMED: bool>(
        &mut self,
        request: Request,
        to: Recipient,
    ) -> Result<u16, Rejected> {
        let policy = request.policy.unwrap_or(self.policy);
        if !TIMED && !policy.is_poll() {
            return self.start_timed_or_long(request, to);
        }
        let Some(buf) = request.buf.as_ref().filter(|buf| buf.is_of(&self.heap)) else {
            return self.start_long(request, to);
        };
        // A scattered buffer has no length of its own, and so takes the long path.
        let (data, data_bytes) = (buf.iova(), buf.len() as u32);
        let nlb = data_bytes >> self.ns.block_shift;
        let Request { op, lba, fua, .. } = request;
        let most_blocks = if TIMED { self.single_blocks } else { self.untimed_blocks };
        let whole = data_bytes & self.block_mask == 0 && nlb.wrapping_sub(1) < most_blocks;
        // An underflow is harmless: `whole` bounds nlb by the namespace's size.
        let inside = lba <= self.ns.blocks.wrapping_sub(u64::from(nlb));
        let ready = self.polled.backlog.is_empty() && self.polled.pair.is_current();
        if !(op.is_common() && whole && inside && ready) {
            return if TIMED {
                self.start_long(request, to)
            } else {
                self.start_timed_or_long(request, to)
            };
        }
        let Some(slot) = self.table.take_free() else { return self.start_in(None, request, to) };
        self.table.fill(slot, request, 0, Policy::Poll, to);
        let (nsid, slba, second) = (self.ns.nsid, self.ns.first_lba + lba, Iova(0));
        let command = Command { op, nsid, slba, nlb, data, second, data_bytes, fua };
        // The command slot of this request slot: it has no other command, and no other request
        // uses it.
        self.polled.pair.stage_transfer(Tag::assigned(slot), slot, &command);
        if !self.waiter.is_plugged() {
            self.polled.pair.ring_now();
        }
        if TIMED {
            // In the gap, where it is free.
            self.start_timed(slot, policy);
        }
        Ok(slot)
    }

    #[inline(never)]
    #[allow(clippy::result_large_err)]
    fn start_long(&mut self, mut request: Request, to: Recipient) -> Result<u16, Rejected> {
        let policy = request.policy.unwrap_or(self.policy);
        let looked = match self.check(&request, policy).and_then(|()| self.make_current(policy)) {
            Ok(looked) => looked,
            Err(error) => return Err(Rejected { error, request }),
        };
        let slot = self.table.take_free();
        if looked
            && policy.is_poll()
            && slot.is_some()
            && self.waiter.take_sample(self.polled.pair.last_tick_ns())
        {
            request.policy = Some(POLL_TIMED);
        }
        self.start_in(slot, request, to)
    }

    /// Whether a request of `policy` goes to the queue with an interrupt.
    #[inline]
    fn goes_to_interrupt(&mut self, policy: Policy, op: Op, bytes: u64) -> bool {
        if !policy.may_interrupt() || self.interrupt.is_none() {
            return false;
        }
        let class = self.table.class(op, bytes, self.table.active() + 1);
        self.waiter.interrupts(policy, class)
    }

    /// Makes sure that the queues of `policy` accept commands: checks deadlines, and handles a
    /// reset. Returns whether a check was needed.
    fn make_current(&mut self, policy: Policy) -> Result<bool, SubmitError> {
        let mut looked = false;
        if !policy.wants_interrupt() {
            looked |= self.make_queue_current(false)?;
        }
        if policy.may_interrupt() && self.interrupt.is_some() {
            looked |= self.make_queue_current(true)?;
        }
        Ok(looked)
    }

    fn make_queue_current(&mut self, interrupt: bool) -> Result<bool, SubmitError> {
        let (queue, table, ns) = self.split(interrupt);
        let look = !queue.pair.is_current();
        if look {
            let now_ns = queue.pair.clock().now_ns();
            queue.pair.check(now_ns, &mut Requests { table, ns });
            queue.after_reap(table, ns);
            table.free_dropped();
        }
        queue.pair.usable().map_err(|error| SubmitError::Lost(error.to_string()))?;
        Ok(look)
    }

    /// The slot of a request whose ticket was dropped, when it has ended.
    #[cold]
    #[inline(never)]
    fn slot_of_dropped(&mut self) -> Option<u16> {
        self.table.free_dropped();
        self.table.take_free().or_else(|| {
            let ticket = self.table.dropped_in_flight()?;
            drop(self.wait(ticket));
            self.table.take_free()
        })
    }

    /// Starts `request`, which has been checked, in a free slot.
    #[inline(never)]
    #[allow(clippy::result_large_err)]
    fn start_in(
        &mut self,
        slot: Option<u16>,
        request: Request,
        to: Recipient,
    ) -> Result<u16, Rejected> {
        let Some(slot) = slot.or_else(|| self.slot_of_dropped()) else {
            return Err(Rejected {
                error: SubmitError::Full { depth: self.table.depth() },
                request,
            });
        };
        let policy = request.policy.unwrap_or(self.policy);
        if request.op == Op::Flush && self.has_lost_cache() {
            self.table.fill(slot, request, 0, policy, to);
            // Fails the flush for the last loss, and with it for those before.
            self.table.get_mut(slot).note_cache(self.cache_losses - 1);
            self.table.cancel_rest(slot, CommandError::CacheLost);
            self.table.release(slot);
            return Ok(slot);
        }
        let blocks = match (request.op, &request.buf) {
            (Op::Flush, _) => 1, // One command, though of no blocks.
            (Op::CompareAndWrite, Some(buf)) => (buf.len() / 2) as u64 >> self.ns.block_shift,
            (_, Some(buf)) => (buf.transfer_bytes() >> self.ns.block_shift) as u64,
            (_, None) => request.blocks,
        };
        let (op, bytes) = (request.op, blocks << self.ns.block_shift);
        let interrupt = self.goes_to_interrupt(policy, op, bytes);
        self.table.fill(slot, request, blocks, policy, to);
        let entry = self.table.get_mut(slot);
        (entry.own_slot_free, entry.interrupt) = (true, interrupt);
        entry.note_cache(self.cache_losses);
        let timed_ns = policy.wants_times().then(|| self.take_time(slot, op, bytes));
        if timed_ns.is_none() && self.waiter.takes_times() {
            self.take_time(slot, op, bytes);
        }
        let plugged = self.waiter.is_plugged();
        let (queue, table, ns) = self.split(interrupt);
        if queue.backlog.is_empty() && queue.send(table, ns, slot) {
            table.release(slot);
        } else {
            // Behind earlier requests.
            queue.backlog.push_back(slot);
            queue.send_backlog(table, ns);
        }
        if !plugged {
            queue.pair.ring_doorbell();
        }
        // In the gap, where reading the clock costs an interrupted I/O nothing.
        let now_ns = match timed_ns {
            Some(now_ns) => now_ns,
            None if interrupt => queue.pair.clock().now_ns(),
            None => queue.pair.last_tick_ns(),
        };
        self.show(now_ns);
        Ok(slot)
    }

    /// As [`Channel::cache_losses`](super::Channel::cache_losses).
    pub(crate) fn cache_losses(&self) -> u32 {
        self.polled.pair.controller().cache_losses()
    }

    /// Whether the device has lost its volatile cache since a flush last failed for that: a flush
    /// no longer makes earlier writes durable, and must not succeed.
    fn has_lost_cache(&mut self) -> bool {
        let controller = self.polled.pair.controller();
        let losses = controller.cache_losses();
        // A flush that was in flight at the loss has failed for it already.
        let reported = self.cache_losses.max(self.table.losses_reported());
        if losses != std::mem::replace(&mut self.cache_losses, losses) {
            controller.report_losses(losses);
        }
        losses > reported
    }

    /// The queue with an interrupt or the polled one, with the fields that its methods need.
    #[inline(always)]
    fn split(&mut self, interrupt: bool) -> (&mut Queue, &mut RequestTable, &NamespaceInfo) {
        let queue = match &mut self.interrupt {
            Some(queue) if interrupt => queue,
            _ => &mut self.polled,
        };
        (queue, &mut self.table, &self.ns)
    }

    #[inline(always)]
    fn ring_all(&mut self) {
        self.polled.pair.ring_doorbell();
        if let Some(queue) = &mut self.interrupt {
            queue.pair.ring_doorbell();
        }
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
        let slot = self.start(request, Recipient::Ticket)?;
        Ok(self.table.ticket(slot))
    }

    #[inline]
    fn enqueue(&mut self, request: Request) -> Result<(), Rejected> {
        self.start(request, Recipient::Queue).map(|_| ())
    }

    #[inline]
    fn plug(&mut self) {
        self.waiter.set_plugged(true);
    }

    #[inline]
    fn unplug(&mut self) {
        self.waiter.set_plugged(false);
        self.ring_all();
    }

    #[inline]
    fn poll(&mut self) -> usize {
        self.ring_all();
        let before = self.table.active();
        let Self { table, ns, polled, interrupt, .. } = &mut *self;
        polled.reap(table, ns);
        if let Some(queue) = interrupt {
            queue.reap(table, ns);
        }
        if !self.table.timed.is_empty() {
            self.learn();
        }
        // A queue that was lost stays so, and its event signalled, until it is registered again.
        let is_current = self.polled.pair.is_current()
            && self.interrupt.as_ref().is_none_or(|queue| queue.pair.is_current());
        if self.table.active() == before && (before > 0 || !is_current) {
            self.tick();
        }
        if self.table.active() != before {
            self.waiter.forget_looks();
            self.table.free_dropped();
        }
        before - self.table.active()
    }

    #[inline]
    fn wait(&mut self, ticket: Ticket) -> Done {
        self.wait_probed(ticket, &())
    }

    fn try_take(&mut self, ticket: Ticket) -> Result<Done, Ticket> {
        self.table.try_take(ticket)
    }

    fn detach(&mut self, ticket: Ticket) {
        self.table.detach(ticket);
    }

    #[inline]
    fn next_done(&mut self) -> Option<Done> {
        self.table.next_done()
    }

    #[inline]
    fn wait_done(&mut self) -> Option<Done> {
        self.ring_all();
        loop {
            if let Some(done) = self.table.next_done() {
                return Some(done);
            }
            if self.table.queued() == 0 || !self.wait_for_any(&()) {
                return None;
            }
        }
    }

    fn wait_until(&mut self, stop: &dyn Fn() -> bool) {
        self.ring_all();
        if !self.waiter.is_asked() && self.policy.is_poll() && self.polls_until_any_done() {
            self.learn();
            return;
        }
        while !self.table.has_done() && !stop() {
            if !self.wait_for_any(&Until(stop)) {
                return;
            }
        }
    }

    fn event(&self) -> Option<EventFd> {
        if self.clock().steps_device() {
            // The device signals only while a thread reads its clock; an event loop does not.
            return None;
        }
        let event = self.interrupt.as_ref()?.pair.event()?;
        // Event loops call this: an event without a descriptor is of no use to them.
        event.with_descriptor().ok().cloned()
    }

    fn depth(&self) -> u16 {
        self.table.depth()
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
        if policy.polls_instead() && self.interrupt.is_none() {
            tracing::warn!(
                %policy,
                "this channel has no queue with an interrupt: this policy polls instead"
            );
        }
        self.waiter.prepare(policy);
        self.policy = policy;
        Ok(())
    }

    fn gap_left_ns(&mut self) -> Option<u64> {
        self.with_waiter(&(), |waiter, parts| waiter.gap_left_ns(parts))
    }
}

impl GroupChannel for NvmeChannel {
    #[inline]
    fn poll_in_group(&mut self, off_queue: Option<OffQueue>) -> usize {
        self.poll_queues(off_queue)
    }

    fn rest(&mut self) -> Rest {
        self.rest_after_looks()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        if self.clock().steps_device() {
            return None;
        }
        Some(self.interrupt.as_ref()?.pair.event()?.with_descriptor().ok()?.as_fd())
    }
}

impl Drop for NvmeChannel {
    fn drop(&mut self) {
        // Buffers leave their slots only when the device is done with them (ARCHITECTURE.md §3).
        let Self { table, ns, polled, interrupt, waiter, .. } = self;
        for (queue, plan) in
            [(Some(polled), WaitPlan::Poll), (interrupt.as_mut(), WaitPlan::Interrupt)]
        {
            let Some(queue) = queue else { continue };
            queue.send_rest(table, ns, waiter.gap(matches!(plan, WaitPlan::Interrupt)), plan);
            for slot in queue.backlog.drain(..) {
                table.cancel_rest(slot, CommandError::Reset);
                table.release(slot);
            }
            queue.pair.drain(&mut Requests { table, ns });
        }
        debug_assert_eq!(table.active(), 0);
        let now_ns = self.clock().now_ns();
        self.publish_figures(now_ns);
    }
}
