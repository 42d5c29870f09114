//! Commits: the steps of one ([`CommitLeader::begin`], [`CommitLeader::finish`]), and their order
//! among what the caller has in flight itself (`Journal::reach`). The rules are those of
//! `docs/ordering.md`.

use super::committer::InLog;
use super::counters::JournalCounters;
use super::fast_commit::{Fast, Supersede};
use super::lead::{CommitLeader, CommitTarget, Turn};
use super::ordered_io;
use super::sequence::Sequence;
use super::state::Journal;
use super::transaction::Transaction;
use crate::io::IoContext;
use crate::{Error, Result};

/// The data that a thread has in flight while it commits; `()` if it has none.
pub(crate) trait OwnData {
    /// Collects what has completed, without waiting.
    fn poll(&mut self, io: &mut IoContext);

    /// Waits until all data are on the device or have failed, and tells the transaction.
    fn wait(&mut self, io: &mut IoContext);

    /// Makes the pages clean whose data are on the device, unless a change of metadata has to
    /// follow. Runs while the commit block is in flight.
    fn finish_pages(&mut self);
}

impl OwnData for () {
    fn poll(&mut self, _: &mut IoContext) {}

    fn wait(&mut self, _: &mut IoContext) {}

    fn finish_pages(&mut self) {}
}

/// A transaction whose log blocks are in flight.
#[must_use = "its log is in flight"]
pub(super) struct Commit {
    transaction: Transaction,
    supersede: Supersede,
    sent: InLog,
}

/// The result of beginning a commit.
#[allow(clippy::large_enum_variant)] // It is taken apart at once, and the path must not allocate.
pub(super) enum Begun {
    /// The commit was begun and has to be finished.
    Commit(Commit),
    /// The log has no room for the next transaction, or has to be empty before it is written. A
    /// checkpoint comes first.
    NoRoom,
}

impl CommitLeader<'_> {
    /// Closes the running transaction if no closed one is left and it is not past `upto`, takes the
    /// oldest closed one, and sends its log.
    ///
    /// # Errors
    /// Fails if the device fails. The journal has failed then.
    pub(super) fn begin(&mut self, upto: Sequence, io: &mut IoContext) -> Result<Begun> {
        let begun = self.try_begin(upto, io);
        self.checked(begun, io)
    }

    fn try_begin(&mut self, upto: Sequence, io: &mut IoContext) -> Result<Begun> {
        let journal = self.journal;
        let supersede;
        let transaction = {
            let mut open = journal.opened();
            if open.closed.is_empty() && open.running.sequence <= upto {
                open.close();
            }
            let Some(oldest) = open.closed.front() else {
                return Err(Error::Invalid("a transaction was never begun"));
            };
            let need = self.layout(oldest).log_blocks();
            if need >= self.log.len() as usize {
                return Err(Error::Resources(
                    "the journal is too small for a transaction".to_owned(),
                ));
            }
            if need > self.log.free() as usize {
                return Ok(Begun::NoRoom);
            }
            let has_log_blocks = !oldest.blocks.is_empty() || !oldest.revoked.is_empty();
            supersede = if has_log_blocks { self.supersede(need)? } else { Supersede::No };
            if matches!(supersede, Supersede::WhenInPlace) {
                return Ok(Begun::NoRoom);
            }
            open.closed.pop_front().ok_or(Error::Invalid("a transaction was never closed"))?
        };
        if let Supersede::Apart(place) = supersede {
            self.end_log_with(place, io)?;
        }
        if !journal.overlap.data {
            transaction.ordered.wait(&io.group)?;
        }
        let sent = self.write_log(io, &transaction, journal.overlap.prepare);
        // This yields, because a thread whose data this commit waits for may share this CPU.
        if io.group.callers_overlap() && !transaction.ordered.is_done() {
            std::thread::yield_now();
        }
        Ok(Begun::Commit(Commit { transaction, supersede, sent }))
    }

    /// Finishes `commit`: waits for its log and for all data of its transaction, sends a FLUSH if
    /// the device has a volatile cache, and writes the commit block, during which `gap` runs. Then
    /// the transaction is durable.
    ///
    /// # Errors
    /// Fails if the device fails. The journal has failed then.
    pub(super) fn finish(
        &mut self,
        commit: Commit,
        io: &mut IoContext,
        gap: impl FnOnce(),
    ) -> Result<()> {
        let finished = self.try_finish(commit, io, gap);
        self.checked(finished, io)
    }

    fn try_finish(&mut self, commit: Commit, io: &mut IoContext, gap: impl FnOnce()) -> Result<()> {
        let journal = self.journal;
        let Commit { transaction, supersede, sent } = commit;
        let gap = || {
            gap();
            journal.prepare_copies();
        };
        let blocks = self.finish_commit(io, &transaction, sent, gap)?;
        if blocks > 0 {
            journal.commits.counts.commit(blocks);
        }
        if matches!(supersede, Supersede::Apart(_)) {
            self.finish_superseding(io)?;
        }
        let sequence = transaction.sequence;
        // Rule 5: only now may its blocks be written in place. Rule 8: only now may the blocks that
        // it freed be reused. By rule 10 they are not while one of them is being written in place.
        let release = journal.pending().committed(transaction);
        if let Some(sequence) = release {
            journal.held.release(sequence);
        }
        journal.contexts.group().committed();
        journal.commits.committed(sequence);
        Ok(())
    }

    /// Fails the journal if `result` is an error (rule 14). This happens before the lead ends, so
    /// no thread begins another commit.
    fn checked<T>(&mut self, result: Result<T>, io: &mut IoContext) -> Result<T> {
        if let Err(error) = &result {
            let journal = self.journal;
            journal.fail(error);
            journal.note_failure(error, self, io);
        }
        result
    }
}

impl Journal {
    /// Returns what was written so far.
    pub fn counters(&self) -> JournalCounters {
        self.commits.counts.read()
    }

    /// Makes all changes up to transaction `upto` durable that were made so far. Uses a fast commit
    /// if they are enabled and one can describe the changes; the transaction then goes on.
    ///
    /// The caller has no data in flight that a transaction waits for.
    ///
    /// # Errors
    /// Fails if the device fails, or if the journal has failed earlier. Changes that were not
    /// durable before may or may not be durable then, and no more changes are possible.
    pub(crate) fn commit(&self, upto: Sequence, io: &mut IoContext) -> Result<()> {
        self.reach(self.target(upto), io, &mut ())
    }

    /// Commits all changes up to transaction `upto` in whole transactions. These have ended then,
    /// and the blocks that they freed can be reused.
    ///
    /// # Errors
    /// The errors of [`commit`](Self::commit).
    pub(crate) fn commit_whole(&self, upto: Sequence, io: &mut IoContext) -> Result<()> {
        self.reach(Self::whole_target(upto), io, &mut ())
    }

    /// Commits everything that was changed so far.
    ///
    /// # Errors
    /// The errors of [`commit`](Self::commit).
    pub(crate) fn commit_all(&self, io: &mut IoContext) -> Result<()> {
        let newest = {
            let open = self.opened();
            if open.running.used {
                open.running.sequence
            } else {
                Sequence(open.running.sequence.0 - 1)
            }
        };
        self.commit_whole(newest, io)
    }

    /// Commits until `target` is reached, while the caller's `own` data are in flight. Whatever the
    /// result, the caller waits for these data afterwards.
    ///
    /// # Errors
    /// The errors of [`commit`](Self::commit).
    pub(crate) fn reach(
        &self,
        mut target: CommitTarget,
        io: &mut IoContext,
        own: &mut impl OwnData,
    ) -> Result<()> {
        let overlap = self.overlap;
        loop {
            // Rule 4: one leader at a time. It, or the next one, commits for all waiters.
            let mut leader = match self.who_commits(&target)? {
                Turn::Reached => return Ok(()),
                Turn::Others(mut other) => {
                    // In the classic order, and for a fast commit, all data come first.
                    if !overlap.data || self.fast {
                        own.wait(io);
                    }
                    while other.poll_again(io) {
                        own.poll(io);
                    }
                    if other.leads() {
                        // The leader may be waiting for this thread's data.
                        own.wait(io);
                        other.sleep();
                    }
                    continue;
                }
                Turn::Ours(leader) => leader,
            };
            match leader.can_commit_fast(&target) {
                Fast::Can { needs_data } => {
                    // Rules 2 and 15: data that the fast commit makes reachable come first.
                    if needs_data {
                        ordered_io::finish_data(|| own.wait(io));
                    }
                    // Rule 3: the fast commit flushes what came before it, and is forced. If it
                    // makes no data reachable, `finish_fast` flushes after it instead.
                    if let Some(fast) = leader.send_fast(&target, needs_data, io) {
                        if overlap.prepare {
                            own.finish_pages();
                            leader.prepare_next(io);
                        }
                        // The remaining data only overwrite old data, and need no order.
                        own.wait(io);
                        if overlap.prepare {
                            own.finish_pages();
                        }
                        if leader.finish_fast(fast, io) {
                            continue;
                        }
                    }
                }
                Fast::WhenInPlace => {
                    drop(leader);
                    own.wait(io);
                    target.is_in_place = true;
                    self.checkpoint(io)?;
                    continue;
                }
                Fast::Cannot => {}
            }
            if !overlap.data {
                own.wait(io);
            }
            // Write the log, which is in flight together with the data.
            match leader.begin(target.upto, io)? {
                Begun::Commit(commit) => {
                    // Rule 2: this thread's data precede the commit block, and no other thread
                    // completes what this context has sent. `finish` waits for the log, rule 1,
                    // and for other threads' data; flushes, rule 3; and writes the commit block.
                    ordered_io::finish_data(|| own.wait(io));
                    leader.finish(commit, io, || own.finish_pages())?;
                }
                Begun::NoRoom => {
                    drop(leader);
                    own.wait(io);
                    self.checkpoint(io)?;
                }
            }
        }
    }

    /// Commits, after a change, the transactions that are closed now, if no thread leads and their
    /// data are complete.
    pub(super) fn commit_closed_without_wait(&self) {
        let Some(newest) = self.newest_closed() else { return };
        let ready = || {
            let open = self.opened();
            let oldest = open.closed.front()?;
            (oldest.sequence <= newest && oldest.ordered.is_done()).then_some(oldest.sequence)
        };
        while let Some(sequence) = ready() {
            // This takes a context only if one is free, and the lead only if no thread has it,
            // because the caller may hold a token or lock that another thread waits for.
            let Some(mut io) = self.contexts.try_take() else { return };
            let Some(mut leader) = self.try_lead() else { return };
            if self.failure.get().is_some() || leader.is_poisoned() || ready() != Some(sequence) {
                return;
            }
            match leader.begin(sequence, &mut io) {
                Ok(Begun::Commit(commit)) => {
                    if leader.finish(commit, &mut io, || ()).is_err() {
                        return;
                    }
                }
                Ok(Begun::NoRoom) | Err(_) => return,
            }
        }
    }

    fn newest_closed(&self) -> Option<Sequence> {
        self.opened().closed.back().map(|newest| newest.sequence)
    }

    /// Commits what is closed, and checkpoints if the log is more than half full. Called now and
    /// then by a thread that has no context, no token, and no lock that a token's holder may want.
    ///
    /// # Errors
    /// The errors of `commit`.
    pub fn balance(&self) -> Result<()> {
        if let Some(newest) = self.newest_closed() {
            self.commit_whole(newest, &mut *self.contexts.take()?)?;
        }
        if self.wants_checkpoint() {
            self.checkpoint(&mut *self.contexts.take()?)?;
        }
        Ok(())
    }
}
