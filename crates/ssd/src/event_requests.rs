//! The Asynchronous Event Requests that a controller holds, its behaviour with a host that has
//! given them up, and the events that wait for one (1.4 §5.2).

use std::collections::VecDeque;

use meantime_nvme_spec::log::{AsyncEvent, AsyncEventKind};

/// Asynchronous Event Request Limit, counted from 1.
pub(crate) const MAX_REQUESTS: usize = 4;

/// The message about an identifier that is used again.
pub(crate) const USED_AGAIN: &str =
    "the identifier of an Asynchronous Event Request was used again";

/// The requests held, by identifier, oldest first.
///
/// A request is outstanding until it is completed, and no other command of its queue may have its
/// identifier (Base 2.0 §3.3.3.1). Hosts that are about to leave nevertheless give their requests
/// up without Abort, and continue to use the identifiers, for example for Property Get and Set of
/// an orderly shutdown. No host then waits for such a request, so [`EventRequests::release`] drops
/// it without a completion, which the host would take for the other command's.
#[derive(Default)]
pub(crate) struct EventRequests(VecDeque<u16>);

impl EventRequests {
    /// Holds request `cid`. Returns false if the limit is reached.
    pub(crate) fn hold(&mut self, cid: u16) -> bool {
        let fits = self.0.len() < MAX_REQUESTS;
        if fits {
            self.0.push_back(cid);
        }
        fits
    }

    /// Returns whether request `cid` is held.
    pub(crate) fn holds(&self, cid: u16) -> bool {
        self.0.contains(&cid)
    }

    /// Releases request `cid`. Returns false if it was not held.
    pub(crate) fn release(&mut self, cid: u16) -> bool {
        let at = self.0.iter().position(|&request| request == cid);
        at.and_then(|at| self.0.remove(at)).is_some()
    }

    /// Returns the oldest request.
    pub(crate) fn oldest(&self) -> Option<u16> {
        self.0.front().copied()
    }

    /// Releases all requests.
    pub(crate) fn release_all(&mut self) -> impl Iterator<Item = u16> + use<> {
        std::mem::take(&mut self.0).into_iter()
    }
}

/// The maximum number of events that wait for a request. More are dropped, since the logs have them
/// anyway.
const MAX_QUEUED: usize = 8;

/// The requests for events, and the events that wait for one.
#[derive(Default)]
pub(crate) struct Events {
    pub(crate) requests: EventRequests,
    queued: VecDeque<AsyncEvent>,
    /// Event types that were reported and not yet cleared by reading their log page, with a bit for
    /// each.
    masked: u8,
}

impl Events {
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Queues an event, unless one like it waits already.
    pub(crate) fn queue(&mut self, event: AsyncEvent) {
        let same = |e: &AsyncEvent| e.kind == event.kind && e.info == event.info;
        if self.queued.len() < MAX_QUEUED && !self.queued.iter().any(same) {
            self.queued.push_back(event);
        }
    }

    /// Reports events of type `kind` again.
    pub(crate) fn unmask(&mut self, kind: AsyncEventKind) {
        self.masked &= !(1 << kind as u8);
    }

    /// Takes the next event to report, and the request to complete with it, which stays held.
    pub(crate) fn take(&mut self) -> Option<(AsyncEvent, u16)> {
        let at = self.next()?;
        let (event, cid) = self.queued.remove(at).zip(self.requests.oldest())?;
        self.masked |= 1 << event.kind as u8;
        Some((event, cid))
    }

    /// Returns the index of the first queued event that could be reported, given a request.
    fn next(&self) -> Option<usize> {
        if self.queued.is_empty() || self.requests.oldest().is_none() {
            return None;
        }
        self.queued.iter().position(|e| self.masked & 1 << e.kind as u8 == 0)
    }

    /// Returns whether an undelivered event waits only for room among the admin completions.
    #[inline(always)]
    pub(crate) fn held_back(&self) -> bool {
        // The most selective test comes first: this runs on idle turns.
        !self.queued.is_empty() && self.next().is_some()
    }
}
