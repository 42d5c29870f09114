//! Commands that were fetched and whose completion is due later.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use meantime_spec::sqe::NSID_BROADCAST;
use meantime_spec::status::Status;

use super::faulty::Marks;
use crate::record::Recorded;

/// The most commands pending at once; no more are fetched then.
pub(super) const MAX_PENDING: usize = 16384;

/// A command whose completion is due later. Its data has been transferred already.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    pub(super) qid: u16,
    pub(super) cid: u16,
    pub(super) nsid: u32,
    pub(super) dw0: u32,
    pub(super) status: Status,
    pub(super) seen_ns: u64,
    pub(super) begun_ns: u64,
    /// PRP1 and PRP2, or the address in SGL1 and 0, if it transfers data: unmapping one makes it
    /// fail.
    pub(super) prps: Option<(u64, u64)>,
    /// What its completion is recorded as.
    pub(super) recorded: Option<Recorded>,
    /// Fault injection.
    pub(super) marks: Marks,
}

#[derive(Default)]
pub(super) struct Pending {
    /// By due time, then by order of arrival, so that equal times complete in order.
    heap: BinaryHeap<Reverse<(u64, u64, u32)>>,
    slots: Vec<Option<(u64, Command)>>,
    free: Vec<u32>,
    arrivals: u64,
}

impl Pending {
    /// With room for the usual number of commands.
    pub(super) fn with_capacity(n: usize) -> Self {
        Self {
            heap: BinaryHeap::with_capacity(n),
            slots: Vec::with_capacity(n),
            free: Vec::with_capacity(n),
            arrivals: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn push(&mut self, due_ns: u64, command: Command) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.arrivals += 1;
        self.slots[slot as usize] = Some((self.arrivals, command));
        self.heap.push(Reverse((due_ns, self.arrivals, slot)));
    }

    /// When the next command is due. Drops entries of commands that were removed otherwise.
    pub(super) fn next_due_ns(&mut self) -> Option<u64> {
        while let Some(&Reverse((due_ns, arrival, slot))) = self.heap.peek() {
            match &self.slots[slot as usize] {
                Some((a, _)) if *a == arrival => return Some(due_ns),
                _ => self.heap.pop(),
            };
        }
        None
    }

    /// The next command due by `now_ns`.
    pub(super) fn pop_due(&mut self, now_ns: u64) -> Option<Command> {
        self.next_due_ns().filter(|&due| due <= now_ns)?;
        let Reverse((_, _, slot)) = self.heap.pop()?;
        self.release(slot as usize)
    }

    fn release(&mut self, slot: usize) -> Option<Command> {
        let (_, command) = self.slots[slot].take()?;
        self.free.push(slot as u32);
        Some(command)
    }

    /// Whether there is a command of namespace `nsid`, or of any if it is the broadcast value; a
    /// command meant for all counts for each.
    pub(super) fn has_namespace(&self, nsid: u32) -> bool {
        let concerns =
            |c: &Command| c.nsid == nsid || c.nsid == NSID_BROADCAST || nsid == NSID_BROADCAST;
        self.slots.iter().flatten().any(|(_, command)| concerns(command))
    }

    /// Takes command `cid` of queue `qid` out.
    pub(super) fn take(&mut self, qid: u16, cid: u16) -> Option<Command> {
        let is_it = |s: &Option<(u64, Command)>| {
            s.as_ref().is_some_and(|(_, c)| c.qid == qid && c.cid == cid)
        };
        let slot = self.slots.iter().position(is_it)?;
        self.release(slot)
    }

    /// Takes all commands of queue `qid` out, in order of arrival.
    pub(super) fn take_queue(&mut self, qid: u16) -> Vec<Command> {
        let of_queue =
            |s: &Option<(u64, Command)>| s.as_ref().filter(|(_, c)| c.qid == qid).map(|(a, _)| *a);
        let mut found: Vec<(u64, usize)> =
            self.slots.iter().enumerate().filter_map(|(i, s)| Some((of_queue(s)?, i))).collect();
        found.sort_unstable();
        found.into_iter().filter_map(|(_, slot)| self.release(slot)).collect()
    }

    /// Makes every command whose PRP1 or PRP2 lies in the `len` bytes at `iova` end with `status`.
    /// Returns how many. Their data has been transferred already; the status tells the host not to
    /// trust such a buffer.
    pub(super) fn fail_transfers(&mut self, iova: u64, len: u64, status: Status) -> u64 {
        let within = |at: u64| at.wrapping_sub(iova) < len;
        let mut failed = 0;
        for (_, command) in self.slots.iter_mut().flatten() {
            if command.prps.is_some_and(|(a, b)| within(a) || (b != 0 && within(b))) {
                command.status = status;
                failed += 1;
            }
        }
        failed
    }

    pub(super) fn clear(&mut self) {
        self.heap.clear();
        self.slots.clear();
        self.free.clear();
    }
}
