//! What recovery writes to the disk: the log's whole transactions, and what the fast commits after
//! them describe (rules 13 and 16 of `docs/ordering.md`).
//!
//! All of it is made in memory first, over the future content of the disk. Therefore anything that
//! has to be refused is known before the first write.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::block_writer::BlockWriter;
use super::changes::Changes;
use super::committer::Committer;
use super::log::{Log, LogRun};
use super::sequence::Sequence;
use super::transaction::Transaction;
use crate::error::{Error, Result};
use crate::io::{DeviceSource, IoContext};
use meantime_ext4_format::journal::JournalFormat;
use meantime_ext4_format::{Source, SourceError};

/// The device as it is when `blocks` are in place.
pub(crate) struct Overlaid {
    pub(super) device: DeviceSource,
    pub(super) block_bits: u32,
    pub(super) blocks: BTreeMap<u64, Arc<[u8]>>,
}

impl Source for Overlaid {
    fn read(&self, offset: u64, bytes: usize) -> Result<Arc<[u8]>, SourceError> {
        let (block, at) =
            (offset >> self.block_bits, (offset & ((1 << self.block_bits) - 1)) as usize);
        // No read crosses the end of a block.
        match self.blocks.get(&block).map(|newer| (newer, newer.get(at..at + bytes))) {
            Some((newer, Some(part))) if part.len() == newer.len() => Ok(Arc::clone(newer)),
            Some((_, Some(part))) => Ok(part.into()),
            _ => self.device.read(offset, bytes),
        }
    }
}

/// Writes through the only context in use at that time.
pub(super) struct Beginner<'a> {
    pub(super) io: &'a mut IoContext,
    pub(super) writer: BlockWriter,
}

impl Beginner<'_> {
    /// Writes one block durably.
    pub(super) fn write(&mut self, block: u64, content: &[u8]) -> Result<()> {
        self.writer.write_durably(self.io, block, content)
    }

    pub(super) fn flush(&mut self) -> Result<()> {
        if self.io.is_volatile { Ok(self.io.flush()?) } else { Ok(()) }
    }
}

/// One transaction with everything that the fast commits described.
pub(super) struct Replacement {
    committer: Committer,
    transaction: Transaction,
    /// The places of the journal's superblock, and of the log block before the transaction.
    superblock: u64,
    before: (u32, u64),
}

impl Replacement {
    /// Prepares `changes` as transaction `tid`, which the fast commits continued, in a journal of
    /// `format` that lies in `runs`. Returns `None` if it does not fit into the log.
    ///
    /// # Errors
    /// Fails if the journal's superblock cannot be changed so, or if the journal lacks a block.
    pub(super) fn new(
        mut format: JournalFormat,
        runs: Vec<LogRun>,
        changes: &Changes,
        tid: u32,
        block_bits: u32,
        (checksums, is_64bit): (bool, bool),
    ) -> Result<Option<Self>> {
        format.set_tail(tid, 0)?;
        // The fast commits still count, so the log excludes their blocks.
        format.convert(checksums, is_64bit, true)?;
        let mut log = Log::new(runs, format.log()).never_wraps(true);
        let missing = || Error::Invalid("the journal has no such block");
        let before = (log.head(), log.place(log.head()).ok_or_else(missing)?.0);
        let superblock = log.place(0).ok_or_else(missing)?.0;
        log.take(1);
        let committer = Committer::new(format, log, tid, block_bits, None);
        let mut transaction = Transaction::new(Sequence(1));
        transaction.merge(changes);
        let fits = committer.has_room_for(&transaction);
        Ok(fits.then_some(Self { committer, transaction, superblock, before }))
    }

    /// Writes the transaction, makes it count instead of the fast commits in one write, and writes
    /// it in place. All transactions before it are in place and flushed. Until that write the log
    /// ends where the fast commits continue it.
    ///
    /// # Errors
    /// Fails if the device fails.
    pub(super) fn write(mut self, beginner: &mut Beginner<'_>) -> Result<()> {
        let Self { committer, transaction, superblock, before } = &mut self;
        // The log is empty, and starts at a block that does not lead to the transaction.
        committer.format.set_tail(committer.tid, before.0)?;
        beginner.write(*superblock, committer.format.block())?;
        beginner.write(before.1, &vec![0; committer.format.block_bytes()])?;
        let (tid, start) = (committer.tid, committer.log.head());
        let sent = committer.write_log(beginner.io, transaction, false);
        committer.finish_commit(beginner.io, transaction, sent, || ())?;
        // This write makes the transaction count, and stops the fast commits from counting.
        committer.format.set_fast_commits(false)?;
        committer.format.set_tail(tid, start)?;
        beginner.write(*superblock, committer.format.block())?;
        let blocks = transaction.blocks.iter().map(|(block, content)| (*block, &**content));
        beginner.writer.write_all(beginner.io, blocks)?;
        beginner.flush()
    }
}
