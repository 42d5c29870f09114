//! The controller's submission and completion queues.

use meantime_nvme_spec::cqe::Cqe;
use meantime_nvme_spec::status::Status;

use super::doorbell::QueueDoorbell;
use crate::hostmem::Ring;

/// The maximum number of commands that are taken from a submission queue at once. More outstanding
/// cache misses do not help.
pub(super) const RUN: usize = 32;

/// Command identifiers in use, with a bit for each.
pub(super) struct CidSet {
    words: Box<[u64; 1024]>,
}

impl CidSet {
    fn new() -> Self {
        Self { words: Box::new([0; 1024]) }
    }

    /// Adds `cid`. Returns false if it was present already.
    #[inline(always)]
    pub(super) fn insert(&mut self, cid: u16) -> bool {
        let word = &mut self.words[usize::from(cid >> 6)];
        let bit = 1 << (cid & 63);
        let fresh = *word & bit == 0;
        *word |= bit;
        fresh
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, cid: u16) {
        self.words[usize::from(cid >> 6)] &= !(1 << (cid & 63));
    }

    pub(super) fn contains(&self, cid: u16) -> bool {
        self.words[usize::from(cid >> 6)] & 1 << (cid & 63) != 0
    }
}

/// A submission queue.
pub(super) struct Sq {
    pub(super) doorbell: QueueDoorbell,
    /// Next entry to fetch.
    pub(super) head: u32,
    /// An invalid tail value that has been reported already.
    pub(super) bad_tail: Option<u32>,
    pub(super) ring: Ring,
    pub(super) qid: u16,
    pub(super) cqid: u16,
    /// Its class under weighted round robin, as QPRIO says.
    pub(super) qprio: u8,
    /// Commands fetched and not yet completed.
    pub(super) outstanding: u32,
    /// Their identifiers.
    pub(super) cids: CidSet,
}

impl Sq {
    pub(super) fn new(qid: u16, cqid: u16, qprio: u8, ring: Ring, doorbell: QueueDoorbell) -> Self {
        let (head, bad_tail, outstanding, cids) = (0, None, 0, CidSet::new());
        Self { doorbell, head, bad_tail, ring, qid, cqid, qprio, outstanding, cids }
    }

    /// Returns the number of entries between `head` and a valid `tail`.
    #[inline(always)]
    pub(super) fn available(&self, tail: u32) -> u32 {
        if tail >= self.head { tail - self.head } else { tail + self.ring.entries() - self.head }
    }

    /// Returns the index of the entry `n` after the head. `n` is less than the queue's size.
    #[inline(always)]
    pub(super) fn index(&self, n: u32) -> u32 {
        let at = self.head + n;
        if at >= self.ring.entries() { at - self.ring.entries() } else { at }
    }

    /// Takes `n` entries.
    #[inline(always)]
    pub(super) fn advance(&mut self, n: u32) {
        self.head = self.index(n);
    }
}

/// A completion queue.
pub(super) struct Cq {
    pub(super) ring: Ring,
    pub(super) doorbell: QueueDoorbell,
    /// Next entry to write.
    tail: u32,
    phase: bool,
    /// Last head that the host reported.
    head: u32,
    /// Entries that may be written, as of that head.
    free: u32,
    /// Number of those entries that are reserved for commands fetched and not completed, so that a
    /// completion never finds its queue full.
    pub(super) reserved: u32,
    /// An invalid head value that has been reported already.
    bad_head: Option<u32>,
    /// Interrupt vector, if interrupts are enabled.
    pub(super) vector: Option<u16>,
    /// Entries written since interrupts were last considered.
    pub(super) unannounced: u32,
    /// Submission queues bound to it.
    pub(super) sqs: u32,
}

impl Cq {
    pub(super) fn new(ring: Ring, doorbell: QueueDoorbell, vector: Option<u16>) -> Self {
        let free = ring.entries() - 1;
        Self {
            ring,
            doorbell,
            tail: 0,
            // Entries of the first pass have phase 1 (1.4 §4.6).
            phase: true,
            head: 0,
            free,
            reserved: 0,
            bad_head: None,
            vector,
            unannounced: 0,
            sqs: 0,
        }
    }

    /// Returns the number of further commands that may be fetched, given the head as last read.
    #[inline(always)]
    pub(super) fn room(&self) -> u32 {
        // A stray entry never takes a reserved one, so this cannot wrap.
        self.free - self.reserved
    }

    /// Reads the head doorbell. An invalid value changes nothing. The first time, the broken rule
    /// is returned as an error.
    pub(super) fn refresh(&mut self) -> Result<(), &'static str> {
        let head = self.doorbell.load();
        if head == self.head || self.bad_head == Some(head) {
            return Ok(());
        }
        let entries = self.ring.entries();
        if head >= entries {
            self.bad_head = Some(head);
            return Err("completion queue head beyond the queue");
        }
        let consumed =
            if head >= self.head { head - self.head } else { head + entries - self.head };
        if consumed > entries - 1 - self.free {
            self.bad_head = Some(head);
            return Err("completion queue head beyond the entries written");
        }
        self.bad_head = None;
        self.head = head;
        self.free += consumed;
        Ok(())
    }

    /// Returns the phase of the next entry.
    pub(super) fn phase(&self) -> bool {
        self.phase
    }

    /// Writes an entry. There must be room, or an entry reserved for this command.
    #[inline(always)]
    pub(super) fn post(&mut self, dw0: u32, sqhd: u16, sqid: u16, cid: u16, status: Status) {
        assert!(self.free > 0, "a completion queue overflows");
        self.ring.write_cqe(self.tail, Cqe::new(dw0, sqhd, sqid, cid, status, self.phase));
        self.free -= 1;
        self.unannounced += 1;
        self.tail += 1;
        if self.tail == self.ring.entries() {
            self.tail = 0;
            self.phase = !self.phase;
        }
    }

    /// Writes an entry with the wrong phase, so that the host sees neither this entry nor any after
    /// it. This injects a fault.
    #[cold]
    pub(super) fn post_unseen(&mut self, dw0: u32, sqhd: u16, sqid: u16, cid: u16, status: Status) {
        self.phase = !self.phase;
        self.post(dw0, sqhd, sqid, cid, status);
        self.phase = !self.phase;
    }

    /// Prefetches the line of the next entry.
    #[inline(always)]
    pub(super) fn prefetch(&self) {
        self.ring.prefetch_cqe(self.tail);
    }
}
