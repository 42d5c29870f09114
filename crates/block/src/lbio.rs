//! Light-weight block I/O: a table of preallocated request slots. A slot's index is the owner that
//! the queue pair keeps with each command, so that a completion finds its request without a search.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};

use meantime_completion::waiter::{InFlight, Timed};
use meantime_completion::{Class, Flight, Kind, Policy};
use meantime_hw::DmaBuf;
use meantime_hw::dma::Iova;
use meantime_nvme::{Command, CommandError, Controller, NamespaceInfo, Op, Outcome, Owner};

use meantime_spec::status::{Status, StatusCode};

use super::error::{IoError, IoErrorKind};
use super::request::{Done, Request, Ticket};

/// Where a request is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum SlotState {
    #[default]
    Free,
    /// Under way.
    Active,
    /// Ended, not yet taken.
    Done,
}

/// Where the result goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Claim {
    /// To the holder of the ticket.
    Ticket,
    /// To the next caller that asks for any result.
    Queue,
    /// Nowhere: it is dropped.
    #[default]
    Detached,
    /// As [`Claim::Ticket`], and its policy wants to know how long it took.
    TimedTicket,
    /// As [`Claim::Queue`], and its policy wants to know how long it took.
    TimedQueue,
}

impl Claim {
    /// The same, with its time taken.
    fn timed(self) -> Self {
        match self {
            Self::Ticket => Self::TimedTicket,
            Self::Queue => Self::TimedQueue,
            other => other,
        }
    }

    /// The same, with its time not taken any more.
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

/// One request: two cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Lbio {
    state: SlotState,
    claim: Claim,
    pub(crate) op: Op,
    fua: bool,
    /// Whether this request was waited for before.
    pub(crate) waited: bool,
    /// Whether its commands go to the queue with an interrupt.
    pub(crate) interrupt: bool,
    /// What it is, if its time is taken.
    class: Class,
    /// Whether it has failed.
    failed: bool,
    /// How many of its commands have.
    failures: u16,
    /// Whether the request has a slot of its own in its queue, and has not used it yet.
    pub(crate) own_slot_free: bool,
    /// Commands in flight, and one more while commands are still to be sent.
    pending: u16,
    /// While the slot is free: the next free one.
    next_free: u16,
    generation: u32,
    /// Where the next command begins, and how many blocks are left to be sent. A flush counts as
    /// one, and has none.
    next_lba: u64,
    left: u64,
    next_data: Iova,
    buf: Option<DmaBuf>,
    user_data: u64,
    lba: u64,
    /// The way this request is waited for.
    pub(crate) policy: Policy,
    /// When it was submitted, if its time is taken.
    submitted_ns: u64,
    error: Option<IoErrorKind>,
}

impl Lbio {
    fn free(next_free: u16, generation: u32) -> Self {
        Self { next_free, generation, ..Self::default() }
    }

    /// Whether the request has ended.
    #[inline(always)]
    pub(crate) fn is_done(&self) -> bool {
        self.state == SlotState::Done
    }

    /// The request as policies see it; of use only if its time is taken.
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
            timed: self.claim.is_timed(),
            unclaimed: self.claim.is_queued(),
        }
    }

    /// The buffer of a request that is under way, for a transfer without a device.
    pub(crate) fn buf_mut(&mut self) -> Option<&mut DmaBuf> {
        self.buf.as_mut()
    }

    /// Takes the buffer of a request that is given up, and that the device may still write to.
    pub(crate) fn take_buf(&mut self) -> Option<DmaBuf> {
        self.buf.take()
    }

    /// Notes how often the device had lost its cache when a flush was submitted.
    pub(crate) fn note_cache(&mut self, losses: u32) {
        if self.op == Op::Flush {
            // The first block, of which a flush has none.
            self.next_lba = u64::from(losses);
        }
    }

    /// The number that [`Lbio::note_cache`] noted.
    fn losses_noted(&self) -> u32 {
        self.next_lba as u32
    }

    /// Whether this is a flush that has not been sent, and what it was to make durable may be lost
    /// meanwhile.
    #[inline]
    pub(crate) fn covers_other_than(&self, controller: &Controller) -> bool {
        self.op == Op::Flush && self.losses_noted() != controller.cache_losses()
    }

    /// Whether commands are still to be sent.
    #[inline(always)]
    pub(crate) fn has_more(&self) -> bool {
        self.left > 0
    }

    /// The next command, as large as the device takes; it is in flight from now on.
    #[inline(always)]
    pub(crate) fn emit(&mut self, ns: &NamespaceInfo) -> Command {
        let slba = self.next_lba;
        let (nlb, data_bytes) = match self.op {
            // (A pair is given out by `emit_pair`.)
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

    /// The two commands of a compare-and-write, whose buffer is contiguous. They are in flight
    /// after [`Lbio::pair_sent`].
    pub(crate) fn pair(&self, ns: &NamespaceInfo) -> [Command; 2] {
        // As many as are atomic: few.
        let nlb = self.left as u32;
        let data_bytes = nlb << ns.block_shift;
        let command = |op, data, fua| {
            let (nsid, slba, second) = (ns.nsid, self.next_lba, Iova(0));
            Command { op, nsid, slba, nlb, data, second, data_bytes, fua }
        };
        let new = Iova(self.next_data.0 + u64::from(data_bytes));
        [command(Op::Compare, self.next_data, false), command(Op::Write, new, self.fua)]
    }

    /// Both commands of a pair are in flight.
    pub(crate) fn pair_sent(&mut self) {
        self.pending += 2;
        self.left = 0;
        self.own_slot_free = false;
    }

    /// Where the next command finds its data: see [`Command`].
    #[inline]
    fn next_place(&self, data_bytes: u32) -> (Iova, Iova) {
        match &self.buf {
            // Of those, it is counted how much was sent.
            Some(buf) if buf.is_scattered() => {
                let span = buf.span(self.next_data.0 as u32, data_bytes);
                (span.data, span.second)
            }
            _ => (self.next_data, Iova(0)),
        }
    }
}

/// The most requests that a channel can have under way: as many as a queue.
const MAX_DEPTH: usize = meantime_nvme::queue::MAX_SLOTS as usize;

/// The end of the list of free slots.
const NO_SLOT: u16 = u16::MAX;

/// A slot's index, which needs no bounds to be checked.
#[inline(always)]
const fn index(slot: u16) -> usize {
    slot as usize % MAX_DEPTH
}

/// The slots of a channel. Nothing here allocates after it was made.
pub(crate) struct Table {
    lbios: Box<[Lbio; MAX_DEPTH]>,
    depth: u16,
    /// The first free slot, from which the others are linked; the one freed last is used next,
    /// while its lines are warm.
    free: u16,
    /// Ended requests that no caller has a ticket for.
    done: VecDeque<u16>,
    /// The requests that ended since the last look and whose time is taken.
    pub(crate) timed: Vec<Timed>,
    active: usize,
    queued: usize,
    /// For how many losses of the device's cache a flush has failed.
    losses_reported: u32,
}

impl Table {
    pub(crate) fn new(depth: u16) -> Self {
        let link = |slot: u16| if slot + 1 < depth { slot + 1 } else { NO_SLOT };
        // Each table counts from elsewhere, so that one's tickets are no other's.
        static TABLES: AtomicU32 = AtomicU32::new(1);
        let first = TABLES.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9);
        let lbios: Vec<Lbio> =
            (0..MAX_DEPTH as u16).map(|slot| Lbio::free(link(slot), first)).collect();
        Self {
            lbios: lbios.try_into().expect("as many as there can be"),
            depth,
            free: if depth > 0 { 0 } else { NO_SLOT },
            done: VecDeque::with_capacity(usize::from(depth)),
            timed: Vec::with_capacity(usize::from(depth)),
            active: 0,
            queued: 0,
            losses_reported: 0,
        }
    }

    /// Up to which loss of the device's cache, counted from 1, a flush has failed with
    /// [`CommandError::CacheLost`].
    pub(crate) fn losses_reported(&self) -> u32 {
        self.losses_reported
    }

    pub(crate) fn depth(&self) -> u16 {
        self.depth
    }

    /// Requests under way.
    #[inline(always)]
    pub(crate) fn active(&self) -> usize {
        self.active
    }

    /// Of those, the ones without a ticket.
    #[inline(always)]
    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    /// A free slot for [`Table::fill`].
    #[inline(always)]
    pub(crate) fn take_free(&mut self) -> Option<u16> {
        let slot = self.free;
        if slot == NO_SLOT {
            return None;
        }
        self.free = self.get(slot).next_free;
        Some(slot)
    }

    /// Takes a checked request into a free slot. `blocks` of it are still to be sent, by
    /// [`Table::send`]; none if its one command is sent at once.
    #[inline(always)]
    pub(crate) fn fill(
        &mut self,
        slot: u16,
        request: Request,
        blocks: u64,
        policy: Policy,
        claim: Claim,
    ) {
        let lbio = &mut self.lbios[index(slot)];
        debug_assert!(lbio.pending == 0 && lbio.error.is_none() && lbio.buf.is_none());
        lbio.state = SlotState::Active;
        lbio.claim = claim;
        lbio.op = request.op;
        lbio.fua = request.fua;
        lbio.waited = false;
        lbio.interrupt = false;
        lbio.pending = 1;
        lbio.left = blocks;
        if blocks > 0 {
            lbio.next_lba = request.lba;
            let contiguous = request.buf.as_ref().filter(|buf| !buf.is_scattered());
            lbio.next_data = contiguous.map_or(Iova(0), DmaBuf::iova);
        }
        // There is nothing to drop, and the path must not look.
        std::mem::forget(std::mem::replace(&mut lbio.buf, request.buf));
        lbio.user_data = request.user_data;
        lbio.lba = request.lba;
        lbio.policy = policy;
        lbio.failed = false;
        self.active += 1;
        self.queued += usize::from(claim.is_queued());
    }

    #[inline(always)]
    pub(crate) fn get(&self, slot: u16) -> &Lbio {
        &self.lbios[index(slot)]
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, slot: u16) -> &mut Lbio {
        &mut self.lbios[index(slot)]
    }

    /// The ticket for the request in `slot`.
    #[inline(always)]
    pub(crate) fn ticket(&self, slot: u16) -> Ticket {
        Ticket::new(slot, self.get(slot).generation)
    }

    /// One command of `slot` has ended.
    #[inline(always)]
    pub(crate) fn complete(&mut self, owner: u16, outcome: Result<u32, impl Into<IoErrorKind>>) {
        // Of a fused pair's there is a mark above the slot's index.
        let slot = index(owner) as u16;
        if let Err(error) = outcome {
            self.fail(slot, error);
        }
        self.release(slot);
    }

    #[cold]
    #[inline(never)]
    fn fail(&mut self, slot: u16, error: impl Into<IoErrorKind>) {
        let (lbio, error) = (self.get_mut(slot), error.into());
        lbio.fail(error);
        if error == CommandError::CacheLost {
            // The first since it was submitted. There may be more: those the next flush fails for.
            let reported = lbio.losses_noted().saturating_add(1);
            self.losses_reported = self.losses_reported.max(reported);
        }
    }

    /// What is not yet sent of `slot` never will be.
    pub(crate) fn cancel_rest(&mut self, slot: u16, error: CommandError) {
        self.fail(slot, error);
    }

    /// A command of `slot` has ended, or there is no more of it to be sent.
    #[inline(always)]
    pub(crate) fn release(&mut self, slot: u16) {
        let lbio = &mut self.lbios[index(slot)];
        assert!(lbio.pending > 0, "a command ended that was never sent");
        lbio.pending -= 1;
        if lbio.pending == 0 {
            self.finish(slot);
        }
    }

    #[inline(always)]
    fn finish(&mut self, slot: u16) {
        self.active -= 1;
        let lbio = &mut self.lbios[index(slot)];
        lbio.state = SlotState::Done;
        match lbio.claim {
            Claim::Ticket => {}
            Claim::Queue => {
                self.queued -= 1;
                self.done.push_back(slot);
            }
            Claim::Detached => {
                if lbio.failed {
                    tracing::error!(
                        lba = lbio.lba,
                        "a request failed that no caller waits for any more"
                    );
                }
                drop(self.take_failed(slot));
            }
            Claim::TimedTicket => self.note_time(slot),
            Claim::TimedQueue => {
                self.queued -= 1;
                self.done.push_back(slot);
                self.note_time(slot);
            }
        }
    }

    /// A failure, above all a time-out, says nothing of how long the device takes.
    fn note_time(&mut self, slot: u16) {
        let lbio = &self.lbios[index(slot)];
        if !lbio.failed {
            self.timed.push(Timed { policy: lbio.policy, flight: lbio.flight() });
        }
    }

    /// Whether the request has ended.
    #[inline(always)]
    pub(crate) fn is_done(&self, slot: u16) -> bool {
        self.get(slot).is_done()
    }

    /// The slot of the request that `ticket` is for.
    #[inline(always)]
    pub(crate) fn redeem(&self, ticket: Ticket) -> u16 {
        let (slot, generation) = ticket.redeem();
        assert!(self.get(slot).generation == generation, "the ticket is of another channel");
        slot
    }

    /// The result of the request that `ticket` is for if it has ended; else the ticket.
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

    /// Whether [`Table::next_done`] would find one.
    #[inline(always)]
    pub(crate) fn has_done(&self) -> bool {
        !self.done.is_empty()
    }

    /// Empties a slot whose request has ended, and gives its result.
    #[inline(always)]
    pub(crate) fn take_done(&mut self, slot: u16) -> Done {
        match self.take(slot) {
            Some(done) => done,
            None => self.take_failed(slot),
        }
    }

    /// Empties a slot whose request has ended. `None` if it has failed: see [`Table::take_failed`].
    #[inline(always)]
    pub(crate) fn take(&mut self, slot: u16) -> Option<Done> {
        let lbio = &mut self.lbios[index(slot)];
        debug_assert_eq!(lbio.state, SlotState::Done);
        if lbio.failed {
            return None;
        }
        lbio.state = SlotState::Free;
        lbio.generation = lbio.generation.wrapping_add(1);
        lbio.next_free = std::mem::replace(&mut self.free, slot);
        Some(Done { result: Ok(()), buf: lbio.buf.take(), user_data: lbio.user_data })
    }

    /// Empties a slot whose request has ended, well or not.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_failed(&mut self, slot: u16) -> Done {
        let lbio = self.get_mut(slot);
        lbio.failed = false;
        let (op, lba) = (lbio.op, lbio.lba);
        let failures = std::mem::take(&mut lbio.failures);
        // Both commands of a pair have ended; and one that has failed is not the write.
        if op == Op::CompareAndWrite && lbio.error == Some(IoErrorKind::Miscompare) && failures == 1
        {
            lbio.error = Some(IoErrorKind::Unfused);
        }
        if lbio.error == Some(IoErrorKind::Unfused) {
            tracing::error!(lba, "the device did a fused write whose comparison had failed");
        }
        let error = lbio.error.take().map(|kind| IoError { op, lba, kind });
        let mut done = self.take(slot).expect("failed no more");
        done.result = error.map_or(Ok(()), Err);
        done
    }

    /// Of what class a request of `bytes` is that was just taken in, or is taken in next.
    #[inline]
    pub(crate) fn class(&self, op: Op, bytes: u64, in_flight: usize) -> Class {
        let kind = match op {
            Op::Read => Kind::Read,
            Op::Write => Kind::Write,
            _ => Kind::Other,
        };
        Class::new(kind, u32::try_from(bytes).unwrap_or(u32::MAX), in_flight)
    }

    /// The time of `slot`, which is of `class`, is taken, from now on.
    #[inline]
    pub(crate) fn take_time(&mut self, slot: u16, class: Class, now_ns: u64) {
        let lbio = self.get_mut(slot);
        lbio.submitted_ns = now_ns;
        lbio.class = class;
        lbio.claim = lbio.claim.timed();
    }

    /// No caller waits for the ticket's request any more.
    pub(crate) fn detach(&mut self, ticket: Ticket) {
        let slot = self.redeem(ticket);
        // (The time of a request without a waiter says nothing about waiting.)
        if self.is_done(slot) {
            drop(self.take_failed(slot));
        } else {
            self.get_mut(slot).claim = Claim::Detached;
        }
    }

    /// The requests without a ticket that are under way.
    pub(crate) fn queued_slots(&self) -> impl Iterator<Item = u16> + '_ {
        let queued = |lbio: &&Lbio| lbio.state == SlotState::Active && lbio.claim.is_queued();
        let slots = (0..self.depth).filter(move |slot| queued(&self.get(*slot)));
        slots.take(self.queued)
    }

    /// The requests under way.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = InFlight> {
        let slots = self.lbios[..usize::from(self.depth)].iter();
        slots.filter(|lbio| lbio.state == SlotState::Active).map(Lbio::in_flight)
    }

    /// The request in `slot`, before it is marked as one that was waited for.
    #[inline]
    pub(crate) fn begin_wait(&mut self, slot: u16) -> InFlight {
        let lbio = self.get_mut(slot);
        let request = lbio.in_flight();
        lbio.waited = true;
        request
    }
}

/// The requests of a channel, as its queues see them off the fast path.
pub(crate) struct Requests<'a> {
    pub(crate) table: &'a mut Table,
    pub(crate) ns: &'a NamespaceInfo,
}

impl Owner for Requests<'_> {
    fn ended(&mut self, owner: u16, outcome: Outcome) {
        self.table.complete(owner, outcome);
    }

    fn again(&mut self, owner: u16) -> Option<Command> {
        self.table.get_mut(owner).whole(self.ns)
    }
}

impl Lbio {
    /// The command that a request with data is, if it is one; else they were kept. It is repeated:
    /// its time says nothing of how long the device takes.
    #[cold]
    fn whole(&mut self, ns: &NamespaceInfo) -> Option<Command> {
        self.claim = self.claim.untimed();
        let buf =
            self.buf.as_ref().filter(|_| self.op.has_data() && self.op != Op::CompareAndWrite)?;
        let data_bytes = buf.transfer_bytes() as u32;
        let blocks = u64::from(data_bytes) >> ns.block_shift;
        let nlb = ns.next_span(self.lba, blocks, true);
        if u64::from(nlb) != blocks {
            return None;
        }
        let (span, nsid) = (buf.span(0, data_bytes), ns.nsid);
        let Self { op, lba: slba, fua, .. } = *self;
        Some(Command { op, nsid, slba, nlb, data: span.data, second: span.second, data_bytes, fua })
    }

    #[cold]
    #[inline(never)]
    fn fail(&mut self, error: IoErrorKind) {
        use IoErrorKind::Command as Nvme;
        // The first error is the cause; what follows are its consequences. But a device that is
        // gone may still write to the buffer, whatever went wrong before.
        let gone = matches!(error, Nvme(CommandError::Gone { memory_released: false }));
        let error = match error {
            Nvme(CommandError::Status(status)) if status.is(StatusCode::CompareFailure) => {
                IoErrorKind::Miscompare
            }
            error => error,
        };
        // Of a pair, the command that is the cause may end after the other.
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
        // A write that failed of itself was begun.
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

/// Whether a command with this status was ended before it did anything.
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
