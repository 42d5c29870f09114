//! Limits the memory of all lines together.
//!
//! A line's data are in memory that the client shares, and in a copy of ours for each call. Both
//! are as large as the largest call so far. A call for which there is no memory left takes the FUSE
//! path.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use meantime_shm_rpc::{DATA_AT, DATA_BYTES};

use crate::server::counts::CallCounts;

/// The size of the data for which each line has room at first. Most calls have no more.
const FIRST_BYTES: usize = 64 << 10;
/// The minimum that is permitted by default: eight calls of the largest size at once.
const LEAST_BYTES: u64 = 8 * of_line(DATA_BYTES);

/// Returns the memory of a line that has room for `data` bytes of data.
const fn of_line(data: usize) -> u64 {
    (DATA_AT + 2 * data) as u64
}

/// The memory that all lines may have together.
pub(super) struct Memory {
    limit: u64,
    counts: Arc<CallCounts>,
}

/// The memory of one line. Dropping it returns the memory.
pub(super) struct Share {
    memory: Arc<Memory>,
    /// The size of the data for which there is room.
    data: usize,
}

impl Memory {
    /// Creates the limit of `limit` bytes, or of a quarter of our page cache if it is `None`.
    pub(super) fn new(limit: Option<u64>, cache: u64, counts: &Arc<CallCounts>) -> Self {
        let limit = limit.unwrap_or((cache / 4).max(LEAST_BYTES));
        Self { limit, counts: Arc::clone(counts) }
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    fn used(&self) -> &AtomicU64 {
        &self.counts.line_bytes
    }

    fn take(&self, bytes: u64) -> bool {
        let taken = self.used().fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|used| *used <= self.limit)
        });
        taken.is_ok()
    }

    /// Returns a new line's share, if there is memory for one.
    pub(super) fn share(memory: &Arc<Self>) -> Option<Share> {
        let data = FIRST_BYTES;
        let is_there = memory.take(of_line(data));
        is_there.then(|| Share { memory: Arc::clone(memory), data })
    }
}

impl Share {
    /// Returns the size of the data for which there is room.
    pub(super) fn data(&self) -> usize {
        self.data
    }

    /// Makes room for calls of `data` bytes. Returns whether there is memory for that.
    pub(super) fn grow(&mut self, data: usize) -> bool {
        let data = data.next_power_of_two().min(DATA_BYTES).max(self.data);
        let is_there = self.memory.take(of_line(data) - of_line(self.data));
        if is_there {
            self.data = data;
        }
        is_there
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.memory.used().fetch_sub(of_line(self.data), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_no_more_than_the_limit_and_give_it_back() {
        let counts = Arc::default();
        let memory = |limit, cache| Arc::new(Memory::new(limit, cache, &counts));
        assert_eq!(memory(None, 1 << 30).limit(), 256 << 20);
        assert_eq!(memory(None, 1 << 20).limit(), LEAST_BYTES);
        let memory = memory(Some(3 << 20), 1 << 30);
        let mut first = Memory::share(&memory).unwrap();
        let mut second = Memory::share(&memory).unwrap();
        assert!(first.grow(DATA_BYTES) && first.data() == DATA_BYTES);
        assert!(!second.grow(DATA_BYTES) && second.data() == FIRST_BYTES);
        assert!(second.grow(FIRST_BYTES + 1) && second.data() == 2 * FIRST_BYTES);
        let rest: Vec<_> = std::iter::from_fn(|| Memory::share(&memory)).collect();
        let used = || counts.get().line_bytes;
        assert!(rest.len() == 5 && used() <= 3 << 20, "{} {}", rest.len(), used());
        drop((first, rest));
        assert!(second.grow(DATA_BYTES));
        drop(second);
        assert_eq!(used(), 0);
    }
}
