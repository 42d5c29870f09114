//! The two rings of a queue pair: raw memory that the device reads and writes concurrently.

#![expect(unsafe_code)]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use meantime_nvme_spec::cqe::{Cqe, phase_of_high_word};
use meantime_nvme_spec::sqe::Sqe;

use crate::prp::LIST_ENTRIES;
use meantime_hw::dma::Iova;
use meantime_hw::{self as hw, DmaBuf, DmaHeap, Doorbell};

const SQE_BYTES: usize = size_of::<Sqe>();
const CQE_BYTES: usize = size_of::<Cqe>();

/// Differs from every epoch of a controller: those are even, or [`u32::MAX`].
const CLOSED: u32 = u32::MAX - 2;

/// Wraps of a busy completion ring between two checks of the deadlines.
const ROUNDS_PER_LOOK: u32 = 4;

/// A submission ring, a completion ring, their doorbells, and a PRP list page per slot.
pub(crate) struct Ring {
    sqes: NonNull<[AtomicU64; 8]>,
    cqes: NonNull<[AtomicU64; 2]>,
    lists: NonNull<[AtomicU64; LIST_ENTRIES]>,
    lists_iova: Iova,
    entries: u16,
    sq_tail: u16,
    cq_head: u16,
    /// The head doorbell is written when these bits of the head are 0: about once per quarter of
    /// the ring.
    report_mask: u16,
    /// Whether the head doorbell is also written after each batch, so that the controller knows
    /// which entries it need not interrupt for.
    report_batches: bool,
    phase: bool,
    /// Whether a core other than this one reads the entries ([`hand_over`]).
    hands_over: bool,
    /// The epoch of the controller for which commands may be staged. See [`Ring::close`].
    open_epoch: u32,
    /// Number of wraps of the completion ring.
    rounds: u32,
    /// Whether the controller no longer knows the queue. Its doorbells must then not be written.
    muted: bool,
    tail_doorbell: Doorbell,
    head_doorbell: Doorbell,
    sq_iova: Iova,
    cq_iova: Iova,
    /// Freed with the ring; `None` once it is quarantined.
    memory: Option<Memory>,
}

struct Memory {
    sq: DmaBuf,
    cq: DmaBuf,
    lists: DmaBuf,
}

// SAFETY: the raw pointers lead into `memory`, which the ring owns; a ring is used by one thread at
// a time.
unsafe impl Send for Ring {}

impl Ring {
    /// Rings of `entries` slots each.
    ///
    /// The head doorbell is written once per quarter of the ring. That saves the polled path most
    /// of these stores and leaves the controller three quarters of the ring. With `report_batches`
    /// it is also written after each batch.
    pub(crate) fn new(
        heap: &DmaHeap,
        entries: u16,
        tail_doorbell: Doorbell,
        head_doorbell: Doorbell,
        report_batches: bool,
    ) -> hw::Result<Self> {
        assert!(entries >= 2, "a queue has at least two entries (NVMe Base 1.4 §4.1.3)");
        let count = usize::from(entries);
        let memory = Memory {
            sq: heap.alloc(count * SQE_BYTES)?,
            cq: heap.alloc(count * CQE_BYTES)?,
            lists: heap.alloc(count * LIST_ENTRIES * 8)?,
        };
        Ok(Self {
            sqes: memory.sq.as_raw().cast(),
            cqes: memory.cq.as_raw().cast(),
            lists: memory.lists.as_raw().cast(),
            lists_iova: memory.lists.iova(),
            entries,
            sq_tail: 0,
            cq_head: 0,
            report_mask: (1 << (entries / 4).max(1).ilog2()) - 1,
            report_batches,
            phase: true,
            hands_over: false,
            open_epoch: CLOSED,
            rounds: 0,
            muted: false,
            tail_doorbell,
            head_doorbell,
            sq_iova: memory.sq.iova(),
            cq_iova: memory.cq.iova(),
            memory: Some(memory),
        })
    }

    /// Sets whether another core reads the entries. If so, the lines of the submission ring are
    /// made ready for that.
    pub(crate) fn handing_over(mut self, hands_over: bool) -> Self {
        self.hands_over = hands_over;
        self
    }

    pub(crate) fn sq_iova(&self) -> Iova {
        self.sq_iova
    }

    pub(crate) fn cq_iova(&self) -> Iova {
        self.cq_iova
    }

    pub(crate) fn entries(&self) -> u16 {
        self.entries
    }

    /// The PRP list page of slot `tag`, and its address for the controller.
    #[inline(always)]
    pub(crate) fn list(&self, tag: u16) -> (&[AtomicU64; LIST_ENTRIES], Iova) {
        debug_assert!(tag < self.entries);
        // SAFETY: `lists` has a page for each of `entries` slots, and tags are below that. Atomics,
        // so the controller's reading is no data race.
        let list = unsafe { self.lists.add(usize::from(tag)).as_ref() };
        (list, Iova(self.lists_iova.0 + u64::from(tag) * (LIST_ENTRIES as u64 * 8)))
    }

    /// Writes `sqe` at the tail without ringing the doorbell.
    ///
    /// The caller has a slot for each command in flight and fewer slots than entries, so the
    /// controller has already fetched the entry at the tail (ARCHITECTURE.md §2, rule 6).
    #[inline(always)]
    pub(crate) fn push(&mut self, sqe: &Sqe) {
        // SAFETY: `sq_tail` < `entries`.
        let entry = unsafe { self.sqes.add(usize::from(self.sq_tail)).as_ref() };
        for (cell, word) in entry.iter().zip(sqe.to_words()) {
            // Relaxed: the doorbell's Release publishes the entry.
            cell.store(word, Ordering::Relaxed);
        }
        if self.hands_over {
            hand_over(entry);
        }
        self.sq_tail += 1;
        if self.sq_tail == self.entries {
            self.sq_tail = 0;
        }
    }

    #[inline(always)]
    pub(crate) fn sq_tail(&self) -> u16 {
        self.sq_tail
    }

    /// The CIDs in the submission ring, oldest entry first.
    pub(crate) fn cids(&self) -> impl Iterator<Item = u16> + '_ {
        let (entries, tail) = (u32::from(self.entries), u32::from(self.sq_tail));
        (0..entries).map(move |n| {
            // SAFETY: the remainder is below `entries`.
            let entry = unsafe { self.sqes.add(((tail + n) % entries) as usize).as_ref() };
            // CDW0 31:16. A device that overwrites it affects only the order in which we retry.
            (entry[0].load(Ordering::Relaxed) >> 16) as u16
        })
    }

    /// Announces all pushed entries to the controller.
    #[inline(always)]
    pub(crate) fn write_tail(&self) {
        self.tail_doorbell.write_tail(self.sq_tail);
    }

    /// Takes the next completion queue entry, if there is one.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<Cqe> {
        // SAFETY: `cq_head` < `entries`.
        let entry = unsafe { self.cqes.add(usize::from(self.cq_head)).as_ref() };
        // Acquire: the phase comes first; neither the rest of the entry nor the data may be read
        // before it (ARCHITECTURE.md §2, rule 2).
        let high = entry[1].load(Ordering::Acquire);
        if phase_of_high_word(high) != self.phase {
            return None;
        }
        let low = entry[0].load(Ordering::Relaxed);
        self.cq_head += 1;
        if self.cq_head == self.entries {
            self.wrap();
        }
        if self.cq_head & self.report_mask == 0 {
            self.report_head();
        }
        Some(Cqe::from_words([low, high]))
    }

    #[cold]
    fn wrap(&mut self) {
        self.cq_head = 0;
        self.phase = !self.phase;
        self.rounds = self.rounds.wrapping_add(1);
        // A queue that is always busy never runs out of completions, so it never reaches the
        // deadline check. Closing the ring sends the next command through `IoQueue::check`.
        if self.rounds.is_multiple_of(ROUNDS_PER_LOOK) {
            self.close();
        }
    }

    /// The epoch of the controller for which commands may be staged.
    #[inline(always)]
    pub(crate) fn open_epoch(&self) -> u32 {
        self.open_epoch
    }

    /// Blocks staging until the slow path has run.
    pub(crate) fn close(&mut self) {
        self.open_epoch = CLOSED;
    }

    /// Allows staging while the controller's epoch is `epoch`.
    pub(crate) fn open(&mut self, epoch: u32) {
        self.open_epoch = epoch;
    }

    /// Whether [`Ring::take`] would find an entry.
    #[inline(always)]
    pub(crate) fn has_entry(&self) -> bool {
        // SAFETY: `cq_head` < `entries`.
        let entry = unsafe { self.cqes.add(usize::from(self.cq_head)).as_ref() };
        phase_of_high_word(entry[1].load(Ordering::Acquire)) == self.phase
    }

    /// Ends a batch of taken entries.
    #[inline(always)]
    pub(crate) fn end_batch(&self) {
        if self.report_batches {
            self.report_head();
        }
    }

    #[inline]
    fn report_head(&self) {
        if !self.muted {
            self.head_doorbell.write_head(self.cq_head);
        }
    }

    /// Mutes the doorbells after the controller has forgotten the queue. Entries that it wrote
    /// earlier can still be taken.
    pub(crate) fn mute(&mut self) {
        self.muted = true;
        self.close();
    }

    /// Whether the doorbells must not be written.
    pub(crate) fn is_muted(&self) -> bool {
        self.muted
    }

    /// Replaces the doorbells of a queue that the controller does not know at present.
    pub(crate) fn set_doorbells(&mut self, (tail, head): (Doorbell, Doorbell)) {
        (self.tail_doorbell, self.head_doorbell) = (tail, head);
    }

    /// Empties both rings. Only called when the controller no longer knows them.
    pub(crate) fn reset(&mut self) {
        for index in 0..usize::from(self.entries) {
            // SAFETY: `index` < `entries`.
            for cell in unsafe { self.cqes.add(index).as_ref() } {
                cell.store(0, Ordering::Relaxed);
            }
        }
        self.sq_tail = 0;
        self.cq_head = 0;
        self.muted = false;
        self.phase = true;
    }

    /// Keeps the memory allocated for ever: the controller may still write to it.
    pub(crate) fn quarantine(&mut self) {
        if let Some(Memory { sq, cq, lists }) = self.memory.take() {
            sq.quarantine();
            cq.quarantine();
            lists.quarantine();
        }
    }
}

/// Hands the line of `entry`, just written, to the core that reads it next, and fetches the line of
/// the next entry for writing. The gap has time for both; without this, between two cores far
/// apart, the reader waits for the line to leave this core's cache, and the next submission for it
/// to leave the reader's. Both are hints: for the last entry the second concerns whatever memory
/// comes after it. If this core reads the entry, the first costs some 120 ns.
#[inline(always)]
fn hand_over(entry: &[AtomicU64; 8]) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: hints never fault and change no architectural state, whatever the address; processors
    // without CLDEMOTE or PREFETCHW treat their encodings as no-ops.
    unsafe {
        std::arch::asm!(
            "cldemote [{entry}]",
            "prefetchw [{entry} + 64]",
            entry = in(reg) entry,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = entry;
}
