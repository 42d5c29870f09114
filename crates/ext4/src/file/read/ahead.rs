//! Reading ahead of a sequential reader: when, and how far.
//!
//! A file is read ahead of when its reader misses the page that comes after what it read last, or
//! the first one. Windows follow one another, each twice as large as the one before up to the
//! mount's limit; the reader's coming to the first page of one has the next sent. So hits only
//! compare a number, and write nothing.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::options::Advice;

/// The first window, in pages.
const FIRST_PAGES: u64 = 4;

/// No page.
const NOWHERE: u64 = u64::MAX;

/// What an open file's reads look like. All relaxed: several readers of one file may confuse it,
/// which costs no more than a window.
pub(crate) struct Ahead {
    /// The page that has the next window sent when it is read.
    trigger: AtomicU64,
    /// The page after the last that was read ahead, or missed.
    next: AtomicU64,
    /// The last window, in pages; 0: there is none.
    window: AtomicU64,
    /// The largest window, in pages, of the mount.
    most_pages: u64,
    advice: AtomicU8,
}

impl Ahead {
    pub(crate) fn new(most_bytes: usize) -> Self {
        Self {
            trigger: AtomicU64::new(NOWHERE),
            next: AtomicU64::new(0),
            window: AtomicU64::new(0),
            most_pages: most_bytes as u64 / 4096,
            advice: AtomicU8::new(0),
        }
    }

    /// The program says how it will read.
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

    /// Whether a read of `pages` came to where the next window is to be sent.
    #[inline(always)]
    pub(crate) fn is_due(&self, pages: &Range<u64>) -> bool {
        pages.contains(&self.trigger.load(Ordering::Relaxed))
    }

    /// The next window, if one of `pages`, which are read, has it sent. One of several readers gets
    /// it.
    pub(crate) fn next_window(&self, pages: &Range<u64>) -> Option<Range<u64>> {
        let trigger = self.trigger.load(Ordering::Relaxed);
        if !pages.contains(&trigger) {
            return None;
        }
        self.trigger
            .compare_exchange(trigger, NOWHERE, Ordering::Relaxed, Ordering::Relaxed)
            .ok()?;
        let start = self.next.load(Ordering::Relaxed).max(pages.end);
        self.send_from(start, self.window.load(Ordering::Relaxed).saturating_mul(2))
    }

    /// A read of `pages` missed `missed`, the first of those that were not there. The window after
    /// it, if it reads in order.
    pub(crate) fn missed(&self, missed: u64, pages: &Range<u64>) -> Option<Range<u64>> {
        let in_order = missed == 0 || missed == self.next.load(Ordering::Relaxed);
        self.next.store(pages.end, Ordering::Relaxed);
        if !in_order || self.most_pages() == 0 {
            self.window.store(0, Ordering::Relaxed);
            return None;
        }
        let before = self.window.load(Ordering::Relaxed);
        let read = pages.end - pages.start;
        let size = if before == 0 {
            FIRST_PAGES.max(read.saturating_mul(2))
        } else {
            before.saturating_mul(2)
        };
        self.send_from(pages.end, size)
    }

    fn send_from(&self, start: u64, pages: u64) -> Option<Range<u64>> {
        let pages = pages.min(self.most_pages());
        if pages == 0 {
            return None;
        }
        self.window.store(pages, Ordering::Relaxed);
        self.next.store(start.saturating_add(pages), Ordering::Relaxed);
        self.trigger.store(start, Ordering::Relaxed);
        Some(start..start.saturating_add(pages))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn windows_grow_for_who_reads_in_order_and_only_for_him() {
        let ahead = Ahead::new(64 << 10);
        assert_eq!(ahead.missed(0, &(0..1)), Some(1..5));
        assert!(!ahead.is_due(&(0..1)) && ahead.is_due(&(1..2)));
        assert_eq!(ahead.next_window(&(1..2)), Some(5..13));
        assert_eq!(ahead.next_window(&(1..2)), None);
        assert_eq!(ahead.next_window(&(5..6)), Some(13..29));
        assert_eq!(ahead.next_window(&(13..14)), Some(29..45));
        // Elsewhere: no more.
        assert_eq!(ahead.missed(100, &(100..101)), None);
        assert_eq!(ahead.missed(300, &(300..301)), None);
        // Two in a row.
        assert_eq!(ahead.missed(301, &(301..303)), Some(303..307));
        ahead.advise(Advice::Random);
        assert!(!ahead.is_due(&(303..304)));
        assert_eq!(ahead.missed(307, &(307..308)), None);
        ahead.advise(Advice::Sequential);
        assert_eq!(ahead.missed(308, &(308..328)), Some(328..360));
        assert_eq!(Ahead::new(0).missed(0, &(0..1)), None);
    }
}
