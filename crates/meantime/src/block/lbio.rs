//! Light-weight block I/O: a table of preallocated request slots. A slot's index is the owner that the queue pair keeps
//! with each command, so that a completion finds its request without a search.

use std::collections::VecDeque;

use crate::completion::Policy;
use crate::hw::DmaBuf;
use crate::nvme::{Command, CommandError, NamespaceInfo, Op, Outcome};
use crate::hw::dma::Iova;

use super::request::{Done, IoError, Request};

/// Where a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    /// Under way.
    Active,
    /// Ended, not yet taken.
    Done,
}

/// Who asks for the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The holder of a ticket.
    Ticket,
    /// Whoever comes first.
    Queue,
    /// Nobody.
    Detached,
}

/// One request.
#[derive(Debug)]
pub(crate) struct Lbio {
    state: State,
    claim: Claim,
    pub(crate) op: Op,
    fua: bool,
    /// The way this request is waited for; it decides the queue that its commands go to.
    pub(crate) policy: Policy,
    /// Whether a wait for this request has slept already.
    pub(crate) slept: bool,
    error: Option<CommandError>,
    /// Commands in flight.
    pending: u16,
    generation: u32,
    /// Where the next command begins, and how many blocks are left to be sent.
    next_lba: u64,
    left: u64,
    next_data: Iova,
    /// A flush has no blocks, but is one command.
    unsent_flush: bool,
    /// When it was submitted, if its policy wants to know; else 0.
    pub(crate) submitted_ns: u64,
    lba: u64,
    user_data: u64,
    buf: Option<DmaBuf>,
}

impl Lbio {
    fn free() -> Self {
        Self {
            state: State::Free,
            claim: Claim::Detached,
            op: Op::Flush,
            fua: false,
            policy: Policy::Poll,
            slept: false,
            error: None,
            pending: 0,
            generation: 0,
            next_lba: 0,
            left: 0,
            next_data: Iova(0),
            unsent_flush: false,
            submitted_ns: 0,
            lba: 0,
            user_data: 0,
            buf: None,
        }
    }

    /// Whether commands are still to be sent.
    #[inline(always)]
    pub(crate) fn has_more(&self) -> bool {
        self.left > 0 || self.unsent_flush
    }

    /// The next command, as large as the device takes.
    #[inline(always)]
    pub(crate) fn next_command(&self, ns: &NamespaceInfo) -> Command {
        let has_data = matches!(self.op, Op::Read | Op::Write);
        let nlb = if self.unsent_flush { 0 } else { ns.next_span(self.next_lba, self.left, has_data) };
        let data_bytes = if has_data { nlb << ns.block_shift } else { 0 };
        Command {
            op: self.op,
            nsid: ns.nsid,
            slba: self.next_lba,
            nlb,
            data: self.next_data,
            data_bytes,
            fua: self.fua,
        }
    }

    /// `command`, the one from [`Lbio::next_command`], is in flight.
    #[inline(always)]
    pub(crate) fn sent(&mut self, command: &Command) {
        self.pending += 1;
        self.next_lba += u64::from(command.nlb);
        self.left -= u64::from(command.nlb);
        self.next_data.0 += u64::from(command.data_bytes);
        self.unsent_flush = false;
    }
}

/// The slots of a channel. Nothing here allocates after it was made.
pub(crate) struct Table {
    lbios: Box<[Lbio]>,
    free: Vec<u16>,
    /// Ended requests that nobody has a ticket for.
    done: VecDeque<u16>,
    active: usize,
    queued: usize,
    /// Requests ended since it was made.
    pub(crate) ended: u64,
}

impl Table {
    pub(crate) fn new(depth: u16) -> Self {
        Self {
            lbios: (0..depth).map(|_| Lbio::free()).collect(),
            free: (0..depth).rev().collect(),
            done: VecDeque::with_capacity(usize::from(depth)),
            active: 0,
            queued: 0,
            ended: 0,
        }
    }

    pub(crate) fn depth(&self) -> u16 {
        self.lbios.len() as u16
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

    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    /// Takes a checked request in. The table is not full.
    #[inline(always)]
    pub(crate) fn insert(&mut self, request: Request, blocks: u64, policy: Policy, claim: Claim) -> u16 {
        let slot = self.free.pop().expect("checked by the caller");
        let lbio = &mut self.lbios[usize::from(slot)];
        lbio.state = State::Active;
        lbio.claim = claim;
        lbio.op = request.op;
        lbio.fua = request.fua;
        lbio.policy = policy;
        lbio.slept = false;
        lbio.error = None;
        lbio.pending = 0;
        lbio.next_lba = request.lba;
        lbio.left = blocks;
        lbio.next_data = request.buf.as_ref().map_or(Iova(0), DmaBuf::iova);
        lbio.unsent_flush = request.op == Op::Flush;
        lbio.submitted_ns = 0;
        lbio.lba = request.lba;
        lbio.user_data = request.user_data;
        lbio.buf = request.buf;
        self.active += 1;
        if claim == Claim::Queue {
            self.queued += 1;
        }
        slot
    }

    #[inline(always)]
    pub(crate) fn get(&self, slot: u16) -> &Lbio {
        &self.lbios[usize::from(slot)]
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, slot: u16) -> &mut Lbio {
        &mut self.lbios[usize::from(slot)]
    }

    /// What a ticket for `slot` carries.
    #[inline(always)]
    pub(crate) fn generation(&self, slot: u16) -> u32 {
        self.get(slot).generation
    }

    /// One command of `slot` has ended.
    #[inline(always)]
    pub(crate) fn complete(&mut self, slot: u16, outcome: Outcome) {
        let lbio = &mut self.lbios[usize::from(slot)];
        assert!(lbio.pending > 0, "a command ended that was never sent");
        lbio.pending -= 1;
        if let Err(error) = outcome {
            lbio.fail(error);
        }
        if lbio.pending == 0 && !lbio.has_more() {
            self.finish(slot);
        }
    }

    /// What is not yet sent of `slot` never will be.
    pub(crate) fn cancel_rest(&mut self, slot: u16, error: CommandError) {
        let lbio = self.get_mut(slot);
        lbio.fail(error);
        if lbio.pending == 0 && lbio.state == State::Active {
            self.finish(slot);
        }
    }

    #[inline(always)]
    fn finish(&mut self, slot: u16) {
        self.ended += 1;
        self.active -= 1;
        let lbio = &mut self.lbios[usize::from(slot)];
        lbio.state = State::Done;
        match lbio.claim {
            Claim::Ticket => {}
            Claim::Queue => {
                self.queued -= 1;
                self.done.push_back(slot);
            }
            Claim::Detached => drop(self.take(slot)),
        }
    }

    /// Whether the request has ended.
    #[inline(always)]
    pub(crate) fn is_done(&self, slot: u16) -> bool {
        self.get(slot).state == State::Done
    }

    /// Asserts that a ticket is for what the slot holds.
    #[inline(always)]
    pub(crate) fn check(&self, slot: u16, generation: u32) {
        let valid = self.lbios.get(usize::from(slot)).is_some_and(|lbio| lbio.generation == generation);
        assert!(valid, "the ticket is of another channel");
    }

    /// The next ended request without a ticket.
    #[inline(always)]
    pub(crate) fn pop_done(&mut self) -> Option<u16> {
        self.done.pop_front()
    }

    /// Empties a slot whose request has ended.
    #[inline(always)]
    pub(crate) fn take(&mut self, slot: u16) -> Done {
        let lbio = &mut self.lbios[usize::from(slot)];
        debug_assert_eq!(lbio.state, State::Done);
        lbio.state = State::Free;
        lbio.generation = lbio.generation.wrapping_add(1);
        let result = match lbio.error {
            None => Ok(()),
            Some(kind) => Err(IoError { op: lbio.op, lba: lbio.lba, kind }),
        };
        let done = Done { result, buf: lbio.buf.take(), user_data: lbio.user_data };
        self.free.push(slot);
        done
    }

    /// The ticket's holder has lost interest.
    pub(crate) fn detach(&mut self, slot: u16) {
        if self.is_done(slot) {
            drop(self.take(slot));
        } else {
            self.get_mut(slot).claim = Claim::Detached;
        }
    }

    /// A request without a ticket that is under way and has not slept yet, if there is one; the policy of any that is under way.
    pub(crate) fn queued_policy(&self) -> Option<(Policy, u16)> {
        let queued = |lbio: &Lbio| lbio.state == State::Active && lbio.claim == Claim::Queue;
        let slot = self.lbios.iter().position(queued)?;
        Some((self.lbios[slot].policy, slot as u16))
    }
}

impl Lbio {
    #[cold]
    #[inline(never)]
    fn fail(&mut self, error: CommandError) {
        // The first error is the cause; what follows are its consequences. But a device that is gone may still write to
        // the buffer, whatever went wrong before.
        let gone = matches!(error, CommandError::Gone { memory_released: false });
        if self.error.is_none() {
            self.error = Some(error);
        }
        self.left = 0;
        self.unsent_flush = false;
        if gone && let Some(buf) = self.buf.take() {
            buf.quarantine();
        }
    }
}
