//! The Asynchronous Event Requests that a controller holds, and what it makes of a host that has
//! given them up.

use std::collections::VecDeque;

/// Asynchronous Event Request Limit, counted from 1.
pub(crate) const MAX_REQUESTS: usize = 4;

/// What is said of an identifier that is used again.
pub(crate) const USED_AGAIN: &str =
    "the identifier of an Asynchronous Event Request was used again";

/// The requests held, by identifier, oldest first.
///
/// A request is outstanding until it is completed, and no other command of its queue may have its
/// identifier (Base 2.0 §3.3.3.1). Hosts that are about to leave give their requests up without
/// Abort all the same, and go on with the identifiers: Property Get and Set of an orderly shutdown,
/// for example. Nobody waits for such a request any more, so [`EventRequests::release`] drops it
/// without a completion, which the host would take for the other command's.
#[derive(Default)]
pub(crate) struct EventRequests(VecDeque<u16>);

impl EventRequests {
    /// Holds request `cid`. False if the limit is reached.
    pub(crate) fn hold(&mut self, cid: u16) -> bool {
        let fits = self.0.len() < MAX_REQUESTS;
        if fits {
            self.0.push_back(cid);
        }
        fits
    }

    /// Whether request `cid` is held.
    pub(crate) fn holds(&self, cid: u16) -> bool {
        self.0.contains(&cid)
    }

    /// Releases request `cid`. False if it was not held.
    pub(crate) fn release(&mut self, cid: u16) -> bool {
        let at = self.0.iter().position(|&request| request == cid);
        at.and_then(|at| self.0.remove(at)).is_some()
    }

    /// The oldest request.
    pub(crate) fn oldest(&self) -> Option<u16> {
        self.0.front().copied()
    }

    /// Releases all.
    pub(crate) fn release_all(&mut self) -> impl Iterator<Item = u16> + use<> {
        std::mem::take(&mut self.0).into_iter()
    }
}
