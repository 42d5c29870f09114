//! Memory that the host unmaps while the controller uses it.
//!
//! A host that disconnects may free the memory of queues without deleting them first. That ends
//! those queues and no others. It still breaks a rule, so a strict SSD sets CSTS.CFS.

use meantime_nvme_spec::soft_port::PortError;
use meantime_nvme_spec::status::{Status, StatusCode};

use super::Controller;
use super::doorbell::{cq_doorbell, sq_doorbell};
use crate::hostmem::Ring;

impl Controller {
    /// Unmaps a region. Nothing accesses it afterwards. Commands transfer their data when they are
    /// fetched, so pending commands only have to fail, and the queues in the region end.
    pub(crate) fn unmap_dma(&mut self, iova: u64, now_ns: u64) -> Result<(), PortError> {
        let len = self.host.region_len(iova).ok_or(PortError::NotMapped)?;
        let status = Status::from_code(StatusCode::DataTransferError).with_dnr();
        let failed = self.pending.fail_transfers(iova, len, status);
        self.counters.dma_errors.add(failed);
        if self.config.strict {
            self.end_strictly(iova, len);
        } else {
            self.end_queues(iova, len, now_ns);
        }
        self.host.unmap(iova);
        Ok(())
    }

    fn end_strictly(&mut self, iova: u64, len: u64) {
        let rings =
            self.sqs.iter().map(|sq| &sq.ring).chain(self.cqs.iter().flatten().map(|cq| &cq.ring));
        if rings.into_iter().any(|ring| ring.overlaps(iova, len)) {
            self.fatal("the memory of a queue in use was unmapped");
        }
        if self.shadows.as_ref().is_some_and(|shadows| shadows.overlap(iova, len)) {
            self.fatal("the memory of the shadow doorbells was unmapped");
        }
    }

    fn end_queues(&mut self, iova: u64, len: u64, now_ns: u64) {
        let is_gone = |ring: &Ring| ring.overlaps(iova, len);
        let admin_sq = self.sqs.first().is_some_and(|sq| is_gone(&sq.ring));
        let admin_cq = self.cqs[0].as_ref().is_some_and(|cq| is_gone(&cq.ring));
        if admin_sq || admin_cq {
            return self.end_admin();
        }
        // With shadow doorbells, every I/O queue depends on them.
        let shadows = self.shadows.take_if(|shadows| shadows.overlap(iova, len)).is_some();
        // Completion queues come first, so that nothing is written to one that is gone.
        for qid in 1..self.cqs.len() {
            if self.cqs[qid].as_ref().is_some_and(|cq| shadows || is_gone(&cq.ring)) {
                self.cqs[qid] = None;
                let qid = qid as u16;
                self.clear_doorbell(cq_doorbell(qid));
                self.ended.insert(cq_doorbell(qid));
                self.queue_ended(qid, "the memory of a completion queue in use was unmapped");
            }
        }
        for index in (1..self.sqs.len()).rev() {
            let sq = &self.sqs[index];
            let (qid, cq_is_gone) = (sq.qid, self.cqs[usize::from(sq.cqid)].is_none());
            if shadows || cq_is_gone || is_gone(&sq.ring) {
                self.take_out_sq(index, now_ns);
                self.ended.insert(sq_doorbell(qid));
                self.queue_ended(qid, "the memory of a submission queue in use was unmapped");
            }
        }
    }

    /// Ends the admin queue, without which the controller can only be reset. After a shutdown this
    /// sets no CSTS.CFS.
    fn end_admin(&mut self) {
        self.queue_ended(0, "the memory of the admin queue was unmapped");
        self.drop_queues();
        // Earlier doorbell writes do not count as stray.
        for index in 0..2 * self.cqs.len() {
            self.clear_doorbell(index);
        }
        if !self.regs.is_shut_down() {
            self.counters.fatal.add(1);
            self.regs.set_csts(self.regs.csts().with_cfs(true));
        }
    }

    fn queue_ended(&mut self, qid: u16, reason: &'static str) {
        self.counters.ended_queues.add(1);
        self.tolerate(qid, None, reason);
    }

    /// Ends the submission queue `sqs[index]`, after aborting its outstanding commands (1.4 §5.6).
    pub(super) fn take_out_sq(&mut self, index: usize, now_ns: u64) {
        let qid = self.sqs[index].qid;
        for command in self.pending.take_queue(qid) {
            self.finish_early(command, StatusCode::CommandAbortedSqDeletion, now_ns);
        }
        self.announce_all(now_ns);
        self.update_timed();
        // This keeps the order: round robin continues with the queue after it.
        let sq = self.sqs.remove(index);
        if let Some(cq) = &mut self.cqs[usize::from(sq.cqid)] {
            cq.sqs -= 1;
        }
        self.clear_doorbell(sq_doorbell(qid));
    }
}
