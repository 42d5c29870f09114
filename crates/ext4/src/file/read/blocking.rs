//! Cached reads of a thread, which waits with its I/O context.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::cached::{CachedRead, PagePart, Step, part};
use crate::cache::{FillDuty, LookUp, PAGE, PAGE_BYTES};
use crate::counters::Count;
use crate::error::Result;
use crate::file::File;
use crate::io::IoContext;
use crate::io::direct::Stopped;
use crate::io::fill::{FillRange, For, NotSent};
use crate::io::target::Target;
use crate::options::ReadOptions;
use meantime_process::lock::{Rank, check_may_wait};

/// Maximum number of pages for which a read takes its I/O context once: 1 MiB.
const CHUNK_PAGES_MAX: u64 = 256;

/// Requests of a read that are in flight at once.
const WINDOW: usize = 16;

/// Turns of a read that find the file changed before what is left is read past the cache.
const TRIES: u32 = 16;

/// The time for which a read waits for another reader's I/O before it reads the page past the
/// cache, and the interval of the checks whether its context is free, in ns.
const PATIENCE_NS: u64 = 20_000_000;
const LOOK_NS: u64 = 100_000;

impl File {
    /// Reads from byte `at` on, whose page is not in the cache.
    #[inline(never)]
    pub(super) fn read_missing(
        &self,
        target: &mut Target<'_, '_>,
        offset: u64,
        mut at: u64,
        mut end: u64,
        options: &ReadOptions,
    ) -> Result<usize> {
        let mount = &*self.node().mount;
        target.is_from_device = true;
        let guard = self.keep_blocks();
        if self.extents.is_none() {
            // The file may have been truncated meanwhile.
            end = end.min(self.size());
        }
        let (mut failed, mut miss_noted, mut tries) = (None, false, 0);
        while at < end && failed.is_none() {
            if tries == TRIES {
                // The file keeps changing. The guard is dropped first, because locks of lower ranks
                // follow.
                drop(guard);
                let (into, len) = ((at - offset) as usize, (end - at) as usize);
                return match self.read_direct(target, into, at, len, options) {
                    Err(_) if into > 0 => Ok(into),
                    read => read,
                };
            }
            // Whole pages, because these go into the cache.
            let pages = at / PAGE..end.div_ceil(PAGE);
            let last = pages.end.saturating_mul(PAGE).min(self.size());
            let version = self.node().inode.writable.as_ref().map(|_| self.node().inode.version());
            let made;
            let extents = match &self.extents {
                Some(extents) if extents.reaches(last, mount.block_shift) => &**extents,
                _ => {
                    made = self.extents_of_pages(&pages)?;
                    &*made
                }
            };
            let mut read = CachedRead::new(self, extents, target, offset..end, options);
            (read.miss_noted, read.version) = (miss_noted, version);
            while at < end && read.failed.is_none() && read.stale.is_none() {
                let stop = ((at / PAGE + CHUNK_PAGES_MAX) * PAGE).min(end);
                read.read_chunk(at / PAGE..stop.div_ceil(PAGE))?;
                at = read.stale.map_or(stop, |index| (index * PAGE).max(at));
            }
            tries += u32::from(read.stale.is_some());
            (failed, miss_noted) = (read.failed.take(), read.miss_noted);
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

impl CachedRead<'_, '_, '_> {
    /// Reads `pages`, whose number is bounded.
    fn read_chunk(&mut self, pages: Range<u64>) -> Result<()> {
        let left = self.through_context(pages)?;
        // From here on this thread holds no claim and no context, so no reader waits for it while
        // it waits for others.
        for index in left {
            if self.stale.is_some_and(|stale| stale <= index) {
                continue;
            }
            if self.failed.as_ref().is_none_or(|(at, _)| index * PAGE < *at) {
                self.wait_for_other(index)?;
            }
        }
        if let Some(window) = self.ahead_later.take() {
            self.file.send_window(window, self.policy);
        }
        Ok(())
    }

    /// Reads those of `pages` that no other reader is reading. Returns the rest.
    fn through_context(&mut self, pages: Range<u64>) -> Result<Vec<u64>> {
        let mount = self.mount;
        let io = &mut *mount.contexts.take()?;
        self.begin(pages);
        self.hits = io.fills.take_hits();
        loop {
            // This sends as many requests as there is room for.
            while io.in_flight().reads.len() < WINDOW {
                match self.step(io.fills.duties()) {
                    Step::Send(fill_range) if self.send(io, fill_range) => {}
                    // A completed request leaves a page that can be evicted.
                    Step::Send(_) => break,
                    Step::Gather(index, duty) => self.gather(io, index, duty),
                    Step::Private(index) => self.read_private(io, index),
                    Step::End => break,
                }
            }
            let is_idle = io.in_flight().reads.is_empty() && self.hits.is_empty();
            if is_idle && self.is_over() {
                break;
            }
            self.gap(io);
            let (bytes, target) = (self.offset..self.end, &mut *self.target);
            let completed = io.complete_read(self.cache, |index, page| {
                let PagePart { at, within, len } = part(bytes.clone(), index);
                target.put(at, &page[within..within + len]);
            });
            match completed {
                Some((_, Ok(()))) => {}
                Some((first, Err(error))) => self.fail(first, error),
                None => {}
            }
        }
        io.fills.give_hits(std::mem::take(&mut self.hits));
        let mut others = std::mem::take(&mut self.others);
        // A read-ahead in flight in this context is completed by no other thread.
        if !io.in_flight().ahead.is_empty() {
            others.retain(|index| {
                let page = Some((self.ino, *index));
                let is_there = self.copy(*index)
                    || (io.wait_ahead(self.cache, &mount.counts, page) && self.copy(*index));
                !is_there
            });
        }
        Ok(others)
    }

    /// Sends the request for `fill_range`. Returns false if its pages have to be claimed again when
    /// another request has completed.
    #[inline]
    fn send(&mut self, io: &mut IoContext, fill_range: FillRange) -> bool {
        let counts = &self.mount.counts;
        let first = fill_range.first;
        match io.send_claimed(self.cache, counts, For::Reader, fill_range, self.policy) {
            Ok(()) => counts.add(Count::Misses, self.next - first),
            Err(NotSent::Full | NotSent::NoPage) if !io.in_flight().reads.is_empty() => {
                self.next = first;
                return false;
            }
            Err(NotSent::Full | NotSent::NoPage) => {
                self.next = first + 1;
                self.read_private(io, first);
            }
            Err(NotSent::Failed(error)) => self.fail(first, error),
        }
        true
    }

    /// Does the work of the gap, while the device works.
    #[inline]
    fn gap(&mut self, io: &mut IoContext) {
        let mount = self.mount;
        let missed = self.missed.take();
        let timed = mount.timed.load(Ordering::Relaxed);
        let began_ns = if timed { mount.clock.now_ns() } else { 0 };
        self.maintain_in_gap();
        io.fills.refill(self.cache);
        for index in self.copy_deferred() {
            self.read_private(io, index);
        }
        if let Some(window) = self.window(missed) {
            self.send_ahead(io, window);
        }
        if timed && missed.is_some() {
            let took_ns = mount.clock.now_ns().saturating_sub(began_ns);
            mount.counts.add(Count::DeferrableNs, took_ns);
            if io.is_device_busy() && io.poll() == 0 {
                mount.counts.add(Count::HiddenNs, took_ns);
            }
        }
    }

    /// Sends the read-ahead of `window`. If that needs metadata, it is sent later, because reading
    /// these needs a context too.
    fn send_ahead(&mut self, io: &mut IoContext, window: Range<u64>) {
        let end = window.end.saturating_mul(PAGE).min(self.file.size());
        if self.finder.extents.reaches(end, self.mount.block_shift) {
            self.file.send_window_with(io, &self.finder, window, self.policy);
        } else {
            self.ahead_later = Some(window);
        }
    }

    /// Assembles page `index` from its pieces.
    fn gather(&mut self, io: &mut IoContext, index: u64, duty: FillDuty) {
        let counts = &self.mount.counts;
        let Some(mut page) = io.fills.page(self.cache) else {
            self.cache.abandon(duty);
            return self.read_private(io, index);
        };
        page.set_len(PAGE_BYTES);
        let stop = ((index + 1) * PAGE).min(self.file.size());
        let bytes = (stop - index * PAGE) as usize;
        let pieces = self.finder.pieces(index * PAGE..stop);
        if let Err(error) = io.fill(&mut page[..bytes], pieces, self.policy) {
            self.cache.abandon(duty);
            self.cache.give_pages([page]);
            return self.fail(index, error);
        }
        page[bytes..].fill(0);
        let PagePart { at, within, len } = self.part(index);
        self.target.put(at, &page[within..within + len]);
        counts.add(Count::Misses, 1);
        counts.add(Count::RequestedBytes, bytes as u64);
        if let Err(page) = self.cache.publish(duty, page) {
            self.cache.give_pages([page]);
        }
    }

    /// Reads page `index` past the cache.
    #[cold]
    #[inline(never)]
    fn read_private(&mut self, io: &mut IoContext, index: u64) {
        // The extents may be older than a write to the page, which was not in the cache.
        if self.note_if_stale(index) {
            return;
        }
        let PagePart { at, within, len } = self.part(index);
        let start = index * PAGE + within as u64;
        let counts = &self.mount.counts;
        counts.add(Count::Private, 1);
        counts.add(Count::RequestedBytes, PAGE);
        let pieces = self.finder.pieces(start..start + len as u64);
        if let Err(Stopped { done, error }) = io.read_pieces(at, pieces, self.target, self.policy) {
            self.fail_at(self.offset + done as u64, error);
        }
    }

    /// Waits for another reader of page `index`. If that takes unreasonably long (its thread may
    /// not be running), reads the page itself.
    #[cold]
    #[inline(never)]
    fn wait_for_other(&mut self, index: u64) -> Result<()> {
        let mount = self.mount;
        check_may_wait(Rank::PagesFilling);
        mount.counts.add(Count::Waits, 1);
        let clock = &mount.clock;
        let until_ns = clock.now_ns().saturating_add(PATIENCE_NS);
        loop {
            match self.cache.look_up(self.ino, index) {
                LookUp::Hit(_) if self.copy(index) => return Ok(()),
                LookUp::Filling(filling) if clock.now_ns() < until_ns => {
                    // A context that no thread holds may be reading it ahead.
                    mount.contexts.each_left(|io| io.reap_ahead(self.cache, &mount.counts));
                    self.cache.wait(filling, LOOK_NS);
                }
                // Its reader has failed, or the page was evicted: this thread reads it. Once
                // another page of this read has failed or is stale, `through_context` reads nothing
                // more.
                LookUp::Hit(_) | LookUp::Absent
                    if self.failed.is_none()
                        && self.stale.is_none()
                        && clock.now_ns() < until_ns =>
                {
                    let others = self.through_context(index..index + 1)?;
                    if others.is_empty() {
                        return Ok(());
                    }
                }
                _ => {
                    let mut io = mount.contexts.take()?;
                    self.read_private(&mut io, index);
                    return Ok(());
                }
            }
        }
    }
}
