//! Shadow doorbells (1.4 §5.7 and §7.13).
//!
//! Once the host has given its two pages, the doorbells of I/O queues are the cells of the first
//! one. Writes to the registers only wake the controller; their values are ignored. The admin queue
//! keeps its registers, which the host must keep in step (§7.13), and which are all that several
//! drivers write.
//!
//! **Fences.** The host stores a shadow doorbell with Release after the entries it announces, which
//! the controller loads with Acquire, as of a register. Whether it writes the register too follows
//! from the event index: it stores the shadow, makes a full fence, loads the event index. While the
//! controller polls the cells the event index is [`POLLED`], and a stale value costs at most a
//! needless register write. Before it sleeps, it stores as event index the value that it has seen
//! ([`Controller::ask_for_rings`]), makes a full fence (that of
//! [`Parking::announce`](meantime_spec::seam::Parking::announce), which comes next), and reads
//! every cell once more. Of the two fences one comes second, and its side sees the other's store:
//! either the host writes the register, or the controller finds the new value. After sleeping,
//! [`Controller::poll_again`] needs no fence: a host that does not see the new event index yet
//! writes the register needlessly.

use meantime_spec::dbbuf;
use meantime_spec::seam::SOFT_DSTRD;
use meantime_spec::sqe::Sqe;
use meantime_spec::status::{Status, StatusCode};

use super::Controller;
use super::complete::Outcome;
use crate::hostmem::{Cells, Doorbell, PAGE_BYTES};

/// An event index that is passed only once per wrap: the controller polls.
const POLLED: u32 = 0xffff;

/// The host's two pages.
pub(super) struct Shadows {
    doorbells: Cells,
    events: Cells,
}

impl Shadows {
    /// Shadow doorbell and event index at `offset` of their pages, which begin at `value` and
    /// [`POLLED`].
    fn pair(&self, offset: u64, value: u32) -> Option<(Doorbell, Doorbell)> {
        let (shadow, event) = (self.doorbells.cell(offset)?, self.events.cell(offset)?);
        shadow.store(value);
        event.store(POLLED);
        Some((shadow, event))
    }

    /// Whether either page touches the `len` bytes at `iova`.
    pub(super) fn overlap(&self, iova: u64, len: u64) -> bool {
        self.doorbells.overlaps(iova, len) || self.events.overlaps(iova, len)
    }
}

impl Controller {
    pub(super) fn doorbell_buffer_config(&mut self, sqe: &Sqe) -> Result<Outcome, Status> {
        let cid = sqe.cid();
        if !self.config.shadow_doorbells {
            let reason = "Doorbell Buffer Config, though OACS does not offer it";
            return Err(self.refuse(0, cid, StatusCode::InvalidCommandOpcode, reason));
        }
        let (doorbells, events) = (sqe.prp1.get(), sqe.prp2.get());
        let page = |iova: u64| {
            let aligned = iova.is_multiple_of(PAGE_BYTES);
            aligned.then(|| self.host.cells(iova, PAGE_BYTES as usize)).flatten()
        };
        // 1.4 §5.7.1: Invalid Field in Command if an address is invalid.
        let (at, shadows) = match (page(doorbells), page(events)) {
            (None, _) => (24, None),
            (_, None) => (32, None),
            _ if doorbells == events => (32, None),
            (Some(doorbells), Some(events)) => (0, Some(Shadows { doorbells, events })),
        };
        let Some(shadows) = shadows else {
            let reason = "Doorbell Buffer Config: not two pages of mapped memory";
            return Err(self.at(at, 0).refuse(0, cid, StatusCode::InvalidFieldInCommand, reason));
        };
        // Existing queues continue from their current values.
        for sq in self.sqs.iter_mut().filter(|sq| sq.qid != 0) {
            let offset = dbbuf::sq_tail_offset(sq.qid, SOFT_DSTRD);
            if let Some((shadow, event)) = shadows.pair(offset, sq.doorbell.load()) {
                (sq.doorbell, sq.event) = (shadow, Some(event));
            }
        }
        for (qid, cq) in self.cqs.iter_mut().enumerate().skip(1) {
            let Some(cq) = cq else { continue };
            let offset = dbbuf::cq_head_offset(qid as u16, SOFT_DSTRD);
            if let Some((shadow, event)) = shadows.pair(offset, cq.doorbell.load()) {
                (cq.doorbell, cq.event) = (shadow, Some(event));
            }
        }
        self.shadows = Some(shadows);
        Ok(Outcome::OK)
    }

    /// The tail doorbell of a new submission queue, and its event index.
    pub(super) fn sq_doorbell(&self, qid: u16) -> Option<(Doorbell, Option<Doorbell>)> {
        self.new_doorbell(dbbuf::sq_tail_offset(qid, SOFT_DSTRD), usize::from(qid) * 2)
    }

    /// The head doorbell of a new completion queue, and its event index.
    pub(super) fn cq_doorbell(&self, qid: u16) -> Option<(Doorbell, Option<Doorbell>)> {
        self.new_doorbell(dbbuf::cq_head_offset(qid, SOFT_DSTRD), usize::from(qid) * 2 + 1)
    }

    fn new_doorbell(&self, offset: u64, index: usize) -> Option<(Doorbell, Option<Doorbell>)> {
        if let Some((shadow, event)) =
            self.shadows.as_ref().and_then(|shadows| shadows.pair(offset, 0))
        {
            return Some((shadow, Some(event)));
        }
        Some((Doorbell::new(&self.doorbells, index)?, None))
    }

    /// Asks the host to write registers from now on: the controller is about to sleep. The caller
    /// makes a full fence, and then reads everything once more.
    pub(crate) fn ask_for_rings(&mut self) {
        if self.shadows.is_none() {
            return;
        }
        for (doorbell, event) in self.shadowed() {
            event.store(doorbell.load());
        }
    }

    /// Polls doorbells again.
    pub(crate) fn poll_again(&mut self) {
        if self.shadows.is_none() {
            return;
        }
        for (_, event) in self.shadowed() {
            event.store(POLLED);
        }
    }

    /// Every doorbell with an event index, with the index.
    fn shadowed(&self) -> impl Iterator<Item = (&Doorbell, &Doorbell)> {
        let sqs = self.sqs.iter().filter_map(|sq| Some((&sq.doorbell, sq.event.as_ref()?)));
        let cqs =
            self.cqs.iter().flatten().filter_map(|cq| Some((&cq.doorbell, cq.event.as_ref()?)));
        sqs.chain(cqs)
    }
}
