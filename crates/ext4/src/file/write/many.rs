//! Writeback of many files at once: for a sync, for the mount's thread, and to make room.
//!
//! A [batch](super::back) has pages of up to [`FILES_MOST`] files. One change of metadata places
//! them all, so they have one token; if it fails, each file is placed alone. All requests are in
//! flight together. While pages of several files are in flight, the thread waits only for the
//! device and for changes of metadata. Pages that other threads have in flight are left to
//! [`write_back_one`](Writeback::write_back_one), which has none in flight itself when it waits.

use std::sync::Arc;

use super::back::{BATCH_PAGES, Batch, CollectedPages, Writeback};
use super::fsync::ALL;
use crate::error::{Error, Result};
use crate::inode::attributes::Attributes;
use crate::inode::shared::Inode;
use crate::inode::writable::Stamp;

/// Maximum number of files of a batch.
const FILES_MOST: usize = 128;

/// Number of runs of blocks from which on a batch gets no further file: each may become an extent,
/// and a change of metadata must not have too many of them.
const RUNS_MANY: usize = 128;

/// A file, by its address, and the error of its write.
type Failed = (*const Inode, Error);

impl Writeback<'_> {
    /// Writes back everything that is dirty now, and waits for it.
    ///
    /// # Errors
    /// The first failed write; the other files are written all the same.
    pub(crate) fn write_back_all(&self) -> Result<()> {
        self.write_back_many(&self.rw_mount.kept())
    }

    /// Writes back all pages and times of `files` that are newer than the disk now. Files to which
    /// no thread writes meanwhile need not be kept then.
    ///
    /// # Errors
    /// The first failed write; the other files are written all the same.
    pub(crate) fn write_back_many(&self, files: &[Arc<Inode>]) -> Result<()> {
        let upto = self.rw_mount.advance_stamp();
        let mut result = Ok(());
        let mut remaining = files;
        while !remaining.is_empty() {
            let (count, failed) = self.write_back_some(remaining, upto);
            let (some, more) = remaining.split_at(count);
            for inode in some {
                // A write that has just failed is not repeated.
                let failed = failed.iter().find(|(at, _)| std::ptr::eq(*at, Arc::as_ptr(inode)));
                result = result.and(match failed {
                    Some((_, error))
                        if !inode.writable.as_ref().is_some_and(|writable| writable.is_gone()) =>
                    {
                        Err(error.clone())
                    }
                    _ => self.write_back_one(inode, upto),
                });
            }
            remaining = more;
        }
        result
    }

    /// Writes back pages, dirty since `upto` or earlier, of the first of `files`, as one batch, and
    /// waits for them. Returns the number of these files, at least one, and those of which a write
    /// failed. Each file may have dirty pages left.
    fn write_back_some(&self, files: &[Arc<Inode>], upto: Stamp) -> (usize, Vec<Failed>) {
        let (mut taken, mut count) = (Vec::new(), 0);
        let (mut pages, mut runs) = (0, 0);
        for inode in files {
            if taken.len() >= FILES_MOST || pages >= BATCH_PAGES || runs >= RUNS_MANY {
                break;
            }
            count += 1;
            let wanted =
                inode.writable.as_ref().and_then(|writable| writable.pages().wanted(ALL, upto));
            let Some(wanted) = wanted else { continue };
            if let Ok(Some(some)) = self.take_dirty(inode, &wanted, false) {
                pages += some.part.pages.len();
                runs += some.blocks.len();
                taken.push(some);
            }
        }
        (count, self.write_taken(taken))
    }

    /// Writes back the pages `taken` of several files, and waits for them. If they cannot be
    /// placed, they stay dirty.
    fn write_taken(&self, mut taken: Vec<CollectedPages>) -> Vec<Failed> {
        let mut failed = Vec::new();
        taken.iter_mut().for_each(|some| some.find_overwritten(self));
        let Ok(token) = self.allocate_all(&mut taken) else {
            // The caller writes each file alone, which may succeed.
            taken.into_iter().for_each(CollectedPages::put_back);
            return failed;
        };
        let Some(batch) = Batch::of(taken, token) else { return failed };
        let note = |inode: &Inode, error| failed.push((std::ptr::from_ref(inode), error));
        self.send_batch(batch, note, |_, _| ());
        failed
    }

    /// Writes back the times of `inode`, and its pages that have been dirty since `upto` or
    /// earlier. If it has no others, it need not be kept then.
    pub(crate) fn write_back_one(&self, inode: &Arc<Inode>, upto: Stamp) -> Result<()> {
        let Some(writable) = &inode.writable else { return Ok(()) };
        let wanted = writable.pages().wanted(ALL, upto);
        let written =
            wanted.map_or(Ok(()), |wanted| self.write_back_wanted(inode, writable, &wanted));
        let attributes = Attributes { rw_mount: self.rw_mount, inode, writable };
        match written.and_then(|()| attributes.store_all_times()) {
            // A gone inode has nothing to write, whatever the failure was.
            Err(_) if writable.is_gone() => {}
            result => drop(result?),
        }
        // Under the lock: a sync that begins now finds it among those that are kept, unless it is
        // clean; a thread that makes it dirty later keeps it again.
        let mut pages = writable.pages();
        let is_clean =
            pages.dirty.is_empty() && pages.in_flight.is_empty() && pages.times.is_empty();
        let kept = (is_clean || writable.is_gone()).then(|| self.rw_mount.let_go(inode));
        // What is left was written since.
        pages.since_ns = self.clock.now_ns();
        drop(pages);
        drop(kept);
        Ok(())
    }
}
