//! Observes a wait from within, to measure it.

use meantime_hw::Clock;

/// Called during the wait for a request. The waits are generic over it: `()` does nothing and costs
/// nothing.
pub trait Probe {
    /// Called when the thread runs again after a sleep or a block.
    fn woken(&self) {}
    /// Called when a completion entry was found, and has not been processed yet.
    fn seen(&self) {}
    /// Whether to end the wait without a completion. Called off the fast path, at each deadline
    /// check.
    fn stops(&self) -> bool {
        false
    }
}

impl Probe for () {}

/// Ends a wait when the closure returns true.
pub(crate) struct Until<'a>(pub(crate) &'a dyn Fn() -> bool);

impl Probe for Until<'_> {
    fn stops(&self) -> bool {
        (self.0)()
    }
}

/// The times of one wait.
#[derive(Debug)]
pub struct WaitTimes {
    clock: Clock,
    woken_ns: std::cell::Cell<u64>,
    seen_ns: std::cell::Cell<u64>,
}

impl WaitTimes {
    /// Times by `clock`; its readings are part of what is measured.
    pub fn new(clock: Clock) -> Self {
        Self { clock, woken_ns: 0.into(), seen_ns: 0.into() }
    }

    /// Clears the times of the last wait.
    #[inline]
    pub fn reset(&self) {
        self.woken_ns.set(0);
        self.seen_ns.set(0);
    }

    /// When the thread last ran again before the completion was seen; `None` if it did not sleep.
    #[inline]
    pub fn woken_ns(&self) -> Option<u64> {
        Some(self.woken_ns.get()).filter(|ns| *ns > 0)
    }

    /// When the last completion was seen; `None` if the channel does not call the probe.
    #[inline]
    pub fn seen_ns(&self) -> Option<u64> {
        Some(self.seen_ns.get()).filter(|ns| *ns > 0)
    }
}

impl Probe for WaitTimes {
    #[inline]
    fn woken(&self) {
        self.woken_ns.set(self.clock.now_ns_in_order());
    }

    #[inline]
    fn seen(&self) {
        self.seen_ns.set(self.clock.now_ns_in_order());
    }
}
