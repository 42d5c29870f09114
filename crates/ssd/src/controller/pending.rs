//! Fetched commands whose completion is due later.

use std::collections::VecDeque;

use meantime_nvme_spec::status::Status;

use super::outcome::Outcome;
use crate::faults::CqeFaults;
use crate::record::Recorded;

/// The maximum number of pending commands. Beyond that no more are fetched.
const MAX_PENDING: usize = 16384;

/// Returns the maximum number of commands inside the device that the model, or memory, allows.
pub(super) fn most_inside(bound: u32) -> u32 {
    if bound == 0 { MAX_PENDING as u32 } else { bound.min(MAX_PENDING as u32) }
}

/// A command whose completion is due later. Its data has been transferred already.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    pub(super) qid: u16,
    pub(super) cid: u16,
    pub(super) outcome: Outcome,
    pub(super) seen_ns: u64,
    pub(super) begun_ns: u64,
    /// PRP1 and PRP2, or the address in SGL1 and 0, if it transfers data. Unmapping one of them
    /// makes the command fail.
    pub(super) prps: Option<(u64, u64)>,
    /// How its completion is recorded.
    pub(super) recorded: Option<Recorded>,
    /// The injected faults of the completion.
    pub(super) faults: CqeFaults,
    /// For a read that a fault delays, the offset on the medium and the length of its data, which
    /// is sent when it is due. The data was also sent at once. A host that wrongly reused its
    /// buffer meanwhile finds it overwritten.
    pub(super) late_data: Option<(u64, u32)>,
}

/// The pending commands, each with its due time and arrival number.
#[derive(Default)]
pub(super) struct Pending {
    /// The commands by due time, then by order of arrival, so that equal times complete in order.
    queue: VecDeque<(u64, u64, Command)>,
    arrivals: u64,
}

impl Pending {
    /// Creates an empty set with capacity for the usual number of commands.
    pub(super) fn with_capacity(n: usize) -> Self {
        Self { queue: VecDeque::with_capacity(n), arrivals: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn push(&mut self, due_ns: u64, command: Command) {
        self.arrivals += 1;
        // Most commands are due last, so no entry moves.
        let at = self.queue.partition_point(|(earlier_ns, ..)| *earlier_ns <= due_ns);
        self.queue.insert(at, (due_ns, self.arrivals, command));
    }

    /// Returns when the next command is due.
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        self.queue.front().map(|(due_ns, ..)| *due_ns)
    }

    /// Removes the next command due by `now_ns`.
    pub(super) fn pop_due(&mut self, now_ns: u64) -> Option<Command> {
        self.next_due_ns().filter(|&due_ns| due_ns <= now_ns)?;
        self.queue.pop_front().map(|(.., command)| command)
    }

    /// Removes command `cid` of queue `qid`.
    pub(super) fn take(&mut self, qid: u16, cid: u16) -> Option<Command> {
        let at = self.queue.iter().position(|(.., c)| c.qid == qid && c.cid == cid)?;
        self.queue.remove(at).map(|(.., command)| command)
    }

    /// Removes all commands of queue `qid`, in order of arrival.
    pub(super) fn take_queue(&mut self, qid: u16) -> Vec<Command> {
        let of_queue = |(.., command): &&(u64, u64, Command)| command.qid == qid;
        let mut taken: Vec<_> = self.queue.iter().filter(of_queue).copied().collect();
        self.queue.retain(|(.., command)| command.qid != qid);
        taken.sort_unstable_by_key(|(_, arrival, _)| *arrival);
        taken.into_iter().map(|(.., command)| command).collect()
    }

    /// Makes every command whose PRP1 or PRP2 lies in the `len` bytes at `iova` end with `status`.
    /// Returns their number. Their data has been transferred already, and the status tells the host
    /// not to trust such a buffer.
    pub(super) fn fail_transfers(&mut self, iova: u64, len: u64, status: Status) -> u64 {
        let within = |at: u64| at.wrapping_sub(iova) < len;
        let mut failed = 0;
        for (.., command) in &mut self.queue {
            if command.prps.is_some_and(|(a, b)| within(a) || (b != 0 && within(b))) {
                command.outcome.status = status;
                failed += 1;
            }
        }
        failed
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
    }
}
