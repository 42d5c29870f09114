//! Makes writes durable.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::back::Writeback;
use super::sending::Sending;
use crate::cache::PAGE;
use crate::error::{Error, Result};
use crate::file::File;
use crate::inode::attributes::Attributes;
use crate::inode::shared::Inode;
use crate::inode::writable::{Wanted, Writable};
use crate::io::{Durability, IoContext, cache_lost};
use crate::journal::{self, Before, Sequence};

/// All pages of a file.
pub(super) const ALL: Range<u64> = 0..u64::MAX;

impl Writeback<'_> {
    /// Makes `inode` durable: its content, the metadata that are needed to find it, and, unless
    /// `data_only`, the rest of the inode.
    ///
    /// # Errors
    /// A write, a commit or a FLUSH that failed in this call.
    pub(crate) fn fsync(&self, inode: &Arc<Inode>, data_only: bool) -> Result<()> {
        self.rw_mount.usable()?;
        let Some(writable) = &inode.writable else { return Ok(()) };
        self.contexts.group().arrive();
        let mut committed = Sequence(0);
        if let Some(wanted) = self.snapshot_dirty(writable, ALL) {
            // Pages that are dirtied from now on are not wanted, so the loop ends. It repeats only
            // for pages whose write by another thread failed, or was followed by another one.
            loop {
                let upto = self.write_and_commit(inode, writable, &wanted, data_only)?;
                committed = committed.max(upto);
                if !self.wait_in_flight(writable, &wanted) {
                    break;
                }
            }
        }
        if !data_only {
            Attributes { rw_mount: self.rw_mount, inode, writable }.store_times()?;
        }
        // Times, and what other threads wrote back, are not part of the commits above.
        let upto = writable.sequence(data_only);
        if upto > committed {
            match self.rw_mount.journal_thread() {
                Some(thread) => thread.commit(&self.rw_mount.journal, upto)?,
                None => self.rw_mount.commit(upto)?,
            }
        }
        self.flush_data(writable)
    }

    /// Writes the pages of `inode` that are `wanted`, except those that other threads have in
    /// flight, and commits with the last batch. Returns the last transaction that was committed.
    fn write_and_commit(
        &self,
        inode: &Arc<Inode>,
        writable: &Writable,
        wanted: &Wanted,
        data_only: bool,
    ) -> Result<Sequence> {
        let mut committed = Sequence(0);
        let mut remaining = wanted.clone();
        // Collect and allocate.
        while let Some(batch) = self.begin_batch(inode, &remaining, !data_only)? {
            self.go_on_after(&mut remaining, &batch);
            let more = writable.pages().are_dirty(&remaining);
            let (mut written, mut result) = (Ok(()), Ok(()));
            let failed = |_: &Inode, error| written = Err(error);
            self.send_batch(batch, failed, |io, sending| {
                let upto = writable.sequence(data_only);
                let overlaps = !more && self.commits_beside && upto > Sequence(0);
                if overlaps && !sending.converts() && !io.is_spare() {
                    committed = upto;
                    result = self.commit_with(upto, io, sending);
                }
            });
            written?;
            result?;
        }
        Ok(committed)
    }

    /// Commits everything up to transaction `upto`, while the data that the same context is
    /// `sending` are in flight.
    fn commit_with(
        &self,
        upto: Sequence,
        io: &mut IoContext,
        sending: &mut Sending<'_>,
    ) -> Result<()> {
        self.rw_mount.usable()?;
        let journal = &self.rw_mount.journal;
        journal.reach(journal.target(upto), io, sending)
    }

    /// Rule 18: flushes data that only overwrote others from the device's cache, unless a commit
    /// has flushed them since.
    fn flush_data(&self, writable: &Writable) -> Result<()> {
        let flush_needed = writable.flush_needed.load(Ordering::Acquire);
        if !self.contexts.info().volatile_write_cache
            || writable.flushed.load(Ordering::Acquire) >= flush_needed
        {
            return Ok(());
        }
        let flushed = match self.contexts.flushes().durability(flush_needed) {
            Durability::Durable => Ok(()),
            Durability::Open => journal::flush(&mut *self.contexts.take()?, Before::Return),
            Durability::Unknown => Err(Error::from_io(cache_lost())),
        };
        // Noted before `flushed` changes: a thread that skips this flush reports the failure.
        if let Err(error) = &flushed {
            writable.fail(error.clone());
        }
        // Once, whatever the result: each open file reports a failure, and there is nothing to
        // write again.
        writable.flushed.fetch_max(flush_needed, Ordering::AcqRel);
        flushed
    }

    /// Makes pages of `inode`, or of other files, clean, so that writers to `inode` can continue.
    pub(crate) fn make_clean(&self, inode: &Arc<Inode>) -> Result<()> {
        let rw_mount = self.rw_mount;
        rw_mount.usable()?;
        let Some(writable) = &inode.writable else { return Ok(()) };
        let wanted = self.snapshot_dirty(writable, ALL);
        wanted.map_or(Ok(()), |wanted| self.write_back(inode, &wanted))?;
        let is_most = rw_mount.dirty_pages() > rw_mount.dirty_most / 2;
        if is_most { self.write_back_all() } else { Ok(()) }
    }

    /// Makes space on the disk, if possible: unneeded promises are released, and blocks that wait
    /// for a commit are freed.
    pub(crate) fn make_room(&self) -> Result<()> {
        self.write_back_all()?;
        self.rw_mount.usable()?;
        self.rw_mount.commit_whole(self.rw_mount.last_sequence())
    }

    /// Makes everything durable.
    pub(crate) fn sync_everything(&self) -> Result<()> {
        let written = self.write_back_all();
        self.rw_mount.commit_whole(self.rw_mount.last_sequence())?;
        if self.contexts.info().volatile_write_cache {
            self.contexts.take()?.flush()?;
        }
        written
    }
}

impl File {
    fn sync(&self, data_only: bool) -> Result<()> {
        let node = self.node();
        let Some(writable) = &node.inode.writable else { return Ok(()) };
        let synced = Writeback::of(&node.mount)?.fsync(&node.inode, data_only);
        // Reports earlier failures as well, and each once.
        let failed = writable.failed_since(&self.failures_seen);
        synced.and(failed)
    }

    /// Makes content and metadata durable (`fsync`).
    ///
    /// # Errors
    /// A commit or FLUSH that failed in this call, or a write that failed since this file was
    /// opened or last reported one. Each failed write is reported once. [`Error::Aborted`] in every
    /// call after the journal has failed.
    pub fn sync_all(&self) -> Result<()> {
        self.sync(false)
    }

    /// Makes the content durable, with the metadata that are needed to find it (`fdatasync`).
    ///
    /// # Errors
    /// A commit or FLUSH that failed in this call, or a write that failed since this file was
    /// opened or last reported one. Each failed write is reported once. [`Error::Aborted`] in every
    /// call after the journal has failed.
    pub fn sync_data(&self) -> Result<()> {
        self.sync(true)
    }

    /// Writes back the dirty pages of `range` (in bytes), and waits for them. It commits no
    /// metadata and does not flush the device's cache: a power cut may lose the data
    /// (`sync_file_range`).
    ///
    /// # Errors
    /// A write that failed since this file was opened or last reported one. Each is reported once.
    pub fn sync_range(&self, range: Range<u64>) -> Result<()> {
        let node = self.node();
        let Some(writable) = &node.inode.writable else { return Ok(()) };
        let pages = range.start / PAGE..range.end.div_ceil(PAGE);
        let written = Writeback::of(&node.mount)?.write_back_and_wait(&node.inode, pages);
        written.and(writable.failed_since(&self.failures_seen))
    }
}
