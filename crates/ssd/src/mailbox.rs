//! Calls to the SSD's thread for registers, mappings and vectors. They are synchronous and slow, as
//! on real hardware.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::control::Action;

/// A call to the SSD's thread.
pub(crate) enum Call {
    /// Runs this. It is dropped if the SSD ends.
    Run(Action),
    Stop,
}

#[derive(Default)]
struct Queue {
    calls: VecDeque<Call>,
    /// Whether the thread has ended, so that no answer will come.
    closed: bool,
}

/// The calls waiting for the SSD's thread.
#[derive(Default)]
pub(crate) struct Mailbox {
    /// Whether there may be calls. The thread checks it each turn.
    waiting: AtomicBool,
    queue: Mutex<Queue>,
}

impl Mailbox {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // A caller that panicked while holding the lock has either pushed its call or not, and both
        // states are consistent.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a call. Returns false if the thread has ended. The caller must then wake the thread
    /// if it has parked.
    pub(crate) fn push(&self, call: Call) -> bool {
        let mut queue = self.queue();
        if queue.closed {
            return false;
        }
        queue.calls.push_back(call);
        // The flag is set within the lock, so that it cannot be cleared by a `take` that did not
        // see the call.
        self.waiting.store(true, Ordering::Relaxed);
        true
    }

    /// Returns whether there may be a call. The load is relaxed: a call missed now is seen on the
    /// next turn, and before parking the full fence of `Parking::announce` orders this load.
    #[inline(always)]
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Takes the calls that wait now, oldest first. Those that come while these are answered are
    /// for the next turn, so that callers that never pause do not keep the thread from the queues.
    pub(crate) fn take(&self) -> VecDeque<Call> {
        let mut queue = self.queue();
        self.waiting.store(false, Ordering::Relaxed);
        std::mem::take(&mut queue.calls)
    }

    /// Closes the mailbox. Unanswered calls are dropped, so their callers return.
    pub(crate) fn close(&self) {
        let mut queue = self.queue();
        queue.closed = true;
        queue.calls.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_while_calls_are_answered_waits_for_the_next_turn() {
        let mailbox = Mailbox::default();
        assert!(mailbox.push(Call::Stop) && mailbox.push(Call::Stop));
        let mut answered = 0;
        for _ in mailbox.take() {
            answered += 1;
            // A caller that never pauses does this.
            assert!(mailbox.push(Call::Stop));
        }
        assert_eq!(answered, 2);
        assert!(mailbox.is_waiting());
        assert_eq!(mailbox.take().len(), 2);
        assert!(!mailbox.is_waiting());
    }
}
