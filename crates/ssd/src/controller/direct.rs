//! Queue pairs that the controller's own process opens and closes. It does so without admin
//! commands, because those may have injected faults, which are for hosts.

use super::Controller;
use super::doorbell::{QueueDoorbell, cq_doorbell, sq_doorbell};
use super::queues::{Cq, Sq};

impl Controller {
    /// Opens I/O queue pair `qid`, without an interrupt, in mapped memory. Returns false if the
    /// controller is not enabled, or the queue exists.
    pub(crate) fn open_pair(&mut self, qid: u16, sq: u64, cq: u64, entries: u32) -> bool {
        let taken = self.cqs.get(usize::from(qid)).is_none_or(Option::is_some);
        if self.sqs.is_empty() || taken || self.sq_index(qid).is_some() {
            return false;
        }
        let rings = self.host.ring(sq, entries, 64).zip(self.host.ring(cq, entries, 16));
        let doorbell = |index| QueueDoorbell::register(&self.doorbells, index);
        let doorbells = doorbell(sq_doorbell(qid)).zip(doorbell(cq_doorbell(qid)));
        let Some(((sq_ring, cq_ring), (tail, head))) = rings.zip(doorbells) else { return false };
        let mut completions = Cq::new(cq_ring, head, None);
        completions.sqs = 1;
        self.cqs[usize::from(qid)] = Some(completions);
        self.sqs.push(Sq::new(qid, qid, 0, sq_ring, tail));
        true
    }

    /// Closes the queue pair. Commands that were not fetched are forgotten, and others are aborted.
    /// Nothing is accessed for them afterwards.
    pub(crate) fn close_pair(&mut self, qid: u16, now_ns: u64) {
        if let Some(index) = self.sq_index(qid).filter(|&index| index > 0) {
            self.take_out_sq(index, now_ns);
        }
        if let Some(cq) = self.cqs.get_mut(usize::from(qid)).filter(|_| qid > 0) {
            *cq = None;
        }
        self.clear_doorbell(sq_doorbell(qid));
        self.clear_doorbell(cq_doorbell(qid));
    }
}
