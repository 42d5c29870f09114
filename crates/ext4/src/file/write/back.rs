//! Writeback: dirty pages get their blocks, and go to the device.
//!
//! A batch is made in four steps. *Take*: pages leave the list of dirty ones and are in flight, so
//! that each is in one batch at a time, and who takes blocks away can wait for them. *Place*: one
//! change of metadata gives blocks to what has none, and the file the size that it has with them;
//! its transaction does not commit before the data are on the device. *Send*: each page is copied
//! for the device; it can be written to again from then on, and is dirty once more if it is.
//! *Complete*: what was set aside before is data from now on, and the pages are clean. In the order
//! of these steps nothing ever reads a block that was given to the file and does not have its data:
//! pages are in the cache, and stay, until then.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::alloc::{Reservation, Want};
use crate::cache::{Hit, PAGE_BYTES};
use crate::error::Error;
use crate::file::read::cached::PAGE;
use crate::inode::Mount;
use crate::inode::extents::Blocks;
use crate::inode::known::{Known, State};
use crate::inode::live::Live;
use crate::inode::times::Times;
use crate::io::{IoContext, writes};
use crate::journal::OrderedToken;
use crate::ops::{extents, orphans};
use meantime_block::{Done, Request, RequestError};
use meantime_ext4_format::edit::InodeEdit;
use meantime_ext4_format::{MappedExtent, RunState};
use meantime_process::lock::{Rank, wait_for};

/// The most pages of a batch.
const BATCH_PAGES: usize = 1024;

/// The most stretches of pages of a batch: each may become an extent, of which a change of metadata
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
struct Stretch {
    logical: u64,
    blocks: u64,
    physical: u64,
    /// All of each block has to be written: nothing else was.
    whole: bool,
    /// Becomes data when it is written.
    unwritten: bool,
}

/// Pages that are in flight.
pub(crate) struct Batch {
    known: Arc<Known>,
    /// The pages, in order, and which blocks of each.
    pages: Vec<(u64, u8)>,
    stretches: Vec<Stretch>,
    token: Option<OrderedToken>,
    /// Up to here the file reaches, in bytes, once what was set aside is data.
    reaches: Option<u64>,
    /// What the inode is with that, and which version it had before.
    changed: Option<(u64, InodeEdit)>,
}

/// What [`Mount::place`] has found for a batch.
struct Places {
    stretches: Vec<Stretch>,
    token: Option<OrderedToken>,
    reaches: Option<u64>,
    changed: Option<(u64, InodeEdit)>,
}

impl Mount {
    pub(crate) fn units(&self) -> Units {
        Units::new(self.block_shift)
    }

    /// Takes dirty pages among `range` of `known`, and gives them places, and the inode its times
    /// (`with_times`: if it would not be changed, too); `None`: there are none, but for those that
    /// others have in flight.
    ///
    /// # Errors
    /// Of the change of metadata; the pages are dirty as they were.
    pub(crate) fn begin_batch(
        &self,
        known: &Arc<Known>,
        range: Range<u64>,
        with_times: bool,
    ) -> Result<Option<Batch>, Error> {
        let Some(live) = &known.live else { return Ok(None) };
        let units = self.units();
        // Of a block all that is dirty, by one at a time: who finds the block empty writes all of
        // it.
        let range = units.whole_blocks(range);
        if live.pages().dirty.is_empty() {
            return Ok(None);
        }
        wait_for(Rank::PagesInFlight);
        let (state, end, mut pages) = loop {
            let version = known.version();
            let state = known.state(self)?;
            let disk_size = state.metadata.size;
            // The page that the file ended in, on the disk: what is behind the end is zeroes in the
            // cache. It goes first, if the file grows.
            let end =
                if disk_size % units.unit() == 0 { 0..0 } else { end_pages(disk_size, &units) };
            let mut pages = live.pages();
            while known.size() > disk_size && pages.in_flight.range(end.clone()).next().is_some() {
                pages = live.wait(pages);
            }
            // Else blocks were taken away since, perhaps, whose pages are dirty again: they would
            // be written to where the file was. Those that are in flight nobody takes away.
            if known.version() == version {
                break (state, end, pages);
            }
        };
        let (pages, mut promised, blocks, delayed) = {
            // (If it is behind the range, the file does not grow by this.)
            let in_end = pages.dirty.range(end).filter(|(index, _)| **index < range.start);
            let free = in_end.chain(pages.dirty.range(range.clone())).map(|(index, _)| *index);
            let mut taken: Vec<u64> = Vec::new();
            let mut stretches = 0;
            let is_idle =
                |index: &u64| pages.in_flight.range(units.block_pages(*index)).next().is_none();
            for index in free.filter(is_idle) {
                let last = taken.last();
                if last.is_none_or(|last| last + 1 != index) {
                    stretches += 1;
                }
                let is_full = taken.len() >= BATCH_PAGES || stretches > BATCH_STRETCHES;
                if is_full && last.is_none_or(|last| !units.block_pages(*last).contains(&index)) {
                    break;
                }
                taken.push(index);
            }
            let mut all = Vec::with_capacity(taken.len());
            let mut blocks: Vec<Range<u64>> = Vec::new();
            let mut delayed = Vec::new();
            let size = known.size();
            for index in taken {
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
            (all, promised, blocks, delayed)
        };
        if pages.is_empty() {
            return Ok(None);
        }
        match self.place(known, live, &state, &blocks, &mut promised, with_times) {
            Ok(Places { stretches, token, reaches, changed }) => Ok(Some(Batch {
                known: Arc::clone(known),
                pages,
                stretches,
                token,
                reaches,
                changed,
            })),
            Err(error) => {
                let mut all = live.pages();
                for (index, mask) in pages {
                    all.in_flight.remove(&index);
                    *all.dirty.entry(index).or_default() |= mask;
                }
                all.delayed.extend(delayed);
                match (&mut all.reservation, promised) {
                    (Some(there), Some(promised)) => there.merge(promised),
                    (there, promised) => *there = there.take().or(promised),
                }
                drop(all);
                live.wake();
                Err(error)
            }
        }
    }

    /// Finds places for `blocks`, and gives them some where they have none.
    fn place(
        &self,
        known: &Known,
        live: &Live,
        state: &State,
        blocks: &[Range<u64>],
        promised: &mut Option<Reservation>,
        with_times: bool,
    ) -> Result<Places, Error> {
        // Of a larger block there may be pages that are not in the cache: who reads them before it
        // is written must not find it.
        let aside = self.units().per_block > 1;
        let end = blocks.last().map_or(0, |last| last.end) << self.block_shift;
        let grows = known.size().min(end) > state.metadata.size;
        if !grows && let Ok(extents) = state.extents(self) {
            let mut stretches = Vec::new();
            let all = blocks.iter().all(|range| {
                let mut at = range.start;
                while at < range.end {
                    let (Blocks::Written(physical), count) = extents.at(at) else { return false };
                    let blocks = count.min(range.end - at);
                    push(
                        &mut stretches,
                        Stretch { logical: at, blocks, physical, whole: false, unwritten: false },
                    );
                    at += blocks;
                }
                true
            });
            // In place: nothing else of the metadata changes.
            if all {
                let changed = if with_times { self.store_times(known, live)? } else { None };
                return Ok(Places { stretches, token: None, reaches: None, changed });
            }
        }
        let mut times = Times::default();
        let ((stretches, reaches, changed), token) =
            self.change_with_data(|handle, allocator| {
                let mut inode = handle.load_inode(known.ino)?;
                let mut stretches: Vec<Stretch> = Vec::new();
                let mut goal = None;
                for range in blocks {
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
                            let reservation = promised.as_mut();
                            let want = Want {
                                ino: known.ino,
                                goal,
                                blocks: wanted,
                                reservation,
                                metadata: false,
                                node: false,
                            };
                            let found = allocator.blocks(handle, want)?;
                            (blocks, physical) = (found.end - found.start, found.start);
                            let logical = u32::try_from(at).map_err(|_| Error::FileTooBig)?;
                            let extent = MappedExtent {
                                logical,
                                blocks: blocks as u32,
                                physical,
                                unwritten: aside,
                            };
                            extents::insert(handle, allocator, &mut inode, extent)?;
                        }
                        goal = Some(physical + blocks);
                        let unwritten = match run.state {
                            RunState::Unwritten => true,
                            RunState::Hole => aside,
                            RunState::Written => false,
                        };
                        let whole = run.state != RunState::Written;
                        push(
                            &mut stretches,
                            Stretch { logical: at, blocks, physical, whole, unwritten },
                        );
                        at += blocks;
                    }
                }
                let size = known.size().min(end);
                let mut reaches = None;
                if size > inode.size() && aside && stretches.iter().any(|stretch| stretch.unwritten)
                {
                    reaches = Some(end);
                } else if size > inode.size() {
                    inode.set_size(size);
                    orphans::note_size(handle, size)?;
                }
                times = live.pages().times;
                times.put(&mut inode);
                handle.store_inode(&inode, true)?;
                handle.fast_eligible();
                Ok((stretches, reaches, (known.version(), inode)))
            })?;
        live.pages().times.stored(times);
        Ok(Places { stretches, token: Some(token), reaches, changed: Some(changed) })
    }

    /// Writes what is dirty among pages `range` of `known` back, and waits for it. What others have
    /// in flight is not waited for.
    ///
    /// # Errors
    /// What could not be written; it is dirty still.
    pub(crate) fn write_back(&self, known: &Arc<Known>, range: Range<u64>) -> Result<(), Error> {
        let mut next = range.start;
        // Each page once: who writes all the time is not waited for.
        while let Some(batch) = self.begin_batch(known, next..range.end, false)? {
            next = self.after(&batch);
            let mut io = match self.contexts.take_leaf() {
                Ok(io) => io,
                Err(error) => return self.give_up(batch, error),
            };
            let mut sending = self.send(&mut io, batch);
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
    pub(crate) fn is_dirty_in_flight(&self, live: &Live, range: Range<u64>) -> bool {
        let (units, pages) = (self.units(), live.pages());
        !pages.in_flight.is_empty()
            && pages
                .dirty
                .range(range)
                .any(|(index, _)| pages.in_flight.range(units.block_pages(*index)).next().is_some())
    }

    /// Waits until none of pages `range` is in flight.
    pub(crate) fn wait_in_flight(&self, live: &Live, range: Range<u64>) {
        wait_for(Rank::PagesInFlight);
        let mut pages = live.pages();
        while pages.in_flight.range(range.clone()).next().is_some() {
            pages = live.wait(pages);
        }
    }

    /// Writes what is dirty among pages `range` of `known` back, and waits until all of that is on
    /// the device, whoever wrote it. (What is written to them meanwhile may be dirty.)
    ///
    /// # Errors
    /// As [`write_back`](Self::write_back).
    pub(crate) fn settle(&self, known: &Arc<Known>, range: Range<u64>) -> Result<(), Error> {
        let Some(live) = &known.live else { return Ok(()) };
        // A page waits for those of its block that others have in flight.
        let range = self.units().whole_blocks(range);
        // What others have in flight, and was written to since, is not in what they write. When
        // they have ended, it is ours to write; or it is in flight again, by who took it later than
        // we came.
        let again = self.is_dirty_in_flight(live, range.clone());
        self.write_back(known, range.clone())?;
        self.wait_in_flight(live, range.clone());
        if again {
            self.write_back(known, range.clone())?;
            self.wait_in_flight(live, range);
        }
        Ok(())
    }

    /// The same for the file's writer: nothing of `range` is dirty then, whatever failed for
    /// others.
    ///
    /// # Errors
    /// As [`write_back`](Self::write_back).
    pub(crate) fn settle_all(&self, known: &Arc<Known>, range: Range<u64>) -> Result<(), Error> {
        let Some(live) = &known.live else { return Ok(()) };
        loop {
            self.settle(known, range.clone())?;
            if live.pages().dirty.range(range.clone()).next().is_none() {
                return Ok(());
            }
        }
    }

    /// The pages of `batch` cannot be sent, for `error`: they are dirty again.
    ///
    /// # Errors
    /// `error`.
    pub(crate) fn give_up(&self, mut batch: Batch, error: Error) -> Result<(), Error> {
        let token = batch.token.take();
        if let Some(token) = token {
            token.end(Err(error.clone()), false);
        }
        let hits = vec![None; batch.pages.len()];
        let all = 0..u64::MAX;
        let failed = Vec::from([all]);
        Sending {
            mount: self,
            batch,
            hits,
            token: None,
            in_place: false,
            gap_used: true,
            has_ended: false,
            failed,
            error: Some(error),
        }
        .finish()
    }

    /// Sends the pages of `batch`.
    pub(crate) fn send(&self, io: &mut IoContext, mut batch: Batch) -> Sending<'_> {
        let (cache, file) = (self.contexts.cache(), u64::from(batch.known.ino));
        let mut hits = Vec::with_capacity(batch.pages.len());
        if let Some(live) = &batch.known.live {
            let pages = live.pages();
            for (index, _) in &batch.pages {
                hits.push(cache.begin_writeback(file, *index, pages.dirty.contains_key(index)));
            }
        }
        let token = batch.token.take();
        let mut sending = Sending {
            mount: self,
            batch,
            hits,
            in_place: token.is_none(),
            token,
            gap_used: false,
            has_ended: false,
            failed: Vec::new(),
            error: None,
        };
        sending.send_all(io);
        sending
    }
}

/// The pages of the block in which `size` lies.
fn end_pages(size: u64, units: &Units) -> Range<u64> {
    let unit = units.unit();
    size / unit * unit / PAGE..(size / unit + 1) * unit / PAGE
}

/// Adds `next`, or has the last one be longer.
fn push(stretches: &mut Vec<Stretch>, next: Stretch) {
    if let Some(last) = stretches.last_mut()
        && last.logical + last.blocks == next.logical
        && last.physical + last.blocks == next.physical
        && (last.whole, last.unwritten) == (next.whole, next.unwritten)
    {
        last.blocks += next.blocks;
    } else {
        stretches.push(next);
    }
}

impl Batch {
    /// Its last page.
    pub(crate) fn last(&self) -> u64 {
        self.pages.last().map_or(0, |(index, _)| *index)
    }

    /// Whether another change of metadata has to follow once it is written.
    pub(crate) fn converts(&self) -> bool {
        self.stretches.iter().any(|stretch| stretch.unwritten)
    }
}

/// A batch in flight, by one I/O context: its requests are those in the context's set of writes.
/// [`wait`](Self::wait), and [`finish`](Self::finish) it.
#[must_use = "its pages are in flight"]
pub(crate) struct Sending<'a> {
    mount: &'a Mount,
    batch: Batch,
    /// Where its pages are in the cache.
    hits: Vec<Option<Hit>>,
    /// No transaction waits for it, and it has not landed yet.
    in_place: bool,
    token: Option<OrderedToken>,
    /// What can be done in the device's time has been.
    gap_used: bool,
    /// Its pages are in flight no more.
    has_ended: bool,
    /// Bytes of the file that were not written, and why.
    failed: Vec<Range<u64>>,
    error: Option<Error>,
}

impl Sending<'_> {
    /// Whether another change of metadata has to follow once it is written.
    pub(crate) fn converts(&self) -> bool {
        self.batch.converts()
    }

    fn send_all(&mut self, io: &mut IoContext) {
        let shift = self.mount.block_shift;
        let stretches = std::mem::take(&mut self.batch.stretches);
        for stretch in &stretches {
            let bytes = stretch.logical << shift..(stretch.logical + stretch.blocks) << shift;
            let place = stretch.physical << shift;
            if stretch.whole || 1 << shift <= PAGE_BYTES {
                self.send_bytes(io, bytes, place);
                continue;
            }
            // Pages of larger blocks, of which the others are on the device.
            let pages: Vec<u64> = self.batch.pages.iter().map(|(index, _)| *index).collect();
            for index in pages {
                let (begin, end) =
                    ((index * PAGE).max(bytes.start), ((index + 1) * PAGE).min(bytes.end));
                if begin < end {
                    self.send_bytes(io, begin..end, place + (begin - bytes.start));
                }
            }
        }
        self.batch.stretches = stretches;
    }

    /// Sends the bytes `bytes` of the file to byte `place` of the device.
    fn send_bytes(&mut self, io: &mut IoContext, bytes: Range<u64>, place: u64) {
        let block_bytes = u64::from(io.block_bytes);
        let mut at = bytes.start;
        while at < bytes.end {
            if let Err(error) = io.may_write() {
                return self.fail(at..bytes.end, error);
            }
            let mut buf = match io.take_buffer() {
                Ok(Some(buf)) => buf,
                // When one has ended there is a buffer.
                Ok(None) if self.wait_for_oldest(io) => continue,
                Ok(None) => {
                    return self
                        .fail(at..bytes.end, Error::Resources("no buffer came back".to_owned()));
                }
                Err(error) => return self.fail(at..bytes.end, error),
            };
            let len = (buf.capacity() as u64).min(bytes.end - at);
            buf.set_len(len as usize);
            let mut filled = at;
            while filled < at + len {
                let (index, within) = (filled / PAGE, (filled % PAGE) as usize);
                let part = (PAGE - within as u64).min(at + len - filled) as usize;
                let to = (filled - at) as usize;
                if !self.copy(index, within, &mut buf[to..to + part]) {
                    io.give_buffer(Some(buf));
                    return self
                        .fail(at..bytes.end, Error::Invalid("a dirty page has left the cache"));
                }
                filled += part as u64;
            }
            let request = Request::write((place + (at - bytes.start)) / block_bytes, buf);
            if let Err((rejected, _)) = io.submit(writes, request, at..at + len) {
                io.give_buffer(rejected.request.buf);
                return self.fail(at..bytes.end, RequestError::from(rejected.error).into());
            }
            at += len;
        }
    }

    /// Copies from page `index` for the device; false: it is one of ours, and not there.
    fn copy(&self, index: u64, within: usize, to: &mut [u8]) -> bool {
        let cache = self.mount.contexts.cache();
        if let Ok(at) = self.batch.pages.binary_search_by_key(&index, |(index, _)| *index) {
            return self.hits[at].is_some_and(|hit| cache.copy(hit, within, to));
        }
        // Another page of a new block: what was written to it, which is dirty still, or zeroes.
        let file = u64::from(self.batch.known.ino);
        if !matches!(cache.read(file, index, within, to), crate::cache::LookUp::Hit(_)) {
            to.fill(0);
        }
        true
    }

    fn fail(&mut self, bytes: Range<u64>, error: Error) {
        self.failed.push(bytes);
        self.error.get_or_insert(error);
    }

    /// Waits for the oldest request; false: there is none.
    fn wait_for_oldest(&mut self, io: &mut IoContext) -> bool {
        let ended = io.next_in_group(writes);
        ended.map(|ended| self.complete(io, ended)).is_some()
    }

    /// The request that wrote `bytes` has ended.
    fn complete(&mut self, io: &mut IoContext, (done, bytes): (Done, Range<u64>)) {
        io.give_buffer(done.buf);
        if let Err(error) = done.result {
            self.fail(bytes, Error::from_io(error));
        }
    }

    /// Takes in what the device has written, and waits for nothing.
    pub(crate) fn poll(&mut self, io: &mut IoContext) {
        self.use_gap(io);
        while let Some(ended) = io.next_ended(writes) {
            self.complete(io, ended);
        }
        if io.in_flight().writes.is_empty() {
            self.is_written();
        }
    }

    /// What would have to be done by the next write, and can be as long as the device is at work.
    fn use_gap(&mut self, io: &mut IoContext) {
        if io.in_flight().writes.is_empty() || std::mem::replace(&mut self.gap_used, true) {
            return;
        }
        if let Some((before, inode)) = self.batch.changed.take() {
            self.batch.known.renew(self.mount, before, &inode);
        }
        io.warm_buffer();
        if !self.in_place {
            self.mount.contexts.cache().warm_page();
        }
    }

    /// Waits until everything has been written, or has failed.
    pub(crate) fn wait(&mut self, io: &mut IoContext) {
        self.use_gap(io);
        while self.wait_for_oldest(io) {}
        self.is_written();
    }

    /// Everything has been written, or has failed.
    fn is_written(&mut self) {
        // No commit flushes what is written in place. (Once: this may be called again when there is
        // nothing left.)
        if let Some(live) = &self.batch.known.live
            && std::mem::take(&mut self.in_place)
        {
            live.landed.fetch_max(self.mount.contexts.flushes().landed(), Ordering::AcqRel);
        }
        if let Some(token) = self.token.take() {
            token.end(self.error.clone().map_or(Ok(()), Err), false);
        }
    }

    /// Has its pages be clean, if everything has been written and nothing else has to follow: in the
    /// time of the commit block.
    pub(crate) fn finish_pages(&mut self) {
        let is_written = self.token.is_none() && !self.in_place;
        if is_written && self.error.is_none() && !self.converts() {
            self.end_writeback();
        }
    }

    /// What was written is on the device: the rest of the metadata follows, and the pages are
    /// clean.
    ///
    /// # Errors
    /// What could not be written; it is dirty still.
    pub(crate) fn finish(mut self) -> Result<(), Error> {
        let Batch { known, stretches, reaches, .. } = &self.batch;
        let mount = self.mount;
        if self.error.is_none() {
            let unwritten: Vec<Range<u32>> = stretches
                .iter()
                .filter(|stretch| stretch.unwritten)
                .map(|stretch| stretch.logical as u32..(stretch.logical + stretch.blocks) as u32)
                .collect();
            let count = unwritten.len();
            for (number, range) in unwritten.into_iter().enumerate() {
                let is_last = number + 1 == count;
                let converted = mount.change(|handle, allocator| {
                    let mut inode = handle.load_inode(known.ino)?;
                    extents::set_written(handle, allocator, &mut inode, range.clone(), true)?;
                    let size = reaches.filter(|_| is_last).map_or(0, |end| known.size().min(end));
                    if size > inode.size() {
                        inode.set_size(size);
                        orphans::note_size(handle, size)?;
                    }
                    handle.store_inode(&inode, true)?;
                    handle.fast_eligible();
                    Ok(())
                });
                if let Err(error) = converted {
                    let shift = mount.block_shift;
                    self.failed
                        .push(u64::from(range.start) << shift..u64::from(range.end) << shift);
                    self.error = Some(error);
                    break;
                }
            }
        } else if stretches.iter().any(|stretch| stretch.unwritten) {
            // Not told from those that failed: all are written again.
            self.failed.push(0..u64::MAX);
        }
        let failed = self.error.take();
        // Before its pages are in flight no more: who waits for them is told, too.
        if let (Some(error), Some(live)) = (&failed, &self.batch.known.live) {
            live.fail(error.clone());
        }
        self.end_writeback();
        failed.map_or(Ok(()), Err)
    }

    /// Its pages are in flight no more: clean, but for what has failed. Once.
    fn end_writeback(&mut self) {
        let Batch { known, pages, .. } = &self.batch;
        let Some(live) = known.live.as_ref().filter(|_| !self.has_ended) else { return };
        let (cache, mut clean) = (self.mount.contexts.cache(), 0);
        let mut all = live.pages();
        for ((index, mask), hit) in pages.iter().zip(&self.hits) {
            let bytes = index * PAGE..(index + 1) * PAGE;
            let again = self
                .failed
                .iter()
                .any(|failed| failed.start < bytes.end && bytes.start < failed.end);
            if let Some(hit) = hit {
                cache.end_writeback(*hit, again);
            }
            all.in_flight.remove(index);
            if again {
                *all.dirty.entry(*index).or_default() |= mask;
            }
            clean += usize::from(!all.dirty.contains_key(index));
        }
        drop(all);
        live.wake();
        if let Some(writer) = &self.mount.writer {
            writer.fewer_dirty(clean);
        }
        self.has_ended = true;
    }
}
