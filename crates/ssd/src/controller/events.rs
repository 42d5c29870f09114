//! Asynchronous events (1.4 §5.2).

use std::collections::VecDeque;

use meantime_spec::log::{AsyncEvent, AsyncEventCode, AsyncEventKind, lid};
use meantime_spec::status::{Status, StatusCode};

use super::Controller;
use super::complete::Outcome;
use super::failure::{Checked, refused};
use super::queues::Cq;
use crate::event_requests::{EventRequests, USED_AGAIN};

/// The most events that wait for a request; more are dropped, since the logs have them anyway.
const MAX_QUEUED: usize = 8;

#[derive(Default)]
pub(super) struct Events {
    requests: EventRequests,
    queued: VecDeque<AsyncEvent>,
    /// Event types that were reported and not yet cleared by reading their log page, a bit each.
    masked: u8,
}

impl Events {
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Index of the first queued event that could be reported, given a request.
    fn next(&self) -> Option<usize> {
        if self.queued.is_empty() || self.requests.oldest().is_none() {
            return None;
        }
        self.queued.iter().position(|e| self.masked & 1 << e.kind as u8 == 0)
    }

    /// Whether an undelivered event waits only for room among the admin completions.
    #[inline(always)]
    pub(super) fn held_back(&self) -> bool {
        // The most selective test comes first: this runs on idle turns.
        !self.queued.is_empty() && self.next().is_some()
    }
}

impl Controller {
    /// Queues an event, if the host has enabled it.
    pub(super) fn event(&mut self, code: AsyncEventCode) {
        let is_error = u16::from(code) >> 8 == 0;
        let log_page = if is_error { lid::ERROR_INFORMATION } else { lid::SMART };
        let Ok(event) = AsyncEvent::new(code, log_page) else { return };
        let same = |e: &AsyncEvent| e.kind == event.kind && e.info == event.info;
        if self.events.queued.len() < MAX_QUEUED && !self.events.queued.iter().any(same) {
            self.events.queued.push_back(event);
        }
        self.deliver_events();
    }

    /// Holds an Asynchronous Event Request. No completion entry is reserved for it, because
    /// requests would otherwise fill a small admin queue.
    pub(super) fn hold_event_request(&mut self, cid: u16) -> Checked<()> {
        if !self.events.requests.hold(cid) {
            let rule = "more Asynchronous Event Requests than AERL allows";
            return Err(refused(StatusCode::AsynchronousEventRequestLimitExceeded, rule));
        }
        let sq = &mut self.sqs[0];
        sq.cids.insert(cid);
        sq.outstanding += 1;
        Ok(())
    }

    /// Aborts the held request `cid`. False if it is not held, or there is no room for its
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
    /// another command. False if it is not held.
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

    /// Releases request `cid`. False if it was not held.
    fn release_request(&mut self, cid: u16) -> bool {
        let held = self.events.requests.release(cid);
        if held {
            let sq = &mut self.sqs[0];
            sq.cids.remove(cid);
            sq.outstanding -= 1;
        }
        held
    }

    /// Called when the host has read `log_page`: events of its type are reported again.
    pub(super) fn clear_events(&mut self, log_page: u8) {
        let kind = match log_page {
            lid::ERROR_INFORMATION => AsyncEventKind::Error,
            lid::SMART => AsyncEventKind::Smart,
            _ => return,
        };
        self.events.masked &= !(1 << kind as u8);
        self.deliver_events();
    }

    /// Completes held requests with queued events, as far as there is room.
    pub(super) fn deliver_events(&mut self) {
        loop {
            let Some(at) = self.events.next() else { return };
            if self.cqs[0].as_ref().map_or(0, Cq::room) == 0 {
                return;
            }
            let request = self.events.requests.oldest();
            let Some((event, cid)) = self.events.queued.remove(at).zip(request) else { return };
            self.events.masked |= 1 << event.kind as u8;
            self.release_request(cid);
            self.post(0, cid, Outcome::dw0(event.to_dw0()));
            self.announce_cq(0, || 0);
        }
    }
}
