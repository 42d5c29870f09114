//! A change requested from outside, and its answer: one at a time, and neither side waits for the
//! other here.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU32, Ordering};

use super::words::TextWords;

/// There is no request.
const FREE: u32 = 0;
/// An asker is writing the request.
const WRITING: u32 = 1;
/// The request is written.
const ASKED: u32 = 2;
/// The channel has taken it.
const TAKEN: u32 = 3;
/// The channel has taken it, and the asker has left.
const ABANDONED: u32 = 4;
/// The channel has answered.
const ANSWERED: u32 = 5;

/// The most bytes of a request.
pub(super) const REQUEST_BYTES_MAX: usize = 64;

/// The phase of a request, and its texts. Each text belongs to one side at a time, as `phase` says:
/// every step that passes one on is a Release, and the other side's load of that phase an Acquire.
#[derive(Debug)]
pub(super) struct RequestCell {
    phase: AtomicU32,
    request: TextWords<{ REQUEST_BYTES_MAX / 8 }>,
    /// Empty if the change was made; otherwise the reason why not.
    refusal: TextWords<48>,
}

/// The state of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Progress {
    /// The channel has not taken it yet.
    Waiting,
    /// The channel has taken it, and has not answered.
    Taken,
    /// Made, or refused for this reason.
    Answered(Result<(), String>),
}

impl RequestCell {
    /// A cell without a request.
    pub(super) fn new() -> Self {
        Self { phase: AtomicU32::new(FREE), request: TextWords::new(), refusal: TextWords::new() }
    }

    fn step(&self, from: u32, to: u32) -> bool {
        self.phase.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Asker: makes the request. False if another one is pending.
    pub(super) fn ask(&self, request: &str) -> bool {
        if !self.step(FREE, WRITING) {
            return false;
        }
        self.request.store(request);
        self.phase.store(ASKED, Ordering::Release);
        true
    }

    /// Asker that owns the request: its state.
    pub(super) fn progress(&self) -> Progress {
        match self.phase.load(Ordering::Acquire) {
            ANSWERED => {
                let refusal = self.refusal.load();
                Progress::Answered(if refusal.is_empty() { Ok(()) } else { Err(refusal) })
            }
            TAKEN => Progress::Taken,
            _ => Progress::Waiting,
        }
    }

    /// Asker that owns the request: abandons it. True if the channel has not taken it, and never
    /// will.
    pub(super) fn leave(&self) -> bool {
        let withdrawn = self.step(ASKED, FREE);
        if !withdrawn && !self.step(ANSWERED, FREE) && !self.step(TAKEN, ABANDONED) {
            // It answered between the last two checks.
            self.step(ANSWERED, FREE);
        }
        withdrawn
    }

    /// Channel: takes the request, if there is one. One load if not.
    #[inline]
    pub(super) fn take(&self) -> Option<String> {
        if self.phase.load(Ordering::Relaxed) != ASKED || !self.step(ASKED, TAKEN) {
            return None;
        }
        Some(self.request.load())
    }

    /// Channel that has taken the request: answers, with an empty text or the reason for refusal.
    pub(super) fn answer(&self, refusal: &str) {
        self.refusal.store(refusal);
        if !self.step(TAKEN, ANSWERED) {
            self.step(ABANDONED, FREE);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_request_at_a_time_and_its_answer() {
        let cell = RequestCell::new();
        assert_eq!(cell.take(), None);
        assert!(cell.ask("poll"));
        assert!(!cell.ask("hybrid"), "one at a time");
        assert_eq!(cell.progress(), Progress::Waiting);
        assert_eq!(cell.take().as_deref(), Some("poll"));
        assert_eq!(cell.take(), None, "taken once");
        assert_eq!(cell.progress(), Progress::Taken);
        cell.answer("no vector");
        assert_eq!(cell.progress(), Progress::Answered(Err("no vector".into())));
        assert!(!cell.leave());
        assert!(cell.ask("hybrid"), "free again");
        assert_eq!(cell.take().as_deref(), Some("hybrid"));
        cell.answer("");
        assert_eq!(cell.progress(), Progress::Answered(Ok(())));
    }

    #[test]
    fn a_request_can_be_left_at_any_time() {
        let cell = RequestCell::new();
        assert!(cell.ask("poll"));
        assert!(cell.leave(), "withdrawn");
        assert_eq!(cell.take(), None);
        assert!(cell.ask("hybrid"));
        assert_eq!(cell.take().as_deref(), Some("hybrid"));
        assert!(!cell.leave());
        assert!(!cell.ask("poll"), "the channel is still at the one that was left");
        cell.answer("");
        assert!(cell.ask("poll"));
        assert_eq!(cell.progress(), Progress::Waiting, "not the answer to the one before");
    }
}
