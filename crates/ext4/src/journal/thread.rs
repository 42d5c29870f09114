//! A thread that commits for all others, as in a classic journal. It only exists to measure what
//! the hand-over costs. Without it, a caller that wants a commit leads it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::sequence::Sequence;
use super::state::Journal;
use crate::Result;
use crate::worker::Worker;
use meantime_hw::futex::Futex;

/// The longest sleep before a caller asks again, in ns.
const NAP_NS: u64 = 50_000_000;

/// The thread. Dropping this ends it.
pub(crate) struct JournalThread {
    /// The sender is dropped first, so that the thread ends.
    asked: Sender<Sequence>,
    /// Advances when a commit has ended.
    done: Arc<Futex>,
    _worker: Worker,
}

impl JournalThread {
    /// Starts a thread that commits with `commit`, which returns whether everything up to the
    /// transaction committed, or `None` if the mount has ended. Returns `None`, and logs that, if
    /// no thread can be started; callers then lead their commits.
    pub(crate) fn start(
        commit: impl Fn(Sequence) -> Option<bool> + Send + 'static,
    ) -> Option<Self> {
        let (asked, wanted) = channel();
        let done = Arc::new(Futex::default());
        let told = Arc::clone(&done);
        match Worker::start("meantime-jbd2", move |_| run(&wanted, &told, &commit)) {
            Ok(worker) => Some(Self { asked, done, _worker: worker }),
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
    pub(crate) fn commit(&self, journal: &Journal, upto: Sequence) -> Result<()> {
        loop {
            let seen = self.done.get();
            if journal.is_durable(upto) {
                return Ok(());
            }
            if let Some(error) = journal.failure() {
                return Err(error);
            }
            // The thread ends only with the mount.
            let _ = self.asked.send(upto);
            self.done.wait(seen, NAP_NS);
        }
    }
}

fn run(wanted: &Receiver<Sequence>, told: &Futex, commit: &dyn Fn(Sequence) -> Option<bool>) {
    let mut done = Sequence(0);
    while let Ok(first) = wanted.recv() {
        let upto = wanted.try_iter().fold(first, Sequence::max);
        if upto > done {
            // Callers see a failure in the journal.
            match commit(upto) {
                Some(true) => done = upto,
                Some(false) => {}
                None => return,
            }
        }
        told.advance();
    }
}
