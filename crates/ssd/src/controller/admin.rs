//! Admin commands (1.4 §5).

use meantime_spec::opcode::AdminOpcode;
use meantime_spec::sqe::Sqe;
use meantime_spec::status::{Status, StatusCode};

use super::Controller;
use super::complete::Outcome;
use super::error_log::Wrong;
use super::queues::{Cq, Sq};
use crate::clock::Clock;
use crate::hostmem::PAGE_BYTES;

impl Controller {
    /// Fetches and executes admin commands up to `tail`.
    pub(super) fn serve_admin<C: Clock>(&mut self, tail: u32, clock: &C) -> bool {
        let mut worked = false;
        while self.sqs.first().is_some_and(|sq| sq.head != tail) && self.room(0, 1) > 0 {
            let sq = &mut self.sqs[0];
            let sqe = sq.ring.read_sqe(sq.head);
            sq.advance(1);
            worked = true;
            self.counters.admin_commands.add(1);
            let cid = sqe.cid();
            if self.sqs[0].cids.contains(cid)
                && (self.config.strict || !self.give_up_event_request(cid))
            {
                let status = self.cid_conflict(0, cid);
                self.post(0, cid, Outcome::from(status));
                continue;
            }
            let now_ns = clock.now_ns();
            let Some(verdict) = self.judge(0, &sqe, now_ns) else { return true };
            if verdict.stuck {
                self.take_in(0, cid);
                self.lose(0);
                continue;
            }
            // Executing it may complete event requests, so its own entry is reserved meanwhile.
            self.promise_admin(true);
            let result = match verdict.status {
                Some(status) => Err(status),
                None => self.admin(&sqe, now_ns),
            };
            self.promise_admin(false);
            let outcome = match result {
                Ok(Some(outcome)) => outcome,
                Ok(None) => continue,
                Err(status) => {
                    self.note_error(0, &sqe, status);
                    Outcome::from(status)
                }
            };
            if verdict.is_none() {
                self.post(0, cid, outcome);
            } else {
                self.finish_admin(cid, outcome, &verdict, now_ns);
            }
        }
        self.deliver_events();
        self.announce_admin();
        worked
    }

    /// Reserves a completion entry for the current admin command, or releases it.
    fn promise_admin(&mut self, promised: bool) {
        if let Some(cq) = &mut self.cqs[0] {
            cq.reserved = if promised { cq.reserved + 1 } else { cq.reserved - 1 };
        }
    }

    /// Executes one; `None` if it completes later.
    fn admin(&mut self, sqe: &Sqe, now_ns: u64) -> Result<Option<Outcome>, Status> {
        self.errors.wrong = Wrong::default();
        self.check_cdw0(0, sqe)?;
        let cid = sqe.cid();
        match AdminOpcode::try_from(sqe.opcode()) {
            Ok(AdminOpcode::Identify) => self.identify(sqe).map(Some),
            Ok(AdminOpcode::CreateIoCq) => self.create_io_cq(sqe).map(Some),
            Ok(AdminOpcode::CreateIoSq) => self.create_io_sq(sqe).map(Some),
            Ok(AdminOpcode::DeleteIoCq) => self.delete_io_cq(sqe).map(Some),
            Ok(AdminOpcode::DeleteIoSq) => self.delete_io_sq(sqe, now_ns).map(Some),
            Ok(AdminOpcode::GetFeatures) => self.get_features(sqe, now_ns).map(Some),
            Ok(AdminOpcode::SetFeatures) => self.set_features(sqe, now_ns).map(Some),
            Ok(AdminOpcode::GetLogPage) => self.get_log_page(sqe).map(Some),
            Ok(AdminOpcode::Abort) => Ok(Some(self.abort(sqe, now_ns))),
            Ok(AdminOpcode::AsyncEventRequest) => self.hold_event_request(cid).map(|()| None),
            // Like every command it restarts the timer.
            Ok(AdminOpcode::KeepAlive) => Ok(Some(Outcome::OK)),
            Ok(AdminOpcode::DoorbellBufferConfig) => self.doorbell_buffer_config(sqe).map(Some),
            Ok(AdminOpcode::FormatNvm) => self.format_nvm(sqe).map(Some),
            Ok(AdminOpcode::Sanitize) => {
                let reason = "Sanitize, though SANICAP offers no kind of it";
                Err(self.refuse(0, cid, StatusCode::InvalidCommandOpcode, reason))
            }
            Ok(_) => {
                let reason = "admin command that Identify Controller does not offer";
                Err(self.refuse(0, cid, StatusCode::InvalidCommandOpcode, reason))
            }
            Err(_) => {
                Err(self.refuse(0, cid, StatusCode::InvalidCommandOpcode, "unknown admin opcode"))
            }
        }
    }

    /// Sends `data`, padded with zeroes or cut to `len` bytes, to a command's data pointer.
    pub(super) fn answer(&mut self, sqe: &Sqe, data: &[u8], len: usize) -> Result<(), Status> {
        self.gather(0, sqe, len as u64)?;
        if data.len() >= len {
            self.scatter(&data[..len]);
        } else {
            let mut padded = vec![0; len];
            padded[..data.len()].copy_from_slice(data);
            self.scatter(&padded);
        }
        Ok(())
    }

    /// Copies a command's data, as long as `to`, out of host memory.
    pub(super) fn take(&mut self, sqe: &Sqe, to: &mut [u8]) -> Result<(), Status> {
        self.gather(0, sqe, to.len() as u64)?;
        self.collect(to);
        Ok(())
    }

    /// The memory of a queue that is created, of either kind: its first byte.
    fn check_new_queue(&mut self, sqe: &Sqe, exists: bool, limit: u32) -> Result<u64, Status> {
        let (cid, qid) = (sqe.cid(), sqe.qid());
        if qid == 0 || u32::from(qid) > limit || exists {
            let reason = "queue identifier 0, in use, or beyond Number of Queues";
            return Err(self.refuse(0, cid, StatusCode::InvalidQueueIdentifier, reason));
        }
        if sqe.queue_entries() < 2 || sqe.queue_entries() > self.config.max_queue_entries {
            let reason = "queue size below 2 or beyond CAP.MQES";
            return Err(self.refuse(0, cid, StatusCode::InvalidQueueSize, reason));
        }
        if !sqe.pc() {
            let reason = "queue not physically contiguous, though CAP.CQR is set";
            return Err(self.at(44, 0).refuse(0, cid, StatusCode::InvalidFieldInCommand, reason));
        }
        let base = sqe.prp1.get();
        if !base.is_multiple_of(PAGE_BYTES) {
            let reason = "queue base not aligned to a page";
            return Err(self.refuse(0, cid, StatusCode::PrpOffsetInvalid, reason));
        }
        Ok(base)
    }

    fn unmapped_queue(&mut self, cid: u16) -> Status {
        self.counters.dma_errors.add(1);
        self.refuse(0, cid, StatusCode::DataTransferError, "queue not within one mapped region")
    }

    /// 1.4 §5.3.
    fn create_io_cq(&mut self, sqe: &Sqe) -> Result<Outcome, Status> {
        let (cid, qid) = (sqe.cid(), sqe.qid());
        let exists = self.cqs.get(usize::from(qid)).is_some_and(Option::is_some);
        let base = self.check_new_queue(sqe, exists, self.features.max_cqs(&self.config))?;
        if !self.entry_sizes_set().1 {
            return Err(self.refuse(0, cid, StatusCode::InvalidQueueSize, "CC.IOCQES is not set"));
        }
        if self.host.is_controller_memory(base) {
            let reason =
                "completion queue in the controller memory buffer, though CMBSZ.CQS is clear";
            return Err(self.refuse(
                0,
                cid,
                StatusCode::InvalidUseOfControllerMemoryBuffer,
                reason,
            ));
        }
        let vector = sqe.ien().then_some(sqe.iv());
        if vector.is_some_and(|v| v >= self.interrupts.len()) {
            return Err(self.refuse(
                0,
                cid,
                StatusCode::InvalidInterruptVector,
                "no such interrupt vector",
            ));
        }
        let ring = self.host.ring(base, sqe.queue_entries(), 16);
        let doorbell = self.cq_doorbell(qid);
        let (Some(ring), Some((doorbell, event))) = (ring, doorbell) else {
            return Err(self.unmapped_queue(cid));
        };
        self.take_stray_doorbell(usize::from(qid) * 2 + 1);
        self.ended.forget_cq(qid);
        let mut cq = Cq::new(ring, doorbell, vector);
        cq.event = event;
        self.cqs[usize::from(qid)] = Some(cq);
        Ok(Outcome::OK)
    }

    /// 1.4 §5.4.
    fn create_io_sq(&mut self, sqe: &Sqe) -> Result<Outcome, Status> {
        let (cid, qid, cqid) = (sqe.cid(), sqe.qid(), sqe.cqid());
        let exists = self.sqs.iter().any(|sq| sq.qid == qid);
        let base = self.check_new_queue(sqe, exists, self.features.max_sqs(&self.config))?;
        if !self.entry_sizes_set().0 {
            return Err(self.refuse(0, cid, StatusCode::InvalidQueueSize, "CC.IOSQES is not set"));
        }
        if cqid == 0 || usize::from(cqid) >= self.cqs.len() {
            let reason = "completion queue identifier 0 or out of range";
            return Err(self.refuse(0, cid, StatusCode::InvalidQueueIdentifier, reason));
        }
        if self.cqs[usize::from(cqid)].is_none() {
            return Err(self.refuse(
                0,
                cid,
                StatusCode::CompletionQueueInvalid,
                "no such completion queue",
            ));
        }
        let ring = self.sq_ring(base, sqe.queue_entries());
        let doorbell = self.sq_doorbell(qid);
        let (Some(ring), Some((doorbell, event))) = (ring, doorbell) else {
            return Err(self.unmapped_queue(cid));
        };
        self.take_stray_doorbell(usize::from(qid) * 2);
        self.ended.forget_sq(qid);
        if let Some(cq) = &mut self.cqs[usize::from(cqid)] {
            cq.sqs += 1;
        }
        let mut sq = Sq::new(qid, cqid, sqe.qprio(), ring, doorbell);
        sq.event = event;
        self.sqs.push(sq);
        Ok(Outcome::OK)
    }

    /// A doorbell written before its queue existed must not count as a new one.
    fn take_stray_doorbell(&mut self, index: usize) {
        let cell = self.doorbells.get(index);
        if cell.is_some_and(|cell| cell.swap(0, std::sync::atomic::Ordering::Relaxed) != 0) {
            self.stray_doorbell(index);
        }
    }

    /// 1.4 §5.5.
    fn delete_io_cq(&mut self, sqe: &Sqe) -> Result<Outcome, Status> {
        let (cid, qid) = (sqe.cid(), sqe.qid());
        let bound = match self.cqs.get(usize::from(qid)) {
            Some(Some(cq)) if qid != 0 => cq.sqs,
            _ if self.ended.forget_cq(qid) => {
                self.clear_doorbell(usize::from(qid) * 2 + 1);
                return Ok(Outcome::OK);
            }
            _ => {
                return Err(self.refuse(
                    0,
                    cid,
                    StatusCode::InvalidQueueIdentifier,
                    "no such completion queue",
                ));
            }
        };
        if bound > 0 {
            let reason = "completion queue with submission queues bound to it";
            return Err(self.refuse(0, cid, StatusCode::InvalidQueueDeletion, reason));
        }
        self.cqs[usize::from(qid)] = None;
        self.clear_doorbell(usize::from(qid) * 2 + 1);
        Ok(Outcome::OK)
    }

    /// 1.4 §5.6: what is outstanding is aborted before the deletion completes.
    fn delete_io_sq(&mut self, sqe: &Sqe, now_ns: u64) -> Result<Outcome, Status> {
        let qid = sqe.qid();
        match self.sq_index(qid).filter(|&index| index != 0) {
            Some(index) => self.take_out_sq(index, now_ns),
            None if self.ended.forget_sq(qid) => self.clear_doorbell(usize::from(qid) * 2),
            None => {
                let reason = "no such submission queue";
                return Err(self.refuse(0, sqe.cid(), StatusCode::InvalidQueueIdentifier, reason));
            }
        }
        Ok(Outcome::OK)
    }

    pub(super) fn clear_doorbell(&self, index: usize) {
        if let Some(cell) = self.doorbells.get(index) {
            cell.store(0, std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// 1.4 §5.1: a command whose completion is due later is really aborted.
    fn abort(&mut self, sqe: &Sqe, now_ns: u64) -> Outcome {
        /// DW0 bit 0: the command was not aborted.
        const NOT_ABORTED: u32 = 1;
        let (sqid, victim) = (sqe.abort_sqid(), sqe.abort_cid());
        let aborted = if sqid == 0 {
            self.abort_event_request(victim)
        } else if let Some(command) = self.pending.take(sqid, victim) {
            self.finish_early(command, StatusCode::CommandAbortedByRequest, now_ns);
            self.announce_all(now_ns);
            self.update_timed();
            true
        } else {
            false
        };
        Outcome::dw0(if aborted { 0 } else { NOT_ABORTED })
    }
}
