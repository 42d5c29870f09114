//! The request slots of a channel, which are allocated with it. The queue pair keeps a slot's index
//! with each command as its requester, so a completion finds its request without a search.

use std::collections::VecDeque;

use meantime_completion::waiter::{InFlight, Timed};
use meantime_completion::{Class, Flight, Kind, Policy};
use meantime_hw::DmaBuf;
use meantime_hw::dma::Iova;
use meantime_nvme::{Command, CommandError, Controller, NamespaceInfo, Op, Outcome, Requester};

use meantime_nvme_spec::status::{Status, StatusCode};

use super::error::{IoError, IoErrorKind};
use super::request::{Done, Request, Ticket};

/// The state of a slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum SlotState {
    #[default]
    Free,
    /// In flight.
    Active,
    /// Ended, not yet taken.
    Done,
}

/// Where the result of a request goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Recipient {
    /// The holder of the ticket.
    Ticket,
    /// The next caller that asks for any result.
    Queue,
    /// None: it is dropped.
    #[default]
    Detached,
    /// As [`Recipient::Ticket`], for a timed request.
    TimedTicket,
    /// As [`Recipient::Queue`], for a timed request.
    TimedQueue,
    /// None, because its ticket was dropped: a submission that finds no other slot waits for it.
    Dropped,
}

impl Recipient {
    /// The same, timed.
    fn timed(self) -> Self {
        match self {
            Self::Ticket => Self::TimedTicket,
            Self::Queue => Self::TimedQueue,
            other => other,
        }
    }

    /// The same, no longer timed.
    fn untimed(self) -> Self {
        match self {
            Self::TimedTicket => Self::Ticket,
            Self::TimedQueue => Self::Queue,
            other => other,
        }
    }

    #[inline(always)]
    fn is_queued(self) -> bool {
        matches!(self, Self::Queue | Self::TimedQueue)
    }

    fn is_timed(self) -> bool {
        matches!(self, Self::TimedTicket | Self::TimedQueue)
    }
}

/// The place for one request: two cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct RequestSlot {
    state: SlotState,
    recipient: Recipient,
    pub(crate) op: Op,
    fua: bool,
    /// Whether a caller has waited for it before.
    pub(crate) waited: bool,
    /// Whether its commands go to the queue with an interrupt.
    pub(crate) interrupt: bool,
    /// Its class, if it is timed.
    class: Class,
    /// Whether it has failed.
    failed: bool,
    /// The number of its failed commands.
    failures: u16,
    /// Whether the command slot of the request slot's index is still unused.
    pub(crate) own_slot_free: bool,
    /// Commands in flight, plus one while there are unsent commands.
    pending: u16,
    /// While the slot is free: the next free one.
    next_free: u16,
    generation: u32,
    /// Of a flush: the device's count of cache losses when it was submitted.
    losses_noted: u32,
    /// First block of the next command, and number of unsent blocks. A flush counts as one, and has
    /// none.
    next_lba: u64,
    left: u64,
    next_data: Iova,
    buf: Option<DmaBuf>,
    user_data: u64,
    lba: u64,
    /// The policy by which this request is waited for; `poll` also for an untimed request of
    /// `adaptive`.
    pub(crate) policy: Policy,
    /// Submission time, if it is timed.
    submitted_ns: u64,
    error: Option<IoErrorKind>,
}

const _: () = assert!(size_of::<RequestSlot>() == 128);

impl RequestSlot {
    fn free(next_free: u16, generation: u32) -> Self {
        Self { next_free, generation, ..Self::default() }
    }

    /// Whether the request has ended.
    #[inline(always)]
    pub(crate) fn is_done(&self) -> bool {
        self.state == SlotState::Done
    }

    /// The request as policies see it; valid only if it is timed.
    #[inline]
    fn flight(&self) -> Flight {
        Flight {
            class: self.class,
            submitted_ns: self.submitted_ns,
            interrupted: self.interrupt,
            waited: self.waited,
        }
    }

    /// The request as a waiter sees it.
    #[inline]
    pub(crate) fn in_flight(&self) -> InFlight {
        InFlight {
            policy: self.policy,
            flight: self.flight(),
            timed: self.recipient.is_timed(),
            unclaimed: self.recipient.is_queued(),
        }
    }

    /// The buffer of a request in flight, for a transfer without a device.
    pub(crate) fn buf_mut(&mut self) -> Option<&mut DmaBuf> {
        self.buf.as_mut()
    }

    /// Takes the buffer of a given-up request that the device may still write to.
    pub(crate) fn take_buf(&mut self) -> Option<DmaBuf> {
        self.buf.take()
    }

    /// Stores the device's count of cache losses when a flush was submitted.
    pub(crate) fn note_cache(&mut self, losses: u32) {
        if self.op == Op::Flush {
            self.losses_noted = losses;
        }
    }

    /// Whether this is an unsent flush, and the data it should make durable may have been lost
    /// since.
    #[inline]
    pub(crate) fn covers_other_than(&self, controller: &Controller) -> bool {
        self.op == Op::Flush && self.losses_noted != controller.cache_losses()
    }

    /// Whether there are unsent commands.
    #[inline(always)]
    pub(crate) fn has_more(&self) -> bool {
        self.left > 0
    }

    /// The next command, as large as the device allows; it counts as in flight from now on.
    #[inline(always)]
    pub(crate) fn emit(&mut self, ns: &NamespaceInfo) -> Command {
        let slba = ns.first_lba + self.next_lba;
        let (nlb, data_bytes) = match self.op {
            // (`pair` makes the commands of a fused pair.)
            Op::Read | Op::Write | Op::Compare | Op::CompareAndWrite => {
                let nlb = ns.next_span(slba, self.left, true);
                (nlb, nlb << ns.block_shift)
            }
            Op::Flush => (0, 0),
            Op::WriteZeroes | Op::Deallocate | Op::Verify | Op::WriteUncorrectable => {
                (ns.next_span(slba, self.left, false), 0)
            }
        };
        let (data, second) = self.next_place(data_bytes);
        self.pending += 1;
        self.next_lba += u64::from(nlb);
        self.left -= u64::from(nlb.max(1));
        self.next_data.0 += u64::from(data_bytes);
        Command { op: self.op, nsid: ns.nsid, slba, nlb, data, second, data_bytes, fua: self.fua }
    }

    /// Whether no command is in the request's own slot, given that some are unsent.
    #[inline(always)]
    pub(crate) fn is_own_slot_free(&self) -> bool {
        self.own_slot_free || self.pending == 1
    }

    /// The two commands of a compare-and-write, whose buffer is contiguous. They count as in flight
    /// after [`RequestSlot::pair_sent`].
    pub(crate) fn pair(&self, ns: &NamespaceInfo) -> [Command; 2] {
        // No more than are atomic, which are few.
        let nlb = self.left as u32;
        let data_bytes = nlb << ns.block_shift;
        let command = |op, data, fua| {
            let (nsid, slba, second) = (ns.nsid, ns.first_lba + self.next_lba, Iova(0));
            Command { op, nsid, slba, nlb, data, second, data_bytes, fua }
        };
        let new = Iova(self.next_data.0 + u64::from(data_bytes));
        [command(Op::Compare, self.next_data, false), command(Op::Write, new, self.fua)]
    }

    /// Counts both commands of a pair as in flight.
    pub(crate) fn pair_sent(&mut self) {
        self.pending += 2;
        self.left = 0;
        self.own_slot_free = false;
    }

    /// The data pointers of the next command: see [`Command`].
    #[inline]
    fn next_place(&self, data_bytes: u32) -> (Iova, Iova) {
        match &self.buf {
            // A scattered buffer counts how much was sent.
            Some(buf) if buf.is_scattered() => {
                let span = buf.span(self.next_data.0 as u32, data_bytes);
                (span.data, span.second)
            }
            _ => (self.next_data, Iova(0)),
        }
    }
}

/// The most requests in flight on a channel, the same as on a queue.
const MAX_DEPTH: usize = meantime_nvme::queue::MAX_SLOTS as usize;

/// The end of the list of free slots.
const NO_SLOT: u16 = u16::MAX;

/// A slot's index without a bounds check.
#[inline(always)]
const fn index(slot: u16) -> usize {
    slot as usize % MAX_DEPTH
}

/// The request slots of a channel. It does not allocate after its creation.
pub(crate) struct RequestTable {
    slots: Box<[RequestSlot; MAX_DEPTH]>,
    depth: u16,
    /// The first free slot, which links to the others. The one freed last is reused first, while
    /// its cache lines are warm.
    free: u16,
    /// Ended requests without a ticket.
    done: VecDeque<u16>,
    /// The timed requests that have ended since the last look.
    pub(crate) timed: Vec<Timed>,
    active: usize,
    queued: usize,
    /// The number of cache losses for which a flush has failed.
    losses_reported: u32,
    /// How many tickets of any channel had been dropped when this one last looked for its own.
    drops_seen: usize,
}

impl RequestTable {
    pub(crate) fn new(depth: u16) -> Self {
        let link = |slot: u16| if slot + 1 < depth { slot + 1 } else { NO_SLOT };
        let first = Ticket::first_generation();
        let slots: Vec<RequestSlot> =
            (0..MAX_DEPTH as u16).map(|slot| RequestSlot::free(link(slot), first)).collect();
        Self {
            slots: slots.try_into().expect("as many as there can be"),
            depth,
            free: if depth > 0 { 0 } else { NO_SLOT },
            done: VecDeque::with_capacity(usize::from(depth)),
            timed: Vec::with_capacity(usize::from(depth)),
            active: 0,
            queued: 0,
            losses_reported: 0,
            drops_seen: 0,
        }
    }

    /// The number of the device's last cache loss, counted from 1, for which a flush has failed
    /// with [`CommandError::CacheLost`].
    pub(crate) fn losses_reported(&self) -> u32 {
        self.losses_reported
    }

    pub(crate) fn depth(&self) -> u16 {
        self.depth
    }

    /// Number of requests in flight.
    #[inline(always)]
    pub(crate) fn active(&self) -> usize {
        self.active
    }

    /// Number of those without a ticket.
    #[inline(always)]
    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    /// A free slot for [`RequestTable::fill`].
    #[inline(always)]
    pub(crate) fn take_free(&mut self) -> Option<u16> {
        let slot = self.free;
        if slot == NO_SLOT {
            return None;
        }
        self.free = self.get(slot).next_free;
        Some(slot)
    }

    /// Puts a checked request into a free slot. `blocks` of it are still to be sent, by
    /// `Queue::send`; 0 if its one command is sent at once.
    #[inline(always)]
    pub(crate) fn fill(
        &mut self,
        slot: u16,
        request: Request,
        blocks: u64,
        policy: Policy,
        recipient: Recipient,
    ) {
        let entry = &mut self.slots[index(slot)];
        debug_assert!(entry.pending == 0 && entry.error.is_none() && entry.buf.is_none());
        entry.state = SlotState::Active;
        entry.recipient = recipient;
        entry.op = request.op;
        entry.fua = request.fua;
        entry.waited = false;
        entry.interrupt = false;
        entry.pending = 1;
        entry.left = blocks;
        if blocks > 0 {
            entry.next_lba = request.lba;
            let contiguous = request.buf.as_ref().filter(|buf| !buf.is_scattered());
            entry.next_data = contiguous.map_or(Iova(0), DmaBuf::iova);
        }
        // There is nothing to drop, and the fast path must not check.
        std::mem::forget(std::mem::replace(&mut entry.buf, request.buf));
        entry.user_data = request.user_data;
        entry.lba = request.lba;
        entry.policy = policy;
        entry.failed = false;
        self.active += 1;
        self.queued += usize::from(recipient.is_queued());
    }

    #[inline(always)]
    pub(crate) fn get(&self, slot: u16) -> &RequestSlot {
        &self.slots[index(slot)]
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, slot: u16) -> &mut RequestSlot {
        &mut self.slots[index(slot)]
    }

    /// The ticket for the request in `slot`.
    #[inline(always)]
    pub(crate) fn ticket(&self, slot: u16) -> Ticket {
        Ticket::new(slot, self.get(slot).generation)
    }

    /// Records that one command of `requester` has ended. Returns the slot of the request if that
    /// has ended with it.
    #[inline(always)]
    pub(crate) fn complete(
        &mut self,
        requester: u16,
        outcome: Result<u32, impl Into<IoErrorKind>>,
    ) -> Option<u16> {
        // Commands of a fused pair have a mark above the slot's index, which `index` removes.
        if let Err(error) = outcome {
            self.fail(requester, error);
        }
        self.release(requester).then_some(index(requester) as u16)
    }

    #[cold]
    #[inline(never)]
    fn fail(&mut self, slot: u16, error: impl Into<IoErrorKind>) {
        let (entry, error) = (self.get_mut(slot), error.into());
        entry.fail(error);
        if error == CommandError::CacheLost {
            // The first loss since it was submitted. If there are more, the next flush fails for
            // those.
            let reported = entry.losses_noted.saturating_add(1);
            self.losses_reported = self.losses_reported.max(reported);
        }
    }

    /// Cancels the unsent commands of `slot`.
    pub(crate) fn cancel_rest(&mut self, slot: u16, error: CommandError) {
        self.fail(slot, error);
    }

    /// Called when a command of `slot` has ended, or its unsent ones are done. Returns whether the
    /// request has ended.
    #[inline(always)]
    pub(crate) fn release(&mut self, slot: u16) -> bool {
        let entry = &mut self.slots[index(slot)];
        assert!(entry.pending > 0, "a command ended that was never sent");
        entry.pending -= 1;
        let ended = entry.pending == 0;
        if ended {
            self.finish(slot);
        }
        ended
    }

    #[inline(always)]
    fn finish(&mut self, slot: u16) {
        self.active -= 1;
        let entry = &mut self.slots[index(slot)];
        entry.state = SlotState::Done;
        if entry.recipient != Recipient::Ticket {
            self.deliver(index(slot) as u16);
        }
    }

    /// What the end of a request has to do unless a ticket's holder takes it.
    #[inline]
    fn deliver(&mut self, slot: u16) {
        match self.get(slot).recipient {
            Recipient::Ticket => {}
            Recipient::Queue => {
                self.queued -= 1;
                self.done.push_back(slot);
            }
            Recipient::Detached | Recipient::Dropped => self.drop_result(slot),
            Recipient::TimedTicket => self.note_time(slot),
            Recipient::TimedQueue => {
                self.queued -= 1;
                self.done.push_back(slot);
                self.note_time(slot);
            }
        }
    }

    /// Frees the slot of an ended request whose result no caller takes.
    #[inline(never)]
    fn drop_result(&mut self, slot: u16) {
        let done = self.take_failed(slot);
        if let Err(error) = done.result {
            tracing::error!(%error, "a request failed that no caller waits for any more");
        }
    }

    /// A failure, above all a time-out, is no measure of the device time.
    fn note_time(&mut self, slot: u16) {
        let entry = &self.slots[index(slot)];
        if !entry.failed {
            self.timed.push(Timed { policy: entry.policy, flight: entry.flight() });
        }
    }

    /// Whether the request has ended.
    #[inline(always)]
    pub(crate) fn is_done(&self, slot: u16) -> bool {
        self.get(slot).is_done()
    }

    /// The slot of `ticket`'s request.
    #[inline(always)]
    pub(crate) fn redeem(&self, ticket: Ticket) -> u16 {
        let (slot, generation) = ticket.redeem();
        assert!(self.get(slot).generation == generation, "the ticket is of another channel");
        slot
    }

    /// A ticket of this table that was dropped.
    fn take_dropped(&self) -> Option<Ticket> {
        Ticket::take_dropped(|slot, generation| {
            let entry = self.get(slot);
            slot < self.depth
                && entry.generation == generation
                && entry.state != SlotState::Free
                && matches!(entry.recipient, Recipient::Ticket | Recipient::TimedTicket)
        })
    }

    /// Gives up the requests whose tickets were dropped: those that have ended now, the others when
    /// they end. Unless a ticket was dropped since the last call, this costs a load.
    #[inline]
    pub(crate) fn free_dropped(&mut self) {
        let drops = Ticket::drops();
        if std::mem::replace(&mut self.drops_seen, drops) != drops {
            self.give_up_dropped();
        }
    }

    #[cold]
    #[inline(never)]
    fn give_up_dropped(&mut self) {
        while let Some(ticket) = self.take_dropped() {
            self.give_up(ticket, Recipient::Dropped);
        }
    }

    /// A ticket for a request in flight whose ticket was dropped, for a channel without a free slot.
    #[cold]
    pub(crate) fn dropped_in_flight(&mut self) -> Option<Ticket> {
        let dropped = |slot: &u16| {
            let entry = self.get(*slot);
            entry.state == SlotState::Active && entry.recipient == Recipient::Dropped
        };
        let slot = (0..self.depth).find(dropped)?;
        self.get_mut(slot).recipient = Recipient::Ticket;
        Some(self.ticket(slot))
    }

    /// The result of `ticket`'s request if it has ended; else the ticket.
    pub(crate) fn try_take(&mut self, ticket: Ticket) -> Result<Done, Ticket> {
        let slot = self.redeem(ticket);
        if self.is_done(slot) { Ok(self.take_done(slot)) } else { Err(self.ticket(slot)) }
    }

    /// The result of the next ended request without a ticket.
    #[inline(always)]
    pub(crate) fn next_done(&mut self) -> Option<Done> {
        let slot = self.done.pop_front()?;
        Some(self.take_done(slot))
    }

    /// Whether [`RequestTable::next_done`] would find one.
    #[inline(always)]
    pub(crate) fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    /// Frees a slot whose request has ended, and returns its result.
    #[inline(always)]
    pub(crate) fn take_done(&mut self, slot: u16) -> Done {
        match self.take(slot) {
            Some(done) => done,
            None => self.take_failed(slot),
        }
    }

    /// Frees a slot whose request has succeeded. `None` if it failed: see
    /// [`RequestTable::take_failed`].
    #[inline(always)]
    pub(crate) fn take(&mut self, slot: u16) -> Option<Done> {
        let entry = &mut self.slots[index(slot)];
        debug_assert_eq!(entry.state, SlotState::Done);
        if entry.failed {
            return None;
        }
        entry.state = SlotState::Free;
        entry.generation = entry.generation.wrapping_add(1);
        entry.next_free = std::mem::replace(&mut self.free, slot);
        Some(Done { result: Ok(()), buf: entry.buf.take(), user_data: entry.user_data })
    }

    /// Frees a slot whose request has ended, successfully or not.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_failed(&mut self, slot: u16) -> Done {
        let entry = self.get_mut(slot);
        entry.failed = false;
        let (op, lba) = (entry.op, entry.lba);
        let failures = std::mem::take(&mut entry.failures);
        // Both commands of a pair have ended; if only one failed, it was not the write.
        if op == Op::CompareAndWrite
            && entry.error == Some(IoErrorKind::Miscompare)
            && failures == 1
        {
            entry.error = Some(IoErrorKind::Unfused);
        }
        if entry.error == Some(IoErrorKind::Unfused) {
            tracing::error!(lba, "the device did a fused write whose comparison had failed");
        }
        let error = entry.error.take().map(|kind| IoError { op, lba, kind });
        let mut done = self.take(slot).expect("failed no more");
        done.result = error.map_or(Ok(()), Err);
        done
    }

    /// The class of a request of `bytes`, with `in_flight` in flight including itself.
    #[inline]
    pub(crate) fn class(&self, op: Op, bytes: u64, in_flight: usize) -> Class {
        let kind = match op {
            Op::Read => Kind::Read,
            Op::Write => Kind::Write,
            _ => Kind::Other,
        };
        Class::new(kind, u32::try_from(bytes).unwrap_or(u32::MAX), in_flight)
    }

    /// Starts timing `slot`, which is of `class`.
    #[inline]
    pub(crate) fn take_time(&mut self, slot: u16, class: Class, now_ns: u64) {
        let entry = self.get_mut(slot);
        entry.submitted_ns = now_ns;
        entry.class = class;
        entry.recipient = entry.recipient.timed();
    }

    /// Detaches the ticket's request: its result is dropped.
    pub(crate) fn detach(&mut self, ticket: Ticket) {
        self.give_up(ticket, Recipient::Detached);
    }

    fn give_up(&mut self, ticket: Ticket, recipient: Recipient) {
        let slot = self.redeem(ticket);
        if self.is_done(slot) {
            self.drop_result(slot);
        } else {
            // The time of a request without a waiter is no measure of waiting.
            self.get_mut(slot).recipient = recipient;
        }
    }

    /// The slots of requests in flight without a ticket.
    pub(crate) fn queued_slots(&self) -> impl Iterator<Item = u16> + '_ {
        let queued =
            |entry: &&RequestSlot| entry.state == SlotState::Active && entry.recipient.is_queued();
        let slots = (0..self.depth).filter(move |slot| queued(&self.get(*slot)));
        slots.take(self.queued)
    }

    /// The requests in flight.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = InFlight> {
        let slots = self.slots[..usize::from(self.depth)].iter();
        slots.filter(|entry| entry.state == SlotState::Active).map(RequestSlot::in_flight)
    }

    /// The request in `slot`, as it was before this call marks it as waited for.
    #[inline]
    pub(crate) fn begin_wait(&mut self, slot: u16) -> InFlight {
        let entry = self.get_mut(slot);
        let request = entry.in_flight();
        entry.waited = true;
        request
    }
}

/// The requests of a channel, as its queues use them off the fast path.
pub(crate) struct Requests<'a> {
    pub(crate) table: &'a mut RequestTable,
    pub(crate) ns: &'a NamespaceInfo,
}

impl Requester for Requests<'_> {
    fn ended(&mut self, requester: u16, outcome: Outcome) {
        self.table.complete(requester, outcome);
    }

    fn again(&mut self, requester: u16) -> Option<Command> {
        self.table.get_mut(requester).whole(self.ns)
    }
}

impl RequestSlot {
    /// The command of a request with data that is a single command; the queue keeps others itself.
    /// It is repeated, so its time is no measure of the device time.
    #[cold]
    fn whole(&mut self, ns: &NamespaceInfo) -> Option<Command> {
        self.recipient = self.recipient.untimed();
        let buf =
            self.buf.as_ref().filter(|_| self.op.has_data() && self.op != Op::CompareAndWrite)?;
        let data_bytes = buf.transfer_bytes() as u32;
        let blocks = u64::from(data_bytes) >> ns.block_shift;
        let slba = ns.first_lba + self.lba;
        let nlb = ns.next_span(slba, blocks, true);
        if u64::from(nlb) != blocks {
            return None;
        }
        let (span, nsid) = (buf.span(0, data_bytes), ns.nsid);
        let Self { op, fua, .. } = *self;
        Some(Command { op, nsid, slba, nlb, data: span.data, second: span.second, data_bytes, fua })
    }

    #[cold]
    #[inline(never)]
    fn fail(&mut self, error: IoErrorKind) {
        use IoErrorKind::Command as Nvme;
        // The first error is the cause, later ones its consequences. But a device that is gone may
        // still write to the buffer, whatever failed before.
        let gone = matches!(error, Nvme(CommandError::Gone { memory_released: false }));
        let error = match error {
            Nvme(CommandError::Status(status)) if status.is(StatusCode::CompareFailure) => {
                IoErrorKind::Miscompare
            }
            error => error,
        };
        // The failed command of a pair may end after the other.
        let is_pair = self.op == Op::CompareAndWrite;
        let is_consequence = |error| match error {
            Nvme(CommandError::Status(status)) => {
                is_pair && status.is(StatusCode::CommandAbortedFailedFused)
            }
            Nvme(CommandError::Reset) => is_pair,
            _ => false,
        };
        if self.error.is_none_or(is_consequence) {
            self.error = Some(error);
        }
        // A write that failed with its own error was begun.
        if is_pair
            && self.error == Some(IoErrorKind::Miscompare)
            && matches!(error, Nvme(CommandError::Status(status)) if !was_aborted(status))
        {
            self.error = Some(IoErrorKind::Unfused);
        }
        self.failed = true;
        self.failures += 1;
        self.left = 0;
        if gone && let Some(buf) = self.buf.take() {
            buf.quarantine();
        }
    }
}

/// Whether a command with this status was aborted before it had any effect.
fn was_aborted(status: Status) -> bool {
    use StatusCode::*;
    let aborts = [
        CommandAbortedByRequest,
        CommandAbortedSqDeletion,
        CommandAbortedFailedFused,
        CommandAbortedMissingFused,
    ];
    aborts.iter().any(|&code| status.is(code))
}

/// Removes this table's tickets from the list of dropped ones.
impl Drop for RequestTable {
    fn drop(&mut self) {
        while let Some(ticket) = self.take_dropped() {
            ticket.redeem();
        }
    }
}
