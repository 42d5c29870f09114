//! Reads through the page cache, overlapped with the device.
//!
//! Pages that are there are copied without a lock. From the first one that is not, the reader takes
//! an I/O context and goes through the rest: what is missing is claimed, page by page, and sent as
//! soon as a stretch of the device ends or is long enough, so that the device works while the next
//! one is being claimed. What can wait is done after that, *in the gap*: copying what was there,
//! zeroes, the cache's queues, filling up the context's pages, reading ahead. Then the requests are
//! waited for one after another, each copied while the others are under way. Last, the
//! reader waits for pages that other threads are reading: then no thread waits for this one.

use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::cache::{LookUp, PAGE_BYTES, PageCache};
use crate::counters::Count;
use crate::error::Error;
use crate::file::File;
use crate::inode::Mount;
use crate::inode::extents::Finder;
use crate::io::IoContext;
use crate::io::fill::{CHUNK_PAGES, For, NotSent, Stretch};
use crate::io::target::{Piece, Place, Target};
use crate::options::ReadOptions;
use meantime_completion::Policy;

pub(crate) const PAGE: u64 = PAGE_BYTES as u64;

/// Pages that one turn through the context goes through at most: 1 MiB.
pub(super) const TURN_PAGES: u64 = 256;

/// Requests of a read that are under way at once.
const WINDOW: usize = 16;

/// The bytes of one page that a read wants.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// Where in the target they go.
    pub(super) at: usize,
    /// Where in the page they begin.
    pub(super) within: usize,
    pub(super) len: usize,
}

/// A read that goes through the context.
pub(super) struct Reader<'a, 't, 'b> {
    pub(super) file: &'a File,
    pub(super) mount: &'a Mount,
    pub(super) cache: &'a PageCache,
    pub(super) ino: u64,
    pub(super) finder: Finder<'a>,
    pub(super) target: &'a mut Target<'t, 'b>,
    /// Bytes of the file that are read: the first is byte 0 of the target.
    pub(super) offset: u64,
    pub(super) end: u64,
    pub(super) policy: Option<Policy>,
    /// The first byte of the file that could not be read, and why.
    pub(super) failed: Option<(u64, Error)>,
    /// Whether the file's read-ahead was told of a miss.
    pub(super) told: bool,
    /// What is to be read ahead once the context is free, since its extents are not at hand.
    pub(super) window: Option<Range<u64>>,
    /// What the file's version was when its extents were looked up; `None`: nobody changes them.
    pub(super) version: Option<u64>,
    /// The page from which on the extents have to be looked up anew.
    pub(super) stale: Option<u64>,
    /// Pages that somebody else is reading, or was.
    pub(super) pending: Vec<u64>,
}

impl File {
    /// Reads `len` bytes, more than none and all of them within the file.
    #[inline]
    pub(crate) fn read_cached(
        &self,
        target: &mut Target<'_, '_>,
        offset: u64,
        len: usize,
        options: &ReadOptions,
    ) -> Result<usize, Error> {
        let mount = &*self.node().mount;
        let (cache, ino) = (mount.contexts.cache(), u64::from(self.node().ino()));
        let end = offset + len as u64;
        let mut at = offset;
        while at < end {
            let (index, within) = (at / PAGE, (at % PAGE) as usize);
            let part = (PAGE_BYTES - within).min((end - at) as usize);
            if !copy_hit(cache, ino, index, within, (at - offset) as usize, part, target) {
                break;
            }
            at += part as u64;
        }
        let pages = offset / PAGE..end.div_ceil(PAGE);
        if at > offset {
            mount.counts.add(Count::Hits, at.div_ceil(PAGE) - pages.start);
        }
        if self.ahead.is_due(&pages) {
            self.go_ahead(&pages, options);
        }
        if at == end {
            return Ok(len);
        }
        self.read_missing(target, offset, at, end, options)
    }

    /// Reads from byte `at` on, whose page is not there.
    #[inline(never)]
    fn read_missing(
        &self,
        target: &mut Target<'_, '_>,
        offset: u64,
        mut at: u64,
        mut end: u64,
        options: &ReadOptions,
    ) -> Result<usize, Error> {
        let mount = &*self.node().mount;
        if options.no_wait {
            return self.read_without_waiting(target, offset, at, end);
        }
        let _guard = self.keep_blocks();
        if self.extents.is_none() {
            // Cut off meanwhile, perhaps.
            end = end.min(self.size());
        }
        let (mut failed, mut told) = (None, false);
        while at < end && failed.is_none() {
            // Of whole pages: that is what goes into the cache.
            let pages = at / PAGE..end.div_ceil(PAGE);
            let last = pages.end.saturating_mul(PAGE).min(self.size());
            let version = self.node().known.live.as_ref().map(|_| self.node().known.version());
            let made;
            let extents = match &self.extents {
                Some(extents) if extents.reaches(last, mount.block_shift) => &**extents,
                _ => {
                    made = self.extents_of_pages(&pages)?;
                    &*made
                }
            };
            let mut reader = Reader {
                file: self,
                mount,
                cache: mount.contexts.cache(),
                ino: u64::from(self.node().ino()),
                finder: self.finder(extents),
                target: &mut *target,
                offset,
                end,
                policy: options.policy,
                failed: None,
                told,
                window: None,
                version,
                stale: None,
                pending: Vec::new(),
            };
            while at < end && reader.failed.is_none() && reader.stale.is_none() {
                let stop = ((at / PAGE + TURN_PAGES) * PAGE).min(end);
                reader.turn(at / PAGE..stop.div_ceil(PAGE))?;
                at = reader.stale.map_or(stop, |index| (index * PAGE).max(at));
            }
            (failed, told) = (reader.failed.take(), reader.told);
        }
        match failed {
            None => Ok(end.saturating_sub(offset) as usize),
            Some((at, error)) => match at.saturating_sub(offset) as usize {
                0 => Err(error),
                read => Ok(read),
            },
        }
    }
}

impl File {
    /// What of the rest of a read is there, or nowhere and so zeroes; if nothing was, it would have
    /// to wait.
    #[cold]
    fn read_without_waiting(
        &self,
        target: &mut Target<'_, '_>,
        offset: u64,
        mut at: u64,
        end: u64,
    ) -> Result<usize, Error> {
        let mount = &*self.node().mount;
        let known = self.extents.as_ref().filter(|extents| extents.reaches(end, mount.block_shift));
        while at < end {
            let (index, within) = (at / PAGE, (at % PAGE) as usize);
            let len = (PAGE_BYTES - within).min((end - at) as usize);
            let to = (at - offset) as usize;
            let ino = u64::from(self.node().ino());
            if !copy_hit(mount.contexts.cache(), ino, index, within, to, len, target) {
                let piece = known.map(|extents| self.finder(extents).find(at, len));
                if !piece
                    .is_some_and(|piece| matches!(piece.place, Place::Zero) && piece.len == len)
                {
                    break;
                }
                target.zero(to, len);
            }
            at += len as u64;
        }
        if at == offset { Err(Error::WouldBlock) } else { Ok((at - offset) as usize) }
    }
}

/// Copies `len` bytes of a page to `at` of the target, if it is there.
#[inline(always)]
pub(crate) fn copy_hit(
    cache: &PageCache,
    file: u64,
    index: u64,
    within: usize,
    at: usize,
    len: usize,
    target: &mut Target<'_, '_>,
) -> bool {
    let LookUp::Hit(hit) = cache.look_up(file, index) else { return false };
    let (mut from, mut whole) = (within, true);
    target.each(at, len, |part| {
        whole &= cache.copy(hit, from, part);
        from += part.len();
    });
    // Of reads that go through a page in order one is in its first such part: the pass counts once.
    if whole && within < len {
        cache.visit(hit);
    }
    whole
}

/// Where on the device page `index` begins, how many pages from there on, up to `most`, one request
/// can read, and how many bytes they have; `None`: it is in pieces, or nowhere, or somewhere in the
/// middle of a device's block.
#[inline]
pub(crate) fn whole_pages(
    block_bytes: u32,
    finder: &Finder<'_>,
    size: u64,
    index: u64,
    most: u64,
) -> Option<(u64, usize, usize)> {
    let start = index * PAGE;
    let wanted = (most * PAGE).min(size - start) as usize;
    let Piece { place: Place::Device(place), len } = finder.find(start, wanted) else {
        return None;
    };
    if !place.is_multiple_of(u64::from(block_bytes)) {
        return None;
    }
    if len == wanted {
        return Some((place, wanted.div_ceil(PAGE_BYTES), wanted));
    }
    let count = len / PAGE_BYTES;
    (count > 0).then_some((place, count, count * PAGE_BYTES))
}

impl Reader<'_, '_, '_> {
    /// The bytes of page `index` that are wanted.
    #[inline]
    pub(super) fn part(&self, index: u64) -> Part {
        let begin = (index * PAGE).max(self.offset);
        let stop = ((index + 1) * PAGE).min(self.end);
        Part {
            at: (begin - self.offset) as usize,
            within: (begin - index * PAGE) as usize,
            len: (stop - begin) as usize,
        }
    }

    /// Whether what the extents say of page `index`, which is not in the cache, may be old: it may
    /// have been written, and left, since they were looked up. Then it is read once more.
    #[inline]
    pub(super) fn is_stale(&mut self, index: u64) -> bool {
        let stale = self.version.is_some_and(|version| version != self.file.node().known.version());
        if stale {
            self.stale = Some(self.stale.map_or(index, |first| first.min(index)));
        }
        stale
    }

    /// Notes that page `index` could not be read, unless an earlier one could not.
    #[cold]
    pub(super) fn fail(&mut self, index: u64, error: Error) {
        let at = (index * PAGE).max(self.offset);
        if self.failed.as_ref().is_none_or(|(first, _)| at < *first) {
            self.failed = Some((at, error));
        }
    }

    /// Reads `pages`, a bounded number of them.
    fn turn(&mut self, pages: Range<u64>) -> Result<(), Error> {
        // Nobody waits for us while we wait: no claim is left, and the context is free.
        for index in self.through_context(pages)? {
            if self.stale.is_some_and(|stale| stale <= index) {
                continue;
            }
            if self.failed.as_ref().is_none_or(|(at, _)| index * PAGE < *at) {
                self.wait_for_other(index)?;
            }
        }
        if let Some(window) = self.window.take() {
            self.file.send_window(window, self.policy);
        }
        Ok(())
    }

    /// Reads of `pages` what nobody else is reading; those that somebody is.
    pub(super) fn through_context(&mut self, pages: Range<u64>) -> Result<Vec<u64>, Error> {
        let mount = self.mount;
        let io = &mut *mount.contexts.take()?;
        let mut others = Vec::new();
        let mut hits = io.take_hits();
        let mut next = pages.start;
        let mut missed = None;
        loop {
            // As much as there is room for.
            while next < pages.end
                && io.in_flight().reads.len() < WINDOW
                && self.failed.is_none()
                && self.stale.is_none()
            {
                let most = (pages.end - next).min(CHUNK_PAGES as u64);
                let Some((place, count, bytes)) =
                    whole_pages(io.block_bytes, &self.finder, self.file.size(), next, most)
                else {
                    next += self.read_odd(io, next);
                    continue;
                };
                // Of the page that the read came to it is known that it is not there.
                let found = match next > pages.start {
                    true => self.cache.look_up(self.ino, next),
                    false => LookUp::Absent,
                };
                let claimed = match found {
                    LookUp::Absent => self.cache.claim_run(self.ino, next, count, io.claims()),
                    LookUp::Hit(_) | LookUp::Filling(_) => 0,
                };
                if claimed == 0 {
                    match self.cache.look_up(self.ino, next) {
                        LookUp::Hit(_) => hits.push(next),
                        LookUp::Filling(_) => others.push(next),
                        // There is no room for it, or it has just left.
                        LookUp::Absent => self.read_private(io, next),
                    }
                    next += 1;
                    continue;
                }
                self.keep_up(claimed);
                let bytes = bytes.min(claimed * PAGE_BYTES);
                let stretch = Stretch { file: self.ino, first: next, place, bytes };
                let counts = &mount.counts;
                match io.send_claimed(self.cache, counts, For::Reader, stretch, self.policy) {
                    Ok(()) => {
                        missed.get_or_insert(next);
                        counts.add(Count::Misses, claimed as u64);
                        next += claimed as u64;
                    }
                    // There is a page again when something has ended.
                    Err(NotSent::Full | NotSent::NoPage) if !io.in_flight().reads.is_empty() => {
                        break;
                    }
                    Err(NotSent::Full | NotSent::NoPage) => {
                        self.read_private(io, next);
                        next += 1;
                    }
                    Err(NotSent::Failed(error)) => self.fail(next, error),
                }
            }
            self.gap(io, &mut hits, missed.take());
            let (offset, end) = (self.offset, self.end);
            let target = &mut *self.target;
            let completed = io.complete_read(self.cache, |index, page| {
                let (begin, stop) = ((index * PAGE).max(offset), ((index + 1) * PAGE).min(end));
                if begin < stop {
                    let within = (begin - index * PAGE) as usize;
                    target.put(
                        (begin - offset) as usize,
                        &page[within..within + (stop - begin) as usize],
                    );
                }
            });
            match completed {
                Some((_, Ok(()))) => {}
                Some((first, Err(error))) => {
                    mount.counts.add(Count::Failed, 1);
                    self.fail(first, error);
                }
                None if next >= pages.end || self.failed.is_some() || self.stale.is_some() => break,
                None => {}
            }
        }
        others.append(&mut self.pending);
        // What is being read ahead in this very context nobody else would take in.
        if !io.in_flight().ahead.is_empty() {
            io.reap_ahead(self.cache, &mount.counts);
            others.retain(|index| {
                let page = Some((self.ino, *index));
                !io.wait_ahead(self.cache, &mount.counts, page) || !self.copy(*index)
            });
        }
        io.give_hits(hits);
        Ok(others)
    }

    /// Keeps the cache's queues: in the gap (0 pages are `claimed`), or where the mount is not to
    /// overlap that, before the device is asked for pages that were just claimed.
    #[inline]
    fn keep_up(&self, claimed: usize) {
        if self.mount.options.overlap.lazy_insert == (claimed == 0) {
            self.cache.maintain(claimed, claimed);
        }
    }

    /// What is done while the device works.
    #[inline]
    fn gap(&mut self, io: &mut IoContext, hits: &mut Vec<u64>, missed: Option<u64>) {
        let mount = self.mount;
        let timed = mount.timed.load(Ordering::Relaxed);
        let began_ns = if timed { mount.clock.now_ns() } else { 0 };
        self.keep_up(0);
        io.refill(self.cache);
        for index in hits.drain(..) {
            // Gone meanwhile: as if it had never been there.
            if !self.copy(index) {
                self.read_private(io, index);
            }
        }
        if let Some(missed) = missed
            && !std::mem::replace(&mut self.told, true)
        {
            let pages = self.offset / PAGE..self.end.div_ceil(PAGE);
            if let Some(window) = self.file.ahead.missed(missed, &pages) {
                self.send_ahead(io, window);
            }
        }
        if timed && missed.is_some() {
            let took_ns = mount.clock.now_ns().saturating_sub(began_ns);
            mount.counts.add(Count::DeferrableNs, took_ns);
            if io.is_device_busy() && io.poll() == 0 {
                mount.counts.add(Count::HiddenNs, took_ns);
            }
        }
    }

    /// Has `window` read ahead: now, if that needs no metadata, which would want a context too.
    fn send_ahead(&mut self, io: &mut IoContext, window: Range<u64>) {
        let end = window.end.saturating_mul(PAGE).min(self.file.size());
        match &self.file.extents {
            Some(extents) if extents.reaches(end, self.mount.block_shift) => {
                let finder = self.file.finder(extents);
                self.file.send_ahead(io, &finder, window, self.policy);
            }
            _ => self.window = Some(window),
        }
    }

    /// Copies what is wanted of page `index` from the cache; false: it is not there.
    pub(super) fn copy(&mut self, index: u64) -> bool {
        let Part { at, within, len } = self.part(index);
        copy_hit(self.cache, self.ino, index, within, at, len, self.target)
    }
}
