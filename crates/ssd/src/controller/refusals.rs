//! Counts the rules that the host breaks, and keeps the latest.

use meantime_nvme_spec::log::AsyncEventCode;
use meantime_nvme_spec::status::{Status, StatusCode};

use super::outcome::{Failure, refused};
use super::{Controller, MAX_REFUSALS, Refusal};

impl Controller {
    /// Keeps a refusal, and forgets the oldest if there are too many.
    fn remember(&mut self, refusal: Refusal) {
        self.counters.remembered.add(1);
        if self.refusals.len() == MAX_REFUSALS {
            self.refusals.pop_front();
        }
        self.refusals.push_back(refusal);
    }

    /// Records a broken rule that concerns no particular command.
    #[cold]
    pub(super) fn remember_rule(&mut self, qid: u16, reason: &'static str) {
        tracing::debug!(qid, reason, "register or doorbell refused");
        self.remember(Refusal { qid, cid: None, status: None, reason, tolerated: false });
    }

    #[cold]
    pub(super) fn bad_doorbell(&mut self, qid: u16, reason: &'static str) {
        self.counters.bad_doorbells.add(1);
        self.remember_rule(qid, reason);
        self.event(AsyncEventCode::InvalidDoorbellWriteValue);
    }

    /// Handles a write to the doorbell at `index`, whose queue does not exist.
    #[cold]
    pub(super) fn stray_doorbell(&mut self, index: usize) {
        self.counters.stray_doorbells.add(1);
        // The host may not have noticed yet that its queue has ended, or all queues by CSTS.CFS.
        if !self.ended.contains(&index) && !self.regs.csts().cfs() {
            self.remember_rule((index / 2) as u16, "doorbell of a queue that does not exist");
            self.event(AsyncEventCode::WriteToInvalidDoorbell);
        }
    }

    /// Ends command `cid` of queue `qid` with `failure`. Counts and records the broken rule.
    #[cold]
    pub(super) fn fail(&mut self, qid: u16, cid: u16, Failure { status, rule }: Failure) -> Status {
        if let Some(reason) = rule {
            if status.is(StatusCode::DataTransferError) {
                self.counters.dma_errors.add(1);
            }
            self.counters.refused.add(1);
            tracing::debug!(qid, cid, %status, reason, "command refused");
            let (cid, status) = (Some(cid), Some(status));
            self.remember(Refusal { qid, cid, status, reason, tolerated: false });
        }
        status
    }

    pub(super) fn cid_conflict(&mut self, qid: u16, cid: u16) -> Status {
        self.counters.cid_conflicts.add(1);
        let rule = "command identifier is in use";
        self.fail(qid, cid, refused(StatusCode::CommandIdConflict, rule))
    }

    /// Records a harmless violation, which has no other effect.
    #[cold]
    pub(super) fn tolerate(&mut self, qid: u16, cid: Option<u16>, reason: &'static str) {
        self.counters.tolerated.add(1);
        tracing::debug!(qid, cid, reason, "tolerated");
        self.remember(Refusal { qid, cid, status: None, reason, tolerated: true });
    }
}
