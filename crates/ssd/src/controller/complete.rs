//! Writes completions, now or when they are due, and interrupts the host.

use meantime_nvme_spec::features::fid;
use meantime_nvme_spec::status::{Status, StatusCode};

use super::Controller;
use super::outcome::Outcome;
use super::pending::Command;
use super::queues::Cq;
use crate::clock::Clock;
use crate::faults::CqeFaults;
use crate::stamps::Stamp;

impl Controller {
    /// Returns the index of submission queue `qid` in `sqs`.
    pub(super) fn sq_index(&self, qid: u16) -> Option<usize> {
        self.sqs.iter().position(|sq| sq.qid == qid)
    }

    /// Writes the completion of a command of `sqs[index]`. There must be room for it.
    pub(super) fn post(&mut self, index: usize, cid: u16, outcome: Outcome) {
        self.post_faulty(index, cid, outcome, CqeFaults::default());
    }

    /// Writes the completion of a command of `sqs[index]` with injected faults.
    fn post_faulty(&mut self, index: usize, cid: u16, outcome: Outcome, faults: CqeFaults) {
        let sq = &self.sqs[index];
        let Some(cq) = &mut self.cqs[usize::from(sq.cqid)] else { return };
        let mut status = outcome.status;
        if status.crd() != 0 && (status.dnr() || self.features[fid::HOST_BEHAVIOR_SUPPORT] == 0) {
            // Only a host that enabled the delay (Host Behavior Support) and may retry gets one
            // (1.4 §4.6.1).
            status = status.with_crd(0);
        }
        if !status.is_success() {
            self.errors.record(sq.qid, cid, status, cq.phase());
        }
        let sqhd = match faults.sqhd {
            Some(wrong) => {
                self.counters.injected_bad_sqhd.add(1);
                wrong
            }
            None => sq.head as u16,
        };
        if faults.wrong_phase {
            self.counters.injected_bad_phase.add(1);
            cq.post_unseen(outcome.dw0, sqhd, sq.qid, cid, status);
        } else {
            cq.post(outcome.dw0, sqhd, sq.qid, cid, status);
        }
        if faults.silent {
            self.counters.injected_lost_interrupts.add(1);
            cq.unannounced -= 1;
        }
        self.counters.cqes.add(1);
    }

    /// Starts a command: marks its identifier as used, and reserves its completion entry.
    pub(super) fn take_in(&mut self, index: usize, cid: u16) {
        let sq = &mut self.sqs[index];
        sq.cids.insert(cid);
        sq.outstanding += 1;
        let cqid = sq.cqid;
        self.promise(cqid, true);
    }

    /// Reserves an entry of a completion queue for a command if `promised`, and otherwise releases
    /// it.
    pub(super) fn promise(&mut self, cqid: u16, promised: bool) {
        if let Some(cq) = &mut self.cqs[usize::from(cqid)] {
            cq.reserved = if promised { cq.reserved + 1 } else { cq.reserved - 1 };
        }
    }

    /// Writes the completion of a started command.
    pub(super) fn finish(&mut self, command: Command, now_ns: u64) {
        let Some(index) = self.sq_index(command.qid) else { return };
        let sq = &mut self.sqs[index];
        sq.cids.remove(command.cid);
        sq.outstanding -= 1;
        let cqid = sq.cqid;
        self.promise(cqid, false);
        self.power.active_until(now_ns);
        let Command { outcome, faults, .. } = command;
        if command.recorded.is_some() {
            self.record_done(&command);
        }
        if command.late_data.is_some() {
            self.send_late_data(&command);
        }
        self.post_faulty(index, command.cid, outcome, faults);
        if let Some(stamps) = &self.stamps {
            let Command { qid, cid, seen_ns, begun_ns, .. } = command;
            stamps.push(Stamp { qid, cid, seen_ns, begun_ns, written_ns: now_ns });
        }
        let room = self.cqs[usize::from(cqid)].as_ref().map_or(0, Cq::room);
        if faults.duplicate && room >= 1 {
            self.post(index, command.cid, outcome);
            self.counters.injected_strays.add(1);
        }
        if faults.stray && room >= 2 {
            // This identifier is not outstanding. One exists unless all 65536 are.
            let cid = (0..=u16::MAX)
                .map(|d| command.cid ^ 0x8000 ^ d)
                .find(|&c| !self.sqs[index].cids.contains(c));
            if let Some(cid) = cid {
                self.post(index, cid, Outcome::OK);
                self.counters.injected_strays.add(1);
            }
        }
    }

    /// Ends a started command before its time.
    pub(super) fn finish_early(&mut self, mut command: Command, code: StatusCode, now_ns: u64) {
        command.outcome = Status::from_code(code).into();
        self.finish(command, now_ns);
    }

    /// Interrupts the host for completions written to the queue of `sqs[index]` since the last
    /// call.
    pub(super) fn announce<C: Clock>(&mut self, index: usize, clock: &C) {
        self.announce_cq(self.sqs[index].cqid, || clock.now_ns());
    }

    /// Interrupts the host for completions written to every queue since the last call.
    pub(super) fn announce_all(&mut self, now_ns: u64) {
        for cqid in 0..self.cqs.len() as u16 {
            self.announce_cq(cqid, || now_ns);
        }
    }

    #[inline(always)]
    pub(super) fn announce_cq(&mut self, cqid: u16, now_ns: impl FnOnce() -> u64) {
        let Some(cq) = &mut self.cqs[usize::from(cqid)] else { return };
        let written = std::mem::take(&mut cq.unannounced);
        let Some(vector) = cq.vector.filter(|_| written > 0) else { return };
        // Admin completions are never held back (1.4 §5.21.1.8).
        let sent = if cqid != 0 && self.interrupts.coalesces(vector) {
            self.timed = true;
            self.interrupts.hold(vector, written, now_ns())
        } else {
            self.interrupts.signal(vector)
        };
        self.counters.interrupts.add(u64::from(sent));
    }
}
