//! Selects the pages to evict: S3-FIFO (Yang et al., "FIFO queues are all you need for cache
//! eviction", SOSP 2023).
//!
//! A new page enters a small queue, and leaves the cache from it if it is not visited there: so a
//! scan passes through a tenth of the cache and leaves the rest alone. Visited pages enter the main
//! queue, and stay in it as long as they are visited. A page that returns soon after it left the
//! small queue (the ghost queue remembers it) enters the main queue at once.

use std::collections::VecDeque;

use super::table::{At, VISITS_MAX};

/// Visits in the small queue that move a page to the main queue.
const VISITS_TO_STAY: u32 = 2;

/// The cache, as seen by the queues.
pub(super) trait Pages {
    /// Returns how often a page was visited; `None` if it is no longer in the cache.
    fn visits(&self, at: At) -> Option<u32>;
    /// Sets the number of its visits.
    fn set_visits(&self, at: At, count: u32);
    /// Returns a hash of its key.
    fn hash(&self, at: At) -> u64;
    /// Evicts it. Returns false if that is not possible now, or it is no longer in the cache.
    fn evict(&mut self, at: At) -> bool;
}

/// The queues of a cache.
pub(super) struct Queues {
    small: VecDeque<At>,
    main: VecDeque<At>,
    ghosts: Ghosts,
    /// The small queue is shortened first while it is longer than this.
    small_most: usize,
    /// With more entries than this, those of removed pages are dropped.
    most: usize,
}

impl Queues {
    /// Returns the queues of a cache of `pages`.
    pub(super) fn new(pages: usize) -> Self {
        Self {
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: Ghosts::new(pages),
            small_most: (pages / 10).max(1),
            most: 2 * pages + 64,
        }
    }

    /// Adds a page.
    pub(super) fn arrive(&mut self, at: At, pages: &impl Pages) {
        if self.small.len() + self.main.len() >= self.most {
            // Pages were invalidated again and again, and none was evicted.
            self.small.retain(|at| pages.visits(*at).is_some());
            self.main.retain(|at| pages.visits(*at).is_some());
        }
        if self.ghosts.remembers(pages.hash(at)) {
            self.main.push_back(at);
        } else {
            self.small.push_back(at);
        }
    }

    /// Evicts one page. Returns false if none can be evicted. Meets each page at most once more
    /// than it has visits.
    pub(super) fn evict_one(&mut self, pages: &mut impl Pages) -> bool {
        let steps = (VISITS_MAX as usize + 2) * (self.small.len() + self.main.len());
        // A page that cannot be evicted stays in the main queue, and must not be met for ever.
        let mut refused = false;
        for _ in 0..steps {
            let prefers_small = self.small.len() > self.small_most || refused;
            let from_small = self.main.is_empty() || prefers_small && !self.small.is_empty();
            let queue = if from_small { &mut self.small } else { &mut self.main };
            let Some(at) = queue.pop_front() else { return false };
            // No longer in the cache.
            let Some(visits) = pages.visits(at) else { continue };
            if from_small && visits >= VISITS_TO_STAY {
                pages.set_visits(at, 0);
                self.main.push_back(at);
                continue;
            }
            if !from_small && visits > 0 {
                pages.set_visits(at, visits - 1);
                self.main.push_back(at);
                continue;
            }
            let hash = pages.hash(at);
            if !pages.evict(at) {
                refused = true;
                // It is dirty, or has been removed meanwhile.
                if pages.visits(at).is_some() {
                    self.main.push_back(at);
                }
                continue;
            }
            if from_small {
                self.ghosts.remember(hash);
            }
            return true;
        }
        false
    }
}

/// The pages that left the small queue last, as many as the main queue has room for. Of fixed size:
/// a page that is forgotten early because another has its place enters the small queue once more.
struct Ghosts {
    /// Upper half: of the hash. Lower half: when it left, as a count of departures from 1 on.
    places: Box<[u64]>,
    departures: u32,
    most: u32,
}

impl Ghosts {
    fn new(pages: usize) -> Self {
        let most = u32::try_from(pages - pages / 10).unwrap_or(u32::MAX).max(1);
        let places = vec![0; pages.next_power_of_two().max(16)];
        Self { places: places.into(), departures: 0, most }
    }

    fn place(&mut self, hash: u64) -> &mut u64 {
        let mask = self.places.len() - 1;
        &mut self.places[hash as usize & mask]
    }

    fn remember(&mut self, hash: u64) {
        self.departures = self.departures.wrapping_add(1).max(1);
        *self.place(hash) = hash >> 32 << 32 | u64::from(self.departures);
    }

    /// Returns whether it has left recently, and forgets it, because it returns.
    fn remembers(&mut self, hash: u64) -> bool {
        let (departures, most) = (self.departures, self.most);
        let place = self.place(hash);
        let (who, when) = (*place >> 32, *place as u32);
        let known = when != 0 && who == hash >> 32 && departures.wrapping_sub(when) < most;
        if known {
            *place = 0;
        }
        known
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
