//! The last two steps of a [batch](super::back): send and finish.
//!
//! The data of a batch are one stream of bytes, file after file. What is contiguous on the device
//! goes in one request, even if it is of several files. So many small files, which get their blocks
//! one after another, take few requests.

use std::iter::once;
use std::ops::Range;
use std::sync::atomic::Ordering;

use super::back::{Batch, FilePart, Writeback};
use crate::cache::{Hit, LookUp, PAGE, PAGE_BYTES, PageCache};
use crate::error::{Error, Result};
use crate::inode::shared::Inode;
use crate::io::{IoContext, OwnedContext, write_set};
use crate::journal::{OrderedToken, OwnData};
use crate::ops::{extents, orphans};
use meantime_block::{Request, RequestError};
use meantime_hw::DmaBuf;

/// A batch in flight by one I/O context, as requests in its set of writes.
#[must_use = "its pages are in flight"]
pub(crate) struct Sending<'a> {
    back: &'a Writeback<'a>,
    first: SentPart,
    others: Vec<SentPart>,
    token: Option<OrderedToken>,
    /// Whether all requests have completed or failed.
    is_written: bool,
    /// Whether the work for the gap is done.
    gap_used: bool,
    /// Bytes of the stream that were not written, each with its error.
    failed: Failures,
}

/// Bytes of the stream that were not written, each with its error.
type Failures = Vec<(Range<u64>, Error)>;

/// One file's part of a batch.
struct SentPart {
    part: FilePart,
    /// Its pages in the cache.
    hits: Vec<Option<Hit>>,
    /// Whether its pages are no longer in flight.
    has_ended: bool,
    /// Bytes of the file that were not written, and the first error.
    failed: Vec<Range<u64>>,
    error: Option<Error>,
}

/// A request that is being assembled.
struct Gathered {
    buf: DmaBuf,
    /// Byte of the device at which it begins.
    place: u64,
    /// Its bytes of the stream.
    stream: Range<u64>,
}

impl Writeback<'_> {
    /// Sends `batch`, runs `beside` while it is in flight, waits for it, and finishes it. Calls
    /// `failed` for each file of which a write failed; its pages are dirty again. (If there is no
    /// I/O context, that is each file, and `beside` does not run.)
    pub(super) fn send_batch(
        &self,
        batch: Batch,
        failed: impl FnMut(&Inode, Error),
        beside: impl FnOnce(&mut OwnedContext<'_>, &mut Sending<'_>),
    ) {
        let mut sending = Sending::new(self, batch);
        // This takes locks of the files, so it comes before the I/O context is taken.
        for sent in sending.parts_mut() {
            sent.mark_pages(self.contexts.cache());
        }
        match self.contexts.take_or_spare() {
            Ok(mut io) => {
                sending.send(&mut io);
                beside(&mut io, &mut sending);
                // Whatever came of that, no data stay in flight.
                sending.wait(&mut io);
            }
            Err(error) => sending.give_up(&error),
        }
        sending.finish(failed);
    }
}

impl<'a> Sending<'a> {
    fn new(back: &'a Writeback<'a>, batch: Batch) -> Self {
        let Batch { first, others, token } = batch;
        Self {
            back,
            first: SentPart::new(first),
            others: others.into_iter().map(SentPart::new).collect(),
            token,
            is_written: false,
            gap_used: false,
            failed: Vec::new(),
        }
    }

    fn parts(&self) -> impl Iterator<Item = &SentPart> {
        once(&self.first).chain(&self.others)
    }

    fn parts_mut(&mut self) -> impl Iterator<Item = &mut SentPart> {
        once(&mut self.first).chain(&mut self.others)
    }

    /// Returns whether another change of metadata has to follow the write.
    pub(crate) fn converts(&self) -> bool {
        self.parts().any(|sent| sent.part.converts())
    }

    /// Has all of the batch fail with `error`: it cannot be sent.
    fn give_up(&mut self, error: &Error) {
        if let Some(token) = self.token.take() {
            token.end(Err(error.clone()));
        }
        for sent in self.parts_mut() {
            let all = 0..u64::MAX;
            sent.failed.push(all);
            sent.error = Some(error.clone());
        }
    }

    /// Sends the requests.
    fn send(&mut self, io: &mut IoContext) {
        let Self { back, first, others, failed, .. } = self;
        let cache = back.contexts.cache();
        let mut gathered = None;
        for piece in pieces(first, others, back.units.shift) {
            piece.send(io, cache, &mut gathered, failed);
        }
        if let Some(last) = gathered {
            last.submit(io, failed);
        }
    }

    /// Does work that the next write would have to do, while the device works.
    fn use_gap(&mut self, io: &mut IoContext) {
        if io.in_flight().writes.is_empty() || std::mem::replace(&mut self.gap_used, true) {
            return;
        }
        let back = self.back;
        for sent in self.parts_mut() {
            if let Some((before, inode)) = sent.part.changed.take() {
                sent.part.inode.renew(back.volume, before, &inode);
            }
        }
        io.warm_buffer();
        if !self.first.part.overwrites_only {
            back.contexts.cache().warm_page();
        }
    }

    /// Sends failed requests of several files again, in requests of one file each, and waits for
    /// them: so only the files concerned fail.
    #[cold]
    fn send_apart(&mut self, io: &mut IoContext) {
        let Self { back, first, others, failed, .. } = self;
        let cache = back.contexts.cache();
        for (stream, error) in std::mem::take(failed) {
            let all = pieces(first, others, back.units.shift);
            let touched: Vec<_> = all.filter_map(|piece| piece.within(&stream)).collect();
            let is_one_file = touched.iter().all(|piece| std::ptr::eq(piece.sent, touched[0].sent));
            if is_one_file {
                failed.push((stream, error));
                continue;
            }
            for piece in touched {
                let mut alone = None;
                piece.send(io, cache, &mut alone, failed);
                if let Some(last) = alone {
                    last.submit(io, failed);
                }
            }
        }
        while wait_for_oldest(io, failed) {}
    }

    /// Reports the results to files and transaction: all data are written or have failed.
    fn end_data(&mut self) {
        // Once: this may be called again when nothing is left.
        if std::mem::replace(&mut self.is_written, true) {
            return;
        }
        for (stream, error) in std::mem::take(&mut self.failed) {
            self.tell_parts(&stream, &error);
        }
        let flushes = self.back.contexts.flushes();
        for sent in self.parts() {
            // No transaction covers data that only overwrite others: `flush_data` flushes them
            // (rule 18).
            if let Some(writable) =
                sent.part.inode.writable.as_ref().filter(|_| sent.part.overwrites_only)
            {
                writable.flush_needed.fetch_max(flushes.note_write(), Ordering::AcqRel);
            }
        }
        if let Some(token) = self.token.take() {
            // Rule 2: from here on the transaction may commit, or it fails. The failure of
            // a part that only overwrites does not concern it.
            let mut ordered = self.parts().filter(|sent| !sent.part.overwrites_only);
            let error = ordered.find_map(|sent| sent.error.clone());
            token.end(error.map_or(Ok(()), Err));
        }
    }

    /// Tells the files concerned which of their bytes, those of `stream`, were not written.
    fn tell_parts(&mut self, stream: &Range<u64>, error: &Error) {
        let shift = self.back.units.shift;
        let mut at = 0;
        for SentPart { part, failed, error: first, .. } in self.parts_mut() {
            for (bytes, _) in part.pieces(shift) {
                let end = at + (bytes.end - bytes.start);
                let (from, to) = (stream.start.max(at), stream.end.min(end));
                if from < to {
                    failed.push(bytes.start + (from - at)..bytes.start + (to - at));
                    first.get_or_insert_with(|| error.clone());
                }
                at = end;
            }
        }
    }

    /// Converts the unwritten runs and makes the pages clean, now that the data are on the device.
    /// Calls `failed` for each file of which a write failed; its pages stay dirty.
    fn finish(mut self, mut failed: impl FnMut(&Inode, Error)) {
        let back = self.back;
        for sent in self.parts_mut() {
            if let Err(error) = sent.finish(back) {
                failed(&sent.part.inode, error);
            }
        }
    }
}

impl OwnData for Sending<'_> {
    fn poll(&mut self, io: &mut IoContext) {
        self.use_gap(io);
        while let Some((done, stream)) = io.next_ended(write_set) {
            io.give_buffer(done.buf);
            note(&mut self.failed, stream, done.result.map_err(Error::from_io));
        }
        // (Failures are left to `wait`, which the caller calls in any case.)
        if io.in_flight().writes.is_empty() && self.failed.is_empty() {
            self.end_data();
        }
    }

    fn wait(&mut self, io: &mut IoContext) {
        self.use_gap(io);
        while wait_for_oldest(io, &mut self.failed) {}
        if !self.failed.is_empty() && !self.others.is_empty() {
            self.send_apart(io);
        }
        self.end_data();
    }

    fn finish_pages(&mut self) {
        let back = self.back;
        if !self.is_written {
            return;
        }
        for sent in self.parts_mut() {
            if sent.error.is_none() && !sent.part.converts() {
                sent.unmark_pages(back);
            }
        }
    }
}

/// Bytes of a file that are contiguous on the device.
struct StreamPiece<'a> {
    sent: &'a SentPart,
    /// Their place in the stream.
    stream: Range<u64>,
    /// The first of them, in the file and on the device.
    begin: u64,
    place: u64,
}

/// Returns all pieces of a batch, in the order of the stream.
fn pieces<'a>(
    first: &'a SentPart,
    others: &'a [SentPart],
    shift: u32,
) -> impl Iterator<Item = StreamPiece<'a>> {
    let all = once(first).chain(others);
    let all = all.flat_map(move |sent| sent.part.pieces(shift).map(move |piece| (sent, piece)));
    let mut at = 0;
    all.map(move |(sent, (bytes, place))| {
        let stream = at..at + (bytes.end - bytes.start);
        at = stream.end;
        StreamPiece { sent, stream, begin: bytes.start, place }
    })
}

impl StreamPiece<'_> {
    /// Returns the part of it within `stream`, if there is any.
    fn within(mut self, stream: &Range<u64>) -> Option<Self> {
        self.skip(stream.start.saturating_sub(self.stream.start));
        self.stream.end = self.stream.end.min(stream.end);
        (!self.stream.is_empty()).then_some(self)
    }

    fn skip(&mut self, count: u64) {
        self.stream.start += count;
        self.begin += count;
        self.place += count;
    }

    /// Adds all of it to `gathered`, which is sent when it is full or not contiguous with the rest.
    fn send(
        mut self,
        io: &mut IoContext,
        cache: &PageCache,
        gathered: &mut Option<Gathered>,
        failed: &mut Failures,
    ) {
        while !self.stream.is_empty() {
            match self.send_some(io, cache, gathered, failed) {
                Ok(count) => self.skip(count),
                Err(error) => return failed.push((self.stream, error)),
            }
        }
    }

    /// Adds the first part of the piece to `gathered`. Returns the length of that part.
    fn send_some(
        &self,
        io: &mut IoContext,
        cache: &PageCache,
        gathered: &mut Option<Gathered>,
        failed: &mut Failures,
    ) -> Result<u64> {
        let at = self.stream.start;
        if let Some(full) = gathered.take_if(|there| !there.goes_on(at, self.place)) {
            full.submit(io, failed);
        }
        let into = match gathered {
            Some(there) => there,
            None => {
                let buf = take_buffer(io, failed)?;
                gathered.insert(Gathered { buf, place: self.place, stream: at..at })
            }
        };
        let count = into.room().min(self.stream.end - at);
        self.sent.copy(cache, self.begin..self.begin + count, into.grow(count))?;
        into.stream.end += count;
        Ok(count)
    }
}

impl Gathered {
    fn len(&self) -> u64 {
        self.stream.end - self.stream.start
    }

    fn room(&self) -> u64 {
        self.buf.capacity() as u64 - self.len()
    }

    /// Returns whether byte `at` of the stream, with place `place` on the device, can be added.
    fn goes_on(&self, at: u64, place: u64) -> bool {
        self.stream.end == at && self.place + self.len() == place && self.room() > 0
    }

    /// Returns the memory for `count` bytes more.
    fn grow(&mut self, count: u64) -> &mut [u8] {
        let len = self.len() as usize;
        self.buf.set_len(len + count as usize);
        &mut self.buf[len..]
    }

    fn submit(mut self, io: &mut IoContext, failed: &mut Failures) {
        let (len, stream) = (self.len(), self.stream);
        if len == 0 {
            // Its first bytes could not be copied.
            return io.give_buffer(Some(self.buf));
        }
        if let Err(error) = io.may_write() {
            io.give_buffer(Some(self.buf));
            return failed.push((stream, error));
        }
        self.buf.set_len(len as usize);
        let request = Request::write(self.place / u64::from(io.block_bytes), self.buf);
        if let Err((rejected, stream)) = io.submit(write_set, request, stream) {
            io.give_buffer(rejected.request.buf);
            failed.push((stream, RequestError::from(rejected.error).into()));
        }
    }
}

/// Takes a buffer for a request; waits for one if all are in use.
fn take_buffer(io: &mut IoContext, failed: &mut Failures) -> Result<DmaBuf> {
    loop {
        match io.take_buffer()? {
            Some(buf) => return Ok(buf),
            // A completed request frees a buffer.
            None if wait_for_oldest(io, failed) => {}
            None => return Err(Error::Resources("no buffer came back".to_owned())),
        }
    }
}

/// Waits for the oldest request; false: there is none.
fn wait_for_oldest(io: &mut IoContext, failed: &mut Failures) -> bool {
    let Some((done, stream)) = io.wait_oldest_in_group(write_set) else { return false };
    io.give_buffer(done.buf);
    note(failed, stream, done.result.map_err(Error::from_io));
    true
}

/// Notes the result of the request for bytes `stream`.
fn note(failed: &mut Failures, stream: Range<u64>, result: Result<()>) {
    if let Err(error) = result {
        failed.push((stream, error));
    }
}

impl FilePart {
    /// Returns the bytes of the file to be written, each run with its byte of the device.
    fn pieces(&self, shift: u32) -> impl Iterator<Item = (Range<u64>, u64)> {
        self.runs.iter().flat_map(move |run| {
            let bytes = run.logical << shift..(run.logical + run.blocks) << shift;
            let place = run.physical << shift;
            let is_all = run.whole || 1 << shift <= PAGE_BYTES;
            // Only dirty pages of a larger block: the disk has the others.
            let pages = if is_all { &[][..] } else { &self.pages[..] };
            let (begin, end) = (bytes.start, bytes.end);
            let pages = pages.iter().filter_map(move |(index, _)| {
                let part = (index * PAGE).max(begin)..((index + 1) * PAGE).min(end);
                let place = place + part.start.saturating_sub(begin);
                (!part.is_empty()).then_some((part, place))
            });
            is_all.then_some((bytes, place)).into_iter().chain(pages)
        })
    }
}

impl SentPart {
    fn new(part: FilePart) -> Self {
        Self { part, hits: Vec::new(), has_ended: false, failed: Vec::new(), error: None }
    }

    /// Marks its pages in the cache as under writeback; they are copied for the device next.
    fn mark_pages(&mut self, cache: &PageCache) {
        let file = u64::from(self.part.inode.ino);
        let Some(writable) = &self.part.inode.writable else { return };
        self.hits.reserve_exact(self.part.pages.len());
        let pages = writable.pages();
        for (index, _) in &self.part.pages {
            let again = pages.dirty.contains_key(index);
            self.hits.push(cache.begin_page_writeback(file, *index, again));
        }
    }

    /// Copies `bytes` of the file for the device.
    ///
    /// # Errors
    /// A page that is in flight is not in the cache.
    fn copy(&self, cache: &PageCache, bytes: Range<u64>, to: &mut [u8]) -> Result<()> {
        let mut at = bytes.start;
        while at < bytes.end {
            let (index, within) = (at / PAGE, (at % PAGE) as usize);
            let count = (PAGE - within as u64).min(bytes.end - at);
            let begin = (at - bytes.start) as usize;
            if !self.copy_page(cache, index, within, &mut to[begin..begin + count as usize]) {
                return Err(Error::Invalid("a dirty page has left the cache"));
            }
            at += count;
        }
        Ok(())
    }

    /// Copies from page `index`; false: it is part of the batch, but not in the cache.
    fn copy_page(&self, cache: &PageCache, index: u64, within: usize, to: &mut [u8]) -> bool {
        if let Ok(at) = self.part.pages.binary_search_by_key(&index, |(index, _)| *index) {
            return self.hits[at].is_some_and(|hit| cache.copy(hit, within, to));
        }
        // Another page of a new block: its dirty contents, or else zeroes.
        let file = u64::from(self.part.inode.ino);
        if !matches!(cache.read(file, index, within, to), LookUp::Hit(_)) {
            to.fill(0);
        }
        true
    }

    /// Converts the file's unwritten runs and makes its pages clean. Returns the error if a write
    /// failed; its pages stay dirty.
    fn finish(&mut self, back: &Writeback<'_>) -> Result<()> {
        if self.error.is_none() {
            self.set_written(back);
        } else if self.part.converts() {
            // Not distinguished from those that failed: all are written again.
            self.failed.push(0..u64::MAX);
        }
        let failed = self.error.take();
        // Noted while its pages are in flight: a thread that waits for them reports it, too.
        if let (Some(error), Some(writable)) = (&failed, &self.part.inode.writable) {
            writable.fail(error.clone());
        }
        self.unmark_pages(back);
        failed.map_or(Ok(()), Err)
    }

    fn set_written(&mut self, back: &Writeback<'_>) {
        let FilePart { inode, runs, reaches, .. } = &self.part;
        let unwritten: Vec<Range<u32>> = runs
            .iter()
            .filter(|run| run.unwritten)
            .map(|run| run.logical as u32..(run.logical + run.blocks) as u32)
            .collect();
        let count = unwritten.len();
        for (number, range) in unwritten.into_iter().enumerate() {
            let is_last = number + 1 == count;
            let converted = back.rw_mount.change(|handle| {
                let mut edit = handle.load_inode(inode.ino)?;
                extents::set_written(handle, &mut edit, range.clone(), true)?;
                let size = reaches.filter(|_| is_last).map_or(0, |end| inode.size().min(end));
                if size > edit.size() {
                    edit.set_size(size);
                    orphans::note_size(handle, size)?;
                }
                handle.store_inode(&edit, true)?;
                handle.fast_eligible();
                Ok(())
            });
            if let Err(error) = converted {
                let shift = back.units.shift;
                self.failed.push(u64::from(range.start) << shift..u64::from(range.end) << shift);
                self.error = Some(error);
                break;
            }
        }
    }

    /// Ends the writeback of its pages, once: they are clean, but for those whose write failed.
    fn unmark_pages(&mut self, back: &Writeback<'_>) {
        let FilePart { inode, pages, .. } = &self.part;
        let Some(writable) = inode.writable.as_ref().filter(|_| !self.has_ended) else { return };
        let (cache, mut clean) = (back.contexts.cache(), 0);
        let mut all = writable.pages();
        for ((index, mask), hit) in pages.iter().zip(&self.hits) {
            let bytes = index * PAGE..(index + 1) * PAGE;
            let again = self
                .failed
                .iter()
                .any(|failed| failed.start < bytes.end && bytes.start < failed.end);
            if let Some(hit) = hit {
                cache.end_page_writeback(*hit, again);
            }
            let since = all.in_flight.remove(index);
            if let Some(since) = since.filter(|_| again) {
                all.make_dirty(*index, *mask, since);
            }
            clean += usize::from(!all.dirty.contains_key(index));
        }
        drop(all);
        writable.wake();
        back.rw_mount.fewer_dirty(clean);
        self.has_ended = true;
    }
}
