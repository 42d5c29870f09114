//! How the [leader](super::lead::CommitLeader) writes a transaction to the log.

use std::collections::VecDeque;

use super::block_writer::BlockWriter;
use super::fast_area::FastArea;
use super::handle::time_now;
use super::log::{Log, LogLayout, Logged};
use super::ordered_io::{self, Before};
use super::transaction::Transaction;
use crate::io::{IoContext, commit_set};
use crate::{Error, Result};
use meantime_block::RequestError;
use meantime_ext4_format::journal::{Copied, JournalFormat};
use meantime_hw::DmaBuf;

/// Returns how many copies of blocks go into one request, of the `copies` after a descriptor,
/// which has its own request: a device completes a few parallel requests sooner than a long one.
pub fn log_piece_blocks(copies: usize) -> usize {
    copies.div_ceil(if copies <= 4 { 2 } else { 3 })
}

/// The state of the log, exclusively owned by the leader.
pub(crate) struct Committer {
    pub(super) format: JournalFormat,
    pub(super) log: Log,
    /// The next transaction's number in the journal (32 bits).
    pub(super) tid: u32,
    /// The time at which the last transaction committed, in seconds since 1970. The next time is
    /// not earlier.
    seconds: i64,
    /// The transactions in the log, oldest first.
    pub(super) logged: VecDeque<Logged>,
    pub(super) log_writer: BlockWriter,
    /// Where fast commits are written, if they are enabled.
    pub(super) fast: Option<FastArea>,
    commit_block: Option<DmaBuf>,
    copies: Vec<Copied>,
}

/// The blocks of a transaction that were sent to the log.
pub(super) struct InLog {
    /// The number of blocks, or why they could not be sent.
    blocks: Result<u32>,
    /// The commit block, if it is prepared already.
    commit_block: Result<Option<DmaBuf>>,
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
            log_writer: BlockWriter::new(block_bits),
            fast,
            commit_block: None,
            copies: Vec::new(),
        }
    }

    /// Returns the block of the file system that holds the journal's superblock.
    ///
    /// # Errors
    /// Fails if the journal has no blocks.
    pub(super) fn superblock_block(&self) -> Result<u64> {
        let place = self.log.place(0).ok_or(Error::Invalid("the journal has no first block"))?;
        Ok(place.0)
    }

    /// Writes the journal's superblock with `writer`, durably.
    ///
    /// # Errors
    /// Fails if the device fails.
    pub(super) fn write_superblock(
        &self,
        writer: &mut BlockWriter,
        io: &mut IoContext,
    ) -> Result<()> {
        writer.write_durably(io, self.superblock_block()?, self.format.block())
    }

    /// Returns the layout that `transaction` would have in the log.
    pub(super) fn layout(&self, transaction: &Transaction) -> LogLayout {
        LogLayout {
            revoke_blocks: transaction.revoked.len().div_ceil(self.format.revoked_most()),
            copies: transaction.blocks.len(),
            buffer_blocks: self.log_writer.buffer_blocks(),
            tags_most: self.format.tags_most(),
        }
    }

    /// Returns a buffer for up to `most` blocks of the log from `at` on, as many as are contiguous
    /// on the disk, and the place of the first.
    fn piece(&mut self, io: &mut IoContext, at: u32, most: usize) -> Result<(u64, DmaBuf)> {
        let (place, side_by_side) =
            self.log.place(at).ok_or(Error::Invalid("the journal has no such block"))?;
        let buf = self.log_writer.buffer(io, most.min(side_by_side as usize))?;
        Ok((place, buf))
    }

    /// Sends all of `transaction` but its commit block, each piece as soon as it is copied. Returns
    /// the number of log blocks.
    fn send_log(&mut self, io: &mut IoContext, transaction: &Transaction) -> Result<u32> {
        let bytes = self.format.block_bytes();
        let revoked: Vec<u64> = transaction.revoked.iter().copied().collect();
        let mut revoked = revoked.chunks(self.format.revoked_most());
        let mut blocks = transaction.blocks.iter();
        let mut at = self.log.head();
        let mut written = 0;
        for (revokes, copies) in self.layout(transaction) {
            let head = revokes + usize::from(copies > 0);
            // The copies go first: the descriptor, which precedes them in the log, has their
            // checksums.
            self.copies.clear();
            while self.copies.len() < copies {
                let done = self.copies.len();
                let most = log_piece_blocks(copies).min(copies - done);
                let after = self.log.after(at, (head + done) as u32);
                let (place, mut buf) = self.piece(io, after, most)?;
                for (to, (block, content)) in buf.chunks_exact_mut(bytes).zip(&mut blocks) {
                    self.copies.push(self.format.copy(to, *block, content, self.tid));
                }
                self.log_writer.send(io, place, buf, false)?;
            }
            let mut done = 0;
            while done < head {
                let (place, mut buf) =
                    self.piece(io, self.log.after(at, done as u32), head - done)?;
                for to in buf.chunks_exact_mut(bytes) {
                    match (done < revokes).then(|| revoked.next()).flatten() {
                        Some(some) => ordered_io::revoke(&self.format, to, self.tid, some),
                        None => self.format.descriptor(to, self.tid, &self.copies),
                    }
                    done += 1;
                }
                self.log_writer.send(io, place, buf, false)?;
            }
            at = self.log.after(at, (head + copies) as u32);
            written += (head + copies) as u32;
        }
        Ok(written)
    }

    /// Prepares the next commit block.
    fn prepare(&mut self, io: &mut IoContext) -> Result<DmaBuf> {
        let bytes = self.format.block_bytes();
        let mut buf = match self.commit_block.take() {
            Some(buf) => buf,
            None => io.heap.alloc(bytes).map_err(|error| Error::Resources(error.to_string()))?,
        };
        buf.set_len(bytes);
        let mut time = time_now();
        self.seconds = self.seconds.max(time.seconds);
        time.seconds = self.seconds;
        self.format.commit(&mut buf, self.tid, time);
        Ok(buf)
    }

    /// Sends the commit block, with FUA if the cache is volatile (rule 3). All that it depends on
    /// is durable. Waits for the commit block, and prepares the next transaction meanwhile.
    fn write_commit(
        &mut self,
        io: &mut IoContext,
        at: u32,
        buf: DmaBuf,
        gap: Option<impl FnOnce()>,
    ) -> Result<()> {
        let (place, _) =
            self.log.place(at).ok_or(Error::Invalid("the journal has no such block"))?;
        let lba = place * self.format.block_bytes() as u64 / u64::from(io.block_bytes);
        if let Err(error) = io.may_write() {
            self.commit_block = Some(buf);
            return Err(error);
        }
        let request = ordered_io::commit_block(lba, buf, io.is_volatile);
        if let Err((rejected, ())) = io.submit(commit_set, request, ()) {
            self.commit_block = rejected.request.buf;
            return Err(RequestError::from(rejected.error).into());
        }
        if let Some(gap) = gap {
            gap();
            self.log_writer.warm(io);
        }
        let (done, ()) = io
            .wait_oldest_in_group(commit_set)
            .ok_or(Error::Invalid("no commit block was sent"))?;
        self.commit_block = done.buf;
        done.result.map_err(Error::from_io)
    }

    /// Returns whether the log has room for `transaction` as it is.
    pub(super) fn has_room_for(&self, transaction: &Transaction) -> bool {
        self.layout(transaction).log_blocks() <= self.log.free() as usize
    }

    /// Sends all of `transaction` but its commit block to the log (rule 4: no other thread does so
    /// meanwhile). If `prepared`, it prepares the commit block while the device works.
    pub(super) fn write_log(
        &mut self,
        io: &mut IoContext,
        transaction: &Transaction,
        prepared: bool,
    ) -> InLog {
        let empty = transaction.blocks.is_empty() && transaction.revoked.is_empty();
        let sent = if empty { Ok(0) } else { self.send_log(io, transaction) };
        let block = (prepared && !empty).then(|| self.prepare(io)).transpose();
        InLog { blocks: sent, commit_block: block }
    }

    /// Writes the commit block of `transaction`, whose log was sent, in the order of rules 1 to 3.
    /// Runs `gap` while the device works, if the block was prepared. Returns the number of log
    /// blocks used.
    pub(super) fn finish_commit(
        &mut self,
        io: &mut IoContext,
        transaction: &Transaction,
        sent: InLog,
        gap: impl FnOnce(),
    ) -> Result<u32> {
        // Rule 1: after this no log write is in flight, whether or not one failed.
        let logged = ordered_io::finish_log(&mut self.log_writer, io);
        let written = sent.blocks?;
        logged?;
        // Rule 2.
        ordered_io::wait_for_data(&transaction.ordered, &io.group)?;
        if written == 0 {
            // The transaction had data only, and no log block leads to them.
            if io.is_volatile && transaction.ordered.is_unflushed() {
                io.flush()?;
            }
            return Ok(0);
        }
        let (buf, has_gap) = match sent.commit_block? {
            Some(buf) => (buf, true),
            None => (self.prepare(io)?, false),
        };
        // Rule 3.
        if io.is_volatile {
            ordered_io::flush(io, Before::Commit)?;
        }
        let at = self.log.after(self.log.head(), written);
        self.write_commit(io, at, buf, has_gap.then_some(gap))?;
        // Log writes are left only where a test broke rule 1.
        self.log_writer.finish(io)?;
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
