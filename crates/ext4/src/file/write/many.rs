//! Writeback of many files at once: of a sync, of the mount's thread, and to make room.
//!
//! A [batch](super::back) has pages of up to [`FILES_MOST`] files. One change of metadata places
//! them all, so they have one token, and a file that cannot be placed has each be placed alone. All
//! requests are under way together. Nothing is waited for while pages of several files are in
//! flight, except for the device and for changes of metadata: what others have in flight is left to
//! [`write_back_one`](Mount::write_back_one), which holds nothing.

use std::sync::Arc;

use super::back::{BATCH_PAGES, Batch, CollectedPages};
use super::fsync::ALL;
use crate::error::Error;
use crate::inode::Mount;
use crate::inode::shared::Inode;

/// The most files of a batch.
const FILES_MOST: usize = 128;

/// From so many runs of blocks on, a batch has no further file: each may become an extent, of
/// which a change of metadata must not have too many.
const RUNS_MANY: usize = 128;

/// A file, by its address, and what could not be written of it.
type Failed = (*const Inode, Error);

impl Mount {
    /// Writes everything back that is dirty, and waits for it.
    ///
    /// # Errors
    /// The first that could not be written; the others were.
    pub(crate) fn write_back_all(&self) -> Result<(), Error> {
        self.writer.as_ref().map_or(Ok(()), |writer| self.write_back_many(&writer.kept()))
    }

    /// Writes everything of `files` back, their times too; then they need not be kept.
    ///
    /// # Errors
    /// The first that could not be written; the others were.
    pub(crate) fn write_back_many(&self, files: &[Arc<Inode>]) -> Result<(), Error> {
        let mut result = Ok(());
        let mut rest = files;
        while !rest.is_empty() {
            let (count, failed) = self.write_back_some(rest);
            let (some, more) = rest.split_at(count);
            for inode in some {
                // What has just failed is not tried again.
                let failed = failed.iter().find(|(at, _)| std::ptr::eq(*at, Arc::as_ptr(inode)));
                result = result.and(match failed {
                    Some((_, error))
                        if !inode.writable.as_ref().is_some_and(|writable| writable.is_gone()) =>
                    {
                        Err(error.clone())
                    }
                    _ => self.write_back_one(inode),
                });
            }
            rest = more;
        }
        result
    }

    /// Writes back pages of the first of `files`, as one batch, and waits for it: how many files
    /// those are, at least one, and of which something could not be written. Something may be left
    /// of any of them.
    fn write_back_some(&self, files: &[Arc<Inode>]) -> (usize, Vec<Failed>) {
        let (mut taken, mut count) = (Vec::new(), 0);
        let (mut pages, mut runs) = (0, 0);
        for inode in files {
            if taken.len() >= FILES_MOST || pages >= BATCH_PAGES || runs >= RUNS_MANY {
                break;
            }
            count += 1;
            if let Some(some) = self.try_take(inode) {
                pages += some.part.pages.len();
                runs += some.blocks.len();
                taken.push(some);
            }
        }
        (count, self.write_taken(taken))
    }

    /// Writes what was `taken` of several files back, and waits for it. If it cannot be placed, it is
    /// left.
    fn write_taken(&self, mut taken: Vec<CollectedPages>) -> Vec<Failed> {
        let mut failed = Vec::new();
        taken.iter_mut().for_each(|some| some.find_in_place(self));
        let Ok(token) = self.place_all(&mut taken) else {
            // Each alone, perhaps.
            taken.into_iter().for_each(CollectedPages::put_back);
            return failed;
        };
        let Some(batch) = Batch::of(taken, token) else { return failed };
        let note = |inode: &Inode, error| failed.push((std::ptr::from_ref(inode), error));
        let mut sending = self.sending(batch);
        match self.contexts.take_leaf() {
            Ok(mut io) => {
                sending.send(&mut io);
                sending.wait(&mut io);
                drop(io);
                sending.finish_each(note);
            }
            Err(error) => sending.give_up(&error, note),
        }
        failed
    }

    /// Writes everything of `inode` back, its times too; then it need not be kept.
    pub(crate) fn write_back_one(&self, inode: &Arc<Inode>) -> Result<(), Error> {
        let (Some(writer), Some(writable)) = (&self.writer, &inode.writable) else { return Ok(()) };
        match self.settle(inode, ALL).and_then(|()| self.store_all_times(inode, writable)) {
            // There is nothing to be written of it, whatever was found in its place.
            Err(_) if writable.is_gone() => {}
            written => drop(written?),
        }
        // Before it is looked at: whoever makes it dirty from now on keeps it again.
        let kept = writer.let_go(inode);
        let pages = writable.pages();
        if writable.is_gone() {
            // Nobody makes it dirty any more.
        } else if !pages.dirty.is_empty() || !pages.in_flight.is_empty() || !pages.times.is_empty()
        {
            drop(pages);
            writer.keep(inode);
        }
        drop(kept);
        Ok(())
    }
}
