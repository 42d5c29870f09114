//! Commits: a transaction into the log, and its commit block when everything it depends on is on
//! the device.
//!
//! Whoever wants one is its leader, unless somebody leads already: then it is waited for, and it or
//! the next one has what was wanted. The rules are those of `docs/ordering.md`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{PoisonError, TryLockError};

use super::Sequence;
use super::counters::{Counts, JournalCounters};
use super::device::{self, Before};
use super::fast_commit::{FastArea, LedFast, Supersede};
use super::log::{Log, Logged, Plan};
use super::running::{Journal, time_now};
use super::transaction::Transaction;
use super::writer::Writer;
use crate::Error;
use crate::lanes::Lane;
use crate::options::CommitOverlap;
use meantime_block::RequestError;
use meantime_ext4_format::journal::{Copied, JournalFormat};
use meantime_hw::DmaBuf;
use meantime_hw::futex::Futex;
use meantime_process::lock::{Mutex, MutexGuard, Rank, wait_for};

/// How often a waiter looks before it sleeps.
const LOOKS: u32 = 500;

/// The longest sleep between two looks, in ns.
const NAP_NS: u64 = 50_000_000;

/// So often a leader lets others have its CPU, before it closes the transaction.
const GATHERING: u32 = 4;

/// The caller's own requests, on the channel that a commit is made with: they are under way while
/// the journal's are.
///
/// What fails among them is their owner's to know, and its transaction's by the
/// [token](super::OrderedToken).
pub(crate) trait Follow {
    /// Waits until all of them have ended, and ends their tokens. Called once, or more often: then
    /// there is nothing left.
    fn finish(&mut self, lane: &mut Lane);

    /// Sees to those that have ended, and waits for none.
    fn poll(&mut self, lane: &mut Lane);

    /// Does what is left to do for those that have ended, which nobody waits for: while the commit
    /// block is under way.
    fn use_commit_gap(&mut self);
}

/// No requests.
impl Follow for () {
    fn finish(&mut self, _: &mut Lane) {}

    fn poll(&mut self, _: &mut Lane) {}

    fn use_commit_gap(&mut self) {}
}

/// How many blocks of the log go into one request, of `blocks` that can be written at once: a few
/// requests that a device does side by side are done sooner than a long one.
pub fn log_piece_blocks(blocks: u64) -> u64 {
    blocks.div_ceil(4).max(2)
}

/// What its leader has to itself: the log.
pub(super) struct Committer {
    pub(super) format: JournalFormat,
    pub(super) log: Log,
    /// The next transaction's number in the journal.
    pub(super) tid: u32,
    /// When the last one committed, in seconds since 1970: the next is not earlier.
    seconds: i64,
    /// What is in the log, the oldest first.
    pub(super) logged: VecDeque<Logged>,
    pub(super) writer: Writer,
    /// Where fast commits go, if there are any.
    pub(super) fast: Option<FastArea>,
    commit_block: Option<DmaBuf>,
    copies: Vec<Copied>,
    parts: Vec<(u64, usize, DmaBuf)>,
}

/// The log, and who waits for it.
pub(super) struct Commits {
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

/// The lead of the log. When it ends, who waits looks again.
pub(super) struct Lead<'a> {
    committer: Option<MutexGuard<'a, Committer>>,
    commits: &'a Commits,
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
        self.commits.half_full.store(self.log.is_half_full(), Ordering::Relaxed);
        drop(self.committer.take());
        self.commits.ended.fetch_add(1, Ordering::Release);
        // Either this sees the sleeper, or the sleeper, who looks once more after he said so, sees
        // that nobody leads.
        fence(Ordering::SeqCst);
        if self.commits.sleepers.load(Ordering::Relaxed) > 0 {
            self.commits.progress.advance();
        }
    }
}

impl Committer {
    pub(super) fn new(
        format: JournalFormat,
        log: Log,
        tid: u32,
        block_bits: u32,
        fast: Option<FastArea>,
    ) -> Self {
        Self {
            format,
            log,
            tid,
            seconds: 0,
            logged: VecDeque::new(),
            writer: Writer::new(block_bits),
            fast,
            commit_block: None,
            copies: Vec::new(),
            parts: Vec::new(),
        }
    }

    /// Where the journal's superblock is, in blocks of the file system.
    ///
    /// # Errors
    /// The journal has no blocks.
    pub(super) fn home(&self) -> Result<u64, Error> {
        let place = self.log.place(0).ok_or(Error::Invalid("the journal has no first block"))?;
        Ok(place.0)
    }

    /// Waits for what was sent.
    pub(super) fn finish_writing(&mut self, lane: &mut Lane) -> Result<(), Error> {
        self.writer.finish(lane)
    }

    /// How `transaction` would be written.
    fn plan(&self, transaction: &Transaction) -> Plan {
        Plan {
            revoke_blocks: transaction.revoked.len().div_ceil(self.format.revoked_most()),
            copies: transaction.blocks.len(),
            buffer_blocks: self.writer.buffer_blocks(),
            tags_most: self.format.tags_most(),
        }
    }

    /// Buffers for `blocks` blocks of the log from `at` on, one for each stretch of the disk, in
    /// `parts`.
    fn parts(&mut self, lane: &mut Lane, at: u32, blocks: usize) -> Result<(), Error> {
        let piece = log_piece_blocks(blocks as u64) as usize;
        let mut done = 0;
        while done < blocks {
            let (place, side_by_side) = self
                .log
                .place(self.log.behind(at, done as u32))
                .ok_or(Error::Invalid("the journal has no such block"))?;
            let count = (side_by_side as usize).min(blocks - done).min(piece);
            let buf = self.writer.buffer(lane, count)?;
            self.parts.push((place, done, buf));
            done += count;
        }
        Ok(())
    }

    /// Block `index` of what `parts` are for.
    fn part_block(
        parts: &mut [(u64, usize, DmaBuf)],
        index: usize,
        bytes: usize,
    ) -> Option<&mut [u8]> {
        let (_, first, buf) = parts.iter_mut().rev().find(|(_, first, _)| *first <= index)?;
        let at = (index - *first) * bytes;
        buf.get_mut(at..at + bytes)
    }

    /// Sends all of `transaction` but its commit block; how many blocks of the log that are.
    fn send_log(
        &mut self,
        lane: &mut Lane,
        transaction: &Transaction,
        data: &mut impl Follow,
    ) -> Result<u32, Error> {
        let bytes = self.format.block_bytes();
        let gone = || Error::Invalid("a block of the journal has no place in its buffer");
        let revoked: Vec<u64> = transaction.revoked.iter().copied().collect();
        let mut revoked = revoked.chunks(self.format.revoked_most());
        let mut blocks = transaction.blocks.iter();
        let mut written = 0;
        let mut finished = false;
        for (revokes, copies) in self.plan(transaction) {
            let count = revokes + copies + usize::from(copies > 0);
            let at = self.log.behind(self.log.head(), written);
            self.parts(lane, at, count)?;
            for (index, some) in (0..revokes).zip(&mut revoked) {
                let to = Self::part_block(&mut self.parts, index, bytes).ok_or_else(gone)?;
                device::revoke(&self.format, to, self.tid, some);
            }
            self.copies.clear();
            for (index, (block, content)) in (revokes + 1..).zip(blocks.by_ref().take(copies)) {
                let to = Self::part_block(&mut self.parts, index, bytes).ok_or_else(gone)?;
                self.copies.push(self.format.copy(to, *block, content, self.tid));
            }
            if copies > 0 {
                let to = Self::part_block(&mut self.parts, revokes, bytes).ok_or_else(gone)?;
                self.format.descriptor(to, self.tid, &self.copies);
            }
            for (place, _, buf) in self.parts.drain(..) {
                self.writer.send(lane, place, buf, false, &mut |lane| {
                    data.finish(lane);
                    !std::mem::replace(&mut finished, true)
                })?;
            }
            written += count as u32;
        }
        Ok(written)
    }

    /// The commit block that is to follow `written` blocks.
    fn prepare(&mut self, lane: &mut Lane) -> Result<DmaBuf, Error> {
        let bytes = self.format.block_bytes();
        let mut buf = match self.commit_block.take() {
            Some(buf) => buf,
            None => lane.heap.alloc(bytes).map_err(|error| Error::Resources(error.to_string()))?,
        };
        buf.set_len(bytes);
        let mut time = time_now();
        self.seconds = self.seconds.max(time.seconds);
        time.seconds = self.seconds;
        self.format.commit(&mut buf, self.tid, time);
        Ok(buf)
    }

    /// Writes the commit block, which was sent when everything it depends on was durable, or is so
    /// by its FUA; and does meanwhile what the next transaction would wait for.
    fn write_commit(
        &mut self,
        lane: &mut Lane,
        at: u32,
        buf: DmaBuf,
        volatile: bool,
        gap: Option<impl FnOnce()>,
    ) -> Result<(), Error> {
        let (place, _) =
            self.log.place(at).ok_or(Error::Invalid("the journal has no such block"))?;
        let lba = place * self.format.block_bytes() as u64 / u64::from(lane.block_bytes);
        if let Err(error) = lane.may_write() {
            self.commit_block = Some(buf);
            return Err(error);
        }
        let ticket = match lane.submit(device::commit_block(lba, buf, volatile)) {
            Ok(ticket) => ticket,
            Err(rejected) => {
                self.commit_block = rejected.request.buf;
                return Err(RequestError::from(rejected.error).into());
            }
        };
        if let Some(gap) = gap {
            gap();
            self.writer.warm(lane);
        }
        let done = lane.wait(ticket);
        self.commit_block = done.buf;
        done.result.map_err(Error::from_io)
    }

    /// Whether the log has room for `transaction` as it is.
    pub(super) fn has_room_for(&self, transaction: &Transaction) -> bool {
        self.plan(transaction).log_blocks() <= self.log.free() as usize
    }

    /// Writes `transaction` and its commit block, in the order of rules 1 to 3, and does `gap`
    /// while the device is at work; how many blocks of the log that took.
    pub(super) fn commit(
        &mut self,
        lane: &mut Lane,
        transaction: &Transaction,
        data: &mut impl Follow,
        overlap: CommitOverlap,
        volatile: bool,
        gap: impl FnOnce(),
    ) -> Result<u32, Error> {
        if !overlap.data {
            data.finish(lane);
            transaction.ordered.wait(&lane.crowd)?;
        }
        let empty = transaction.blocks.is_empty() && transaction.revoked.is_empty();
        let sent = if empty { Ok(0) } else { self.send_log(lane, transaction, data) };
        self.parts.clear();
        let early = (overlap.prepare && !empty).then(|| self.prepare(lane)).transpose();
        // Whose data are waited for sees to them meanwhile, if he has no CPU of his own.
        if lane.crowd.is_there() && !transaction.ordered.is_done() {
            std::thread::yield_now();
        }
        // From here on nothing is left under way, whatever happens.
        device::finish_data(data, lane);
        let logged = device::finish_log(&mut self.writer, lane);
        let written = sent?;
        logged?;
        device::wait_for_data(&transaction.ordered, &lane.crowd)?;
        if empty {
            // There were data only, which nothing in the log leads to.
            if volatile && transaction.ordered.is_unflushed() {
                lane.flush()?;
            }
            return Ok(0);
        }
        let (buf, has_gap) = match early? {
            Some(buf) => (buf, true),
            None => (self.prepare(lane)?, false),
        };
        if volatile {
            device::flush(lane, Before::Commit)?;
        }
        let at = self.log.behind(self.log.head(), written);
        let gap = || {
            data.use_commit_gap();
            gap();
        };
        self.write_commit(lane, at, buf, volatile, has_gap.then_some(gap))?;
        self.writer.finish(lane)?;
        let start = self.log.head();
        self.log.take(written + 1);
        self.logged.push_back(Logged {
            sequence: transaction.sequence,
            tid: self.tid,
            start,
            blocks: written + 1,
        });
        self.tid = self.tid.wrapping_add(1);
        Ok(written + 1)
    }
}

/// What came of leading.
enum Led {
    /// A transaction more is durable, or there was none.
    Done,
    /// The log has no room for the next one, or nothing may be in it when that is written.
    NoRoom,
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

    /// The lead, waited for.
    pub(super) fn lead(&self) -> Lead<'_> {
        // Who goes on to write asks whether it is spoilt.
        let committer = self.committer.lock().unwrap_or_else(PoisonError::into_inner);
        Lead { committer: Some(committer), commits: self }
    }

    /// The lead, if nobody has it.
    fn try_lead(&self) -> Option<Lead<'_>> {
        match self.committer.try_lock() {
            Ok(committer) => Some(Lead { committer: Some(committer), commits: self }),
            Err(TryLockError::Poisoned(poisoned)) => {
                Some(Lead { committer: Some(poisoned.into_inner()), commits: self })
            }
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Waits until a leader has ended after `ended` others, or something else is `over`; may end
    /// early. The leader may be waiting for `data`.
    fn wait(&self, lane: &mut Lane, data: &mut impl Follow, ended: u64, over: impl Fn() -> bool) {
        wait_for(Rank::Committer);
        let over = || over() || self.ended.load(Ordering::Acquire) != ended;
        let looks = if lane.may_look() { LOOKS } else { 0 };
        for look in 1..=looks {
            data.poll(lane);
            if over() {
                return;
            }
            lane.crowd.pause(look);
        }
        data.finish(lane);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let word = self.progress.get();
        if !over() && self.try_lead().is_none() {
            self.progress.wait(word, NAP_NS);
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Journal {
    /// What was written so far.
    pub fn counters(&self) -> JournalCounters {
        self.commits.counts.read()
    }

    /// Whether everything up to transaction `upto` is durable.
    pub(crate) fn is_durable(&self, upto: Sequence) -> bool {
        self.commits.durable() >= upto
    }

    /// Makes all changes up to transaction `upto` durable that were made so far, and waits for the
    /// caller's own `data` (in any case: none of them is under way when this returns). By a fast
    /// commit, if there are such and one can say it: then the transaction goes on.
    ///
    /// # Errors
    /// The device; an earlier failure of the journal. What was not durable before may be or not be,
    /// then; nothing can be changed any more.
    pub(crate) fn commit(
        &self,
        upto: Sequence,
        lane: &mut Lane,
        data: &mut impl Follow,
    ) -> Result<(), Error> {
        let changes = if self.fast { self.opened().changes } else { u64::MAX };
        let result = self.commit_by(upto, changes, lane, data);
        data.finish(lane);
        result
    }

    /// The same by whole transactions: those up to `upto` have ended then, and what they freed can
    /// be used.
    ///
    /// # Errors
    /// As `commit`.
    pub(crate) fn commit_whole(
        &self,
        upto: Sequence,
        lane: &mut Lane,
        data: &mut impl Follow,
    ) -> Result<(), Error> {
        let result = self.commit_by(upto, u64::MAX, lane, data);
        data.finish(lane);
        result
    }

    /// Commits what is closed and waits for nobody, if nobody else does: after each change.
    pub(super) fn relieve(&self) {
        let ready = || {
            self.opened()
                .closed
                .front()
                .filter(|oldest| oldest.ordered.is_done())
                .map(|oldest| oldest.sequence)
        };
        while let Some(sequence) = ready() {
            // A channel that nobody waits for, and the lead only if it is free: the caller may have
            // what others wait for.
            let Some(mut lane) = self.lanes.try_take() else { return };
            let Some(mut lead) = self.commits.try_lead() else { return };
            if self.failure.get().is_some() || self.commits.is_spoilt() || ready() != Some(sequence)
            {
                return;
            }
            match self.lead_one(&mut lead, sequence, &mut lane, &mut ()) {
                Ok(Led::Done) => {}
                Ok(Led::NoRoom) => return,
                Err(error) => {
                    self.fail(&error);
                    return self.note_failure(&error, &mut lead, &mut lane);
                }
            }
        }
    }

    /// Commits what is closed, and empties the log if it is more than half full: for whoever has no
    /// channel, no token and no lock that a token's holder may want, now and then.
    ///
    /// # Errors
    /// As `commit`.
    pub fn balance(&self) -> Result<(), Error> {
        let closed = self.opened().closed.back().map(|newest| newest.sequence);
        if let Some(newest) = closed {
            self.commit_whole(newest, &mut *self.lanes.take()?, &mut ())?;
        }
        if self.wants_checkpoint() {
            self.checkpoint(&mut *self.lanes.take()?)?;
        }
        Ok(())
    }

    /// Commits everything that was changed so far.
    ///
    /// # Errors
    /// As `commit`.
    pub(crate) fn commit_all(&self, lane: &mut Lane) -> Result<(), Error> {
        let newest = {
            let open = self.opened();
            if open.running.used {
                open.running.sequence
            } else {
                Sequence(open.running.sequence.0 - 1)
            }
        };
        self.commit_whole(newest, lane, &mut ())
    }

    /// Until everything up to transaction `upto` is durable, or the first `changes` of this mount
    /// are by fast commits.
    fn commit_by(
        &self,
        upto: Sequence,
        changes: u64,
        lane: &mut Lane,
        data: &mut impl Follow,
    ) -> Result<(), Error> {
        let is_done = || {
            self.commits.durable() >= upto || self.commits.fast.load(Ordering::Acquire) >= changes
        };
        let mut brought_home = false;
        loop {
            if is_done() {
                return Ok(());
            }
            if let Some(error) = self.failure.get() {
                return Err(error.clone());
            }
            let ended = self.commits.ended.load(Ordering::Acquire);
            let Some(mut lead) = self.commits.try_lead() else {
                // (A fast commit is not written before all data are there: it is not begun before
                // that either.)
                if !self.overlap.data || self.fast {
                    data.finish(lane);
                }
                self.lanes.crowd().wait();
                self.commits.wait(lane, data, ended, is_done);
                continue;
            };
            // Those whom the last commit has set free do what they do next, if they have no CPU of
            // their own: it is a part of this one then.
            let crowd = self.lanes.crowd();
            let gathers = |turn: &u32| if *turn == 0 { crowd.is_there() } else { crowd.is_busy() };
            (0..GATHERING).take_while(gathers).for_each(|_| std::thread::yield_now());
            if self.commits.is_spoilt() {
                self.fail(&Error::Resources("a commit has panicked".to_owned()));
            }
            // Somebody else may have done it meanwhile.
            if is_done() || self.failure.get().is_some() {
                continue;
            }
            if changes != u64::MAX {
                match self.lead_fast(&mut lead, upto, lane, data) {
                    LedFast::Done => continue,
                    LedFast::WhenHome if !brought_home => {
                        drop(lead);
                        data.finish(lane);
                        brought_home = true;
                        self.checkpoint(lane)?;
                        continue;
                    }
                    LedFast::WhenHome | LedFast::No => {}
                }
            }
            let led = self.lead_one(&mut lead, upto, lane, data);
            match led {
                Ok(Led::Done) => {}
                Ok(Led::NoRoom) => {
                    drop(lead);
                    // Its leader may have to wait for tokens: not for ours.
                    data.finish(lane);
                    self.checkpoint(lane)?;
                }
                Err(error) => {
                    // Before the lead ends: nobody begins another.
                    self.fail(&error);
                    self.note_failure(&error, &mut lead, lane);
                    return Err(error);
                }
            }
        }
    }

    /// Commits the oldest transaction that has not committed, of those up to `upto`.
    fn lead_one(
        &self,
        committer: &mut Committer,
        upto: Sequence,
        lane: &mut Lane,
        data: &mut impl Follow,
    ) -> Result<Led, Error> {
        let supersede;
        let transaction = {
            let mut open = self.opened();
            if open.closed.is_empty() && open.running.sequence <= upto {
                open.close();
            }
            let Some(oldest) = open.closed.front() else {
                return Err(Error::Invalid("a transaction was never begun"));
            };
            let need = committer.plan(oldest).log_blocks();
            if need >= committer.log.len() as usize {
                return Err(Error::Resources(
                    "the journal is too small for a transaction".to_owned(),
                ));
            }
            if need > committer.log.free() as usize {
                return Ok(Led::NoRoom);
            }
            let is_anything = !oldest.blocks.is_empty() || !oldest.revoked.is_empty();
            supersede = if is_anything { committer.supersede(need)? } else { Supersede::No };
            if matches!(supersede, Supersede::WhenHome) {
                return Ok(Led::NoRoom);
            }
            open.closed.pop_front()
        };
        let Some(transaction) = transaction else { return Ok(Led::Done) };
        if let Supersede::Apart(place) = supersede {
            committer.end_log_with(place, lane)?;
        }
        let blocks =
            committer.commit(lane, &transaction, data, self.overlap, self.volatile, || {
                self.make_spares()
            })?;
        if blocks > 0 {
            self.commits.counts.commit(blocks);
        }
        if matches!(supersede, Supersede::Apart(_)) {
            committer.finish_superseding(lane, self.volatile)?;
        }
        let release = self.pending().committed(&transaction);
        if let Some(sequence) = release {
            self.held.release(sequence);
        }
        self.lanes.crowd().committed();
        // Release: who sees it sees what was released, too.
        self.commits.durable.store(transaction.sequence.0, Ordering::Release);
        Ok(Led::Done)
    }
}
