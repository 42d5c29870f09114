//! Read-ahead for a sequential reader: when, and how far.
//!
//! A file is read ahead when a read misses a page and is sequential: it begins at the start of the
//! file, or continues from an earlier miss or from what was read ahead. Read-ahead goes up to a
//! *distance* in front of the reader, which doubles up to the mount's limit. From then on the device's
//! queue is kept full: each time the reader has advanced by the size of one request, the next is
//! sent. So a hit only compares a number, and writes nothing.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::io::fill::{AHEAD_CHUNK_PAGES, AHEAD_REQUESTS};
use crate::options::Advice;

/// The first distance, in pages.
const FIRST_PAGES: u64 = 4;

/// Pages of one request.
const CHUNK: u64 = AHEAD_CHUNK_PAGES as u64;

/// This value means that there is no page.
const NOWHERE: u64 = u64::MAX;

/// Access pattern of an open file. All accesses are relaxed: concurrent readers of one file may
/// disturb it, which costs only a few requests.
pub(crate) struct Ahead {
    /// Page whose read sends the next window.
    trigger: AtomicU64,
    /// Page after the last that was read ahead, or missed.
    next: AtomicU64,
    /// Current distance in pages; 0: no read-ahead.
    distance: AtomicU64,
    /// The mount's largest distance, in pages.
    most_pages: u64,
    advice: AtomicU8,
}

impl Ahead {
    pub(crate) fn new(most_bytes: usize) -> Self {
        Self {
            trigger: AtomicU64::new(NOWHERE),
            next: AtomicU64::new(0),
            distance: AtomicU64::new(0),
            most_pages: most_bytes as u64 / 4096,
            advice: AtomicU8::new(0),
        }
    }

    /// Sets the access pattern that the program announced.
    pub(crate) fn advise(&self, advice: Advice) {
        let kind = match advice {
            Advice::Normal => 0,
            Advice::Sequential => 1,
            Advice::Random => 2,
            Advice::WillNeed | Advice::DontNeed => return,
        };
        self.advice.store(kind, Ordering::Relaxed);
        if advice == Advice::Random {
            self.trigger.store(NOWHERE, Ordering::Relaxed);
        }
    }

    fn most_pages(&self) -> u64 {
        match self.advice.load(Ordering::Relaxed) {
            0 => self.most_pages,
            1 => self.most_pages.saturating_mul(2),
            _ => 0,
        }
    }

    /// Returns whether a read of `pages` has reached the trigger.
    #[inline(always)]
    pub(crate) fn is_due(&self, pages: &Range<u64>) -> bool {
        pages.contains(&self.trigger.load(Ordering::Relaxed))
    }

    /// Returns the window to be read ahead, if the trigger is among `pages`, which are being read.
    /// Only one of several readers gets it.
    pub(crate) fn next_window(&self, pages: &Range<u64>) -> Option<Range<u64>> {
        let trigger = self.trigger.load(Ordering::Relaxed);
        if !pages.contains(&trigger) {
            return None;
        }
        self.trigger
            .compare_exchange(trigger, NOWHERE, Ordering::Relaxed, Ordering::Relaxed)
            .ok()?;
        self.window(pages, self.next.load(Ordering::Relaxed))
    }

    /// Notes a read of `pages` that missed; `missed` is the first missing page. Returns the window
    /// to be read ahead, if the reader is sequential.
    pub(crate) fn missed(&self, missed: u64, pages: &Range<u64>) -> Option<Range<u64>> {
        let next = self.next.load(Ordering::Relaxed);
        let distance = self.distance.load(Ordering::Relaxed);
        // If a page within what was read ahead is missing, it was evicted, or its request could
        // not be sent.
        let in_order =
            missed == 0 || (pages.start <= next && next.saturating_sub(missed) <= distance);
        if !in_order || self.most_pages() == 0 {
            self.next.store(pages.end, Ordering::Relaxed);
            self.distance.store(0, Ordering::Relaxed);
            return None;
        }
        if distance == 0 || missed == 0 {
            let first = FIRST_PAGES.max((pages.end - pages.start).saturating_mul(2));
            self.distance.store(first.div_ceil(2), Ordering::Relaxed);
            return self.window(pages, pages.end);
        }
        self.window(pages, next)
    }

    /// Doubles the distance. Returns the window from page `next` on, up to the distance after `pages`.
    fn window(&self, pages: &Range<u64>, next: u64) -> Option<Range<u64>> {
        // The window is at least as long as the read, so that all of the next long read is in
        // flight.
        let read = (pages.end - pages.start).min(AHEAD_REQUESTS as u64 * CHUNK);
        let most = match self.most_pages() {
            0 => return None,
            most => most.max(read),
        };
        let distance = self.distance.load(Ordering::Relaxed).saturating_mul(2).max(read).min(most);
        if distance == 0 {
            return None;
        }
        self.distance.store(distance, Ordering::Relaxed);
        let start = next.max(pages.end);
        let end = pages.end.saturating_add(distance);
        // The window ends with a whole request.
        let end = if distance < CHUNK { end } else { end.next_multiple_of(CHUNK) };
        let end = end.max(start);
        self.next.store(end, Ordering::Relaxed);
        // When the reader comes to this page, there is room for another request.
        let trigger = end.saturating_sub(distance - CHUNK.min(distance / 2));
        self.trigger.store(trigger.max(pages.end), Ordering::Relaxed);
        (start < end).then_some(start..end)
    }

    /// Notes that requests were sent only up to page `next`.
    pub(crate) fn stopped_at(&self, next: u64) {
        self.next.store(next, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_grow_for_who_reads_in_order_and_only_for_him() {
        let ahead = Ahead::new(64 << 10);
        assert_eq!(ahead.missed(0, &(0..1)), Some(1..5));
        assert!(!ahead.is_due(&(0..3)) && ahead.is_due(&(3..4)));
        assert_eq!(ahead.next_window(&(3..4)), Some(5..12));
        assert_eq!(ahead.next_window(&(3..4)), None);
        assert_eq!(ahead.next_window(&(8..9)), Some(12..32));
        // From now on, one request after another.
        assert_eq!(ahead.next_window(&(24..25)), Some(32..48));
        assert_eq!(ahead.next_window(&(40..41)), Some(48..64));
        // Read-ahead continues where a full queue stopped it.
        ahead.stopped_at(48);
        assert_eq!(ahead.missed(48, &(48..49)), Some(49..80));
        // A random read ends it.
        assert_eq!(ahead.missed(100, &(100..101)), None);
        assert_eq!(ahead.missed(300, &(300..301)), None);
        // Two reads in sequence.
        assert_eq!(ahead.missed(301, &(301..303)), Some(303..307));
        ahead.advise(Advice::Random);
        assert!(!ahead.is_due(&(303..307)));
        assert_eq!(ahead.missed(307, &(307..308)), None);
        ahead.advise(Advice::Sequential);
        assert_eq!(ahead.missed(308, &(308..328)), Some(328..368));
        // The distance is as long as a long read.
        assert_eq!(ahead.missed(368, &(368..768)), Some(768..1152));
        assert_eq!(Ahead::new(0).missed(0, &(0..1)), None);
    }
}
