//! A transaction's way into the log, by whoever has the [lead](super::lead::Lead).

use std::collections::VecDeque;

use super::block_writer::BlockWriter;
use super::device::{self, Before};
use super::fast_commit::FastArea;
use super::log::{Log, Logged, Plan};
use super::running::time_now;
use super::transaction::Transaction;
use crate::Error;
use crate::io::{IoContext, commit};
use meantime_block::RequestError;
use meantime_ext4_format::journal::{Copied, JournalFormat};
use meantime_hw::DmaBuf;

/// How many copies of blocks go into one request, of `copies` behind a descriptor, which has its
/// own: a few requests that a device does side by side are done sooner than a long one.
pub fn log_piece_blocks(copies: usize) -> usize {
    copies.div_ceil(if copies <= 4 { 2 } else { 3 })
}

/// What its leader has to itself: the log.
pub(crate) struct Committer {
    pub(super) format: JournalFormat,
    pub(super) log: Log,
    /// The next transaction's number in the journal.
    pub(super) tid: u32,
    /// When the last one committed, in seconds since 1970: the next is not earlier.
    seconds: i64,
    /// What is in the log, the oldest first.
    pub(super) logged: VecDeque<Logged>,
    pub(super) writer: BlockWriter,
    /// Where fast commits go, if there are any.
    pub(super) fast: Option<FastArea>,
    commit_block: Option<DmaBuf>,
    copies: Vec<Copied>,
}

/// What was sent to the log.
pub(super) struct InLog {
    /// How many blocks.
    blocks: Result<u32, Error>,
    /// The commit block, if it is ready already.
    commit_block: Result<Option<DmaBuf>, Error>,
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
            writer: BlockWriter::new(block_bits),
            fast,
            commit_block: None,
            copies: Vec::new(),
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

    /// How `transaction` would be written.
    pub(super) fn plan(&self, transaction: &Transaction) -> Plan {
        Plan {
            revoke_blocks: transaction.revoked.len().div_ceil(self.format.revoked_most()),
            copies: transaction.blocks.len(),
            buffer_blocks: self.writer.buffer_blocks(),
            tags_most: self.format.tags_most(),
        }
    }

    /// A buffer for up to `most` blocks of the log from `at` on, as many as are side by side on the
    /// disk, and where that is.
    fn piece(&mut self, io: &mut IoContext, at: u32, most: usize) -> Result<(u64, DmaBuf), Error> {
        let (place, side_by_side) =
            self.log.place(at).ok_or(Error::Invalid("the journal has no such block"))?;
        let buf = self.writer.buffer(io, most.min(side_by_side as usize))?;
        Ok((place, buf))
    }

    /// Sends all of `transaction` but its commit block, each piece as soon as it is there; how many
    /// blocks of the log that are.
    fn send_log(&mut self, io: &mut IoContext, transaction: &Transaction) -> Result<u32, Error> {
        let bytes = self.format.block_bytes();
        let revoked: Vec<u64> = transaction.revoked.iter().copied().collect();
        let mut revoked = revoked.chunks(self.format.revoked_most());
        let mut blocks = transaction.blocks.iter();
        let mut at = self.log.head();
        let mut written = 0;
        for (revokes, copies) in self.plan(transaction) {
            let head = revokes + usize::from(copies > 0);
            // The descriptor, which is before them, has their checksums.
            self.copies.clear();
            while self.copies.len() < copies {
                let done = self.copies.len();
                let most = log_piece_blocks(copies).min(copies - done);
                let behind = self.log.behind(at, (head + done) as u32);
                let (place, mut buf) = self.piece(io, behind, most)?;
                for (to, (block, content)) in buf.chunks_exact_mut(bytes).zip(&mut blocks) {
                    self.copies.push(self.format.copy(to, *block, content, self.tid));
                }
                self.writer.send(io, place, buf, false)?;
            }
            let mut done = 0;
            while done < head {
                let (place, mut buf) =
                    self.piece(io, self.log.behind(at, done as u32), head - done)?;
                for to in buf.chunks_exact_mut(bytes) {
                    match (done < revokes).then(|| revoked.next()).flatten() {
                        Some(some) => device::revoke(&self.format, to, self.tid, some),
                        None => self.format.descriptor(to, self.tid, &self.copies),
                    }
                    done += 1;
                }
                self.writer.send(io, place, buf, false)?;
            }
            at = self.log.behind(at, (head + copies) as u32);
            written += (head + copies) as u32;
        }
        Ok(written)
    }

    /// The commit block that is to follow `written` blocks.
    fn prepare(&mut self, io: &mut IoContext) -> Result<DmaBuf, Error> {
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

    /// Sends the commit block: what it depends on is durable by now. Rule 3: with FUA, if the cache
    /// is volatile. Waits for it, and does meanwhile what the next transaction would wait for.
    fn write_commit(
        &mut self,
        io: &mut IoContext,
        at: u32,
        buf: DmaBuf,
        volatile: bool,
        gap: Option<impl FnOnce()>,
    ) -> Result<(), Error> {
        let (place, _) =
            self.log.place(at).ok_or(Error::Invalid("the journal has no such block"))?;
        let lba = place * self.format.block_bytes() as u64 / u64::from(io.block_bytes);
        if let Err(error) = io.may_write() {
            self.commit_block = Some(buf);
            return Err(error);
        }
        let request = device::commit_block(lba, buf, volatile);
        if let Err((rejected, ())) = io.submit(commit, request, ()) {
            self.commit_block = rejected.request.buf;
            return Err(RequestError::from(rejected.error).into());
        }
        if let Some(gap) = gap {
            gap();
            self.writer.warm(io);
        }
        let (done, ()) =
            io.next_in_group(commit).ok_or(Error::Invalid("no commit block was sent"))?;
        self.commit_block = done.buf;
        done.result.map_err(Error::from_io)
    }

    /// Whether the log has room for `transaction` as it is.
    pub(super) fn has_room_for(&self, transaction: &Transaction) -> bool {
        self.plan(transaction).log_blocks() <= self.log.free() as usize
    }

    /// Sends `transaction` to the log, all but its commit block (rule 4: nobody else does so
    /// meanwhile), and makes that ready if it is to be `prepared` while the device works.
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

    /// Writes the commit block of `transaction`, whose log was sent, in the order of rules 1 to 3,
    /// and does `gap` while the device is at work, if the block was prepared; how many blocks of
    /// the log all that took.
    pub(super) fn finish_commit(
        &mut self,
        io: &mut IoContext,
        transaction: &Transaction,
        sent: InLog,
        volatile: bool,
        gap: impl FnOnce(),
    ) -> Result<u32, Error> {
        // Rule 1. From here on nothing of the log is in flight, whatever happens.
        let logged = device::finish_log(&mut self.writer, io);
        let written = sent.blocks?;
        logged?;
        // Rule 2.
        device::wait_for_data(&transaction.ordered, &io.group)?;
        if written == 0 {
            // There were data only, which nothing in the log leads to.
            if volatile && transaction.ordered.is_unflushed() {
                io.flush()?;
            }
            return Ok(0);
        }
        let (buf, has_gap) = match sent.commit_block? {
            Some(buf) => (buf, true),
            None => (self.prepare(io)?, false),
        };
        // Rule 3.
        if volatile {
            device::flush(io, Before::Commit)?;
        }
        let at = self.log.behind(self.log.head(), written);
        self.write_commit(io, at, buf, volatile, has_gap.then_some(gap))?;
        // Of the log there is something only where rule 1 was broken on purpose.
        self.writer.finish(io)?;
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
