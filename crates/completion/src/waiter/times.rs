//! The published times of a channel.

use super::super::class::Kind;
use super::super::telemetry::Latencies;

/// Minimum time between samples of polled I/O, in ns. 200 samples a second are negligible for a
/// device that does half a million I/Os.
const SAMPLE_INTERVAL_NS: u64 = 5_000_000;

/// The timed I/Os.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Times {
    pub(super) latencies: Latencies,
    next_sample_ns: u64,
}

impl Times {
    /// Adds an I/O.
    #[inline]
    pub(super) fn add(&mut self, kind: Kind, device_ns: u64) {
        self.latencies.add(kind, device_ns);
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
