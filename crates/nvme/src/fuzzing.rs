//! A queue pair over plain memory, for the fuzzers in `fuzz/`. This is not an interface: it changes
//! with their needs.

use meantime_nvme_spec::sqe::Sqe;

use super::queue::{Command, CommandError, Outcome, QueuePair, Tag};
use super::ring::Ring;
use meantime_hw::dma::Iova;
use meantime_hw::{self as hw, DmaBuf, DmaHeap, Doorbell};

/// A queue pair whose device is the fuzzer.
pub struct Rig {
    /// The fuzzers call its public methods directly.
    pub pair: QueuePair,
    /// A buffer on the chunk of the rings, from whose address theirs are computed.
    anchor: DmaBuf,
}

impl Rig {
    /// Rings of `entries` slots each, all on one chunk of `heap`, which holds nothing else.
    ///
    /// # Errors
    /// Fails if there is no memory.
    pub fn new(
        heap: &DmaHeap,
        (tail, head): (Doorbell, Doorbell),
        qid: u16,
        entries: u16,
        assigned: u16,
        report_batches: bool,
    ) -> hw::Result<Self> {
        let anchor = heap.alloc(1)?;
        let ring = Ring::new(heap, entries, tail, head, report_batches)?;
        Ok(Self { pair: QueuePair::new(qid, ring, assigned), anchor })
    }

    fn host(&self, iova: Iova) -> *mut u8 {
        self.anchor.as_raw().as_ptr().wrapping_add((iova.0 - self.anchor.iova().0) as usize)
    }

    /// The submission ring's first byte.
    pub fn sq(&self) -> *mut u8 {
        self.host(self.pair.ring().sq_iova())
    }

    /// The completion ring's first byte.
    pub fn cq(&self) -> *mut u8 {
        self.host(self.pair.ring().cq_iova())
    }

    /// Number of free slots that are not assigned.
    pub fn free_tags(&self) -> usize {
        self.pair.free_tags()
    }

    /// Stages `command` in a free slot. Returns false if there is none.
    pub fn stage(&mut self, requester: u16, command: &Command) -> bool {
        self.pair.take_tag().map(|tag| self.pair.stage(tag, requester, command)).is_some()
    }

    /// Stages `command` in an assigned slot, which must be free.
    pub fn stage_assigned(&mut self, slot: u16, requester: u16, command: &Command) {
        self.pair.stage(Tag::assigned(slot), requester, command);
    }

    /// Stages an entry. Returns false if no slot is free.
    pub fn stage_raw(&mut self, requester: u16, sqe: Sqe) -> bool {
        self.pair.stage_raw(requester, sqe).is_ok()
    }

    /// See `QueuePair::sweep`.
    pub fn sweep(&mut self, now_ns: u64, timeout_ns: u64) -> Option<u16> {
        self.pair.sweep(now_ns, timeout_ns)
    }

    /// See `QueuePair::is_busy`.
    pub fn is_busy(&self, cid: u16) -> bool {
        self.pair.is_busy(cid)
    }

    /// See `QueuePair::fail_all`.
    pub fn fail_all(
        &mut self,
        victim: Option<u16>,
        error: CommandError,
        sink: &mut dyn FnMut(u16, Outcome),
    ) {
        self.pair.fail_all(victim, error, sink);
    }

    /// See `QueuePair::reset_rings`.
    pub fn reset_rings(&mut self) {
        self.pair.reset_rings();
    }
}
