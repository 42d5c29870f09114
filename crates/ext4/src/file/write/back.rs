//! Writeback: dirty pages get their blocks, and go to the device.
//!
//! A batch has pages of one file, or of [several](super::many). It is made in four steps. *Take*:
//! pages leave the list of dirty ones and are in flight, so that each is in one batch at a time, and
//! who takes blocks away can wait for them. *Place* (`place_all`): one change of metadata gives blocks to what has
//! none, and each file the size that it has with them; its transaction does not commit before the
//! data are on the device. [*Send*](super::sending): each page is copied for the device; it can be
//! written to again from then on, and is dirty once more if it is. *Finish*: what was set aside
//! before is data from now on, and the pages are clean. In the order of these steps nothing ever
//! reads a block that was given to the file and does not have its data: pages are in the cache, and
//! stay, until then.

use std::ops::Range;
use std::sync::Arc;

use crate::alloc::{Allocator, Reservation, Want};
use crate::error::Error;
use crate::file::read::cached::PAGE;
use crate::inode::Mount;
use crate::inode::extents::Blocks;
use crate::inode::shared::{Inode, Snapshot};
use crate::inode::times::Times;
use crate::inode::writable::{Pages, Writable};
use crate::journal::{Handle, OrderedToken};
use crate::ops::{extents, orphans};
use meantime_ext4_format::edit::InodeEdit;
use meantime_ext4_format::{MappedExtent, RunState};
use meantime_process::lock::{MutexGuard, Rank, wait_for};

/// The most pages of a batch.
pub(super) const BATCH_PAGES: usize = 1024;

/// The most runs of pages of a batch: each may become an extent, of which a change of metadata
/// must not have too many.
const BATCH_STRETCHES: usize = 24;

/// How a file system's blocks and the cache's pages fit together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Units {
    /// Log2 of the block size.
    pub(crate) shift: u32,
    /// Blocks of a page, at least 1.
    pub(crate) per_page: u64,
    /// Pages of a block, at least 1.
    pub(crate) per_block: u64,
}

impl Units {
    /// For blocks of `1 << shift` bytes.
    pub(crate) fn new(shift: u32) -> Self {
        let (per_page, per_block) = ((PAGE >> shift).max(1), (1u64 << shift >> 12).max(1));
        Self { shift, per_page, per_block }
    }

    /// The larger of a block and a page, in bytes.
    pub(crate) fn unit(&self) -> u64 {
        PAGE.max(1 << self.shift)
    }

    /// The pages of the block that has page `index`: that page, unless blocks are larger.
    pub(crate) fn block_pages(&self, index: u64) -> Range<u64> {
        let first = index / self.per_block * self.per_block;
        first..first + self.per_block
    }

    /// All pages of the blocks that have pages `range`.
    pub(crate) fn whole_blocks(&self, range: Range<u64>) -> Range<u64> {
        let end = range.end.checked_next_multiple_of(self.per_block).unwrap_or(u64::MAX);
        self.block_pages(range.start).start..end
    }

    /// The blocks that have the bytes `range`.
    pub(crate) fn blocks(&self, range: Range<u64>) -> Range<u64> {
        range.start >> self.shift..range.end.div_ceil(1 << self.shift)
    }

    /// Which blocks of page `index` are among `blocks`, the page's first one in bit 0.
    pub(crate) fn mask(&self, index: u64, blocks: &Range<u64>) -> u8 {
        if self.per_page == 1 {
            return 1;
        }
        let first = index * self.per_page;
        (0..self.per_page)
            .filter(|n| blocks.contains(&(first + n)))
            .fold(0, |mask, n| mask | 1 << n)
    }
}

/// Blocks of a file that are next to each other, in it and on the device.
#[derive(Debug, Clone, Copy)]
pub(super) struct WriteRun {
    pub(super) logical: u64,
    pub(super) blocks: u64,
    pub(super) physical: u64,
    /// All of each block has to be written: nothing else was.
    pub(super) whole: bool,
    /// Becomes data when it is written.
    pub(super) unwritten: bool,
}

/// Pages of a file that are in flight.
pub(super) struct Part {
    pub(super) inode: Arc<Inode>,
    /// The pages, in order, and which blocks of each.
    pub(super) pages: Vec<(u64, u8)>,
    pub(super) runs: Vec<WriteRun>,
    /// All of it is written over data that are there: no transaction waits for it.
    pub(super) in_place: bool,
    /// Up to here the file reaches, in bytes, once what was set aside is data.
    pub(super) reaches: Option<u64>,
    /// What the inode is with that, and which version it had before.
    pub(super) changed: Option<(u64, InodeEdit)>,
}

/// Pages that are in flight, of one file or several.
pub(crate) struct Batch {
    pub(super) first: Part,
    pub(super) others: Vec<Part>,
    /// One for all parts that are not in place.
    pub(super) token: Option<OrderedToken>,
}

/// Pages of a file that were taken, and have no places yet.
pub(super) struct CollectedPages {
    pub(super) part: Part,
    snapshot: Arc<Snapshot>,
    /// The blocks that are to be written.
    pub(super) blocks: Vec<Range<u64>>,
    /// Those of them that the file did not have, and the promise of room for them.
    delayed: Vec<u64>,
    promised: Option<Reservation>,
    /// What the inode says of its times with the change.
    times: Times,
}

impl Mount {
    pub(crate) fn units(&self) -> Units {
        Units::new(self.block_shift)
    }

    /// Takes dirty pages among `range` of `inode`, and gives them places, and the inode its times
    /// (`with_times`: if it would not be changed, too); `None`: there are none, but for those that
    /// others have in flight.
    ///
    /// # Errors
    /// Of the change of metadata; the pages are dirty as they were.
    pub(crate) fn begin_batch(
        &self,
        inode: &Arc<Inode>,
        range: Range<u64>,
        with_times: bool,
    ) -> Result<Option<Batch>, Error> {
        let Some(writable) = &inode.writable else { return Ok(None) };
        let units = self.units();
        // Of a block all that is dirty, by one at a time: who finds the block empty writes all of
        // it.
        let range = units.whole_blocks(range);
        if writable.pages().dirty.is_empty() {
            return Ok(None);
        }
        wait_for(Rank::PagesInFlight);
        let (snapshot, pages) = loop {
            let version = inode.version();
            let snapshot = inode.snapshot(self)?;
            let mut pages = writable.pages();
            while Self::waits_for_end(inode, &snapshot, &pages, &units) {
                pages = writable.wait(pages);
            }
            // Else blocks were taken away since, perhaps, whose pages are dirty again: they would
            // be written to where the file was. Those that are in flight nobody takes away.
            if inode.version() == version {
                break (snapshot, pages);
            }
        };
        let Some(mut taken) = self.take(inode, snapshot, pages, range) else { return Ok(None) };
        match self.place(&mut taken, writable, with_times) {
            Ok(token) => Ok(Some(Batch { first: taken.part, others: Vec::new(), token })),
            Err(error) => {
                taken.put_back();
                Err(error)
            }
        }
    }

    /// Whether the page that the file ended in, on the disk, is in flight, and the file grows: what
    /// is behind the end is zeroes in the cache, and goes first.
    fn waits_for_end(inode: &Inode, snapshot: &Snapshot, pages: &Pages, units: &Units) -> bool {
        let disk_size = snapshot.metadata.size;
        inode.size() > disk_size
            && pages.in_flight.range(end_pages(disk_size, units)).next().is_some()
    }

    /// As [`take`](Self::take), all of a file for whom nothing is waited for. `None` also if
    /// something would have to be waited for, or its inode cannot be read.
    pub(super) fn try_take(&self, inode: &Arc<Inode>) -> Option<CollectedPages> {
        let writable = inode.writable.as_ref()?;
        if writable.pages().dirty.is_empty() {
            return None;
        }
        let version = inode.version();
        let snapshot = inode.snapshot(self).ok()?;
        let pages = writable.pages();
        let waits = Self::waits_for_end(inode, &snapshot, &pages, &self.units());
        // As in `begin_batch`.
        if waits || inode.version() != version {
            return None;
        }
        self.take(inode, snapshot, pages, 0..u64::MAX)
    }

    /// Takes some of the dirty `pages` of `inode` among `range`, which is whole blocks, but for
    /// those that are in flight; `snapshot` is what the inode is. `None`: there are none.
    #[inline]
    fn take(
        &self,
        inode: &Arc<Inode>,
        snapshot: Arc<Snapshot>,
        mut pages: MutexGuard<'_, Pages>,
        range: Range<u64>,
    ) -> Option<CollectedPages> {
        let units = self.units();
        // (If it is behind the range, the file does not grow by this.)
        let end = end_pages(snapshot.metadata.size, &units);
        let in_end = pages.dirty.range(end).filter(|(index, _)| **index < range.start);
        let free = in_end.chain(pages.dirty.range(range.clone())).map(|(index, _)| *index);
        let mut indices: Vec<u64> = Vec::new();
        let mut runs = 0;
        let is_idle =
            |index: &u64| pages.in_flight.range(units.block_pages(*index)).next().is_none();
        for index in free.filter(is_idle) {
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
            let mask = pages.dirty.remove(&index).unwrap_or_default();
            pages.in_flight.insert(index);
            all.push((index, mask));
            let first = index * units.per_page / units.per_block;
            for block in (0..units.per_page).filter(|n| mask >> n & 1 == 1).map(|n| first + n) {
                // Cut off since: it is zeroes in the cache, and nothing on the disk.
                if block << units.shift >= size {
                    if pages.delayed.remove(&block) {
                        delayed.push(block);
                    }
                    continue;
                }
                match blocks.last_mut() {
                    Some(last) if last.end == block => last.end += 1,
                    // Blocks of several pages.
                    Some(last) if last.contains(&block) => {}
                    _ => blocks.push(block..block + 1),
                }
                if pages.delayed.remove(&block) {
                    delayed.push(block);
                }
            }
        }
        let wanted = delayed.len() as u64;
        // Mostly all of it.
        let promised = pages.reservation.take_if(|promise| promise.blocks() == wanted);
        let promised = promised.or_else(|| Some(pages.reservation.as_mut()?.split(wanted)));
        drop(pages);
        let part = Part {
            inode: Arc::clone(inode),
            pages: all,
            runs: Vec::new(),
            in_place: false,
            reaches: None,
            changed: None,
        };
        Some(CollectedPages { part, snapshot, blocks, delayed, promised, times: Times::default() })
    }

    /// Finds places for what was `taken` of a file, and gives it some where it has none; the inode
    /// gets its times `with_times` if it would not be changed, too.
    #[inline]
    fn place(
        &self,
        taken: &mut CollectedPages,
        writable: &Writable,
        with_times: bool,
    ) -> Result<Option<OrderedToken>, Error> {
        taken.find_in_place(self);
        if !taken.part.in_place {
            return self.place_all(std::slice::from_mut(taken));
        }
        // Nothing else of the metadata changes.
        if with_times {
            taken.part.changed = self.store_times(&taken.part.inode, writable)?;
        }
        Ok(None)
    }

    /// Places for `all` that was taken, by one change, which gives the inodes their times, too: the
    /// token of what is not in place, if that is any.
    ///
    /// # Errors
    /// Of the change; nothing has a place by it.
    pub(super) fn place_all(
        &self,
        all: &mut [CollectedPages],
    ) -> Result<Option<OrderedToken>, Error> {
        let with_data = all.iter().any(|taken| !taken.part.in_place);
        let is_anything = with_data || all.iter().any(CollectedPages::has_times);
        if !is_anything {
            return Ok(None);
        }
        let work = |handle: &mut Handle<'_>, allocator: &Allocator| {
            all.iter_mut().try_for_each(|taken| taken.place(self, handle, allocator))
        };
        let token = match with_data {
            true => Some(self.change_with_data(work)?.1),
            false => {
                self.change(work)?;
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

    /// Writes what is dirty among pages `range` of `inode` back, and waits for it. What others have
    /// in flight is not waited for.
    ///
    /// # Errors
    /// What could not be written; it is dirty still.
    pub(crate) fn write_back(&self, inode: &Arc<Inode>, range: Range<u64>) -> Result<(), Error> {
        let mut next = range.start;
        // Each page once: who writes all the time is not waited for.
        while let Some(batch) = self.begin_batch(inode, next..range.end, false)? {
            next = self.after(&batch);
            let mut sending = self.sending(batch);
            let mut io = match self.contexts.take_leaf() {
                Ok(io) => io,
                Err(error) => {
                    sending.give_up(&error, |_, _| ());
                    return Err(error);
                }
            };
            sending.send(&mut io);
            sending.wait(&mut io);
            drop(io);
            sending.finish()?;
        }
        Ok(())
    }

    /// The first page that what follows `batch` begins with.
    pub(crate) fn after(&self, batch: &Batch) -> u64 {
        self.units().block_pages(batch.last()).end
    }

    /// Whether any of pages `range` was written to again while others have it in flight: it goes
    /// back to the device once more when they have ended.
    pub(crate) fn is_dirty_in_flight(&self, writable: &Writable, range: Range<u64>) -> bool {
        let (units, pages) = (self.units(), writable.pages());
        !pages.in_flight.is_empty()
            && pages
                .dirty
                .range(range)
                .any(|(index, _)| pages.in_flight.range(units.block_pages(*index)).next().is_some())
    }

    /// Waits until none of pages `range` is in flight.
    pub(crate) fn wait_in_flight(&self, writable: &Writable, range: Range<u64>) {
        wait_for(Rank::PagesInFlight);
        let mut pages = writable.pages();
        while pages.in_flight.range(range.clone()).next().is_some() {
            pages = writable.wait(pages);
        }
    }

    /// Writes what is dirty among pages `range` of `inode` back, and waits until all of that is on
    /// the device, whoever wrote it. (What is written to them meanwhile may be dirty.)
    ///
    /// # Errors
    /// As [`write_back`](Self::write_back).
    pub(crate) fn settle(&self, inode: &Arc<Inode>, range: Range<u64>) -> Result<(), Error> {
        let Some(writable) = &inode.writable else { return Ok(()) };
        // A page waits for those of its block that others have in flight.
        let range = self.units().whole_blocks(range);
        // What others have in flight, and was written to since, is not in what they write. When
        // they have ended, it is ours to write; or it is in flight again, by who took it later than
        // we came.
        let again = self.is_dirty_in_flight(writable, range.clone());
        self.write_back(inode, range.clone())?;
        self.wait_in_flight(writable, range.clone());
        if again {
            self.write_back(inode, range.clone())?;
            self.wait_in_flight(writable, range);
        }
        Ok(())
    }

    /// The same for the file's writer: nothing of `range` is dirty then, whatever failed for
    /// others.
    ///
    /// # Errors
    /// As [`write_back`](Self::write_back).
    pub(crate) fn settle_all(&self, inode: &Arc<Inode>, range: Range<u64>) -> Result<(), Error> {
        let Some(writable) = &inode.writable else { return Ok(()) };
        loop {
            self.settle(inode, range.clone())?;
            if writable.pages().dirty.range(range.clone()).next().is_none() {
                return Ok(());
            }
        }
    }
}

/// The pages of the block in which `size` lies, if it is not the block's beginning.
fn end_pages(size: u64, units: &Units) -> Range<u64> {
    let unit = units.unit();
    if size.is_multiple_of(unit) {
        return 0..0;
    }
    size / unit * unit / PAGE..(size / unit + 1) * unit / PAGE
}

/// Adds `next`, or has the last one be longer.
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
    /// The file's last byte that is to be written, and one more.
    fn end(&self, mount: &Mount) -> u64 {
        let end = self.blocks.last().map_or(0, |last| last.end) << mount.block_shift;
        self.part.inode.size().min(end)
    }

    /// Finds out whether all of it is written over data that are there, and where: so that no
    /// metadata change for it.
    pub(super) fn find_in_place(&mut self, mount: &Mount) {
        if self.end(mount) > self.snapshot.metadata.size {
            return;
        }
        let Ok(extents) = self.snapshot.extents(mount) else { return };
        let runs = &mut self.part.runs;
        self.part.in_place = self.blocks.iter().all(|range| {
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

    /// Whether the inode has times that the disk does not have.
    fn has_times(&self) -> bool {
        self.part.inode.writable.as_ref().is_some_and(|writable| !writable.pages().times.is_empty())
    }

    /// Finds its places in a change, and gives the file blocks where it has none.
    fn place(
        &mut self,
        mount: &Mount,
        handle: &mut Handle<'_>,
        allocator: &Allocator,
    ) -> Result<(), Error> {
        // (It may be tried twice.)
        (self.times, self.part.changed) = (Times::default(), None);
        if self.part.in_place && !self.has_times() {
            return Ok(());
        }
        let inode = Arc::clone(&self.part.inode);
        let writable = inode.writable.as_ref().ok_or(Error::ReadOnly)?;
        let mut edit = handle.load_inode(inode.ino)?;
        if !self.part.in_place {
            self.place_blocks(mount, handle, allocator, &mut edit)?;
        }
        self.times = writable.pages().times;
        self.times.put(&mut edit);
        handle.store_inode(&edit, !self.part.in_place)?;
        handle.fast_eligible();
        self.part.changed = Some((inode.version(), edit));
        Ok(())
    }

    fn place_blocks(
        &mut self,
        mount: &Mount,
        handle: &mut Handle<'_>,
        allocator: &Allocator,
        inode: &mut InodeEdit,
    ) -> Result<(), Error> {
        // Of a larger block there may be pages that are not in the cache: who reads them before it
        // is written must not find it.
        let aside = mount.units().per_block > 1;
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
                    let want = Want {
                        ino: inode.ino(),
                        goal,
                        blocks: wanted,
                        reservation: self.promised.as_mut(),
                        metadata: false,
                        node: false,
                    };
                    let found = allocator.blocks(handle, want)?;
                    (blocks, physical) = (found.end - found.start, found.start);
                    let logical = u32::try_from(at).map_err(|_| Error::FileTooBig)?;
                    let extent =
                        MappedExtent { logical, blocks: blocks as u32, physical, unwritten: aside };
                    extents::insert(handle, allocator, inode, extent)?;
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
        let end = self.blocks.last().map_or(0, |last| last.end) << mount.block_shift;
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

    /// It gets no places: its pages are dirty as they were.
    pub(super) fn put_back(self) {
        let Self { part, delayed, promised, .. } = self;
        let Some(writable) = &part.inode.writable else { return };
        let mut all = writable.pages();
        for (index, mask) in part.pages {
            all.in_flight.remove(&index);
            *all.dirty.entry(index).or_default() |= mask;
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

impl Part {
    /// Whether another change of metadata has to follow once it is written.
    pub(super) fn converts(&self) -> bool {
        self.runs.iter().any(|run| run.unwritten)
    }
}

impl Batch {
    /// Of several files; `None`: of none.
    pub(super) fn of(all: Vec<CollectedPages>, token: Option<OrderedToken>) -> Option<Self> {
        let mut parts = all.into_iter().map(|taken| taken.part);
        Some(Self { first: parts.next()?, others: parts.collect(), token })
    }

    /// The last page of its first file.
    pub(crate) fn last(&self) -> u64 {
        self.first.pages.last().map_or(0, |(index, _)| *index)
    }
}
