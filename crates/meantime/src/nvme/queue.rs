//! A queue pair: slots with command identifiers, submission, and reaping that trusts nothing.

use std::sync::atomic::Ordering;

use meantime_spec::cqe::Cqe;
use meantime_spec::sqe::Sqe;
use meantime_spec::status::Status;

use super::prp;
use super::ring::Ring;
use crate::hw::dma::Iova;

/// Bits of a CID that are the slot's index; the six above are its generation.
const TAG_BITS: u32 = 10;

/// The most commands that a queue can have in flight.
pub const MAX_SLOTS: u16 = 1 << TAG_BITS;

const TAG_MASK: u16 = MAX_SLOTS - 1;
const GENERATIONS: u8 = 1 << (16 - TAG_BITS);

const _: () = assert!(TAG_BITS < 16 && GENERATIONS == 64);

/// What an I/O command does (NVM command set, NVMe Base 1.4 §6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Make everything durable that completed before.
    Flush,
    /// Write zeroes without a buffer.
    WriteZeroes,
    /// Tell the device that the contents are no longer needed.
    Deallocate,
}

/// One command: never more than the device takes at once.
#[derive(Debug, Clone, Copy)]
pub struct Command {
    /// What to do.
    pub op: Op,
    /// Namespace.
    pub nsid: u32,
    /// First logical block.
    pub slba: u64,
    /// How many, from 1; 0 for a flush.
    pub nlb: u32,
    /// Where the data is; unused without data.
    pub data: Iova,
    /// Length of the data in bytes.
    pub data_bytes: u32,
    /// Durable when complete (Force Unit Access).
    pub fua: bool,
}

/// How a command ended.
pub type Outcome = Result<u32, CommandError>;

/// Why a command failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The device completed it with an error.
    #[error("the device answered: {0}")]
    Status(Status),
    /// The device did not complete it in time; it was aborted, or its queue deleted.
    #[error("the device did not answer in time")]
    TimedOut,
    /// Its queue was deleted or its controller reset because of another command.
    #[error("given up because its queue or controller was reset")]
    Reset,
    /// The device is gone.
    #[error("the device is gone")]
    Gone {
        /// Whether the device was cut off from memory; if not, buffers must never be reused.
        memory_released: bool,
    },
}

/// There is no free slot: reap first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the queue is full")]
pub struct QueueFull;

/// What a queue pair has seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Commands submitted.
    pub submitted: u64,
    /// Commands completed by their own entry.
    pub completed: u64,
    /// Entries refused because their CID was unknown, stale or of another queue.
    pub strays: u64,
    /// Entries whose SQ head was not one that could be.
    pub bad_sqhd: u64,
    /// Commands that were found complete when their deadline had passed.
    pub late: u64,
    /// Abort commands sent.
    pub aborts: u64,
    /// Times the queue was deleted and created anew.
    pub recreations: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    /// Bumped at each release.
    generation: u8,
    busy: bool,
    /// Whose command this is, in the terms of the layer above.
    owner: u16,
    /// When the deadline sweep first met this command; 0 if it has not yet.
    first_swept_ns: u64,
}

/// A submission and a completion queue, with a slot for each command in flight. Belongs to one thread.
pub struct QueuePair {
    ring: Ring,
    slots: Box<[Slot]>,
    /// Indices of free slots; the one freed last is used next, while its lines are warm.
    free: Vec<u16>,
    qid: u16,
    /// The head of the submission queue that the device reported last.
    sq_head: u16,
    /// The tail that the device was told last.
    tail_rung: u16,
    counters: QueueCounters,
}

impl QueuePair {
    /// A queue pair with as many slots as `ring` has entries, less the one that tells full from empty.
    pub(crate) fn new(qid: u16, ring: Ring) -> Self {
        let count = ring.entries() - 1;
        assert!(count <= MAX_SLOTS, "a queue of {count} slots does not fit the CID");
        Self {
            ring,
            slots: vec![Slot::default(); usize::from(count)].into(),
            free: (0..count).rev().collect(),
            qid,
            sq_head: 0,
            tail_rung: 0,
            counters: QueueCounters::default(),
        }
    }

    /// The queue identifier.
    pub fn qid(&self) -> u16 {
        self.qid
    }

    /// How many commands can be in flight.
    pub fn slots(&self) -> u16 {
        self.slots.len() as u16
    }

    /// How many commands are in flight.
    #[inline(always)]
    pub fn in_flight(&self) -> u16 {
        (self.slots.len() - self.free.len()) as u16
    }

    /// What was counted so far.
    pub fn counters(&self) -> QueueCounters {
        self.counters
    }

    pub(crate) fn counters_mut(&mut self) -> &mut QueueCounters {
        &mut self.counters
    }

    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Stages `command` for `owner`. Nothing reaches the device before [`QueuePair::ring_doorbell`].
    #[inline(always)]
    pub fn stage(&mut self, owner: u16, command: &Command) -> Result<(), QueueFull> {
        let tag = self.free.pop().ok_or(QueueFull)?;
        let cid = self.occupy(tag, owner);
        let &Command { nsid, slba, nlb, fua, .. } = command;
        let sqe = match command.op {
            Op::Read => {
                let (prp1, prp2) = self.prps(tag, command);
                if fua {
                    Sqe::read_fua(cid, nsid, slba, nlb, prp1, prp2)
                } else {
                    Sqe::read(cid, nsid, slba, nlb, prp1, prp2)
                }
            }
            Op::Write => {
                let (prp1, prp2) = self.prps(tag, command);
                Sqe::write(cid, nsid, slba, nlb, prp1, prp2, fua)
            }
            Op::Flush => Sqe::flush(cid, nsid),
            Op::WriteZeroes => Sqe::write_zeroes(cid, nsid, slba, nlb, false, fua),
            Op::Deallocate => {
                let range = self.deallocate_range(tag, slba, nlb);
                Sqe::dsm_deallocate(cid, nsid, 1, range.0, 0)
            }
        };
        self.ring.push(&sqe);
        self.counters.submitted += 1;
        Ok(())
    }

    /// Stages an entry as it is, but for its CID.
    pub(crate) fn stage_raw(&mut self, owner: u16, mut sqe: Sqe) -> Result<(), QueueFull> {
        let tag = self.free.pop().ok_or(QueueFull)?;
        sqe.set_cid(self.occupy(tag, owner));
        self.ring.push(&sqe);
        self.counters.submitted += 1;
        Ok(())
    }

    #[inline(always)]
    fn occupy(&mut self, tag: u16, owner: u16) -> u16 {
        let slot = &mut self.slots[usize::from(tag)];
        debug_assert!(!slot.busy);
        slot.busy = true;
        slot.owner = owner;
        slot.first_swept_ns = 0;
        u16::from(slot.generation) << TAG_BITS | tag
    }

    #[inline(always)]
    fn prps(&self, tag: u16, command: &Command) -> (u64, u64) {
        let (list, list_iova) = self.ring.list(tag);
        prp::fill(command.data, command.data_bytes, list, list_iova)
    }

    /// Writes the one range of a deallocation into the slot's own page (NVMe Base 1.4 §6.7, figure "Range Definition").
    fn deallocate_range(&self, tag: u16, slba: u64, nlb: u32) -> Iova {
        let (page, iova) = self.ring.list(tag);
        page[0].store((u64::from(nlb) << 32).to_le(), Ordering::Relaxed);
        page[1].store(slba.to_le(), Ordering::Relaxed);
        iova
    }

    /// Tells the device of everything staged, if anything was.
    #[inline(always)]
    pub fn ring_doorbell(&mut self) {
        let tail = self.ring.sq_tail();
        if tail != self.tail_rung {
            self.tail_rung = tail;
            self.ring.ring_tail();
        }
    }

    /// Whether a completion waits to be reaped.
    #[inline(always)]
    pub fn has_completion(&self) -> bool {
        self.ring.has_entry()
    }

    /// Takes what has completed, at most a ring's worth, and hands each outcome with its owner to `sink`.
    /// Returns how many commands ended.
    #[inline(always)]
    pub fn reap(&mut self, mut sink: impl FnMut(u16, Outcome)) -> usize {
        let mut ended = 0;
        // Bounded: a device that writes entries without end must not keep us here.
        for _ in 0..self.ring.entries() {
            let Some(cqe) = self.ring.take() else { break };
            if let Some(owner) = self.accept(&cqe) {
                let status = cqe.status();
                let outcome =
                    if status.is_success() { Ok(cqe.dw0.get()) } else { Err(CommandError::Status(status)) };
                sink(owner, outcome);
                ended += 1;
            }
        }
        self.ring.report_head();
        ended
    }

    /// The owner of the command that `cqe` completes, whose slot is free from now on; `None` for a stray.
    #[inline(always)]
    fn accept(&mut self, cqe: &Cqe) -> Option<u16> {
        self.note_sq_head(cqe.sqhd.get());
        let cid = cqe.cid.get();
        let tag = cid & TAG_MASK;
        match self.slots.get(usize::from(tag)) {
            Some(slot)
                if slot.busy && u16::from(slot.generation) == cid >> TAG_BITS && cqe.sqid.get() == self.qid =>
            {
                let owner = slot.owner;
                self.release(tag);
                self.counters.completed += 1;
                Some(owner)
            }
            _ => {
                self.refuse(cqe);
                None
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn refuse(&mut self, cqe: &Cqe) {
        self.counters.strays += 1;
        tracing::warn!(qid = self.qid, cid = cqe.cid.get(), sqid = cqe.sqid.get(), "stray completion refused");
    }

    /// A head must lie between the last one and the tail.
    #[inline(always)]
    fn note_sq_head(&mut self, head: u16) {
        let entries = self.ring.entries();
        let distance = |to: u16| if to >= self.sq_head { to - self.sq_head } else { to + entries - self.sq_head };
        if head < entries && distance(head) <= distance(self.tail_rung) {
            self.sq_head = head;
        } else {
            self.counters.bad_sqhd += 1;
        }
    }

    #[inline(always)]
    fn release(&mut self, tag: u16) {
        let slot = &mut self.slots[usize::from(tag)];
        slot.busy = false;
        slot.generation = (slot.generation + 1) % GENERATIONS;
        self.free.push(tag);
    }

    /// Looks at every command in flight; the CID of one that has been so for `timeout_ns`, counted from the first sweep
    /// that met it. (No clock is read when a command is submitted.)
    pub(crate) fn sweep(&mut self, now_ns: u64, timeout_ns: u64) -> Option<u16> {
        let now_ns = now_ns.max(1);
        let mut overdue = None;
        for (tag, slot) in self.slots.iter_mut().enumerate().filter(|(_, slot)| slot.busy) {
            if slot.first_swept_ns == 0 {
                slot.first_swept_ns = now_ns;
            } else if now_ns.saturating_sub(slot.first_swept_ns) >= timeout_ns {
                overdue = Some(u16::from(slot.generation) << TAG_BITS | tag as u16);
            }
        }
        overdue
    }

    /// Whether the command with `cid` is still in flight.
    pub(crate) fn is_busy(&self, cid: u16) -> bool {
        let slot = self.slots.get(usize::from(cid & TAG_MASK));
        slot.is_some_and(|slot| slot.busy && u16::from(slot.generation) == cid >> TAG_BITS)
    }

    /// Ends every command in flight with `error`, that of `victim` with [`CommandError::TimedOut`].
    /// Only when the device can touch none of their buffers any more, or never will be trusted with memory again.
    pub(crate) fn fail_all(
        &mut self,
        victim: Option<u16>,
        error: CommandError,
        sink: &mut dyn FnMut(u16, Outcome),
    ) {
        for tag in 0..self.slots.len() as u16 {
            let slot = self.slots[usize::from(tag)];
            if slot.busy {
                let own = u16::from(slot.generation) << TAG_BITS | tag;
                self.release(tag);
                sink(slot.owner, Err(if victim == Some(own) { CommandError::TimedOut } else { error }));
            }
        }
    }

    /// Empty rings, for a queue that the device no longer knows.
    pub(crate) fn reset_rings(&mut self) {
        assert_eq!(self.in_flight(), 0, "commands in flight would be lost");
        self.ring.reset();
        self.sq_head = 0;
        self.tail_rung = 0;
    }

    /// Gives the rings' memory up for good.
    pub(crate) fn quarantine(self) {
        self.ring.quarantine();
    }
}
