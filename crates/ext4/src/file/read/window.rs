//! Sends read-ahead, and the reads of [`Advice::WillNeed`](crate::options::Advice::WillNeed).

use std::ops::Range;

use super::cached::whole_pages;
use crate::cache::{PAGE, PAGE_BYTES};
use crate::counters::Count;
use crate::error::Result;
use crate::file::File;
use crate::inode::extents::Finder;
use crate::io::IoContext;
use crate::io::fill::{AHEAD_CHUNK_PAGES, AHEAD_REQUESTS, FillRange, For};
use crate::options::ReadOptions;
use meantime_completion::Policy;

impl File {
    /// Sends the next window, if a read of `pages` has reached the trigger.
    #[inline]
    pub(crate) fn send_due_window(&self, pages: &Range<u64>, options: &ReadOptions) {
        if self.ahead.is_due(pages) {
            self.send_next_window(pages, options);
        }
    }

    #[cold]
    #[inline(never)]
    fn send_next_window(&self, pages: &Range<u64>, options: &ReadOptions) {
        if let Some(window) = self.ahead.next_window(pages) {
            let _guard = self.keep_blocks();
            self.send_window(window, options.policy);
        }
    }

    /// Sends the read-ahead of `window`. The caller [keeps the file's blocks](File::keep_blocks).
    /// This function does not lock them itself: a second read lock deadlocks when a writer waits in
    /// between.
    pub(crate) fn send_window(&self, window: Range<u64>, policy: Option<Policy>) {
        // The reader sees a failure itself.
        if let Ok(extents) = self.extents_of_pages(&window)
            && let Ok(mut io) = self.node().mount.contexts.take()
        {
            self.send_window_with(&mut io, &self.finder(&extents), window, policy);
        }
    }

    /// Sends the read-ahead of `window` with the caller's context and the file's extents.
    pub(super) fn send_window_with(
        &self,
        io: &mut IoContext,
        finder: &Finder<'_>,
        window: Range<u64>,
        policy: Option<Policy>,
    ) {
        let end = window.end.min(self.size().div_ceil(PAGE));
        let next = self.send_ahead(io, finder, window, policy);
        if next < end {
            self.ahead.stopped_at(next);
        }
    }

    /// Sends requests for the missing pages of `window`, as far as there is room for requests.
    /// Returns the page at which it stopped.
    fn send_ahead(
        &self,
        io: &mut IoContext,
        finder: &Finder<'_>,
        window: Range<u64>,
        policy: Option<Policy>,
    ) -> u64 {
        let mount = &*self.node().mount;
        let (cache, counts) = (mount.contexts.cache(), &mount.counts);
        if !io.in_flight().ahead.is_empty() {
            io.reap_ahead(cache, counts);
        }
        counts.begin_ahead();
        let last = window.end.min(self.size().div_ceil(PAGE));
        let mut next = window.start;
        while next < last && io.in_flight().ahead.len() < AHEAD_REQUESTS {
            let most = (last - next).min(AHEAD_CHUNK_PAGES as u64);
            let Some((device_byte, count, bytes)) =
                whole_pages(io.block_bytes, finder, self.size(), next, most)
            else {
                // No single request can read this page, so it is left to its reader.
                next += 1;
                continue;
            };
            let ino = u64::from(self.node().ino());
            let claimed = cache.claim_run(ino, next, count, io.fills.duties());
            if claimed == 0 {
                next += 1;
                continue;
            }
            let bytes = bytes.min(claimed * PAGE_BYTES);
            let fill_range = FillRange { file: ino, first: next, device_byte, bytes };
            match io.send_claimed(cache, counts, For::Ahead, fill_range, policy) {
                Ok(()) => {
                    counts.add(Count::Ahead, claimed as u64);
                    counts.begin_ahead();
                    next += claimed as u64;
                }
                Err(_) => break,
            }
        }
        counts.end_ahead();
        next
    }

    /// Sends reads of the bytes `offset..end`, at most half the cache, without waiting for the
    /// data.
    pub(crate) fn fetch(&self, offset: u64, end: u64) -> Result<()> {
        if offset >= end {
            return Ok(());
        }
        let mount = &*self.node().mount;
        let most = mount.contexts.cache().capacity_pages() as u64 / 2;
        let pages = offset / PAGE..end.div_ceil(PAGE).min(offset / PAGE + most);
        let _guard = self.keep_blocks();
        let extents = self.extents_of_pages(&pages)?;
        let finder = self.finder(&extents);
        let mut io = mount.contexts.take()?;
        let mut next = pages.start;
        while next < pages.end {
            let before = next;
            next = self.send_ahead(&mut io, &finder, next..pages.end, None);
            // Every request is in flight. There is room when the oldest one has completed.
            if next == before && !io.wait_ahead(mount.contexts.cache(), &mount.counts, None) {
                break;
            }
        }
        Ok(())
    }
}
