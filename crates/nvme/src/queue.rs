//! A queue pair: slots with command identifiers, submission, and reaping that does not trust the
//! device.

use std::sync::atomic::Ordering;

use meantime_nvme_spec::cqe::Cqe;
use meantime_nvme_spec::identify::oncs;
use meantime_nvme_spec::opcode::io;
use meantime_nvme_spec::sgl::SglDescriptor;
use meantime_nvme_spec::sqe::{Sqe, fuse};
use meantime_nvme_spec::status::Status;

use super::prp;
use super::recovery::{Recovery, micros};
use super::ring::Ring;
use meantime_hw::dma::Iova;

/// Bits of a CID that are the slot's index; the six bits above are its generation.
const TAG_BITS: u32 = 10;

/// The most commands that a queue can have in flight.
pub const MAX_SLOTS: u16 = 1 << TAG_BITS;

const TAG_MASK: u16 = MAX_SLOTS - 1;

/// Added to a CID to get the same tag's next generation; after 64 of them the 16 bits wrap around.
const NEXT_GENERATION: u16 = 1 << TAG_BITS;

/// The operation of an I/O command (NVM command set, NVMe Base 1.4 §6).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// Read.
    Read = io::READ,
    /// Write.
    Write = io::WRITE,
    /// Make all completed writes durable.
    #[default]
    Flush = io::FLUSH,
    /// Write zeroes without a buffer.
    WriteZeroes = io::WRITE_ZEROES,
    /// Tell the device that the contents are no longer needed.
    Deallocate = io::DATASET_MANAGEMENT,
    /// Compare with a buffer; ends with the status *Compare Failure* if they differ.
    Compare = io::COMPARE,
    /// Read without transferring, to find unreadable blocks.
    Verify = io::VERIFY,
    /// Make blocks unreadable until written again, to test the handling of such blocks.
    WriteUncorrectable = io::WRITE_UNCORRECTABLE,
    /// Compare with the first half of a buffer, and if the data is equal write the second half,
    /// atomically. These are two commands, fused; there is no opcode for both.
    CompareAndWrite = 0xff,
}

impl Op {
    /// Whether it has a buffer.
    #[inline(always)]
    pub fn has_data(self) -> bool {
        matches!(self, Self::Read | Self::Write | Self::Compare | Self::CompareAndWrite)
    }

    /// Whether every device supports it, and it has a buffer.
    #[inline(always)]
    pub fn is_common(self) -> bool {
        matches!(self, Self::Read | Self::Write)
    }

    /// The ONCS bit that says whether a device supports it, and its name; `None` if every device
    /// does.
    pub fn optional(self) -> Option<(u16, &'static str)> {
        match self {
            // FUSES says whether the last one is supported.
            Self::Read | Self::Write | Self::Flush | Self::CompareAndWrite => None,
            Self::WriteZeroes => Some((oncs::WRITE_ZEROES, "Write Zeroes")),
            Self::Deallocate => Some((oncs::DATASET_MANAGEMENT, "Dataset Management (deallocate)")),
            Self::Compare => Some((oncs::COMPARE, "Compare")),
            Self::Verify => Some((oncs::VERIFY, "Verify")),
            Self::WriteUncorrectable => Some((oncs::WRITE_UNCORRECTABLE, "Write Uncorrectable")),
        }
    }
}

/// One command: never larger than the device's limit.
#[derive(Debug, Clone, Copy, Default)]
pub struct Command {
    /// The operation.
    pub op: Op,
    /// Namespace.
    pub nsid: u32,
    /// First logical block.
    pub slba: u64,
    /// Number of blocks, from 1; 0 for a flush.
    pub nlb: u32,
    /// Address of the data; unused without data.
    pub data: Iova,
    /// PRP2 if the data is scattered over pages: the second page, or a list. 0 means that the data
    /// is contiguous.
    pub second: Iova,
    /// Length of the data in bytes.
    pub data_bytes: u32,
    /// Durable when complete (Force Unit Access).
    pub fua: bool,
}

impl Command {
    /// The entry of a command whose data PRP1 and PRP2 describe.
    #[inline(always)]
    fn transfer(&self, cid: u16, (prp1, prp2): (u64, u64)) -> Sqe {
        let &Self { op, nsid, slba, nlb, fua, .. } = self;
        // 65,536 blocks wrap to FFFFh as required: the field is 0's based.
        let nlb = nlb.wrapping_sub(1) as u16;
        Sqe::transfer(op as u8, cid, nsid, slba, nlb, prp1, prp2, fua)
    }
}

/// The result of a command.
pub type Outcome = Result<u32, CommandError>;

/// How a command ended by its own completion queue entry: dword 0, or the status of a failure.
pub type CommandResult = std::result::Result<u32, Status>;

/// The end of a command by its own completion queue entry, as one number.
#[derive(Debug, Clone, Copy)]
struct Completed(u64);

impl Completed {
    fn new(requester: u16, status: Status, dw0: u32) -> Self {
        Self(u64::from(requester) | u64::from(status.bits()) << 16 | u64::from(dw0) << 32)
    }

    fn requester(self) -> u16 {
        self.0 as u16
    }

    fn result(self) -> CommandResult {
        let status = Status::from_bits((self.0 >> 16) as u16);
        if status.is_success() { Ok((self.0 >> 32) as u32) } else { Err(status) }
    }
}

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
    /// Only for a flush: the device lost power, and with it perhaps the content of its volatile
    /// cache. This is reported once to each channel.
    #[error(
        "the device lost power, and perhaps writes that were done and not yet flushed: write again \
         what was written since the last flush"
    )]
    CacheLost,
    /// The device is gone.
    #[error("the device is gone")]
    Gone {
        /// Whether the device was cut off from memory. If not, buffers must never be reused.
        memory_released: bool,
    },
}

// Every I/O moves a result, so its size matters.
const _: () = assert!(size_of::<CommandError>() == 4 && size_of::<Outcome>() == 8);

/// There is no free slot: the caller has to reap first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the queue is full")]
pub struct QueueFull;

/// The counters of a queue pair.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Commands staged.
    pub staged: u64,
    /// Commands ended, by their own entry or by recovery.
    pub ended: u64,
    /// Entries refused because their CID was unknown, stale or of another queue.
    pub strays: u64,
    /// Entries with an impossible SQ head.
    pub bad_sqhd: u64,
    /// Commands found complete only after their deadline.
    pub late: u64,
    /// Abort commands sent.
    pub aborts: u64,
    /// Times the queue was deleted and created again.
    pub recreations: u64,
    /// Commands that were repeated because the device answered with a status that allows it.
    pub retries: u64,
    /// Commands that were put back after their queue was deleted or the controller reset.
    pub requeued: u64,
}

/// This flag in a slot's requester marks a command of a fused pair, which is never repeated.
const FUSED: u16 = 1 << 15;

/// A slot's index from a tag with any upper bits, without a bounds check.
#[inline(always)]
const fn index(tag: u16) -> usize {
    (tag & TAG_MASK) as usize
}

#[derive(Debug, Clone, Copy)]
struct CommandSlot {
    /// The upper word of the CQE that completes this slot's command with success, shifted right by
    /// the 16 bits of the SQ head, and without the phase tag:
    ///
    /// ```text
    /// bit  63        62      48 47        33 32         31       16 15        0
    ///     | VACANT  | 0        | status: 0  | phase: 0 | CID       | SQ id     |
    /// ```
    ///
    /// [`VACANT`] is set while there is no command. No CQE has it, so none matches.
    key: u64,
    /// When the deadline sweep first saw this command, in µs (which may wrap); 0 if it has not yet.
    first_swept_us: u32,
    /// What the command belongs to, as numbered by the layer above: in the block layer the
    /// request's slot. It has [`FUSED`] set if the command is one of a pair.
    requester: u16,
    /// The CID of the command, or of the next one: the generation is incremented at each release.
    /// `key` contains it too. Staging a command loads these 16 bits instead of shifting `key`,
    /// which it is changing, and the slot's 16 bytes have room for them.
    cid: u16,
}

/// The flag is above the 48 bits that come from a CQE.
const VACANT: u64 = 1 << 63;

/// The phase tag, above SQ identifier and CID.
const PHASE: u64 = 1 << 32;

const _: () = assert!(size_of::<CommandSlot>() == 16);

impl CommandSlot {
    #[inline(always)]
    fn is_busy(&self) -> bool {
        self.key & VACANT == 0
    }

    /// Frees the slot, and advances its generation.
    #[inline(always)]
    fn vacate(&mut self) {
        self.cid = self.cid.wrapping_add(NEXT_GENERATION);
        self.key =
            u64::from((self.key as u32).wrapping_add(u32::from(NEXT_GENERATION) << 16)) | VACANT;
    }
}

/// A free slot, to stage one command in.
#[derive(Debug)]
pub struct Tag(u16);

impl Tag {
    /// One of the slots that the caller assigns. It must have no command in flight on the queue.
    #[inline(always)]
    pub fn assigned(slot: u16) -> Self {
        Self(slot)
    }
}

/// A submission and a completion queue, with a slot for each command in flight. It belongs to one
/// thread.
pub struct QueuePair {
    ring: Ring,
    slots: Box<[CommandSlot; MAX_SLOTS as usize]>,
    count: u16,
    /// Slots `0..assigned` are assigned by the caller.
    assigned: u16,
    /// Indices of the other free slots; the one freed last is reused first, while its cache lines
    /// are warm.
    free: Vec<u16>,
    /// Commands staged since the queue was created, and commands ended in any way.
    staged: u64,
    ended: u64,
    qid: u16,
    /// The last tail written to the doorbell.
    tail_rung: u16,
    counters: QueueCounters,
    /// Whether long transfers use an SGL instead of a PRP list.
    sgl: bool,
    /// Retry state, if commands are repeated.
    pub(super) recovery: Option<Box<Recovery>>,
}

impl QueuePair {
    /// A queue pair with one slot less than `ring` has entries: one entry tells full from empty.
    ///
    /// The caller assigns slots `0..assigned` by [`Tag::assigned`], one command at a time to each.
    /// [`QueuePair::take_tag`] hands out the others.
    pub(crate) fn new(qid: u16, ring: Ring, assigned: u16) -> Self {
        let count = ring.entries() - 1;
        assert!(count <= MAX_SLOTS, "a queue of {count} slots does not fit the CID");
        assert!(assigned <= count, "{assigned} slots cannot be assigned of {count}");
        let free = |tag| CommandSlot {
            key: u64::from(tag) << 16 | u64::from(qid) | VACANT,
            requester: 0,
            first_swept_us: 0,
            cid: tag,
        };
        let slots: Vec<CommandSlot> = (0..MAX_SLOTS).map(free).collect();
        Self {
            ring,
            slots: slots.try_into().expect("as many as there can be"),
            count,
            assigned,
            free: (assigned..count).rev().collect(),
            staged: 0,
            ended: 0,
            qid,
            tail_rung: 0,
            counters: QueueCounters::default(),
            sgl: false,
            recovery: None,
        }
    }

    /// The queue identifier.
    pub fn qid(&self) -> u16 {
        self.qid
    }

    /// The most commands in flight.
    pub fn slots(&self) -> u16 {
        self.count
    }

    /// Number of commands in flight, or held to be staged again.
    #[inline(always)]
    pub fn in_flight(&self) -> u16 {
        (self.staged - self.ended) as u16
    }

    /// Counters since the queue was created.
    pub fn counters(&self) -> QueueCounters {
        QueueCounters { staged: self.staged, ended: self.ended, ..self.counters }
    }

    pub(crate) fn counters_mut(&mut self) -> &mut QueueCounters {
        &mut self.counters
    }

    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    pub(crate) fn ring_mut(&mut self) -> &mut Ring {
        &mut self.ring
    }

    /// Number of slots that [`QueuePair::take_tag`] can return.
    pub(crate) fn free_tags(&self) -> usize {
        self.free.len()
    }

    /// A free slot for [`QueuePair::stage`].
    #[inline(always)]
    pub(crate) fn take_tag(&mut self) -> Option<Tag> {
        self.free.pop().map(Tag)
    }

    /// Stages `command` for `requester` in slot `tag`. Nothing reaches the device before
    /// [`QueuePair::ring_doorbell`].
    pub(crate) fn stage(&mut self, Tag(tag): Tag, requester: u16, command: &Command) {
        if command.second.0 != 0 {
            return self.stage_scattered(tag, requester, command);
        }
        if self.sgl && command.op.has_data() && prp::needs_list(command.data, command.data_bytes) {
            return self.stage_sgl(tag, requester, command);
        }
        if command.op.has_data() {
            return self.stage_transfer(Tag(tag), requester, command);
        }
        let cid = self.occupy(tag, requester);
        let &Command { nsid, slba, nlb, fua, .. } = command;
        let sqe = match command.op {
            Op::WriteZeroes => Sqe::write_zeroes(cid, nsid, slba, nlb, false, fua),
            Op::Deallocate => {
                let range = self.deallocate_range(tag, slba, nlb);
                Sqe::dsm_deallocate(cid, nsid, 1, range.0, 0)
            }
            Op::Verify => Sqe::verify(cid, nsid, slba, nlb),
            Op::WriteUncorrectable => Sqe::write_uncorrectable(cid, nsid, slba, nlb),
            _ => Sqe::flush(cid, nsid),
        };
        self.ring.push(&sqe);
    }

    /// Stages a command with contiguous data for `requester` in slot `tag`, always by PRPs. Nothing
    /// reaches the device before [`QueuePair::ring_now`] or [`QueuePair::ring_doorbell`].
    #[inline(always)]
    pub fn stage_transfer(&mut self, Tag(tag): Tag, requester: u16, command: &Command) {
        debug_assert!(command.op.has_data());
        let cid = self.occupy(tag, requester);
        self.ring.push(&command.transfer(cid, self.prps(tag, command)));
    }

    /// PRP1 and PRP2 of a command in slot `tag` with contiguous data.
    #[inline(always)]
    fn prps(&self, tag: u16, command: &Command) -> (u64, u64) {
        let (list, list_iova) = self.ring.list(tag);
        prp::fill(command.data, command.data_bytes, list, list_iova)
    }

    /// Stages a command by one SGL descriptor: the data is contiguous in the controller's address
    /// space.
    fn stage_sgl(&mut self, tag: u16, requester: u16, command: &Command) {
        let sqe = command.transfer(self.occupy(tag, requester), (0, 0));
        let descriptor = SglDescriptor::data_block(command.data.0, command.data_bytes);
        self.ring.push(&sqe.with_sgl(descriptor));
    }

    /// Stages a command whose data already has a list of its pages, or is on two pages: always by
    /// PRPs, which every controller supports.
    fn stage_scattered(&mut self, tag: u16, requester: u16, command: &Command) {
        let cid = self.occupy(tag, requester);
        self.ring.push(&command.transfer(cid, (command.data.0, command.second.0)));
    }

    /// Makes [`QueuePair::stage`] use an SGL where data would need a PRP list. The controller must
    /// support them (SGLS).
    pub(crate) fn use_sgls(&mut self) {
        self.sgl = true;
    }

    /// Stages a command that its requester cannot build again
    /// ([`Requester::again`](super::Requester::again)), because its request has several, or it has
    /// no data. Keeps a copy for retries.
    #[inline]
    pub fn stage_kept(&mut self, Tag(tag): Tag, requester: u16, command: &Command) {
        self.keep(tag, command);
        self.stage(Tag(tag), requester, command);
    }

    /// Stages a fused pair for `requester`, which is below 2^15, in two slots: two adjacent
    /// entries, with no doorbell between.
    ///
    /// It is never repeated: one of the two alone is no pair, and the compare of a repeated pair
    /// would find the data that the first try wrote. Its outcome is reported with the highest bit
    /// of `requester` set.
    pub(crate) fn stage_pair(&mut self, tags: [Tag; 2], requester: u16, pair: &[Command; 2]) {
        let parts = tags.into_iter().zip(pair).zip([fuse::FIRST, fuse::SECOND]);
        for ((Tag(tag), command), part) in parts {
            let cid = self.occupy(tag, requester | FUSED);
            let sqe = command.transfer(cid, self.prps(tag, command));
            self.ring.push(&sqe.with_fuse(part));
        }
    }

    /// Whether a slot's `requester` marks a command of a fused pair.
    pub(super) fn is_fused(requester: u16) -> bool {
        requester & FUSED != 0
    }

    /// Stages a held `command` again in its slot, with a deadline that began at `since_us`. Returns
    /// its new CID.
    pub(super) fn stage_again(
        &mut self,
        tag: u16,
        requester: u16,
        command: &Command,
        since_us: u32,
    ) -> u16 {
        // It still counts as staged.
        self.staged -= 1;
        self.stage(Tag(tag), requester, command);
        let slot = &mut self.slots[index(tag)];
        slot.first_swept_us = since_us;
        slot.cid
    }

    /// Stages an entry unchanged except for its CID.
    pub(crate) fn stage_raw(&mut self, requester: u16, mut sqe: Sqe) -> Result<(), QueueFull> {
        let tag = self.free.pop().ok_or(QueueFull)?;
        sqe.set_cid(self.occupy(tag, requester));
        self.ring.push(&sqe);
        Ok(())
    }

    #[inline(always)]
    fn occupy(&mut self, tag: u16, requester: u16) -> u16 {
        let slot = &mut self.slots[index(tag)];
        debug_assert!(!slot.is_busy(), "slot {tag} has a command already");
        // Not `&= !VACANT`: a constant of 64 bits costs an instruction.
        slot.key = u64::from(slot.key as u32);
        slot.requester = requester;
        slot.first_swept_us = 0;
        self.staged += 1;
        slot.cid
    }

    /// Writes the single range of a deallocation into the slot's own page (NVMe Base 1.4 §6.7,
    /// figure "Range Definition").
    fn deallocate_range(&self, tag: u16, slba: u64, nlb: u32) -> Iova {
        let (page, iova) = self.ring.list(tag);
        page[0].store((u64::from(nlb) << 32).to_le(), Ordering::Relaxed);
        page[1].store(slba.to_le(), Ordering::Relaxed);
        iova
    }

    /// Announces the staged commands to the device.
    #[inline(always)]
    pub fn ring_now(&mut self) {
        self.tail_rung = self.ring.sq_tail();
        self.ring.write_tail();
    }

    /// Announces everything staged, if there is anything.
    #[inline(always)]
    pub fn ring_doorbell(&mut self) {
        let tail = self.ring.sq_tail();
        if tail != self.tail_rung && !self.ring.is_muted() {
            self.tail_rung = tail;
            self.ring.write_tail();
        }
    }

    /// Whether a completion waits to be reaped.
    #[inline(always)]
    pub fn has_completion(&self) -> bool {
        self.ring.has_entry()
    }

    /// Reaps at most a ring's worth of completions, and passes each outcome with its requester to
    /// `sink`. Returns the number of commands that ended.
    #[inline(always)]
    pub fn reap(&mut self, mut sink: impl FnMut(u16, Outcome)) -> usize {
        let mut ended = 0;
        // The loop is bounded: a device could write entries without end.
        for _ in 0..self.ring.entries() {
            let Some(cqe) = self.ring.take() else { break };
            let ends = |requester, result: CommandResult| {
                sink(requester, result.map_err(CommandError::Status));
            };
            ended += usize::from(self.accept(&cqe, ends).is_some());
        }
        if ended > 0 {
            self.ring.end_batch();
        }
        ended
    }

    /// Reaps at most one entry, for a caller that waits for one command. Returns what `sink` makes
    /// of the requester and the result of the command that it ended, if any.
    #[inline(always)]
    pub fn reap_one<R>(&mut self, sink: impl FnOnce(u16, CommandResult) -> R) -> Option<R> {
        let cqe = self.ring.take()?;
        self.accept(&cqe, sink)
    }

    /// Accepts the command that `cqe` completes, and frees its slot. Calls `sink` unless it is a
    /// stray, from two places, so that the common one knows that the status is success.
    #[inline(always)]
    fn accept<R>(&mut self, cqe: &Cqe, sink: impl FnOnce(u16, CommandResult) -> R) -> Option<R> {
        // An impossible head is counted and otherwise ignored: slots, not SQHD, bound the entries
        // in the ring.
        if cqe.sqhd.get() >= self.ring.entries() {
            self.counters.bad_sqhd += 1;
        }
        let cid = cqe.cid.get();
        let slot = &mut self.slots[index(cid)];
        // One comparison checks that the slot is busy, that generation and queue match, and that
        // the status is success.
        if slot.key != cqe.to_words()[1] >> 16 & !PHASE {
            let [low, high] = cqe.to_words();
            let completed = self.accept_other(low, high)?;
            return Some(sink(completed.requester(), completed.result()));
        }
        slot.vacate();
        let requester = slot.requester;
        self.vacated(cid & TAG_MASK);
        Some(sink(requester, Ok(cqe.dw0.get())))
    }

    /// Handles a stray, or a command that did not simply succeed. Returns `None` also if the
    /// command is to be repeated. Arguments and result are plain numbers, which are passed in
    /// registers, so the entry of a successful command need not be written to memory.
    #[cold]
    #[inline(never)]
    fn accept_other(&mut self, low: u64, high: u64) -> Option<Completed> {
        let cqe = Cqe::from_words([low, high]);
        let (cid, status) = (cqe.cid.get(), cqe.status());
        let slot = &mut self.slots[index(cid)];
        if slot.key != u64::from(u32::from(cid) << 16 | u32::from(cqe.sqid.get())) {
            self.refuse(&cqe);
            return None;
        }
        slot.vacate();
        let requester = slot.requester;
        if !status.is_success() && self.hold_failed(cid, requester, status) {
            return None;
        }
        self.vacated(cid & TAG_MASK);
        Some(Completed::new(requester, status, cqe.dw0.get()))
    }

    /// The slot that a CID names.
    pub(super) fn tag_of(&self, cid: u16) -> u16 {
        cid & TAG_MASK
    }

    /// When the deadline sweep first saw the current or last command in slot `tag`, in µs; 0 if it
    /// never did.
    pub(super) fn first_swept_us(&self, tag: u16) -> u32 {
        self.slots[index(tag)].first_swept_us
    }

    /// Every command that the device has: (tag, CID, requester).
    pub(super) fn busy(&self) -> Vec<(u16, u16, u16)> {
        let slots = (0..self.count).map(|tag| (tag, &self.slots[index(tag)]));
        slots
            .filter(|(_, slot)| slot.is_busy())
            .map(|(tag, slot)| (tag, slot.cid, slot.requester))
            .collect()
    }

    /// Empties slot `tag`, whose command the device no longer has. The caller frees or refills
    /// the slot.
    pub(super) fn vacate(&mut self, tag: u16) {
        self.slots[index(tag)].vacate();
    }

    /// Counts the command in slot `tag` as ended, and frees the slot.
    #[inline(always)]
    pub(super) fn vacated(&mut self, tag: u16) {
        self.ended += 1;
        if tag >= self.assigned {
            self.free.push(tag);
        }
    }

    fn refuse(&mut self, cqe: &Cqe) {
        self.counters.strays += 1;
        tracing::warn!(
            qid = self.qid,
            cid = cqe.cid.get(),
            sqid = cqe.sqid.get(),
            "stray completion refused"
        );
    }

    /// Checks every command in flight. Returns the CID of one that is overdue: `timeout_ns` have
    /// passed since the first sweep that saw it, because submission reads no clock.
    pub(crate) fn sweep(&mut self, now_ns: u64, timeout_ns: u64) -> Option<u16> {
        let (now_us, timeout_us) = (micros(now_ns), timeout_ns.div_ceil(1_000));
        let mut overdue = None;
        for slot in self.slots.iter_mut().filter(|slot| slot.is_busy()) {
            if slot.first_swept_us == 0 {
                slot.first_swept_us = now_us;
            } else if u64::from(now_us.wrapping_sub(slot.first_swept_us)) >= timeout_us {
                overdue = Some(slot.cid);
            }
        }
        overdue
    }

    /// Whether the command with `cid` is still in flight.
    pub(crate) fn is_busy(&self, cid: u16) -> bool {
        let slot = &self.slots[index(cid)];
        slot.is_busy() && slot.cid == cid
    }

    /// Ends every command in flight with `error`, that of `victim` with [`CommandError::TimedOut`].
    /// Only called when the device can no longer access their buffers, or these are never reused.
    pub(crate) fn fail_all(
        &mut self,
        victim: Option<u16>,
        error: CommandError,
        sink: &mut dyn FnMut(u16, Outcome),
    ) {
        for tag in 0..self.count {
            let slot = &mut self.slots[index(tag)];
            if slot.is_busy() {
                let (cid, requester) = (slot.cid, slot.requester);
                slot.vacate();
                self.vacated(tag);
                let error = if victim == Some(cid) { CommandError::TimedOut } else { error };
                sink(requester, Err(error));
            }
        }
    }

    /// Empties the rings of a queue that the device no longer knows.
    pub(crate) fn reset_rings(&mut self) {
        assert_eq!(self.with_device(), 0, "commands in flight would be lost");
        self.ring.reset();
        self.tail_rung = 0;
    }

    /// Keeps the rings' memory allocated for ever.
    pub(crate) fn quarantine(&mut self) {
        self.ring.quarantine();
    }
}
