//! Shadow doorbells (1.4 §5.7 and §7.13).
//!
//! Once the host has given its two pages, the doorbells of I/O queues are the cells of the first
//! one. Writes to the registers only wake the controller, and their values are ignored. The admin
//! queue keeps its registers: the host must keep them in step (§7.13), and several drivers write
//! nothing else.
//!
//! **Fences.** The host stores a shadow doorbell with Release after the entries that it announces.
//! The controller loads it with Acquire, as it does a register. The event index decides whether the
//! host writes the register too: it stores the shadow, makes a full fence, and loads the event
//! index. While the controller polls the cells, the event index is [`POLLED`], and a stale value
//! costs at most a needless register write. Before the controller sleeps, it stores the value that
//! it has seen as event index ([`Controller::ask_for_rings`]), makes a full fence (that of
//! [`Parking::announce`](meantime_nvme_spec::soft_port::Parking::announce), which comes next), and
//! reads every cell once more. The side whose fence is second sees the other side's store: either
//! the host writes the register, or the controller finds the new value. After sleeping,
//! [`Controller::poll_again`] needs no fence: a host that does not see the new event index yet
//! writes the register needlessly.

use meantime_nvme_spec::sqe::Sqe;
use meantime_nvme_spec::status::StatusCode;

use super::Controller;
use super::doorbell::{POLLED, QueueDoorbell, Shadows, cq_doorbell, sq_doorbell};
use super::outcome::{Checked, Outcome, invalid_field, refuse_if};
use crate::hostmem::{Doorbell, PAGE_BYTES};

impl Controller {
    pub(super) fn doorbell_buffer_config(&mut self, sqe: &Sqe) -> Checked {
        let rule = "Doorbell Buffer Config, though OACS does not offer it";
        refuse_if(!self.config.shadow_doorbells, StatusCode::InvalidCommandOpcode, rule)?;
        let (doorbells, events) = (sqe.prp1.get(), sqe.prp2.get());
        let page = |iova: u64| {
            let aligned = iova.is_multiple_of(PAGE_BYTES);
            aligned.then(|| self.host.cells(iova, PAGE_BYTES as usize)).flatten()
        };
        // 1.4 §5.7.1: Invalid Field in Command if an address is invalid.
        let invalid = || invalid_field("Doorbell Buffer Config: not two pages of mapped memory");
        let shadows = Shadows {
            doorbells: page(doorbells).ok_or_else(invalid)?,
            events: page(events).filter(|_| events != doorbells).ok_or_else(invalid)?,
        };
        // Existing queues continue from their current values.
        let sqs = self.sqs.iter_mut().filter(|sq| sq.qid != 0);
        let sqs = sqs.map(|sq| (sq_doorbell(sq.qid), &mut sq.doorbell));
        let cqs = self.cqs.iter_mut().zip(0..).skip(1);
        let cqs = cqs.filter_map(|(cq, qid)| Some((cq_doorbell(qid), &mut cq.as_mut()?.doorbell)));
        for (index, doorbell) in sqs.chain(cqs) {
            if let Some(shadow) = shadows.doorbell(index, doorbell.load()) {
                *doorbell = shadow;
            }
        }
        self.shadows = Some(shadows);
        Ok(Outcome::OK)
    }

    /// Returns the doorbell at `index`, of a new queue.
    pub(super) fn doorbell(&self, index: usize) -> Option<QueueDoorbell> {
        let shadow = self.shadows.as_ref().and_then(|shadows| shadows.doorbell(index, 0));
        shadow.or_else(|| QueueDoorbell::register(&self.doorbells, index))
    }

    /// Asks the host to write registers from now on, because the controller is about to sleep. The
    /// caller makes a full fence, then reads everything once more.
    pub(crate) fn ask_for_rings(&mut self) {
        for (doorbell, event) in self.shadowed() {
            event.store(doorbell.load());
        }
    }

    /// Returns to polling the doorbells.
    pub(crate) fn poll_again(&mut self) {
        for (_, event) in self.shadowed() {
            event.store(POLLED);
        }
    }

    /// Returns every doorbell that has an event index, with the index.
    fn shadowed(&self) -> impl Iterator<Item = (&Doorbell, &Doorbell)> {
        let sqs = self.sqs.iter().map(|sq| &sq.doorbell);
        let cqs = self.cqs.iter().flatten().map(|cq| &cq.doorbell);
        sqs.chain(cqs).filter_map(|doorbell| Some((&doorbell.cell, doorbell.event.as_ref()?)))
    }
}
