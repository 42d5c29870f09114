//! What a mount consists of, and how its metadata are read and changed.

use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, PoisonError};

use super::shared::Inode;
use super::writer::Writer;
use crate::alloc::Allocator;
use crate::bounded::Bounded;
use crate::counters::Counts;
use crate::error::Error;
use crate::io::{DeviceSource, IoContexts};
use crate::journal::{Handle, OrderedToken, Sequence};
use crate::options::MountOptions;
use meantime_ext4_format::{Recovered, Volume};
use meantime_hw::Clock;
use meantime_process::lock::{Mutex, MutexGuard};

/// What a mount consists of.
pub(crate) struct Mount {
    pub(crate) volume: Volume<DeviceSource>,
    pub(crate) contexts: Arc<IoContexts>,
    pub(crate) nodes: Bounded<u32, Arc<Inode>>,
    /// Inodes by the directory's number, in four bytes, and the name.
    pub(crate) names: Bounded<Box<[u8]>, u32>,
    /// How often names were changed: what was looked up before must not be kept after.
    pub(crate) names_changed: Mutex<u64>,
    /// For writing.
    pub(crate) writer: Option<Writer>,
    pub(crate) options: MountOptions,
    /// Log2 of the block size.
    pub(crate) block_shift: u32,
    /// Whether recovery took any block from the journal.
    pub(crate) overlaid: bool,
    pub(crate) recovered: Option<Recovered>,
    pub(crate) counts: Counts,
    pub(crate) clock: Clock,
    /// What an inode has noted whose time of reading need not be looked at.
    pub(crate) access_epoch: AtomicU32,
    /// For now no time of reading is noted.
    pub(crate) access_unnoted: AtomicBool,
    /// Whether the work of the gaps is timed.
    pub(crate) timed: AtomicBool,
}

impl Mount {
    pub(crate) fn lock_names(&self) -> MutexGuard<'_, u64> {
        // A number.
        self.names_changed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn names_changed(&self) -> u64 {
        *self.lock_names()
    }

    /// `name` in directory `parent` leads to `ino` by a change that is complete, and during which
    /// names had been changed `before` times: it is kept, unless another change may have come since
    /// that says otherwise. (One that comes, or has come and has not said so yet, forgets it.)
    pub(crate) fn learn_name(&self, parent: u32, name: &[u8], ino: u32, before: u64) {
        let mut changed = self.lock_names();
        let is_newest = *changed == before;
        *changed += 1;
        let key = [&parent.to_le_bytes()[..], name].concat();
        self.names.remove(&*key);
        if is_newest {
            let weight = key.len() + 64;
            self.names.keep(key.into(), ino, weight);
        }
    }

    /// `name` in directory `parent` is not what it was.
    pub(crate) fn forget_name(&self, parent: u32, name: &[u8]) {
        let mut changed = self.lock_names();
        *changed += 1;
        let key = [&parent.to_le_bytes()[..], name].concat();
        self.names.remove(&*key);
    }
}

impl Mount {
    /// What it takes to change anything.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]: it is mounted for reading, or no more; why the journal has failed.
    pub(crate) fn writer(&self) -> Result<&Writer, Error> {
        let writer = self.writer.as_ref().ok_or(Error::ReadOnly)?;
        writer.usable()?;
        Ok(writer)
    }

    /// What `read` gives: it sees every change altogether, or not at all. (It may be called several
    /// times.)
    pub(crate) fn consistent<T>(&self, read: impl FnMut() -> T) -> T {
        self.volume.source().newest().consistent(read)
    }

    /// Changes metadata by `work`: altogether, or not at all if it fails.
    ///
    /// # Errors
    /// Those of `work`; the journal's.
    pub(crate) fn change<T>(
        &self,
        mut work: impl FnMut(&mut Handle<'_>, &Allocator) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.with_room(|writer| {
            let (result, _) = writer.journal.change(|handle| work(handle, &writer.allocator))?;
            Ok(result)
        })
    }

    /// The same, for a change that makes blocks reachable to which data are yet to be written.
    ///
    /// # Errors
    /// As [`change`](Self::change).
    pub(crate) fn change_with_data<T>(
        &self,
        mut work: impl FnMut(&mut Handle<'_>, &Allocator) -> Result<T, Error>,
    ) -> Result<(T, OrderedToken), Error> {
        self.with_room(|writer| {
            let changed = writer.journal.change_with_data(|handle| work(handle, &writer.allocator));
            let (result, _, token) = changed?;
            Ok((result, token))
        })
    }

    /// Does `change`; if there is no space, and what was freed lately would be some, commits that
    /// and does it again.
    fn with_room<T>(
        &self,
        mut change: impl FnMut(&Writer) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let writer = self.writer()?;
        match change(writer) {
            Err(Error::NoSpace) if writer.allocator.would_commit_help() => {
                self.commit_whole(writer.last_sequence())?;
                change(writer)
            }
            done => done,
        }
    }

    /// Commits everything up to `sequence`, so that what it freed can be used, and the journal's
    /// blocks for fast commits.
    ///
    /// # Errors
    /// As the journal's.
    pub(crate) fn commit_whole(&self, sequence: Sequence) -> Result<(), Error> {
        let Some(writer) = &self.writer else { return Ok(()) };
        let mut io = self.contexts.take()?;
        writer.journal.commit_whole(sequence, &mut io)
    }

    /// Makes everything up to `sequence` durable.
    ///
    /// # Errors
    /// As the journal's.
    pub(crate) fn commit(&self, sequence: Sequence) -> Result<(), Error> {
        let Some(writer) = &self.writer else { return Ok(()) };
        let mut io = self.contexts.take()?;
        writer.journal.commit(sequence, &mut io)
    }
}
