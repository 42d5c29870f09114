//! The parts of the controller that the target uses: slots with buffers, and queue pairs.
//!
//! A command takes a slot. Its data goes into the slot's buffer, and its entry, with the slot's
//! number as identifier, into the submission queue of its association. Each association has a queue
//! pair of the controller's, which ends with it. After that no command of the association is
//! executed any more.

use std::sync::atomic::Ordering;

use meantime_nvme_spec::cqe::Cqe;
use meantime_nvme_spec::opcode::admin;
use meantime_nvme_spec::regs::{self, Aqa, CSTS, Cc, Csts};
use meantime_nvme_spec::sqe::Sqe;

use super::machine::Machine;
use crate::clock::{Clock as _, MonotonicClock};
use crate::config::SsdConfig;
use crate::controller::{Controller, Turn};
use crate::error::SsdError;
use crate::hostmem::PAGE_BYTES;
use crate::medium::Medium;

/// The number of commands that can be in flight, over all connections.
pub(super) const SLOTS: usize = 256;

/// Entries of the controller's queues.
const ENTRIES: u32 = 512;

/// The identifier of the target's own Asynchronous Event Request.
const EVENT_CID: u16 = 0xfff0;

/// One slot in this number is kept for admin queues.
const KEPT: usize = 16;

/// The maximum number of consecutive turns of the controller.
const TURNS: u32 = 16;

/// A connection, by its place and by a generation that tells it from earlier connections there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct ConnId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// The use of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Free,
    /// The slot is taken. Its data is arriving, or its answer is being sent.
    Taken,
    /// The slot waits for H2CData.
    Filling,
    /// The controller has the command.
    InFlight,
}

/// A command.
#[derive(Clone, Copy, Default)]
pub(super) struct Slot {
    pub(super) state: State,
    pub(super) conn: ConnId,
    /// The host's entry.
    pub(super) sqe: Sqe,
    /// The length of the data in bytes.
    pub(super) len: u32,
    /// The number of these bytes that have been received.
    pub(super) received: u32,
    /// Whether a data digest was wrong.
    pub(super) bad: bool,
    /// Whether the data goes to the host.
    pub(super) is_read: bool,
    /// The controller's queue.
    pub(super) pair: u16,
}

#[derive(Clone, Default)]
struct Pair {
    open: bool,
    tail: u32,
    head: u32,
    /// The phase of new entries.
    phase: bool,
    in_flight: u32,
}

impl Pair {
    fn opened() -> Self {
        Self { open: true, phase: true, ..Self::default() }
    }
}

/// The result of a turn.
pub(super) enum Reaped {
    /// A command's completion.
    Done(u16, Cqe),
    /// An asynchronous event.
    Event(u32),
}

pub(super) struct Backend {
    machine: Machine,
    clock: MonotonicClock,
    slots: Vec<Slot>,
    free: Vec<u16>,
    /// The generation of the connection at each place, and the number of slots that it holds.
    held: Vec<(u32, u32)>,
    pairs: Vec<Pair>,
    entries: u32,
    /// The number of slots that wait for H2CData.
    pub(super) filling: usize,
    /// The number of the controller's resets that the target knows of.
    resets: u64,
    /// The number of completions that belong to no command.
    pub(super) strays: u64,
}

impl Backend {
    pub(super) fn new(config: SsdConfig, medium: Medium) -> Result<Self, SsdError> {
        let entries = ENTRIES.min(config.max_queue_entries);
        // The admin queue also has the target's own request, and one entry stays free.
        let slots = SLOTS.min((entries as usize).saturating_sub(2));
        if slots < 16 {
            let problem = format!("{}; at least 18 to be served", config.max_queue_entries);
            return Err(SsdError::config("max_queue_entries", problem));
        }
        let pairs = usize::from(config.max_io_queues) + 1;
        let controller = Controller::new(config, medium);
        let machine = Machine::new(controller, slots, pairs, entries)
            .ok_or_else(|| SsdError::config("max_io_queues", "no memory for so many queues"))?;
        let free = (0..slots as u16).rev().collect();
        let mut backend = Self {
            machine,
            clock: MonotonicClock::new(),
            slots: vec![Slot::default(); slots],
            free,
            held: Vec::new(),
            pairs: vec![Pair::default(); pairs],
            entries,
            filling: 0,
            resets: 0,
            strays: 0,
        };
        backend.enable();
        Ok(backend)
    }

    pub(super) fn machine(&self) -> &Machine {
        &self.machine
    }

    pub(super) fn machine_mut(&mut self) -> &mut Machine {
        &mut self.machine
    }

    pub(super) fn controller(&mut self) -> &mut Controller {
        self.machine.controller_mut()
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Returns how long the thread stays awake without work.
    pub(super) fn park_after_ns(&self) -> u64 {
        self.machine.controller().config.park_after_ns
    }

    /// Resets the controller and enables it. Nothing is in flight afterwards.
    pub(super) fn enable(&mut self) {
        (0..self.pairs.len()).for_each(|pair| self.forget(pair));
        let now_ns = self.now_ns();
        let (sq, cq) = self.machine.rings(0);
        self.machine.clear_pair(0);
        let entries = self.entries;
        let controller = self.machine.controller_mut();
        controller.write32(regs::CC, 0, now_ns);
        let aqa = Aqa::new(entries, entries);
        controller.write32(regs::AQA, aqa.0, now_ns);
        controller.write64(regs::ASQ, sq, now_ns);
        controller.write64(regs::ACQ, cq, now_ns);
        let cc = Cc(0).with_en(true).with_iosqes(6).with_iocqes(4);
        controller.write32(regs::CC, cc.0, now_ns);
        self.resets = self.machine.controller().counters.resets.get();
        self.pairs[0] = Pair::opened();
        self.ask_for_event();
    }

    /// Forgets the commands of a pair, which are gone.
    fn forget(&mut self, pair: usize) {
        self.pairs[pair] = Pair::default();
        for slot in 0..self.slots.len() {
            let of = &self.slots[slot];
            if of.state == State::InFlight && usize::from(of.pair) == pair {
                self.release(slot as u16);
            }
        }
    }

    fn ask_for_event(&mut self) {
        let sqe = Sqe::new(admin::ASYNC_EVENT_REQUEST, EVENT_CID, 0);
        self.push(0, &sqe);
    }

    /// Returns whether the controller was reset, but not by the target, because its power was cut.
    pub(super) fn lost_power(&self) -> bool {
        self.machine.controller().counters.resets.get() != self.resets
    }

    pub(super) fn is_gone(&self) -> bool {
        self.machine.controller().regs.is_gone()
    }

    pub(super) fn csts(&self) -> Csts {
        Csts(self.machine.controller().regs.read32(CSTS))
    }

    /// Returns the log2 of the block size of a namespace.
    #[inline(always)]
    pub(super) fn lba_shift(&self, nsid: u32) -> Option<u8> {
        self.machine.controller().store.namespace(nsid).map(|namespace| namespace.lba_shift)
    }

    pub(super) fn config(&self) -> &SsdConfig {
        &self.machine.controller().config
    }

    /// Opens a pair of queues. Returns false if the controller is not ready for that.
    pub(super) fn open_pair(&mut self, pair: u16) -> bool {
        let at = usize::from(pair);
        if self.pairs[at].open {
            return true;
        }
        let (sq, cq) = self.machine.rings(at);
        self.machine.clear_pair(at);
        let entries = self.entries;
        let open = self.machine.controller_mut().open_pair(pair, sq, cq, entries);
        if open {
            self.pairs[at] = Pair::opened();
        }
        open
    }

    /// Closes a pair of queues. No command of it is executed any more.
    pub(super) fn close_pair(&mut self, pair: u16) {
        let now_ns = self.now_ns();
        self.machine.controller_mut().close_pair(pair, now_ns);
        self.forget(usize::from(pair));
    }

    /// Returns the maximum number of slots of a connection.
    #[inline(always)]
    pub(super) fn most(&self) -> usize {
        self.slots.len() / 2
    }

    /// Returns the number of slots that a connection holds until their data is sent.
    #[inline(always)]
    pub(super) fn held(&self, conn: ConnId) -> usize {
        let held = self.held.get(conn.index as usize);
        held.map_or(0, |&(of, count)| if of == conn.generation { count as usize } else { 0 })
    }

    /// Returns whether a connection may take a slot. I/O queues leave some slots to admin queues.
    /// Connections that have no queue yet leave some, too, but fewer.
    #[inline(always)]
    pub(super) fn may_take(&self, conn: ConnId, qid: Option<u16>) -> bool {
        let kept = match qid {
            Some(0) => 0,
            None => self.slots.len() / (2 * KEPT),
            Some(_) => self.slots.len() / KEPT,
        };
        self.free.len() > kept && self.held(conn) < self.most()
    }

    /// Returns whether all slots are free.
    pub(super) fn is_idle(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Takes a slot. There must be a free one.
    #[inline(always)]
    pub(super) fn take(&mut self, conn: ConnId) -> Option<u16> {
        let slot = self.free.pop()?;
        let of = &mut self.slots[usize::from(slot)];
        *of = Slot { state: State::Taken, conn, received: 0, bad: false, is_read: false, ..*of };
        let at = conn.index as usize;
        if self.held.len() <= at {
            self.held.resize(at + 1, (0, 0));
        }
        let held = &mut self.held[at];
        if held.0 != conn.generation {
            *held = (conn.generation, 0);
        }
        held.1 += 1;
        Some(slot)
    }

    #[inline(always)]
    pub(super) fn slot(&self, slot: u16) -> &Slot {
        &self.slots[usize::from(slot)]
    }

    #[inline(always)]
    pub(super) fn slot_mut(&mut self, slot: u16) -> &mut Slot {
        &mut self.slots[usize::from(slot)]
    }

    /// Releases a slot, whatever it was used for.
    #[inline(always)]
    pub(super) fn release(&mut self, slot: u16) {
        let of = &mut self.slots[usize::from(slot)];
        if of.state == State::Filling {
            self.filling -= 1;
        }
        if of.state != State::Free {
            of.state = State::Free;
            self.free.push(slot);
            // Slots of an earlier connection at this place do not count any more.
            let conn = of.conn;
            if let Some(held) = self.held.get_mut(conn.index as usize)
                && held.0 == conn.generation
            {
                held.1 -= 1;
            }
        }
    }

    /// Releases the slots for which a connection that ends has received data. Commands in flight
    /// end by themselves.
    pub(super) fn abandon(&mut self, conn: ConnId) {
        for slot in 0..self.slots.len() {
            let of = &self.slots[slot];
            if of.conn == conn && matches!(of.state, State::Taken | State::Filling) {
                self.release(slot as u16);
            }
        }
    }

    /// Returns the slot of a command in flight.
    pub(super) fn find(&self, conn: ConnId, cid: u16) -> Option<u16> {
        let is_it =
            |of: &Slot| of.state == State::InFlight && of.conn == conn && of.sqe.cid() == cid;
        self.slots.iter().position(is_it).map(|slot| slot as u16)
    }

    /// Passes a command to the controller. Returns false if its queue is closed.
    #[inline(always)]
    pub(super) fn stage(&mut self, slot: u16, pair: u16) -> bool {
        if !self.pairs[usize::from(pair)].open {
            return false;
        }
        let at = usize::from(slot);
        let of = &mut self.slots[at];
        if of.state == State::Filling {
            self.filling -= 1;
        }
        of.state = State::InFlight;
        of.pair = pair;
        let (len, is_read) = (of.len as usize, of.is_read);
        let mut sqe = of.sqe;
        // PRPs replace the SGL, and the host's identifier stays in the slot.
        sqe.cdw0.set(sqe.cdw0.get() & 0xff | u32::from(slot) << 16);
        sqe.mptr.set(0);
        if pair == 0 && !is_read && len < PAGE_BYTES as usize {
            // The SSD may take more data than have come, and the buffer was another host's.
            self.machine.data_mut(at, len..PAGE_BYTES as usize).fill(0);
        }
        let (prp1, prp2) = self.machine.prps(at, len);
        sqe = sqe.with_prps(prp1, prp2);
        self.push(pair, &sqe);
        true
    }

    #[inline(always)]
    fn push(&mut self, pair: u16, sqe: &Sqe) {
        let at = usize::from(pair);
        let of = &mut self.pairs[at];
        self.machine.write_sqe(at, of.tail, sqe);
        of.tail = if of.tail + 1 == self.entries { 0 } else { of.tail + 1 };
        of.in_flight += 1;
        if let Some(doorbell) = self.machine.controller().doorbells.sq_tail(pair) {
            doorbell.store(of.tail, Ordering::Release);
        }
    }

    /// Lets the controller work, and collects what has completed.
    #[inline]
    pub(super) fn turn(&mut self, reaped: &mut Vec<Reaped>) -> Turn {
        let clock = self.clock;
        let controller = self.machine.controller_mut();
        controller.begin_turn();
        let mut turn = controller.turn(&clock);
        let mut turns = 1;
        let worked = turn == Turn::Worked;
        while turn == Turn::Worked && turns < TURNS {
            turn = controller.turn(&clock);
            turns += 1;
        }
        if worked {
            for pair in 0..self.pairs.len() {
                if self.pairs[pair].in_flight > 0 {
                    self.reap(pair, reaped);
                }
            }
            return Turn::Worked;
        }
        turn
    }

    fn reap(&mut self, pair: usize, reaped: &mut Vec<Reaped>) {
        let mut rearm = false;
        let before = self.pairs[pair].head;
        loop {
            let of = &mut self.pairs[pair];
            let cqe = self.machine.read_cqe(pair, of.head);
            if cqe.phase() != of.phase {
                break;
            }
            of.head += 1;
            if of.head == self.entries {
                of.head = 0;
                of.phase = !of.phase;
            }
            let cid = cqe.cid.get();
            if pair == 0 && cid == EVENT_CID {
                of.in_flight -= 1;
                rearm = cqe.status().is_success();
                if rearm {
                    reaped.push(Reaped::Event(cqe.dw0.get()));
                }
                continue;
            }
            match self.slots.get_mut(usize::from(cid)) {
                Some(slot) if slot.state == State::InFlight && usize::from(slot.pair) == pair => {
                    slot.state = State::Taken;
                    of.in_flight -= 1;
                    reaped.push(Reaped::Done(cid, cqe));
                }
                // The completion was injected, or is a second one.
                _ => self.strays += 1,
            }
        }
        let head = self.pairs[pair].head;
        if head != before
            && let Some(doorbell) = self.machine.controller().doorbells.cq_head(pair as u16)
        {
            doorbell.store(head, Ordering::Release);
        }
        if rearm {
            self.ask_for_event();
        }
    }

    /// Checks what is not checked each turn.
    pub(super) fn inspect(&mut self, reaped: &mut Vec<Reaped>) {
        let now_ns = self.now_ns();
        self.machine.controller_mut().inspect(now_ns);
        // The controller may have delivered an event.
        self.reap(0, reaped);
    }

    /// Returns whether the controller has admin commands of connections that are gone.
    pub(super) fn has_orphans(&self, is_live: impl Fn(ConnId) -> bool) -> bool {
        let mut slots = self.slots.iter();
        slots.any(|of| of.state == State::InFlight && of.pair == 0 && !is_live(of.conn))
    }

    /// Returns when the controller next has something to do.
    pub(super) fn next_event_ns(&self) -> Option<u64> {
        self.machine.controller().next_event_ns()
    }
}
