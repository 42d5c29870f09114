//! Fused operations (1.4 §4.12, §6.2): Compare and Write.
//!
//! Both commands are fetched together, so nothing is executed between them. Commands transfer their
//! data when they are fetched, so the pair is atomic. A power cut may not tear a write of ACWU
//! blocks, nor one of AWUPF.

use meantime_nvme_spec::opcode::io;
use meantime_nvme_spec::sqe::{Sqe, fuse};
use meantime_nvme_spec::status::{Status, StatusCode};

use super::Controller;
use super::outcome::{Outcome, invalid_field};
use crate::clock::Clock;

/// The entry or entries at the head of a submission queue.
pub(super) enum Head {
    /// An entry that is not the first command of a pair, or one whose second command is missing,
    /// which is then refused.
    One,
    /// Both commands of a pair.
    Pair(Sqe, Sqe),
    /// A pair for which there is no room for both completions.
    NoRoom,
}

/// The statuses of a pair that breaks a rule, one for each command.
type Refused = (Status, Status);

impl Controller {
    /// Looks for a pair at the head of `sqs[index]`, whose doorbell is at `tail`. One doorbell
    /// write has to announce both commands.
    pub(super) fn head_of(&mut self, index: usize, tail: u32) -> Head {
        let sq = &self.sqs[index];
        let first = sq.ring.read_sqe(sq.head);
        if first.fuse() != fuse::FIRST || sq.available(tail) < 2 {
            return Head::One;
        }
        let second = sq.ring.read_sqe(sq.index(1));
        let cqid = usize::from(sq.cqid);
        // A queue that can never hold two completions would block the pair for ever.
        let can_hold = self.cqs[cqid].as_ref().is_some_and(|cq| cq.ring.entries() > 2);
        if second.fuse() != fuse::SECOND || !can_hold {
            return Head::One;
        }
        if self.room(index, 2) < 2 {
            self.blocked = true;
            return Head::NoRoom;
        }
        Head::Pair(first.with_fuse(fuse::NONE), second.with_fuse(fuse::NONE))
    }

    /// Checks that the two commands form a supported fused operation.
    fn check_pair(&mut self, qid: u16, first: &Sqe, second: &Sqe) -> Result<(), Refused> {
        let blocks = |sqe: &Sqe| (sqe.nsid.get(), sqe.slba(), sqe.nlb());
        let both = if (first.opcode(), second.opcode()) != (io::COMPARE, io::WRITE) {
            Some("fused operation other than Compare and Write")
        } else if blocks(first) != blocks(second) {
            Some("Compare and Write of different blocks")
        } else {
            None
        };
        if let Some(rule) = both {
            let mut refuse = |sqe: &Sqe| self.fail(qid, sqe.cid(), invalid_field(rule));
            return Err((refuse(first), refuse(second)));
        }
        if first.nlb() > u32::from(self.config.atomic_write_lbas) {
            let failure = invalid_field("Compare and Write of more blocks than ACWU");
            return Err((self.fail(qid, first.cid(), failure), failed_fused()));
        }
        Ok(())
    }

    /// Executes and completes a pair that was fetched from `sqs[index]`.
    pub(super) fn pair_at_once(&mut self, index: usize, first: &Sqe, second: &Sqe) {
        let refused = self.check_pair(self.sqs[index].qid, first, second).err();
        let begun = self.end_at_once(index, first, refused.map(|statuses| statuses.0));
        let conflict = refused.is_none() && first.cid() == second.cid();
        let other = conflict.then(|| self.cid_conflict(self.sqs[index].qid, second.cid()));
        let failed = (!begun.is_success()).then(failed_fused);
        self.end_at_once(index, second, refused.map(|statuses| statuses.1).or(failed).or(other));
    }

    /// Completes a command with `status`, or executes it first if `status` is `None`.
    pub(super) fn end_at_once(
        &mut self,
        index: usize,
        sqe: &Sqe,
        status: Option<Status>,
    ) -> Status {
        let (qid, cid) = (self.sqs[index].qid, sqe.cid());
        let outcome = match status {
            Some(status) => Outcome::from(status),
            None if self.sqs[index].cids.contains(cid) => {
                Outcome::from(self.cid_conflict(qid, cid))
            }
            None => self.execute(qid, sqe).outcome,
        };
        self.post(index, cid, outcome);
        outcome.status
    }

    /// Executes a pair that was fetched from `sqs[index]` at `seen_ns`, and completes its commands
    /// when they are due.
    pub(super) fn start_pair<C: Clock>(
        &mut self,
        index: usize,
        (first, second): (&Sqe, &Sqe),
        seen_ns: u64,
        clock: &C,
    ) {
        let qid = self.sqs[index].qid;
        let refused = self.check_pair(qid, first, second).err();
        // A fault may make the first command use more than one entry, so the second one's entry is
        // reserved.
        let cqid = self.sqs[index].cqid;
        self.promise(cqid, true);
        let begun =
            self.start_timed(index, first, refused.map(|statuses| statuses.0), seen_ns, clock);
        self.promise(cqid, false);
        let Some(begun) = begun.filter(|_| self.sqs.get(index).is_some_and(|sq| sq.qid == qid))
        else {
            // A fault has removed the queues.
            return;
        };
        let failed = (!begun.is_success()).then(failed_fused);
        let ended = refused.map(|statuses| statuses.1).or(failed);
        self.start_timed(index, second, ended, seen_ns, clock);
    }
}

/// Returns the status of a second command whose first has failed.
fn failed_fused() -> Status {
    Status::from_code(StatusCode::CommandAbortedFailedFused)
}
