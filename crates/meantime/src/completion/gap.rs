//! The gap: waiting for at least one completion by the way the policy names.

use super::mean::{HalfMean, HalfMin};
use super::policy::Policy;

/// Default of [`Gap::set_spin_budget_ns`].
const SPIN_BUDGET_NS: u64 = 1_000_000;

/// How many looks at the queue go by between two looks at the clock: about 100 ns' worth.
const SPINS_PER_CLOCK: u32 = if cfg!(loom) { 2 } else { 64 };

/// The longest of the growing sleeps.
const LONGEST_NAP_NS: u64 = 1_000_000;

/// A queue to wait on.
pub trait Source {
    /// Takes what has completed; how many commands ended.
    fn reap(&mut self) -> usize;
    /// Whether [`Source::reap`] would find something: one look, no side effect.
    fn has_completion(&self) -> bool;
    /// Off the fast path: deadlines and resets. How many commands ended.
    fn tick(&mut self, now_ns: u64) -> usize;
    /// How long may pass between two ticks, in ns.
    fn tick_interval_ns(&self) -> u64;
    /// The time in ns.
    fn now_ns(&self) -> u64;
    /// Lets `duration_ns` pass, asleep.
    fn sleep_ns(&self, duration_ns: u64);
    /// Blocks until the queue's interrupt or for `timeout_ns`. An interrupt that came before counts. False, at once, if the
    /// queue has no interrupt.
    fn wait_interrupt(&self, timeout_ns: u64) -> bool;
}

/// What the waits of a queue came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GapCounters {
    /// Waits that a first look did not end.
    pub waits: u64,
    /// Waits that slept before they polled.
    pub sleeps: u64,
    /// Of those, how many found the completion there already.
    pub oversleeps: u64,
    /// Waits in which the spin budget ran out.
    pub fallbacks: u64,
    /// Times the waiter blocked for an interrupt.
    pub blocks: u64,
}

/// The state of waiting on one queue. Belongs to the queue's thread.
#[derive(Debug, Clone)]
pub struct Gap {
    spin_budget_ns: u64,
    mean: HalfMean,
    min: HalfMin,
    /// What the last wait that slept was to sleep.
    slept_ns: u64,
    counters: GapCounters,
}

impl Default for Gap {
    fn default() -> Self {
        Self {
            spin_budget_ns: SPIN_BUDGET_NS,
            mean: HalfMean::default(),
            min: HalfMin::default(),
            slept_ns: 0,
            counters: GapCounters::default(),
        }
    }
}

impl Gap {
    /// How long a wait may spin, after any sleep, before it stops burning the CPU. Default 1 ms.
    pub fn set_spin_budget_ns(&mut self, budget_ns: u64) {
        self.spin_budget_ns = budget_ns;
    }

    /// The budget in force.
    pub fn spin_budget_ns(&self) -> u64 {
        self.spin_budget_ns
    }

    /// What the waits came to.
    pub fn counters(&self) -> GapCounters {
        self.counters
    }

    /// The mean that `hybrid` goes by.
    pub fn mean(&self) -> HalfMean {
        self.mean
    }

    /// Takes in the device time of one I/O that was found complete at `now_ns`.
    #[inline]
    pub fn record(&mut self, device_ns: u64, now_ns: u64) {
        self.mean.record(device_ns, now_ns);
        self.min.record(device_ns, self.slept_ns);
    }

    /// Waits until at least one command of `source` has ended; how many did.
    ///
    /// The caller has something in flight on it, rang its doorbell, and bounds the wait: every command has a deadline at
    /// which [`Source::tick`] ends it. `first_wait` is false if the I/O waited for has slept already: like Linux, a hybrid
    /// policy sleeps once per I/O.
    #[inline]
    pub fn wait(&mut self, source: &mut impl Source, policy: Policy, first_wait: bool) -> usize {
        self.counters.waits += 1;
        match policy {
            Policy::Poll => {}
            Policy::Interrupt => {
                let ended = source.reap();
                return if ended > 0 { ended } else { self.wait_blocked(source) };
            }
            Policy::HybridFixed(ns) if first_wait => self.sleep(source, ns),
            Policy::HybridHalfMean if first_wait => self.sleep(source, self.mean.sleep_ns()),
            Policy::HybridMin if first_wait => self.sleep(source, self.min.sleep_ns()),
            Policy::HybridFixed(_) | Policy::HybridHalfMean | Policy::HybridMin => {}
        }
        self.spin(source)
    }

    #[inline(never)]
    fn sleep(&mut self, source: &mut impl Source, duration_ns: u64) {
        self.slept_ns = duration_ns;
        if duration_ns == 0 {
            return;
        }
        self.counters.sleeps += 1;
        // Not through deadlines.
        source.sleep_ns(duration_ns.min(source.tick_interval_ns()));
        if source.has_completion() {
            self.counters.oversleeps += 1;
        }
    }

    #[inline(always)]
    fn spin(&mut self, source: &mut impl Source) -> usize {
        // The clock is first read after a while: a fast device is done before that.
        for _ in 0..SPINS_PER_CLOCK {
            let ended = source.reap();
            if ended > 0 {
                return ended;
            }
        }
        self.spin_long(source)
    }

    #[inline(never)]
    fn spin_long(&mut self, source: &mut impl Source) -> usize {
        let start_ns = source.now_ns();
        loop {
            for _ in 0..SPINS_PER_CLOCK {
                if source.has_completion() {
                    let ended = source.reap();
                    // A stray ends nothing.
                    if ended > 0 {
                        return ended;
                    }
                }
            }
            let now_ns = source.now_ns();
            let ended = source.tick(now_ns);
            if ended > 0 {
                return ended;
            }
            if now_ns.saturating_sub(start_ns) >= self.spin_budget_ns {
                break;
            }
        }
        self.counters.fallbacks += 1;
        self.wait_blocked(source)
    }

    /// Waits without burning the CPU. The order is that of ARCHITECTURE.md §5: look, then block, then look again.
    #[inline(never)]
    fn wait_blocked(&mut self, source: &mut impl Source) -> usize {
        let mut nap_ns = 1_000;
        loop {
            let ended = source.reap();
            if ended > 0 {
                return ended;
            }
            let timeout_ns = source.tick_interval_ns();
            self.counters.blocks += 1;
            if !source.wait_interrupt(timeout_ns) {
                source.sleep_ns(nap_ns.min(timeout_ns));
                nap_ns = (nap_ns * 2).min(LONGEST_NAP_NS);
            }
            // The completion first: a tick looks at deadlines, and must not find overdue what is there.
            let ended = source.reap();
            if ended > 0 {
                return ended;
            }
            let now_ns = source.now_ns();
            let ended = source.tick(now_ns);
            if ended > 0 {
                return ended;
            }
        }
    }
}
