//! Fast commits: a description of what the running transaction did, in the blocks after the log,
//! instead of the transaction itself.
//!
//! The transaction goes on: a later fast commit describes what was done since. In the end it
//! commits as any other, and the area is used from its start again. The rules are those of a commit
//! block (`docs/ordering.md`). All that a fast commit describes is on the device before it is
//! written, or by the time that it is durable. Earlier transactions are durable. Blocks that it
//! frees are held until its transaction commits.
//!
//! When the transaction commits, its fast commits must not count any more: e2fsck 1.47.0 treats
//! fast commits that are older than the end of the log as an error, and recovers nothing. So at no
//! moment do both count (rule 16). The transaction is written where the log does not lead to. One
//! write of the journal's superblock makes the log begin with it and removes the feature for fast
//! commits. Then their first block is zeroed, and the feature is set again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::committer::Committer;
use super::fast::Unrecorded;
use super::lead::{CommitLeader, CommitTarget};
use super::ordered_io::{self, Before};
use super::sequence::Sequence;
use super::state::Journal;
use crate::io::IoContext;
use crate::{Error, Result};
use meantime_ext4_format::features::incompat;
use meantime_ext4_format::journal::fast_commit::Writer;

/// Whether a fast commit is possible.
pub(super) enum Fast {
    /// It is possible. If `needs_data`, the caller's own data have to be on the device before.
    Can { needs_data: bool },
    /// It is not possible: the transaction has to commit.
    Cannot,
    /// It is possible only when what has committed is in place.
    WhenInPlace,
}

/// How a transaction that fast commits describe in part is committed.
pub(super) enum Supersede {
    /// It commits as any other, because there are no fast commits.
    No,
    /// It commits only when everything before it is in place.
    WhenInPlace,
    /// The log will begin with the transaction. This block of the file system precedes it, and ends
    /// the log until then.
    Apart(u64),
}

/// A fast commit in flight.
#[must_use = "it is in flight"]
pub(super) struct FastCommit {
    encoded: Encoded,
    sent: Result<()>,
}

/// An encoded fast commit.
struct Encoded {
    bytes: Vec<u8>,
    at: u32,
    /// The number of changes that it and the fast commits before it cover.
    changes: u64,
    /// Whether it makes blocks reachable, whose data have to be on the device before.
    reaches_blocks: bool,
}

/// Returns the length of `bytes` without trailing zeroes.
fn used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

impl CommitLeader<'_> {
    /// Returns whether a fast commit can reach `target`.
    pub(super) fn can_commit_fast(&self, target: &CommitTarget) -> Fast {
        if target.changes == u64::MAX || self.fast.as_ref().is_none_or(|area| area.off) {
            return Fast::Cannot;
        }
        let journal = self.journal;
        let open = journal.opened();
        let running = &open.running;
        let is_recordable = running.unrecorded.is_recordable();
        if !open.closed.is_empty() || running.sequence > target.upto || !is_recordable {
            return Fast::Cannot;
        }
        if !journal.is_replayed_rightly(&running.unrecorded) {
            return if target.is_in_place { Fast::Cannot } else { Fast::WhenInPlace };
        }
        let reaches_blocks = running.unrecorded.reaches_blocks() || !running.ordered.is_done();
        Fast::Can { needs_data: reaches_blocks || !journal.overlap.data }
    }

    /// Sends a fast commit of the running transaction as it is. Returns `None` if the transaction
    /// has to commit instead.
    pub(super) fn send_fast(
        &mut self,
        target: &CommitTarget,
        needs_data: bool,
        io: &mut IoContext,
    ) -> Option<FastCommit> {
        let journal = self.journal;
        if needs_data {
            // This waits for other threads' data: if they were in flight, the whole transaction
            // would have to commit.
            let others = Arc::clone(&journal.opened().running.ordered);
            others.wait_a_little(&io.group);
        }
        let encoded = journal.encode(self, target.upto)?;
        let flushed = match io.is_volatile && encoded.reaches_blocks {
            true => ordered_io::flush(io, Before::Commit),
            false => Ok(()),
        };
        let sent = flushed.and_then(|()| self.send_blocks(&encoded, io));
        Some(FastCommit { encoded, sent })
    }

    /// Prepares what the next commit needs, while the device writes this one.
    pub(super) fn prepare_next(&mut self, io: &mut IoContext) {
        if self.journal.overlap.prepare {
            self.journal.prepare_copies();
            self.log_writer.warm(io);
        }
    }

    /// Waits for a fast commit. Returns false if it failed and the transaction has to commit. The
    /// caller's own data have completed before.
    pub(super) fn finish_fast(&mut self, fast: FastCommit, io: &mut IoContext) -> bool {
        let journal = self.journal;
        let changes = fast.encoded.changes;
        if let Err(error) = self.try_finish_fast(fast, io) {
            tracing::warn!(%error, "a fast commit failed: whole transactions are committed from now on");
            if let Some(area) = &mut self.fast {
                area.turn_off();
            }
            // The device may have a part of the fast commit, so the transaction has to commit.
            journal.opened().running.unrecorded.bar();
            return false;
        }
        journal.contexts.group().committed();
        journal.commits.fast.store(changes, Ordering::Release);
        true
    }

    fn try_finish_fast(
        &mut self,
        FastCommit { encoded, sent }: FastCommit,
        io: &mut IoContext,
    ) -> Result<()> {
        let journal = self.journal;
        let written = self.log_writer.finish(io);
        sent?;
        written?;
        // Rule 15: this FLUSH comes after the fast commit, not before.
        if io.is_volatile && !encoded.reaches_blocks {
            io.flush()?;
        }
        let count = encoded.bytes.len() / self.format.block_bytes();
        let tid = self.tid;
        if let Some(area) = self.fast.as_mut().filter(|_| count > 0) {
            area.take(tid, encoded.at, count);
            journal.commits.counts.fast_commit(count as u32);
        }
        Ok(())
    }
}

impl Journal {
    /// Encodes the running transaction. Returns `None` if it has to commit instead.
    fn encode(&self, committer: &Committer, upto: Sequence) -> Option<Encoded> {
        let area = committer.fast.as_ref()?;
        let mut open = self.opened();
        let changes = open.changes;
        let running = &mut open.running;
        // An owner of its data in flight may be waiting for the lead, so do not wait here. A closed
        // transaction gets no more data, and its commit waits for these.
        if running.sequence > upto || !ordered_io::data_are_written(&running.ordered) {
            return None;
        }
        let (at, first) = area.at(committer.tid);
        let superblock = self.volume.superblock();
        let unrecorded = &running.unrecorded;
        let write = |first| unrecorded.write(superblock, &running.blocks, committer.tid, first);
        let mut bytes = if unrecorded.is_empty() { Vec::new() } else { write(first).ok()? };
        // Rule 15: the first fast commit of a transaction must not tear, because e2fsck and the
        // kernel report half of one as an error, not as the log's end. The rest of its block is
        // zeroes, as before. If it is longer than a logical sector, which cannot tear, an empty
        // fast commit precedes it. The longer one does not count without the empty one, and half of
        // it is the log's end.
        if first && used(&bytes) > self.contexts.info().block_bytes as usize {
            bytes =
                Writer::new(committer.format.block_bytes(), committer.tid, true).finish().ok()?;
            bytes.extend(write(false).ok()?);
        }
        let reaches_blocks = unrecorded.reaches_blocks();
        let blocks = bytes.len() / committer.format.block_bytes();
        if !open.closed.is_empty() || !area.has_room(at, blocks) {
            return None;
        }
        open.running.unrecorded = Unrecorded::default();
        Some(Encoded { bytes, at, changes, reaches_blocks })
    }

    /// Returns whether e2fsck 1.47.0 replays `unrecorded` correctly on top of the log (rule 17). It
    /// uses what it read before the replay: the superblock, of which it writes only the words that
    /// it changes itself; the group descriptors, whose directory counts it writes as they were; and
    /// the inode table block with the journal's inode, all of which it writes again with any inode
    /// in it.
    fn is_replayed_rightly(&self, unrecorded: &Unrecorded) -> bool {
        let superblock = self.volume.superblock();
        let first = superblock.primary_block();
        let last = first + u64::from(superblock.descriptor_blocks_in(0));
        // This function does not look for descriptors that are spread over the disk.
        let is_spread = superblock.features().has_incompat(incompat::META_BG);
        let pending = self.pending();
        let table = |block: u64| block == self.journal_table && pending.has(block);
        !(pending.has_any(first..=last)
            || is_spread && pending.has_any(0..=u64::MAX)
            || unrecorded.places().any(table))
    }
}

impl Committer {
    /// Returns how a transaction of `need` log blocks commits, considering the fast commits that
    /// continued it.
    ///
    /// # Errors
    /// Fails if the log is too small for the transaction.
    pub(super) fn supersede(&mut self, need: usize) -> Result<Supersede> {
        if self.fast.as_ref().is_none_or(|area| !area.used) {
            return Ok(Supersede::No);
        }
        if !self.logged.is_empty() {
            return Ok(Supersede::WhenInPlace);
        }
        // The log is empty, and begins here.
        let place = self.log.place(self.log.head());
        let (place, _) = place.ok_or(Error::Invalid("the journal has no such block"))?;
        if !self.log.leave_out_head(need) {
            return Err(Error::Resources("the journal is too small for a transaction".to_owned()));
        }
        Ok(Supersede::Apart(place))
    }

    /// Zeroes block `place`, which like the transaction's own blocks precedes the commit block.
    ///
    /// # Errors
    /// Fails if the device fails.
    pub(super) fn end_log_with(&mut self, place: u64, io: &mut IoContext) -> Result<()> {
        let zeroes = vec![0; self.format.block_bytes()];
        self.log_writer.write_all(io, std::iter::once((place, &zeroes[..])))
    }

    /// Makes the log begin with the transaction that was written [apart](Self::supersede), and
    /// stops its fast commits from counting.
    ///
    /// # Errors
    /// Fails if the device fails. It is unknown then what is durable.
    pub(super) fn finish_superseding(&mut self, io: &mut IoContext) -> Result<()> {
        let missing = || Error::Invalid("the journal has no such block");
        let first = *self.logged.front().ok_or_else(missing)?;
        let superblock = self.superblock_block()?;
        let area = self.fast.as_mut().ok_or_else(missing)?;
        let (head, _) = self.log.place(area.first()).ok_or_else(missing)?;
        // Until the feature is set again, a reader takes the blocks of fast commits for a part of
        // the log, so nothing is written to the log before that.
        self.format.set_tail(first.tid, first.start)?;
        ordered_io::supersede(&mut self.log_writer, io, &mut self.format, [superblock, head])?;
        area.restart();
        Ok(())
    }

    /// Sends the blocks of a fast commit. They may reach the device in any order: the checksum
    /// covers all of them.
    fn send_blocks(&mut self, of: &Encoded, io: &mut IoContext) -> Result<()> {
        let fua = io.is_volatile && of.reaches_blocks;
        let block_bytes = self.format.block_bytes();
        let (mut rest, mut at) = (&of.bytes[..], of.at);
        while !rest.is_empty() {
            let (place, side_by_side) =
                self.log.place(at).ok_or(Error::Invalid("the journal has no such block"))?;
            let count = (rest.len() / block_bytes)
                .min(side_by_side as usize)
                .min(self.log_writer.buffer_blocks());
            let (some, others) = rest.split_at(count * block_bytes);
            let mut buf = self.log_writer.buffer(io, count)?;
            buf[..some.len()].copy_from_slice(some);
            ordered_io::send_fast(&mut self.log_writer, io, place, buf, fua)?;
            (rest, at) = (others, at + count as u32);
        }
        Ok(())
    }
}
