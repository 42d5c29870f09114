//! Where injected faults act on a command.

use meantime_spec::opcode::io;
use meantime_spec::sqe::Sqe;

use super::Controller;
use super::complete::Outcome;
use super::io::Executed;
use super::pending::Command;
use super::prp;
use crate::faults::{Corruption, Seen, Verdict};
use crate::hostmem::{PAGE_BYTES, Segment};
use crate::vwc::Extent;

/// An injected fault of a completion.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marks {
    /// Follow it with a stray one.
    pub(super) stray: bool,
    /// Write it twice.
    pub(super) duplicate: bool,
    pub(super) wrong_phase: bool,
    /// The SQ head it reports.
    pub(super) sqhd: Option<u16>,
    /// A late read: where on the medium its data is, and how many bytes, to be sent when it is due.
    /// It was also sent at once. A host that wrongly took its buffer back meanwhile finds it
    /// overwritten.
    pub(super) late_data: Option<(u64, u32)>,
}

impl Marks {
    pub(super) fn of(verdict: &Verdict) -> Self {
        let Verdict { stray, duplicate, wrong_phase, sqhd, .. } = *verdict;
        Self { stray, duplicate, wrong_phase, sqhd, late_data: None }
    }

    /// The same for `sqe`, an I/O command.
    pub(super) fn of_io(verdict: &Verdict, sqe: &Sqe, executed: &Executed) -> Self {
        let (offset, len) = executed.extent();
        // No list of PRPs: the host may have written to it by then, which it may once the command
        // has ended.
        let is_late = verdict.late_by_ns > 0
            && verdict.corrupt_read.is_none()
            && sqe.opcode() == io::READ
            && sqe.psdt() == 0
            && executed.outcome.status.is_success()
            && sqe.prp1.get() % PAGE_BYTES + len <= 2 * PAGE_BYTES;
        let late_data = is_late.then_some((offset, len as u32));
        Self { late_data, ..Self::of(verdict) }
    }
}

impl Controller {
    /// The faults injected into the command `sqe` of queue `qid`. `None`: the fault removed the
    /// queues.
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
        let verdict = self.faults.next(Seen::of(qid, sqe, now_ns));
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
        }
        Some(verdict)
    }

    /// Corrupts the data of an executed command, if a fault says so.
    pub(super) fn spoil(&mut self, verdict: &Verdict, sqe: &Sqe, executed: &Executed) {
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

    /// Sends the data of a late read, which ends successfully now.
    #[cold]
    pub(super) fn send_late_data(&mut self, command: &Command) {
        let (Some((offset, len)), Some((prp1, prp2))) = (command.marks.late_data, command.prps)
        else {
            return;
        };
        if command.status.is_success()
            && prp::gather(&self.host, prp1, prp2, u64::from(len), &mut self.segments).is_ok()
        {
            self.transfer(offset);
        }
    }

    /// Flips bits of the data in `segments`.
    pub(super) fn corrupt_segments(&mut self, Corruption { first_bit, bits }: Corruption) {
        let total_bits = 8 * self.segments.iter().map(|s| s.len() as u64).sum::<u64>();
        let bits = u64::from(bits).min(total_bits);
        for i in 0..bits {
            let bit = (first_bit % total_bits + i) % total_bits;
            let mut at = bit / 8;
            for segment in &self.segments {
                let Some(byte) = segment.byte(at) else {
                    at -= segment.len() as u64;
                    continue;
                };
                if let Some(slice) = self.host.resolve(byte) {
                    let mut value = [0];
                    slice.read(&mut value);
                    slice.write(&[value[0] ^ 1 << (bit & 7)]);
                }
                break;
            }
        }
        self.counters.injected_corruptions.add(u64::from(bits > 0));
    }

    /// Flips bits of what is stored in the `len` bytes of the medium at `offset`, as one more write
    /// of it.
    fn corrupt_stored(&mut self, offset: u64, len: u64, corruption: Corruption, sqe: &Sqe) {
        let Some(namespace) = self.store.namespace(sqe.nsid.get()) else { return };
        let block_bytes = namespace.block_bytes();
        let Corruption { first_bit, bits } = corruption;
        let total_bits = len * 8;
        self.store.write(Extent { offset, len, block_bytes }, sqe.fua(), |medium| {
            for i in 0..u64::from(bits).min(total_bits) {
                let bit = (first_bit % total_bits + i) % total_bits;
                let span = medium.span(offset + bit / 8, 1);
                let mut value = [0];
                span.read(&mut value);
                span.write(&[value[0] ^ 1 << (bit & 7)]);
            }
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
        let Outcome { status, dw0 } = outcome;
        let command = Command {
            qid: 0,
            cid,
            nsid: 0,
            dw0,
            status,
            seen_ns: now_ns,
            begun_ns: now_ns,
            prps: None,
            recorded: None,
            marks: Marks::of(verdict),
        };
        if verdict.late_by_ns > 0 {
            self.counters.injected_late.add(1);
            self.pending.push(now_ns.saturating_add(verdict.late_by_ns), command);
            self.timed = true;
        } else {
            self.finish(command, now_ns);
        }
    }

    /// Never completes the command just taken in of `sqs[index]`: releases its entry.
    pub(super) fn lose(&mut self, index: usize) {
        self.counters.injected_losses.add(1);
        if let Some(cq) = &mut self.cqs[usize::from(self.sqs[index].cqid)] {
            cq.reserved -= 1;
        }
    }
}

impl Segment {
    /// The byte at `at`, if there is one.
    fn byte(self, at: u64) -> Option<Self> {
        (at < self.len() as u64).then(|| self.part(at, 1))
    }
}
