//! The lead of the log: one thread has it at a time, and commits for all (group commit).
//!
//! Whoever wants something durable leads, unless somebody does already: then it waits for that
//! leader, whose commit, or the next one, has what it wanted.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{PoisonError, TryLockError};

use super::Sequence;
use super::committer::Committer;
use super::counters::Counts;
use super::running::Journal;
use crate::Error;
use crate::io::IoContext;
use meantime_hw::futex::Futex;
use meantime_process::lock::{Mutex, MutexGuard, Rank, wait_for};

/// How often a waiter looks before it sleeps.
const LOOKS: u32 = 500;

/// The longest sleep between two looks, in ns.
const NAP_NS: u64 = 50_000_000;

/// So often a leader lets others have its CPU, before it closes the transaction.
const GATHERING: u32 = 4;

/// The log, and who waits for it.
pub(super) struct Commits {
    /// Rule 4: its leader holds it from the beginning of a commit to its end.
    committer: Mutex<Committer>,
    /// Up to which transaction everything is durable.
    durable: AtomicU64,
    /// Up to which change everything is durable by fast commits.
    pub(super) fast: AtomicU64,
    half_full: AtomicBool,
    pub(super) counts: Counts,
    /// Who sleeps on `progress`.
    sleepers: AtomicU32,
    /// How many leaders have ended.
    ended: AtomicU64,
    /// Changes when a leader has ended, if anybody sleeps.
    progress: Futex,
}

/// What is to be durable.
#[derive(Debug)]
pub(crate) struct Goal {
    /// All of the transactions up to this one,
    pub(super) upto: Sequence,
    /// or, by fast commits, so many changes of this mount: as many as there are, for none.
    pub(super) changes: u64,
    /// Whether what has committed was brought home for the sake of a fast commit.
    pub(super) is_home: bool,
}

/// Whose turn it is to commit.
pub(crate) enum Turn<'a> {
    /// Nobody's: the goal is reached.
    Reached,
    /// Another thread's, which has to be waited for.
    Others(Leader<'a>),
    /// The caller's.
    Ours(Lead<'a>),
}

/// The lead of the log. When it ends, who waits looks again.
pub(crate) struct Lead<'a> {
    committer: Option<MutexGuard<'a, Committer>>,
    pub(super) journal: &'a Journal,
}

/// Another thread that has the lead.
pub(crate) struct Leader<'a> {
    journal: &'a Journal,
    goal: &'a Goal,
    /// How many leaders had ended when it led.
    ended: u64,
    looks: u32,
}

impl std::ops::Deref for Lead<'_> {
    type Target = Committer;

    fn deref(&self) -> &Committer {
        self.committer.as_ref().expect("it is there until it is dropped")
    }
}

impl std::ops::DerefMut for Lead<'_> {
    fn deref_mut(&mut self) -> &mut Committer {
        self.committer.as_mut().expect("it is there until it is dropped")
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        let commits = &self.journal.commits;
        commits.half_full.store(self.log.is_half_full(), Ordering::Relaxed);
        drop(self.committer.take());
        commits.ended.fetch_add(1, Ordering::Release);
        // Either this sees the sleeper, or the sleeper, who looks once more after he said so, sees
        // that nobody leads.
        fence(Ordering::SeqCst);
        if commits.sleepers.load(Ordering::Relaxed) > 0 {
            commits.progress.advance();
        }
    }
}

impl Commits {
    pub(super) fn new(committer: Committer) -> Self {
        Self {
            committer: Mutex::new(Rank::Committer, committer),
            durable: AtomicU64::new(0),
            fast: AtomicU64::new(0),
            half_full: AtomicBool::new(false),
            counts: Counts::default(),
            sleepers: AtomicU32::new(0),
            ended: AtomicU64::new(0),
            progress: Futex::default(),
        }
    }

    /// Up to which transaction everything is durable.
    pub(super) fn durable(&self) -> Sequence {
        Sequence(self.durable.load(Ordering::Acquire))
    }

    /// Whether the log was more than half full when it was last looked.
    pub(super) fn is_half_full(&self) -> bool {
        self.half_full.load(Ordering::Relaxed)
    }

    /// Whether a leader has panicked: nobody knows what it left of the log and of its transaction.
    fn is_spoilt(&self) -> bool {
        self.committer.is_poisoned()
    }

    /// Everything up to transaction `sequence` is durable.
    pub(super) fn committed(&self, sequence: Sequence) {
        // Release: who sees it sees what was released, too.
        self.durable.store(sequence.0, Ordering::Release);
    }
}

impl Journal {
    /// Whether everything up to transaction `upto` is durable.
    pub(crate) fn is_durable(&self, upto: Sequence) -> bool {
        self.commits.durable() >= upto
    }

    /// All changes up to transaction `upto` that were made so far, by a fast commit if there are
    /// such.
    pub(crate) fn goal(&self, upto: Sequence) -> Goal {
        let changes = if self.fast { self.opened().changes } else { u64::MAX };
        Goal { upto, changes, is_home: false }
    }

    /// The same by whole transactions.
    pub(super) fn whole_goal(upto: Sequence) -> Goal {
        Goal { upto, changes: u64::MAX, is_home: false }
    }

    fn is_reached(&self, goal: &Goal) -> bool {
        self.commits.durable() >= goal.upto
            || self.commits.fast.load(Ordering::Acquire) >= goal.changes
    }

    /// Whose turn it is to commit.
    ///
    /// # Errors
    /// An earlier failure of the journal: nothing is committed any more.
    pub(crate) fn turn<'a>(&'a self, goal: &'a Goal) -> Result<Turn<'a>, Error> {
        loop {
            if self.is_reached(goal) {
                return Ok(Turn::Reached);
            }
            if let Some(error) = self.failure.get() {
                return Err(error.clone());
            }
            let ended = self.commits.ended.load(Ordering::Acquire);
            let Some(lead) = self.try_lead() else {
                return Ok(Turn::Others(Leader { journal: self, goal, ended, looks: 0 }));
            };
            // Those whom the last commit has set free do what they do next, if they have no CPU of
            // their own: it is a part of this one then.
            let group = self.contexts.group();
            let gathers = |turn: &u32| if *turn == 0 { group.is_there() } else { group.is_busy() };
            (0..GATHERING).take_while(gathers).for_each(|_| std::thread::yield_now());
            if self.commits.is_spoilt() {
                self.fail(&Error::Resources("a commit has panicked".to_owned()));
            }
            // Somebody else may have done it meanwhile.
            if !self.is_reached(goal) && self.failure.get().is_none() {
                return Ok(Turn::Ours(lead));
            }
        }
    }

    /// The lead, waited for.
    pub(super) fn lead(&self) -> Lead<'_> {
        // Who goes on to write asks whether it is spoilt.
        let committer = self.commits.committer.lock().unwrap_or_else(PoisonError::into_inner);
        Lead { committer: Some(committer), journal: self }
    }

    /// The lead, if nobody has it.
    pub(super) fn try_lead(&self) -> Option<Lead<'_>> {
        match self.commits.committer.try_lock() {
            Ok(committer) => Some(Lead { committer: Some(committer), journal: self }),
            Err(TryLockError::Poisoned(poisoned)) => {
                Some(Lead { committer: Some(poisoned.into_inner()), journal: self })
            }
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl Lead<'_> {
    /// Whether an earlier leader has panicked: nobody knows what it left of the log.
    pub(super) fn is_spoilt(&self) -> bool {
        self.journal.commits.is_spoilt()
    }
}

impl Leader<'_> {
    /// Whether it leads still, and what it does is of use.
    pub(crate) fn leads(&self) -> bool {
        !self.journal.is_reached(self.goal)
            && self.journal.commits.ended.load(Ordering::Acquire) == self.ended
    }

    /// Whether it leads still after a look, and is worth another one before the caller sleeps. Not
    /// if the caller waits by interrupts.
    pub(crate) fn is_looked_at(&mut self, io: &IoContext) -> bool {
        if self.looks == 0 {
            wait_for(Rank::Committer);
            io.group.wait();
        } else {
            io.group.pause(self.looks);
        }
        self.looks += 1;
        io.may_look() && self.looks <= LOOKS && self.leads()
    }

    /// Sleeps until it has ended, or a little longer or shorter. The caller has nothing in flight
    /// that the leader may wait for.
    pub(crate) fn sleep(self) {
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
