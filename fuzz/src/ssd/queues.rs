//! The queues as a host knows them, and what it may expect of each.

use meantime_nvme_spec::cqe::Cqe;
use meantime_nvme_spec::sqe::Sqe;

use crate::ahead;

use super::memory::{PAGE, RINGS};

/// The most entries of a queue that the host keeps account of: a page of each ring.
pub const SQ_ENTRIES: u32 = PAGE as u32 / 64;
pub const CQ_ENTRIES: u32 = PAGE as u32 / 16;

/// The page of submission queue `qid`; that of the completion queue follows.
pub fn sq_base(qid: u16) -> u64 {
    RINGS + u64::from(qid) * 2 * PAGE
}

pub fn cq_base(qid: u16) -> u64 {
    sq_base(qid) + PAGE
}

/// A submission queue.
pub struct Sq {
    pub qid: u16,
    pub cqid: u16,
    pub base: u64,
    pub entries: u32,
    /// The host has lost count of what the SSD fetches from it, or it never could: nothing is
    /// expected then.
    pub lost: bool,
    /// The oldest entry that the SSD may not have fetched.
    pub head: u32,
    /// What the doorbell last announced.
    pub tail: u32,
    /// Entries written beyond the tail.
    pub staged: u32,
    /// What the host wrote.
    pub ring: Vec<Sqe>,
    /// Announced and not completed, oldest first.
    pub in_flight: Vec<Sqe>,
}

impl Sq {
    pub fn new(qid: u16, cqid: u16, base: u64, entries: u32, ring: Option<Vec<Sqe>>) -> Self {
        let (lost, ring) = (ring.is_none(), ring.unwrap_or_default());
        Self {
            qid,
            cqid,
            base,
            entries,
            lost,
            head: 0,
            tail: 0,
            staged: 0,
            ring,
            in_flight: Vec::new(),
        }
    }

    pub fn give_up(&mut self) {
        self.lost = true;
        self.in_flight.clear();
    }

    /// Entries that can be written without touching one that may not have been fetched.
    pub fn room(&self) -> u32 {
        self.entries - 1 - ahead(self.head, self.tail, self.entries) - self.staged
    }

    /// The doorbell is about to say `tail`: everything from the old one on is in flight.
    pub fn announce(&mut self, tail: u32) {
        while self.tail != tail {
            self.in_flight.push(self.ring[self.tail as usize]);
            self.tail = (self.tail + 1) % self.entries;
        }
        self.staged = 0;
    }

    /// The command that `cqe` ends.
    pub fn complete(&mut self, cqe: &Cqe, is_conflict: bool) -> Option<Sqe> {
        let cid = cqe.cid.get();
        let mut same =
            self.in_flight.iter().enumerate().filter(|(_, sqe)| sqe.cid() == cid).map(|(at, _)| at);
        let first = same.next()?;
        // The one refused for its identifier came after the one that has it.
        let at = same.next().filter(|_| is_conflict).unwrap_or(first);
        Some(self.in_flight.remove(at))
    }
}

/// A completion queue.
pub struct Cq {
    pub qid: u16,
    pub entries: u32,
    /// Its memory is not the host's to read, or not where it thinks.
    pub lost: bool,
    /// The host wrote a head that cannot be. What the SSD makes of it is its own business, as long
    /// as it writes over nothing; no completion can be insisted on.
    pub corrupted: bool,
    /// Next entry to look at.
    pub head: u32,
    pub phase: bool,
    /// The head that the SSD was told.
    pub acked: u32,
    /// What each entry held when it was last looked at.
    pub seen: Vec<[u64; 2]>,
}

impl Cq {
    pub fn new(qid: u16, entries: u32, lost: bool) -> Self {
        let seen = if lost { Vec::new() } else { vec![[0; 2]; entries as usize] };
        Self { qid, entries, lost, corrupted: false, head: 0, phase: true, acked: 0, seen }
    }

    /// Entries looked at and not given back.
    pub fn unacked(&self) -> u32 {
        ahead(self.acked, self.head, self.entries)
    }
}
