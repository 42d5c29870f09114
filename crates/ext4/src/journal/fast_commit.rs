//! Fast commits: what the running transaction did, said in the blocks behind the log, instead of
//! the transaction itself.
//!
//! It goes on running: a later fast commit says what was done since, and in the end it commits as
//! any other, after which the area begins anew. The rules are those of a commit block
//! (`docs/ordering.md`): all that a fast commit says is true of the device before it is written, or
//! by the time that it is durable; transactions before are durable; what it says freed is held
//! until its transaction commits.
//!
//! When that does, they must not count any more: e2fsck 1.47.0 takes fast commits that are older
//! than the end of the log for an error, and recovers nothing. So there is no moment at which both
//! are there (rule 16). The transaction is written where the log does not lead to, and the
//! journal's superblock, in one write, has the log begin with it and says that there are no fast
//! commits. Then their first block is zeroed, and it says that there may be some.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Sequence;
use super::committer::Committer;
use super::device::{self, Before};
use super::fast::Unsaid;
use super::lead::{Goal, Lead};
use super::running::Journal;
use crate::Error;
use crate::io::IoContext;
use meantime_ext4_format::features::incompat;
use meantime_ext4_format::journal::fast_commit::Writer;

/// The blocks of the journal that fast commits are written to.
#[derive(Debug, Clone)]
pub(super) struct FastArea {
    blocks: Range<u32>,
    /// The next one, of those that follow the transaction before `tid`.
    next: u32,
    tid: u32,
    /// One could not be written: there are no more.
    off: bool,
    /// Whether there is anything in it that would be older than the log's end once its transaction
    /// has committed.
    used: bool,
}

/// Whether there can be a fast commit.
pub(crate) enum Fast {
    /// Yes. `needs_data`: the caller's own data have to be on the device before.
    Can { needs_data: bool },
    /// The transaction has to be committed.
    Cannot,
    /// When what has committed is home.
    WhenHome,
}

/// How a transaction commits that fast commits went on from.
pub(super) enum Supersede {
    /// As any other: there are none.
    No,
    /// When everything before it is home.
    WhenHome,
    /// With the log's beginning at its own, which is there now; before that is this block of the
    /// file system, with which the log has to end meanwhile.
    Apart(u64),
}

impl FastArea {
    /// `all`: the blocks behind the log.
    pub(super) fn new(all: Range<u32>) -> Option<Self> {
        // The first is left out, as in Linux (`j_fc_first`), and the last, behind which it would
        // look for more.
        let blocks = all.start.checked_add(1)?..all.end.checked_sub(1)?;
        (!blocks.is_empty()).then_some(Self {
            next: blocks.start,
            blocks,
            tid: 0,
            off: false,
            used: false,
        })
    }

    /// Where the next fast commit on top of the transaction before `tid` goes, and whether it is
    /// the first.
    fn at(&self, tid: u32) -> (u32, bool) {
        let first = self.tid != tid || self.next == self.blocks.start;
        (if first { self.blocks.start } else { self.next }, first)
    }

    /// Whether `count` blocks fit at `at`.
    fn has_room(&self, at: u32, count: usize) -> bool {
        count <= (self.blocks.end - at) as usize
    }

    fn take(&mut self, tid: u32, at: u32, count: usize) {
        (self.tid, self.next) = (tid, at + count as u32);
        self.used = true;
    }

    /// One failed, and may be there all the same, or a part of it.
    fn turn_off(&mut self) {
        (self.off, self.used) = (true, true);
    }
}

/// A fast commit that is on its way.
#[must_use = "it is in flight"]
pub(crate) struct FastCommit {
    said: Said,
    sent: Result<(), Error>,
}

/// What a fast commit says.
struct Said {
    bytes: Vec<u8>,
    at: u32,
    /// How many changes it, and those before it, have in them.
    changes: u64,
    /// Whether it makes blocks reachable, whose data have to be on the device before.
    reaches_blocks: bool,
}

/// How many bytes are there before there are only zeroes.
fn used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

impl Lead<'_> {
    /// Whether a fast commit can reach `goal`.
    pub(crate) fn can_commit_fast(&self, goal: &Goal) -> Fast {
        if goal.changes == u64::MAX || self.fast.as_ref().is_none_or(|area| area.off) {
            return Fast::Cannot;
        }
        let journal = self.journal;
        let open = journal.opened();
        let running = &open.running;
        if !open.closed.is_empty() || running.sequence > goal.upto || !running.unsaid.is_sayable() {
            return Fast::Cannot;
        }
        if !journal.is_replayed_rightly(&running.unsaid) {
            return if goal.is_home { Fast::Cannot } else { Fast::WhenHome };
        }
        let reaches_blocks = running.unsaid.reaches_blocks() || !running.ordered.is_done();
        Fast::Can { needs_data: reaches_blocks || !journal.overlap.data }
    }

    /// Sends a fast commit of the running transaction as it is; `None`: it has to be committed
    /// after all.
    pub(crate) fn send_fast(
        &mut self,
        goal: &Goal,
        needs_data: bool,
        io: &mut IoContext,
    ) -> Option<FastCommit> {
        let journal = self.journal;
        if needs_data {
            // Others' data: else the whole transaction would be committed because of them.
            let others = Arc::clone(&journal.opened().running.ordered);
            others.wait_a_little(&io.group);
        }
        let said = journal.say(self, goal.upto)?;
        let ordered = said.reaches_blocks;
        let flushed = match journal.volatile && ordered {
            true => device::flush(io, Before::Commit),
            false => Ok(()),
        };
        let sent = flushed.and_then(|()| self.send_said(&said, journal.volatile && ordered, io));
        Some(FastCommit { said, sent })
    }

    /// Makes ready what the next commit needs, while the device writes this one.
    pub(crate) fn prepare_next(&mut self, io: &mut IoContext) {
        if self.journal.overlap.prepare {
            self.journal.make_spares();
            self.writer.warm(io);
        }
    }

    /// Waits for a fast commit; false: it failed, and the transaction has to be committed. The
    /// caller's own data have ended.
    pub(crate) fn finish_fast(&mut self, fast: FastCommit, io: &mut IoContext) -> bool {
        let journal = self.journal;
        let changes = fast.said.changes;
        if let Err(error) = self.try_finish_fast(fast, io) {
            tracing::warn!(%error, "a fast commit failed: whole transactions are committed from now on");
            if let Some(area) = &mut self.fast {
                area.turn_off();
            }
            // Some of it may be said and some not: the transaction says it.
            journal.opened().running.unsaid.bar();
            return false;
        }
        journal.contexts.group().committed();
        journal.commits.fast.store(changes, Ordering::Release);
        true
    }

    fn try_finish_fast(
        &mut self,
        FastCommit { said, sent }: FastCommit,
        io: &mut IoContext,
    ) -> Result<(), Error> {
        let journal = self.journal;
        let written = self.writer.finish(io);
        sent?;
        written?;
        if journal.volatile && !said.reaches_blocks {
            io.flush()?;
        }
        let count = said.bytes.len() / self.format.block_bytes();
        let tid = self.tid;
        if let Some(area) = self.fast.as_mut().filter(|_| count > 0) {
            area.take(tid, said.at, count);
            journal.commits.counts.fast_commit(count as u32);
        }
        Ok(())
    }
}

impl Journal {
    /// What is to be said of the running transaction; `None`: it has to be committed.
    fn say(&self, committer: &Committer, upto: Sequence) -> Option<Said> {
        let area = committer.fast.as_ref()?;
        let mut open = self.opened();
        let changes = open.changes;
        let running = &mut open.running;
        // Whoever has data under way for it may be waiting for the lead: a transaction that is
        // closed gets no more of them, and waits for these.
        if running.sequence > upto || !device::has_data(&running.ordered) {
            return None;
        }
        let (at, first) = area.at(committer.tid);
        let superblock = self.volume.superblock();
        let write = |first| running.unsaid.write(superblock, &running.blocks, committer.tid, first);
        let mut bytes = if running.unsaid.is_empty() { Vec::new() } else { write(first).ok()? };
        // The first one of a transaction is whole or not there: of half a one, e2fsck and the
        // kernel make an error, not the log's end. What is behind it in its block are zeroes, as
        // there were before. So one that is longer than what cannot tear comes behind one that says
        // nothing: without that it does not count, and half of it is the end.
        if first && used(&bytes) > self.contexts.info().block_bytes as usize {
            bytes =
                Writer::new(committer.format.block_bytes(), committer.tid, true).finish().ok()?;
            bytes.extend(write(false).ok()?);
        }
        let reaches_blocks = running.unsaid.reaches_blocks();
        let blocks = bytes.len() / committer.format.block_bytes();
        if !open.closed.is_empty() || !area.has_room(at, blocks) {
            return None;
        }
        open.running.unsaid = Unsaid::default();
        Some(Said { bytes, at, changes, reaches_blocks })
    }

    /// Whether e2fsck 1.47.0 replays `unsaid` rightly on top of what is in the log: for what it has
    /// read before that, it takes what the disk had then. That is the superblock, of which it
    /// writes only the words that it changes itself; the descriptors of groups, whose counts of
    /// directories it writes as they were; and the block of the inode table that has the journal's
    /// inode, the whole of which it writes again with any inode in it.
    fn is_replayed_rightly(&self, unsaid: &Unsaid) -> bool {
        let superblock = self.volume.superblock();
        let first = superblock.primary_block();
        let last = first + u64::from(superblock.descriptor_blocks_in(0));
        // Where descriptors are spread over the disk, they are not looked for.
        let is_spread = superblock.features().has_incompat(incompat::META_BG);
        let pending = self.pending();
        let table = |block: u64| block == self.journal_table && pending.has(block);
        !(pending.has_any(first..=last)
            || is_spread && pending.len() > 0
            || unsaid.places().any(table))
    }
}

impl Committer {
    /// How a transaction that takes `need` blocks of the log commits, if there are fast commits
    /// that went on from it.
    ///
    /// # Errors
    /// There is no room for it.
    pub(super) fn supersede(&mut self, need: usize) -> Result<Supersede, Error> {
        if self.fast.as_ref().is_none_or(|area| !area.used) {
            return Ok(Supersede::No);
        }
        if !self.logged.is_empty() {
            return Ok(Supersede::WhenHome);
        }
        // The log is empty, and begins here.
        let place = self.log.place(self.log.head());
        let (place, _) = place.ok_or(Error::Invalid("the journal has no such block"))?;
        if !self.log.leave_out_head(need) {
            return Err(Error::Resources("the journal is too small for a transaction".to_owned()));
        }
        Ok(Supersede::Apart(place))
    }

    /// Zeroes block `place`, as all of a transaction's own before its commit block.
    ///
    /// # Errors
    /// The device.
    pub(super) fn end_log_with(&mut self, place: u64, io: &mut IoContext) -> Result<(), Error> {
        let zeroes = vec![0; self.format.block_bytes()];
        self.writer.write_all(io, std::iter::once((place, &zeroes[..])), false)
    }

    /// Has the log begin with the transaction that was written [apart](Self::supersede), and the
    /// fast commits not count any more.
    ///
    /// # Errors
    /// The device: whether it is durable nobody knows.
    pub(super) fn finish_superseding(
        &mut self,
        io: &mut IoContext,
        fua: bool,
    ) -> Result<(), Error> {
        let missing = || Error::Invalid("the journal has no such block");
        let first = *self.logged.front().ok_or_else(missing)?;
        let home = self.home()?;
        let area = self.fast.as_mut().ok_or_else(missing)?;
        let (head, _) = self.log.place(area.blocks.start).ok_or_else(missing)?;
        // For whoever reads it now the log goes on into their blocks: nothing is written to it
        // before they are out of it again.
        self.format.set_tail(first.tid, first.start)?;
        device::supersede(&mut self.writer, io, &mut self.format, [home, head], fua)?;
        (area.next, area.used) = (area.blocks.start, false);
        Ok(())
    }

    /// Sends the blocks of a fast commit. They may come to the device in any order: its checksum is
    /// over all of them.
    fn send_said(&mut self, said: &Said, fua: bool, io: &mut IoContext) -> Result<(), Error> {
        let block_bytes = self.format.block_bytes();
        let (mut rest, mut at) = (&said.bytes[..], said.at);
        while !rest.is_empty() {
            let (place, side_by_side) =
                self.log.place(at).ok_or(Error::Invalid("the journal has no such block"))?;
            let count = (rest.len() / block_bytes)
                .min(side_by_side as usize)
                .min(self.writer.buffer_blocks());
            let (some, others) = rest.split_at(count * block_bytes);
            let mut buf = self.writer.buffer(io, count)?;
            buf[..some.len()].copy_from_slice(some);
            device::send_fast(&mut self.writer, io, place, buf, fua)?;
            (rest, at) = (others, at + count as u32);
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_area_begins_anew_with_each_transaction() {
        let mut area = FastArea::new(100..110).unwrap();
        assert_eq!(area.at(7), (101, true));
        area.take(7, 101, 3);
        assert_eq!(area.at(7), (104, false));
        assert!(area.has_room(104, 5) && !area.has_room(104, 6));
        assert_eq!(area.at(8), (101, true));
        assert!(area.used && !area.off);
        assert!(FastArea::new(100..102).is_none() && FastArea::new(5..5).is_none());
    }
}
