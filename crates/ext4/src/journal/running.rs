//! How changes are added to the running transaction.

use super::handle::{Handle, time_now};
use super::ordered::OrderedToken;
use super::ordered_io;
use super::sequence::Sequence;
use super::state::Journal;
use crate::{Error, Result};
use meantime_ext4_format::Source;

/// How often the metadata that a change needs are read without the lock. A change that needs more
/// reads is made with the lock, since each read repeats the work before it.
const READS_OUTSIDE: u32 = 16;

impl Journal {
    /// Changes metadata by `work`, as a whole if that succeeds and not at all if it fails. Returns
    /// the transaction that has the change; `commit` of that transaction makes it durable.
    /// [`Sequence`] 0 means that nothing was changed.
    ///
    /// Changes are made one at a time. The caller has no channel of this mount and no page of a
    /// cache locked, and `work` waits for nothing but the device. `work` is called again if it
    /// needs metadata that are not in memory, which are read while other threads make changes.
    ///
    /// # Errors
    /// The errors of `work`. Fails also if the change does not fit the journal, or if the journal
    /// has failed earlier.
    pub fn change<T>(
        &self,
        work: impl FnMut(&mut Handle<'_>) -> Result<T>,
    ) -> Result<(T, Sequence)> {
        let (result, sequence, _) = self.change_by(work, false)?;
        Ok((result, sequence))
    }

    /// Makes a change that makes blocks reachable whose data are yet to be written. Its transaction
    /// does not commit before the token has [ended](OrderedToken::end).
    ///
    /// # Errors
    /// The errors of [`change`](Self::change).
    pub fn change_with_data<T>(
        &self,
        work: impl FnMut(&mut Handle<'_>) -> Result<T>,
    ) -> Result<(T, Sequence, OrderedToken)> {
        let (result, sequence, token) = self.change_by(work, true)?;
        Ok((result, sequence, token.ok_or(Error::Invalid("there is no token"))?))
    }

    fn change_by<T>(
        &self,
        mut work: impl FnMut(&mut Handle<'_>) -> Result<T>,
        with_data: bool,
    ) -> Result<(T, Sequence, Option<OrderedToken>)> {
        self.usable()?;
        let mut reads_left = READS_OUTSIDE;
        let (mut open, result, (changes, left)) = loop {
            let mut open = self.opened();
            let memory = self.volume.source().in_memory();
            let base: &(dyn Source + Sync) =
                if reads_left > 0 { &memory } else { self.volume.source() };
            let volume = self.volume.with_source(());
            let mut handle = Handle::new(volume, base, &self.held, &self.orphans, time_now())
                .with_copies(open.prepared.take());
            if !self.fast {
                handle.fast_ineligible();
            }
            let result = work(&mut handle);
            let parts = handle.into_parts();
            if !memory.is_missing() {
                break (open, result?, parts);
            }
            // Whatever the result of `work`, it has not seen all the metadata that there are.
            open.prepared.recycle(parts.1, Vec::new());
            drop(open);
            // The change fails with an error of the device if it still needs what could not be
            // read.
            reads_left = if memory.read_missing() { reads_left - 1 } else { 0 };
        };
        let untouched =
            changes.blocks.is_empty() && changes.forgotten.is_empty() && changes.freed.is_empty();
        if untouched && !with_data {
            open.prepared.recycle(left, Vec::new());
            return Ok((result, Sequence(0), None));
        }
        if changes.blocks.len() > self.blocks_most || changes.forgotten.len() > self.revoked_most {
            return Err(Error::Resources("the journal is too small for the change".to_owned()));
        }
        let running = &open.running;
        if running.blocks_with(&changes) > self.blocks_most
            || running.revoked_with(&changes) > self.revoked_most
        {
            open.close();
        }
        let sequence = open.running.sequence;
        let replaced = open.running.merge(&changes);
        open.changes += 1;
        let observer = self.observer.get();
        if let Some(observer) = observer {
            observer.coming(&changes, sequence);
        }
        let newer_blocks = self.volume.source().newer_blocks();
        drop(newer_blocks.publish(&changes.blocks, &changes.forgotten, || {
            observer.map(|observer| observer.visible(&changes))
        }));
        for freed in &changes.freed {
            ordered_io::hold(&self.held, freed.clone(), sequence);
        }
        self.orphans.completed(&changes.orphans);
        if let Some(observer) = observer {
            observer.done(&changes);
        }
        open.prepared.changed(changes.blocks);
        open.prepared.recycle(left, replaced);
        // Rule 2: the token is made before the lock is released, so no transaction closes in
        // between.
        let token = with_data.then(|| open.running.ordered.token());
        let closed = !open.closed.is_empty();
        drop(open);
        if closed {
            self.commit_closed_without_wait();
        }
        Ok((result, sequence, token))
    }
}
