//! Yields the CPU to a device that is a thread and wants the CPU on which its waiter spins.

use super::gap::Source;

/// Time between two looks at the device's thread, in ns: while it runs, and after it stood still.
const SELDOM_NS: u64 = 50_000;
const OFTEN_NS: u64 = 2_000;
/// Number of looks in a row that found it standing still, after which this thread only yields.
const YIELDS: u32 = 4;
/// The first sleep in favour of a thread that stands still, and the longest, in ns.
const FIRST_SLEEP_NS: u64 = 10_000;
const LONGEST_SLEEP_NS: u64 = 500_000;

/// If a yield or a short sleep takes this much longer, in ns, a third thread has used the CPU.
/// Yielding then helps that thread, and the scheduler separates threads only if they want to run.
/// So the waiter neither yields nor sleeps for the device's thread during the following time, in
/// ns.
const THIRD_NS: u64 = 200_000;
const OFF_NS: u64 = 100_000_000;

/// What a waiter knows of the thread of its device.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeviceWatchdog {
    looked_ns: u64,
    /// The heartbeat at the last look.
    heartbeat: u64,
    /// Time between two looks, in ns.
    interval_ns: u64,
    /// Number of looks in a row that found its heartbeat unchanged.
    still: u32,
    /// The time until which it neither yields nor sleeps for it, in ns.
    off_until_ns: u64,
}

impl DeviceWatchdog {
    /// Yields the CPU if the device's thread has not run since the last look. Called while
    /// spinning, after a reading of the clock.
    #[inline(always)]
    pub(crate) fn yield_cpu(&mut self, source: &impl Source, now_ns: u64) {
        if now_ns.saturating_sub(self.looked_ns) >= self.interval_ns {
            self.check(source, now_ns);
        }
    }

    #[cold]
    #[inline(never)]
    fn check(&mut self, source: &impl Source, now_ns: u64) {
        // A look long ago says nothing about now: a thread without work parks.
        let is_recent = now_ns.saturating_sub(self.looked_ns) < self.interval_ns.saturating_mul(4);
        self.looked_ns = now_ns;
        let Some(heartbeat) = source.heartbeat_here() else {
            self.interval_ns = SELDOM_NS;
            return;
        };
        let stands_still = std::mem::replace(&mut self.heartbeat, heartbeat) == heartbeat;
        if !stands_still {
            self.still = 0;
            self.interval_ns = (2 * self.interval_ns).clamp(OFTEN_NS, SELDOM_NS);
            return;
        }
        if !is_recent || now_ns < self.off_until_ns {
            return;
        }
        self.interval_ns = OFTEN_NS;
        self.still += 1;
        source.share_cpu();
        let mut sleep_ns = 0;
        if self.still <= YIELDS {
            // A yield suffices if the device's thread waits for this CPU.
            std::thread::yield_now();
        } else {
            sleep_ns = FIRST_SLEEP_NS << (self.still - YIELDS - 1).min(6);
            sleep_ns = sleep_ns.min(LONGEST_SLEEP_NS);
            source.sleep_ns(sleep_ns);
        }
        self.looked_ns = source.now_ns().max(now_ns);
        if self.looked_ns - now_ns > sleep_ns + THIRD_NS {
            (self.off_until_ns, self.interval_ns) = (self.looked_ns + OFF_NS, SELDOM_NS);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
