//! Admin commands (1.4 §5).

use std::sync::atomic::Ordering;

use meantime_nvme_spec::opcode::AdminOpcode;
use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::status::StatusCode;

use super::Controller;
use super::doorbell::{cq_doorbell, sq_doorbell};
use super::io::check_cdw0;
use super::outcome::{Checked, Failure, Outcome, invalid_if, refuse_if, refused};
use super::queues::{Cq, Sq};
use crate::clock::Clock;
use crate::hostmem::PAGE_BYTES;

fn unmapped_queue() -> Failure {
    refused(StatusCode::DataTransferError, "queue not within one mapped region")
}

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
            // Executing the command may complete event requests, so its own entry is reserved
            // meanwhile.
            self.promise(0, true);
            let result = match verdict.status {
                Some(status) => Err(Failure::from(status)),
                None => self.admin(&sqe, now_ns),
            };
            self.promise(0, false);
            let outcome = match result {
                Ok(Some(outcome)) => outcome,
                Ok(None) => continue,
                Err(failure) => Outcome::from(self.fail(0, cid, failure)),
            };
            if verdict.is_none() {
                self.post(0, cid, outcome);
            } else {
                self.finish_admin(cid, outcome, &verdict, now_ns);
            }
        }
        self.deliver_events();
        self.announce_cq(0, || 0);
        worked
    }

    /// Executes one command. Returns `None` if it completes later.
    fn admin(&mut self, sqe: &Sqe, now_ns: u64) -> Checked<Option<Outcome>> {
        // Otherwise an injected corruption could hit an earlier command's data.
        self.segments.clear();
        check_cdw0(0, sqe)?;
        let not_offered = |rule| refused(StatusCode::InvalidCommandOpcode, rule);
        let opcode = AdminOpcode::try_from(sqe.opcode());
        let outcome = match opcode.map_err(|_| not_offered("unknown admin opcode"))? {
            AdminOpcode::Identify => self.identify(sqe)?,
            AdminOpcode::CreateIoCq => self.create_io_cq(sqe)?,
            AdminOpcode::CreateIoSq => self.create_io_sq(sqe)?,
            AdminOpcode::DeleteIoCq => self.delete_io_cq(sqe)?,
            AdminOpcode::DeleteIoSq => self.delete_io_sq(sqe, now_ns)?,
            AdminOpcode::GetFeatures => self.get_features(sqe, now_ns)?,
            AdminOpcode::SetFeatures => self.set_features(sqe, now_ns)?,
            AdminOpcode::GetLogPage => self.get_log_page(sqe)?,
            AdminOpcode::Abort => self.abort(sqe, now_ns),
            AdminOpcode::AsyncEventRequest => {
                self.hold_event_request(sqe.cid())?;
                return Ok(None);
            }
            // The fetch has restarted the timer, as for every command.
            AdminOpcode::KeepAlive => Outcome::OK,
            AdminOpcode::DoorbellBufferConfig => self.doorbell_buffer_config(sqe)?,
            _ => return Err(not_offered("admin command that Identify Controller does not offer")),
        };
        Ok(Some(outcome))
    }

    /// Sends `data`, padded with zeroes or cut to `len` bytes, to a command's data pointer.
    pub(super) fn answer(&mut self, sqe: &Sqe, data: &[u8], len: usize) -> Checked<()> {
        self.gather(sqe, len as u64)?;
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
    pub(super) fn take(&mut self, sqe: &Sqe, to: &mut [u8]) -> Checked<()> {
        self.gather(sqe, to.len() as u64)?;
        self.collect(to);
        Ok(())
    }

    /// Checks Create Queue's common fields. Returns the address of the queue's memory.
    fn check_new_queue(&self, sqe: &Sqe, exists: bool, limit: u32) -> Checked<u64> {
        let bad_qid = sqe.qid() == 0 || u32::from(sqe.qid()) > limit || exists;
        let rule = "queue identifier 0, in use, or beyond Number of Queues";
        refuse_if(bad_qid, StatusCode::InvalidQueueIdentifier, rule)?;
        let bad_size = !(2..=self.config.max_queue_entries).contains(&sqe.queue_entries());
        let rule = "queue size below 2 or beyond CAP.MQES";
        refuse_if(bad_size, StatusCode::InvalidQueueSize, rule)?;
        invalid_if(!sqe.pc(), "queue not physically contiguous, though CAP.CQR is set")?;
        let base = sqe.prp1.get();
        let unaligned = !base.is_multiple_of(PAGE_BYTES);
        let rule = "queue base not aligned to a page";
        refuse_if(unaligned, StatusCode::PrpOffsetInvalid, rule)?;
        Ok(base)
    }

    /// Creates an I/O completion queue (1.4 §5.3).
    fn create_io_cq(&mut self, sqe: &Sqe) -> Checked {
        let (qid, index) = (sqe.qid(), cq_doorbell(sqe.qid()));
        let exists = self.cqs.get(usize::from(qid)).is_some_and(Option::is_some);
        let base = self.check_new_queue(sqe, exists, self.features.queues().cq())?;
        let unset = !self.entry_sizes_set().1;
        refuse_if(unset, StatusCode::InvalidQueueSize, "CC.IOCQES is not set")?;
        let vector = sqe.ien().then_some(sqe.iv());
        let beyond = vector.is_some_and(|v| v >= self.interrupts.len());
        refuse_if(beyond, StatusCode::InvalidInterruptVector, "no such interrupt vector")?;
        let ring = self.host.ring(base, sqe.queue_entries(), 16);
        let (ring, doorbell) = ring.zip(self.doorbell(index)).ok_or_else(unmapped_queue)?;
        self.take_stray_doorbell(index);
        self.ended.remove(&index);
        self.cqs[usize::from(qid)] = Some(Cq::new(ring, doorbell, vector));
        Ok(Outcome::OK)
    }

    /// Creates an I/O submission queue (1.4 §5.4).
    fn create_io_sq(&mut self, sqe: &Sqe) -> Checked {
        let (qid, cqid, index) = (sqe.qid(), sqe.cqid(), sq_doorbell(sqe.qid()));
        let exists = self.sq_index(qid).is_some();
        let base = self.check_new_queue(sqe, exists, self.features.queues().sq())?;
        let unset = !self.entry_sizes_set().0;
        refuse_if(unset, StatusCode::InvalidQueueSize, "CC.IOSQES is not set")?;
        let beyond = cqid == 0 || usize::from(cqid) >= self.cqs.len();
        let rule = "completion queue identifier 0 or out of range";
        refuse_if(beyond, StatusCode::InvalidQueueIdentifier, rule)?;
        let no_cq = self.cqs[usize::from(cqid)].is_none();
        refuse_if(no_cq, StatusCode::CompletionQueueInvalid, "no such completion queue")?;
        let ring = self.host.ring(base, sqe.queue_entries(), 64);
        let (ring, doorbell) = ring.zip(self.doorbell(index)).ok_or_else(unmapped_queue)?;
        self.take_stray_doorbell(index);
        self.ended.remove(&index);
        if let Some(cq) = &mut self.cqs[usize::from(cqid)] {
            cq.sqs += 1;
        }
        self.sqs.push(Sq::new(qid, cqid, sqe.qprio(), ring, doorbell));
        Ok(Outcome::OK)
    }

    /// Takes a doorbell that was written before its queue existed, which must not count as a new
    /// one.
    fn take_stray_doorbell(&mut self, index: usize) {
        let cell = self.doorbells.get(index);
        if cell.is_some_and(|cell| cell.swap(0, Ordering::Relaxed) != 0) {
            self.stray_doorbell(index);
        }
    }

    /// Deletes an I/O completion queue (1.4 §5.5).
    fn delete_io_cq(&mut self, sqe: &Sqe) -> Checked {
        let (qid, index) = (usize::from(sqe.qid()), cq_doorbell(sqe.qid()));
        match self.cqs.get(qid) {
            Some(Some(cq)) if qid != 0 && cq.sqs > 0 => {
                let rule = "completion queue with submission queues bound to it";
                return Err(refused(StatusCode::InvalidQueueDeletion, rule));
            }
            Some(Some(_)) if qid != 0 => self.cqs[qid] = None,
            _ if self.ended.remove(&index) => {}
            _ => {
                let rule = "no such completion queue";
                return Err(refused(StatusCode::InvalidQueueIdentifier, rule));
            }
        }
        self.clear_doorbell(index);
        Ok(Outcome::OK)
    }

    /// Deletes an I/O submission queue (1.4 §5.6). Outstanding commands are aborted before the
    /// deletion completes.
    fn delete_io_sq(&mut self, sqe: &Sqe, now_ns: u64) -> Checked {
        let index = sq_doorbell(sqe.qid());
        match self.sq_index(sqe.qid()).filter(|&at| at != 0) {
            Some(at) => self.take_out_sq(at, now_ns),
            None if self.ended.remove(&index) => self.clear_doorbell(index),
            None => {
                let rule = "no such submission queue";
                return Err(refused(StatusCode::InvalidQueueIdentifier, rule));
            }
        }
        Ok(Outcome::OK)
    }

    pub(super) fn clear_doorbell(&self, index: usize) {
        if let Some(cell) = self.doorbells.get(index) {
            cell.store(0, Ordering::Relaxed);
        }
    }

    /// Aborts a command (1.4 §5.1). A command whose completion is due later really is aborted.
    fn abort(&mut self, sqe: &Sqe, now_ns: u64) -> Outcome {
        /// DW0 bit 0 says that the command was not aborted.
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
