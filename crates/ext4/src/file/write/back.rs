//! Writeback: dirty pages get their blocks, and go to the device.
//!
//! A batch has pages of one file, or of [several](super::many). It is made in four steps. *Take*:
//! pages leave the list of dirty ones and are in flight, so that each is in one batch at a time,
//! and a thread that takes blocks away can wait for them. *Allocate* (`allocate_all`): one change of
//! metadata allocates the missing blocks, and sets each file's size to what it is with them. Its
//! transaction does not commit before the data are on the device. [*Send*](super::sending): each
//! page is copied for the device. From then on it can be written again, and is dirty once more if
//! it is. *Finish*: preallocated blocks become data, and the pages are clean. With these steps in
//! order, no reader sees a block of the file that does not have its data yet: the pages stay in the
//! cache until then.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use crate::alloc::{AllocHandle, Reservation, Want};
use crate::cache::PAGE;
use crate::error::{Error, Result};
use crate::inode::attributes::Attributes;
use crate::inode::extents::Blocks;
use crate::inode::shared::{Inode, Snapshot};
use crate::inode::times::Times;
use crate::inode::units::Units;
use crate::inode::writable::{Dirty, Pages, Stamp, Wanted, Writable};
use crate::inode::{Mount, WritableMount};
use crate::io::{DeviceSource, IoContexts};
use crate::journal::OrderedToken;
use crate::ops::{extents, orphans};
use crate::space::Who;
use meantime_ext4_format::edit::InodeEdit;
use meantime_ext4_format::{MappedExtent, RunState, Volume};
use meantime_hw::Clock;
use meantime_process::lock::{MutexGuard, Rank, check_may_wait};

/// Maximum number of pages of a batch.
pub(super) const BATCH_PAGES: usize = 1024;

/// Maximum number of runs of pages of a batch: each may become an extent, and a change of metadata
/// must not have too many of them.
const BATCH_STRETCHES: usize = 24;

/// Attempts to find a file unchanged, before it is kept from changes.
const TRIES: u32 = 16;

/// A run of blocks, contiguous in the file and on the device.
#[derive(Debug, Clone, Copy)]
pub(super) struct WriteRun {
    pub(super) logical: u64,
    pub(super) blocks: u64,
    pub(super) physical: u64,
    /// Whether each block has to be written as a whole: it has no data yet.
    pub(super) whole: bool,
    /// Whether the blocks become data (written extents) when they are on the device.
    pub(super) unwritten: bool,
}

/// Pages of one file that are in flight.
pub(super) struct FilePart {
    pub(super) inode: Arc<Inode>,
    /// The pages in order, each with the mask of its blocks.
    pub(super) pages: Vec<(u64, u8)>,
    pub(super) runs: Vec<WriteRun>,
    /// Whether everything overwrites data that the disk has: no transaction waits for it.
    pub(super) overwrites_only: bool,
    /// End in bytes up to which the file's size grows when the unwritten runs become data.
    pub(super) reaches: Option<u64>,
    /// The inode's version before the batch's change of metadata, and the inode after it.
    pub(super) changed: Option<(u64, InodeEdit)>,
}

/// Pages of one or several files that are in flight.
pub(crate) struct Batch {
    pub(super) first: FilePart,
    pub(super) others: Vec<FilePart>,
    /// Token for all parts but those that only overwrite data.
    pub(super) token: Option<OrderedToken>,
}

/// Pages of one file that were taken and have no blocks assigned yet.
pub(super) struct CollectedPages {
    pub(super) part: FilePart,
    snapshot: Arc<Snapshot>,
    /// Blocks to be written.
    pub(super) blocks: Vec<Range<u64>>,
    /// Those of them that have to be allocated, and the promise of space for them.
    delayed: Vec<u64>,
    promised: Option<Reservation>,
    /// Times that the change stores in the inode.
    times: Times,
}

/// What writes dirty pages back: the parts of a mount for writing that this needs. It knows neither
/// names nor the cached inodes: its callers say which inodes.
pub(crate) struct Writeback<'a> {
    /// The pages, and the way to the device.
    pub(super) contexts: &'a IoContexts,
    /// The journal, the allocator, and the files that are newer than the disk.
    pub(super) rw_mount: &'a WritableMount,
    /// What inodes are read from.
    pub(super) volume: &'a Volume<DeviceSource>,
    pub(super) clock: &'a Clock,
    pub(super) units: Units,
    /// Whether a commit begins while the data that it waits for are in flight.
    pub(super) commits_beside: bool,
}

impl<'a> Writeback<'a> {
    /// Returns the writeback of `mount`.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]: mounted for reading.
    pub(crate) fn of(mount: &'a Mount) -> Result<Self> {
        Ok(Self {
            contexts: &mount.contexts,
            rw_mount: mount.rw_mount.as_ref().ok_or(Error::ReadOnly)?,
            volume: &mount.volume,
            clock: &mount.clock,
            units: mount.units(),
            commits_beside: mount.options.commit_overlap.caller_commits,
        })
    }

    /// Takes dirty pages of `inode` that are `wanted`, and places them; the change of metadata
    /// stores the inode's times, too. With `with_times`, the times are stored even if nothing else
    /// changes. `None`: there are no such pages, or only ones whose block another thread has in
    /// flight.
    ///
    /// # Errors
    /// Those of the change of metadata. The pages are dirty again.
    pub(crate) fn begin_batch(
        &self,
        inode: &Arc<Inode>,
        wanted: &Wanted,
        with_times: bool,
    ) -> Result<Option<Batch>> {
        let Some(mut taken) = self.take_dirty(inode, wanted, true)? else { return Ok(None) };
        taken.find_overwritten(self);
        let placed = match (&inode.writable, taken.part.overwrites_only) {
            (_, false) => self.allocate_all(std::slice::from_mut(&mut taken)),
            // The times are all that changes in the metadata.
            (Some(writable), true) if with_times => {
                Attributes { rw_mount: self.rw_mount, inode, writable }.store_times().map(|times| {
                    taken.part.changed = times;
                    None
                })
            }
            _ => Ok(None),
        };
        match placed {
            Ok(token) => Ok(Some(Batch { first: taken.part, others: Vec::new(), token })),
            Err(error) => {
                taken.put_back();
                Err(error)
            }
        }
    }

    /// Returns whether the file grows while the page in which it ends on the disk is in flight. The
    /// cache has zeroes past that end, which must reach the disk first (rule 2). They were
    /// dirtied before any page after them, so no flight of them is newer than what is `wanted`:
    /// waiting for that covers them.
    fn waits_for_end(&self, inode: &Inode, size: u64, pages: &Pages, wanted: &Wanted) -> bool {
        let in_end = Wanted { range: end_pages(size, &self.units), ..*wanted };
        inode.size() > size && pages.are_in_flight(&in_end)
    }

    /// Takes dirty pages of `inode` that are `wanted`. `None`: there are none, or only ones whose
    /// block another thread has in flight; without `may_wait` also if it would have to wait.
    ///
    /// # Errors
    /// The inode cannot be read.
    pub(super) fn take_dirty(
        &self,
        inode: &Arc<Inode>,
        wanted: &Wanted,
        may_wait: bool,
    ) -> Result<Option<CollectedPages>> {
        let Some(writable) = &inode.writable else { return Ok(None) };
        let units = self.units;
        // One thread at a time has all dirty pages of a block, because a thread that finds the
        // block without data writes all of it.
        let wanted = Wanted { range: units.whole_blocks(wanted.range.clone()), ..*wanted };
        if writable.pages().dirty.is_empty() {
            return Ok(None);
        }
        if may_wait {
            check_may_wait(Rank::PagesInFlight);
        }
        for tries in 0.. {
            // Of a file that keeps changing, blocks are kept from being taken away.
            let kept = (may_wait && tries >= TRIES).then(|| writable.keep_blocks());
            let version = inode.version();
            let snapshot = inode.snapshot(self.volume)?;
            let mut pages = writable.pages();
            while self.waits_for_end(inode, snapshot.metadata.size, &pages, &wanted) {
                // Other threads may meanwhile take all that is wanted.
                if !may_wait || pages.idle(&wanted, &units).next().is_none() {
                    return Ok(None);
                }
                pages = writable.wait(pages);
            }
            // Otherwise blocks may have been taken away since, and their pages dirtied again: these
            // would be written to the old blocks. Blocks of pages in flight are not taken away.
            if kept.is_some() || inode.version() == version {
                return Ok(self.take(inode, snapshot, pages, &wanted));
            } else if !may_wait {
                break;
            }
        }
        Ok(None)
    }

    /// Takes as many of the dirty `pages` of `inode` that are `wanted`, which are whole blocks, as
    /// a batch may have, except those in flight. `snapshot` is the current inode. `None`: there are
    /// none.
    #[inline]
    fn take(
        &self,
        inode: &Arc<Inode>,
        snapshot: Arc<Snapshot>,
        mut pages: MutexGuard<'_, Pages>,
        wanted: &Wanted,
    ) -> Option<CollectedPages> {
        let units = self.units;
        // The page of the disk's end goes first if the file grows, even if it was not dirty when
        // the caller began.
        let end = end_pages(snapshot.metadata.size, &units);
        let Range { start, end: until } = wanted.range;
        let within = |range: Range<u64>| Wanted { range, ..*wanted };
        let after = within(end.end.clamp(start, until)..until);
        let grows = !end.is_empty() && pages.idle(&after, &units).next().is_some();
        let (before, end, after) = if grows {
            (within(start..end.start.clamp(start, until)), end, after)
        } else {
            (wanted.clone(), 0..0, within(0..0))
        };
        let in_end = pages.dirty.range(end).map(|(index, _)| *index);
        let in_end = in_end.filter(|index| pages.is_idle(*index, &units));
        let free = pages.idle(&before, &units).chain(in_end).chain(pages.idle(&after, &units));
        let mut indices: Vec<u64> = Vec::new();
        let mut runs = 0;
        for index in free {
            let last = indices.last();
            if last.is_none_or(|last| last + 1 != index) {
                runs += 1;
            }
            let is_full = indices.len() >= BATCH_PAGES || runs > BATCH_STRETCHES;
            if is_full && last.is_none_or(|last| !units.block_pages(*last).contains(&index)) {
                break;
            }
            indices.push(index);
        }
        if indices.is_empty() {
            return None;
        }
        let mut all = Vec::with_capacity(indices.len());
        let mut blocks: Vec<Range<u64>> = Vec::new();
        let mut delayed = Vec::new();
        let size = inode.size();
        for index in indices {
            let Some(Dirty { mask, since }) = pages.dirty.remove(&index) else { continue };
            pages.in_flight.insert(index, since);
            all.push((index, mask));
            let first = index * units.per_page / units.per_block;
            for block in (0..units.per_page).filter(|n| mask >> n & 1 == 1).map(|n| first + n) {
                // The block is past the end, because the file was truncated. It is zeroes in the
                // cache, and needs no place on the disk.
                if block << units.shift >= size {
                    if pages.delayed.remove(&block) {
                        delayed.push(block);
                    }
                    continue;
                }
                match blocks.last_mut() {
                    Some(last) if last.end == block => last.end += 1,
                    // Another page of the same block.
                    Some(last) if last.contains(&block) => {}
                    _ => blocks.push(block..block + 1),
                }
                if pages.delayed.remove(&block) {
                    delayed.push(block);
                }
            }
        }
        let wanted = delayed.len() as u64;
        // Usually this is the whole promise.
        let promised = pages.reservation.take_if(|promise| promise.blocks() == wanted);
        let promised = promised.or_else(|| Some(pages.reservation.as_mut()?.split(wanted)));
        drop(pages);
        let part = FilePart {
            inode: Arc::clone(inode),
            pages: all,
            runs: Vec::new(),
            overwrites_only: false,
            reaches: None,
            changed: None,
        };
        Some(CollectedPages { part, snapshot, blocks, delayed, promised, times: Times::default() })
    }

    /// Places all taken pages by one change, which stores the inodes' times, too. Returns the token
    /// of those that do not only overwrite data, if there are any.
    ///
    /// # Errors
    /// Those of the change. No page is placed.
    pub(super) fn allocate_all(&self, all: &mut [CollectedPages]) -> Result<Option<OrderedToken>> {
        let with_data = all.iter().any(|taken| !taken.part.overwrites_only);
        let is_anything = with_data || all.iter().any(CollectedPages::has_times);
        if !is_anything {
            return Ok(None);
        }
        let work = |handle: &mut AllocHandle<'_, '_>| {
            all.iter_mut().try_for_each(|taken| taken.allocate(&self.units, handle))
        };
        let token = match with_data {
            true => Some(self.rw_mount.change_with_data(work)?.1),
            false => {
                self.rw_mount.change(work)?;
                None
            }
        };
        for taken in all {
            if let Some(writable) = &taken.part.inode.writable {
                writable.pages().times.stored(taken.times);
            }
        }
        Ok(token)
    }

    /// Writes back the pages of `inode` that are `wanted`, and waits for them. It does not wait for
    /// what other threads have in flight.
    ///
    /// # Errors
    /// The first failed write; its pages stay dirty.
    pub(crate) fn write_back(&self, inode: &Arc<Inode>, wanted: &Wanted) -> Result<()> {
        let mut remaining = wanted.clone();
        while let Some(batch) = self.begin_batch(inode, &remaining, false)? {
            self.go_on_after(&mut remaining, &batch);
            let mut written = Ok(());
            self.send_batch(batch, |_, error| written = Err(error), |_, _| ());
            written?;
        }
        Ok(())
    }

    /// Leaves in `remaining` the pages that come after those of `batch`. (Only the page of the
    /// disk's end may come before them.)
    pub(crate) fn go_on_after(&self, remaining: &mut Wanted, batch: &Batch) {
        remaining.range.start = remaining.range.start.max(self.units.block_pages(batch.last()).end);
    }

    /// Waits until no page that is `wanted` is in flight. Returns whether some have to be written
    /// after that: they were written again while another thread had them in flight, or that thread
    /// put them back.
    pub(crate) fn wait_in_flight(&self, writable: &Writable, wanted: &Wanted) -> bool {
        check_may_wait(Rank::PagesInFlight);
        let mut pages = writable.pages();
        while pages.are_in_flight(wanted) {
            pages = writable.wait(pages);
        }
        pages.are_dirty(wanted)
    }

    /// Returns the pages in `range` that are dirty or in flight now; `None`: there are none.
    pub(super) fn snapshot_dirty(&self, writable: &Writable, range: Range<u64>) -> Option<Wanted> {
        // A page waits for the other pages of its block that are in flight.
        let range = self.units.whole_blocks(range);
        let wanted = writable.pages().wanted(range, Stamp(0))?;
        Some(Wanted { upto: self.rw_mount.advance_stamp(), ..wanted })
    }

    /// Writes back the pages in `range` of `inode` that are dirty now, and waits until all of them
    /// are on the device, also those that other threads write. What other threads write to the file
    /// meanwhile is left dirty; if the caller has the content locked, none of the pages is dirty or
    /// in flight afterwards.
    ///
    /// # Errors
    /// The first failed write; its pages stay dirty.
    pub(crate) fn write_back_and_wait(&self, inode: &Arc<Inode>, range: Range<u64>) -> Result<()> {
        let Some(writable) = &inode.writable else { return Ok(()) };
        let wanted = self.snapshot_dirty(writable, range);
        wanted.map_or(Ok(()), |wanted| self.write_back_wanted(inode, writable, &wanted))
    }

    /// Writes back the pages of `inode` that are `wanted`, and waits until all of them are on the
    /// device, also those that other threads write.
    ///
    /// # Errors
    /// The first failed write; its pages stay dirty.
    pub(super) fn write_back_wanted(
        &self,
        inode: &Arc<Inode>,
        writable: &Writable,
        wanted: &Wanted,
    ) -> Result<()> {
        loop {
            self.write_back(inode, wanted)?;
            // Nothing that is written from now on is wanted. So each turn leaves fewer pages, but
            // for those that other threads could not write, and a write that fails here ends this.
            if !self.wait_in_flight(writable, wanted) {
                return Ok(());
            }
        }
    }

    /// Drops the dirty pages in `range` of `inode`. Afterwards none of `range` is in the cache or
    /// in flight. The caller has the content locked.
    pub(crate) fn drop_pages(&self, inode: &Inode, range: Range<u64>) {
        let Some(writable) = &inode.writable else { return };
        let (cache, file, units) = (self.contexts.cache(), u64::from(inode.ino), self.units);
        let mut gone = BTreeSet::new();
        check_may_wait(Rank::PagesInFlight);
        let mut pages = writable.pages();
        loop {
            let dropped: Vec<u64> =
                pages.dirty.range(range.clone()).map(|(index, _)| *index).collect();
            for index in &dropped {
                pages.dirty.remove(index);
                // (A page in flight is subtracted by its writeback.)
                if !pages.in_flight.contains_key(index) {
                    self.rw_mount.fewer_dirty(1);
                }
            }
            gone.extend(dropped);
            // Pages whose write fails are dirty again, and dropped in the next turn.
            if pages.in_flight.range(range.clone()).next().is_none() {
                break;
            }
            pages = writable.wait(pages);
        }
        for index in gone {
            cache.discard(file, index);
        }
        let first = (range.start * units.per_page).div_ceil(units.per_block);
        let end = range.end.saturating_mul(units.per_page) / units.per_block;
        let delayed: Vec<u64> = pages.delayed.range(first..end.max(first)).copied().collect();
        for block in &delayed {
            pages.delayed.remove(block);
        }
        if let Some(promise) = &mut pages.reservation {
            promise.release(delayed.len() as u64);
        }
        drop(pages);
        cache.invalidate(file, range);
    }
}

impl Pages {
    /// Returns the dirty pages that are `wanted`, with the other pages of their blocks.
    fn to_write(&self, wanted: &Wanted, units: &Units) -> impl Iterator<Item = u64> {
        let is_old = |dirty: &Dirty| dirty.since <= wanted.upto;
        let goes_along = move |index: u64| {
            let mut block = self.dirty.range(units.block_pages(index));
            units.per_block > 1 && block.any(|(_, dirty)| is_old(dirty))
        };
        let dirty = self.dirty.range(wanted.range.clone());
        let dirty = dirty.filter(move |(index, dirty)| is_old(dirty) || goes_along(**index));
        dirty.map(|(index, _)| *index)
    }

    /// Returns whether no page of the block of page `index` is in flight.
    fn is_idle(&self, index: u64, units: &Units) -> bool {
        self.in_flight.range(units.block_pages(index)).next().is_none()
    }

    /// Returns those of them whose block is not in flight.
    fn idle(&self, wanted: &Wanted, units: &Units) -> impl Iterator<Item = u64> {
        self.to_write(wanted, units).filter(|index| self.is_idle(*index, units))
    }
}

/// Returns the pages of the block in which `size` lies, unless it is at the block's beginning.
fn end_pages(size: u64, units: &Units) -> Range<u64> {
    let unit = units.unit();
    if size.is_multiple_of(unit) {
        return 0..0;
    }
    size / unit * unit / PAGE..(size / unit + 1) * unit / PAGE
}

/// Adds `next` to `runs`, or extends the last run.
fn push(runs: &mut Vec<WriteRun>, next: WriteRun) {
    if let Some(last) = runs.last_mut()
        && last.logical + last.blocks == next.logical
        && last.physical + last.blocks == next.physical
        && (last.whole, last.unwritten) == (next.whole, next.unwritten)
    {
        last.blocks += next.blocks;
    } else {
        runs.push(next);
    }
}

impl CollectedPages {
    /// Returns the end, in bytes, of what is to be written.
    fn end(&self, units: &Units) -> u64 {
        let end = self.blocks.last().map_or(0, |last| last.end) << units.shift;
        self.part.inode.size().min(end)
    }

    /// Checks whether everything overwrites data that the disk has, so that no metadata change is
    /// needed, and finds its blocks.
    pub(super) fn find_overwritten(&mut self, back: &Writeback<'_>) {
        if self.end(&back.units) > self.snapshot.metadata.size {
            return;
        }
        let Ok(extents) = self.snapshot.extents(back.volume, true) else { return };
        let runs = &mut self.part.runs;
        self.part.overwrites_only = self.blocks.iter().all(|range| {
            let mut at = range.start;
            while at < range.end {
                let (Blocks::Written(physical), count) = extents.at(at) else { return false };
                let blocks = count.min(range.end - at);
                push(
                    runs,
                    WriteRun { logical: at, blocks, physical, whole: false, unwritten: false },
                );
                at += blocks;
            }
            true
        });
    }

    /// Returns whether the inode has times that the disk does not have.
    fn has_times(&self) -> bool {
        self.part.inode.writable.as_ref().is_some_and(|writable| !writable.pages().times.is_empty())
    }

    /// Finds the blocks as part of a change, and allocates those that are missing.
    fn allocate(&mut self, units: &Units, handle: &mut AllocHandle<'_, '_>) -> Result<()> {
        // A change that found no space is called again, so nothing of the first call may be left.
        (self.times, self.part.changed) = (Times::default(), None);
        if self.part.overwrites_only && !self.has_times() {
            return Ok(());
        }
        let inode = Arc::clone(&self.part.inode);
        let writable = inode.writable.as_ref().ok_or(Error::ReadOnly)?;
        let mut edit = handle.load_inode(inode.ino)?;
        if !self.part.overwrites_only {
            self.allocate_blocks(units, handle, &mut edit)?;
        }
        self.times = writable.pages().times;
        self.times.put(&mut edit);
        handle.store_inode(&edit, !self.part.overwrites_only)?;
        handle.fast_eligible();
        self.part.changed = Some((inode.version(), edit));
        Ok(())
    }

    fn allocate_blocks(
        &mut self,
        units: &Units,
        handle: &mut AllocHandle<'_, '_>,
        inode: &mut InodeEdit,
    ) -> Result<()> {
        // A page of a larger block may not be in the cache. Map the block unwritten: a reader of
        // that page must not see stale data before the block is written.
        let aside = units.per_block > 1;
        let runs = &mut self.part.runs;
        runs.clear();
        let mut goal = None;
        for range in &self.blocks {
            let mut at = range.start;
            while at < range.end {
                let parsed = inode.parsed(handle.superblock())?;
                let run = handle.volume().run_at(&parsed, at)?;
                let mut blocks = run.blocks.min(range.end - at);
                let mut physical = run.physical;
                if run.state == RunState::Hole {
                    let before = at.checked_sub(1).filter(|_| goal.is_none());
                    if let Some(before) = before {
                        let run = handle.volume().run_at(&parsed, before)?;
                        goal = (run.state != RunState::Hole).then_some(run.physical + 1);
                    }
                    let wanted = blocks.min(u64::from(u32::MAX / 2)) as u32;
                    let reservation = self.promised.as_mut();
                    // Root's rights: those of the thread that happens to write back must not
                    // decide.
                    let who = Who::Root;
                    let want = Want { reservation, who, ..Want::data(inode.ino(), goal, wanted) };
                    let found = handle.allocator.blocks(handle, want)?;
                    (blocks, physical) = (found.end - found.start, found.start);
                    let logical = u32::try_from(at).map_err(|_| Error::FileTooBig)?;
                    let extent =
                        MappedExtent { logical, blocks: blocks as u32, physical, unwritten: aside };
                    extents::insert(handle, inode, extent)?;
                }
                goal = Some(physical + blocks);
                let unwritten = match run.state {
                    RunState::Unwritten => true,
                    RunState::Hole => aside,
                    RunState::Written => false,
                };
                let whole = run.state != RunState::Written;
                push(runs, WriteRun { logical: at, blocks, physical, whole, unwritten });
                at += blocks;
            }
        }
        let end = self.blocks.last().map_or(0, |last| last.end) << units.shift;
        let size = self.part.inode.size().min(end);
        self.part.reaches = None;
        if size > inode.size() && aside && runs.iter().any(|run| run.unwritten) {
            self.part.reaches = Some(end);
        } else if size > inode.size() {
            inode.set_size(size);
            orphans::note_size(handle, size)?;
        }
        Ok(())
    }

    /// Makes the pages dirty again, because they were not placed.
    pub(super) fn put_back(self) {
        let Self { part, delayed, promised, .. } = self;
        let Some(writable) = &part.inode.writable else { return };
        let mut all = writable.pages();
        for (index, mask) in part.pages {
            if let Some(since) = all.in_flight.remove(&index) {
                all.make_dirty(index, mask, since);
            }
        }
        all.delayed.extend(delayed);
        match (&mut all.reservation, promised) {
            (Some(there), Some(promised)) => there.merge(promised),
            (there, promised) => *there = there.take().or(promised),
        }
        drop(all);
        writable.wake();
    }
}

impl FilePart {
    /// Returns whether unwritten runs have to be converted by another change after the write.
    pub(super) fn converts(&self) -> bool {
        self.runs.iter().any(|run| run.unwritten)
    }
}

impl Batch {
    /// Returns a batch of the files in `all`; `None`: there are none.
    pub(super) fn of(all: Vec<CollectedPages>, token: Option<OrderedToken>) -> Option<Self> {
        let mut parts = all.into_iter().map(|taken| taken.part);
        Some(Self { first: parts.next()?, others: parts.collect(), token })
    }

    /// Returns the last page of the batch's first file.
    pub(crate) fn last(&self) -> u64 {
        self.first.pages.last().map_or(0, |(index, _)| *index)
    }
}
