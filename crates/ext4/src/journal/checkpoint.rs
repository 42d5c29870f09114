//! Checkpoints: write committed blocks in place and move the log's tail past them (rules 5 to 7 and
//! 10 of `docs/ordering.md`).

use std::sync::PoisonError;

use super::block_writer::BlockWriter;
use super::committer::Committer;
use super::ordered_io::{self, Before};
use super::sequence::Sequence;
use super::state::Journal;
use crate::Result;
use crate::io::IoContext;

/// Blocks written in place at a time.
const BATCH_BLOCKS: usize = 256;

impl Journal {
    /// Returns whether the log is full enough to be worth a checkpoint.
    pub fn wants_checkpoint(&self) -> bool {
        self.usable().is_ok() && self.commits.is_half_full()
    }

    /// Writes everything that has committed so far in place, and moves the log's tail past it.
    ///
    /// The caller has no data of a transaction in flight.
    ///
    /// # Errors
    /// Fails if the device fails. The journal is aborted then, but the log still has what was not
    /// written.
    pub(crate) fn checkpoint(&self, io: &mut IoContext) -> Result<()> {
        let mut writer = self.checkpointing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = self.failure.get() {
            return Err(error.clone());
        }
        let result = self.checkpoint_by(&mut writer, io);
        if let Err(error) = &result
            && self.failure.get().is_none()
        {
            self.fail(error);
            self.note_failure(error, &mut self.lead(), io);
        }
        result
    }

    fn checkpoint_by(&self, writer: &mut BlockWriter, io: &mut IoContext) -> Result<()> {
        let upto = self.commits.durable();
        let mut from = 0;
        loop {
            let batch = self.pending().send(from, upto, BATCH_BLOCKS);
            let Some((last, _)) = batch.last() else { break };
            from = last + 1;
            let written =
                writer.write_all(io, batch.iter().map(|(block, content)| (*block, &**content)));
            if written.is_ok() {
                self.volume
                    .source()
                    .written_in_place(batch.iter().map(|(block, content)| (*block, content)));
            }
            let release = self.pending().end_writes(&batch, written.is_ok());
            // A write that failed may still reach the device: its blocks stay held (rule 10).
            written?;
            if let Some(sequence) = release {
                self.held.release(sequence);
            }
        }
        if io.is_volatile {
            ordered_io::flush(io, Before::Tail)?;
        }
        // There is one checkpoint at a time, so nothing was written in place since the flush
        // began.
        self.pending().flushed();
        // A block that is pending now, but was not before the flush, belongs to a later transaction
        // or was postponed by one. It does not affect the tail up to `upto`.
        let mut leader = self.lead();
        if let Some(error) = self.failure.get() {
            return Err(error.clone());
        }
        self.move_tail(&mut leader, writer, io, upto)
    }

    /// Moves the tail past the transactions up to `upto` whose blocks are all in place.
    fn move_tail(
        &self,
        committer: &mut Committer,
        writer: &mut BlockWriter,
        io: &mut IoContext,
        upto: Sequence,
    ) -> Result<()> {
        let oldest = self.pending().oldest();
        let past =
            |sequence: Sequence| sequence <= upto && oldest.is_none_or(|oldest| sequence < oldest);
        let count = committer.logged.iter().take_while(|logged| past(logged.sequence)).count();
        if count == 0 {
            return Ok(());
        }
        let (tid, start) = match committer.logged.get(count) {
            Some(next) => (next.tid, next.start),
            // Rule 20: a log that never wraps begins anew when it is empty.
            None => (committer.tid, committer.log.start_if_empty()),
        };
        committer.format.set_tail(tid, start)?;
        let superblock = committer.superblock_block()?;
        ordered_io::write_tail(writer, io, &committer.format, superblock)?;
        let blocks = committer.logged.drain(..count).map(|logged| logged.blocks).sum();
        committer.log.release(blocks);
        self.commits.counts.checkpoint();
        Ok(())
    }
}
