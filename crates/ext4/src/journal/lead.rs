//! The lead of the log. One thread at a time has it, and commits for all (group commit).
//!
//! A thread that needs something durable takes the lead, unless another thread has it. Then it
//! waits for that leader: its commit or the next one includes the change.

use std::sync::atomic::{Ordering, fence};
use std::sync::{PoisonError, TryLockError};

use super::committer::Committer;
use super::sequence::Sequence;
use super::state::Journal;
use crate::io::IoContext;
use crate::{Error, Result};
use meantime_process::lock::{MutexGuard, Rank, check_may_wait};

/// Polls before a waiter sleeps.
const LOOKS: u32 = 500;

/// The longest sleep between two polls, in ns.
const NAP_NS: u64 = 50_000_000;

/// Yields of a leader before it closes the transaction.
const GATHERING: u32 = 4;

/// What has to become durable.
#[derive(Debug)]
pub(crate) struct CommitTarget {
    /// The target is reached when all transactions up to this one are durable.
    pub(super) upto: Sequence,
    /// With fast commits, it is also reached when as many changes of this mount are durable.
    /// `u64::MAX` excludes fast commits.
    pub(super) changes: u64,
    /// Whether committed blocks were written in place to make a fast commit possible.
    pub(super) is_in_place: bool,
}

/// Which thread has to commit.
pub(super) enum Turn<'a> {
    /// No thread has to commit, because the target is reached.
    Reached,
    /// Another thread leads, and the caller waits for it.
    Others(OtherLeader<'a>),
    /// The caller leads.
    Ours(CommitLeader<'a>),
}

/// The one thread that commits at the time, for all. Waiters check again when it is dropped.
pub(super) struct CommitLeader<'a> {
    committer: Option<MutexGuard<'a, Committer>>,
    pub(super) journal: &'a Journal,
}

/// Another thread, which commits.
pub(super) struct OtherLeader<'a> {
    journal: &'a Journal,
    target: &'a CommitTarget,
    /// The value of `Commits::ended` while it led.
    ended: u64,
    looks: u32,
}

/// A leader is used as the [`Committer`]: what is called on it is in this file, `commit.rs`,
/// `fast_commit.rs` or `committer.rs`.
impl std::ops::Deref for CommitLeader<'_> {
    type Target = Committer;

    fn deref(&self) -> &Committer {
        self.committer.as_ref().expect("it is there until it is dropped")
    }
}

impl std::ops::DerefMut for CommitLeader<'_> {
    fn deref_mut(&mut self) -> &mut Committer {
        self.committer.as_mut().expect("it is there until it is dropped")
    }
}

impl Drop for CommitLeader<'_> {
    fn drop(&mut self) {
        let commits = &self.journal.commits;
        commits.half_full.store(self.log.is_half_full(), Ordering::Relaxed);
        drop(self.committer.take());
        commits.ended.fetch_add(1, Ordering::Release);
        // Either this load sees the sleeper, or the sleeper, which checks again after it has
        // announced itself, sees that no thread leads.
        fence(Ordering::SeqCst);
        if commits.sleepers.load(Ordering::Relaxed) > 0 {
            commits.progress.advance();
        }
    }
}

impl Journal {
    /// Returns whether everything up to transaction `upto` is durable.
    pub(crate) fn is_durable(&self, upto: Sequence) -> bool {
        self.commits.durable() >= upto
    }

    /// Returns the target of all changes up to transaction `upto` made so far, by a fast commit if
    /// they are enabled.
    pub(crate) fn target(&self, upto: Sequence) -> CommitTarget {
        let changes = if self.fast { self.opened().changes } else { u64::MAX };
        CommitTarget { upto, changes, is_in_place: false }
    }

    /// Returns the same target by whole transactions.
    pub(super) fn whole_target(upto: Sequence) -> CommitTarget {
        CommitTarget { upto, changes: u64::MAX, is_in_place: false }
    }

    fn is_reached(&self, target: &CommitTarget) -> bool {
        self.commits.durable() >= target.upto
            || self.commits.fast.load(Ordering::Acquire) >= target.changes
    }

    /// Returns which thread has to commit, and takes the lead if none has it.
    ///
    /// # Errors
    /// Fails if the journal has failed earlier. Nothing is committed any more then.
    pub(super) fn who_commits<'a>(&'a self, target: &'a CommitTarget) -> Result<Turn<'a>> {
        loop {
            if self.is_reached(target) {
                return Ok(Turn::Reached);
            }
            if let Some(error) = self.failure.get() {
                return Err(error.clone());
            }
            let ended = self.commits.ended.load(Ordering::Acquire);
            let Some(leader) = self.try_lead() else {
                return Ok(Turn::Others(OtherLeader { journal: self, target, ended, looks: 0 }));
            };
            // This yields: threads that the last commit released and that share this CPU make their
            // next changes, which then belong to this commit.
            let group = self.contexts.group();
            let gathers =
                |turn: &u32| if *turn == 0 { group.callers_overlap() } else { group.is_busy() };
            (0..GATHERING).take_while(gathers).for_each(|_| std::thread::yield_now());
            if self.commits.is_poisoned() {
                self.fail(&Error::Resources("a commit has panicked".to_owned()));
            }
            // Another leader may have reached the target meanwhile.
            if !self.is_reached(target) && self.failure.get().is_none() {
                return Ok(Turn::Ours(leader));
            }
        }
    }

    /// Takes the lead, after waiting for it.
    pub(super) fn lead(&self) -> CommitLeader<'_> {
        // A caller that goes on to write checks `is_poisoned`.
        let committer = self.commits.committer.lock().unwrap_or_else(PoisonError::into_inner);
        CommitLeader { committer: Some(committer), journal: self }
    }

    /// Takes the lead if no thread has it.
    pub(super) fn try_lead(&self) -> Option<CommitLeader<'_>> {
        match self.commits.committer.try_lock() {
            Ok(committer) => Some(CommitLeader { committer: Some(committer), journal: self }),
            Err(TryLockError::Poisoned(poisoned)) => {
                Some(CommitLeader { committer: Some(poisoned.into_inner()), journal: self })
            }
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl CommitLeader<'_> {
    /// Returns whether an earlier leader has panicked, so that the state of the log is unknown.
    pub(super) fn is_poisoned(&self) -> bool {
        self.journal.commits.is_poisoned()
    }
}

impl OtherLeader<'_> {
    /// Returns whether that thread still leads and the target is not reached.
    pub(super) fn leads(&self) -> bool {
        !self.journal.is_reached(self.target)
            && self.journal.commits.ended.load(Ordering::Acquire) == self.ended
    }

    /// Polls once. Returns whether that thread still leads and the caller should poll again before
    /// it sleeps. Returns false if the caller waits by interrupts.
    pub(super) fn poll_again(&mut self, io: &IoContext) -> bool {
        if self.looks == 0 {
            check_may_wait(Rank::Committer);
            io.group.note_waiter();
        } else {
            io.group.pause(self.looks);
        }
        self.looks += 1;
        io.may_look() && self.looks <= LOOKS && self.leads()
    }

    /// Sleeps until the lead ends, or at most `NAP_NS`. It may return early. The caller has nothing
    /// in flight that the leader may wait for.
    pub(super) fn sleep(self) {
        let commits = &self.journal.commits;
        commits.sleepers.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let word = commits.progress.get();
        if self.leads() && self.journal.try_lead().is_none() {
            commits.progress.wait(word, NAP_NS);
        }
        commits.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}
