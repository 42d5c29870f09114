//! Being woken by another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Times, spawn};
use meantime_hw::{Clock, EventFd, Futex, HwError};

/// A sleeper that is not woken looks again after this.
const LOOK_AGAIN_NS: u64 = 1_000_000_000;

/// What one thread sleeps on and another one signals, once a turn.
trait Bell: Send + Sync + 'static {
    fn signal(&self, turn: u32);
    fn wait(&self, turn: u32);
}

impl Bell for EventFd {
    fn signal(&self, _turn: u32) {
        EventFd::signal(self);
    }

    fn wait(&self, _turn: u32) {
        while !EventFd::wait(self, LOOK_AGAIN_NS) {}
    }
}

/// The word is the number of turns that were signalled.
impl Bell for Futex {
    fn signal(&self, turn: u32) {
        self.set(turn + 1);
    }

    fn wait(&self, turn: u32) {
        while self.get() == turn {
            Futex::wait(self, turn, LOOK_AGAIN_NS);
        }
    }
}

/// The time in ns from an eventfd being signalled on `other_cpu` to the calling thread, which
/// sleeps on it, running. Between two signals the caller's core is idle for `idle`, and may fall
/// into a deeper idle state.
///
/// # Errors
/// If no thread or eventfd can be had.
pub fn eventfd_wake(
    other_cpu: Option<usize>,
    idle: Duration,
    count: usize,
) -> Result<Times, HwError> {
    wake(EventFd::new()?, other_cpu, idle, count)
}

/// As [`eventfd_wake`], by a futex.
///
/// # Errors
/// If no thread can be had.
pub fn futex_wake(
    other_cpu: Option<usize>,
    idle: Duration,
    count: usize,
) -> Result<Times, HwError> {
    wake(Futex::default(), other_cpu, idle, count)
}

fn wake(
    bell: impl Bell,
    other_cpu: Option<usize>,
    idle: Duration,
    count: usize,
) -> Result<Times, HwError> {
    let (bell, signalled_ns) = (Arc::new(bell), Arc::new(AtomicU64::new(0)));
    let (their_bell, their_ns) = (Arc::clone(&bell), Arc::clone(&signalled_ns));
    let total = u32::try_from(count + count / 10 + 1).unwrap_or(u32::MAX);
    let clock = Clock::real();
    let their_clock = clock.clone();
    let taken = Arc::new(AtomicU64::new(0));
    let their_taken = Arc::clone(&taken);
    let signaller = spawn(other_cpu, move || {
        for turn in 0..total {
            // Busy waiting keeps this core's own wake-up out of the figure.
            while their_taken.load(Ordering::Acquire) < u64::from(turn) {
                std::hint::spin_loop();
            }
            let until_ns = their_clock.now_ns() + idle.as_nanos() as u64;
            while their_clock.now_ns() < until_ns {
                std::hint::spin_loop();
            }
            their_ns.store(their_clock.now_ns(), Ordering::Release);
            their_bell.signal(turn);
        }
    })?;
    let mut samples = Vec::with_capacity(total as usize);
    for turn in 0..total {
        bell.wait(turn);
        samples.push(clock.now_ns().saturating_sub(signalled_ns.load(Ordering::Acquire)));
        taken.store(u64::from(turn) + 1, Ordering::Release);
    }
    let _ = signaller.join();
    // The first ones find caches and cores cold.
    Ok(Times::new(samples.split_off(samples.len().saturating_sub(count))))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_turn_is_a_sample() {
        let idle = Duration::from_micros(50);
        assert_eq!(eventfd_wake(None, idle, 20).unwrap().count(), 20);
        assert_eq!(futex_wake(None, idle, 20).unwrap().count(), 20);
        assert_eq!(futex_wake(None, Duration::ZERO, 0).unwrap().count(), 0);
    }
}
