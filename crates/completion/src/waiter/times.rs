//! The times that a channel publishes.

/// How far apart samples of polled I/O are at least: 200 a second, which a device of half a million
/// does not feel.
const SAMPLE_INTERVAL_NS: u64 = 5_000_000;

/// The I/Os of which the time was taken.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Times {
    pub(super) count: u64,
    pub(super) sum_ns: u64,
    next_sample_ns: u64,
}

impl Times {
    /// Takes in the time of one.
    #[inline]
    pub(super) fn add(&mut self, device_ns: u64) {
        self.count += 1;
        self.sum_ns += device_ns;
    }

    /// Whether a polled I/O is to be timed that is submitted at `now_ns`.
    pub(super) fn take_sample(&mut self, now_ns: u64) -> bool {
        let due = now_ns >= self.next_sample_ns;
        if due {
            self.next_sample_ns = now_ns.saturating_add(SAMPLE_INTERVAL_NS);
        }
        due
    }
}
