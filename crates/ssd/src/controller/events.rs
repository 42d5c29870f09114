//! Asynchronous events (1.4 §5.2).

use meantime_nvme_spec::log::{AsyncEvent, AsyncEventCode, AsyncEventKind, lid};
use meantime_nvme_spec::status::{Status, StatusCode};

use super::Controller;
use super::outcome::{Checked, Outcome, refuse_if};
use super::queues::Cq;
use crate::event_requests::USED_AGAIN;

impl Controller {
    /// Queues an event, if the host has enabled it.
    pub(super) fn event(&mut self, code: AsyncEventCode) {
        let is_error = u16::from(code) >> 8 == 0;
        let log_page = if is_error { lid::ERROR_INFORMATION } else { lid::SMART };
        let Ok(event) = AsyncEvent::new(code, log_page) else { return };
        self.events.queue(event);
        self.deliver_events();
    }

    /// Holds an Asynchronous Event Request. No completion entry is reserved for it, because
    /// requests would otherwise fill a small admin queue.
    pub(super) fn hold_event_request(&mut self, cid: u16) -> Checked<()> {
        let code = StatusCode::AsynchronousEventRequestLimitExceeded;
        let rule = "more Asynchronous Event Requests than AERL allows";
        refuse_if(!self.events.requests.hold(cid), code, rule)?;
        let sq = &mut self.sqs[0];
        sq.cids.insert(cid);
        sq.outstanding += 1;
        Ok(())
    }

    /// Aborts the held request `cid`. Returns false if it is not held, or there is no room for its
    /// completion.
    pub(super) fn abort_event_request(&mut self, cid: u16) -> bool {
        let aborted =
            self.events.requests.holds(cid) && self.room(0, 1) > 0 && self.release_request(cid);
        if aborted {
            let status = Status::from_code(StatusCode::CommandAbortedByRequest);
            self.post(0, cid, Outcome::from(status));
        }
        aborted
    }

    /// Drops the held request `cid` without a completion because the host uses its identifier for
    /// another command. Returns false if it is not held.
    pub(super) fn give_up_event_request(&mut self, cid: u16) -> bool {
        let held = self.release_request(cid);
        if held {
            self.tolerate_reuse(cid);
        }
        held
    }

    /// Counts that a host has used the identifier of an event request again, for which the request
    /// was dropped.
    pub(crate) fn tolerate_reuse(&mut self, cid: u16) {
        self.counters.cid_conflicts.add(1);
        self.tolerate(0, Some(cid), USED_AGAIN);
    }

    /// Releases request `cid`. Returns false if it was not held.
    fn release_request(&mut self, cid: u16) -> bool {
        let held = self.events.requests.release(cid);
        if held {
            let sq = &mut self.sqs[0];
            sq.cids.remove(cid);
            sq.outstanding -= 1;
        }
        held
    }

    /// Is called when the host has read `log_page`. Events of its type are reported again.
    pub(super) fn clear_events(&mut self, log_page: u8) {
        let kind = match log_page {
            lid::ERROR_INFORMATION => AsyncEventKind::Error,
            lid::SMART => AsyncEventKind::Smart,
            _ => return,
        };
        self.events.unmask(kind);
        self.deliver_events();
    }

    /// Completes held requests with queued events, as far as there is room.
    pub(super) fn deliver_events(&mut self) {
        while self.cqs[0].as_ref().map_or(0, Cq::room) > 0 {
            let Some((event, cid)) = self.events.take() else { return };
            self.release_request(cid);
            self.post(0, cid, Outcome::dw0(event.to_dw0()));
            self.announce_cq(0, || 0);
        }
    }
}
