//! The published times of a channel.

/// Minimum time between samples of polled I/O, in ns: 200 samples a second, negligible for a device
/// of half a million I/Os.
const SAMPLE_INTERVAL_NS: u64 = 5_000_000;

/// Sums over the timed I/Os.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Times {
    pub(super) count: u64,
    pub(super) sum_ns: u64,
    next_sample_ns: u64,
}

impl Times {
    /// Adds an I/O.
    #[inline]
    pub(super) fn add(&mut self, device_ns: u64) {
        self.count += 1;
        self.sum_ns += device_ns;
    }

    /// Whether to time a polled I/O submitted at `now_ns`.
    pub(super) fn take_sample(&mut self, now_ns: u64) -> bool {
        let due = now_ns >= self.next_sample_ns;
        if due {
            self.next_sample_ns = now_ns.saturating_add(SAMPLE_INTERVAL_NS);
        }
        due
    }
}
