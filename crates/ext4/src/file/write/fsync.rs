//! What makes writes durable.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::sending::Sending;
use crate::cache::PAGE_BYTES;
use crate::error::Error;
use crate::file::File;
use crate::file::read::cached::PAGE;
use crate::inode::Mount;
use crate::inode::shared::Inode;
use crate::inode::writable::Writable;
use crate::io::{Durability, IoContext};
use crate::journal::{self, Before, Begun, Fast, Sequence, Turn};
use meantime_block::IoError;
use meantime_ext4_format::FileType;
use meantime_ext4_format::edit::InodeEdit;
use meantime_nvme::{CommandError, Op};

/// All pages of a file.
pub(super) const ALL: Range<u64> = 0..u64::MAX;

impl Mount {
    /// Makes `inode` durable: its content, what is needed to find that, and, unless `data_only`,
    /// the rest of its inode.
    ///
    /// # Errors
    /// What could not be written, now.
    pub(crate) fn fsync(&self, inode: &Arc<Inode>, data_only: bool) -> Result<(), Error> {
        let writer = self.writer()?;
        let Some(writable) = &inode.writable else { return Ok(()) };
        self.contexts.group().arrive();
        // What others have in flight, and was written to since, has to go once more, as in
        // `settle`.
        let again = self.is_dirty_in_flight(writable, ALL);
        let mut committed = self.write_and_commit(inode, writable, data_only)?;
        self.wait_in_flight(writable, ALL);
        if again {
            committed = committed.max(self.write_and_commit(inode, writable, data_only)?);
            self.wait_in_flight(writable, ALL);
        }
        if !data_only {
            self.store_times(inode, writable)?;
        }
        // What no data of this call were in flight for: times, what others wrote back.
        let upto = writable.sequence(data_only);
        if upto > committed {
            match writer.journal_thread() {
                Some(thread) => thread.commit(&writer.journal, upto)?,
                None => self.commit(upto)?,
            }
        }
        self.flush_data(writable)
    }

    /// Writes what is dirty of `inode`, but for what others have in flight, and commits with the
    /// last of it: up to which transaction.
    fn write_and_commit(
        &self,
        inode: &Arc<Inode>,
        writable: &Writable,
        data_only: bool,
    ) -> Result<Sequence, Error> {
        let mut committed = Sequence(0);
        let mut next = 0;
        // Collect and allocate.
        while let Some(batch) = self.begin_batch(inode, next..u64::MAX, !data_only)? {
            next = self.after(&batch);
            let more = writable.pages().dirty.range(next..).next().is_some();
            let mut sending = self.sending(batch);
            let mut io = match self.contexts.take_leaf() {
                Ok(io) => io,
                Err(error) => {
                    sending.give_up(&error, |_, _| ());
                    return Err(error);
                }
            };
            // Send the data.
            sending.send(&mut io);
            let upto = writable.sequence(data_only);
            let overlaps = !more && self.options.commit_overlap.direct && upto > Sequence(0);
            let result = if overlaps && !sending.converts() && !io.is_spare() {
                committed = upto;
                self.commit_with(upto, &mut io, &mut sending)
            } else {
                Ok(())
            };
            // Whatever came of it, none of the data is left in flight.
            sending.wait(&mut io);
            drop(io);
            sending.finish()?;
            result?;
        }
        Ok(committed)
    }

    /// Commits all up to transaction `upto`, while the data that are `sending` by the same context
    /// are on their way: the rules are those of docs/ordering.md.
    fn commit_with(
        &self,
        upto: Sequence,
        io: &mut IoContext,
        sending: &mut Sending<'_>,
    ) -> Result<(), Error> {
        let journal = &self.writer()?.journal;
        let mut goal = journal.goal(upto);
        loop {
            // Rule 4: one leader at a time. It, or the next one, commits for all.
            let mut lead = match journal.turn(&goal)? {
                Turn::Reached => return Ok(()),
                Turn::Others(mut leader) => {
                    if journal.waits_for_data_first() {
                        sending.wait(io);
                    }
                    while leader.is_looked_at(io) {
                        sending.poll(io);
                    }
                    if leader.leads() {
                        // It may be waiting for our data.
                        sending.wait(io);
                        leader.sleep();
                    }
                    continue;
                }
                Turn::Ours(lead) => lead,
            };
            match lead.can_commit_fast(&goal) {
                Fast::Can { needs_data } => {
                    // Rules 2 and 15: data that it makes reachable come first.
                    if needs_data {
                        journal::finish_data(|| sending.wait(io));
                    }
                    // Rule 3: it flushes what came first, and is forced; if it makes no data
                    // reachable, `finish_fast` flushes after it instead.
                    if let Some(fast) = lead.send_fast(&goal, needs_data, io) {
                        if journal.prepares() {
                            sending.finish_pages();
                            lead.prepare_next(io);
                        }
                        // Data that were there before are only overwritten: nothing is in order.
                        sending.wait(io);
                        if journal.prepares() {
                            sending.finish_pages();
                        }
                        if lead.finish_fast(fast, io) {
                            continue;
                        }
                    }
                }
                Fast::WhenHome => {
                    drop(lead);
                    sending.wait(io);
                    journal.bring_home(&mut goal, io)?;
                    continue;
                }
                Fast::Cannot => {}
            }
            if !journal.overlaps_data() {
                sending.wait(io);
            }
            // Write the log: it and the data are on their way together.
            match lead.begin(&goal, io)? {
                Begun::Commit(commit) => {
                    // Rule 2: our data before the commit block; nobody else would take in what this
                    // context has sent. (`finish` waits for the log, rule 1, and for others' data;
                    // flushes, rule 3; writes the commit block.)
                    journal::finish_data(|| sending.wait(io));
                    lead.finish(commit, io, || sending.finish_pages())?;
                }
                Begun::Nothing => {}
                Begun::NoRoom => {
                    drop(lead);
                    sending.wait(io);
                    journal.checkpoint(io)?;
                }
            }
        }
    }

    /// Rule 18: what was written in place is not only in the device's cache. A commit since then has
    /// flushed it, if there was one.
    fn flush_data(&self, writable: &Writable) -> Result<(), Error> {
        let landed = writable.landed.load(Ordering::Acquire);
        if !self.contexts.info().volatile_write_cache
            || writable.flushed.load(Ordering::Acquire) >= landed
        {
            return Ok(());
        }
        let flushed = match self.contexts.flushes().durability(landed) {
            Durability::Durable => Ok(()),
            Durability::Open => journal::flush(&mut *self.contexts.take()?, Before::Return),
            Durability::Unknown => {
                let kind = CommandError::CacheLost.into();
                Err(Error::from_io(IoError { op: Op::Flush, lba: 0, kind }))
            }
        };
        // Before anybody sees that it was seen to.
        if let Err(error) = &flushed {
            writable.fail(error.clone());
        }
        // Once, whatever came of it: everybody who has the file open is told of a failure, and
        // there is nothing to be written again.
        writable.flushed.fetch_max(landed, Ordering::AcqRel);
        flushed
    }

    /// Writes the times of `inode` into its inode, if its content was changed: what it is then, and
    /// which version it had before.
    pub(crate) fn store_times(
        &self,
        inode: &Inode,
        writable: &Writable,
    ) -> Result<Option<(u64, InodeEdit)>, Error> {
        if writable.pages().times.modified.is_none() {
            Ok(None)
        } else {
            self.store_all_times(inode, writable)
        }
    }

    /// The same, also if it was only read.
    pub(crate) fn store_all_times(
        &self,
        inode: &Inode,
        writable: &Writable,
    ) -> Result<Option<(u64, InodeEdit)>, Error> {
        let mut times = writable.pages().times;
        if times.is_empty() {
            return Ok(None);
        }
        let changed = self.change(|handle, _| {
            // Its number may be another one's. (It is gone before it is deleted, by changes that
            // come after this one if it is not yet.)
            if writable.is_gone() {
                return Ok(None);
            }
            let mut edit = handle.load_inode(inode.ino)?;
            times = writable.pages().times;
            times.put(&mut edit);
            handle.store_inode(&edit, false)?;
            if inode.file_type == FileType::Regular {
                handle.fast_eligible();
            }
            Ok(Some((inode.version(), edit)))
        })?;
        writable.pages().times.stored(times);
        Ok(changed)
    }

    /// Makes room for writers to `inode`: pages of it, or of others, are clean then.
    pub(crate) fn make_clean(&self, inode: &Arc<Inode>) -> Result<(), Error> {
        let writer = self.writer()?;
        self.write_back(inode, ALL)?;
        if writer.dirty_pages() > writer.dirty_most / 2 { self.write_back_all() } else { Ok(()) }
    }

    /// Makes room on the disk, if there may be any: what is promised and not needed, and what waits
    /// for a commit.
    pub(crate) fn make_room(&self) -> Result<(), Error> {
        self.write_back_all()?;
        self.commit_whole(self.writer()?.last_sequence())
    }

    /// Makes everything durable.
    pub(crate) fn sync_all(&self) -> Result<(), Error> {
        let Some(writer) = &self.writer else { return Ok(()) };
        let written = self.write_back_all();
        self.commit_whole(writer.last_sequence())?;
        if self.contexts.info().volatile_write_cache {
            self.contexts.take()?.flush()?;
        }
        written
    }
}

impl File {
    fn sync(&self, data_only: bool) -> Result<(), Error> {
        let node = self.node();
        let Some(writable) = &node.inode.writable else { return Ok(()) };
        let synced = node.mount.fsync(&node.inode, data_only);
        // Of what failed before, too, and once.
        let failed = writable.failed_since(&self.failures_seen);
        synced.and(failed)
    }

    /// Makes content and metadata durable (`fsync`).
    ///
    /// # Errors
    /// What could not be written since this file was opened, or last told; once.
    pub fn sync_all(&self) -> Result<(), Error> {
        self.sync(false)
    }

    /// Makes the content durable, and what of the metadata is needed to find it (`fdatasync`).
    ///
    /// # Errors
    /// As [`sync_all`](Self::sync_all).
    pub fn sync_data(&self) -> Result<(), Error> {
        self.sync(true)
    }

    /// Writes back what is dirty of `range` (in bytes), and waits for it; no metadata, and no flush
    /// of the device's cache: it is not durable after a power cut (`sync_file_range`).
    ///
    /// # Errors
    /// As [`sync_all`](Self::sync_all).
    pub fn sync_range(&self, range: Range<u64>) -> Result<(), Error> {
        let node = self.node();
        let Some(writable) = &node.inode.writable else { return Ok(()) };
        let settled = node
            .mount
            .settle(&node.inode, range.start / PAGE..range.end.div_ceil(PAGE_BYTES as u64));
        settled.and(writable.failed_since(&self.failures_seen))
    }
}
