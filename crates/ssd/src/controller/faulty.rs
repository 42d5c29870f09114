//! Applies injected faults to commands.

use meantime_nvme_spec::opcode::io;
use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::status::Status;

use super::Controller;
use super::io::Executed;
use super::outcome::Outcome;
use super::pending::Command;
use super::prp;
use crate::faults::{Corruption, Seen, Verdict};
use crate::hostmem::PAGE_BYTES;
use crate::vwc::Extent;

/// Returns the medium range of `sqe`, a read, if its data is to be sent again when it is due (see
/// [`Command::late_data`]).
pub(super) fn late_data(verdict: &Verdict, sqe: &Sqe, executed: &Executed) -> Option<(u64, u32)> {
    let (offset, len) = executed.extent();
    // This does not apply to a PRP list, because the host may reuse the list's memory once the
    // command has ended.
    let is_late = verdict.late_by_ns > 0
        && verdict.corrupt_read.is_none()
        && sqe.opcode() == io::READ
        && sqe.psdt() == 0
        && executed.outcome.status.is_success()
        && sqe.prp1.get() % PAGE_BYTES + len <= 2 * PAGE_BYTES;
    is_late.then_some((offset, len as u32))
}

/// Flips bits of `data`.
fn flip(data: &mut [u8], Corruption { first_bit, bits }: Corruption) {
    let total_bits = 8 * data.len() as u64;
    for i in 0..u64::from(bits).min(total_bits) {
        let bit = (first_bit % total_bits + i) % total_bits;
        data[(bit / 8) as usize] ^= 1 << (bit & 7);
    }
}

impl Controller {
    /// Decides on the faults injected into the command `sqe` of queue `qid`. Returns `None` if a
    /// fault removed the queues.
    #[inline(always)]
    pub(super) fn judge(&mut self, qid: u16, sqe: &Sqe, now_ns: u64) -> Option<Verdict> {
        if self.faults.is_none() {
            Some(Verdict::default())
        } else {
            self.judge_at_length(qid, sqe, now_ns)
        }
    }

    #[cold]
    fn judge_at_length(&mut self, qid: u16, sqe: &Sqe, now_ns: u64) -> Option<Verdict> {
        let mut verdict = self.faults.next(Seen::of(qid, sqe, now_ns));
        if verdict.gone {
            self.unplug();
            return None;
        }
        if verdict.fatal {
            self.fatal("fault plan: fatal status");
            return None;
        }
        if verdict.status.is_some() {
            self.counters.injected_errors.add(1);
        } else if verdict.ignored && sqe.opcode() == io::FLUSH {
            verdict.status = Some(Status::SUCCESS);
            self.counters.injected_ignored_flushes.add(1);
        }
        Some(verdict)
    }

    /// Corrupts the data of an executed command, if a fault requires it.
    pub(super) fn corrupt(&mut self, verdict: &Verdict, sqe: &Sqe, executed: &Executed) {
        if !executed.outcome.status.is_success() {
            return;
        }
        if let Some(corruption) = verdict.corrupt_read.filter(|_| sqe.opcode() == io::READ) {
            self.corrupt_segments(corruption);
        }
        if !executed.writes() || executed.extent().1 == 0 {
            return;
        }
        let (offset, len) = executed.extent();
        if let Some(corruption) = verdict.corrupt_write {
            self.corrupt_stored(offset, len, corruption, sqe);
        }
        if verdict.torn {
            self.store.mark_torn(offset, len);
        }
    }

    /// Sends the data of a late read again, which now ends successfully.
    #[cold]
    pub(super) fn send_late_data(&mut self, command: &Command) {
        let (Some((offset, len)), Some((prp1, prp2))) = (command.late_data, command.prps) else {
            return;
        };
        if command.outcome.status.is_success()
            && prp::gather(&self.host, prp1, prp2, u64::from(len), &mut self.segments).is_ok()
        {
            self.transfer(offset);
        }
    }

    /// Flips bits of the data in `segments`.
    pub(super) fn corrupt_segments(&mut self, corruption: Corruption) {
        let mut data = vec![0; self.segments.iter().map(|segment| segment.len()).sum()];
        self.collect(&mut data);
        flip(&mut data, corruption);
        self.scatter(&data);
        self.counters.injected_corruptions.add(u64::from(!data.is_empty()));
    }

    /// Flips bits of the `len` bytes stored on the medium at `offset`. This is one more write of
    /// them.
    fn corrupt_stored(&mut self, offset: u64, len: u64, corruption: Corruption, sqe: &Sqe) {
        let Some(namespace) = self.store.namespace(sqe.nsid.get()) else { return };
        let block_bytes = namespace.block_bytes();
        let mut data = vec![0; len as usize];
        self.store.span(offset, data.len()).read(&mut data);
        flip(&mut data, corruption);
        self.store.write(Extent { offset, len, block_bytes }, sqe.fua(), |medium| {
            medium.span(offset, data.len()).write(&data);
        });
        self.counters.injected_corruptions.add(1);
    }

    /// Ends an admin command with the fault in `verdict`.
    pub(super) fn finish_admin(
        &mut self,
        cid: u16,
        outcome: Outcome,
        verdict: &Verdict,
        now_ns: u64,
    ) {
        self.take_in(0, cid);
        if verdict.lose {
            self.lose(0);
            return;
        }
        if let Some(corruption) = verdict.corrupt_read.filter(|_| outcome.status.is_success()) {
            self.corrupt_segments(corruption);
        }
        let command = Command {
            qid: 0,
            cid,
            outcome,
            seen_ns: now_ns,
            begun_ns: now_ns,
            prps: None,
            recorded: None,
            faults: verdict.cqe,
            late_data: None,
        };
        self.complete_at(command, now_ns, verdict.late_by_ns, || now_ns);
    }

    /// Completes a started command, either now or at `done_ns` plus `late_by_ns`. The completion is
    /// stamped with `now_ns`.
    pub(super) fn complete_at(
        &mut self,
        command: Command,
        done_ns: u64,
        late_by_ns: u64,
        now_ns: impl FnOnce() -> u64,
    ) {
        self.counters.injected_late.add(u64::from(late_by_ns > 0));
        let due_ns = done_ns.saturating_add(late_by_ns);
        if due_ns <= command.seen_ns {
            self.finish(command, now_ns());
        } else {
            self.pending.push(due_ns, command);
            self.timed = true;
        }
    }

    /// Releases the entry of the command just started on `sqs[index]`, which never completes.
    pub(super) fn lose(&mut self, index: usize) {
        self.counters.injected_losses.add(1);
        self.promise(self.sqs[index].cqid, false);
    }
}
