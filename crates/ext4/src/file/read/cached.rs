//! Reads through the page cache, overlapped with the device.
//!
//! Cached pages are copied without a lock. From the first missing page on, a [`CachedRead`] decides
//! what comes next, [step](CachedRead::step) by step. Missing pages are claimed, up to eight at a
//! time, and sent at once, so the device works while the next ones are claimed. What can wait is
//! done after that, *in the gap*: copying hits, the cache's queues, read-ahead. Then the requests
//! are waited for one after another, and each is copied while the others are in flight. Pages that
//! other readers are reading come last: then no reader waits for this one.
//!
//! The steps are taken by a thread that waits with its I/O context (`blocking`), or by a future
//! ([`AsyncFile`](crate::AsyncFile)).

use std::ops::Range;

use crate::cache::{Claiming, FillDuty, LookUp, PAGE, PAGE_BYTES, PageCache};
use crate::counters::Count;
use crate::error::{Error, Result};
use crate::file::File;
use crate::inode::Mount;
use crate::inode::extents::{Extents, Finder};
use crate::io::fill::{CHUNK_PAGES, FillRange};
use crate::io::target::{Location, Piece, Target};
use crate::options::ReadOptions;
use meantime_completion::Policy;

/// Maximum number of pages that one step finds to be zeroes.
const ZERO_PAGES: u64 = 256;

/// The bytes of one page that a read wants.
#[derive(Clone, Copy)]
pub(crate) struct PagePart {
    /// Offset in the target.
    pub(crate) at: usize,
    /// Offset in the page.
    pub(crate) within: usize,
    pub(crate) len: usize,
}

/// A read of which some pages are not in the cache.
pub(crate) struct CachedRead<'a, 't, 'b> {
    pub(crate) file: &'a File,
    pub(crate) mount: &'a Mount,
    pub(crate) cache: &'a PageCache,
    pub(crate) ino: u64,
    pub(crate) finder: Finder<'a>,
    pub(crate) target: &'a mut Target<'t, 'b>,
    /// First and end of the bytes of the file that are read. The first is byte 0 of the target.
    pub(crate) offset: u64,
    pub(crate) end: u64,
    pub(crate) policy: Option<Policy>,
    /// First byte of the file that could not be read, and why.
    pub(crate) failed: Option<(u64, Error)>,
    /// Whether a miss was reported to the file's read-ahead.
    pub(crate) miss_noted: bool,
    /// The inode's version when the extents were looked up; `None`: it does not change.
    pub(crate) version: Option<u64>,
    /// Page from which on the extents have to be looked up again.
    pub(crate) stale: Option<u64>,
    /// First page of the current steps, the next page, and the end.
    pub(crate) first: u64,
    pub(crate) next: u64,
    pub(crate) stop: u64,
    /// First page that was requested since the last gap.
    pub(crate) missed: Option<u64>,
    /// Cached pages that are copied in the gap.
    pub(crate) hits: Vec<u64>,
    /// Pages that another reader is reading, or was.
    pub(crate) others: Vec<u64>,
    /// Window to be read ahead when the context is free, because its extents are not known.
    pub(crate) ahead_later: Option<Range<u64>>,
}

/// The next step of a read.
pub(crate) enum Step {
    /// Send a request for this range, whose pages are claimed.
    Send(FillRange),
    /// Assemble this page, which is claimed, from its pieces.
    Gather(u64, FillDuty),
    /// Read this page past the cache.
    Private(u64),
    /// There is nothing to do: all pages are dealt with, or the read has failed or is stale.
    End,
}

impl File {
    /// Reads `len` bytes, at least one and all within the file.
    #[inline]
    pub(crate) fn read_cached(
        &self,
        target: &mut Target<'_, '_>,
        offset: u64,
        len: usize,
        options: &ReadOptions,
    ) -> Result<usize> {
        let mount = &*self.node().mount;
        let (cache, ino) = (mount.contexts.cache(), u64::from(self.node().ino()));
        let end = offset + len as u64;
        let at = copy_hits(cache, ino, offset..end, target);
        let pages = offset / PAGE..end.div_ceil(PAGE);
        if at > offset {
            mount.counts.add(Count::Hits, at.div_ceil(PAGE) - pages.start);
        }
        self.send_due_window(&pages, options);
        if at == end {
            return Ok(len);
        }
        self.read_missing(target, offset, at, end, options)
    }
}

/// Copies `len` bytes of a page to byte `at` of the target. Returns false if the page is not
/// cached.
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
    // Only the first of sequential reads of a page counts, so one pass is one visit.
    if whole && within < len {
        cache.visit(hit);
    }
    whole
}

/// Copies the cached pages of a read of `bytes`, up to the first missing one. Returns the byte at
/// which it stopped.
#[inline(always)]
pub(crate) fn copy_hits(
    cache: &PageCache,
    file: u64,
    bytes: Range<u64>,
    target: &mut Target<'_, '_>,
) -> u64 {
    let mut next = bytes.start;
    while next < bytes.end {
        let index = next / PAGE;
        let PagePart { at, within, len } = part(bytes.clone(), index);
        if !copy_hit(cache, file, index, within, at, len, target) {
            break;
        }
        next += len as u64;
    }
    next
}

/// Returns where page `index` begins on the device, how many pages from it on (up to `most`) one
/// request can read, and their bytes. Returns `None` if the page is in pieces, is not on the
/// device, or begins within a block of the device.
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
    let Piece { place: Location::Device(device_byte), len } = finder.find(start, wanted) else {
        return None;
    };
    if !device_byte.is_multiple_of(u64::from(block_bytes)) {
        return None;
    }
    if len == wanted {
        return Some((device_byte, wanted.div_ceil(PAGE_BYTES), wanted));
    }
    let count = len / PAGE_BYTES;
    (count > 0).then_some((device_byte, count, count * PAGE_BYTES))
}

impl<'a, 't, 'b> CachedRead<'a, 't, 'b> {
    /// Returns a read of `bytes` of `file`, which has `extents`.
    pub(crate) fn new(
        file: &'a File,
        extents: &'a Extents,
        target: &'a mut Target<'t, 'b>,
        bytes: Range<u64>,
        options: &ReadOptions,
    ) -> Self {
        let mount = &*file.node().mount;
        Self {
            file,
            mount,
            cache: mount.contexts.cache(),
            ino: u64::from(file.node().ino()),
            finder: file.finder(extents),
            target,
            offset: bytes.start,
            end: bytes.end,
            policy: options.policy,
            failed: None,
            miss_noted: false,
            version: None,
            stale: None,
            first: 0,
            next: 0,
            stop: 0,
            missed: None,
            hits: Vec::new(),
            others: Vec::new(),
            ahead_later: None,
        }
    }

    /// Returns the next step. The duties for pages to be sent go into `duties`.
    #[inline]
    pub(crate) fn step(&mut self, duties: &mut Vec<FillDuty>) -> Step {
        while !self.is_over() {
            let index = self.next;
            let most = (self.stop - index).min(CHUNK_PAGES as u64);
            let block_bytes = self.mount.contexts.info().block_bytes;
            let whole = whole_pages(block_bytes, &self.finder, self.file.size(), index, most);
            let Some((device_byte, count, bytes)) = whole else {
                match self.special_step(index) {
                    Some(step) => return step,
                    None => continue,
                }
            };
            // The first page was looked up already: it is missing, or claimed just now.
            let found = match index > self.first {
                true => self.cache.look_up(self.ino, index),
                false => LookUp::Absent,
            };
            let claimed = match found {
                LookUp::Absent => self.cache.claim_run(self.ino, index, count, duties),
                LookUp::Hit(_) | LookUp::Filling(_) => 0,
            };
            if claimed > 0 {
                self.next += claimed as u64;
                self.missed.get_or_insert(index);
                // What the mount does not do in the gap is done before the device is asked.
                if !self.mount.options.overlap.lazy_insert {
                    self.cache.maintain(claimed, claimed);
                }
                let bytes = bytes.min(claimed * PAGE_BYTES);
                return Step::Send(FillRange { file: self.ino, first: index, device_byte, bytes });
            }
            self.next += 1;
            match self.cache.look_up(self.ino, index) {
                LookUp::Hit(_) => self.hits.push(index),
                LookUp::Filling(_) => self.others.push(index),
                // The cache is full, or the page was just evicted.
                LookUp::Absent => return Step::Private(index),
            }
        }
        Step::End
    }

    /// Starts the steps for `pages`.
    pub(crate) fn begin(&mut self, pages: Range<u64>) {
        (self.first, self.next, self.stop) = (pages.start, pages.start, pages.end);
    }

    /// Returns whether no step is left.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.next >= self.stop || self.failed.is_some() || self.stale.is_some()
    }

    /// Handles a page that is not on the device, or in several places. Returns `None` if no step is
    /// needed.
    #[cold]
    #[inline(never)]
    fn special_step(&mut self, index: u64) -> Option<Step> {
        let most = (self.stop - index).min(ZERO_PAGES) as usize * PAGE_BYTES;
        let mut wanted = ((self.end - index * PAGE) as usize).min(most);
        if self.version.is_some() {
            // Written data that have no block yet are in the cache.
            let pages = wanted.div_ceil(PAGE_BYTES) as u64;
            let absent = |n: &u64| self.cache.look_up(self.ino, index + n) != LookUp::Absent;
            match (0..pages).find(absent) {
                Some(0) => {
                    self.next += 1;
                    if !self.copy(index) {
                        self.others.push(index);
                    }
                    return None;
                }
                Some(there) => wanted = wanted.min(there as usize * PAGE_BYTES),
                None => {}
            }
            if self.note_if_stale(index) {
                return None;
            }
        }
        let piece = self.finder.find(index * PAGE, wanted);
        if matches!(piece.place, Location::Zero) && (piece.len >= PAGE_BYTES || piece.len == wanted)
        {
            // Writing zeroes is as fast as copying them, so they are not cached.
            let count = if piece.len == wanted {
                piece.len.div_ceil(PAGE_BYTES)
            } else {
                piece.len / PAGE_BYTES
            };
            let begin = (index * PAGE).max(self.offset);
            let stop = ((index + count as u64) * PAGE).min(self.end);
            self.target.zero((begin - self.offset) as usize, (stop - begin) as usize);
            self.next += count as u64;
            return None;
        }
        let claiming = self.cache.claim(self.ino, index);
        if let Claiming::Claimed(duty) = claiming {
            if self.note_if_stale(index) {
                self.cache.abandon(duty);
                return None;
            }
            self.next += 1;
            return Some(Step::Gather(index, duty));
        }
        self.next += 1;
        match claiming {
            Claiming::Hit(_) if self.copy(index) => None,
            _ => Some(Step::Private(index)),
        }
    }

    /// Copies, in the gap, the pages that were found in the cache. Returns those that were evicted
    /// meanwhile, which are treated as missing.
    pub(crate) fn copy_deferred(&mut self) -> Vec<u64> {
        let mut hits = std::mem::take(&mut self.hits);
        let found = hits.len() as u64;
        let mut gone = Vec::new();
        for index in hits.drain(..) {
            if !self.copy(index) {
                gone.push(index);
            }
        }
        self.hits = hits;
        self.mount.counts.add(Count::Hits, found - gone.len() as u64);
        gone
    }

    /// Returns the bytes of page `index` that are wanted.
    #[inline]
    pub(crate) fn part(&self, index: u64) -> PagePart {
        part(self.offset..self.end, index)
    }

    /// Copies what is wanted of page `index` from the cache. Returns false if the page is not
    /// there.
    pub(crate) fn copy(&mut self, index: u64) -> bool {
        let PagePart { at, within, len } = self.part(index);
        copy_hit(self.cache, self.ino, index, within, at, len, self.target)
    }

    /// Returns whether the extents of page `index`, which is not in the cache, may be old: it may
    /// have been written and evicted since they were looked up. The page is then read again.
    #[inline]
    pub(crate) fn note_if_stale(&mut self, index: u64) -> bool {
        let stale = self.version.is_some_and(|version| version != self.file.node().inode.version());
        if stale {
            self.again_from(index);
        }
        stale
    }

    /// Notes that the read has to be repeated from page `index`, or from an earlier one.
    #[cold]
    pub(crate) fn again_from(&mut self, index: u64) {
        self.stale = Some(self.stale.map_or(index, |first| first.min(index)));
    }

    /// Notes that page `index` could not be read, unless an earlier page failed.
    #[cold]
    pub(crate) fn fail(&mut self, index: u64, error: Error) {
        self.fail_at((index * PAGE).max(self.offset), error);
    }

    /// Notes that byte `byte` of the file could not be read, unless an earlier byte failed.
    #[cold]
    pub(crate) fn fail_at(&mut self, byte: u64, error: Error) {
        self.mount.counts.add(Count::Failed, 1);
        if self.failed.as_ref().is_none_or(|(first, _)| byte < *first) {
            self.failed = Some((byte, error));
        }
    }

    /// Maintains the cache's queues in the gap, if the mount overlaps this work.
    #[inline]
    pub(crate) fn maintain_in_gap(&self) {
        if self.mount.options.overlap.lazy_insert {
            self.cache.maintain(0, 0);
        }
    }

    /// Returns the window to be read ahead, now that `missed` was requested.
    #[inline]
    pub(crate) fn window(&mut self, missed: Option<u64>) -> Option<Range<u64>> {
        let missed = missed?;
        if std::mem::replace(&mut self.miss_noted, true) {
            return None;
        }
        let pages = self.offset / PAGE..self.end.div_ceil(PAGE);
        self.file.ahead.missed(missed, &pages)
    }
}

/// Returns the bytes of page `index` that a read of `bytes` wants.
#[inline]
pub(crate) fn part(bytes: Range<u64>, index: u64) -> PagePart {
    let begin = (index * PAGE).max(bytes.start);
    let stop = ((index + 1) * PAGE).min(bytes.end);
    PagePart {
        at: (begin - bytes.start) as usize,
        within: (begin - index * PAGE) as usize,
        len: stop.saturating_sub(begin) as usize,
    }
}
