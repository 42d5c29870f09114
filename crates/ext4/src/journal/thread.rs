//! A thread that commits for all others, as a classic journal has one. Nobody needs it here, where
//! whoever wants a commit leads it: it is there to measure what the hand-over costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use super::{Journal, Sequence};
use crate::Error;
use meantime_hw::futex::Futex;

/// The longest sleep between two looks, in ns.
const NAP_NS: u64 = 50_000_000;

/// The thread, which ends when this is dropped.
pub(crate) struct JournalThread {
    asked: Arc<Asked>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Asked {
    /// Up to which transaction.
    upto: AtomicU64,
    stopping: AtomicBool,
    /// Changes when there is something to be done.
    more: Futex,
    /// Changes when something was.
    done: Futex,
}

impl JournalThread {
    /// A thread that has everything up to a transaction committed by `commit`, which answers
    /// whether it was, or `None` if the mount has ended. `None`, which is logged: there is no thread
    /// to be had, and whoever wants a commit leads it.
    pub(crate) fn start(
        commit: impl Fn(Sequence) -> Option<bool> + Send + 'static,
    ) -> Option<Self> {
        let asked = Arc::new(Asked::default());
        let told = Arc::clone(&asked);
        match meantime_process::thread::spawn("meantime-jbd2", move || run(&told, &commit)) {
            Ok(thread) => Some(Self { asked, thread: Some(thread) }),
            Err(error) => {
                tracing::warn!(%error, "no thread for the journal");
                None
            }
        }
    }

    /// Has everything up to transaction `upto` of `journal` committed, and waits for it.
    ///
    /// # Errors
    /// As the journal's.
    pub(crate) fn commit(&self, journal: &Journal, upto: Sequence) -> Result<(), Error> {
        if journal.is_durable(upto) {
            return Ok(());
        }
        let asked = &self.asked;
        asked.upto.fetch_max(upto.0, Ordering::AcqRel);
        asked.more.advance();
        loop {
            let seen = asked.done.get();
            if journal.is_durable(upto) {
                return Ok(());
            }
            if let Some(error) = journal.failure() {
                return Err(error);
            }
            asked.done.wait(seen, NAP_NS);
        }
    }
}

impl Drop for JournalThread {
    fn drop(&mut self) {
        self.asked.stopping.store(true, Ordering::Release);
        self.asked.more.advance();
        if let Some(thread) = self.thread.take()
            // The mount may end in the thread itself.
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

fn run(asked: &Asked, commit: &dyn Fn(Sequence) -> Option<bool>) {
    let mut done = 0;
    while !asked.stopping.load(Ordering::Acquire) {
        let seen = asked.more.get();
        let upto = asked.upto.load(Ordering::Acquire);
        if upto <= done {
            asked.more.wait(seen, NAP_NS);
            continue;
        }
        // Who asked sees what failed in the journal.
        let Some(committed) = commit(Sequence(upto)) else { return };
        if committed {
            done = upto;
        } else {
            asked.more.wait(seen, NAP_NS);
        }
        asked.done.advance();
    }
}
