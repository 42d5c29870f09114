//! The clocks of the SSD.

use std::time::Instant;

/// A monotonic clock in ns. It is not read while the model is `null` and queues are busy.
pub trait Clock: Send + Clone + 'static {
    /// Nanoseconds since some fixed moment.
    fn now_ns(&self) -> u64;
}

/// The operating system's monotonic clock (about 25 ns a reading).
#[derive(Clone, Copy, Debug)]
pub struct MonotonicClock {
    origin: Instant,
}

impl MonotonicClock {
    /// Creates a clock that reads zero now.
    #[must_use]
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Default for MonotonicClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for MonotonicClock {
    #[inline]
    fn now_ns(&self) -> u64 {
        // 2^64 ns are 584 years.
        self.origin.elapsed().as_nanos() as u64
    }
}

/// A clock that stands still. It shows the stepped SSD's time during one step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FixedClock(pub(crate) u64);

impl Clock for FixedClock {
    fn now_ns(&self) -> u64 {
        self.0
    }
}
