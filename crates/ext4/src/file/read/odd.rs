//! The pages of a read that one request does not bring: nowhere, in pieces, another's, or past the
//! cache.

use std::io::IoSliceMut;

use super::cached::{PAGE, Part, Reader, TURN_PAGES};
use crate::cache::{Claim, Claiming, LookUp, PAGE_BYTES};
use crate::counters::Count;
use crate::error::Error;
use crate::io::IoContext;
use crate::io::direct::Stopped;
use crate::io::target::{Place, Target};
use meantime_process::lock::{Rank, wait_for};

/// How long another's I/O is waited for before the page is read past the cache, in ns; and between
/// two looks whether its context was left alone.
const PATIENCE_NS: u64 = 20_000_000;
const LOOK_NS: u64 = 100_000;

impl Reader<'_, '_, '_> {
    /// A page that is nowhere on the device, or in several places; how many pages were seen to.
    #[cold]
    #[inline(never)]
    pub(super) fn read_odd(&mut self, io: &mut IoContext, index: u64) -> u64 {
        let mut wanted = ((self.end - index * PAGE) as usize).min(TURN_PAGES as usize * PAGE_BYTES);
        if self.version.is_some() {
            // What was written and has no place yet is in the cache.
            let pages = wanted.div_ceil(PAGE_BYTES) as u64;
            let absent = |n: &u64| self.cache.look_up(self.ino, index + n) != LookUp::Absent;
            match (0..pages).find(absent) {
                Some(0) => {
                    if !self.copy(index) {
                        self.pending.push(index);
                    }
                    return 1;
                }
                Some(there) => wanted = wanted.min(there as usize * PAGE_BYTES),
                None => {}
            }
            if self.is_stale(index) {
                return 0;
            }
        }
        let piece = self.finder.find(index * PAGE, wanted);
        if matches!(piece.place, Place::Zero) && (piece.len >= PAGE_BYTES || piece.len == wanted) {
            // Zeroes are made as fast as they are copied: they are not kept.
            let count = if piece.len == wanted {
                piece.len.div_ceil(PAGE_BYTES)
            } else {
                piece.len / PAGE_BYTES
            };
            let begin = (index * PAGE).max(self.offset);
            let stop = ((index + count as u64) * PAGE).min(self.end);
            self.target.zero((begin - self.offset) as usize, (stop - begin) as usize);
            return count as u64;
        }
        match self.cache.claim(self.ino, index) {
            Claiming::Claimed(claim) if self.is_stale(index) => {
                self.cache.abandon(claim);
                return 0;
            }
            Claiming::Claimed(claim) => self.fill_odd(io, index, claim),
            Claiming::Hit(_) if self.copy(index) => {}
            Claiming::Hit(_) | Claiming::Filling(_) | Claiming::Full => {
                self.read_private(io, index)
            }
        }
        1
    }

    /// Puts page `index` together from where its pieces are.
    fn fill_odd(&mut self, io: &mut IoContext, index: u64, claim: Claim) {
        let counts = &self.mount.counts;
        let Some(mut page) = io.page(self.cache) else {
            self.cache.abandon(claim);
            return self.read_private(io, index);
        };
        page.set_len(PAGE_BYTES);
        let stop = ((index + 1) * PAGE).min(self.file.size());
        let bytes = (stop - index * PAGE) as usize;
        let mut bufs = [IoSliceMut::new(&mut page[..bytes])];
        let pieces = self.finder.pieces(index * PAGE..stop);
        let read = io.read_pieces(0, pieces, &mut Target::new(&mut bufs), self.policy);
        if let Err(Stopped { error, .. }) = read {
            counts.add(Count::Failed, 1);
            self.cache.abandon(claim);
            self.cache.give_pages([page]);
            return self.fail(index, error);
        }
        page[bytes..].fill(0);
        let Part { at, within, len } = self.part(index);
        self.target.put(at, &page[within..within + len]);
        counts.add(Count::Misses, 1);
        counts.add(Count::RequestedBytes, bytes as u64);
        if let Err(page) = self.cache.publish(claim, page) {
            self.cache.give_pages([page]);
        }
    }

    /// Reads page `index` past the cache.
    #[cold]
    #[inline(never)]
    pub(super) fn read_private(&mut self, io: &mut IoContext, index: u64) {
        // (Its extents may be those of before it was written; it was not there.)
        if self.is_stale(index) {
            return;
        }
        let Part { at, within, len } = self.part(index);
        let start = index * PAGE + within as u64;
        let counts = &self.mount.counts;
        counts.add(Count::Private, 1);
        counts.add(Count::RequestedBytes, PAGE);
        let pieces = self.finder.pieces(start..start + len as u64);
        if let Err(Stopped { done, error }) = io.read_pieces(at, pieces, self.target, self.policy) {
            counts.add(Count::Failed, 1);
            let failed_at = self.offset + done as u64;
            if self.failed.as_ref().is_none_or(|(first, _)| failed_at < *first) {
                self.failed = Some((failed_at, error));
            }
        }
    }

    /// Waits for somebody else's read of page `index`. If that takes unreasonably long (its thread
    /// may not be running), reads it too.
    #[cold]
    #[inline(never)]
    pub(super) fn wait_for_other(&mut self, index: u64) -> Result<(), Error> {
        let mount = self.mount;
        wait_for(Rank::PagesFilling);
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
                // Its reader has failed, or it has left again: it is ours to read. (Once another
                // page of this read has failed or is stale, `through_context` reads nothing more.)
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
