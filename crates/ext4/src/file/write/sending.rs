//! Writeback, on its way to the device: the last two steps of a [batch](super::back).
//!
//! What a batch writes is one stream of bytes, a file after another, and what lies side by side on
//! the device goes in one request, whosever it is. So many small files, which get their blocks one
//! after another, take few requests.

use std::iter::once;
use std::ops::Range;
use std::sync::atomic::Ordering;

use super::back::{Batch, Part};
use crate::cache::{Hit, LookUp, PAGE_BYTES, PageCache};
use crate::error::Error;
use crate::file::read::cached::PAGE;
use crate::inode::Mount;
use crate::inode::shared::Inode;
use crate::io::{IoContext, writes};
use crate::journal::OrderedToken;
use crate::ops::{extents, orphans};
use meantime_block::{Request, RequestError};
use meantime_hw::DmaBuf;

/// A batch in flight, by one I/O context: its requests are those in the context's set of writes.
/// [`wait`](Self::wait), and [`finish`](Self::finish) it.
#[must_use = "its pages are in flight"]
pub(crate) struct Sending<'a> {
    mount: &'a Mount,
    first: PartSent,
    others: Vec<PartSent>,
    token: Option<OrderedToken>,
    /// It is on the device, or has failed.
    is_written: bool,
    /// What can be done in the device's time has been.
    gap_used: bool,
    /// Bytes of the stream that were not written, and why.
    failed: Failures,
}

/// Bytes of the stream that were not written, and why.
type Failures = Vec<(Range<u64>, Error)>;

/// What a batch has of one file.
struct PartSent {
    part: Part,
    /// Where its pages are in the cache.
    hits: Vec<Option<Hit>>,
    /// Its pages are in flight no more.
    has_ended: bool,
    /// Bytes of the file that were not written, and why.
    failed: Vec<Range<u64>>,
    error: Option<Error>,
}

/// A request that is being put together.
struct Gathered {
    buf: DmaBuf,
    /// The byte of the device that it begins at.
    place: u64,
    /// The bytes of the stream that are in it.
    stream: Range<u64>,
}

impl Mount {
    /// Has `batch` be ready to be [sent](Sending::send): before its I/O context is taken, since
    /// this takes locks of the files.
    pub(crate) fn sending(&self, batch: Batch) -> Sending<'_> {
        let mut sending = Sending::new(self, batch);
        for sent in sending.parts_mut() {
            sent.begin_writeback(self.contexts.cache());
        }
        sending
    }
}

impl<'a> Sending<'a> {
    fn new(mount: &'a Mount, batch: Batch) -> Self {
        let Batch { first, others, token } = batch;
        Self {
            mount,
            first: PartSent::new(first),
            others: others.into_iter().map(PartSent::new).collect(),
            token,
            is_written: false,
            gap_used: false,
            failed: Vec::new(),
        }
    }

    fn parts(&self) -> impl Iterator<Item = &PartSent> {
        once(&self.first).chain(&self.others)
    }

    fn parts_mut(&mut self) -> impl Iterator<Item = &mut PartSent> {
        once(&mut self.first).chain(&mut self.others)
    }

    /// Whether another change of metadata has to follow once it is written.
    pub(crate) fn converts(&self) -> bool {
        self.parts().any(|sent| sent.part.converts())
    }

    /// It cannot be sent, for `error`, of which `failed` is told for each file: its pages are dirty
    /// again.
    pub(super) fn give_up(mut self, error: &Error, failed: impl FnMut(&Inode, Error)) {
        if let Some(token) = self.token.take() {
            token.end(Err(error.clone()), false);
        }
        for sent in self.parts_mut() {
            let all = 0..u64::MAX;
            sent.failed.push(all);
            sent.error = Some(error.clone());
        }
        self.finish_each(failed);
    }

    /// Sends its pages.
    pub(crate) fn send(&mut self, io: &mut IoContext) {
        let Self { mount, first, others, failed, .. } = self;
        let cache = mount.contexts.cache();
        let mut gathered = None;
        for piece in pieces(first, others, mount.block_shift) {
            piece.send(io, cache, &mut gathered, failed);
        }
        if let Some(last) = gathered {
            last.submit(io, failed);
        }
    }

    /// Takes in what the device has written, and waits for nothing.
    pub(crate) fn poll(&mut self, io: &mut IoContext) {
        self.use_gap(io);
        while let Some((done, stream)) = io.next_ended(writes) {
            io.give_buffer(done.buf);
            note(&mut self.failed, stream, done.result.map_err(Error::from_io));
        }
        // (Whoever polls waits in the end.)
        if io.in_flight().writes.is_empty() && self.failed.is_empty() {
            self.end_data();
        }
    }

    /// What would have to be done by the next write, and can be as long as the device is at work.
    fn use_gap(&mut self, io: &mut IoContext) {
        if io.in_flight().writes.is_empty() || std::mem::replace(&mut self.gap_used, true) {
            return;
        }
        let mount = self.mount;
        for sent in self.parts_mut() {
            if let Some((before, inode)) = sent.part.changed.take() {
                sent.part.inode.renew(mount, before, &inode);
            }
        }
        io.warm_buffer();
        if !self.first.part.in_place {
            mount.contexts.cache().warm_page();
        }
    }

    /// Waits until everything has been written, or has failed.
    pub(crate) fn wait(&mut self, io: &mut IoContext) {
        self.use_gap(io);
        while wait_for_oldest(io, &mut self.failed) {}
        if !self.failed.is_empty() && !self.others.is_empty() {
            self.send_apart(io);
        }
        self.end_data();
    }

    /// What failed of requests that were several files' is sent once more, in requests of one file
    /// each, and waited for: so it fails for those only whose it is.
    #[cold]
    fn send_apart(&mut self, io: &mut IoContext) {
        let Self { mount, first, others, failed, .. } = self;
        let cache = mount.contexts.cache();
        for (stream, error) in std::mem::take(failed) {
            let all = pieces(first, others, mount.block_shift);
            let touched: Vec<Piece<'_>> = all.filter_map(|piece| piece.within(&stream)).collect();
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

    /// Everything has been written, or has failed.
    fn end_data(&mut self) {
        // Once: this may be called again when there is nothing left.
        if std::mem::replace(&mut self.is_written, true) {
            return;
        }
        for (stream, error) in std::mem::take(&mut self.failed) {
            self.tell_parts(&stream, &error);
        }
        let flushes = self.mount.contexts.flushes();
        for sent in self.parts() {
            // No transaction waits for what is written in place: `flush_data` sees to it (rule 18).
            if let Some(writable) = sent.part.inode.writable.as_ref().filter(|_| sent.part.in_place)
            {
                writable.landed.fetch_max(flushes.landed(), Ordering::AcqRel);
            }
        }
        if let Some(token) = self.token.take() {
            // What failed in place does not concern the transaction.
            let mut ordered = self.parts().filter(|sent| !sent.part.in_place);
            let error = ordered.find_map(|sent| sent.error.clone());
            token.end(error.map_or(Ok(()), Err), false);
        }
    }

    /// Bytes `stream` were not written: the files whose they are know which of theirs that is.
    fn tell_parts(&mut self, stream: &Range<u64>, error: &Error) {
        let shift = self.mount.block_shift;
        let mut at = 0;
        for PartSent { part, failed, error: first, .. } in self.parts_mut() {
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

    /// Has its pages be clean, if everything has been written and nothing else has to follow: in the
    /// time of the commit block.
    pub(crate) fn finish_pages(&mut self) {
        let mount = self.mount;
        if !self.is_written {
            return;
        }
        for sent in self.parts_mut() {
            if sent.error.is_none() && !sent.part.converts() {
                sent.end_writeback(mount);
            }
        }
    }

    /// What was written is on the device: the rest of the metadata follows, and the pages are
    /// clean.
    ///
    /// # Errors
    /// What could not be written; it is dirty still.
    pub(crate) fn finish(self) -> Result<(), Error> {
        let mut first = Ok(());
        self.finish_each(|_, error| first = std::mem::replace(&mut first, Ok(())).and(Err(error)));
        first
    }

    /// The same, for who wants to know which files failed.
    pub(super) fn finish_each(mut self, mut failed: impl FnMut(&Inode, Error)) {
        let mount = self.mount;
        for sent in self.parts_mut() {
            if let Err(error) = sent.finish(mount) {
                failed(&sent.part.inode, error);
            }
        }
    }
}

/// Bytes of a file that are side by side on the device.
struct Piece<'a> {
    sent: &'a PartSent,
    /// The bytes of the stream that they are.
    stream: Range<u64>,
    /// The first of them: of the file, and of the device.
    begin: u64,
    place: u64,
}

/// All of a batch, in the order in which it is sent.
fn pieces<'a>(
    first: &'a PartSent,
    others: &'a [PartSent],
    shift: u32,
) -> impl Iterator<Item = Piece<'a>> {
    let all = once(first).chain(others);
    let all = all.flat_map(move |sent| sent.part.pieces(shift).map(move |piece| (sent, piece)));
    let mut at = 0;
    all.map(move |(sent, (bytes, place))| {
        let stream = at..at + (bytes.end - bytes.start);
        at = stream.end;
        Piece { sent, stream, begin: bytes.start, place }
    })
}

impl Piece<'_> {
    /// What is `stream` of it, if anything is.
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

    /// Adds all of it to what is `gathered`, of which is sent what is full, or does not go on.
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

    /// The same with the first of it: how many bytes.
    fn send_some(
        &self,
        io: &mut IoContext,
        cache: &PageCache,
        gathered: &mut Option<Gathered>,
        failed: &mut Failures,
    ) -> Result<u64, Error> {
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

    /// Whether byte `at` of the stream, which goes to byte `place` of the device, can be its next.
    fn goes_on(&self, at: u64, place: u64) -> bool {
        self.stream.end == at && self.place + self.len() == place && self.room() > 0
    }

    /// Memory for `count` bytes more.
    fn grow(&mut self, count: u64) -> &mut [u8] {
        let len = self.len() as usize;
        self.buf.set_len(len + count as usize);
        &mut self.buf[len..]
    }

    fn submit(mut self, io: &mut IoContext, failed: &mut Failures) {
        let (len, stream) = (self.len(), self.stream);
        if len == 0 {
            // What was to be its first could not be copied.
            return io.give_buffer(Some(self.buf));
        }
        if let Err(error) = io.may_write() {
            io.give_buffer(Some(self.buf));
            return failed.push((stream, error));
        }
        self.buf.set_len(len as usize);
        let request = Request::write(self.place / u64::from(io.block_bytes), self.buf);
        if let Err((rejected, stream)) = io.submit(writes, request, stream) {
            io.give_buffer(rejected.request.buf);
            failed.push((stream, RequestError::from(rejected.error).into()));
        }
    }
}

/// A buffer for a request.
fn take_buffer(io: &mut IoContext, failed: &mut Failures) -> Result<DmaBuf, Error> {
    loop {
        match io.take_buffer()? {
            Some(buf) => return Ok(buf),
            // When one has ended there is a buffer.
            None if wait_for_oldest(io, failed) => {}
            None => return Err(Error::Resources("no buffer came back".to_owned())),
        }
    }
}

/// Waits for the oldest request; false: there is none.
fn wait_for_oldest(io: &mut IoContext, failed: &mut Failures) -> bool {
    let Some((done, stream)) = io.next_in_group(writes) else { return false };
    io.give_buffer(done.buf);
    note(failed, stream, done.result.map_err(Error::from_io));
    true
}

/// The request for bytes `stream` has ended.
fn note(failed: &mut Failures, stream: Range<u64>, result: Result<(), Error>) {
    if let Err(error) = result {
        failed.push((stream, error));
    }
}

impl Part {
    /// Which bytes of the file are to be written, and to which byte of the device.
    fn pieces(&self, shift: u32) -> impl Iterator<Item = (Range<u64>, u64)> {
        self.runs.iter().flat_map(move |run| {
            let bytes = run.logical << shift..(run.logical + run.blocks) << shift;
            let place = run.physical << shift;
            let is_all = run.whole || 1 << shift <= PAGE_BYTES;
            // Pages of larger blocks, of which the others are on the device.
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

impl PartSent {
    fn new(part: Part) -> Self {
        Self { part, hits: Vec::new(), has_ended: false, failed: Vec::new(), error: None }
    }

    /// Its pages are about to be copied for the device.
    fn begin_writeback(&mut self, cache: &PageCache) {
        let file = u64::from(self.part.inode.ino);
        let Some(writable) = &self.part.inode.writable else { return };
        self.hits.reserve_exact(self.part.pages.len());
        let pages = writable.pages();
        for (index, _) in &self.part.pages {
            self.hits.push(cache.begin_writeback(file, *index, pages.dirty.contains_key(index)));
        }
    }

    /// Copies `bytes` of the file for the device.
    ///
    /// # Errors
    /// A page that is in flight is not in the cache.
    fn copy(&self, cache: &PageCache, bytes: Range<u64>, to: &mut [u8]) -> Result<(), Error> {
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

    /// Copies from page `index`; false: it is one of ours, and not there.
    fn copy_page(&self, cache: &PageCache, index: u64, within: usize, to: &mut [u8]) -> bool {
        if let Ok(at) = self.part.pages.binary_search_by_key(&index, |(index, _)| *index) {
            return self.hits[at].is_some_and(|hit| cache.copy(hit, within, to));
        }
        // Another page of a new block: what was written to it, which is dirty still, or zeroes.
        let file = u64::from(self.part.inode.ino);
        if !matches!(cache.read(file, index, within, to), LookUp::Hit(_)) {
            to.fill(0);
        }
        true
    }

    /// What was set aside is data from now on, and its pages are clean.
    fn finish(&mut self, mount: &Mount) -> Result<(), Error> {
        if self.error.is_none() {
            self.set_written(mount);
        } else if self.part.converts() {
            // Not told from those that failed: all are written again.
            self.failed.push(0..u64::MAX);
        }
        let failed = self.error.take();
        // Before its pages are in flight no more: who waits for them is told, too.
        if let (Some(error), Some(writable)) = (&failed, &self.part.inode.writable) {
            writable.fail(error.clone());
        }
        self.end_writeback(mount);
        failed.map_or(Ok(()), Err)
    }

    fn set_written(&mut self, mount: &Mount) {
        let Part { inode, runs, reaches, .. } = &self.part;
        let unwritten: Vec<Range<u32>> = runs
            .iter()
            .filter(|run| run.unwritten)
            .map(|run| run.logical as u32..(run.logical + run.blocks) as u32)
            .collect();
        let count = unwritten.len();
        for (number, range) in unwritten.into_iter().enumerate() {
            let is_last = number + 1 == count;
            let converted = mount.change(|handle, allocator| {
                let mut edit = handle.load_inode(inode.ino)?;
                extents::set_written(handle, allocator, &mut edit, range.clone(), true)?;
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
                let shift = mount.block_shift;
                self.failed.push(u64::from(range.start) << shift..u64::from(range.end) << shift);
                self.error = Some(error);
                break;
            }
        }
    }

    /// Its pages are in flight no more: clean, but for what has failed. Once.
    fn end_writeback(&mut self, mount: &Mount) {
        let Part { inode, pages, .. } = &self.part;
        let Some(writable) = inode.writable.as_ref().filter(|_| !self.has_ended) else { return };
        let (cache, mut clean) = (mount.contexts.cache(), 0);
        let mut all = writable.pages();
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
        writable.wake();
        if let Some(writer) = &mount.writer {
            writer.fewer_dirty(clean);
        }
        self.has_ended = true;
    }
}
