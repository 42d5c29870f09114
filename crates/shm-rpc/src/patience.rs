//! Decides how long to spin before sleeping.
//!
//! A sleep costs both sides: the waker a system call, and the sleeper the time until it runs.
//! Spinning pays if the awaited event comes soon, which is learned from the waits before: each wait
//! that ended while it spun raises the hope, and each other one lowers it. With little hope a
//! thread sleeps at once, and tries to spin again once in [`RETRY`] waits.
//!
//! If the other side last ran on this CPU, spinning would prevent it from running, so a thread
//! sleeps at once. If the clock jumps while it spins, others want the CPU, and the hope sinks.

use std::time::{Duration, Instant};

/// The hope below which a thread does not spin. It is between 0 and 256.
const LITTLE: u32 = 64;
/// Waits from one attempt to the next if there is little hope.
const RETRY: u32 = 32;
/// Polls between two readings of the clock.
const LOOKS: u32 = 32;
/// A thread that spins and was not running for this time has competitors for its CPU.
const JUMP: Duration = Duration::from_micros(200);

/// The result of one side's earlier waits.
#[derive(Debug)]
pub(crate) struct Patience {
    /// The longest time to spin.
    limit: Duration,
    hope: u32,
    skipped: u32,
}

impl Patience {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { limit, hope: 256, skipped: 0 }
    }

    /// Spins until `is_there`, or until it no longer pays. Returns whether it is there.
    /// `is_same_cpu` says that the other side last ran on this CPU.
    #[inline]
    pub(crate) fn spin(&mut self, is_same_cpu: bool, is_there: impl Fn() -> bool) -> bool {
        if is_there() {
            return true;
        }
        if is_same_cpu || !self.hopes() {
            return false;
        }
        let begun = Instant::now();
        let mut last = begun;
        loop {
            for _ in 0..LOOKS {
                if is_there() {
                    self.hope += (256 - self.hope) / 8;
                    return true;
                }
                std::hint::spin_loop();
            }
            let now = Instant::now();
            let has_jumped = now - last > JUMP;
            if has_jumped || now - begun > self.limit {
                self.hope -= self.hope / if has_jumped { 4 } else { 8 };
                return is_there();
            }
            last = now;
        }
    }

    fn hopes(&mut self) -> bool {
        if self.hope >= LITTLE {
            return true;
        }
        self.skipped += 1;
        if self.skipped >= RETRY {
            self.skipped = 0;
            return true;
        }
        false
    }
}

/// Returns the CPU that runs this thread.
pub(crate) fn cpu() -> u32 {
    rustix::thread::sched_getcpu() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiter_that_finds_nothing_stops_spinning_and_tries_again() {
        let mut patience = Patience::new(Duration::from_micros(1));
        let mut waits = 0;
        while patience.hope >= LITTLE {
            assert!(!patience.spin(false, || false));
            waits += 1;
            assert!(waits < 100);
        }
        let attempts = (0..2 * RETRY).filter(|_| patience.hopes()).count();
        assert_eq!(attempts, 2);
        patience.hope = 0;
        while patience.hope < LITTLE {
            patience.skipped = RETRY;
            let looks = std::cell::Cell::new(0);
            let third = || looks.replace(looks.get() + 1) == 2;
            assert!(patience.spin(false, third), "it came while it spun");
        }
        assert!(!patience.spin(true, || false), "the other side needs this CPU");
    }
}
