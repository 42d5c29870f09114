//! Giving way to a device that is a thread and wants the CPU on which its waiter spins.

use super::gap::Source;

/// Time between two looks at the device's thread, in ns: while it runs, and after it stood still.
const SELDOM_NS: u64 = 50_000;
const OFTEN_NS: u64 = 2_000;
/// Number of looks in a row that found it standing still, after which this thread only yields.
const YIELDS: u32 = 4;
/// The first sleep in favour of a thread that stands still, and the longest, in ns.
const FIRST_SLEEP_NS: u64 = 10_000;
const LONGEST_SLEEP_NS: u64 = 500_000;

/// A yield or a short sleep that takes this much longer, in ns, was used by a third thread. Then
/// giving way helps that one, and the scheduler separates threads only if they want to run: none is
/// done for so long, in ns.
const THIRD_NS: u64 = 200_000;
const OFF_NS: u64 = 100_000_000;

/// What a waiter knows of the thread of its device.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pulse {
    looked_ns: u64,
    /// The beat at the last look.
    beat: u64,
    /// Time between two looks, in ns.
    interval_ns: u64,
    /// Number of looks in a row that found it where it was.
    still: u32,
    /// Until when it does not give way, in ns.
    off_until_ns: u64,
}

impl Pulse {
    /// Gives the CPU away if the device's thread has not run since the last look. Called while
    /// spinning, after a reading of the clock.
    #[inline(always)]
    pub(crate) fn give_way(&mut self, source: &impl Source, now_ns: u64) {
        if now_ns.saturating_sub(self.looked_ns) >= self.interval_ns {
            self.look(source, now_ns);
        }
    }

    #[cold]
    #[inline(never)]
    fn look(&mut self, source: &impl Source, now_ns: u64) {
        // A look long ago says nothing about now: a thread without work parks.
        let is_recent = now_ns.saturating_sub(self.looked_ns) < self.interval_ns.saturating_mul(4);
        self.looked_ns = now_ns;
        let Some(beat) = source.heartbeat_here() else {
            self.interval_ns = SELDOM_NS;
            return;
        };
        let stands_still = std::mem::replace(&mut self.beat, beat) == beat;
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
            // Enough if it waits for this CPU.
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
mod tests {
    use super::*;
    use std::cell::Cell;

    #[derive(Default)]
    struct Device {
        beat: Option<u64>,
        slept_ns: Cell<u64>,
    }

    impl Source for Device {
        fn reap(&mut self) -> usize {
            0
        }

        fn has_completion(&self) -> bool {
            false
        }

        fn tick(&mut self, _: u64) -> usize {
            0
        }

        fn tick_interval_ns(&self) -> u64 {
            1_000_000
        }

        fn now_ns(&self) -> u64 {
            0
        }

        fn sleep_ns(&self, duration_ns: u64) {
            self.slept_ns.set(self.slept_ns.get() + duration_ns);
        }

        fn wait_interrupt(&self, _: u64) -> bool {
            false
        }

        fn heartbeat_here(&self) -> Option<u64> {
            self.beat
        }
    }

    /// Spins for `for_ns`, with a reading of the clock every 100 ns.
    fn spin(pulse: &mut Pulse, device: &mut Device, from_ns: u64, for_ns: u64, beats: u64) {
        for n in 0..for_ns / 100 {
            device.beat = device.beat.map(|beat| beat + beats);
            pulse.give_way(device, from_ns + 100 * n);
        }
    }

    #[test]
    fn sleeps_only_while_the_device_stands_still() {
        let (mut pulse, mut device) =
            (Pulse::default(), Device { beat: Some(7), ..Device::default() });
        spin(&mut pulse, &mut device, 1_000_000, 500_000, 1);
        assert_eq!((device.slept_ns.get(), pulse.interval_ns), (0, SELDOM_NS));
        spin(&mut pulse, &mut device, 1_500_000, 49_000, 0);
        assert_eq!(device.slept_ns.get(), 0);
        spin(&mut pulse, &mut device, 1_549_000, 50_000, 0);
        assert!(device.slept_ns.get() > 0);
        // Back soon.
        device.slept_ns.set(0);
        spin(&mut pulse, &mut device, 1_600_000, 200_000, 1);
        assert_eq!((device.slept_ns.get(), pulse.interval_ns), (0, SELDOM_NS));
        // It was parked for long: that it did not run is no news.
        spin(&mut pulse, &mut device, 900_000_000, 100, 0);
        assert_eq!(device.slept_ns.get(), 0);
    }

    #[test]
    fn other_devices_are_asked_seldom() {
        let (mut pulse, mut device) = (Pulse::default(), Device::default());
        spin(&mut pulse, &mut device, 1_000, 100_000, 1);
        assert_eq!((pulse.interval_ns, device.slept_ns.get()), (SELDOM_NS, 0));
    }
}
