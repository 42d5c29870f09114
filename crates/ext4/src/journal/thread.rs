//! A thread that commits for all others, as in a classic journal. It only exists to measure what
//! the hand-over costs: otherwise a caller that wants a commit leads it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use super::{Journal, Sequence};
use crate::Error;
use meantime_hw::futex::Futex;

/// The longest sleep between two polls, in ns.
const NAP_NS: u64 = 50_000_000;

/// The thread; dropping this ends it.
pub(crate) struct JournalThread {
    asked: Arc<Asked>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Asked {
    /// The newest transaction asked for.
    upto: AtomicU64,
    stopping: AtomicBool,
    /// Advances when there is work.
    more: Futex,
    /// Advances when a commit has ended.
    done: Futex,
}

impl JournalThread {
    /// Starts a thread that commits with `commit`, which returns whether everything up to the
    /// transaction committed, or `None` if the mount has ended. Returns `None`, and logs that, if
    /// no thread can be started; callers then lead their commits.
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

    /// Has everything up to transaction `upto` of `journal` committed, and waits for that.
    ///
    /// # Errors
    /// Fails if the journal has failed.
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
        // Callers see a failure in the journal.
        let Some(committed) = commit(Sequence(upto)) else { return };
        if committed {
            done = upto;
        } else {
            asked.more.wait(seen, NAP_NS);
        }
        asked.done.advance();
    }
}
